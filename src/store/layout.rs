//! The data directory: its parts, its format file, its lock.
//!
//! Promises: everything below is reached from one open directory that belongs to us alone; one
//! process holds it at a time; objects, staging, trash and quarantine are on one filesystem, which
//! keeps what it was told to keep. Leaves to others: what the parts contain.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::fs::Dir;
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::spool::SpoolDir;

/// The number in the format file. A program reads the formats it knows and refuses all others.
const FORMAT: u32 = 1;
const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "LOCK";
/// Enough for any format file or lock hint of ours; the rest is not ours.
const SMALL_FILE: u64 = 4096;

/// Directories below the data directory, in the order they are made.
const PARTS: [&str; 6] = [
    "objects",
    "objects/sha256",
    "staging",
    "quarantine",
    "trash",
    "journal",
];
/// Those that must share a filesystem, because files are linked and renamed between them.
const LINKED_PARTS: [&str; 4] = ["objects/sha256", "staging", "quarantine", "trash"];

/// Which filesystems may hold a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filesystems {
    /// Local ones that keep what was flushed: no tmpfs, network or FUSE filesystem.
    #[default]
    Durable,
    /// Any that has the needed operations. What is acknowledged may be lost with the machine.
    Any,
}

/// Why a data directory could not be made or opened.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// There is no data directory, or nobody initialised it.
    #[error("not an initialised data directory")]
    NotInitialised,
    /// The directory is a data directory already.
    #[error("already an initialised data directory")]
    AlreadyInitialised,
    /// The directory belongs to another user.
    #[error("the data directory belongs to uid {owner}, not to uid {us}")]
    Owner {
        /// Whose it is.
        owner: u32,
        /// Whom we run as.
        us: u32,
    },
    /// Others have rights on the directory.
    #[error("the data directory has mode {mode:04o}; only 0700 is safe")]
    Mode {
        /// Its permission bits.
        mode: u32,
    },
    /// The format file is of another program or of a format this one does not know.
    #[error("the data directory has an unknown format")]
    Format,
    /// Another process holds the directory.
    #[error("the data directory is in use ({hint})")]
    Locked {
        /// What the holder wrote about itself; a hint for people, not a fact.
        hint: String,
    },
    /// The filesystem does not keep what it was told to keep, or is on another machine.
    #[error("the data directory is on {kind}, which may lose acknowledged data")]
    Volatile {
        /// The kind of filesystem.
        kind: &'static str,
    },
    /// A part lies on another filesystem or mount than the rest.
    #[error("{part} is on another filesystem than the data directory")]
    OtherFilesystem {
        /// The part.
        part: &'static str,
    },
    /// Something else than a directory stands where a part should be, or the part is gone.
    #[error("{part} is missing or no directory")]
    Damaged {
        /// The part.
        part: String,
    },
    /// No room for the directories.
    #[error("no space left on the data filesystem")]
    Full(#[source] io::Error),
    /// Anything else the system said.
    #[error("{action} failed")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

fn failed(action: &'static str) -> impl FnOnce(Errno) -> LayoutError {
    move |errno| match errno {
        Errno::NOSPC | Errno::DQUOT => LayoutError::Full(errno.into()),
        _ => LayoutError::Io {
            action,
            source: errno.into(),
        },
    }
}

fn failed_io(action: &'static str) -> impl FnOnce(io::Error) -> LayoutError {
    move |source| match Errno::from_io_error(&source) {
        Some(errno) => failed(action)(errno),
        None => LayoutError::Io { action, source },
    }
}

/// What the format file says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatFile {
    format: u32,
    store: String,
    hash: String,
}

/// An open data directory, held by this process alone until the value is dropped.
pub struct DataDir {
    dir: Dir,
    objects: Dir,
    staging: Arc<SpoolDir>,
    staging_dir: Dir,
    quarantine: Dir,
    trash: Dir,
    journal: Dir,
    store_id: String,
    _lock: Lock,
}

/// A data directory that another process of ours may hold; see [`DataDir::beside`].
#[derive(Debug)]
pub struct BesideDir {
    /// The data directory itself.
    pub dir: Dir,
    /// Where spools are made, none of which has a name.
    pub staging: Arc<SpoolDir>,
    /// The same by its name.
    pub staging_path: PathBuf,
}

