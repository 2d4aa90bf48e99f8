//! The journal under kills, power cuts, errors, and files that were changed behind its back
//! (`spec/store.md` 7, rows 1 to 6, 8, 13 and 38 to 43; `spec/bugs.md` J03 and J04).

use std::{
    fs, io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use holdfast::{
    control::{Control, ControlError, Step, rusqlite},
    journal::{Journal as _, JournalError, Source as _, Window, native::NativeJournal},
    model::{AttachmentId, Digest, Seq, SessionHandle, SystemClock, Timestamp},
};

use crate::{
    disk::{self, Disk, Kind},
    session::{HANDLE, header, header_of, is_right, journal, message, open, shared, upload},
    skip::skipped,
    store::scratch,
    trace::{self, Program, Run, journal_tool},
};

fn create(dir: &Path) -> Program {
    journal_tool(["create", dir.to_str().unwrap()])
}

fn append(dir: &Path, count: u64) -> Program {
    journal_tool(["append", dir.to_str().unwrap(), &count.to_string()])
}

/// Appends the next `count` events, one commit each, with their uploads.
fn grow(journal: &NativeJournal, count: u64) {
    for _ in 0..count {
        let next = journal.session(HANDLE).unwrap().next_seq;
        let at = Timestamp::from_millis(0);
        journal
            .record_upload(HANDLE, &upload(next.get()), at)
            .unwrap();
        journal
            .append(HANDLE, message(next.get()), Some(next))
            .unwrap();
    }
}

/// A directory with a session of `events` events in it, cleanly closed.
fn journal_of(events: u64) -> tempfile::TempDir {
    let dir = scratch();
    let journal = journal(open(dir.path()).unwrap());
    journal.create(header()).unwrap();
    grow(&journal, events);
    dir
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = scratch();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Every event of the session, which must be right and dense; how many.
fn read_all(journal: &NativeJournal) -> Result<u64, JournalError> {
    let mut before = journal.session(HANDLE)?.next_seq;
    let count = before.get();
    while before > Seq::FIRST {
        let page = journal.page(HANDLE, None, Some(before), usize::MAX)?;
        assert!(page.events.iter().all(is_right));
        before = page.events[0].seq;
    }
    Ok(count)
}

/// Opens the journal as a restart does, which must need no help and take appends; how many events
/// are there.
fn restart(dir: &Path) -> u64 {
    let control = open(dir).expect("a restart needs no help");
    control.standing().expect("a restart needs no help");
    let journal = journal(control);
    let count = match read_all(&journal) {
        Err(JournalError::NotFound) => return 0,
        other => other.unwrap(),
    };
    assert_eq!(journal.verify(HANDLE).unwrap().events, count);
    count
}

fn acknowledged(run: &Run) -> u64 {
    let seqs = run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("ack "));
    let last = seqs.filter_map(|seq| seq.parse::<u64>().ok()).max();
    last.map_or(0, |last| last + 1)
}

/// J03. Keeps I5, I6 and I12: `kill -9` at every system call of an append that changes something.
#[test]
fn j03_an_append_killed_at_any_change_is_whole_or_absent_and_the_journal_opens() {
    if let Some(why) = trace::unavailable() {
        return skipped(12, "kill points of an append", why);
    }
    let dir = scratch();
    assert!(create(dir.path()).run().status.success());
    let counting = append(dir.path(), 2).trace();
    assert_eq!(acknowledged(&counting), 2, "{}", counting.stdout);
    let points = counting.changes();
    assert!(points.len() >= 12, "too few to be an append: {points:?}");
    for point in &points {
        let before = restart(dir.path());
        let run = append(dir.path(), 2).kill_at(point);
        assert!(run.killed, "it does the same calls each time: {point:?}");
        let now = restart(dir.path());
        assert!(
            (before..=before + 2).contains(&now),
            "{point:?}: {before} then {now}"
        );
        assert!(acknowledged(&run) <= now, "{point:?}: {}", run.stdout);
        // The retry of a client that got no answer.
        assert!(append(dir.path(), 1).run().status.success(), "{point:?}");
    }
}

/// Keeps I12: the same for the making of the database.
#[test]
fn a_database_killed_while_it_is_made_is_made_by_the_next_start() {
    if let Some(why) = trace::unavailable() {
        return skipped(20, "kill points of making a database", why);
    }
    let first = scratch();
    let counting = create(first.path()).trace();
    assert!(
        counting.stdout.contains("ack created"),
        "{}",
        counting.stdout
    );
    let points = counting.changes();
    assert!(points.len() >= 15, "too few to be making one: {points:?}");
    for point in &points {
        let dir = scratch();
        let run = create(dir.path()).kill_at(point);
        assert!(run.killed, "it does the same calls each time: {point:?}");
        restart(dir.path());
        let again = create(dir.path()).run();
        assert!(again.status.success(), "{point:?}: {again:?}");
        assert!(append(dir.path(), 1).run().status.success(), "{point:?}");
        assert_eq!(restart(dir.path()), 1, "{point:?}");
    }
}

fn kinds() -> Vec<Kind> {
    [Kind::Ext4, Kind::Xfs]
        .into_iter()
        .filter(|kind| match disk::unavailable(*kind) {
            None => true,
            Some(why) => {
                skipped(
                    1,
                    &format!("power-cut case of the journal on {kind:?}"),
                    &why,
                );
                false
            }
        })
        .collect()
}

/// Makes a journal on a disk of its own, appends, cuts the power: the acknowledged count, and what
/// a start finds.
fn power_cut(kind: Kind, injections: &[&str]) -> (u64, Result<u64, String>) {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = Disk::new(kind, dir.path(), "journal");
    let data = disk.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    assert!(create(&data).run().status.success());
    let run = match injections {
        [] => append(&data, 3).trace(),
        some => append(&data, 3).inject_all(some),
    };
    let acknowledged = acknowledged(&run);
    disk.cut();
    disk.pull_out();
    disk.plug_in();
    let found = match open(&data) {
        Err(error) => Err(error.to_string()),
        Ok(control) => match control.standing() {
            Err(error) => Err(error.to_string()),
            Ok(()) => read_all(&journal(control)).map_err(|error| error.to_string()),
        },
    };
    (acknowledged, found)
}

/// Keeps I5 and I12: power cut A of `spec/store.md` 2.2.
#[test]
fn a_power_cut_after_the_acknowledgement_of_an_append_loses_nothing() {
    if let Some(why) = trace::unavailable() {
        return skipped(2, "power cuts after an append", why);
    }
    for kind in kinds() {
        assert_eq!(power_cut(kind, &[]), (3, Ok(3)), "{kind:?}");
    }
}

/// The test above is worth something: it notices flushes that are not done.
#[test]
fn a_power_cut_shows_that_the_journal_is_not_flushed() {
    if let Some(why) = trace::unavailable() {
        return skipped(2, "power cuts without flushes", why);
    }
    for kind in kinds() {
        let (acknowledged, found) = power_cut(kind, &["fdatasync:retval=0", "fsync:retval=0"]);
        assert_eq!(acknowledged, 3, "{kind:?}");
        assert_ne!(found, Ok(3), "{kind:?}: missing flushes go unnoticed");
    }
}

/// Keeps I5 and I12: what one call answers refuses the append it meets; a failed flush is the last
/// of its process; the next process goes on.
#[test]
fn an_error_refuses_the_append_it_meets_and_a_failed_flush_ends_the_writing() {
    if let Some(why) = trace::unavailable() {
        return skipped(9, "errors in an append", why);
    }
    let dir = scratch();
    assert!(create(dir.path()).run().status.success());
    // An append is two commits, of the upload and of the event, each with a flush of the write-ahead
    // log (`fsync`) and one of the heads log (`fdatasync`).
    let plain = append(dir.path(), 3).trace();
    let nth = |name: &'static str, what: &str, skip: usize| {
        let mut calls = plain.named(name).filter(|call| call.text.contains(what));
        let nth = calls.nth(skip).expect("there is such a call").nth;
        move |error: &str| format!("{name}:error={error}:when={nth}")
    };
    let heads_line = "{\\\"commit\\\"";
    let page = ", 4096, ";
    let from_the_first = ["refused NotDurable"; 3];
    let from_the_second = ["ack", "refused NotDurable", "refused NotDurable"];
    let once = ["refused Full", "ack", "ack"];
    for (injection, expected) in [
        // The log's header, then the first commit.
        (nth("fsync", "", 1)("EIO"), from_the_first),
        (nth("fsync", "", 3)("EIO"), from_the_first),
        (nth("fsync", "", 3)("ENOSPC"), from_the_first),
        (nth("fsync", "", 5)("EIO"), from_the_second),
        (nth("fdatasync", "", 0)("EIO"), from_the_first),
        (nth("fdatasync", "", 1)("ENOSPC"), from_the_first),
        (nth("fdatasync", "", 2)("EIO"), from_the_second),
        (nth("pwrite64", heads_line, 0)("ENOSPC"), from_the_first),
        (nth("pwrite64", page, 0)("EIO"), from_the_first),
        (nth("pwrite64", page, 0)("ENOSPC"), once),
        (nth("pwrite64", page, 7)("ENOSPC"), once),
    ] {
        let dir = scratch();
        assert!(create(dir.path()).run().status.success());
        let run = append(dir.path(), 3).inject(&injection);
        let said: Vec<&str> = run.stdout.lines().collect();
        assert_eq!(said.len(), 3, "{injection}: {said:?}");
        for (line, expected) in said.iter().zip(expected) {
            assert!(line.starts_with(expected), "{injection}: {said:?}");
        }
        let mut flushes = run.calls.iter().filter(|call| call.name.ends_with("sync"));
        if flushes.by_ref().any(|call| call.text.contains(") = -1 ")) {
            assert_eq!(flushes.count(), 0, "{injection}: flushed again");
        }
        assert!(restart(dir.path()) >= acknowledged(&run), "{injection}");
        assert!(append(dir.path(), 1).run().status.success(), "{injection}");
    }
}

