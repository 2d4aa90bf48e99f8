//! Designs that change bytes: is a copy ever a content the file never had?
//!
//! The writer fills the file with one generation after another, from the start to the end. At any
//! moment a prefix is of one generation and the rest of the one before, with the border in at most one
//! block; anything else is torn. A copy is *late* when somebody stored while it was read: possible, but
//! not the content of the moment it is said to be, which the stronger grades promise.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use holdfast::{
    model::{ByteCount, Cancel},
    pinned::{Bounds, Grade, Leases, Policy, Resolver, Root, Step},
    spool::SpoolDir,
};

use super::{CANARY, ENOUGH, say, time, weather::Over};
use crate::{
    arena::{Arena, bytes, open_descriptors, rel_path},
    child,
    mapping::Mapping,
};

const BLOCK: usize = 4096;
const BLOCKS: usize = 256;
const LENGTH: usize = BLOCK * BLOCKS;
const LIMIT: u64 = 2 * LENGTH as u64;

/// How the file is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// C1: through a mapping, with pauses between the generations.
    MappedWithPauses,
    /// C2: through a mapping, without a pause.
    Mapped,
    /// C5: one large write a generation.
    Large,
    /// C6: a write for each block.
    Small,
    /// C6: truncated, then written block by block.
    Truncating,
    /// C7: opened, written, closed, left alone for a moment.
    Closing,
}

/// What the writer did so far.
#[derive(Debug, Default)]
struct Progress {
    begun: AtomicU64,
    done: AtomicU64,
    generations: AtomicU64,
    /// The longest it waited to open the file, in microseconds.
    held_up: AtomicU64,
}

