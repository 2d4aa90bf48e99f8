//! Chromium against the real server: what it runs, what it saves, how it goes on after a cut.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests build their own directories, and stop at the first surprise"
)]

#[path = "../support/nasty.rs"]
mod nasty;
#[expect(dead_code, reason = "shared with the tests of the command line")]
#[path = "../cli/program.rs"]
mod program;
#[expect(dead_code, reason = "shared with the tests of the command line")]
#[path = "../cli/proxy.rs"]
mod proxy;
#[path = "../support/skip.rs"]
mod skip;
#[expect(dead_code, reason = "shared with the tests of the command line")]
#[path = "../cli/wire.rs"]
mod wire;

mod active;
mod elsewhere;
mod names;
mod page;
mod resume;
mod scene;
mod webdriver;