/// J04, row 6. Keeps I12: on a full disk an append is refused whole, and taken once there is room.
#[test]
fn j04_a_full_disk_refuses_whole_appends_and_spoils_nothing() {
    let at = scratch();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
        .arg(at.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return skipped(
            1,
            "full disk under a journal",
            "no tmpfs can be mounted here",
        );
    }
    let _unmount = Unmount(at.path());
    let journal = journal(open(at.path()).unwrap());
    journal.create(header()).unwrap();
    grow(&journal, 5);
    let ballast = at.path().join("ballast");
    let full = fs::write(&ballast, vec![0; 16 << 20]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    let mut taken = 5;
    let refused = loop {
        let at = Timestamp::from_millis(0);
        let appended = journal
            .record_upload(HANDLE, &upload(taken), at)
            .and_then(|()| journal.append(HANDLE, message(taken), Some(Seq::new(taken))));
        match appended {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, JournalError::Full), "{refused:?}");
    assert_eq!(read_all(&journal).unwrap(), taken);
    fs::remove_file(&ballast).unwrap();
    grow(&journal, 5);
    assert_eq!(read_all(&journal).unwrap(), taken + 5);
    drop(journal);
    assert_eq!(restart(at.path()), taken + 5);
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0)
            .output();
        assert!(unmounted.is_ok_and(|output| output.status.success()));
    }
}

