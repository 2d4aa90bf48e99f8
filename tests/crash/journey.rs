//! The whole way of an attachment, store and journal together: no reference without bytes
//! (`spec/store.md` 7, rows 1 to 4, 32 and 33).

use std::{
    fs,
    path::{Path, PathBuf},
};

use holdfast::{
    journal::Source as _,
    model::{ByteCount, Cancel, Limits},
    store::{
        Objects as _,
        layout::{DataDir, Filesystems},
        local::{LocalOptions, LocalStore},
        verified::Verifier,
    },
};

use crate::{
    disk::{Disk, Kind},
    session::{self, HANDLE},
    skip::skipped,
    store::{Without, init, kinds, scratch},
    trace::{self, Call, Program, Run, store_tool},
};

fn journey(data: &Path, without: Without, more: &[&str], count: u64) -> Program {
    let count = count.to_string();
    let words = ["journey", data.to_str().unwrap(), &count];
    store_tool([without.flags(), more, &words].concat())
}

/// How many events are acknowledged.
fn acknowledged(run: &Run) -> u64 {
    let seqs = run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("ack "));
    seqs.map(|seq| seq.parse::<u64>().unwrap() + 1)
        .max()
        .unwrap_or(0)
}

/// What a restart finds, which must need no help: how many events there are, and which of them refer
/// to what the store has not whole.
fn restart(data: &Path) -> (u64, Vec<u64>) {
    let dir = DataDir::open_on(data, Filesystems::Any).expect("a restart needs no help");
    let options = LocalOptions {
        free_reserve: ByteCount::ZERO,
        ..LocalOptions::default()
    };
    let store = LocalStore::open(&dir, options).expect("a restart needs no help");
    let control = session::open(&data.join("journal")).expect("a restart needs no help");
    control.standing().expect("a restart needs no help");
    let journal = session::journal(control);
    let events = match journal.session(HANDLE) {
        Ok(session) => session.next_seq.get(),
        // Killed before the session was there.
        Err(_) => 0,
    };
    let verifier = Verifier::new(&Limits::default()).unwrap();
    let is_whole = |seq: &u64| {
        let blob = store.open(&session::upload(*seq));
        blob.and_then(|blob| verifier.verify(blob, &Cancel::new()))
            .is_ok()
    };
    let dangling = (0..events).filter(|seq| !is_whole(seq)).collect();
    (events, dangling)
}

/// Keeps I5, I6 and I12: `kill -9` at every system call of a journey that changes something.
#[test]
fn a_journey_killed_at_any_change_leaves_no_reference_without_bytes() {
    if let Some(why) = trace::unavailable() {
        return skipped(30, "kill points of a journey", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let one = journey(&data, Without::Nothing, &[], 1);
    assert!(one.run().status.success());
    let points = one.trace().changes();
    assert!(points.len() >= 25, "too few to be a journey: {points:?}");
    let mut killed = 0;
    for point in &points {
        let (before, _) = restart(&data);
        let run = one.kill_at(point);
        killed += usize::from(was_killed(&run, point));
        let (now, dangling) = restart(&data);
        assert_eq!(dangling, [0; 0], "{point:?}");
        assert!((before..=before + 1).contains(&now), "{point:?}");
        assert!(acknowledged(&run) <= now, "{point:?}: {}", run.stdout);
        let again = one.run();
        assert!(again.status.success(), "{point:?}: {again:?}");
    }
    assert!(killed * 10 >= points.len() * 9, "{killed} of {points:?}");
}

/// Whether the kill met its call. The database writes some pages more or fewer as it grows, so the
/// last of a kind may not come; then the journey ends as if nothing had been asked.
fn was_killed(run: &Run, point: &Call) -> bool {
    assert!(run.killed || run.success, "{point:?}: {}", run.stdout);
    run.killed
}

/// Objects on one disk, the journal on another.
struct Machine {
    objects: Disk,
    journal: Disk,
    data: PathBuf,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn new(kind: Kind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let objects = Disk::new(kind, dir.path(), "objects");
        let data = objects.path().join("data");
        init(&data);
        let image = dir.path().join("journal.img");
        let journal = Disk::at(kind, image, data.join("journal"), kind.smallest());
        Self {
            objects,
            journal,
            data,
            _dir: dir,
        }
    }

    fn power_cut(&mut self) {
        self.journal.cut();
        self.objects.cut();
        self.journal.pull_out();
        self.objects.pull_out();
        self.objects.plug_in();
        self.journal.plug_in();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The inner mount first.
        self.journal.let_go();
    }
}

/// Keeps I5 and I12: the power fails during a journey, at changes all along it.
#[test]
fn a_power_cut_during_a_journey_leaves_no_reference_without_bytes() {
    if let Some(why) = trace::unavailable() {
        return skipped(10, "power cuts within a journey", why);
    }
    for kind in kinds() {
        let mut machine = Machine::new(kind);
        let one = journey(&machine.data, Without::Nothing, &[], 1);
        assert!(one.run().status.success());
        let points = one.trace().changes();
        // XFS takes its time over each start: fewer there.
        let step = if kind == Kind::Ext4 { 3 } else { 9 };
        for point in points.iter().step_by(step) {
            let run = one.kill_at(point);
            was_killed(&run, point);
            machine.power_cut();
            let (now, dangling) = restart(&machine.data);
            assert_eq!(dangling, [0; 0], "{kind:?}: {point:?}");
            assert!(acknowledged(&run) <= now, "{kind:?}: {point:?}");
        }
    }
}

/// Some journeys, then the power fails: what the journal refers to and the store has not.
fn dangling_after_power_cut(kind: Kind, without: Without) -> Vec<u64> {
    let mut machine = Machine::new(kind);
    let run = journey(&machine.data, without, &[], 3).run();
    assert!(run.status.success(), "{run:?}");
    machine.power_cut();
    let (events, dangling) = restart(&machine.data);
    assert_eq!(events, 3, "{kind:?}: the journal is flushed");
    dangling
}

/// Keeps I5 and I12, and is worth something: it notices either flush that is not done.
#[test]
fn a_power_cut_after_a_journey_shows_each_missing_flush() {
    for kind in kinds() {
        assert_eq!(dangling_after_power_cut(kind, Without::Nothing), [0; 0]);
        for without in [Without::FileFsync, Without::DirFsync] {
            let dangling = dangling_after_power_cut(kind, without);
            assert!(!dangling.is_empty(), "{kind:?}: {without:?} goes unnoticed");
        }
    }
}

/// Keeps I12, and is worth something: collection between the commit and the event finds the pin, and
/// without one leaves a reference without bytes (rows 32 and 33).
#[test]
fn collection_within_a_journey_is_kept_off_by_the_pin_alone() {
    for (without, expected) in [(Without::Nothing, vec![]), (Without::Pin, vec![0, 1, 2])] {
        let dir = scratch();
        let data = dir.path().join("data");
        init(&data);
        let run = journey(&data, without, &["--collect"], 3).run();
        assert!(run.status.success(), "{run:?}");
        assert_eq!(restart(&data), (3, expected), "{without:?}");
        let taken = fs::read_dir(data.join("trash/0000000000001")).unwrap();
        assert_eq!(taken.count(), usize::from(without == Without::Pin) * 3);
    }
}