impl Progress {
    fn store(&self, store: impl FnOnce()) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        store();
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

fn block(generation: u64) -> Vec<u8> {
    generation.to_le_bytes().repeat(BLOCK / 8)
}

impl Writer {
    /// Writes generations until it is over.
    fn run(self, path: &Path, progress: &Progress, is_over: &AtomicBool) {
        let open = || {
            let start = Instant::now();
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let waited = u64::try_from(start.elapsed().as_micros()).unwrap();
            progress.held_up.fetch_max(waited, Ordering::Relaxed);
            file
        };
        let mapping =
            matches!(self, Self::Mapped | Self::MappedWithPauses).then(|| Mapping::of(path));
        let file = matches!(self, Self::Large | Self::Small | Self::Truncating).then(&open);
        let mut generation = 1;
        while !is_over.load(Ordering::Relaxed) {
            generation += 1;
            let block = block(generation);
            match self {
                Self::Mapped | Self::MappedWithPauses => {
                    let mapping = mapping.as_ref().unwrap();
                    for at in 0..BLOCKS {
                        progress.store(|| mapping.store_at(at * BLOCK, &block));
                    }
                    if self == Self::MappedWithPauses {
                        // Long enough, now and then, for a read that flushes first.
                        let pause = if generation % 8 == 0 { 40_000 } else { 200 };
                        std::thread::sleep(Duration::from_micros(pause));
                    }
                }
                Self::Small => {
                    let file = file.as_ref().unwrap();
                    for at in 0..BLOCKS {
                        let offset = (at * BLOCK) as u64;
                        progress.store(|| file.write_all_at(&block, offset).unwrap());
                    }
                }
                Self::Truncating => {
                    let file = file.as_ref().unwrap();
                    progress.store(|| file.set_len(0).unwrap());
                    for at in 0..BLOCKS {
                        let offset = (at * BLOCK) as u64;
                        progress.store(|| file.write_all_at(&block, offset).unwrap());
                    }
                    std::thread::sleep(Duration::from_millis(generation % 8));
                }
                Self::Closing => {
                    let mut file = open();
                    progress.store(|| file.write_all(&block.repeat(BLOCKS)).unwrap());
                    drop(file);
                    std::thread::sleep(Duration::from_millis(generation % 16));
                }
                Self::Large => {
                    let file = file.as_ref().unwrap();
                    progress.store(|| file.write_all_at(&block.repeat(BLOCKS), 0).unwrap());
                    if generation % 8 == 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            }
            progress.generations.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether no moment had this content.
    fn is_torn(self, bytes: &[u8]) -> bool {
        if self != Self::Truncating && bytes.len() != LENGTH {
            return true;
        }
        let generations: Vec<(u64, u64)> = bytes
            .chunks(BLOCK)
            .map(|block| {
                let words = block
                    .chunks(8)
                    .map(|word| word.try_into().map_or(u64::MAX, u64::from_le_bytes));
                let (mut least, mut most) = (u64::MAX, 0);
                for word in words {
                    least = least.min(word);
                    most = most.max(word);
                }
                (least, most)
            })
            .collect();
        let Some((_, newest)) = generations.first().copied() else {
            return false;
        };
        // The border lies in one block at most, and after it everything is one generation older.
        let mut current = newest;
        for (least, most) in generations {
            let is_older = newest.checked_sub(least) == Some(1) && self != Self::Truncating;
            if (least, most) == (current, current) {
                continue;
            }
            if current != newest || !is_older || most > newest {
                return true;
            }
            current = least;
        }
        false
    }
}

/// What a reader gave out.
#[derive(Debug, Default)]
struct Seen {
    whole: u64,
    torn: u64,
    late: u64,
    grades: BTreeMap<&'static str, u64>,
    refused: BTreeMap<String, u64>,
}

/// A place where files are, and where copies go.
struct Place<'a> {
    name: &'a str,
    arena: &'a Arena,
    spools: SpoolDir,
    policy: Policy,
    grade: Grade,
}

impl Place<'_> {
    /// Storms one writer: a naive reader first, that must be caught, then both resolvers.
    fn judge(&self, writer: Writer, time: Duration) -> Vec<String> {
        let path = self.arena.path("root/d/f");
        let mut bad = Vec::new();
        let name = format!("{writer:?} on {}", self.name);
        let caught = self.beneath(writer, |_, seen, elapsed| {
            match naive(&path, writer) {
                Ok(bytes) if writer.is_torn(&bytes) => seen.torn += 1,
                Ok(_) => seen.whole += 1,
                Err(why) => *seen.refused.entry(why).or_default() += 1,
            }
            seen.torn > 0 || elapsed >= CANARY * 10
        });
        say(&format!("{name}, naive: {caught:?}"));
        if caught.torn == 0 {
            bad.push(format!(
                "{name}: INCONCLUSIVE: the naive reader was not caught"
            ));
        }
        let root = self.arena.root(self.policy.clone());
        for resolver in Resolver::ALL {
            let before = open_descriptors();
            let seen = self.beneath(writer, |progress, seen, elapsed| {
                self.read(&root, resolver, writer, progress, seen);
                elapsed >= time
            });
            say(&format!("{name}, {resolver}: {seen:?}"));
            let is_late = self.grade > Grade::DoubleRead && seen.late > 0;
            if seen.torn > 0 || is_late {
                bad.push(format!("{name}, {resolver}: FAILED: {seen:?}"));
            }
            for class in seen.refused.keys() {
                if !["changed", "busy"].contains(&class.as_str()) {
                    bad.push(format!(
                        "{name}, {resolver}: FAILED: refused with `{class}`"
                    ));
                }
            }
            if seen.grades.keys().any(|grade| *grade != self.grade.name()) {
                bad.push(format!(
                    "{name}, {resolver}: FAILED: another grade: {seen:?}"
                ));
            }
            if !settles(before) {
                bad.push(format!(
                    "{name}, {resolver}: FAILED: a descriptor stayed open"
                ));
            }
        }
        bad
    }

    fn read(
        &self,
        root: &Root,
        resolver: Resolver,
        writer: Writer,
        progress: &Progress,
        seen: &mut Seen,
    ) {
        let limit = ByteCount::new(LIMIT);
        let spool = self.spools.create(limit).unwrap();
        let bounds = Bounds::new(limit, Cancel::new());
        let (mut first, mut last) = (u64::MAX, 0);
        let mut seam = |step| {
            if step == (Step::Read { offset: 0 }) {
                first = progress.begun.load(Ordering::SeqCst);
            } else if step == Step::Copied {
                last = progress.done.load(Ordering::SeqCst);
            }
        };
        let path = rel_path("d/f");
        let result = root.snapshot(&path, resolver, spool, &bounds, &mut seam);
        match result {
            Ok(snapshot) => {
                *seen
                    .grades
                    .entry(snapshot.evidence().grade.name())
                    .or_default() += 1;
                if writer.is_torn(&bytes(&snapshot)) {
                    seen.torn += 1;
                } else if last > first {
                    seen.late += 1;
                } else {
                    seen.whole += 1;
                }
            }
            Err(error) => *seen.refused.entry(error.class().to_owned()).or_default() += 1,
        }
    }

    /// Runs `step` again and again beneath the writer, until it says that it is enough.
    fn beneath(
        &self,
        writer: Writer,
        mut step: impl FnMut(&Progress, &mut Seen, Duration) -> bool,
    ) -> Seen {
        self.arena.file("root/d/f", &block(1).repeat(BLOCKS));
        let path = self.arena.path("root/d/f");
        let (is_over, progress) = (AtomicBool::new(false), Progress::default());
        let mut seen = Seen::default();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.run(&path, &progress, &is_over));
            let _over = Over(&is_over);
            let start = Instant::now();
            while !step(&progress, &mut seen, start.elapsed()) {}
        });
        if writer == Writer::Closing {
            let held_up = progress.held_up.into_inner();
            say(&format!(
                "the writer waited {held_up} us at most to open the file"
            ));
        }
        seen
    }
}

