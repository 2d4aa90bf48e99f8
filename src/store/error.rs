use std::io;

use thiserror::Error;

use super::layout::LayoutError;
use crate::{
    model::{ByteCount, Digest},
    spool::SpoolError,
};

/// Why the store gave no bytes, or took none.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No object of this digest (and name, where names matter) is here.
    #[error("no object {0}")]
    NotFound(Digest),
    /// Something else than a plain, singly named file stands where the object should be.
    #[error("what stands at {0} is not an object")]
    NotAnObject(Digest),
    /// The object's length is not the one its reference states.
    #[error("object {digest} has {found} bytes, not {expected}")]
    LengthMismatch {
        /// The object.
        digest: Digest,
        /// The length its reference states.
        expected: ByteCount,
        /// The length on disk.
        found: ByteCount,
    },
    /// The object's content is not what its name says.
    #[error("object {0} fails verification")]
    DigestMismatch(Digest),
    /// The object moved while it was read.
    #[error("object {0} changed during the transfer")]
    Changed(Digest),
    /// The one who wanted the bytes has gone.
    #[error("cancelled")]
    Cancelled,
    /// No room: bytes, inodes or quota of the data filesystem.
    #[error("no space left on the data filesystem")]
    Full(#[source] io::Error),
    /// A flush failed earlier or the filesystem turned read-only: the store gives what it holds, and
    /// takes nothing more until it is reopened.
    #[error("the store takes no more content")]
    Degraded,
    /// Another pass over the same object took longer than a caller may wait.
    #[error("object {0} is still being verified for somebody else")]
    Busy(Digest),
    /// The content is larger than allowed.
    #[error("content is larger than {limit}")]
    OverLimit {
        /// The ceiling.
        limit: ByteCount,
    },
    /// The filesystem lacks something the store cannot do without.
    #[error("the data filesystem cannot link unnamed files")]
    Unsupported(#[source] io::Error),
    /// No descriptor or memory was left.
    #[error("out of descriptors or memory")]
    Resource(#[source] io::Error),
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

impl StoreError {
    /// Sorts what the system said while `action` was tried.
    pub(crate) fn from_io(action: &'static str, source: io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::Full(source),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Self::Resource(source),
            Some(Errno::ROFS) => Self::Degraded,
            _ => Self::Io { action, source },
        }
    }

    /// Sorts what went wrong with a directory while `action` was tried.
    pub(crate) fn from_layout(action: &'static str, error: LayoutError) -> Self {
        if let LayoutError::Io { source, .. } | LayoutError::Full(source) = error {
            return Self::from_io(action, source);
        }
        Self::Io {
            action,
            source: io::Error::other(error),
        }
    }
}

impl From<SpoolError> for StoreError {
    fn from(error: SpoolError) -> Self {
        match error {
            SpoolError::OverLimit { limit } => Self::OverLimit { limit },
            SpoolError::Full(source) => Self::Full(source),
            SpoolError::Unsupported(source) => Self::Unsupported(source),
            SpoolError::Resource(source) => Self::Resource(source),
            SpoolError::Io(source) => Self::from_io("writing a spool", source),
        }
    }
}
