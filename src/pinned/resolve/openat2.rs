#![forbid(unsafe_code)]

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

use super::{Found, link_class, walk};
use crate::{
    model::RelPath,
    pinned::{Facts, HardLinks, Links, Mounts, PinnedError, Root},
};

/// How often a lookup that raced with renames or mounts is tried.
const TRIES: u32 = 128;
/// How long.
const BUDGET: Duration = Duration::from_millis(50);

/// One system call that cannot leave the root; two more where the directory of the file must be held
/// as well.
pub(super) fn resolve(root: &Root, path: &RelPath) -> Result<Found, PinnedError> {
    let started = Instant::now();
    let mut crossings = 0_u32;
    for _ in 0..TRIES {
        match attempt(root, path) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) | Err(Failure::Errno(Errno::INTR | Errno::AGAIN)) => {}
            Err(Failure::Errno(Errno::XDEV)) => {
                // A mount, or an ancestor that was being renamed. Only the second passes.
                crossings = crossings.saturating_add(1);
                if crossings > 1 {
                    diagnose(root, path)?;
                }
            }
            Err(Failure::Errno(Errno::LOOP)) => {
                diagnose(root, path)?;
                // The link is gone again; what the kernel saw stands.
                return Err(match root.policy().links {
                    Links::Deny => PinnedError::DeniedSymlink,
                    Links::Beneath => PinnedError::SymlinkLoop,
                });
            }
            Err(Failure::Errno(errno)) => {
                return Err(PinnedError::from_errno("resolving a path", errno));
            }
            Err(Failure::Refused(error)) => return Err(error),
        }
        if started.elapsed() > BUDGET {
            break;
        }
    }
    Err(PinnedError::Busy("renames or mounts raced with the lookup"))
}

/// Why one attempt failed.
enum Failure {
    /// The kernel's answer; some of them are worth another try.
    Errno(Errno),
    /// Settled.
    Refused(PinnedError),
}

impl From<PinnedError> for Failure {
    fn from(error: PinnedError) -> Self {
        Self::Refused(error)
    }
}

/// Nothing when the file and its directory were not found at the same place.
fn attempt(root: &Root, path: &RelPath) -> Result<Option<Found>, Failure> {
    let bytes = path.as_bytes();
    let handle = open_beneath(root, root, bytes)?;
    let facts = Facts::of(&handle)?;
    // With `O_PATH` and `O_NOFOLLOW` the last component may be a link all the same: the handle is
    // then the link itself.
    if facts.kind.is_symlink() {
        return Err(Failure::Refused(link_class(root, handle)));
    }
    let policy = root.policy();
    if policy.links == Links::Beneath && policy.hard_links == HardLinks::Deny {
        // Only a walk says in which directory, and under which name, the links ended.
        return match walk::resolve(root, path, &mut ()) {
            Ok(walked) if Facts::of(&walked.handle)?.identity == facts.identity => {
                Ok(Some(Found { handle, ..walked }))
            }
            Ok(_) | Err(PinnedError::NotFound) => Ok(None),
            Err(error) => Err(Failure::Refused(error)),
        };
    }
    let name = path.file_name();
    let parent = match bytes.iter().rposition(|&byte| byte == b'/') {
        Some(slash) if policy.hard_links == HardLinks::Deny => {
            let parent = open_beneath(root, root, &bytes[..slash])?;
            let named = match open_beneath(root, &parent, name) {
                Ok(named) => named,
                // The name went away between the two lookups: the next attempt says what is there.
                Err(Failure::Errno(Errno::NOENT | Errno::NOTDIR)) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            if Facts::of(&named)?.identity != facts.identity {
                return Ok(None);
            }
            Some(parent)
        }
        Some(_) | None => None,
    };
    let name = name.into();
    Ok(Some(Found {
        handle,
        parent,
        name,
    }))
}

fn open_beneath(root: &Root, directory: impl AsFd, path: &[u8]) -> Result<OwnedFd, Failure> {
    let state = &root.openat2;
    if state.absent.load(Ordering::Relaxed) {
        state.missing.fetch_add(1, Ordering::Relaxed);
        return Err(Failure::Refused(ABSENT));
    }
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if root.policy().links == Links::Deny {
        flags |= OFlags::NOFOLLOW;
        beneath |= ResolveFlags::NO_SYMLINKS;
    }
    if root.policy().mounts == Mounts::Deny {
        beneath |= ResolveFlags::NO_XDEV;
    }
    openat2(directory, path, flags, Mode::empty(), beneath).map_err(|errno| match errno {
        Errno::NOSYS => {
            state.absent.store(true, Ordering::Relaxed);
            state.missing.fetch_add(1, Ordering::Relaxed);
            Failure::Refused(ABSENT)
        }
        Errno::PERM => {
            // `O_PATH` asks no permission of the file, so a filter said this. It may hold for this
            // thread alone: never remembered.
            state.filtered.fetch_add(1, Ordering::Relaxed);
            Failure::Refused(PinnedError::Unsupported("a filter forbids openat2"))
        }
        errno => Failure::Errno(errno),
    })
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
