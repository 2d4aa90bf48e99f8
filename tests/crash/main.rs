//! What survives a failure? Processes killed at every system call that changes something, power
//! cut under a filesystem, and every error the system can answer with.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests build their own directories, look into them by name, and fail where they stand"
)]

#[path = "../support/content.rs"]
mod content;
#[path = "../support/proven.rs"]
mod proven;
#[path = "../support/releasing.rs"]
mod releasing;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/skip.rs"]
mod skip;

mod disk;
mod errors;
mod handoff;
mod journal;
mod journey;
mod place;
mod releases;
mod store;
mod tickets;
mod trace;
