//! Replays what the fuzzers found or were given.

use std::{fs, path::Path};

/// Hands every file of `fuzz/corpus/<target>` to `check`; a panic names the file.
pub(crate) fn replay(target: &str, check: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        let name = Named(&path);
        check(&input);
        drop(name);
        count += 1;
    }
    assert!(count > 0, "{} is empty", dir.display());
}

/// Says which input was at work when a check panicked.
struct Named<'a>(&'a Path);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input: {}", self.0.display());
        }
    }
}
