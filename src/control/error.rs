use std::{io, sync::Arc};

use rusqlite::ErrorCode;
use thiserror::Error;

/// Why the database gave or took nothing.
///
/// Cheap to copy: one failed commit answers every write that shared it.
#[derive(Clone, Debug, Error)]
pub enum ControlError {
    /// More work waits than is taken, or no reader became free in time.
    #[error("the database is busy")]
    Busy,
    /// The filesystem or its quota has no room; nothing of the write remains.
    #[error("no space left for the database")]
    Full,
    /// Another write of the same commit made SQLite give the transaction up; nothing of any of them
    /// remains, and a repeat is likely to succeed.
    #[error("the transaction was undone by another write in it")]
    Undone,
    /// A commit or flush failed, now or earlier: what it carried may or may not be there, and
    /// nothing more is taken until the database is reopened.
    #[error("the database is closed for writing after a failed flush")]
    NotDurable,
    /// The database was opened for reading only; the text says what was found at start.
    #[error("the database is open for reading only: {0}")]
    ReadOnly(Arc<str>),
    /// The database cannot be opened at all; the text says what was found.
    #[error("the database cannot be opened: {0}")]
    Damaged(Arc<str>),
    /// The database was written by a later version.
    #[error("the database has schema {found}; this program knows up to {known}")]
    Newer {
        /// The schema of the file.
        found: u32,
        /// The latest schema this program knows.
        known: u32,
    },
    /// A page or row cannot be what was written.
    #[error("the database is damaged: {0}")]
    Corrupt(Arc<str>),
    /// The operation itself panicked; it changed nothing.
    #[error("an operation on the database panicked")]
    Panicked,
    /// Anything else SQLite said.
    #[error("{action} failed")]
    Sql {
        /// What was tried.
        action: &'static str,
        /// What SQLite said.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// Anything else the system said.
    #[error("{action} failed")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
}

impl ControlError {
    /// Sorts what SQLite said while `action` was tried.
    #[must_use]
    pub fn from_sql(action: &'static str, source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt(source.to_string().into())
            }
            _ => Self::Sql {
                action,
                source: Arc::new(source),
            },
        }
    }

    /// Sorts what the system said while `action` was tried.
    pub(super) fn from_io(action: &'static str, source: io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full,
            _ => Self::Io {
                action,
                source: Arc::new(source),
            },
        }
    }
}

impl From<rusqlite::Error> for ControlError {
    fn from(source: rusqlite::Error) -> Self {
        Self::from_sql("using the database", source)
    }
}