/// The held lock. The kernel lets go when the process ends, however it ends.
struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child between fork and exec still has the descriptor, so closing ours would not do.
        if let Err(errno) = rustix::fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::debug!(%errno, "the lock is let go by closing it");
        }
    }
}

impl fmt::Debug for DataDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataDir")
            .field("store_id", &self.store_id)
            .finish_non_exhaustive()
    }
}

impl DataDir {
    /// Makes a data directory at `path`, with the directory itself when it is not there (its parent
    /// must be), and opens it. An initialisation that was cut short is taken up where it stopped.
    ///
    /// # Errors
    /// [`LayoutError::AlreadyInitialised`]; otherwise as [`DataDir::open`].
    pub fn init(path: &Path) -> Result<Self, LayoutError> {
        Self::init_on(path, Filesystems::Durable)
    }

    /// [`DataDir::init`] on the filesystems named by `allowed`.
    ///
    /// # Errors
    /// As [`DataDir::init`].
    pub fn init_on(path: &Path, allowed: Filesystems) -> Result<Self, LayoutError> {
        make_top(path)?;
        let dir = open_by_name(path)?;
        examine_top(&dir, allowed)?;
        let lock = take_lock(&dir)?;
        if read_format(&dir)?.is_some() {
            return Err(LayoutError::AlreadyInitialised);
        }
        for part in PARTS {
            make_dir(&dir, part)?;
        }
        let objects = open_part(&dir, "objects/sha256")?;
        for shard in 0..=u8::MAX {
            make_dir(&objects, &shard_name(shard))?;
        }
        for part in PARTS {
            flush_dir(&open_part(&dir, part)?)?;
        }
        // Last of all, so that a directory with a format file is complete.
        write_format(&dir)?;
        Self::assemble(dir, lock)
    }

    /// Opens the data directory at `path` and takes its lock. `path` may lead through links: it is
    /// resolved here, once.
    ///
    /// # Errors
    /// [`LayoutError::Locked`] at once when another process holds it; [`LayoutError::NotInitialised`],
    /// [`LayoutError::Owner`], [`LayoutError::Mode`], [`LayoutError::Volatile`],
    /// [`LayoutError::Format`], [`LayoutError::OtherFilesystem`] and [`LayoutError::Damaged`] as found.
    pub fn open(path: &Path) -> Result<Self, LayoutError> {
        Self::open_on(path, Filesystems::Durable)
    }

    /// [`DataDir::open`] on the filesystems named by `allowed`.
    ///
    /// # Errors
    /// As [`DataDir::open`].
    pub fn open_on(path: &Path, allowed: Filesystems) -> Result<Self, LayoutError> {
        let dir = open_by_name(path)?;
        examine_top(&dir, allowed)?;
        // The format before the lock: a directory that is not ours gets no file from us.
        if read_format(&dir)?.is_none() {
            return Err(LayoutError::NotInitialised);
        }
        let lock = take_lock(&dir)?;
        Self::assemble(dir, lock)
    }

    /// The parts of the data directory at `path` that may be used beside whoever holds it, without its
    /// lock: nothing in them gets a name that the holder does not expect.
    ///
    /// # Errors
    /// As [`DataDir::open`], except that no lock is taken.
    pub fn beside(path: &Path) -> Result<BesideDir, LayoutError> {
        let dir = open_by_name(path)?;
        examine_top(&dir, Filesystems::Durable)?;
        if read_format(&dir)?.is_none() {
            return Err(LayoutError::NotInitialised);
        }
        let staging = open_part(&dir, "staging")?;
        Ok(BesideDir {
            staging: Arc::new(SpoolDir::new(staging.into_std_file().into())),
            staging_path: path.join("staging"),
            dir,
        })
    }

