//! A private unlinked file with its length and digest: the only form in which bytes move between
//! `pinned`, uploads and `store`.
//!
//! Promises: nobody else can name the file; its length and SHA-256 were taken from the very bytes
//! written; a limit is a refusal, never a cut. Leaves to others: making it durable (`store`).

#![forbid(unsafe_code)]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use crate::model::{ByteCount, Digest, Digester};

/// Why a spool could not be made or filled.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// One byte more than allowed arrived.
    #[error("content is larger than {limit}")]
    OverLimit {
        /// The ceiling.
        limit: ByteCount,
    },
    /// The filesystem, its inodes or its quota is used up.
    #[error("no space left for a spool")]
    Full(#[source] io::Error),
    /// The filesystem has no unnamed files.
    #[error("the filesystem has no O_TMPFILE")]
    Unsupported(#[source] io::Error),
    /// No descriptor or memory was left.
    #[error("no descriptor left for a spool")]
    Resource(#[source] io::Error),
    /// Anything else the system said.
    #[error("writing a spool failed")]
    Io(#[source] io::Error),
}

impl From<io::Error> for SpoolError {
    fn from(error: io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::Full(error),
            Some(Errno::OPNOTSUPP) => Self::Unsupported(error),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Self::Resource(error),
            _ => Self::Io(error),
        }
    }
}

/// The directory in which spools are made; on the filesystem of the store.
#[derive(Debug)]
pub struct SpoolDir(OwnedFd);

impl SpoolDir {
    /// Makes spools in `dir`.
    #[must_use]
    pub fn new(dir: OwnedFd) -> Self {
        Self(dir)
    }

    /// An empty spool that refuses the first byte past `limit`.
    ///
    /// # Errors
    /// [`SpoolError::Full`], [`SpoolError::Unsupported`], [`SpoolError::Resource`] or
    /// [`SpoolError::Io`], as `open(2)` with `O_TMPFILE` fails.
    pub fn create(&self, limit: ByteCount) -> Result<SpoolWriter, SpoolError> {
        self.create_within(None, limit, ByteCount::ZERO)
    }

    /// An empty spool that also leaves `reserve` bytes of the filesystem free, and sets aside the
    /// `declared` length at once where the filesystem can.
    ///
    /// # Errors
    /// As [`SpoolDir::create`]; [`SpoolError::OverLimit`] when `declared` passes `limit`, and
    /// [`SpoolError::Full`] when it would use the reserve.
    pub fn create_within(
        &self,
        declared: Option<ByteCount>,
        limit: ByteCount,
        reserve: ByteCount,
    ) -> Result<SpoolWriter, SpoolError> {
        if declared.is_some_and(|declared| declared > limit) {
            return Err(SpoolError::OverLimit { limit });
        }
        let fd = rustix::fs::openat(
            &self.0,
            ".",
            OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
            Mode::RUSR,
        )
        .map_err(io::Error::from)?;
        let mut writer = SpoolWriter {
            file: File::from(fd),
            digester: Digester::default(),
            len: 0,
            limit,
            reserve,
            checked: 0,
            counted: None,
        };
        let declared = declared.unwrap_or_default();
        writer.find_room(declared.get())?;
        if declared >= SET_ASIDE {
            set_aside(&writer.file, declared)?;
        }
        Ok(writer)
    }
}

/// How much may be written before the free space is looked at again.
const STEP: u64 = 4 << 20;
/// From this declared length on, room is set aside before the first byte.
const SET_ASIDE: ByteCount = ByteCount::mib(1);

/// Sets room for `len` bytes aside without changing the file's length.
fn set_aside(file: &File, len: ByteCount) -> Result<(), SpoolError> {
    use rustix::{fs::FallocateFlags, io::Errno};
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len.get()) {
        // Not every filesystem can; then the writes find out.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => Ok(()),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

/// A spool being filled.
#[derive(Debug)]
pub struct SpoolWriter {
    file: File,
    digester: Digester,
    len: u64,
    limit: ByteCount,
    /// What must stay free on the filesystem.
    reserve: ByteCount,
    /// Up to this length the free space was found sufficient.
    checked: u64,
    /// Told of every byte taken.
    counted: Option<Arc<AtomicU64>>,
}

impl SpoolWriter {
    /// Adds every byte taken to `counter` as well, for whoever wants to see it grow.
    #[must_use]
    pub fn counted(mut self, counter: Arc<AtomicU64>) -> Self {
        self.counted = Some(counter);
        self
    }

    fn take(&mut self, bytes: &[u8]) {
        self.digester.update(bytes);
        let taken = ByteCount::from(bytes.len());
        self.len = ByteCount::new(self.len).saturating_add(taken).get();
        if let Some(counter) = &self.counted {
            counter.fetch_add(taken.get(), Ordering::Relaxed);
        }
    }

    /// Makes sure that the filesystem has room up to length `end` and some more beside the reserve.
    fn find_room(&mut self, end: u64) -> Result<(), SpoolError> {
        if self.reserve == ByteCount::ZERO {
            self.checked = u64::MAX;
            return Ok(());
        }
        let free = rustix::fs::fstatvfs(&self.file).map_err(io::Error::from)?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        let needed = end.saturating_sub(self.len);
        if free.saturating_sub(self.reserve.get()) <= needed {
            return Err(SpoolError::Full(io::ErrorKind::StorageFull.into()));
        }
        self.checked = end.saturating_add(STEP);
        Ok(())
    }

    /// Appends `bytes`; all of them or an error.
    ///
    /// # Errors
    /// [`SpoolError::OverLimit`] before anything of `bytes` is written when they would pass the
    /// limit; otherwise as `pwrite(2)` fails. After an error the spool can only be dropped.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        let end = ByteCount::new(self.len).saturating_add(bytes.len().into());
        if end > self.limit {
            return Err(SpoolError::OverLimit { limit: self.limit });
        }
        if end.get() > self.checked {
            self.find_room(end.get())?;
        }
        self.file.write_all_at(bytes, self.len)?;
        self.take(bytes);
        Ok(())
    }

    /// Takes what was cloned into the empty file as its content: reads it back and hashes it.
    ///
    /// `between` is asked before every read.
    ///
    /// # Errors
    /// [`SpoolError::OverLimit`] when the clone is larger than the limit; as `pread(2)` fails; what
    /// `between` says.
    pub(crate) fn adopt<E: From<SpoolError>>(
        &mut self,
        mut between: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            between()?;
            let read = match self.file.read_at(&mut buffer, self.len) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(SpoolError::from(error).into()),
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            let end = ByteCount::new(self.len).saturating_add(bytes.len().into());
            if end > self.limit {
                return Err(SpoolError::OverLimit { limit: self.limit }.into());
            }
            if bytes.is_empty() {
                return Ok(());
            }
            self.take(bytes);
        }
    }

    /// The unlinked file itself, for a clone into it.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> ByteCount {
        ByteCount::new(self.len)
    }

    /// SHA-256 of the bytes written so far.
    #[must_use]
    pub fn digest_so_far(&self) -> Digest {
        self.digester.clone().finish()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Ends the content and settles its length and digest. Not durable yet.
    #[must_use]
    pub fn finish(self) -> Spool {
        Spool {
            file: self.file,
            len: ByteCount::new(self.len),
            digest: self.digester.finish(),
        }
    }
}

/// A finished spool.
#[derive(Debug)]
pub struct Spool {
    file: File,
    len: ByteCount,
    digest: Digest,
}

impl Spool {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> ByteCount {
        self.len
    }

    /// Whether the content is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == ByteCount::ZERO
    }

    /// SHA-256 of the content.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The unlinked file itself, readable and writable, of no name.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl AsFd for Spool {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt};

    use super::{SpoolDir, SpoolError};
    use crate::model::{ByteCount, Digest};

    fn spools() -> (tempfile::TempDir, SpoolDir) {
        let dir = tempfile::tempdir().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test directory")]
        let handle = File::open(dir.path()).unwrap();
        (dir, SpoolDir::new(handle.into()))
    }

    #[test]
    fn a_spool_knows_the_length_and_digest_of_what_was_written() {
        let (dir, spools) = spools();
        let mut writer = spools.create(ByteCount::new(6)).unwrap();
        writer.write(b"abc").unwrap();
        writer.write(b"def").unwrap();
        let spool = writer.finish();
        let mut content = [0; 6];
        spool.file().read_exact_at(&mut content, 0).unwrap();
        assert_eq!((&content, spool.len()), (b"abcdef", ByteCount::new(6)));
        assert_eq!(spool.digest(), Digest::of(b"abcdef"));
        #[expect(clippy::disallowed_methods, reason = "a test directory")]
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 0, "a spool has no name");
    }

    #[test]
    fn one_byte_past_the_limit_is_refused_not_cut() {
        let (_dir, spools) = spools();
        let mut writer = spools.create(ByteCount::new(3)).unwrap();
        writer.write(b"abc").unwrap();
        assert!(matches!(
            writer.write(b"d"),
            Err(SpoolError::OverLimit { .. })
        ));
        assert_eq!(writer.len(), ByteCount::new(3));
    }
}
