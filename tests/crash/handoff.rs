//! What the handoff protocol asks of the system: nothing.

use std::os::unix::fs::symlink;

use crate::{
    skip::skipped,
    trace::{self, store_tool},
};

/// Calls by which a program manages its own memory and threads; none of them reaches a file.
const OWN: &[&str] = &["brk", "futex", "madvise", "mmap", "mremap", "munmap"];

/// Keeps I8.
#[test]
fn ho_01_ho_13_no_call_of_the_protocol_reaches_the_system() {
    if let Some(why) = trace::unavailable() {
        return skipped(1, "the calls of a handoff", why);
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("plain"), b"content").unwrap();
    symlink("plain", dir.path().join("link")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.path().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let run = store_tool(["handoff", dir.path().to_str().unwrap()]).trace();
    assert!(run.success, "{}", run.stdout);
    let says = |word: &str| {
        let line = format!("\"{word}\\n\"");
        let at = |call: &trace::Call| call.name == "write" && call.text.contains(&line);
        run.calls.iter().position(at).unwrap()
    };
    let between = &run.calls[says("begin") + 1..says("end")];
    let reaching: Vec<_> = between
        .iter()
        .filter(|call| !OWN.contains(&call.name.as_str()))
        .collect();
    assert!(reaching.is_empty(), "{reaching:?}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[2], "refused 16 true");
    let receipts = lines[3..].iter().map(|line| {
        let mut receipt: serde_json::Value = serde_json::from_str(line).unwrap();
        for own in ["offerId", "actionDigest"] {
            receipt[own].take();
        }
        receipt
    });
    let receipts: Vec<_> = receipts.collect();
    assert_eq!(receipts.len(), 4);
    assert!(
        receipts.iter().all(|one| *one == receipts[0]),
        "{receipts:?}"
    );
}
