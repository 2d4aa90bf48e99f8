#![forbid(unsafe_code)]

use rustix::{
    fd::AsFd,
    fs::{FsWord, PROC_SUPER_MAGIC, fstatfs},
};

use super::PinnedError;

/// What is known of a filesystem's promises about change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filesystem {
    Ext4,
    Xfs,
    Btrfs,
    Overlay,
    /// Keeps its files in memory; never reports a store through a mapping.
    Tmpfs,
    /// Makes its files up while they are read.
    Proc,
    /// Nothing is known.
    Other,
}

// linux/magic.h; XFS's stands in its own headers.
const EXT4: FsWord = 0xEF53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683E;
const OVERLAY: FsWord = 0x794c_7630;
const TMPFS: FsWord = 0x0102_1994;

impl Filesystem {
    pub(super) fn of(fd: impl AsFd) -> Result<Self, PinnedError> {
        let stat = fstatfs(fd)
            .map_err(|errno| PinnedError::from_errno("asking for the filesystem", errno))?;
        Ok(match stat.f_type {
            EXT4 => Self::Ext4,
            XFS => Self::Xfs,
            BTRFS => Self::Btrfs,
            OVERLAY => Self::Overlay,
            TMPFS => Self::Tmpfs,
            PROC_SUPER_MAGIC => Self::Proc,
            _ => Self::Other,
        })
    }

    /// Whether a file can be cloned to another of the same filesystem.
    pub(super) fn clones(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs)
    }

    /// Whether, after a flush, every change moves a file's times, stores through a mapping included
    /// (measured: spec path 7.5). Not so in memory, and not known of others.
    pub(super) fn stamps(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Btrfs | Self::Overlay)
    }
}