/// Rows 8 and 10. Keeps I5: after a failed flush nothing more is taken, everything can be read, and
/// the commit that was not acknowledged is either there or not after a restart.
#[test]
fn after_a_failed_flush_nothing_more_is_taken_until_the_restart() {
    for (step, kept) in [
        (Step::Commit, 3),
        (Step::HeadsWrite, 4),
        (Step::HeadsFlush, 4),
    ] {
        let dir = journal_of(3);
        let failing = Arc::new(AtomicBool::new(false));
        let hook = Arc::clone(&failing);
        let seam = move |at| {
            if at == step && hook.load(Ordering::Relaxed) {
                Err(io::Error::other("on purpose"))
            } else {
                Ok(())
            }
        };
        let clock = Arc::new(SystemClock);
        let here = fs::File::open(dir.path()).unwrap();
        let control = Arc::new(Control::open_with_seam(here, clock, seam).unwrap());
        let journal = shared(Arc::clone(&control));
        let at = Timestamp::from_millis(0);
        journal.record_upload(HANDLE, &upload(3), at).unwrap();
        failing.store(true, Ordering::Relaxed);
        let refused = journal.append(HANDLE, message(3), None);
        assert!(
            matches!(refused, Err(JournalError::NotDurable)),
            "{step:?}: {refused:?}"
        );
        failing.store(false, Ordering::Relaxed);
        let refused = journal.append(HANDLE, message(3), None);
        assert!(
            matches!(refused, Err(JournalError::NotDurable)),
            "{step:?}: {refused:?}"
        );
        assert!(control.trouble().is_some());
        assert!(read_all(&journal).unwrap() >= 3, "reads go on");
        drop(journal);
        drop(control);
        assert_eq!(restart(dir.path()), kept, "{step:?}");
    }
}

