#![forbid(unsafe_code)]

use std::{fmt, io};

use rustix::{fs::FileType, io::Errno};
use thiserror::Error;

use crate::{
    model::{ByteCount, ParsePathError},
    spool::SpoolError,
};

/// Why a file beneath a root was not read. No variant carries a byte of the file or a host path.
///
/// What the caller may be told is decided elsewhere: to an outsider, link, escape, foreign mount
/// and absence look the same (I9); the class goes to the owner and to the log (I15).
#[derive(Debug, Error)]
pub enum PinnedError {
    /// The path breaks a rule of [`RelPath`](crate::model::RelPath).
    #[error("the path is not one a root can be asked for")]
    InvalidPath(#[from] ParsePathError),
    /// The filesystem allows no name or path of this length.
    #[error("a name is longer than the filesystem allows")]
    NameTooLong,
    /// Nothing of that name, or something that is not a directory on the way to it.
    #[error("no such file")]
    NotFound,
    /// A component is a symbolic link, and the root follows none.
    #[error("a component is a symbolic link")]
    DeniedSymlink,
    /// A component is a link of a process filesystem, which leads anywhere.
    #[error("a component is a magic link")]
    DeniedMagicLink,
    /// Following a link would leave the root.
    #[error("the path leaves the root")]
    DeniedEscape,
    /// The path crosses into another mount, and the root's policy refuses that.
    #[error("the path crosses into another mount")]
    DeniedMount,
    /// More links than any lookup may follow.
    #[error("too many links")]
    SymlinkLoop,
    /// Something other than a plain file; it was not opened.
    #[error("not a plain file but {0}")]
    NotRegular(Kind),
    /// The file has, or had while it was read, another name.
    #[error("the file has more than one name")]
    DeniedHardlink,
    /// The file belongs to a user the root's policy does not list.
    #[error("the file belongs to another user")]
    DeniedOwner,
    /// The file is, or grew, larger than the ceiling.
    #[error("the file is larger than {limit}")]
    OverLimit {
        /// The ceiling.
        limit: ByteCount,
        /// What it said it has, where that was asked.
        size: Option<ByteCount>,
    },
    /// The file, or the name that led to it, moved while it was read; the text says what moved.
    #[error("the file changed while it was read: {0}")]
    Changed(&'static str),
    /// Retries or queues ran out, or somebody holds a write lease; trying again may help.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The system does not let this process read the file or search a directory on the way.
    #[error("permission denied")]
    PermissionDenied,
    /// The root's configured path leads to another directory than the one held.
    #[error("another directory stands at the root's path")]
    RootReplaced,
    /// The one who wanted the bytes has gone.
    #[error("cancelled")]
    Cancelled,
    /// The time allowed for the read is over.
    #[error("the time for reading the file is over")]
    Deadline,
    /// No descriptor or memory was left.
    #[error("out of descriptors or memory")]
    Resource(#[source] io::Error),
    /// The kernel or filesystem cannot give what the root's policy asks for; the text says what.
    #[error("not possible here: {0}")]
    Unsupported(&'static str),
    /// The spool took no more bytes; never the source file's doing.
    #[error("the copy could not be written")]
    Spool(#[source] SpoolError),
    /// Anything else the system said.
    #[error("{action} failed")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What stands at a name instead of a plain file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
    /// A file of a process or system filesystem: its length says nothing of its content.
    Synthetic,
    /// Something this program has no word for.
    Unknown,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Synthetic => "a file the kernel makes up",
            Self::Unknown => "something unknown",
        })
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::RegularFile | FileType::Symlink | FileType::Unknown => Self::Unknown,
        }
    }
}

impl PinnedError {
    /// The error's class: one stable word, the same from both resolvers.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::InvalidPath(ParsePathError::ComponentTooLong | ParsePathError::TooLong)
            | Self::NameTooLong => "name_too_long",
            Self::InvalidPath(
                ParsePathError::Empty
                | ParsePathError::Absolute
                | ParsePathError::DotComponent
                | ParsePathError::EmptyComponent
                | ParsePathError::TrailingSlash
                | ParsePathError::Nul
                | ParsePathError::TooDeep,
            ) => "invalid_path",
            Self::NotFound => "not_found",
            Self::DeniedSymlink => "denied_symlink",
            Self::DeniedMagicLink => "denied_magic_link",
            Self::DeniedEscape => "denied_escape",
            Self::DeniedMount => "denied_mount",
            Self::SymlinkLoop => "symlink_loop",
            Self::NotRegular(_) => "not_regular",
            Self::DeniedHardlink => "denied_hardlink",
            Self::OverLimit { .. } => "too_large",
            Self::Changed(_) => "changed",
            Self::Busy(_) => "busy",
            Self::PermissionDenied | Self::DeniedOwner => "permission_denied",
            Self::RootReplaced => "root_replaced",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Resource(_) | Self::Spool(SpoolError::Resource(_)) => "resource",
            Self::Unsupported(_) | Self::Spool(SpoolError::Unsupported(_)) => "unsupported",
            Self::Spool(_) | Self::Io { .. } => "io",
        }
    }

    /// Sorts what the system said while `action` was tried on the way to, or on, the file.
    pub(super) fn from_errno(action: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound,
            Errno::LOOP => Self::DeniedSymlink,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Resource(errno.into()),
            Errno::AGAIN => Self::Busy("the file is not ready to be read"),
            // A network filesystem lost the object behind the descriptor.
            Errno::STALE => Self::Changed("the file is gone from its server"),
            _ => Self::Io {
                action,
                source: errno.into(),
            },
        }
    }
}

impl From<SpoolError> for PinnedError {
    fn from(error: SpoolError) -> Self {
        match error {
            SpoolError::OverLimit { limit } => Self::OverLimit { limit, size: None },
            SpoolError::Full(_)
            | SpoolError::Unsupported(_)
            | SpoolError::Resource(_)
            | SpoolError::Io(_) => Self::Spool(error),
        }
    }
}