    fn assemble(dir: Dir, lock: Lock) -> Result<Self, LayoutError> {
        let format = read_format(&dir)?.ok_or(LayoutError::NotInitialised)?;
        let home = place(&dir)?;
        for part in LINKED_PARTS {
            if place(&open_part(&dir, part)?)? != home {
                return Err(LayoutError::OtherFilesystem { part });
            }
        }
        let staging_dir = open_part(&dir, "staging")?;
        let spools = staging_dir
            .try_clone()
            .map_err(failed_io("opening staging"))?;
        Ok(Self {
            objects: open_part(&dir, "objects/sha256")?,
            staging: Arc::new(SpoolDir::new(spools.into_std_file().into())),
            staging_dir,
            quarantine: open_part(&dir, "quarantine")?,
            trash: open_part(&dir, "trash")?,
            journal: open_part(&dir, "journal")?,
            store_id: format.store,
            dir,
            _lock: lock,
        })
    }

    /// The data directory itself.
    #[must_use]
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// `objects/sha256`: 256 shards `00` to `ff`, objects below them by their digest.
    #[must_use]
    pub fn objects(&self) -> &Dir {
        &self.objects
    }

    /// Where spools are made; on the filesystem of the objects.
    #[must_use]
    pub fn staging(&self) -> Arc<SpoolDir> {
        Arc::clone(&self.staging)
    }

    /// The directory behind [`DataDir::staging`].
    pub(crate) fn staging_dir(&self) -> &Dir {
        &self.staging_dir
    }

    /// Objects that failed verification, each with a report. Nothing here is ever served.
    #[must_use]
    pub fn quarantine(&self) -> &Dir {
        &self.quarantine
    }

    /// Collected objects that can still be restored.
    #[must_use]
    pub fn trash(&self) -> &Dir {
        &self.trash
    }

    /// The control database and its heads log. May be a mount of its own.
    #[must_use]
    pub fn journal(&self) -> &Dir {
        &self.journal
    }

    /// The random name this store got when it was made: 32 hexadecimal digits.
    #[must_use]
    pub fn store_id(&self) -> &str {
        &self.store_id
    }
}

/// The directory name of the shard whose objects' digests start with `first`.
pub(crate) fn shard_name(first: u8) -> String {
    format!("{first:02x}")
}

/// Flushes a directory's entries to media.
pub(crate) fn flush_dir(dir: &Dir) -> Result<(), LayoutError> {
    rustix::fs::fsync(dir).map_err(failed("flushing a directory"))
}

fn make_top(path: &Path) -> Result<(), LayoutError> {
    match rustix::fs::mkdirat(rustix::fs::CWD, path, Mode::RWXU) {
        // The name must survive a power cut as the content will.
        Ok(()) => {
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            flush_dir(&open_by_name(parent)?)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed("making the data directory")(errno)),
    }
}

fn open_by_name(path: &Path) -> Result<Dir, LayoutError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty()) {
        Ok(fd) => Ok(Dir::from_std_file(File::from(fd))),
        Err(Errno::NOENT) => Err(LayoutError::NotInitialised),
        Err(errno) => Err(failed("opening the data directory")(errno)),
    }
}

/// Opens a part, following no link on the way.
fn open_part(dir: &Dir, part: &str) -> Result<Dir, LayoutError> {
    let mut at: Option<Dir> = None;
    for name in part.split('/') {
        let parent = at.as_ref().unwrap_or(dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(LayoutError::Damaged { part: part.into() });
            }
            Err(errno) => return Err(failed("opening a directory")(errno)),
        };
        at = Some(Dir::from_std_file(File::from(fd)));
    }
    at.ok_or_else(|| LayoutError::Damaged { part: part.into() })
}

/// Opens the shard `first` of `objects`, following no link.
pub(crate) fn open_shard(objects: &Dir, first: u8) -> Result<Dir, LayoutError> {
    open_part(objects, &shard_name(first))
}

/// Makes the shard `first` again and flushes its name; harmless when it is there.
pub(crate) fn make_shard(objects: &Dir, first: u8) -> Result<(), LayoutError> {
    make_dir(objects, &shard_name(first))?;
    flush_dir(objects)
}

fn make_dir(dir: &Dir, name: &str) -> Result<(), LayoutError> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed("making a directory")(errno)),
    }
}

