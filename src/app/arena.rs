//! Where a root's reads may be proven: a directory of ours on the root's mount, outside every root.
//!
//! Promises: an arena that a root's writer or anybody else could reach is refused at start; one that
//! is made beside a root is ours alone and is removed again when it is empty. Leaves to others: what is
//! done in it (`fsprobe`), which removes what a killed run left there.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Access, AtFlags, Mode, OFlags, StatxFlags},
    io::Errno,
};

/// What the directory made beside a root is called, with the root's name after it.
const BESIDE: &str = ".holdfast-arena-";
/// May others create, remove or rename in a directory of this mode.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A directory in which a root's reads may be proven.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) directory: OwnedFd,
    /// Where it was made, to be removed again.
    made: Option<(OwnedFd, String)>,
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some((parent, name)) = &self.made {
            // One that is not empty holds what another run will remove.
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).ok();
        }
    }
}

/// Opens the arena the configuration names, or says why it may not be one.
pub(super) fn configured(path: &Path) -> io::Result<Result<Arena, &'static str>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let facts = rustix::fs::fstat(&directory)?;
    if facts.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(Err("belongs to another user"));
    }
    if facts.st_mode & OTHERS_WRITE != 0 {
        return Ok(Err("may be written by others"));
    }
    Ok(Ok(Arena {
        directory,
        made: None,
    }))
}

/// Makes an arena beside the root called `name`, where we may write there and nobody could put
/// something else in its place. None where there can be none; `is_fit` is asked about the directory
/// it would be made in.
pub(super) fn beside(
    name: &str,
    root: impl AsFd,
    is_fit: impl FnOnce(&OwnedFd) -> io::Result<bool>,
) -> io::Result<Option<Arena>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::openat(&root, "..", flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let facts = rustix::fs::fstat(&parent)?;
    let us = rustix::process::geteuid().as_raw();
    let is_ours = facts.st_uid == us || facts.st_uid == 0;
    let is_safe = facts.st_mode & OTHERS_WRITE == 0 || facts.st_mode & STICKY != 0;
    let may_write = rustix::fs::accessat(
        &parent,
        ".",
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    );
    if !is_ours
        || !is_safe
        || may_write.is_err()
        || !is_same_mount(&parent, &root)?
        || !is_fit(&parent)?
    {
        return Ok(None);
    }
    let name = format!("{BESIDE}{name}");
    match rustix::fs::mkdirat(&parent, &name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::NOSPC | Errno::DQUOT) => {
            return Ok(None);
        }
        Err(errno) => return Err(errno.into()),
    }
    let flags = flags | OFlags::NOFOLLOW;
    let directory = match rustix::fs::openat(&parent, &name, flags, Mode::empty()) {
        Ok(directory) => directory,
        // Somebody else's, or no directory.
        Err(Errno::ACCESS | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let facts = rustix::fs::fstat(&directory)?;
    if facts.st_uid != us || facts.st_mode & 0o077 != 0 {
        return Ok(None);
    }
    let made = Some((parent, name));
    Ok(Some(Arena { directory, made }))
}

/// Whether both lie on one mount; before Linux 5.8, which does not tell mounts, on one device.
pub(super) fn is_same_mount(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    Ok(mount_of(one)? == mount_of(other)?)
}

/// Device numbers, and the mount where the kernel tells it.
fn mount_of(directory: impl AsFd) -> io::Result<(u32, u32, Option<u64>)> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let facts = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, wanted)?;
    let has_mount = facts.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let mount = has_mount.then_some(facts.stx_mnt_id);
    Ok((facts.stx_dev_major, facts.stx_dev_minor, mount))
}
