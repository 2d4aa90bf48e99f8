//! Programs other people wrote, against the real server: what they resume and what they save.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
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

mod bundles;
mod doors;
mod hostile;
mod judges;
mod names;
mod nginx;
mod resume;
mod tls;
mod typescript;

use std::process::Command;

/// Whether a program runs here; a missing one is reported.
fn has(program: &str, arguments: &[&str]) -> bool {
    let runs = Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success());
    if !runs {
        skip::skipped(1, program, "it is not installed (`cargo xtask setup`)");
    }
    runs
}
