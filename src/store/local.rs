//! The local store: one file per object, named by its digest.
//!
//! Promises: what [`LocalStore::commit`] returns for is durable (I5) and stays under its name
//! unchanged; a crash at any instant leaves the object whole or absent (I12); a bad copy is replaced
//! by the next good one and kept in quarantine; nothing is deleted here. Leaves to others: what
//! refers to an object, and collecting what nothing refers to.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use cap_std::fs::Dir;
use rustix::{
    fs::{FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};
use serde::Serialize;

use super::{
    Blob, CommitOutcome, Objects, Store, StoreError, Stored,
    files::{self, Held},
    layout::{self, DataDir},
};
use crate::{
    model::{AttachmentRef, ByteCount, Clock, Digest, Digester, SystemClock},
    spool::{Spool, SpoolDir, SpoolWriter},
};

/// How much is read at once while an object is hashed.
const READ: usize = 256 * 1024;
/// How often a commit looks again when the object under its name keeps changing.
const ROUNDS: u32 = 8;

/// How a local store behaves.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// What must stay free on the filesystem; a spool that would use it is refused.
    pub free_reserve: ByteCount,
    /// Dates the reports in quarantine.
    pub clock: Arc<dyn Clock>,
    /// The step of the commit protocol to leave out, so that the crash tests can see that they
    /// notice.
    #[cfg(feature = "_seams")]
    pub omit: Option<Omit>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            free_reserve: crate::model::Limits::default().free_reserve,
            clock: Arc::new(SystemClock),
            #[cfg(feature = "_seams")]
            omit: None,
        }
    }
}

/// A step of the commit protocol without which a test must fail.
#[cfg(feature = "_seams")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// The content is not flushed before it gets its name.
    FileFsync,
    /// The name is not flushed before it is acknowledged.
    DirFsync,
    /// Nothing keeps collection from a new object until its reference is durable.
    Pin,
}

/// What opening a store found and put right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Shard directories that had gone and were made again. Their objects are missing.
    pub shards_remade: u32,
    /// Named files left in staging by a start that was cut short, now removed.
    pub staging_removed: u32,
}

/// Content kept in a data directory, by digest.
#[derive(Debug)]
pub struct LocalStore {
    objects: Dir,
    quarantine: Dir,
    trash: Dir,
    staging: Arc<SpoolDir>,
    staging_dir: Dir,
    shards: Shards,
    pins: Arc<Pins>,
    degraded: AtomicBool,
    recovery: Recovery,
    options: LocalOptions,
}

/// One lock per shard: publishing an object and pinning it is one step for whoever collects.
struct Shards(Box<[Mutex<()>]>);

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shards")
    }
}

/// Objects whose references are not durable yet, with how many hold each.
#[derive(Debug, Default)]
struct Pins(Mutex<HashMap<Digest, usize>>);

impl Pins {
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one object from collection until dropped.
#[derive(Debug)]
struct Pin {
    pins: Arc<Pins>,
    digest: Digest,
}

impl Pin {
    fn new(pins: &Arc<Pins>, digest: Digest) -> Self {
        *pins.lock().entry(digest).or_default() += 1;
        Self {
            pins: Arc::clone(pins),
            digest,
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.pins.lock();
        if let Some(count) = pins.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.digest);
            }
        }
    }
}

/// A held shard: nobody publishes into it or takes from it meanwhile.
#[derive(Debug)]
pub(crate) struct ShardGuard<'a> {
    store: &'a LocalStore,
    _guard: MutexGuard<'a, ()>,
}

impl ShardGuard<'_> {
    /// Whether an upload still holds the object, its reference not being durable yet.
    pub(crate) fn is_pinned(&self, digest: &Digest) -> bool {
        self.store.pins.lock().contains_key(digest)
    }
}