/// What a failed flush leaves is for the next start to look at: closing folds and removes nothing.
#[test]
fn closing_after_a_failed_flush_leaves_the_write_ahead_log_as_it_is() {
    let dir = journal_of(1);
    let seam = |at| match at {
        Step::HeadsFlush => Err(io::Error::other("on purpose")),
        Step::Commit | Step::HeadsWrite => Ok(()),
    };
    let here = fs::File::open(dir.path()).unwrap();
    let control = Control::open_with_seam(here, Arc::new(SystemClock), seam).unwrap();
    let refused: Result<(), ControlError> = control.write(|tx| {
        tx.execute("INSERT INTO meta (key, value) VALUES ('a', 'b')", [])?;
        Ok(())
    });
    assert!(
        matches!(refused, Err(ControlError::NotDurable)),
        "{refused:?}"
    );
    let left = files(dir.path());
    assert!(left.iter().all(Option::is_some), "the commit is in the log");
    drop(control);
    assert_eq!(files(dir.path()), left);
    assert_eq!(restart(dir.path()), 1);
}

/// Row 39. The last line of the heads log may be cut anywhere: a start puts it back.
#[test]
fn a_heads_log_cut_at_any_byte_of_its_last_line_is_repaired() {
    let dir = journal_of(2);
    let log = fs::read(dir.path().join("heads.log")).unwrap();
    let lines: Vec<&[u8]> = log.split_inclusive(|&b| b == b'\n').collect();
    let whole = log.len() - lines.last().unwrap().len();
    for cut in whole..log.len() {
        let dir = copy(dir.path());
        fs::write(dir.path().join("heads.log"), &log[..cut]).unwrap();
        assert_eq!(restart(dir.path()), 2, "cut at {cut}");
        assert_eq!(
            cut > whole,
            dir.path().join("heads.torn").exists(),
            "cut at {cut}"
        );
        grow(&journal(open(dir.path()).unwrap()), 1);
        assert_eq!(restart(dir.path()), 3, "cut at {cut}");
    }
    // One line more is one commit too many.
    for cut in [0, whole - lines[lines.len() - 2].len(), whole - 1] {
        let dir = copy(dir.path());
        fs::write(dir.path().join("heads.log"), &log[..cut]).unwrap();
        says(dir.path(), "heads log");
    }
}

