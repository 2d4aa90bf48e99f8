use thiserror::Error;

use crate::{control::ControlError, journal::JournalError};

/// Why access made no grant.
#[derive(Debug, Error)]
pub enum AccessError {
    /// No valid token, or a code that was redeemed, has expired or never was.
    #[error("no valid credential")]
    Unauthenticated,
    /// Absent, or not the caller's to know about: the two are one on purpose (I9).
    #[error("absent, or hidden from the caller")]
    Hidden,
    /// The caller may see the object and may not do this with it.
    #[error("not allowed for this caller")]
    Denied,
    /// The caller has as many tickets as it may have.
    #[error("the caller has {most} tickets already")]
    TooManyTickets {
        /// How many that is.
        most: usize,
    },
    /// A session was to be owned by somebody who is no user here.
    #[error("no such owner")]
    UnknownOwner,
    /// A statement about principals that cannot be taken; the text says why.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// The journal could not say whether a session has a reference.
    #[error("looking up a reference failed")]
    Journal(#[source] JournalError),
    /// The database could not be asked.
    #[error("asking the database failed")]
    Unavailable(#[source] ControlError),
    /// The system gave no random bits.
    #[error("no random bits")]
    NoEntropy(#[source] getrandom::Error),
}

impl From<ControlError> for AccessError {
    fn from(error: ControlError) -> Self {
        Self::Unavailable(error)
    }
}

impl From<JournalError> for AccessError {
    fn from(error: JournalError) -> Self {
        if matches!(error, JournalError::NotFound) {
            return Self::Hidden;
        }
        Self::Journal(error)
    }
}