impl LocalStore {
    /// Opens the store in `data`, checks what the protocol needs of the filesystem, and puts right
    /// what a crash may have left. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] on a filesystem without unnamed files that can be linked;
    /// otherwise as the system says.
    pub fn open(data: &DataDir, options: LocalOptions) -> Result<Self, StoreError> {
        let dup = |dir: &Dir| {
            dir.try_clone()
                .map_err(|e| StoreError::from_io("opening the store", e))
        };
        let mut store = Self {
            objects: dup(data.objects())?,
            quarantine: dup(data.quarantine())?,
            trash: dup(data.trash())?,
            staging: data.staging(),
            staging_dir: dup(data.staging_dir())?,
            shards: Shards((0..=u8::MAX).map(|_| Mutex::new(())).collect()),
            pins: Arc::default(),
            degraded: AtomicBool::new(false),
            recovery: Recovery::default(),
            options,
        };
        store.recovery = Recovery {
            staging_removed: store.clear_staging()?,
            shards_remade: store.remake_shards()?,
        };
        store.try_linking()?;
        Ok(store)
    }

    /// What opening found and put right.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Whether a flush failed since the store was opened, so that it takes nothing more.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Acquire)
    }

    /// Holds the shard of `digest`.
    pub(crate) fn hold_shard(&self, digest: &Digest) -> ShardGuard<'_> {
        let mutex = &self.shards.0[usize::from(digest.as_bytes()[0])];
        ShardGuard {
            store: self,
            _guard: mutex.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The directory of all shards.
    pub(crate) fn objects(&self) -> &Dir {
        &self.objects
    }

    /// The directory of what was collected.
    pub(crate) fn trash(&self) -> &Dir {
        &self.trash
    }

    /// Staging holds names only while a store is being opened: all of them are left-overs, because
    /// we hold the lock.
    fn clear_staging(&self) -> Result<u32, StoreError> {
        let mut removed = 0;
        let names = self
            .staging_dir
            .entries()
            .map_err(|e| StoreError::from_io("listing staging", e))?;
        for entry in names {
            let entry = entry.map_err(|e| StoreError::from_io("listing staging", e))?;
            if entry.file_name().to_string_lossy().starts_with(PROBE) {
                self.staging_dir
                    .remove_file(entry.file_name())
                    .map_err(|e| StoreError::from_io("clearing staging", e))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn remake_shards(&self) -> Result<u32, StoreError> {
        let mut remade = 0;
        for first in 0..=u8::MAX {
            let name = layout::shard_name(first);
            match Held::at(&self.objects, &name) {
                Ok(held) if FileType::from_raw_mode(held.stat().st_mode) == FileType::Directory => {
                }
                Err(Errno::NOENT) => {
                    tracing::error!(shard = name, "a shard of the store has gone; made again");
                    layout::make_shard(&self.objects, first)
                        .map_err(|e| StoreError::from_layout("making a shard", e))?;
                    remade += 1;
                }
                Ok(_) => {
                    return Err(StoreError::Io {
                        action: "opening a shard",
                        source: io::ErrorKind::NotADirectory.into(),
                    });
                }
                Err(errno) => return Err(StoreError::from_io("opening a shard", errno.into())),
            }
        }
        Ok(remade)
    }

    /// Links an unnamed file once, so that a filesystem or sandbox that cannot is found now.
    fn try_linking(&self) -> Result<(), StoreError> {
        let unsupported = |errno: Errno| match errno {
            Errno::OPNOTSUPP | Errno::ISDIR | Errno::XDEV | Errno::PERM | Errno::NOENT => {
                StoreError::Unsupported(errno.into())
            }
            _ => StoreError::from_io("trying the filesystem", errno.into()),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.staging_dir, ".", flags, Mode::RUSR) {
            Ok(fd) => fd,
            // A full filesystem still serves what it holds.
            Err(Errno::NOSPC | Errno::DQUOT) => return Ok(()),
            Err(errno) => return Err(unsupported(errno)),
        };
        let name = format!("{PROBE}{}", random_hex()?);
        match files::link(&File::from(fd), &self.staging_dir, &name) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => return Ok(()),
            Err(errno) => return Err(unsupported(errno)),
        }
        rustix::fs::unlinkat(&self.staging_dir, &name, rustix::fs::AtFlags::empty())
            .map_err(|errno| StoreError::from_io("trying the filesystem", errno.into()))
    }

    fn omits(&self, step: Step) -> bool {
        #[cfg(feature = "_seams")]
        {
            let omitted = match self.options.omit {
                Some(Omit::FileFsync) => Some(Step::FlushFile),
                Some(Omit::DirFsync) => Some(Step::FlushDir),
                Some(Omit::Pin) => Some(Step::Pin),
                None => None,
            };
            omitted == Some(step)
        }
        #[cfg(not(feature = "_seams"))]
        {
            match step {
                Step::FlushFile | Step::FlushDir | Step::Pin => false,
            }
        }
    }

    pub(crate) fn ensure_writable(&self) -> Result<(), StoreError> {
        if self.is_degraded() {
            return Err(StoreError::Degraded);
        }
        Ok(())
    }

    /// Sorts a failed flush. The kernel may report it only once and drop the pages, so the file or
    /// directory is never flushed again, and nothing more is taken until the store is reopened.
    fn flush_failed(&self, action: &'static str, errno: Errno) -> StoreError {
        self.degraded.store(true, Ordering::Release);
        tracing::error!(%errno, action, "a flush failed; the store takes no more content");
        StoreError::from_io(action, errno.into())
    }

    fn flush_file(&self, file: &File) -> Result<(), StoreError> {
        if self.omits(Step::FlushFile) {
            return Ok(());
        }
        rustix::fs::fsync(file).map_err(|errno| self.flush_failed("flushing the content", errno))
    }

    pub(crate) fn flush_dir(&self, dir: &Dir) -> Result<(), StoreError> {
        if self.omits(Step::FlushDir) {
            return Ok(());
        }
        rustix::fs::fsync(dir).map_err(|errno| self.flush_failed("flushing a name", errno))
    }

    fn open_shard(&self, digest: &Digest) -> Result<Dir, StoreError> {
        layout::open_shard(&self.objects, digest.as_bytes()[0])
            .map_err(|e| StoreError::from_layout("opening a shard", e))
    }

    /// Opens and examines an object; its content stays unread.
    pub(crate) fn open_object(
        &self,
        digest: Digest,
        expected: ByteCount,
    ) -> Result<Blob, StoreError> {
        let io = |errno: Errno| StoreError::from_io("opening an object", errno.into());
        // Two descriptors, each step without following: no name of ours leads elsewhere.
        let shard = match rustix::fs::openat(
            &self.objects,
            layout::shard_name(digest.as_bytes()[0]),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(shard) => shard,
            Err(Errno::NOENT) => return Err(StoreError::NotFound(digest)),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(StoreError::NotAnObject(digest)),
            Err(errno) => return Err(io(errno)),
        };
        let held = match Held::at(&shard, &digest.to_string()) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Err(StoreError::NotFound(digest)),
            Err(errno) => return Err(io(errno)),
        };
        if !held.is_object() {
            return Err(StoreError::NotAnObject(digest));
        }
        let found = ByteCount::new(u64::try_from(held.stat().st_size).unwrap_or_default());
        if found != expected {
            return Err(StoreError::LengthMismatch {
                digest,
                expected,
                found,
            });
        }
        Ok(Blob {
            file: held.reopen().map_err(io)?,
            digest,
            len: expected,
        })
    }

    /// Says why the existing object is no good copy of `digest`; `None` when it is one.
    fn fault_of_existing(
        &self,
        digest: Digest,
        len: ByteCount,
    ) -> Result<Option<Fault>, StoreError> {
        let blob = match self.open_object(digest, len) {
            Ok(blob) => blob,
            Err(StoreError::NotFound(_)) => return Ok(Some(Fault::Missing)),
            Err(StoreError::NotAnObject(_)) => return Ok(Some(Fault::NotAnObject)),
            Err(StoreError::LengthMismatch { .. }) => return Ok(Some(Fault::Length)),
            Err(other) => return Err(other),
        };
        match hash_exactly(&blob.file, len) {
            Ok(found) if found == Some(digest) => Ok(None),
            Ok(_) => Ok(Some(Fault::Content)),
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::NOMEM | Errno::INTR)
                ) =>
            {
                Err(StoreError::from_io("reading an object", error))
            }
            // Unreadable is not known to be corrupt, but the copy in hand is known to be good.
            Err(_) => Ok(Some(Fault::Unreadable)),
        }
    }

    /// Moves what stands under the digest's name aside, with a report of why.
    fn set_aside(&self, shard: &Dir, digest: Digest, fault: Fault) -> Result<(), StoreError> {
        let io = |action| move |errno: Errno| StoreError::from_io(action, errno.into());
        let millis = self.options.clock.now().as_millis();
        let case = format!("{millis:013}-{}", random_hex()?);
        rustix::fs::mkdirat(&self.quarantine, &case, Mode::RWXU)
            .map_err(io("making a quarantine case"))?;
        let place = rustix::fs::openat(
            &self.quarantine,
            &case,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(io("opening a quarantine case"))?;
        let place = Dir::from_std_file(File::from(place));
        let report = Report {
            digest,
            fault,
            at: millis,
        };
        let mut text = serde_json::to_vec(&report).map_err(|error| StoreError::Io {
            action: "writing a quarantine report",
            source: error.into(),
        })?;
        text.push(b'\n');
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&place, ".", flags, Mode::RUSR)
            .map_err(io("making a quarantine report"))?;
        let file = File::from(file);
        file.write_all_at(&text, 0)
            .map_err(|e| StoreError::from_io("writing a quarantine report", e))?;
        self.flush_file(&file)?;
        files::link(&file, &place, "report.json").map_err(io("naming a quarantine report"))?;
        rustix::fs::renameat_with(
            shard,
            digest.to_string(),
            &place,
            "object",
            RenameFlags::NOREPLACE,
        )
        .map_err(io("moving an object to quarantine"))?;
        self.flush_dir(&place)?;
        self.flush_dir(&self.quarantine)?;
        tracing::error!(%digest, ?fault, case, "a bad object was moved to quarantine");
        Ok(())
    }

    fn publish(
        &self,
        spool: &Spool,
        shard: &Dir,
    ) -> Result<(CommitOutcome, Option<Pin>), StoreError> {
        let (digest, len) = (spool.digest(), spool.len());
        let name = digest.to_string();
        let mut outcome = CommitOutcome::Created;
        let mut pin = None;
        for _ in 0..ROUNDS {
            {
                // Name and pin are one step for whoever collects.
                let _shard = self.hold_shard(&digest);
                if !self.omits(Step::Pin) {
                    pin.get_or_insert_with(|| Pin::new(&self.pins, digest));
                }
                match files::link(spool.file(), shard, &name) {
                    Ok(()) => return Ok((outcome, pin)),
                    Err(Errno::EXIST) => {}
                    Err(errno) => {
                        return Err(StoreError::from_io("naming an object", errno.into()));
                    }
                }
            }
            // The pin keeps the existing copy while it is read without the lock.
            if self.fault_of_existing(digest, len)?.is_none() {
                return Ok((CommitOutcome::Deduplicated, pin));
            }
            // Looked at again under the lock: another upload may have healed it by now.
            let _shard = self.hold_shard(&digest);
            match self.fault_of_existing(digest, len)? {
                None => return Ok((CommitOutcome::Deduplicated, pin)),
                Some(Fault::Missing) => {}
                Some(fault) => {
                    self.set_aside(shard, digest, fault)?;
                    outcome = CommitOutcome::Healed;
                }
            }
        }
        Err(StoreError::Changed(digest))
    }
}