/// A start finds the trouble, names it, takes nothing, and changes nothing; what is there is read.
fn says(dir: &Path, what: &str) {
    let before = files(dir);
    let control = Arc::new(open(dir).unwrap());
    let trouble = control.trouble().expect("the trouble is noticed");
    assert!(trouble.contains(what), "{trouble}");
    let journal = shared(Arc::clone(&control));
    let refused = journal.append(HANDLE, message(0), None);
    assert!(
        matches!(refused, Err(JournalError::NotDurable)),
        "{refused:?}"
    );
    let refused: Result<(), ControlError> = control.write(|_tx| Ok(()));
    assert!(
        matches!(refused, Err(ControlError::ReadOnly(_))),
        "{refused:?}"
    );
    assert!(matches!(
        read_all(&journal),
        Ok(_) | Err(JournalError::NotFound)
    ));
    drop(journal);
    drop(control);
    assert_eq!(files(dir), before, "the evidence stays as it was");
}

/// The digests of what counts as evidence; none of a file that is empty or absent.
fn files(dir: &Path) -> Vec<Option<Digest>> {
    ["db", "db-wal", "heads.log"]
        .iter()
        .map(|name| {
            let content = fs::read(dir.join(name))
                .ok()
                .filter(|content| !content.is_empty());
            content.map(|content| Digest::of(&content))
        })
        .collect()
}

/// Row 41: SQLite forgets what follows a flipped bit of its write-ahead log and says nothing; the
/// heads log does.
#[test]
fn a_bit_flipped_in_the_write_ahead_log_is_noticed_before_anything_is_taken() {
    let dir = scratch();
    let journal = journal(open(dir.path()).unwrap());
    journal.create(header()).unwrap();
    grow(&journal, 12);
    // As a kill leaves it: not folded.
    let cut_off = copy(dir.path());
    drop(journal);
    assert_eq!(restart(copy(cut_off.path()).path()), 12);
    let wal = fs::read(cut_off.path().join("db-wal")).unwrap();
    let (mut noticed, mut refused) = (0, 0);
    for at in (0..wal.len()).step_by(1571) {
        let dir = copy(cut_off.path());
        let file = fs::File::options()
            .write(true)
            .open(dir.path().join("db-wal"))
            .unwrap();
        file.write_all_at(&[wal[at] ^ 0x10], u64::try_from(at).unwrap())
            .unwrap();
        match open(dir.path()) {
            // So early that not even the schema was left.
            Err(ControlError::Damaged(_)) => refused += 1,
            Err(other) => unreachable!("byte {at}: {other:?}"),
            Ok(control) if control.trouble().is_some() => {
                drop(control);
                says(dir.path(), "acknowledged");
                noticed += 1;
            }
            // The byte was of no commit.
            Ok(control) => {
                drop(control);
                assert_eq!(restart(dir.path()), 12, "byte {at}");
            }
        }
    }
    println!("write-ahead log: {noticed} flips named, {refused} refused");
    assert!(noticed > 20, "{noticed} of {} bytes", wal.len());
}

/// Row 42.
#[test]
fn an_older_database_put_back_is_noticed() {
    let dir = journal_of(2);
    let old = fs::read(dir.path().join("db")).unwrap();
    grow(&journal(open(dir.path()).unwrap()), 2);
    fs::write(dir.path().join("db"), old).unwrap();
    says(dir.path(), "an older file was put back");
}

/// Row 42, the other way round: another history of the same length.
#[test]
fn a_database_of_another_history_is_noticed() {
    let dir = journal_of(2);
    let twin = copy(dir.path());
    for dir in [&dir, &twin] {
        grow(&journal(open(dir.path()).unwrap()), 1);
    }
    fs::copy(twin.path().join("db"), dir.path().join("db")).unwrap();
    says(dir.path(), "different histories");
}

