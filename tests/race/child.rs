//! Runs one test of this binary again where it may do what would disturb the others.

use std::{ffi::OsStr, io::Write as _, process::Command};

const CHILD: &str = "HOLDFAST_TEST_CHILD";

/// Whether this is the second run, in the process made by [`again`].
pub(crate) fn is_child(test: &str) -> bool {
    std::env::var_os(CHILD).is_some_and(|child| child == test)
}

/// Runs `test` again in a process of its own.
pub(crate) fn again(test: &str) {
    let exe = std::env::current_exe().unwrap();
    let mut child = Command::new(exe);
    run(&mut child, test);
}

/// Runs `test` again in a mount namespace of its own, after `setup`, a shell line that may say
/// `exit 77` for "cannot be done here", with `argument` as `$1`. Where that is not possible, says so
/// on a counted line.
pub(crate) fn in_namespace(test: &str, setup: &str, argument: &OsStr) {
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "it needs root");
    }
    let script = format!("{setup}\nexec \"$2\" --exact --nocapture --include-ignored \"$3\"");
    let mut child = Command::new("unshare");
    child
        .args(["--mount", "--propagation", "private", "--", "sh", "-c"])
        .args([&script, "sh"])
        .arg(argument)
        .arg(std::env::current_exe().unwrap())
        .arg(test);
    let output = match child.env(CHILD, test).output() {
        Ok(output) => output,
        Err(error) => return skipped(test, &format!("unshare(1): {error}")),
    };
    let ran = String::from_utf8_lossy(&output.stdout).contains("running 1 test");
    if output.status.code() == Some(77) || !ran {
        return skipped(test, &String::from_utf8_lossy(&output.stderr));
    }
    judge(&output);
    // What it said past the harness's capture is said past this one's too.
    std::io::stderr().write_all(&output.stderr).unwrap();
}

fn run(child: &mut Command, test: &str) {
    child
        .args(["--exact", "--nocapture", test])
        .env(CHILD, test);
    judge(&child.output().unwrap());
}

fn judge(output: &std::process::Output) {
    let (out, err) = (&output.stdout, &output.stderr);
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    );
}

/// Says on a line of its own, past the test harness's capture, what was not run.
pub(crate) fn skipped(what: &str, why: &str) {
    let mut err = std::io::stderr().lock();
    writeln!(err, "SKIPPED {what}: {}", why.trim()).unwrap();
}