/// The start of the name of a file that [`LocalStore::open`] makes and removes.
const PROBE: &str = "probe-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FlushFile,
    FlushDir,
    Pin,
}

/// What is wrong with the copy that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Fault {
    Missing,
    NotAnObject,
    Length,
    Content,
    Unreadable,
}

/// `report.json` beside an object in quarantine.
#[derive(Debug, Serialize)]
struct Report {
    digest: Digest,
    fault: Fault,
    /// Milliseconds since the epoch.
    at: i64,
}

fn random_hex() -> Result<String, StoreError> {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).map_err(|error| StoreError::Io {
        action: "drawing a name",
        source: io::Error::other(error),
    })?;
    Ok(data_encoding::HEXLOWER.encode(&bits))
}

/// Hashes `file`, which must hold exactly `len` bytes; `None` when it holds fewer or more.
fn hash_exactly(file: &File, len: ByteCount) -> io::Result<Option<Digest>> {
    let mut digester = Digester::default();
    let mut buffer = vec![0; READ];
    let mut at = 0;
    loop {
        let read = match file.read_at(&mut buffer, at) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if read == 0 {
            break;
        }
        at = at.saturating_add(ByteCount::from(read).get());
        if at > len.get() {
            return Ok(None);
        }
        digester.update(&buffer[..read]);
    }
    Ok((at == len.get()).then(|| digester.finish()))
}

