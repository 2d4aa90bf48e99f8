//! Compares speeds. Every figure is a ratio of medians in one run, whose rounds are interleaved:
//! a machine that is busy for a moment is busy for all that are compared.
//!
//! Promises: nothing is asserted; what is printed names what was compared. Leaves to others: whether
//! anything is right (`tests`).

#![forbid(unsafe_code)]

mod open;
mod rounds;

use std::{io::Write as _, process::ExitCode};

const USAGE: &str = "\
Usage: cargo run --release -p bench -- COMMAND

Commands:
  open  a pinned open beside the system calls it consists of, and beside a racy one
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if (words.next().as_deref(), words.next()) != (Some("open"), None) {
        say(USAGE);
        return ExitCode::from(2);
    }
    match open::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("bench: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// A reader that went away is no reason to stop.
fn say(text: &str) {
    drop(std::io::stdout().lock().write_all(text.as_bytes()));
}