/// Row 43.
#[test]
fn a_missing_file_is_noticed_and_nothing_is_made_in_its_place() {
    let live = scratch();
    let journal = journal(open(live.path()).unwrap());
    journal.create(header()).unwrap();
    grow(&journal, 3);
    let missing = |name: &str| {
        let dir = copy(live.path());
        fs::remove_file(dir.path().join(name)).unwrap();
        dir
    };
    let refused = |dir: &tempfile::TempDir, what: &str| match open(dir.path()) {
        Err(ControlError::Damaged(text)) => assert!(text.contains(what), "{text}"),
        other => unreachable!("{other:?}"),
    };
    let database = missing("db");
    refused(&database, "missing or empty");
    assert!(!database.path().join("db").exists());
    let emptied = missing("db");
    fs::write(emptied.path().join("db"), "").unwrap();
    refused(&emptied, "missing or empty");
    let garbage = journal_of(3);
    fs::write(garbage.path().join("db"), vec![7; 8192]).unwrap();
    refused(&garbage, "not a database");
    let linked = missing("db");
    std::os::unix::fs::symlink(live.path().join("db"), linked.path().join("db")).unwrap();
    refused(&linked, "not a file of ours");

    let wal = missing("db-wal");
    match open(wal.path()) {
        Err(ControlError::Damaged(_)) => {}
        Ok(control) => assert!(control.trouble().is_some()),
        Err(other) => unreachable!("{other:?}"),
    }
    says(missing("heads.log").path(), "no heads log");
    assert_eq!(restart(missing("db-shm").path()), 3, "it is rebuilt");
}

fn sql(dir: &Path, statement: &str) {
    let conn = rusqlite::Connection::open(dir.join("db")).unwrap();
    assert_eq!(conn.execute(statement, []).unwrap(), 1, "{statement}");
}

/// Which call meets the damage.
#[derive(Clone, Copy, Debug)]
enum Look {
    Page,
    Listing,
    Verify,
}

impl Look {
    fn at(self, journal: &NativeJournal) -> Result<(), JournalError> {
        match self {
            Self::Page => journal.page(HANDLE, None, None, 100).map(drop),
            Self::Listing => journal.references(HANDLE, ALL).map(drop),
            Self::Verify => journal.verify(HANDLE).map(drop),
        }
    }
}

const ALL: Window = Window {
    offset: 0,
    limit: 99,
};

/// A change, the call that meets it, and what it says.
const ROWS: [(&str, Look, &str); 12] = [
    (
        "UPDATE events SET data = replace(data, 'some', 'SOME') WHERE session = 1 AND seq = 2",
        Look::Page,
        "event 2 ",
    ),
    (
        "UPDATE events SET time = 1 WHERE session = 1 AND seq = 5",
        Look::Page,
        "event 5 ",
    ),
    (
        "UPDATE events SET type = 'x' WHERE session = 1 AND seq = 0",
        Look::Page,
        "event 0 ",
    ),
    (
        "UPDATE events SET ignorable = 1 WHERE session = 1 AND seq = 3",
        Look::Page,
        "event 3 ",
    ),
    (
        "UPDATE events SET data = '{' WHERE session = 1 AND seq = 3",
        Look::Page,
        "event 3 ",
    ),
    (
        "DELETE FROM events WHERE session = 1 AND seq = 1",
        Look::Page,
        "event 1 ",
    ),
    (
        "DELETE FROM events WHERE session = 1 AND seq = 5",
        Look::Page,
        "its last event",
    ),
    (
        "UPDATE sessions SET next_seq = 4 WHERE id = 1",
        Look::Page,
        "its last event",
    ),
    (
        "UPDATE sessions SET cwd = '/etc' WHERE id = 1",
        Look::Page,
        "not what was written",
    ),
    (
        "UPDATE refs SET name = 'evil' WHERE session = 1 AND first_seq = 4",
        Look::Listing,
        "event 4 ",
    ),
    (
        "DELETE FROM refs WHERE session = 1 AND first_seq = 4",
        Look::Verify,
        "event 4 ",
    ),
    (
        "UPDATE sessions SET quota_used = 0 WHERE id = 1",
        Look::Verify,
        "quota",
    ),
];

