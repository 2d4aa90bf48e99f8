//! The long suite: large files and long races.

use std::process::ExitCode;

use crate::step::Steps;

/// Runs the tests that are too long for every change.
pub(crate) fn run() -> ExitCode {
    let mut steps = Steps::default();
    steps.cargo(
        "long tests",
        &[
            "test",
            "--release",
            "--workspace",
            "--features",
            "holdfast/_seams",
            "--",
            "--ignored",
            "--nocapture",
        ],
    );
    steps.finish()
}
