//! Directories that others own and write, read in place.
//!
//! Promises: a name is one component, looked up beneath an open directory, and no link is followed;
//! what stands there is examined on an `O_PATH` handle before anything is opened, so that a FIFO,
//! socket or device is never opened (I2); nothing is created, locked, changed or repaired, access
//! times included where the system lets us. Leaves to others: what the names mean.

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};
use thiserror::Error;

/// The most bytes a name may have (`NAME_MAX`).
const MAX_NAME: usize = 255;

/// Why a name beneath a directory gave nothing.
#[derive(Debug, Error)]
pub(crate) enum BeneathError {
    /// Nothing stands there, or the name cannot stand anywhere.
    #[error("nothing is there")]
    Missing,
    /// Something else stands there than what was asked for.
    #[error("{0} is there")]
    Wrong(&'static str),
    /// The directory has more entries than may be listed.
    #[error("the directory has more than {0} entries")]
    TooMany(usize),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for BeneathError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NAMETOOLONG => Self::Missing,
            other => Self::Io(other.into()),
        }
    }
}

/// A directory held by descriptor.
#[derive(Debug)]
pub(crate) struct ForeignDir(OwnedFd);

/// What identifies a file and tells whether it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) len: u64,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, u64),
    /// Seconds and nanoseconds.
    pub(crate) changed: (i64, u64),
}

impl Stamp {
    /// A stamp nothing has.
    pub(crate) const NONE: Self = Self {
        device: 0,
        inode: 0,
        len: 0,
        modified: (0, 0),
        changed: (0, 0),
    };

    /// The stamp of an open file or directory.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            len: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether both are of one file, however it moved.
    pub(crate) fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether a later change is sure to move the stamp: timestamps are coarser than writes, so a
    /// file changed a moment before it was looked at may change again under the same stamp.
    pub(crate) fn is_settled(&self) -> bool {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let now = i128::from(now.tv_sec)
            .saturating_mul(1_000_000_000)
            .saturating_add(i128::from(now.tv_nsec));
        let (sec, nsec) = self.changed.max(self.modified);
        let changed = i128::from(sec)
            .saturating_mul(1_000_000_000)
            .saturating_add(i128::from(nsec));
        now.saturating_sub(changed) > 50_000_000
    }
}

impl ForeignDir {
    /// Opens a configured directory. Links in `path` are followed, once, here: the operator named it.
    ///
    /// # Errors
    /// As `open(2)` fails, `ENOTDIR` included.
    pub(crate) fn open_configured(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Another handle on this directory.
    pub(crate) fn again(&self) -> Result<Self, BeneathError> {
        Ok(Self(self.0.try_clone()?))
    }

    /// The directory `name` in this one.
    ///
    /// # Errors
    /// [`BeneathError::Wrong`] for anything but a directory, a link to one included.
    pub(crate) fn dir(&self, name: &[u8]) -> Result<Self, BeneathError> {
        let (handle, stat) = self.hold(name)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory {
            return Err(BeneathError::Wrong(words(kind)));
        }
        Ok(Self(handle))
    }

    /// The regular file `name` in this one, opened for reading, and its stamp.
    ///
    /// # Errors
    /// [`BeneathError::Wrong`] for anything but a regular file, a link to one included.
    pub(crate) fn file(&self, name: &[u8]) -> Result<(File, Stamp), BeneathError> {
        let (handle, stat) = self.hold(name)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            return Err(BeneathError::Wrong(words(kind)));
        }
        // The held file itself, whatever the name leads to by now.
        let table = rustix_linux_procfs::proc_self_fd()?;
        let number = handle.as_raw_fd().to_string();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = without_atime(flags, |flags| {
            rustix::fs::openat(table, &*number, flags, Mode::empty())
        })?;
        Ok((file.into(), Stamp::from_stat(&stat)))
    }

    /// The names in this directory, in no order, and what `readdir` says they are.
    ///
    /// # Errors
    /// [`BeneathError::TooMany`] past `limit` entries.
    pub(crate) fn names(&self, limit: usize) -> Result<Vec<(Vec<u8>, FileType)>, BeneathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = without_atime(flags, |flags| {
            rustix::fs::openat(&self.0, c".", flags, Mode::empty())
        })?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(readable)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() >= limit {
                return Err(BeneathError::TooMany(limit));
            }
            names.push((name.to_vec(), entry.file_type()));
        }
        Ok(names)
    }

    /// The directory's own stamp: it moves when a name comes or goes.
    pub(crate) fn stamp(&self) -> io::Result<Stamp> {
        Stamp::of(&self.0)
    }

    /// Takes hold of what stands at `name` without opening it or following it.
    fn hold(&self, name: &[u8]) -> Result<(OwnedFd, Stat), BeneathError> {
        // One component: anything else could mean another place.
        if matches!(name, b"" | b"." | b"..")
            || name.len() > MAX_NAME
            || name.iter().any(|byte| matches!(byte, b'/' | 0))
        {
            return Err(BeneathError::Missing);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok((handle, stat))
    }
}

impl From<OwnedFd> for ForeignDir {
    /// An open directory of any kind.
    fn from(directory: OwnedFd) -> Self {
        Self(directory)
    }
}

impl AsFd for ForeignDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens with `O_NOATIME`, which only the owner may ask for, else without.
fn without_atime<T>(flags: OFlags, open: impl Fn(OFlags) -> Result<T, Errno>) -> Result<T, Errno> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        other => other,
    }
}

fn words(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests build their own directories"
)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{BeneathError, ForeignDir};

    /// Keeps I2.
    #[test]
    fn only_a_real_file_or_directory_of_that_very_name_is_opened() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        std::fs::write(at("file"), b"x").unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("dir", at("link-to-dir")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let dir = ForeignDir::open_configured(temp.path()).unwrap();
        assert!(dir.file(b"file").is_ok());
        assert!(dir.dir(b"dir").is_ok());
        for (name, said) in [
            ("link", "a link is there"),
            ("link-to-dir", "a link is there"),
            ("fifo", "a FIFO is there"),
            ("dir", "a directory is there"),
            ("absent", "nothing is there"),
            ("dir/../file", "nothing is there"),
            ("..", "nothing is there"),
            ("", "nothing is there"),
            ("a\0b", "nothing is there"),
        ] {
            let error = dir.file(name.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), said, "{name:?} as a file");
        }
        assert_eq!(
            dir.dir(b"link-to-dir").unwrap_err().to_string(),
            "a link is there"
        );
        assert!(matches!(dir.names(2), Err(BeneathError::TooMany(2))));
    }
}
