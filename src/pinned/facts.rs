#![forbid(unsafe_code)]

use rustix::{
    fd::AsFd,
    fs::{AtFlags, FileType, Mode, Statx, StatxFlags, makedev, statx},
};

use super::PinnedError;
use crate::model::ByteCount;

/// Which object a descriptor holds, and through which mount.
///
/// Device numbers alone would not do: a bind mount of the same filesystem keeps them, a btrfs
/// subvolume changes them without being a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The device number.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// The mount id; unique since Linux 6.8, none before 5.8.
    pub mount: Option<u64>,
}

/// A file timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since the epoch.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// What `statx(2)` says of an open descriptor at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Which object it is.
    pub identity: Identity,
    /// Its length in bytes; a claim until that many were read.
    pub size: ByteCount,
    /// How many names it has.
    pub links: u32,
    /// The user it belongs to.
    pub owner: u32,
    /// When its content last changed.
    pub modified: Moment,
    /// When its content, names, owner or mode last changed.
    pub changed: Moment,
    pub(super) kind: FileType,
    pub(super) mode: Mode,
}

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8); older kernels ignore the bit.
const MNT_ID_UNIQUE: u32 = 0x4000;

impl Facts {
    /// Asks the descriptor; never a name.
    pub(super) fn of(fd: impl AsFd) -> Result<Self, PinnedError> {
        let unique = StatxFlags::from_bits_retain(MNT_ID_UNIQUE);
        let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID | unique;
        let stat = statx(fd, "", AtFlags::EMPTY_PATH, mask)
            .map_err(|errno| PinnedError::from_errno("asking a descriptor", errno))?;
        let has_mount = stat.stx_mask & (StatxFlags::MNT_ID.bits() | MNT_ID_UNIQUE) != 0;
        Ok(Self {
            identity: Identity {
                device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
                mount: has_mount.then_some(stat.stx_mnt_id),
            },
            size: ByteCount::new(stat.stx_size),
            links: stat.stx_nlink,
            owner: stat.stx_uid,
            modified: moment(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: moment(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            kind: kind(&stat),
            mode: Mode::from_raw_mode(stat.stx_mode.into()),
        })
    }
}

impl Facts {
    /// Whether its owner may execute it.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.mode.contains(Mode::XUSR)
    }
}

fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

fn moment(seconds: i64, nanoseconds: u32) -> Moment {
    Moment {
        seconds,
        nanoseconds,
    }
}
