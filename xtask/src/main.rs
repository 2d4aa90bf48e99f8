//! The checks of the project as commands.
//!
//! `cargo xtask test` sets up what the tests need and runs every check a change must pass;
//! `cargo xtask long` runs what takes too long for every change and writes what it saw.

#![forbid(unsafe_code)]

mod long;
mod packages;
mod step;

use std::process::ExitCode;

use step::Steps;

const HELP: &str = "\
The checks of the project.

  cargo xtask test    set up, then format, lints, builds, tests, docs, fuzz targets, licences
  cargo xtask setup   only install what the tests need
  cargo xtask long    the long suite: large files and homes, long races; writes
                      target/long/report.txt; with `large`, `home`, `dsh`, `tests` or
                      `judges` that part alone
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("test"), None) => test(),
        (Some("setup"), None) => {
            packages::install();
            ExitCode::SUCCESS
        }
        (Some("long"), only) => long::run(only.as_deref()),
        (None | Some("help" | "--help" | "-h"), None) => {
            step::say(HELP);
            ExitCode::SUCCESS
        }
        _ => {
            step::say(HELP);
            ExitCode::from(2)
        }
    }
}

fn test() -> ExitCode {
    packages::install();
    let mut steps = Steps::default();
    steps.cargo("format", &["fmt", "--all", "--check"]);
    steps.cargo(
        "lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "holdfast/_seams",
            "--",
            "-D",
            "warnings",
        ],
    );
    steps.cargo(
        "lints of the lean library",
        &[
            "clippy",
            "-p",
            "holdfast",
            "--lib",
            "--no-default-features",
            "--",
            "-D",
            "warnings",
        ],
    );
    steps.cargo(
        "lints of what is released",
        &[
            "clippy", "-p", "holdfast", "--lib", "--bins", "--", "-D", "warnings",
        ],
    );
    steps.cargo(
        "lints of the lean prober",
        &[
            "clippy",
            "-p",
            "fsprobe",
            "--lib",
            "--no-default-features",
            "--",
            "-D",
            "warnings",
        ],
    );
    steps.cargo(
        "tests",
        &[
            "test",
            "--locked",
            "--workspace",
            "--features",
            "holdfast/_seams",
            "--no-fail-fast",
        ],
    );
    steps.cargo_with(
        "docs",
        &[
            "doc",
            "--workspace",
            "--no-deps",
            "--features",
            "holdfast/_seams",
        ],
        &[("RUSTDOCFLAGS", "-D warnings")],
    );
    steps.cargo(
        "fuzz targets",
        &["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"],
    );
    licences(&mut steps);
    steps.finish()
}

/// What we depend on: whose it is and where it comes from; and, with a way to the database, what is
/// known against it.
fn licences(steps: &mut Steps) {
    if !step::succeeds("cargo", &["deny", "--version"]) {
        return steps.skip(
            "licences and advisories",
            "cargo deny is not installed (cargo install cargo-deny --locked)",
        );
    }
    steps.cargo(
        "licences",
        &["deny", "check", "bans", "licenses", "sources"],
    );
    if step::succeeds("cargo", &["deny", "fetch", "db"]) {
        steps.cargo("advisories", &["deny", "check", "advisories"]);
    } else {
        steps.skip("advisories", "their database cannot be fetched from here");
    }
}