/// Whether as few descriptors are open as before, once the flushes under way have ended.
fn settles(before: usize) -> bool {
    let start = Instant::now();
    while open_descriptors() > before && start.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    open_descriptors() <= before
}

/// Reads in pieces, and where times help looks whether they moved.
fn naive(path: &Path, writer: Writer) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| error.kind().to_string();
    let mut file = File::open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    // A file that is truncated is short most of the time: only who is slow reads on in the next one.
    let piece = if writer == Writer::Truncating { 1 } else { 16 };
    let (mut bytes, mut piece) = (Vec::new(), vec![0; piece * BLOCK]);
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => break,
            n => bytes.extend_from_slice(&piece[..n]),
        }
        if writer == Writer::Truncating {
            std::thread::sleep(Duration::from_micros(5));
        }
    }
    let after = file.metadata().map_err(failed)?;
    let facts = |of: &fs::Metadata| (of.len(), of.mtime(), of.mtime_nsec(), of.ctime_nsec());
    let asks = matches!(writer, Writer::Mapped | Writer::MappedWithPauses);
    if asks && facts(&before) != facts(&after) {
        return Err("changed".to_owned());
    }
    Ok(bytes)
}

fn policy(stability: Grade, leases: Leases) -> Policy {
    Policy {
        stability,
        leases,
        ..Policy::default()
    }
}

const ALL: [Writer; 6] = [
    Writer::MappedWithPauses,
    Writer::Mapped,
    Writer::Large,
    Writer::Small,
    Writer::Truncating,
    Writer::Closing,
];

