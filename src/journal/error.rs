use thiserror::Error;

use crate::model::{AttachmentId, ByteCount, LogGeneration, Seq};

/// Why a journal gave or took nothing.
#[derive(Debug, Error)]
pub enum JournalError {
    /// No such session, event or reference.
    #[error("no such session, event or reference")]
    NotFound,
    /// The host already has a session of this id.
    #[error("a session of this id exists")]
    Exists,
    /// The address was made for another numbering of the log.
    #[error("the log is at generation {present}, not {asked}")]
    StaleGeneration {
        /// The generation of the address.
        asked: LogGeneration,
        /// The generation the log has now.
        present: LogGeneration,
    },
    /// The log's next seq is not the one the caller expects.
    #[error("the next seq is {present}, not {expected}")]
    SeqMismatch {
        /// What the caller expects.
        expected: Seq,
        /// What it is.
        present: Seq,
    },
    /// The key came before with another request.
    #[error("the key was used for another request")]
    KeyReused,
    /// An event refers to content this session neither uploaded nor refers to.
    #[error("the session has no content {0} under this name and length")]
    UnknownReference(AttachmentId),
    /// An event or listing breaks a bound; the text says which.
    #[error("refused: {0}")]
    Refused(String),
    /// The session's quota has no room.
    #[error("the session holds {used} of {limit}; {asked} more do not fit")]
    OverQuota {
        /// What the session holds.
        used: ByteCount,
        /// What it may hold.
        limit: ByteCount,
        /// What was asked for.
        asked: ByteCount,
    },
    /// The log is damaged; the text names the row and what is wrong with it.
    #[error("the log is damaged: {0}")]
    Corrupt(String),
    /// A flush failed, now or earlier; nothing more is taken until the journal is reopened.
    #[error("the journal is closed for writing after a failed flush")]
    NotDurable,
    /// The database has no room.
    #[error("no space left for the journal")]
    Full,
    /// More work waits than the journal takes.
    #[error("the journal is busy")]
    Busy,
    /// Anything else the database or the system said.
    #[error("{action} failed")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
