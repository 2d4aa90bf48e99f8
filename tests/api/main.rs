//! Is the contract kept? A whole server on loopback, asked through real sockets by a client that
//! normalises nothing. One file per resource.
#![expect(
    clippy::disallowed_methods,
    reason = "tests build their own directories and damage them by name"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    reason = "helpers of tests, outside the functions marked as tests"
)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/proven.rs"]
mod proven;

#[path = "../support/skip.rs"]
mod skip;

mod access;
mod archives;
mod asked;
mod attachments;
mod audit;
mod capture;
mod connections;
mod coverage;
mod damage;
mod directories;
mod doors;
mod downloads;
mod events;
mod extremes;
mod fence;
mod fields;
mod handoff;
mod interactions;
mod kinds;
mod left;
mod load;
mod login;
mod messages;
mod openapi;
mod page;
mod permission;
mod probe;
mod problems;
mod releases;
mod removal;
mod reports;
mod room;
mod rows;
mod sessions;
mod snapshot;
mod streams;
mod targets;
mod tickets;
mod told;
mod unrouted;
mod uploads;
mod writers;