fn judge_all(places: &[Place<'_>], writers: &[Writer]) {
    let mut bad = Vec::new();
    for place in places {
        for writer in writers {
            bad.extend(place.judge(*writer, time()));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_oracle_knows_every_content_there_was() {
    let whole = |parts: &[(u64, usize)]| -> Vec<u8> {
        parts
            .iter()
            .flat_map(|(generation, blocks)| block(*generation).repeat(*blocks))
            .collect()
    };
    let in_place = Writer::Large;
    assert!(!in_place.is_torn(&whole(&[(7, BLOCKS)])));
    assert!(!in_place.is_torn(&whole(&[(7, 10), (6, BLOCKS - 10)])));
    assert!(in_place.is_torn(&whole(&[(6, 10), (7, BLOCKS - 10)])));
    assert!(in_place.is_torn(&whole(&[(8, 10), (6, BLOCKS - 10)])));
    assert!(in_place.is_torn(&whole(&[(7, 10), (6, 10), (7, BLOCKS - 20)])));
    assert!(in_place.is_torn(&whole(&[(7, BLOCKS - 1)])));
    let mut border = whole(&[(7, 10), (6, BLOCKS - 10)]);
    border[10 * BLOCK..10 * BLOCK + 8].copy_from_slice(&7_u64.to_le_bytes());
    assert!(!in_place.is_torn(&border));
    border[12 * BLOCK..12 * BLOCK + 8].copy_from_slice(&7_u64.to_le_bytes());
    assert!(in_place.is_torn(&border));
    let short = Writer::Truncating;
    assert!(!short.is_torn(&[]));
    assert!(!short.is_torn(&whole(&[(7, 9)])));
    assert!(short.is_torn(&whole(&[(7, 9), (6, 1)])));
}

/// Keeps I4 at length (C1, C2, C5, C6, C7): a stamped copy is the file's content at one moment.
#[test]
#[ignore = "six minutes for each resolver"]
fn c_stamped_copies_are_of_one_moment() {
    let arena = Arena::new();
    let place = Place {
        name: "the build's filesystem, stamped",
        spools: arena.spools(),
        policy: policy(Grade::Stamped, Leases::Never),
        grade: Grade::Stamped,
        arena: &arena,
    };
    judge_all(&[place], &ALL);
}

/// Keeps I4 at length (C7, C10): a copy under a lease is the content at one moment; a writer breaks the
/// lease, is let through, and the copy that was under way is given up.
#[test]
#[ignore = "a minute for each resolver"]
fn c7_c10_leased_copies_are_of_one_moment_and_hold_nobody_up() {
    let arena = Arena::new();
    let place = Place {
        name: "the build's filesystem, leased",
        spools: arena.spools(),
        policy: policy(Grade::Lease, Leases::Try),
        grade: Grade::Lease,
        arena: &arena,
    };
    judge_all(&[place], &[Writer::Closing]);
}

/// Keeps I4 at length on a filesystem in memory: nothing is stamped there, and what is read twice is not
/// torn.
#[test]
#[ignore = "six minutes for each resolver"]
fn c_copies_of_files_in_memory_are_read_twice_or_refused() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return child::skipped("the designs in memory", "there is no /dev/shm");
    };
    let arena = Arena::at(dir);
    arena.dir("root");
    let twice = |policy| Place {
        name: "memory, read twice",
        spools: arena.spools(),
        policy,
        grade: Grade::DoubleRead,
        arena: &arena,
    };
    // Not stamped, whatever is written meanwhile.
    arena.file("root/d/f", &block(1));
    let root = arena.root(Policy::default());
    let refused = arena.read(&root, &rel_path("d/f"), Resolver::Walk, LIMIT, &mut ());
    assert_eq!(
        refused.map_err(|error| error.class()).err(),
        Some("unsupported")
    );
    judge_all(&[twice(policy(Grade::DoubleRead, Leases::Never))], &ALL);
}

/// Keeps I4 at length on XFS: cloned where the copy lies beside, stamped where it lies elsewhere.
#[test]
#[ignore = "twelve minutes for each resolver"]
fn c_copies_on_xfs_are_of_one_moment() {
    in_an_image("long::torn::c_copies_on_xfs_are_of_one_moment", "xfs");
}

/// As on XFS.
#[test]
#[ignore = "twelve minutes for each resolver"]
fn c_copies_on_btrfs_are_of_one_moment() {
    in_an_image("long::torn::c_copies_on_btrfs_are_of_one_moment", "btrfs");
}

fn in_an_image(test: &str, kind: &str) {
    if child::is_child(test) {
        let arena = Arena::at(tempfile::tempdir_in("/mnt").unwrap());
        arena.dir("root");
        let elsewhere = Arena::new();
        let place = |name, spools, grade| Place {
            name,
            spools,
            policy: Policy::default(),
            grade,
            arena: &arena,
        };
        let cloned = format!("{kind}, cloned");
        let stamped = format!("{kind}, stamped");
        judge_all(
            &[
                place(&cloned, arena.spools(), Grade::Clone),
                place(&stamped, elsewhere.spools(), Grade::Stamped),
            ],
            &ALL,
        );
        return;
    }
    let arena = Arena::new();
    let image = arena.path("image");
    File::create(&image).unwrap().set_len(1 << 30).unwrap();
    let setup = format!("mkfs.{kind} -q \"$1\" && mount -o loop \"$1\" /mnt || exit 77");
    child::in_namespace(test, &setup, image.as_os_str());
}

/// Keeps I11 at length (C11): who keeps hundreds of MiB dirty holds up the reads of that file alone. A file
/// over the ceiling is refused before anything is flushed.
#[test]
#[ignore = "a minute for each resolver"]
fn c11_a_dirty_file_holds_up_its_own_readers_alone() {
    const LARGE: usize = 192 << 20;
    let arena = Arena::new();
    arena.file("root/small", b"IN:  a decoy.");
    arena.file("root/large", &vec![1; LARGE]);
    let path = arena.path("root/large");
    let root = arena.root(Policy::default());
    for resolver in Resolver::ALL {
        let is_over = AtomicBool::new(false);
        let slowest = Mutex::new(Duration::ZERO);
        let mut late: BTreeMap<&str, u64> = BTreeMap::new();
        let small = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            scope.spawn(|| {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                let piece = vec![2; 1 << 20];
                while !is_over.load(Ordering::Relaxed) {
                    for at in 0..LARGE >> 20 {
                        file.write_all_at(&piece, (at << 20) as u64).unwrap();
                    }
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let read = arena.read(&root, &rel_path("small"), resolver, LIMIT, &mut ());
                    assert_eq!(bytes(&read.unwrap()), b"IN:  a decoy.");
                    small.fetch_add(1, Ordering::Relaxed);
                    let mut slowest = slowest.lock().unwrap();
                    *slowest = start.elapsed().max(*slowest);
                }
            });
            let start = Instant::now();
            while start.elapsed() < time() || small.load(Ordering::Relaxed) < ENOUGH {
                let mut steps = Vec::new();
                let large = rel_path("large");
                let over = arena.read(&root, &large, resolver, LIMIT, &mut |step| steps.push(step));
                assert_eq!(over.map_err(|error| error.class()).err(), Some("too_large"));
                assert!(!steps.contains(&Step::Flushed), "{steps:?}");
                let limit = ByteCount::new(LARGE as u64);
                let spool = arena.spools().create(limit).unwrap();
                let bounds = Bounds {
                    deadline: Some(Instant::now() + Duration::from_millis(30)),
                    ..Bounds::new(limit, Cancel::new())
                };
                let class = root
                    .snapshot(&large, resolver, spool, &bounds, &mut ())
                    .map_or_else(|error| error.class(), |_| "read");
                *late.entry(class).or_default() += 1;
            }
        });
        say(&format!(
            "C11 dirty file, {resolver}: {late:?}; beside it {} reads of another, the slowest {:?}",
            small.into_inner(),
            slowest.into_inner().unwrap()
        ));
        assert!(
            late.keys()
                .all(|class| ["deadline", "busy", "changed", "read"].contains(class)),
            "{late:?}"
        );
        assert!(late.contains_key("deadline"), "INCONCLUSIVE: {late:?}");
    }
}

