#![forbid(unsafe_code)]

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, openat, readlinkat},
    io::Errno,
};

use super::{Facts, PinnedError};

/// `/proc/self/fd`, opened once and checked, through which a pinned descriptor is opened again for
/// reading.
///
/// `/proc/thread-self` would not do: a handle kept to it dies with the thread that opened it.
#[derive(Debug)]
pub(super) struct ProcFd(OwnedFd);

/// The inode number of the root of every process filesystem.
const PROC_ROOT_INODE: u64 = 1;

impl ProcFd {
    /// Opens `/proc/self/fd` step by step, so that nothing mounted over `/proc`, the process's
    /// directory or its `fd` goes unnoticed.
    ///
    /// # Errors
    /// [`PinnedError::Unsupported`] when there is no process filesystem there, or something covers
    /// part of it.
    pub(super) fn open() -> Result<Self, PinnedError> {
        let proc = step(CWD, b"/proc")?;
        let top = Facts::of(&proc)?;
        if top.identity.inode != PROC_ROOT_INODE {
            return Err(FAKE);
        }
        // The number in this `/proc`'s own pid namespace, which `getpid` need not give.
        let own = readlinkat(&proc, "self", Vec::new()).map_err(|_errno| FAKE)?;
        if !own.as_bytes().iter().all(u8::is_ascii_digit) {
            return Err(FAKE);
        }
        let process = step(&proc, own.as_bytes())?;
        let fd = step(&process, b"fd")?;
        for part in [&process, &fd] {
            if Facts::of(part)?.identity.mount != top.identity.mount {
                return Err(FAKE);
            }
        }
        Ok(Self(fd))
    }

    /// Opens what `pinned` holds for reading. The caller compares identities: a mount over the
    /// entry itself is only visible in the result.
    pub(super) fn reopen(&self, pinned: impl AsFd) -> Result<OwnedFd, Errno> {
        let name = pinned.as_fd().as_raw_fd().to_string();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        loop {
            match openat(&self.0, &name, flags, Mode::empty()) {
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
    }

    /// Whether mode and owner alone would let this process read what `pinned` holds.
    pub(super) fn may_read(&self, pinned: impl AsFd) -> bool {
        use rustix::fs::{Access, AtFlags, accessat};
        let name = pinned.as_fd().as_raw_fd().to_string();
        accessat(&self.0, &name, Access::READ_OK, AtFlags::EACCESS).is_ok()
    }
}

const FAKE: PinnedError = PinnedError::Unsupported("no trustworthy /proc/self/fd");

/// One directory of the process filesystem, following no link.
fn step(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, PinnedError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => PinnedError::Resource(errno.into()),
        _ => FAKE,
    })?;
    let is_proc = fstatfs(&fd).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC);
    if !is_proc || Facts::of(&fd)?.kind != FileType::Directory {
        return Err(FAKE);
    }
    Ok(fd)
}