fn examine_top(dir: &Dir, allowed: Filesystems) -> Result<(), LayoutError> {
    let stat = rustix::fs::fstat(dir).map_err(failed("examining the data directory"))?;
    let us = rustix::process::geteuid().as_raw();
    if stat.st_uid != us {
        return Err(LayoutError::Owner {
            owner: stat.st_uid,
            us,
        });
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o077 != 0 {
        return Err(LayoutError::Mode { mode });
    }
    if allowed == Filesystems::Durable
        && let Some(kind) = volatile_kind(dir)?
    {
        return Err(LayoutError::Volatile { kind });
    }
    Ok(())
}

/// The kind of filesystem under `dir` when it is one that may lose what was flushed, or whose other
/// end is somebody else.
///
/// Source: `statfs(2)`, `linux/magic.h`.
fn volatile_kind(dir: &Dir) -> Result<Option<&'static str>, LayoutError> {
    let statfs = rustix::fs::fstatfs(dir).map_err(failed("examining the filesystem"))?;
    // Some targets have a signed 32-bit field here; only the low half carries the number.
    #[expect(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "the magic is 32 bits wide in a field whose type varies"
    )]
    let magic = statfs.f_type as u32;
    Ok(match magic {
        0x0102_1994 => Some("tmpfs"),
        0x8584_58f6 => Some("ramfs"),
        0x9584_58f6 => Some("hugetlbfs"),
        0x0000_6969 => Some("NFS"),
        0x0000_517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x6573_5546 => Some("FUSE"),
        0x0000_4d44 | 0x2011_bab0 => Some("FAT"),
        _ => None,
    })
}

/// Device and mount of a directory: files can be linked and renamed only within the same pair.
fn place(dir: &Dir) -> Result<(u32, u32, u64), LayoutError> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let facts = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, wanted)
        .map_err(failed("examining a directory"))?;
    let mount = if facts.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        0 // Before Linux 5.8 the mount is not told; the device alone decides.
    } else {
        facts.stx_mnt_id
    };
    Ok((facts.stx_dev_major, facts.stx_dev_minor, mount))
}

fn take_lock(dir: &Dir) -> Result<Lock, LayoutError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, LOCK_FILE, flags, Mode::RUSR | Mode::WUSR)
        .map_err(failed("opening the lock"))?;
    let mut file = File::from(fd);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let hint = small_text(&file).unwrap_or_default();
            let hint = hint.trim();
            let plain = hint.chars().all(|c| c.is_ascii_graphic() || c == ' ');
            return Err(LayoutError::Locked {
                hint: if hint.is_empty() || !plain {
                    "by a process that left no hint".into()
                } else {
                    format!("by {hint}")
                },
            });
        }
        Err(errno) => return Err(failed("taking the lock")(errno)),
    }
    // Only a hint for people, so a full disk does not keep the store from opening.
    let hint = format!("process {}\n", std::process::id());
    if let Err(error) = file
        .set_len(0)
        .and_then(|()| file.write_all(hint.as_bytes()))
    {
        tracing::debug!(%error, "the lock carries no hint");
    }
    Ok(Lock(file.into()))
}

fn small_text(file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.take(SMALL_FILE).read_to_string(&mut text)?;
    Ok(text)
}

fn read_format(dir: &Dir) -> Result<Option<FormatFile>, LayoutError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, FORMAT_FILE, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("opening the format file")(errno)),
    };
    let text = small_text(&file).map_err(failed_io("reading the format file"))?;
    match serde_json::from_str::<FormatFile>(&text) {
        Ok(format) if format.format == FORMAT && format.hash == "sha256" => Ok(Some(format)),
        Ok(_) | Err(_) => Err(LayoutError::Format),
    }
}

