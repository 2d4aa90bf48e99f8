//! Is a DSH home read as it lies: right, or refused with a reason, and never touched?

#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests build their own directories, read the shared data, and fail where they stand"
)]

mod damaged;
mod exchange;
mod fixtures;
mod growing;
mod hostile;
mod index;
mod over_http;
#[expect(
    dead_code,
    reason = "shared with the tests of the command line, which need more"
)]
#[path = "../cli/program.rs"]
mod program;
#[path = "../support/skip.rs"]
mod skip;
mod support;
#[expect(
    dead_code,
    reason = "shared with the tests of the command line, which need more"
)]
#[path = "../cli/wire.rs"]
mod wire;
