//! The store when the system answers with an error (`spec/store.md` 7, rows 6 to 14 and 26).

use std::{fs, path::Path, process::Command};

use crate::{
    disk::{self, Disk, Kind},
    skip::skipped,
    store::{Found, LEN, acknowledged, init, object, restart, scratch, spoil},
    trace::{self, Program, Run, store_tool},
};

/// Two uploads in one process.
fn put_both(data: &Path) -> Program {
    let len = LEN.to_string();
    store_tool(["put", data.to_str().unwrap(), "1", &len, "2", &len])
}

/// What becomes of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upload {
    /// Acknowledged.
    Done,
    /// Refused with this variant of the error.
    Refused(&'static str),
}

fn outcome(run: &Run, line: usize) -> Option<&str> {
    run.stdout.lines().nth(line)
}

fn is(line: Option<&str>, expected: Upload) -> bool {
    line.is_some_and(|line| match expected {
        Upload::Done => line.starts_with("ack "),
        Upload::Refused(variant) => line.starts_with(&format!("refused {variant}")),
    })
}

/// Keeps I5 and I12: whatever one call answers, nothing half done is visible, a flush is never
/// tried again on the same file, and the next process goes on.
#[test]
fn an_error_refuses_the_upload_it_meets_and_spoils_no_other() {
    use Upload::{Done, Refused};
    // Which call of an upload the number means is checked below against a run without errors.
    let rows: &[(&str, Upload, Upload)] = &[
        // Flushes: the content's, then the name's. Afterwards the store takes nothing more.
        ("fsync:error=EIO:when=1", Refused("Io"), Refused("Degraded")),
        // Content without room spoils itself alone; a name that is not durable, everything after it.
        ("fsync:error=ENOSPC:when=1", Refused("Full"), Done),
        ("fsync:error=EDQUOT:when=1", Refused("Full"), Done),
        (
            "fsync:error=ENOSPC:when=2",
            Refused("Full"),
            Refused("Degraded"),
        ),
        ("fsync:error=EIO:when=2", Refused("Io"), Refused("Degraded")),
        ("fsync:error=EIO:when=3", Done, Refused("Io")),
        // Writes.
        ("pwrite64:error=ENOSPC:when=1", Refused("Full"), Done),
        ("pwrite64:error=ENOSPC:when=3", Refused("Full"), Done),
        ("pwrite64:error=EDQUOT:when=5", Refused("Full"), Done),
        ("pwrite64:error=EFBIG:when=2", Refused("Full"), Done),
        ("pwrite64:error=EIO:when=2", Refused("Io"), Done),
        ("pwrite64:error=EINTR:when=2", Done, Done),
        ("pwrite64:retval=0:when=2", Refused("Io"), Done),
        // A write that claims more than it did: the last piece of the first upload.
        (
            "pwrite64:retval=37856:when=5",
            Refused("LengthMismatch"),
            Done,
        ),
        // Names. The first link is the trial when the store is opened.
        ("linkat:error=EXDEV:when=2", Refused("Io"), Done),
        ("linkat:error=EMLINK:when=2", Refused("Io"), Done),
        ("linkat:error=EPERM:when=2", Refused("Io"), Done),
        ("linkat:error=ENOSPC:when=2", Refused("Full"), Done),
        ("linkat:error=EDQUOT:when=3", Done, Refused("Full")),
    ];
    if let Some(why) = trace::unavailable() {
        return skipped(rows.len(), "errors in an upload", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let plain = put_both(&data).trace();
    let writes: Vec<_> = plain.named("pwrite64").map(|call| &call.text).collect();
    assert_eq!(writes.len(), 10, "five pieces each: {writes:?}");
    assert!(writes[4].contains(", 37856, "), "{}", writes[4]);
    assert_eq!(plain.named("fsync").count(), 4);
    assert_eq!(plain.named("linkat").count(), 3);
    for (injection, first, second) in rows {
        for seed in [1, 2] {
            fs::remove_file(object(&data, seed)).unwrap();
        }
        let run = put_both(&data).inject(injection);
        let said = &run.stdout;
        assert!(is(outcome(&run, 0), *first), "{injection}: first: {said}");
        assert!(is(outcome(&run, 1), *second), "{injection}: second: {said}");
        if *first != Refused("Full") || *second != Done {
            flushed_once(&run, injection);
        }
        for (seed, found) in [1, 2].into_iter().zip(restart(&data, &[1, 2])) {
            assert_ne!(found, Found::Damaged, "{injection}: {seed}");
            let kept = !acknowledged(&run, seed) || found == Found::Whole;
            assert!(kept, "{injection}: {seed}: {said}");
        }
        let again = put_both(&data).run();
        assert!(again.status.success(), "{injection}: {again:?}");
        assert_eq!(restart(&data, &[1, 2]), [Found::Whole; 2], "{injection}");
    }
}

/// Keeps I5: one content without room is that content's matter; two in a row are the store's.
#[test]
fn a_store_without_room_for_two_contents_in_a_row_takes_no_third() {
    use Upload::{Done, Refused};
    let rows: &[(&str, [Upload; 4])] = &[
        (
            "fsync:error=ENOSPC:when=1..2",
            [
                Refused("Full"),
                Refused("Full"),
                Refused("Degraded"),
                Refused("Degraded"),
            ],
        ),
        // The content's flushes are the first, the second and the fourth; one went well in between.
        (
            "fsync:error=ENOSPC:when=1+3",
            [Refused("Full"), Done, Refused("Full"), Done],
        ),
    ];
    if let Some(why) = trace::unavailable() {
        return skipped(rows.len(), "two flushes without room", why);
    }
    for (injection, outcomes) in rows {
        let dir = scratch();
        let data = dir.path().join("data");
        init(&data);
        let run = store_tool([
            "put",
            data.to_str().unwrap(),
            "1",
            "4096",
            "2",
            "4096",
            "3",
            "4096",
            "4",
            "4096",
        ])
        .inject(injection);
        for (line, expected) in outcomes.iter().enumerate() {
            assert!(
                is(outcome(&run, line), *expected),
                "{injection}: {line}: {}",
                run.stdout
            );
        }
    }
}

/// After a failed flush that degrades the store none follows: a second one could succeed and mean
/// nothing.
fn flushed_once(run: &Run, injection: &str) {
    let mut flushes = run.named("fsync");
    let failed = flushes.by_ref().find(|call| call.text.contains(") = -1 "));
    if failed.is_some() {
        let later: Vec<_> = flushes.collect();
        assert!(later.is_empty(), "{injection}: flushed again: {later:?}");
    }
}

/// Keeps I11 and I12: no descriptor is left for any of the opens, one at a time.
#[test]
fn running_out_of_descriptors_refuses_and_leaves_nothing() {
    if let Some(why) = trace::unavailable() {
        return skipped(20, "opens without a descriptor", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let plain = put_both(&data).trace();
    // From the data directory on; each shard is looked at when the store is opened, one like another;
    // finding /proc is done by a library that knows one error only.
    let opens: Vec<_> = plain
        .named("openat")
        .skip_while(|call| !call.text.contains("FORMAT"))
        .filter(|call| !call.text.contains("O_PATH") || call.text.contains("\"00\""))
        .filter(|call| !call.text.contains("O_NOCTTY") || call.text.contains("O_NONBLOCK"))
        .collect();
    assert!(opens.len() >= 20, "{opens:?}");
    for errno in ["EMFILE", "ENFILE", "ENOMEM"] {
        for open in opens.iter().step_by(if errno == "EMFILE" { 1 } else { 4 }) {
            for seed in [1, 2] {
                fs::remove_file(object(&data, seed)).ok();
            }
            let run = put_both(&data).inject(&format!("openat:error={errno}:when={}", open.nth));
            let said = &run.stdout;
            // Some opens have another way to go; those that refuse must say why.
            if !run.success {
                let named = said.contains("Resource") || said.contains("code: 2");
                assert!(named || said.contains("code: 12"), "{open:?}: {said}");
            }
            assert!(!run.killed, "{open:?}");
            for (seed, found) in [1, 2].into_iter().zip(restart(&data, &[1, 2])) {
                assert_ne!(found, Found::Damaged, "{open:?}");
                assert!(
                    !acknowledged(&run, seed) || found == Found::Whole,
                    "{open:?}: {said}"
                );
            }
        }
    }
}

/// Keeps I12: an error at any call that heals a bad copy neither loses the evidence nor is
/// acknowledged.
#[test]
fn an_error_while_healing_loses_neither_the_retry_nor_the_evidence() {
    if let Some(why) = trace::unavailable() {
        return skipped(12, "errors while healing", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let heal = store_tool(["put", data.to_str().unwrap(), "7", &LEN.to_string()]);
    assert!(heal.run().status.success());
    spoil(&data, 7);
    let plain = heal.trace();
    assert!(plain.stdout.contains("Healed"));
    let mut rows = Vec::new();
    for call in plain.changes() {
        if ["fsync", "linkat", "mkdirat", "renameat2"].contains(&call.name.as_str()) {
            for errno in ["EIO", "ENOSPC"] {
                rows.push(format!("{}:error={errno}:when={}", call.name, call.nth));
            }
        }
    }
    assert!(rows.len() >= 18, "{rows:?}");
    for injection in rows {
        fs::remove_dir_all(data.join("quarantine")).unwrap();
        fs::create_dir(data.join("quarantine")).unwrap();
        spoil(&data, 7);
        let run = heal.inject(&injection);
        // The trial link may find the disk full: then the store opens for reading, and goes on.
        let trial = injection == "linkat:error=ENOSPC:when=1";
        assert_eq!(acknowledged(&run, 7), trial, "{injection}: {}", run.stdout);
        flushed_once(&run, &injection);
        let again = heal.run();
        assert!(again.status.success(), "{injection}: {again:?}");
        assert_eq!(restart(&data, &[7]), [Found::Whole], "{injection}");
        let evidence = fs::read_dir(data.join("quarantine"))
            .unwrap()
            .filter(|case| case.as_ref().unwrap().path().join("object").is_file())
            .count();
        assert_eq!(evidence, 1, "{injection}");
    }
}

/// Keeps I4: unreadable is not corrupt, and gives no byte either (row 26).
#[test]
fn a_read_error_is_an_error_of_the_medium_not_of_the_content() {
    if let Some(why) = trace::unavailable() {
        return skipped(4, "read errors", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let both = ["1", &LEN.to_string()];
    let tool = |command| store_tool([&[command, data.to_str().unwrap()], &both[..]].concat());
    assert!(tool("put").run().status.success());
    let plain = tool("get").trace();
    // The pass before the first byte, then the transfer, two blocks each; the loader reads less.
    let reads: Vec<_> = plain
        .named("pread64")
        .filter(|call| call.text.contains(", 262144, ") || call.text.contains(", 37856, "))
        .collect();
    assert_eq!(reads.len(), 4, "{:?}", plain.calls);
    for read in reads {
        let run = tool("get").inject(&format!("pread64:error=EIO:when={}", read.nth));
        assert!(
            run.stdout.starts_with("refused Io"),
            "{read:?}: {}",
            run.stdout
        );
        let run = tool("get").inject(&format!("pread64:error=EINTR:when={}", read.nth));
        assert!(
            run.stdout.starts_with("whole 1"),
            "{read:?}: {}",
            run.stdout
        );
    }
    assert_eq!(fs::read_dir(data.join("quarantine")).unwrap().count(), 0);
    // The same bytes over an unreadable copy: the good one takes its place.
    let dedupe = tool("put").trace();
    let read = dedupe
        .named("pread64")
        .find(|call| call.text.contains(", 262144, "))
        .expect("the copy that is there is read");
    let run = tool("put").inject(&format!("pread64:error=EIO:when={}", read.nth));
    assert!(run.stdout.contains("ack 1 "), "{}", run.stdout);
    assert_eq!(restart(&data, &[1]), [Found::Whole]);
}

/// A filesystem that turned read-only gives what it holds and takes nothing (row 13).
#[test]
fn a_filesystem_that_turned_read_only_refuses_uploads() {
    if let Some(why) = trace::unavailable() {
        return skipped(1, "read-only filesystem", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let plain = put_both(&data).trace();
    let spool = plain
        .named("openat")
        .filter(|call| call.text.contains("O_TMPFILE"))
        .nth(1)
        .expect("the first spool");
    let run = put_both(&data).inject(&format!("openat:error=EROFS:when={}", spool.nth));
    assert!(
        is(outcome(&run, 0), Upload::Refused("Degraded")),
        "{}",
        run.stdout
    );
}

/// Keeps I11 and I12: a disk that is really full (rows 6 and 7).
#[test]
fn a_full_disk_refuses_and_gives_everything_back() {
    if let Some(why) = disk::unavailable(Kind::Ext4) {
        return skipped(4, "full disks", &why);
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::of_size(Kind::Ext4, dir.path(), "small", 16 << 20);
    let data = disk.path().join("data");
    init(&data);
    let free = |what| {
        let stat = rustix::fs::statvfs(disk.path()).unwrap();
        (stat.f_bfree, stat.f_ffree, what).0
    };
    let before = free("before");
    let large = (64 << 20).to_string();
    for how in [&[][..], &["--undeclared"]] {
        let put = ["put", data.to_str().unwrap(), "1", &large, "2", "5000"];
        let output = store_tool([how, &put].concat()).run();
        let said = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].starts_with("refused Full"), "{how:?}: {said}");
        assert!(lines[1].starts_with("ack 2"), "{how:?}: {said}");
    }
    let lost = before - free("after");
    assert!(lost < 64, "{lost} blocks are gone for one small object");
    // No inode left.
    let stuff = disk.path().join("stuff");
    fs::create_dir(&stuff).unwrap();
    let mut n = 0;
    while fs::File::create(stuff.join(n.to_string())).is_ok() {
        n += 1;
    }
    let put = || store_tool(["put", data.to_str().unwrap(), "3", "5000"]).run();
    let said = String::from_utf8_lossy(&put().stdout).into_owned();
    assert!(said.starts_with("refused Full"), "{said}");
    fs::remove_file(stuff.join("0")).unwrap();
    assert!(put().status.success());
}

/// Keeps I5: a disk behind the filesystem that fills up, so that flushes fail with `ENOSPC`, then
/// `EIO`, then succeed though nothing was written (`spec/store.md` 0.2).
#[test]
fn flushes_that_fail_and_then_succeed_acknowledge_nothing_that_is_not_there() {
    if let Some(why) = disk::unavailable(Kind::Ext4) {
        return skipped(1, "disk that lies about flushes", &why);
    }
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    fs::create_dir(&below).unwrap();
    let mount = |options: &str| {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(&below);
        assert!(mount.status().unwrap().success());
    };
    mount("size=24m");
    let unmount = Unmount(&below);
    let mut disk = Disk::of_size(Kind::Ext4, &below, "disk", 128 << 20);
    let data = disk.path().join("data");
    init(&data);
    let data_name = data.to_str().unwrap();
    let mut acked = Vec::new();
    let mut refused = 0;
    for seed in 1..=40 {
        let args = ["put", data_name, &seed.to_string(), &(4 << 20).to_string()];
        let output = store_tool(args).run();
        if output.status.success() {
            acked.push(seed);
        } else {
            refused += 1;
        }
        if refused > 3 {
            break;
        }
    }
    assert!(!acked.is_empty() && refused > 3, "{acked:?}, {refused}");
    // The medium is replaced by a larger one and what was only in memory is forgotten.
    mount("remount,size=256m");
    disk.cut();
    disk.pull_out();
    disk.plug_in();
    for seed in acked {
        let args = ["get", data_name, &seed.to_string(), &(4 << 20).to_string()];
        let output = store_tool(args).run();
        assert!(
            output.status.success(),
            "{seed} was acknowledged: {output:?}"
        );
    }
    drop(disk);
    drop(unmount);
}

/// A medium that goes bad under a warm cache: downloads still give the right bytes, the survey finds
/// it, and so does the next cold read (row 25).
#[test]
fn a_survey_reads_the_medium_and_not_the_cache() {
    if let Some(why) = disk::unavailable(Kind::Ext4) {
        return skipped(1, "medium that goes bad", &why);
    }
    let dir = tempfile::tempdir().unwrap();
    let mut disk = Disk::new(Kind::Ext4, dir.path(), "disk");
    let data = disk.path().join("data");
    init(&data);
    let len = LEN.to_string();
    let tool = |command| {
        let output = store_tool([command, data.to_str().unwrap(), "1", &len]).run();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(tool("put").starts_with("ack 1"));
    assert_eq!(tool("verify"), "good 1 damaged 0\n");
    assert_eq!(tool("get"), "whole 1\n");
    assert_eq!(disk.corrupt(&crate::content::content(1, LEN)[..64]), 1);
    assert_eq!(tool("get"), "whole 1\n", "memory still has the right bytes");
    let said = tool("verify");
    assert!(said.starts_with("found Content"), "{said}");
    assert!(said.ends_with("good 0 damaged 1\n"), "{said}");
    disk.pull_out();
    disk.plug_in();
    let said = tool("get");
    assert!(said.starts_with("refused DigestMismatch"), "{said}");
    // The same bytes again heal it.
    assert!(tool("put").contains("Healed"));
    assert_eq!(tool("verify"), "good 1 damaged 0\n");
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0).status().ok();
    }
}
