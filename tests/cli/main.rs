//! The real program, run as a person would run it: set up, serve, ask, download, stop.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "tests build their own directories, and stop at the first surprise"
)]

mod audit;
mod beside;
mod closed;
mod config;
mod download;
mod logs;
mod program;
mod prove;
mod proxy;
mod released;
mod restart;
#[path = "../support/skip.rs"]
mod skip;
mod tickets;
mod tls;
mod up;
mod watch;
mod wire;
