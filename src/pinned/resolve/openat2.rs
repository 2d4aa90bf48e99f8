#![forbid(unsafe_code)]

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use super::{admit_no_link, walk};
use crate::{
    model::RelPath,
    pinned::{Mounts, PinnedError, Root},
};

/// How often a lookup that raced with renames or mounts is tried.
const TRIES: u32 = 128;
/// How long.
const BUDGET: Duration = Duration::from_millis(50);

/// One system call that cannot leave the root and follows no link.
pub(super) fn resolve(root: &Root, path: &RelPath) -> Result<OwnedFd, PinnedError> {
    if root.openat2.absent.load(Ordering::Relaxed) {
        root.openat2.missing.fetch_add(1, Ordering::Relaxed);
        return Err(ABSENT);
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut beneath =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if root.policy().mounts == Mounts::Deny {
        beneath |= ResolveFlags::NO_XDEV;
    }
    let started = Instant::now();
    let mut crossings = 0_u32;
    for _ in 0..TRIES {
        match openat2(root, path.as_bytes(), flags, Mode::empty(), beneath) {
            Ok(handle) => {
                // With `O_PATH` and `O_NOFOLLOW` the last component may be a link all the same: the
                // handle is then the link itself.
                admit_no_link(root, &handle)?;
                return Ok(handle);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::XDEV) => {
                // A mount, or an ancestor that was being renamed. Only the second passes.
                crossings = crossings.saturating_add(1);
                if crossings > 1 {
                    diagnose(root, path)?;
                }
            }
            Err(Errno::LOOP) => {
                diagnose(root, path)?;
                // The link is gone again; what the kernel saw stands.
                return Err(PinnedError::DeniedSymlink);
            }
            Err(Errno::NOSYS) => {
                root.openat2.absent.store(true, Ordering::Relaxed);
                root.openat2.missing.fetch_add(1, Ordering::Relaxed);
                return Err(ABSENT);
            }
            Err(Errno::PERM) => {
                // `O_PATH` asks no permission of the file, so a filter said this. It may hold for
                // this thread alone: never remembered.
                root.openat2.filtered.fetch_add(1, Ordering::Relaxed);
                return Err(PinnedError::Unsupported("a filter forbids openat2"));
            }
            Err(errno) => return Err(PinnedError::from_errno("resolving a path", errno)),
        }
        if started.elapsed() > BUDGET {
            break;
        }
    }
    Err(PinnedError::Busy("renames or mounts raced with the lookup"))
}

const ABSENT: PinnedError = PinnedError::Unsupported("the kernel has no openat2");

/// Asks the walk which class an ambiguous answer belongs to. Decides about no byte: what the walk
/// finds is dropped.
fn diagnose(root: &Root, path: &RelPath) -> Result<(), PinnedError> {
    match walk::resolve(root, path, &mut ()) {
        Ok(_)
        | Err(PinnedError::NotFound | PinnedError::PermissionDenied | PinnedError::Busy(_)) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}