impl Objects for LocalStore {
    fn open(&self, reference: &AttachmentRef) -> Result<Blob, StoreError> {
        self.open_object(reference.id.digest(), reference.bytes)
    }
}

impl Store for LocalStore {
    fn spool(
        &self,
        declared: Option<ByteCount>,
        limit: ByteCount,
    ) -> Result<SpoolWriter, StoreError> {
        self.ensure_writable()?;
        Ok(self
            .staging
            .create_within(declared, limit, self.options.free_reserve)?)
    }

    /// Flushes the content, names it without replacing, flushes the name.
    ///
    /// # Source
    /// `fsync(2)`, `linkat(2)`. Keeps I5 and I12. The name is flushed also when the object was there:
    /// whoever named it may not have flushed yet.
    fn commit(&self, spool: Spool) -> Result<Stored, StoreError> {
        self.ensure_writable()?;
        let (digest, len) = (spool.digest(), spool.len());
        self.flush_file(spool.file())?;
        // A write that claimed more than it did shows here, whatever was hashed on the way.
        let stat = rustix::fs::fstat(spool.file())
            .map_err(|errno| StoreError::from_io("examining the content", errno.into()))?;
        if u64::try_from(stat.st_size) != Ok(len.get()) {
            return Err(StoreError::LengthMismatch {
                digest,
                expected: len,
                found: ByteCount::new(u64::try_from(stat.st_size).unwrap_or_default()),
            });
        }
        let shard = self.open_shard(&digest)?;
        let (outcome, pin) = self.publish(&spool, &shard)?;
        self.flush_dir(&shard)?;
        Ok(Stored::new(
            digest,
            len,
            outcome,
            pin.map(|pin| Box::new(pin) as Box<dyn fmt::Debug + Send + Sync>),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "tests build their own directories"
    )]

    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::{Path, PathBuf},
    };

