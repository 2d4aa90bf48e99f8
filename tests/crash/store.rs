//! The store under kills, power cuts and errors (`spec/store.md` 7, rows 1 to 14 and 20).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use holdfast::{
    model::{AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Cancel, Digest, Limits},
    store::{
        Objects as _, StoreError,
        layout::{DataDir, Filesystems},
        local::{LocalOptions, LocalStore},
        verified::Verifier,
    },
};

use crate::{
    content::content,
    disk::{self, Disk, Kind},
    skip::skipped,
    trace::{self, Program, Run, store_tool},
};

/// Length of the objects: more than one block, and pieces of several writes.
pub(crate) const LEN: u64 = 300_000;

/// In memory where that is possible: a kill loses nothing that was written, flushed or not.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn init(data: &Path) {
    let output = store_tool(["init", data.to_str().unwrap()]).run();
    assert!(output.status.success(), "{output:?}");
}

fn put(data: &Path, seed: u64) -> Program {
    let (seed, len) = (seed.to_string(), LEN.to_string());
    store_tool(["put", data.to_str().unwrap(), &seed, &len])
}

pub(crate) fn object(data: &Path, seed: u64) -> PathBuf {
    let name = Digest::of(&content(seed, LEN)).to_string();
    data.join("objects/sha256")
        .join(name.split_at(2).0)
        .join(name)
}

/// Flips one bit of the object behind the store's back.
pub(crate) fn spoil(data: &Path, seed: u64) {
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
    let path = object(data, seed);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[content(seed, LEN)[9] ^ 1], 9).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
}

/// What a restart finds of the object with this seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Whole,
    Absent,
    Damaged,
}

/// Opens the store as a restart does, which must need no help, and looks at each object.
pub(crate) fn restart(data: &Path, seeds: &[u64]) -> Vec<Found> {
    let dir = DataDir::open_on(data, Filesystems::Any).expect("a restart needs no help");
    let options = LocalOptions {
        free_reserve: ByteCount::ZERO,
        ..LocalOptions::default()
    };
    let store = LocalStore::open(&dir, options).expect("a restart needs no help");
    let verifier = Verifier::new(&Limits::default()).unwrap();
    let look = |seed: &u64| {
        let reference = AttachmentRef {
            id: AttachmentId::new(Digest::of(&content(*seed, LEN))),
            name: None,
            bytes: ByteCount::new(LEN),
            kind: AttachmentKind::File,
        };
        let result = store
            .open(&reference)
            .and_then(|blob| verifier.verify(blob, &Cancel::new()));
        match result {
            Ok(_) => Found::Whole,
            Err(StoreError::NotFound(_)) => Found::Absent,
            Err(_) => Found::Damaged,
        }
    };
    let found = seeds.iter().map(look).collect();
    let named = fs::read_dir(data.join("staging")).unwrap().count();
    assert_eq!(named, 0, "nothing is left in staging");
    found
}

pub(crate) fn acknowledged(run: &Run, seed: u64) -> bool {
    run.stdout
        .lines()
        .any(|line| line.starts_with(&format!("ack {seed} ")))
}

