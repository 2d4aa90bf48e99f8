//! Says what a test could not do here, where everybody sees it.

use std::io::Write as _;

/// Prints that `count` cases of `what` were left out, and why; past the capture of the test
/// runner, so that a run without them never looks like a run with them.
///
/// With `HOLDFAST_TESTS=complete` in the environment leaving out is a failure.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of the test run is its configuration"
)]
pub(crate) fn skipped(count: usize, what: &str, why: &str) {
    let complete = std::env::var_os("HOLDFAST_TESTS").is_some_and(|value| value == "complete");
    assert!(!complete, "skipped {count} {what}: {why}");
    writeln!(std::io::stderr(), "skipped {count} {what}: {why}").expect("stderr takes a line");
}