/// Rows 38 and 40. Keeps I6: a row changed behind the journal's back is named, gives nothing, and
/// spoils no other session.
#[test]
fn a_row_changed_by_hand_is_named_and_spoils_no_other_session() {
    let other = SessionHandle::from_random([9; 16]);
    let dir = journal_of(6);
    let setup = journal(open(dir.path()).unwrap());
    setup.create(header_of(other)).unwrap();
    let at = Timestamp::from_millis(0);
    for seq in 0..3 {
        setup.record_upload(other, &upload(seq), at).unwrap();
        setup.append(other, message(seq), None).unwrap();
    }
    drop(setup);
    for (statement, look, names) in ROWS {
        let dir = copy(dir.path());
        sql(dir.path(), statement);
        let journal = journal(open(dir.path()).unwrap());
        match look.at(&journal) {
            Err(JournalError::Corrupt(text)) => {
                assert!(text.contains(names), "{statement}: {text}");
            }
            found => unreachable!("{statement}: {found:?}"),
        }
        let verified = journal.verify(HANDLE);
        assert!(
            matches!(verified, Err(JournalError::Corrupt(_))),
            "{statement}: {verified:?}"
        );
        // The other session goes on.
        assert_eq!(journal.verify(other).unwrap().events, 3, "{statement}");
        journal.record_upload(other, &upload(3), at).unwrap();
        journal
            .append(other, message(3), Some(Seq::new(3)))
            .unwrap();
    }
    // A whole reference put there by hand does not go with any event.
    let secret = AttachmentId::new(Digest::of(b"a secret of another session"));
    sql(
        dir.path(),
        &format!(
            "INSERT INTO refs SELECT NULL, 1, x'{}', 'x', 1, kind, media_type, 0, 0, 1, seal
             FROM refs WHERE session = 1 AND first_seq = 1",
            secret.digest()
        ),
    );
    let journal = journal(open(dir.path()).unwrap());
    let forged = journal.reference(HANDLE, secret, None);
    assert!(
        matches!(forged, Err(JournalError::Corrupt(_))),
        "{forged:?}"
    );
}

/// Row 40: whatever byte of the database is damaged, no wrong event and no wrong reference comes
/// out of it.
#[test]
fn a_byte_flipped_anywhere_in_the_database_never_gives_a_wrong_row() {
    let dir = journal_of(40);
    let db = fs::read(dir.path().join("db")).unwrap();
    let (mut named, mut refused, mut harmless) = (0, 0, 0);
    for at in (0..db.len()).step_by(397) {
        let dir = copy(dir.path());
        let file = fs::File::options()
            .write(true)
            .open(dir.path().join("db"))
            .unwrap();
        file.write_all_at(&[db[at] ^ 0x04], u64::try_from(at).unwrap())
            .unwrap();
        let Ok(control) = open(dir.path()) else {
            refused += 1;
            continue;
        };
        let journal = journal(control);
        let pages = read_all(&journal);
        assert!(
            !matches!(pages, Ok(count) if count != 40),
            "byte {at}: {pages:?}"
        );
        let listed = journal.references(HANDLE, ALL);
        for found in listed.iter().flatten() {
            assert_eq!(found.reference, upload(found.seq.get()), "byte {at}");
        }
        if pages.is_ok() && listed.is_ok_and(|listed| listed.len() == 40) {
            harmless += 1;
        } else {
            named += 1;
        }
    }
    println!("database: {named} flips named, {refused} refused, {harmless} in no row read");
    assert!(
        named > 20,
        "{named} named, {refused} refused, {harmless} harmless"
    );
}