    use super::{LocalOptions, LocalStore};
    use crate::{
        model::{
            AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Cancel, Digest, Limits,
            Timestamp,
        },
        store::{
            CommitOutcome, Objects as _, Store as _, StoreError, Stored,
            collect::Doom,
            layout::{DataDir, Filesystems},
            verified::Verifier,
        },
    };

    struct Fixture {
        store: LocalStore,
        path: PathBuf,
        data: DataDir,
        _dir: tempfile::TempDir,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let data = DataDir::init_on(&path, Filesystems::Any).unwrap();
        let options = LocalOptions {
            free_reserve: ByteCount::ZERO,
            ..LocalOptions::default()
        };
        Fixture {
            store: LocalStore::open(&data, options).unwrap(),
            path,
            data,
            _dir: dir,
        }
    }

    fn put(store: &LocalStore, content: &[u8]) -> Result<Stored, StoreError> {
        let mut spool = store.spool(None, ByteCount::mib(16))?;
        spool.write(content)?;
        store.commit(spool.finish())
    }

    fn reference(content: &[u8]) -> AttachmentRef {
        AttachmentRef {
            id: AttachmentId::new(Digest::of(content)),
            name: None,
            bytes: content.len().into(),
            kind: AttachmentKind::File,
        }
    }

    fn get(store: &LocalStore, content: &[u8]) -> Result<Vec<u8>, StoreError> {
        let blob = store.open(&reference(content))?;
        let verifier = Verifier::new(&Limits::default())?;
        let mut blocks = verifier
            .verify(blob, &Cancel::new())?
            .blocks(0..content.len() as u64);
        let mut all = Vec::new();
        while let Some(block) = blocks.next()? {
            all.extend_from_slice(&block);
        }
        Ok(all)
    }

    fn object(path: &Path, content: &[u8]) -> PathBuf {
        let name = Digest::of(content).to_string();
        path.join("objects/sha256")
            .join(name.split_at(2).0)
            .join(&name)
    }

