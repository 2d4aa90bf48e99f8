//! The local store: one file per object, named by its digest.
//!
//! Promises: what [`LocalStore::commit`] returns for is durable (I5) and stays under its name
//! unchanged; a crash at any instant leaves the object whole or absent (I12); a bad copy is replaced
//! by the next good one and kept in quarantine; only what nothing needs is taken out. Leaves to others: what
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
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags},
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

/// A step of the commit protocol without which a test must fail. Only tests can ask for it.
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
    /// Whether the last flush of content found no room.
    no_room: AtomicBool,
    recovery: Recovery,
    /// The step that a crash test left out; none in a release.
    omit: Option<Omit>,
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
            no_room: AtomicBool::new(false),
            recovery: Recovery::default(),
            #[cfg(feature = "_seams")]
            omit: options.omit,
            #[cfg(not(feature = "_seams"))]
            omit: None,
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

    /// Whether a flush failed since the store was opened, so that it takes nothing more. One flush of
    /// content that found no room does not count, two in a row do.
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

    fn omits(&self, step: Omit) -> bool {
        self.omit == Some(step)
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

    /// Flushes content that has no name yet. A full disk spoils this content alone, unless the flush
    /// before found no room either.
    fn flush_file(&self, file: &File) -> Result<(), StoreError> {
        if self.omits(Omit::FileFsync) {
            return Ok(());
        }
        let action = "flushing the content";
        match rustix::fs::fsync(file) {
            Ok(()) => {
                self.no_room.store(false, Ordering::Release);
                Ok(())
            }
            Err(errno @ (Errno::NOSPC | Errno::DQUOT))
                if !self.no_room.swap(true, Ordering::AcqRel) =>
            {
                Err(StoreError::from_io(action, errno.into()))
            }
            Err(errno) => Err(self.flush_failed(action, errno)),
        }
    }

    pub(crate) fn flush_dir(&self, dir: &Dir) -> Result<(), StoreError> {
        if self.omits(Omit::DirFsync) {
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
        let (file, found) = self.open_whatever(digest)?;
        if found != expected {
            return Err(StoreError::LengthMismatch {
                digest,
                expected,
                found,
            });
        }
        Ok(Blob {
            file,
            digest,
            len: expected,
        })
    }

    /// Opens an object of whatever length, and says which.
    pub(crate) fn open_whatever(&self, digest: Digest) -> Result<(File, ByteCount), StoreError> {
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
        let file = held.reopen().map_err(io)?;
        let len = ByteCount::new(u64::try_from(held.stat().st_size).unwrap_or_default());
        Ok((file, len))
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
                if !self.omits(Omit::Pin) {
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
pub(crate) fn hash_exactly(file: &File, len: ByteCount) -> io::Result<Option<Digest>> {
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
    fn standing(&self) -> Result<(), StoreError> {
        self.ensure_writable()
    }

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

    fn forget(
        &self,
        digest: Digest,
        referenced: &mut dyn FnMut() -> bool,
    ) -> Result<bool, StoreError> {
        self.ensure_writable()?;
        let shard = self.open_shard(&digest)?;
        let guard = self.hold_shard(&digest);
        if guard.is_pinned(&digest) || referenced() {
            return Ok(false);
        }
        match rustix::fs::unlinkat(&shard, digest.to_string(), AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(StoreError::from_io("removing content", errno.into())),
        }
        drop(guard);
        self.flush_dir(&shard)?;
        Ok(true)
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
        os::unix::fs::PermissionsExt as _,
        path::{Path, PathBuf},
    };

    use super::{LocalOptions, LocalStore};
    use crate::{
        model::{
            AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest, FileName, Timestamp,
        },
        store::{
            CommitOutcome, Objects, Store, StoreError, Stored,
            collect::Doom,
            conformance::{self, Rig, Spoil, StoreRig},
            layout::{DataDir, Filesystems},
        },
    };

    struct Fixture {
        store: LocalStore,
        path: PathBuf,
        data: DataDir,
        _dir: tempfile::TempDir,
    }

    /// In memory where that is possible: what flushes are for is seen by the crash tests.
    fn fixture() -> Fixture {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        fixture_in(dir.unwrap())
    }

    fn fixture_in(dir: tempfile::TempDir) -> Fixture {
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

    fn object(path: &Path, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        path.join("objects/sha256")
            .join(name.split_at(2).0)
            .join(&name)
    }

    impl Rig for Fixture {
        fn objects(&self) -> &dyn Objects {
            &self.store
        }

        fn place(&self, content: &[u8], _name: &FileName) -> AttachmentRef {
            put(&self.store, content).unwrap();
            reference(content)
        }

        fn spoil(&self, reference: &AttachmentRef, how: Spoil) -> bool {
            how.file(&object(&self.path, reference.id.digest()));
            true
        }
    }

    impl StoreRig for Fixture {
        fn store(&self) -> &dyn Store {
            &self.store
        }

        /// Counts only whole cases.
        fn set_aside(&self) -> usize {
            fs::read_dir(self.path.join("quarantine"))
                .unwrap()
                .map(|case| case.unwrap().path())
                .inspect(|case| {
                    fs::symlink_metadata(case.join("object")).unwrap();
                    let report = fs::read_to_string(case.join("report.json")).unwrap();
                    assert!(report.contains("\"fault\":"), "{report}");
                })
                .count()
        }
    }

    /// Keeps I4.
    #[test]
    fn it_holds_objects_as_every_backend_must() {
        conformance::objects(fixture);
    }

    /// Keeps I5 and I12.
    #[test]
    fn it_takes_content_as_every_store_must() {
        conformance::store(fixture);
    }

    /// Keeps I4: another name or a writable mode means that somebody else may have a hand in it.
    #[test]
    fn an_object_with_a_second_name_or_a_writable_mode_is_refused_and_healed() {
        let spoils: [fn(&Path); 2] = [
            |path| fs::hard_link(path, path.with_extension("second")).unwrap(),
            |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap(),
        ];
        for spoil in spoils {
            let f = fixture();
            put(&f.store, b"content").unwrap();
            spoil(&object(&f.path, Digest::of(b"content")));
            let refused = f.store.open(&reference(b"content"));
            assert!(matches!(refused, Err(StoreError::NotAnObject(_))));
            let stored = put(&f.store, b"content").unwrap();
            assert_eq!(stored.outcome(), CommitOutcome::Healed);
            f.store.open(&reference(b"content")).unwrap();
            assert_eq!(f.set_aside(), 1);
        }
    }

    #[test]
    fn objects_are_readable_by_us_alone_and_leave_nothing_in_staging() {
        let f = fixture_in(tempfile::tempdir().unwrap());
        put(&f.store, b"content").unwrap();
        let object = fs::metadata(object(&f.path, Digest::of(b"content"))).unwrap();
        assert_eq!(object.permissions().mode() & 0o7777, 0o400);
        assert_eq!(fs::read_dir(f.path.join("staging")).unwrap().count(), 0);
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
            f.store.open(&reference(b"just uploaded")),
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
