//! Verified content: the whole object is checked on its own descriptor before the first byte, and
//! every block once more as it leaves.
//!
//! Promises: a [`Verified`] exists only after a pass over the whole content matched its digest, by
//! this caller or by another at most [`Limits::verified_for`] ago with the object's facts unmoved
//! since; [`Blocks::next`] never returns a byte of a block that fails (I4); memory does not grow with
//! the number of transfers times their size (I11). Leaves to others: who may have the bytes.
//!
//! The first pass hashes with SHA-256 and keeps a keyed tag of each block; later passes compare
//! tags, at memory speed. The key is drawn at random when the verifier is made and never leaves it,
//! so that nobody can craft another block of the same tag.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use highway::{HighwayHash as _, HighwayHasher, Key};
use rustix::io::Errno;

use super::{Blob, StoreError};
use crate::model::{ByteCount, Cancel, Digest, Digester, Limits};

/// The length of a block, except in objects so large that their tags would pass [`MOST_TAGS`].
const BLOCK: u64 = 256 * 1024;
/// Blocks grow up to this length, and no further.
const LARGEST_BLOCK: u64 = 4 * 1024 * 1024;
/// The most tags an object has while its blocks can still grow: 1 MiB of them.
const MOST_TAGS: u64 = 65_536;
/// What all kept tags may take together, in bytes.
const BUDGET: usize = 16 * 1024 * 1024;
/// What an entry is charged beside its tags.
const ENTRY: usize = 256;
/// How long one caller waits for the pass of another.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a waiting caller looks whether it was cancelled.
const GLANCE: Duration = Duration::from_millis(20);

type Tag = [u64; 2];

/// The keyed tags of an object's blocks.
struct Tags {
    block: u64,
    tags: Box<[Tag]>,
}

impl Tags {
    fn cost(&self) -> usize {
        ENTRY.saturating_add(size_of_val(&*self.tags))
    }
}

/// What the system says of an object: as long as none of it moves, nobody wrote to it by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Facts {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Facts {
    fn of(file: &File) -> Result<Self, StoreError> {
        let stat = rustix::fs::fstat(file)
            .map_err(|errno| StoreError::from_io("examining an object", errno.into()))?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        })
    }
}

/// The type of the field varies with the target; what does not fit is no time.
fn nanos(field: impl TryInto<i64>) -> i64 {
    field.try_into().unwrap_or(-1)
}

/// Which content a pass is about: the digest is part of it, so that a pass for one digest never
/// stands for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Subject {
    facts: Facts,
    digest: Digest,
}

/// How passes went since the verifier was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Whole objects hashed.
    pub hashed: u64,
    /// Whole objects compared with their tags.
    pub tagged: u64,
    /// Passes of others that were recent enough.
    pub reused: u64,
    /// Passes that ran for another caller at the same time.
    pub joined: u64,
}

#[derive(Default)]
struct Counters {
    hashed: AtomicU64,
    tagged: AtomicU64,
    reused: AtomicU64,
    joined: AtomicU64,
}