    fn cases(path: &Path) -> Vec<PathBuf> {
        fs::read_dir(path.join("quarantine"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }

    #[test]
    fn what_was_committed_is_read_back() {
        let f = fixture();
        for content in [&b""[..], b"x", &vec![7; 300_000]] {
            let stored = put(&f.store, content).unwrap();
            assert_eq!(stored.outcome(), CommitOutcome::Created);
            assert_eq!(get(&f.store, content).unwrap(), content);
            let mode = fs::metadata(object(&f.path, content))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, 0o400);
            let again = put(&f.store, content).unwrap();
            assert_eq!(again.outcome(), CommitOutcome::Deduplicated);
        }
        assert_eq!(fs::read_dir(f.path.join("staging")).unwrap().count(), 0);
    }

    type Damage = fn(&Path);

    /// Every way to spoil an object that leaves something under its name.
    const DAMAGE: [(&str, Damage); 9] = [
        ("a link", |p| {
            let away = p.with_extension("away");
            fs::rename(p, &away).unwrap();
            symlink(&away, p).unwrap();
        }),
        ("a dangling link", |p| {
            fs::remove_file(p).unwrap();
            symlink("nowhere", p).unwrap();
        }),
        ("a FIFO", |p| {
            fs::remove_file(p).unwrap();
            let mode = rustix::fs::Mode::RUSR;
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, p, fifo, mode, 0).unwrap();
        }),
        ("a directory", |p| {
            fs::remove_file(p).unwrap();
            fs::create_dir(p).unwrap();
            fs::write(p.join("in it"), b"").unwrap();
        }),
        ("truncated", |p| {
            writable(p).set_len(3).unwrap();
            set_mode(p, 0o400);
        }),
        ("grown", |p| {
            let file = writable(p);
            let len = file.metadata().unwrap().len();
            std::os::unix::fs::FileExt::write_all_at(&file, b"!", len).unwrap();
            set_mode(p, 0o400);
        }),
        ("one bit flipped", |p| {
            flip(p, 2);
        }),
        ("linked elsewhere", |p| {
            fs::hard_link(p, p.with_extension("second")).unwrap();
        }),
        ("writable", |p| set_mode(p, 0o600)),
    ];

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn writable(path: &Path) -> fs::File {
        set_mode(path, 0o600);
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap()
    }

    fn flip(path: &Path, at: u64) {
        use std::os::unix::fs::FileExt as _;
        let file = writable(path);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        set_mode(path, 0o400);
    }

    /// Keeps I4.
    #[test]
    fn a_spoilt_object_gives_no_byte() {
        for (how, spoil) in DAMAGE {
            let f = fixture();
            let content = b"the content of an object";
            put(&f.store, content).unwrap();
            spoil(&object(&f.path, content));
            match get(&f.store, content) {
                Err(
                    StoreError::NotAnObject(_)
                    | StoreError::LengthMismatch { .. }
                    | StoreError::DigestMismatch(_),
                ) => {}
                other => panic!("{how}: {other:?}"),
            }
        }
    }

    /// Keeps I5 and I12: what no anchor does (`spec/store.md` 0.1).
    #[test]
    fn the_same_bytes_heal_a_spoilt_object_and_the_old_one_is_kept() {
        for (how, spoil) in DAMAGE {
            let f = fixture();
            let content = b"the content of an object";
            put(&f.store, content).unwrap();
            spoil(&object(&f.path, content));
            let stored = put(&f.store, content).unwrap();
            assert_eq!(stored.outcome(), CommitOutcome::Healed, "{how}");
            assert_eq!(get(&f.store, content).unwrap(), content, "{how}");
            let cases = cases(&f.path);
            assert_eq!(cases.len(), 1, "{how}");
            assert!(
                fs::symlink_metadata(cases[0].join("object")).is_ok(),
                "{how}"
            );
            let report = fs::read_to_string(cases[0].join("report.json")).unwrap();
            assert!(
                report.contains(&Digest::of(content).to_string()),
                "{how}: {report}"
            );
        }
    }

