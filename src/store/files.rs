//! The few file operations the store is built from, each on descriptors.

use std::{fs::File, os::fd::AsFd};

use cap_std::fs::Dir;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use std::os::fd::AsRawFd as _;

/// The permission bits of a stored object: readable by us, writable by nobody.
pub(crate) const OBJECT_MODE: u32 = 0o400;

/// Gives the unnamed `file` a name in `dir`; never replaces one.
///
/// Goes through our descriptor table in `/proc`, because `AT_EMPTY_PATH` needs a capability before
/// Linux 6.10. Not durable until `dir` is flushed.
///
/// # Source
/// `open(2)`, `O_TMPFILE`; `linkat(2)`.
pub(crate) fn link(file: &File, dir: &Dir, name: &str) -> Result<(), Errno> {
    let table = rustix_linux_procfs::proc_self_fd()?;
    rustix::fs::linkat(
        table,
        file.as_raw_fd().to_string(),
        dir,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )
}

/// What stands at a name, held by descriptor and examined but not opened.
#[derive(Debug)]
pub(crate) struct Held {
    handle: std::os::fd::OwnedFd,
    stat: Stat,
}

impl Held {
    /// Takes hold of `name` in `dir`: a link is held itself, a FIFO or device is not opened.
    pub(crate) fn at(dir: impl AsFd, name: &str) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok(Self { handle, stat })
    }

    /// What the system says of it.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Whether it is a regular file that has exactly one name, is ours and that nobody may write.
    pub(crate) fn is_object(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
            && self.stat.st_nlink == 1
            && self.stat.st_mode & 0o7777 == OBJECT_MODE
    }

    /// Opens the held regular file itself for reading, whatever its name leads to by now.
    pub(crate) fn reopen(&self) -> Result<File, Errno> {
        let table = rustix_linux_procfs::proc_self_fd()?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = self.handle.as_raw_fd().to_string();
        Ok(rustix::fs::openat(table, name, flags, Mode::empty())?.into())
    }
}