/// Keeps I5 and I12: `kill -9` at every system call of an upload that changes something.
#[test]
fn an_upload_killed_at_any_change_is_whole_or_absent_and_acknowledged_ones_stay() {
    if let Some(why) = trace::unavailable() {
        return skipped(12, "kill points of an upload", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let counting = put(&data, 0).trace();
    assert!(acknowledged(&counting, 0), "{}", counting.stdout);
    let points = counting.changes();
    assert!(points.len() >= 12, "too few to be an upload: {points:?}");
    let mut kept = vec![0];
    for (seed, point) in (1..).zip(&points) {
        let upload = put(&data, seed);
        let run = upload.kill_at(point);
        assert!(run.killed, "it does the same calls each time: {point:?}");
        let now = restart(&data, &[seed])[0];
        assert_ne!(now, Found::Damaged, "half visible after {point:?}");
        assert!(
            !acknowledged(&run, seed) || now == Found::Whole,
            "{point:?}"
        );
        // The retry of a client that got no answer.
        let again = upload.run();
        assert!(again.status.success(), "{point:?}: {again:?}");
        kept.push(seed);
    }
    let found = restart(&data, &kept);
    assert!(found.iter().all(|f| *f == Found::Whole), "{found:?}");
    assert_eq!(objects(&data), kept.len(), "nothing else is visible");
    assert_eq!(fs::read_dir(data.join("quarantine")).unwrap().count(), 0);
}

fn objects(data: &Path) -> usize {
    fs::read_dir(data.join("objects/sha256"))
        .unwrap()
        .map(|shard| fs::read_dir(shard.unwrap().path()).unwrap().count())
        .sum()
}

/// Keeps I12: `kill -9` at every change of an upload that heals a bad copy. The bad bytes are
/// evidence and stay, in place or in quarantine.
#[test]
fn healing_killed_at_any_change_loses_neither_the_retry_nor_the_evidence() {
    if let Some(why) = trace::unavailable() {
        return skipped(18, "kill points of healing", why);
    }
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let heal = put(&data, 7);
    assert!(heal.run().status.success());
    spoil(&data, 7);
    let counting = heal.trace();
    assert!(counting.stdout.contains("Healed"), "{}", counting.stdout);
    let points = counting.changes();
    assert!(points.len() >= 18, "too few to be healing: {points:?}");
    for point in &points {
        fs::remove_dir_all(data.join("quarantine")).unwrap();
        fs::create_dir(data.join("quarantine")).unwrap();
        spoil(&data, 7);
        let run = heal.kill_at(point);
        assert!(run.killed, "it does the same calls each time: {point:?}");
        let now = restart(&data, &[7])[0];
        assert!(!acknowledged(&run, 7) || now == Found::Whole, "{point:?}");
        let again = heal.run();
        assert!(again.status.success(), "{point:?}: {again:?}");
        assert_eq!(restart(&data, &[7]), [Found::Whole], "{point:?}");
        let evidence = fs::read_dir(data.join("quarantine"))
            .unwrap()
            .filter(|case| case.as_ref().unwrap().path().join("object").is_file())
            .count();
        assert_eq!(evidence, 1, "{point:?}");
    }
}

/// Keeps I12: an initialisation cut short is taken up by the next one. Every seventh of its many
/// like calls, and the last twenty.
#[test]
fn an_initialisation_killed_on_the_way_is_taken_up_again() {
    if let Some(why) = trace::unavailable() {
        return skipped(50, "kill points of an initialisation", why);
    }
    let dir = scratch();
    let place = |n: usize| dir.path().join(format!("data{n}"));
    let tool = |n: usize| store_tool(["init", place(n).to_str().unwrap()]);
    let points = tool(0).trace().changes();
    assert!(points.len() > 256);
    let chosen = points
        .iter()
        .enumerate()
        .filter(|(i, _)| i % 7 == 0 || i + 20 > points.len());
    for (n, point) in chosen.map(|(i, point)| (i + 1, point)) {
        let run = tool(n).kill_at(point);
        assert!(run.killed, "it does the same calls each time: {point:?}");
        assert!(!run.stdout.contains("ack"));
        let again = tool(n).run();
        let text = String::from_utf8_lossy(&again.stdout);
        // Killed after the last step it is complete, and says so.
        assert!(
            text.contains("ack init") || text.contains("AlreadyInitialised"),
            "{point:?}: {text}"
        );
        assert_eq!(restart(&place(n), &[]), []);
        fs::remove_dir_all(place(n)).unwrap();
    }
}

/// A step of the protocol taken out, to see that the tests notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    Nothing,
    FileFsync,
    DirFsync,
    Pin,
}

impl Without {
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::FileFsync => &["--without", "file-fsync"],
            Self::DirFsync => &["--without", "dir-fsync"],
            Self::Pin => &["--without", "pin"],
        }
    }
}

/// Objects on one filesystem, the journal of acknowledgements on another, when `apart`.
struct Machine {
    objects: Disk,
    journal: Option<Disk>,
    data: PathBuf,
    acks: PathBuf,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn new(kind: Kind, apart: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let objects = Disk::new(kind, dir.path(), "objects");
        let data = objects.path().join("data");
        init(&data);
        let journal = apart.then(|| Disk::new(kind, dir.path(), "journal"));
        let acks = journal
            .as_ref()
            .map_or(objects.path(), Disk::path)
            .join("acks");
        Self {
            objects,
            journal,
            data,
            acks,
            _dir: dir,
        }
    }

    fn upload(&self, seed: u64, without: Without, more: &[&str]) -> Program {
        let (seed, len) = (seed.to_string(), LEN.to_string());
        let acks = ["--acks", self.acks.to_str().unwrap()];
        let put = ["put", self.data.to_str().unwrap(), &seed, &len];
        store_tool([without.flags(), more, &acks, &put].concat())
    }

    /// Cuts the power of everything and starts again.
    fn power_cut(&mut self) {
        let mut disks: Vec<_> = [Some(&mut self.objects), self.journal.as_mut()]
            .into_iter()
            .flatten()
            .collect();
        for disk in &disks {
            disk.cut();
        }
        for disk in &mut disks {
            disk.pull_out();
        }
        for disk in &mut disks {
            disk.plug_in();
        }
    }