    #[test]
    fn a_missing_object_is_made_again() {
        let f = fixture();
        put(&f.store, b"gone").unwrap();
        fs::remove_file(object(&f.path, b"gone")).unwrap();
        assert!(matches!(
            get(&f.store, b"gone"),
            Err(StoreError::NotFound(_))
        ));
        let stored = put(&f.store, b"gone").unwrap();
        assert_eq!(stored.outcome(), CommitOutcome::Created);
        assert_eq!(get(&f.store, b"gone").unwrap(), b"gone");
    }

    /// Keeps I4: the length in the reference counts, not the one on disk.
    #[test]
    fn a_reference_of_another_length_gives_no_byte() {
        let f = fixture();
        put(&f.store, b"four").unwrap();
        for bytes in [0, 3, 5, u64::MAX] {
            let wrong = AttachmentRef {
                bytes: ByteCount::new(bytes),
                ..reference(b"four")
            };
            assert!(
                matches!(f.store.open(&wrong), Err(StoreError::LengthMismatch { .. })),
                "{bytes}"
            );
        }
    }

    #[test]
    fn the_same_bytes_from_many_at_once_are_one_object() {
        let f = fixture();
        let content = vec![9; 100_000];
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| put(&f.store, &content).unwrap().outcome()))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let created = outcomes
            .iter()
            .filter(|o| **o == CommitOutcome::Created)
            .count();
        assert_eq!(created, 1, "{outcomes:?}");
        assert!(
            !outcomes.contains(&CommitOutcome::Healed),
            "a good copy is never set aside"
        );
        assert_eq!(get(&f.store, &content).unwrap(), content);
    }

    #[test]
    fn the_same_bytes_from_many_at_once_heal_a_spoilt_object_once() {
        let f = fixture();
        let content = vec![9; 100_000];
        put(&f.store, &content).unwrap();
        flip(&object(&f.path, &content), 50_000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| put(&f.store, &content).unwrap());
            }
        });
        assert_eq!(cases(&f.path).len(), 1);
        assert_eq!(get(&f.store, &content).unwrap(), content);
    }

    /// Keeps I12: collection between publishing and the durable reference.
    #[test]
    fn collection_leaves_an_object_whose_reference_is_not_durable_yet() {
        let f = fixture();
        let stored = put(&f.store, b"just uploaded").unwrap();
        let digest = stored.digest();
        let mut sweep = f.store.sweep(Timestamp::from_millis(1)).unwrap();
        assert_eq!(sweep.doom(digest, || false).unwrap(), Doom::Pinned);
        // A second upload of the same bytes ends first; the first still holds the object.
        drop(put(&f.store, b"just uploaded").unwrap());
        assert_eq!(sweep.doom(digest, || false).unwrap(), Doom::Pinned);
        drop(stored);
        assert_eq!(sweep.doom(digest, || true).unwrap(), Doom::Referenced);
        assert_eq!(sweep.doom(digest, || false).unwrap(), Doom::Taken);
        assert_eq!(sweep.doom(digest, || false).unwrap(), Doom::Absent);
        sweep.finish().unwrap();
        assert!(matches!(
            get(&f.store, b"just uploaded"),
            Err(StoreError::NotFound(_))
        ));
    }

    #[test]
    fn the_reserve_of_free_space_is_not_given_to_uploads() {
        let f = fixture();
        let options = LocalOptions {
            free_reserve: ByteCount::new(u64::MAX),
            ..LocalOptions::default()
        };
        let store = LocalStore::open(&f.data, options).unwrap();
        for declared in [None, Some(ByteCount::new(1))] {
            let refused = store.spool(declared, ByteCount::mib(1));
            assert!(
                matches!(refused, Err(StoreError::Full(_))),
                "{declared:?}: {refused:?}"
            );
        }
    }

    #[test]
    fn opening_removes_its_own_leftovers_and_makes_lost_shards_again() {
        let f = fixture();
        fs::write(f.path.join("staging/probe-0011"), b"").unwrap();
        fs::write(f.path.join("staging/theirs"), b"").unwrap();
        fs::remove_dir(f.path.join("objects/sha256/ab")).unwrap();
        let store = LocalStore::open(&f.data, LocalOptions::default()).unwrap();
        assert_eq!(store.recovery().staging_removed, 1);
        assert_eq!(store.recovery().shards_remade, 1);
        assert!(f.path.join("staging/theirs").is_file());
    }
}
