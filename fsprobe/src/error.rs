//! Why a probe could not be carried out at all; what a subject does is never an error here.

#![forbid(unsafe_code)]

use std::io;

use thiserror::Error;

/// The probe itself failed: nothing is known about the subject.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The arena could not be made, filled or rearranged.
    #[error("could not {what} in the arena")]
    Arena {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The subject's program could not be started.
    #[error("could not start {program}")]
    Start {
        /// The program's name as given.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The host does not let us look.
    #[error("could not {what}")]
    Host {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Somebody asked us to stop.
    #[error("stopped on request")]
    Stopped,
}

/// Names the step an arena operation failed at.
pub(crate) trait InArena<T> {
    fn arena(self, what: &'static str) -> Result<T, ProbeError>;
}

impl<T, E: Into<io::Error>> InArena<T> for Result<T, E> {
    fn arena(self, what: &'static str) -> Result<T, ProbeError> {
        self.map_err(|error| ProbeError::Arena {
            what,
            source: error.into(),
        })
    }
}