    /// Which acknowledgements the journal still has, as far as its lines are whole.
    fn remembered(&self) -> BTreeSet<u64> {
        let text = fs::read_to_string(&self.acks).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// What the journal refers to and the store has not.
    fn dangling(&self) -> Vec<(u64, Found)> {
        let seeds: Vec<u64> = self.remembered().into_iter().collect();
        let found = restart(&self.data, &seeds);
        seeds
            .into_iter()
            .zip(found)
            .filter(|(_, found)| *found != Found::Whole)
            .collect()
    }
}

/// A few uploads, then the power fails right after the last acknowledgement.
fn losses_after_acknowledgement(kind: Kind, apart: bool, without: Without) -> Vec<(u64, Found)> {
    let mut machine = Machine::new(kind, apart);
    for seed in 1..=3 {
        let output = machine.upload(seed, without, &[]).run();
        assert!(output.status.success(), "{output:?}");
    }
    machine.power_cut();
    assert_eq!(machine.remembered().len(), 3, "the journal is flushed");
    machine.dangling()
}

pub(crate) fn kinds() -> Vec<Kind> {
    [Kind::Ext4, Kind::Xfs]
        .into_iter()
        .filter(|kind| match disk::unavailable(*kind) {
            None => true,
            Some(why) => {
                skipped(1, &format!("power-cut case on {kind:?}"), &why);
                false
            }
        })
        .collect()
}

/// Keeps I5 and I12: power cuts A and B of `spec/store.md` 2.2.
#[test]
fn a_power_cut_after_the_acknowledgement_loses_nothing() {
    for kind in kinds() {
        for apart in [false, true] {
            let lost = losses_after_acknowledgement(kind, apart, Without::Nothing);
            assert_eq!(lost, [], "{kind:?}, journal apart: {apart}");
        }
    }
}

/// Keeps I12: what `init` said it made is there after a power cut.
#[test]
fn a_power_cut_after_an_initialisation_leaves_it_complete() {
    for kind in kinds() {
        let mut machine = Machine::new(kind, false);
        machine.power_cut();
        assert_eq!(restart(&machine.data, &[]), []);
        let shards = fs::read_dir(machine.data.join("objects/sha256")).unwrap();
        assert_eq!(shards.count(), 256, "{kind:?}");
    }
}

/// The test above is worth something: it notices a missing flush of the content.
#[test]
fn a_power_cut_shows_that_the_content_is_not_flushed() {
    for kind in kinds() {
        let lost = losses_after_acknowledgement(kind, true, Without::FileFsync);
        assert_ne!(lost, [], "{kind:?}: a missing file flush goes unnoticed");
    }
}

/// The test above is worth something: it notices a missing flush of the name. Only with the journal
/// on another filesystem, because flushing the journal on the same one flushes the name too.
#[test]
fn a_power_cut_shows_that_the_name_is_not_flushed() {
    for kind in kinds() {
        let lost = losses_after_acknowledgement(kind, true, Without::DirFsync);
        assert_ne!(
            lost,
            [],
            "{kind:?}: a missing directory flush goes unnoticed"
        );
    }
}

/// Keeps I5 and I12: the power fails at every change of an upload.
#[test]
fn a_power_cut_at_any_change_of_an_upload_loses_nothing_acknowledged() {
    if let Some(why) = trace::unavailable() {
        return skipped(16, "power cuts within an upload", why);
    }
    for kind in kinds() {
        let mut machine = Machine::new(kind, true);
        let points = machine.upload(0, Without::Nothing, &[]).trace().changes();
        // XFS takes its time over each start: every third change there.
        let step = if kind == Kind::Ext4 { 1 } else { 3 };
        for (seed, point) in (1..).zip(points.iter().step_by(step)) {
            let run = machine.upload(seed, Without::Nothing, &[]).kill_at(point);
            assert!(run.killed, "{kind:?}: the same calls each time: {point:?}");
            machine.power_cut();
            assert_eq!(machine.dangling(), [], "{kind:?}: {point:?}");
            assert_ne!(
                restart(&machine.data, &[seed]),
                [Found::Damaged],
                "{kind:?}: {point:?}"
            );
            let again = machine.upload(seed, Without::Nothing, &[]).run();
            assert!(again.status.success(), "{kind:?}: {point:?}: {again:?}");
        }
    }
}

/// Collection runs between the commit and the flush of what refers to the object.
fn losses_to_collection(without: Without) -> Vec<Found> {
    let dir = scratch();
    let data = dir.path().join("data");
    init(&data);
    let put = ["put", data.to_str().unwrap(), "5", "300000"];
    let args = [without.flags(), &["--collect"], &put].concat();
    let output = store_tool(args).run();
    assert!(output.status.success(), "{output:?}");
    restart(&data, &[5])
}

/// Keeps I12, and is worth something: it notices a missing pin.
#[test]
fn collection_during_an_upload_leaves_its_object_because_of_the_pin() {
    assert_eq!(losses_to_collection(Without::Nothing), [Found::Whole]);
    assert_eq!(
        losses_to_collection(Without::Pin),
        [Found::Absent],
        "a missing pin goes unnoticed"
    );
}
