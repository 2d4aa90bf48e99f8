//! Handing an action to somebody's own machine, as a protocol with a simulator: offer, confirm, check
//! again, retire, dispatch once.
//!
//! Promises: nothing is executed and no file is opened, and every receipt says so (I8); without an
//! executor everything is refused before any action, and no member of a message changes that; an offer is
//! dispatched at most once, retired before it is. Leaves to others: the wire. A real executor would be a
//! new module and a new decision.

#![forbid(unsafe_code)]

mod desk;
mod desks;
mod intent;
mod offer;
mod receipt;
mod simulator;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub use desk::{Confirm, Handoff, MOST_OFFERS, Standing};
pub use desks::Desks;
pub use intent::{Intent, MAX_BYTES};
pub use offer::{Offer, Source, Target};
pub use receipt::{Outcome, Receipt};
pub use simulator::{Executor, SIMULATION, Simulation, Simulator, Verdict};

/// Why nothing was handed over.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HandoffError {
    /// There is no executor here.
    #[error("no executor")]
    ExecutorUnavailable,
    /// The executor is of a kind that is not taken.
    #[error("only a simulation is taken")]
    ExecutorKindRefused,
    /// The intent is not the one form there is.
    #[error("not an intent")]
    IntentInvalid,
    /// The path is refused.
    #[error("the path is refused")]
    PathRefused,
    /// The read has no bound, or one that is none.
    #[error("the read has no bound")]
    BoundMissing,
    /// The intent has a member intents do not have.
    #[error("an unknown member")]
    UnknownMember,
    /// No such offer.
    #[error("no such offer")]
    OfferUnknown,
    /// The offer was used, declined, taken back, or overtaken.
    #[error("the offer is retired")]
    OfferRetired,
    /// The offer's time is over.
    #[error("the offer has expired")]
    OfferExpired,
    /// Something the offer is bound to is another by now.
    #[error("{field} is another by now")]
    ScopeStale {
        /// Which fact.
        field: &'static str,
    },
    /// The digest is not the offer's.
    #[error("the digest is another")]
    DigestMismatch,
    /// The person said no.
    #[error("not confirmed")]
    ConfirmationDeclined,
    /// Nobody could be asked.
    #[error("nobody could confirm")]
    ConfirmationUnavailable,
    /// It was dispatched, and what came of it is not known: it is never tried again.
    #[error("the outcome is not known")]
    OutcomeUnknown,
    /// The handoff was ended.
    #[error("ended")]
    Disposed,
}

impl HandoffError {
    /// The error's word.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ExecutorUnavailable => "executor-unavailable",
            Self::ExecutorKindRefused => "executor-kind-refused",
            Self::IntentInvalid => "intent-invalid",
            Self::PathRefused => "path-refused",
            Self::BoundMissing => "bound-missing",
            Self::UnknownMember => "unknown-member",
            Self::OfferUnknown => "offer-unknown",
            Self::OfferRetired => "offer-retired",
            Self::OfferExpired => "offer-expired",
            Self::ScopeStale { .. } => "scope-stale",
            Self::DigestMismatch => "digest-mismatch",
            Self::ConfirmationDeclined => "confirmation-declined",
            Self::ConfirmationUnavailable => "confirmation-unavailable",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::Disposed => "disposed",
        }
    }
}
