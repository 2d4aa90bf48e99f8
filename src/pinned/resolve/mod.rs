//! From a path to a descriptor, in two ways that refuse alike.

#![forbid(unsafe_code)]

mod openat2;
mod walk;

use std::fmt;

use rustix::fd::{AsFd, OwnedFd};

use super::{Identity, Mounts, PinnedError, Root, Seam, filesystem::Filesystem};
use crate::model::RelPath;

pub(super) use walk::open_component;

/// How a path becomes a descriptor. Each has its own proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resolver {
    /// One `openat2(2)` that cannot leave the root (Linux 5.6).
    Openat2,
    /// One `openat(2)` per component, each checked before the next.
    Walk,
}

impl Resolver {
    /// Both, the stronger first.
    pub const ALL: [Self; 2] = [Self::Openat2, Self::Walk];

    /// The resolver's name in reports and receipts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Openat2 => "openat2",
            Self::Walk => "walk",
        }
    }
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a path led to.
#[derive(Debug)]
pub(super) struct Found {
    /// The object; neither a link nor on a refused mount.
    pub(super) handle: OwnedFd,
    /// The directory it was found in, none for the root itself. Kept only where the root's policy
    /// asks which names a file has.
    pub(super) parent: Option<OwnedFd>,
    /// Its name there.
    pub(super) name: Box<[u8]>,
}

pub(super) fn resolve<S: Seam>(
    root: &Root,
    path: &RelPath,
    resolver: Resolver,
    seam: &mut S,
) -> Result<Found, PinnedError> {
    match resolver {
        Resolver::Openat2 => openat2::resolve(root, path),
        Resolver::Walk => walk::resolve(root, path, seam),
    }
}

/// Refuses a handle that lies on another mount than the root, where the policy says so.
fn admit_mount(root: &Root, found: Identity) -> Result<(), PinnedError> {
    match root.policy().mounts {
        Mounts::Allow => Ok(()),
        Mounts::Deny => match (root.identity().mount, found.mount) {
            (Some(own), Some(other)) if own == other => Ok(()),
            (Some(_), Some(_)) => Err(PinnedError::DeniedMount),
            // Device numbers would be wrong in both directions.
            (None, _) | (_, None) => Err(PinnedError::Unsupported("the kernel has no mount ids")),
        },
    }
}

/// Which kind of link `handle` is.
fn link_class(root: &Root, handle: impl AsFd) -> PinnedError {
    if matches!(root.filesystem_of(handle), Ok(Filesystem::Proc)) {
        PinnedError::DeniedMagicLink
    } else {
        PinnedError::DeniedSymlink
    }
}