fn write_format(dir: &Dir) -> Result<(), LayoutError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| LayoutError::Io {
        action: "drawing the store's name",
        source: io::Error::other(error),
    })?;
    let content = FormatFile {
        format: FORMAT,
        store: data_encoding::HEXLOWER.encode(&id),
        hash: "sha256".into(),
    };
    let mut text = serde_json::to_vec(&content).map_err(|error| LayoutError::Io {
        action: "writing the format file",
        source: error.into(),
    })?;
    text.push(b'\n');
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, ".", flags, Mode::RUSR)
        .map_err(failed("making the format file"))?;
    let mut file = File::from(fd);
    file.write_all(&text)
        .map_err(failed_io("writing the format file"))?;
    rustix::fs::fsync(&file).map_err(failed("flushing the format file"))?;
    super::files::link(&file, dir, FORMAT_FILE).map_err(failed("naming the format file"))?;
    flush_dir(dir)
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "tests build their own directories"
    )]

    use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::{DataDir, Filesystems, LayoutError};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        (dir, path)
    }

    fn made(path: &std::path::Path) {
        drop(DataDir::init_on(path, Filesystems::Any).unwrap());
    }

    #[test]
    fn a_data_directory_is_made_once_and_opened_again() {
        let (_dir, path) = place();
        let id = DataDir::init_on(&path, Filesystems::Any)
            .unwrap()
            .store_id()
            .to_owned();
        let again = DataDir::init_on(&path, Filesystems::Any);
        assert!(matches!(again, Err(LayoutError::AlreadyInitialised)));
        let data = DataDir::open_on(&path, Filesystems::Any).unwrap();
        assert_eq!(data.store_id(), id);
        assert_eq!(data.objects().entries().unwrap().count(), 256);
    }

    #[test]
    fn a_second_holder_is_refused_at_once_and_told_who_holds_it() {
        let (_dir, path) = place();
        made(&path);
        let held = DataDir::open_on(&path, Filesystems::Any).unwrap();
        let us = format!("process {}", std::process::id());
        match DataDir::open_on(&path, Filesystems::Any) {
            Err(LayoutError::Locked { hint }) => assert!(hint.contains(&us), "{hint}"),
            other => panic!("{other:?}"),
        }
        drop(held);
        DataDir::open_on(&path, Filesystems::Any).unwrap();
    }

    #[test]
    fn what_is_not_a_data_directory_is_refused_and_left_alone() {
        let (dir, path) = place();
        assert!(matches!(
            DataDir::open_on(&path, Filesystems::Any),
            Err(LayoutError::NotInitialised)
        ));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(
            DataDir::open_on(&path, Filesystems::Any),
            Err(LayoutError::NotInitialised)
        ));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        drop(dir);
    }

    #[test]
    fn a_directory_others_may_enter_is_refused() {
        let (_dir, path) = place();
        made(&path);
        for mode in [0o701, 0o710, 0o755, 0o770, 0o777, 0o1777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match DataDir::open_on(&path, Filesystems::Any) {
                Err(LayoutError::Mode { mode: found }) => assert_eq!(found, mode),
                other => panic!("{mode:o}: {other:?}"),
            }
        }
    }

    #[test]
    fn another_format_is_refused() {
        let (_dir, path) = place();
        made(&path);
        let file = path.join("FORMAT");
        for text in [
            "",
            "1",
            "{\"format\":2,\"store\":\"\",\"hash\":\"sha256\"}",
            "{\"format\":1,\"store\":\"\",\"hash\":\"md5\"}",
        ] {
            fs::remove_file(&file).unwrap();
            fs::write(&file, text).unwrap();
            assert!(
                matches!(
                    DataDir::open_on(&path, Filesystems::Any),
                    Err(LayoutError::Format)
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn a_part_replaced_by_a_link_is_damage() {
        let (dir, path) = place();
        made(&path);
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(path.join("quarantine"), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path.join("quarantine")).unwrap();
        match DataDir::open_on(&path, Filesystems::Any) {
            Err(LayoutError::Damaged { part }) => assert_eq!(part, "quarantine"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_initialisation_cut_short_is_taken_up_again() {
        let (_dir, path) = place();
        made(&path);
        fs::remove_file(path.join("FORMAT")).unwrap();
        fs::remove_dir(path.join("objects/sha256/7f")).unwrap();
        assert!(matches!(
            DataDir::open_on(&path, Filesystems::Any),
            Err(LayoutError::NotInitialised)
        ));
        made(&path);
        assert!(path.join("objects/sha256/7f").is_dir());
    }

    #[test]
    fn memory_is_refused_unless_asked_for() {
        let shm = std::path::Path::new("/dev/shm");
        let Ok(dir) = tempfile::tempdir_in(shm) else {
            println!("SKIPPED 1: no /dev/shm");
            return;
        };
        let path = dir.path().join("data");
        match DataDir::init(&path) {
            Err(LayoutError::Volatile { kind }) => assert_eq!(kind, "tmpfs"),
            other => panic!("{other:?}"),
        }
        made(&path);
    }
}
