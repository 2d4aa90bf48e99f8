//! The `holdfast` program.
//!
//! In this order: arguments, configuration, roots and data opened, runtime, listeners. A sandbox will
//! stand between what is opened and the runtime, while there is one thread.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast::cli::run()
}