/// Keeps I11 at length (D5): a read that is cancelled at any moment, while an ancestor is swapped and the
/// file rewritten, gives nothing from then on and leaves neither a descriptor nor a lease.
#[test]
#[ignore = "a minute for each resolver"]
fn d5_a_read_cancelled_at_any_moment_leaves_nothing() {
    let arena = Arena::new();
    arena.file("root/d/f", &block(1).repeat(BLOCKS));
    arena.file("out/f", &block(9).repeat(BLOCKS));
    arena.link("root/d2", "../out");
    let root = arena.root(policy(Grade::Stamped, Leases::Try));
    let (path, limit) = (arena.path("root/d/f"), ByteCount::new(LIMIT));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for resolver in Resolver::ALL {
        let is_over = AtomicBool::new(false);
        let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
        // The flush threads start with the first flush.
        drop(arena.read(&root, &rel_path("d/f"), resolver, LIMIT, &mut ()));
        let before = open_descriptors();
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            scope.spawn(|| {
                let mut n = 0_u32;
                while !is_over.load(Ordering::Relaxed) || n % 2 == 1 {
                    arena.exchange("root/d", "root/d2");
                    n += 1;
                }
            });
            scope.spawn(|| {
                let mut generation = 1;
                while !is_over.load(Ordering::Relaxed) {
                    generation += 1;
                    file.write_all_at(&block(generation).repeat(BLOCKS), 0)
                        .unwrap();
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
            let start = Instant::now();
            let mut n = 0_u64;
            while start.elapsed() < time() || n < 1000 {
                n += 1;
                let cancel = Cancel::new();
                let bounds = Bounds::new(limit, cancel.clone());
                let spool = arena.spools().create(limit).unwrap();
                // A different moment each time, spread over what a read takes.
                let pause = Duration::from_micros(n * 7919 % 4000);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(pause);
                        cancel.fire();
                    });
                    let read = root.snapshot(&rel_path("d/f"), resolver, spool, &bounds, &mut ());
                    let class = match read {
                        Ok(snapshot) => {
                            assert!(!Writer::Large.is_torn(&bytes(&snapshot)));
                            "read"
                        }
                        Err(error) => error.class(),
                    };
                    *outcomes.entry(class).or_default() += 1;
                });
            }
        });
        say(&format!(
            "D5 cancelled at any moment, {resolver}: {outcomes:?}"
        ));
        let allowed = [
            "cancelled",
            "changed",
            "denied_symlink",
            "not_found",
            "busy",
            "read",
        ];
        assert!(
            outcomes.keys().all(|class| allowed.contains(class)),
            "{outcomes:?}"
        );
        assert!(
            outcomes.get("cancelled").is_some_and(|n| *n >= ENOUGH),
            "{outcomes:?}"
        );
        assert!(settles(before), "a descriptor stayed open");
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(&path)
            .expect("no lease is left");
    }
}
