use thiserror::Error;

use super::Decision;
use crate::control::ControlError;

/// Why the ledger took or gave nothing.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Absent, or not of this session: one on purpose (I9).
    #[error("absent, or of another session")]
    NotFound,
    /// The session has as many open asks as it may have.
    #[error("the session has {most} releases to decide already")]
    TooManyAsks {
        /// How many that is.
        most: usize,
    },
    /// What the session has released and has to decide leaves no room for this.
    #[error("the session's releases have no room")]
    OverQuota {
        /// What they hold, in bytes.
        used: u64,
        /// What they may hold.
        limit: u64,
    },
    /// The key came with another request before.
    #[error("the key came with another request before")]
    KeyReused,
    /// A row is not what was written.
    #[error("the ledger is damaged: {0}")]
    Corrupt(String),
    /// The database could not be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system gave no random bits.
    #[error("no random bits")]
    NoEntropy(#[source] getrandom::Error),
}

/// Why a decision changed nothing.
#[derive(Debug, Error)]
pub enum DecideError {
    /// No such ask in this session.
    #[error("no such ask")]
    Unknown,
    /// It was decided before.
    #[error("decided already")]
    AlreadyDecided {
        /// How.
        outcome: Decision,
    },
    /// Its time is over.
    #[error("the ask has expired")]
    Expired,
    /// It was taken back: the file was asked for again and is another by now.
    #[error("the ask was withdrawn")]
    Withdrawn,
    /// The decision names other bytes than the ask.
    #[error("the decision is about other bytes")]
    OtherBytes,
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<ControlError> for DecideError {
    fn from(error: ControlError) -> Self {
        Self::Ledger(error.into())
    }
}