/// Makes [`Verified`] values, and remembers tags.
pub struct Verifier {
    key: Key,
    verified_for: Duration,
    budget: usize,
    patience: Duration,
    table: Mutex<Table>,
    counters: Counters,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("passes", &self.passes())
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// A verifier with a key of its own.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the system gives no random bytes.
    pub fn new(limits: &Limits) -> Result<Self, StoreError> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| StoreError::Io {
            action: "drawing a key",
            source: io::Error::other(error),
        })?;
        let mut key = [0; 4];
        for (word, bytes) in key.iter_mut().zip(bits.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(Self {
            key: Key(key),
            verified_for: limits.verified_for,
            budget: BUDGET,
            patience: PATIENCE,
            table: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// How passes went so far.
    #[must_use]
    pub fn passes(&self) -> Passes {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Passes {
            hashed: read(&self.counters.hashed),
            tagged: read(&self.counters.tagged),
            reused: read(&self.counters.reused),
            joined: read(&self.counters.joined),
        }
    }

    /// Checks the whole content of `blob` on its own descriptor.
    ///
    /// One pass per object runs at a time; a second caller waits for it, at most 30 s. Blocks;
    /// `cancel` is asked between blocks of 256 KiB and while waiting.
    ///
    /// # Errors
    /// [`StoreError::DigestMismatch`] and [`StoreError::LengthMismatch`] when the content is not the
    /// named one; [`StoreError::Changed`] when it moved meanwhile; [`StoreError::Busy`] when another
    /// pass did not end in time; [`StoreError::Cancelled`]; [`StoreError::Io`] when it cannot be
    /// read, which says nothing about its content.
    ///
    /// # Source
    /// DESIGN 10, "verified send". Keeps I4.
    pub fn verify(&self, blob: Blob, cancel: &Cancel) -> Result<Verified<Blob>, StoreError> {
        self.verify_with(blob, cancel, &mut |_| ())
    }

    /// `at_block` is called with each block's offset before the block is read.
    fn verify_with(
        &self,
        blob: Blob,
        cancel: &Cancel,
        at_block: &mut dyn FnMut(u64),
    ) -> Result<Verified<Blob>, StoreError> {
        let facts = Facts::of(&blob.file)?;
        if facts.size != blob.len.get() {
            return Err(StoreError::LengthMismatch {
                digest: blob.digest,
                expected: blob.len,
                found: ByteCount::new(facts.size),
            });
        }
        let subject = Subject {
            facts,
            digest: blob.digest,
        };
        let deadline = Instant::now() + self.patience;
        let tags = loop {
            if cancel.is_fired() {
                return Err(StoreError::Cancelled);
            }
            let role = self.table().join(subject, self.verified_for);
            match role {
                Role::Reuse(tags) => {
                    self.counters.reused.fetch_add(1, Ordering::Relaxed);
                    break tags;
                }
                Role::Wait(flight) => match flight.wait(subject.digest, deadline, cancel)? {
                    Landing::Passed(tags) => {
                        self.counters.joined.fetch_add(1, Ordering::Relaxed);
                        break tags;
                    }
                    Landing::Mismatch => return Err(StoreError::DigestMismatch(blob.digest)),
                    Landing::Abandoned => {}
                },
                Role::Run(flight, known) => {
                    let mut run = Run {
                        verifier: self,
                        subject,
                        flight,
                        landing: Landing::Abandoned,
                    };
                    let result = self.pass(&blob, facts, known, cancel, at_block);
                    run.landing = match &result {
                        Ok(tags) => Landing::Passed(Arc::clone(tags)),
                        Err(StoreError::DigestMismatch(_)) => Landing::Mismatch,
                        // Says something about the caller or the moment, not about the content.
                        Err(_) => Landing::Abandoned,
                    };
                    drop(run);
                    break result?;
                }
            }
        };
        Ok(Verified {
            content: Arc::new(blob),
            tags,
            key: self.key,
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One pass over the whole content: against `known` tags, or else against the digest.
    fn pass(
        &self,
        blob: &Blob,
        facts: Facts,
        known: Option<Arc<Tags>>,
        cancel: &Cancel,
        at_block: &mut dyn FnMut(u64),
    ) -> Result<Arc<Tags>, StoreError> {
        let len = blob.len.get();
        let block = known.as_ref().map_or_else(|| block_for(len), |t| t.block);
        let mut digester = known.is_none().then(Digester::default);
        let mut tags = Vec::new();
        let mut buffer = Vec::new();
        let mut index = 0;
        let mut offset = 0;
        let mut good = true;
        while offset < len && good {
            if cancel.is_fired() {
                return Err(StoreError::Cancelled);
            }
            at_block(offset);
            let want = block.min(len - offset);
            read_block(&blob.file, blob.digest, offset, want, &mut buffer)?;
            let tag = tag_of(&self.key, &buffer);
            match (&mut digester, &known) {
                (Some(digester), _) => {
                    digester.update(&buffer);
                    tags.push(tag);
                }
                (None, Some(known)) => good = known.tags.get(index) == Some(&tag),
                (None, None) => good = false,
            }
            index += 1;
            offset += want;
        }
        let good = good && digester.is_none_or(|d| d.finish() == blob.digest);
        // Facts first: a file somebody wrote to has changed, whatever it holds by now.
        if Facts::of(&blob.file)? != facts {
            return Err(StoreError::Changed(blob.digest));
        }
        if !good {
            return Err(StoreError::DigestMismatch(blob.digest));
        }
        if let Some(known) = known {
            self.counters.tagged.fetch_add(1, Ordering::Relaxed);
            return Ok(known);
        }
        self.counters.hashed.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Tags {
            block,
            tags: tags.into_boxed_slice(),
        }))
    }
}

/// The block length for content of `len` bytes: the tags stay within 1 MiB up to 256 GiB.
fn block_for(len: u64) -> u64 {
    let mut block = BLOCK;
    while block < LARGEST_BLOCK && len.div_ceil(block) > MOST_TAGS {
        block *= 2;
    }
    block
}

fn tag_of(key: &Key, block: &[u8]) -> Tag {
    HighwayHasher::new(*key).hash128(block)
}

/// Reads exactly `want` bytes, at most a block; fewer are there only if somebody cut the file.
fn read_block(
    file: &File,
    digest: Digest,
    offset: u64,
    want: u64,
    buffer: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let want = usize::try_from(want.min(LARGEST_BLOCK)).unwrap_or_default();
    buffer.clear();
    buffer.reserve_exact(want);
    while buffer.len() < want {
        let at = offset.saturating_add(ByteCount::from(buffer.len()).get());
        match rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), at) {
            Ok(0) => return Err(StoreError::Changed(digest)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(StoreError::from_io("reading an object", errno.into())),
        }
    }
    buffer.truncate(want);
    Ok(())
}

/// Tags by subject, and the passes that run.
#[derive(Default)]
struct Table {
    entries: HashMap<Subject, Entry>,
    /// Subjects by when they were last wanted.
    order: BTreeMap<u64, Subject>,
    turn: u64,
    cost: usize,
    flights: HashMap<Subject, Arc<Flight>>,
}

struct Entry {
    tags: Arc<Tags>,
    passed: Instant,
    turn: u64,
}

/// What a caller has to do.
enum Role {
    /// Nothing: a recent pass stands.
    Reuse(Arc<Tags>),
    /// Wait for the pass that runs.
    Wait(Arc<Flight>),
    /// Run the pass, against these tags when there are some.
    Run(Arc<Flight>, Option<Arc<Tags>>),
}

impl Table {
    fn join(&mut self, subject: Subject, verified_for: Duration) -> Role {
        if let Some(entry) = self.entries.get(&subject) {
            // Strictly less, so that a reuse time of zero never reuses.
            if entry.passed.elapsed() < verified_for {
                let tags = Arc::clone(&entry.tags);
                self.touch(subject);
                return Role::Reuse(tags);
            }
        }
        if let Some(flight) = self.flights.get(&subject) {
            return Role::Wait(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::default());
        self.flights.insert(subject, Arc::clone(&flight));
        let known = self.entries.get(&subject).map(|e| Arc::clone(&e.tags));
        Role::Run(flight, known)
    }

    fn touch(&mut self, subject: Subject) {
        if let Some(entry) = self.entries.get_mut(&subject) {
            self.order.remove(&entry.turn);
            self.turn += 1;
            entry.turn = self.turn;
            self.order.insert(self.turn, subject);
        }
    }

    fn land(&mut self, subject: Subject, landing: &Landing, budget: usize) {
        self.flights.remove(&subject);
        match landing {
            Landing::Passed(tags) => {
                self.forget(subject);
                self.cost += tags.cost();
                self.turn += 1;
                self.order.insert(self.turn, subject);
                let entry = Entry {
                    tags: Arc::clone(tags),
                    passed: Instant::now(),
                    turn: self.turn,
                };
                self.entries.insert(subject, entry);
                while self.cost > budget {
                    let Some((_, oldest)) = self.order.first_key_value() else {
                        break;
                    };
                    self.forget(*oldest);
                }
            }
            Landing::Mismatch => self.forget(subject),
            Landing::Abandoned => {}
        }
    }

    fn forget(&mut self, subject: Subject) {
        if let Some(entry) = self.entries.remove(&subject) {
            self.order.remove(&entry.turn);
            self.cost = self.cost.saturating_sub(entry.tags.cost());
        }
    }
}

/// A pass that runs, for those who wait for it.
#[derive(Default)]
struct Flight {
    landing: Mutex<Option<Landing>>,
    landed: Condvar,
}

/// How a pass ended.
#[derive(Clone)]
enum Landing {
    Passed(Arc<Tags>),
    Mismatch,
    /// It was given up, or could not read: the next caller runs its own.
    Abandoned,
}

impl Flight {
    fn wait(
        &self,
        digest: Digest,
        deadline: Instant,
        cancel: &Cancel,
    ) -> Result<Landing, StoreError> {
        let mut landing = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(landing) = &*landing {
                return Ok(landing.clone());
            }
            if cancel.is_fired() {
                return Err(StoreError::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(StoreError::Busy(digest));
            }
            landing = self
                .landed
                .wait_timeout(landing, GLANCE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Tells everybody how the pass ended, also when it ends by a panic.
struct Run<'a> {
    verifier: &'a Verifier,
    subject: Subject,
    flight: Arc<Flight>,
    landing: Landing,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.verifier
            .table()
            .land(self.subject, &self.landing, self.verifier.budget);
        let mut landing = self
            .flight
            .landing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *landing = Some(self.landing.clone());
        self.flight.landed.notify_all();
    }
}

/// Content that passed [`Verifier::verify`]; the only way to its bytes.
pub struct Verified<T> {
    content: Arc<T>,
    tags: Arc<Tags>,
    key: Key,
}

impl<T: fmt::Debug> fmt::Debug for Verified<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verified").field(&self.content).finish()
    }
}

impl Verified<Blob> {
    /// SHA-256 of the content.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.content.digest
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> ByteCount {
        self.content.len
    }

    /// Whether the content is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.len == ByteCount::ZERO
    }

    /// The bytes from `range.start` up to `range.end`, which is cut to the length, block by block.
    #[must_use]
    pub fn blocks(&self, range: Range<u64>) -> Blocks {
        Blocks {
            content: Arc::clone(&self.content),
            tags: Arc::clone(&self.tags),
            key: self.key,
            at: range.start,
            end: range.end.min(self.content.len.get()),
            failed: false,
        }
    }
}

/// A range of verified content on its way out.
pub struct Blocks {
    content: Arc<Blob>,
    tags: Arc<Tags>,
    key: Key,
    at: u64,
    end: u64,
    failed: bool,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks")
            .field("digest", &self.content.digest)
            .field("at", &self.at)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Blocks {
    /// The next bytes, at most a block of 256 KiB (4 MiB in objects past 16 GiB); `None` at the end.
    ///
    /// The whole block is read and compared with its tag before any byte of it is returned. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when the block is not the verified one any more, now and at every
    /// later call: the transfer must be cut. [`StoreError::Io`] when it cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would go on after an error; this one ends for good"
    )]
    pub fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let digest = self.content.digest;
        if self.failed {
            return Err(StoreError::Changed(digest));
        }
        if self.at >= self.end {
            return Ok(None);
        }
        // Taken back only by a block that passes.
        self.failed = true;
        let block = self.tags.block;
        let index = self.at / block;
        let start = index * block;
        let want = block.min(self.content.len.get() - start);
        let mut buffer = Vec::new();
        read_block(&self.content.file, digest, start, want, &mut buffer)?;
        let expected = usize::try_from(index)
            .ok()
            .and_then(|index| self.tags.tags.get(index));
        if expected != Some(&tag_of(&self.key, &buffer)) {
            return Err(StoreError::Changed(digest));
        }
        let from = usize::try_from(self.at - start).unwrap_or(usize::MAX);
        let to = usize::try_from((self.end - start).min(want)).unwrap_or_default();
        let bytes = Bytes::from(buffer).slice(from..to);
        self.at = start + want;
        self.failed = false;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "tests build their own directories"
    )]

    use std::{
        fs::{self, File},
        os::unix::fs::FileExt as _,
        path::PathBuf,
        sync::{Arc, Barrier},
        time::Duration,
    };

    use super::{BLOCK, Blob, Facts, Passes, Subject, Verified, Verifier};
    use crate::{
        model::{Cancel, Digest, Limits},
        store::StoreError,
    };

    struct Fixture {
        _dir: tempfile::TempDir,
        path: PathBuf,
        content: Vec<u8>,
        verifier: Verifier,
    }

    /// An object of `len` bytes, no two blocks alike.
    fn fixture(len: u64) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("object");
        let content = crate::store::conformance::content(len);
        fs::write(&path, &content).unwrap();
        // Before Linux 6.13 stamps move in steps of some milliseconds.
        std::thread::sleep(Duration::from_millis(15));
        Fixture {
            _dir: dir,
            path,
            content,
            verifier: Verifier::new(&Limits::default()).unwrap(),
        }
    }

    impl Fixture {
        fn blob(&self) -> Blob {
            Blob {
                file: File::open(&self.path).unwrap(),
                digest: Digest::of(&self.content),
                len: self.content.len().into(),
            }
        }

        fn verify(&self) -> Result<Verified<Blob>, StoreError> {
            self.verifier.verify(self.blob(), &Cancel::new())
        }

        fn writer(&self) -> File {
            File::options().write(true).open(&self.path).unwrap()
        }

        fn flip(&self, at: u64) {
            let byte = self.content[usize::try_from(at).unwrap()] ^ 1;
            self.writer().write_all_at(&[byte], at).unwrap();
        }

        /// What is remembered of the object, as if none of its facts had moved since: what a
        /// medium does that goes bad under the page cache.
        fn pretend_unmoved(&self) {
            let blob = self.blob();
            let now = Subject {
                facts: Facts::of(&blob.file).unwrap(),
                digest: blob.digest,
            };
            let mut table = self.verifier.table();
            let old = *table.entries.keys().next().unwrap();
            let entry = table.entries.remove(&old).unwrap();
            let turn = entry.turn;
            table.order.insert(turn, now);
            table.entries.insert(now, entry);
        }
    }

    /// All bytes up to the end or the cut.
    fn drain(verified: &Verified<Blob>) -> (Vec<u8>, Result<(), StoreError>) {
        let mut blocks = verified.blocks(0..u64::MAX);
        let mut all = Vec::new();
        loop {
            match blocks.next() {
                Ok(Some(block)) => all.extend_from_slice(&block),
                Ok(None) => return (all, Ok(())),
                Err(error) => return (all, Err(error)),
            }
        }
    }

    #[test]
    fn a_range_is_the_slice_of_the_content() {
        let f = fixture(2 * BLOCK + 100);
        let len = f.content.len() as u64;
        let verified = f.verify().unwrap();
        let edges = [
            0,
            1,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            2 * BLOCK,
            len - 1,
            len,
            len + 9,
        ];
        for start in edges {
            for end in edges {
                let mut blocks = verified.blocks(start..end);
                let mut got = Vec::new();
                while let Some(block) = blocks.next().unwrap() {
                    assert!(block.len() as u64 <= BLOCK && !block.is_empty());
                    got.extend_from_slice(&block);
                }
                let from = usize::try_from(start.min(len)).unwrap();
                let to = usize::try_from(end.min(len)).unwrap().max(from);
                assert!(got == f.content[from..to], "{start}..{end}");
            }
        }
    }

    #[test]
    fn empty_content_is_verified_too() {
        let f = fixture(0);
        let verified = f.verify().unwrap();
        assert!(verified.is_empty());
        assert_eq!(drain(&verified).0, b"");
        fs::write(&f.path, b"x").unwrap();
        assert!(matches!(f.verify(), Err(StoreError::LengthMismatch { .. })));
    }

    /// Keeps I4: one bit anywhere, and no byte of any part is given.
    #[test]
    fn one_flipped_bit_anywhere_refuses_the_whole_object() {
        for at in [0, BLOCK - 1, BLOCK, 2 * BLOCK + 99] {
            let f = fixture(2 * BLOCK + 100);
            f.flip(at);
            assert!(
                matches!(f.verify(), Err(StoreError::DigestMismatch(_))),
                "{at}"
            );
        }
    }

    /// Keeps I4: damage between two blocks of a running transfer cuts it before the first wrong byte.
    #[test]
    fn damage_during_a_transfer_cuts_it_before_the_first_wrong_byte() {
        type Damage = fn(&Fixture);
        let cases: [(&str, Damage, u64); 5] = [
            (
                "a flip in the third block",
                |f| f.flip(2 * BLOCK),
                2 * BLOCK,
            ),
            ("a flip in the second", |f| f.flip(2 * BLOCK - 1), BLOCK),
            (
                "cut",
                |f| f.writer().set_len(2 * BLOCK + 5).unwrap(),
                2 * BLOCK,
            ),
            ("emptied", |f| f.writer().set_len(0).unwrap(), BLOCK),
            (
                "rewritten with zeros",
                |f| {
                    f.writer()
                        .write_all_at(&vec![0; f.content.len()], 0)
                        .unwrap();
                },
                BLOCK,
            ),
        ];
        for (how, damage, good) in cases {
            let f = fixture(3 * BLOCK);
            let verified = f.verify().unwrap();
            let mut blocks = verified.blocks(0..u64::MAX);
            let mut got = blocks.next().unwrap().unwrap().to_vec();
            damage(&f);
            let end = loop {
                match blocks.next() {
                    Ok(Some(block)) => got.extend_from_slice(&block),
                    Ok(None) => panic!("{how}: ended as if whole"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(end, StoreError::Changed(_)), "{how}: {end:?}");
            assert!(
                matches!(blocks.next(), Err(StoreError::Changed(_))),
                "{how}: goes on"
            );
            assert_eq!(got.len() as u64, good, "{how}");
            assert!(got == f.content[..got.len()], "{how}: a wrong byte left");
        }
    }

    /// Keeps I4: bytes behind the content are not the content, and what was verified still is.
    #[test]
    fn growth_during_a_transfer_adds_nothing_to_it_and_refuses_the_next() {
        let f = fixture(2 * BLOCK);
        let verified = f.verify().unwrap();
        f.writer().write_all_at(b"more", 2 * BLOCK).unwrap();
        let (all, end) = drain(&verified);
        assert!(end.is_ok() && all == f.content);
        assert!(matches!(f.verify(), Err(StoreError::LengthMismatch { .. })));
    }

    /// Keeps I4: a name that leads elsewhere by now does not matter to a descriptor.
    #[test]
    fn a_file_put_in_its_place_during_a_transfer_is_not_read() {
        let f = fixture(2 * BLOCK);
        let verified = f.verify().unwrap();
        let other = f.path.with_extension("other");
        fs::write(&other, vec![0; f.content.len()]).unwrap();
        fs::rename(&other, &f.path).unwrap();
        let (all, end) = drain(&verified);
        assert!(end.is_ok() && all == f.content);
        assert!(matches!(f.verify(), Err(StoreError::DigestMismatch(_))));
    }

    #[test]
    fn a_change_during_the_pass_refuses_it() {
        let f = fixture(3 * BLOCK);
        let result = f
            .verifier
            .verify_with(f.blob(), &Cancel::new(), &mut |offset| {
                if offset == BLOCK {
                    f.flip(0); // behind the pass: what it read was good
                }
            });
        assert!(matches!(result, Err(StoreError::Changed(_))), "{result:?}");
    }

    #[test]
    fn a_pass_is_reused_while_the_facts_stand_still_and_no_longer() {
        let f = fixture(BLOCK + 1);
        f.verify().unwrap();
        f.verify().unwrap();
        let passes = f.verifier.passes();
        assert_eq!((passes.hashed, passes.reused), (1, 1));
        // The same bytes written again: the facts moved, so the content is hashed again.
        f.writer().write_all_at(&f.content[..1], 0).unwrap();
        f.verify().unwrap();
        assert_eq!(f.verifier.passes().hashed, 2);
    }

    #[test]
    fn an_old_pass_is_repeated_against_the_tags() {
        let mut f = fixture(BLOCK + 1);
        f.verifier.verified_for = Duration::ZERO;
        f.verify().unwrap();
        f.verify().unwrap();
        let expected = Passes {
            hashed: 1,
            tagged: 1,
            ..Passes::default()
        };
        assert_eq!(f.verifier.passes(), expected);
    }

    /// Keeps I4 where the facts tell nothing: the tags do.
    #[test]
    fn bytes_that_went_bad_without_moving_a_fact_are_found_by_the_tags() {
        for reused in [Duration::ZERO, Duration::from_mins(1)] {
            let mut f = fixture(3 * BLOCK);
            f.verifier.verified_for = reused;
            f.verify().unwrap();
            f.flip(BLOCK);
            f.pretend_unmoved();
            match f.verify() {
                // The pass of now reads everything: not one byte.
                Err(StoreError::DigestMismatch(_)) => assert_eq!(reused, Duration::ZERO),
                // A pass of before stands, so the block itself is the last guard.
                Ok(verified) => {
                    assert_ne!(reused, Duration::ZERO);
                    let (all, end) = drain(&verified);
                    assert!(matches!(end, Err(StoreError::Changed(_))));
                    assert!(all == f.content[..usize::try_from(BLOCK).unwrap()]);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn many_at_once_share_one_pass() {
        let f = fixture(4 * BLOCK);
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    assert!(drain(&f.verify().unwrap()).1.is_ok());
                });
            }
        });
        let passes = f.verifier.passes();
        assert_eq!(passes.hashed, 1, "{passes:?}");
        assert_eq!(passes.joined + passes.reused, 7, "{passes:?}");
    }

    #[test]
    fn a_waiting_caller_takes_over_when_the_pass_is_cancelled() {
        let f = fixture(2 * BLOCK);
        let first = Cancel::new();
        std::thread::scope(|scope| {
            let waiter = &std::sync::Mutex::new(None);
            let result = f.verifier.verify_with(f.blob(), &first, &mut |offset| {
                if offset == 0 {
                    let second = scope.spawn(|| f.verify().map(|v| drain(&v).0));
                    *waiter.lock().unwrap() = Some(second);
                } else {
                    std::thread::sleep(Duration::from_millis(50));
                }
                first.fire();
            });
            assert!(matches!(result, Err(StoreError::Cancelled)), "{result:?}");
            let second = waiter.lock().unwrap().take().unwrap();
            assert!(second.join().unwrap().unwrap() == f.content);
        });
    }

    #[test]
    fn a_waiting_caller_can_be_cancelled_and_does_not_wait_for_ever() {
        let mut f = fixture(BLOCK);
        f.verifier.patience = Duration::from_millis(60);
        let gone = Cancel::new();
        gone.fire();
        let (mut cancelled, mut busy) = (None, None);
        let result = f.verifier.verify_with(f.blob(), &Cancel::new(), &mut |_| {
            cancelled = Some(f.verifier.verify(f.blob(), &gone));
            busy = Some(f.verify());
        });
        assert!(result.is_ok());
        assert!(matches!(cancelled, Some(Err(StoreError::Cancelled))));
        assert!(matches!(busy, Some(Err(StoreError::Busy(_)))));
    }

    /// Keeps I4 and I11: a client that has gone costs at most one more block.
    #[test]
    fn a_cancelled_pass_stops_at_the_next_block() {
        let f = fixture(4 * BLOCK);
        let cancel = Cancel::new();
        let mut seen = Vec::new();
        let result = f.verifier.verify_with(f.blob(), &cancel, &mut |offset| {
            seen.push(offset);
            if offset == BLOCK {
                cancel.fire();
            }
        });
        assert!(matches!(result, Err(StoreError::Cancelled)));
        assert_eq!(seen, [0, BLOCK]);
    }

    /// Keeps I11.
    #[test]
    fn what_is_remembered_stays_within_its_budget() {
        let mut f = fixture(3 * BLOCK);
        f.verifier.budget = 1000;
        for i in 0..20 {
            f.content[0] = i;
            fs::write(&f.path, &f.content).unwrap();
            f.verify().unwrap();
            let table = f.verifier.table();
            assert!(table.cost <= 1000, "{}", table.cost);
            assert_eq!(table.entries.len(), table.order.len());
            assert!(table.flights.is_empty());
        }
        let table = f.verifier.table();
        assert_eq!(table.entries.len(), 3);
        let cost: usize = table.entries.values().map(|e| e.tags.cost()).sum();
        assert_eq!(cost, table.cost);
    }

    #[test]
    fn the_length_of_blocks_bounds_the_tags() {
        const GIB: u64 = 1 << 30;
        for (len, block) in [
            (0, BLOCK),
            (GIB, BLOCK),
            (16 * GIB, BLOCK),
            (16 * GIB + 1, 2 * BLOCK),
            (256 * GIB, 16 * BLOCK),
            (u64::MAX, 16 * BLOCK),
        ] {
            assert_eq!(super::block_for(len), block, "{len}");
        }
    }

    #[test]
    fn a_pass_for_one_digest_stands_for_no_other() {
        let f = fixture(10);
        f.verify().unwrap();
        let forged = Blob {
            digest: Digest::of(b"another"),
            ..f.blob()
        };
        let result = f.verifier.verify(forged, &Cancel::new());
        assert!(matches!(result, Err(StoreError::DigestMismatch(_))));
    }

    #[test]
    fn verified_content_can_be_sent_from_any_thread() {
        fn sendable<T: Send + Sync + 'static>() {}
        sendable::<Verified<Blob>>();
        sendable::<Arc<Verifier>>();
        sendable::<super::Blocks>();
    }
}
