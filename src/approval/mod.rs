//! Live questions: ask, presence, decide, settle, withdraw.
//!
//! Promises: a decision is checked and settled in one plain function under `&mut`, so that nothing can
//! happen between the check and the settlement (I7); every interaction settles once; what settled, or
//! belongs to an earlier run, is never pending again (I6); everything is bounded (I11). Leaves to
//! others: the audit rows in the journal and who is told (`transfer`), who may ask and decide
//! (`access`).

#![forbid(unsafe_code)]

mod bridge;
mod card;
mod error;
#[cfg(test)]
mod explore;
mod presence;
mod question;
mod redact;
#[cfg(test)]
mod tests;
mod tombs;

pub use bridge::{
    Answer, Bridge, BridgeOptions, Decision, Facts, Matter, Opening, Pending, Policy, Putting,
    Settled, TurnMark,
};
pub use card::{Card, Request};
pub use error::{AskError, DecideError};
pub use presence::PRESENCE;
pub use question::{Choice, Question, Reply};

/// Untrusted text as it may be shown: without credentials, hidden characters visible, bounded.
#[must_use]
pub fn shown(text: &str) -> String {
    redact::Shown::of(text, 2048).text
}

/// How an interaction ended, in the closed vocabulary of the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// This one action may be done. The only grant there is.
    AllowedOnce,
    /// A person, or the session's policy, said no.
    Rejected,
    /// It was taken back.
    Cancelled,
    /// Nobody could answer.
    Unavailable,
    /// A form was filled in.
    Answered,
}

impl Outcome {
    /// The outcome's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllowedOnce => "allowed-once",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Unavailable => "unavailable",
            Self::Answered => "answered",
        }
    }
}

/// What ended an interaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A person decided.
    Decided,
    /// Its lifetime ended.
    Expired,
    /// The one who asked took it back.
    Aborted,
    /// Nobody who could decide was present any more.
    Presence,
    /// Its session was disconnected.
    Disconnected,
    /// The service ends.
    Disposed,
    /// Its turn ended.
    TurnEnded,
    /// Another agent took the place of the one that asked.
    AgentReplaced,
    /// The session's policy is, or became, never.
    PolicyNever,
    /// Answers are not taken here.
    NotInteractive,
    /// As many were pending as may be.
    Full,
}

impl Cause {
    /// The cause's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::Expired => "expired",
            Self::Aborted => "aborted",
            Self::Presence => "presence",
            Self::Disconnected => "disconnected",
            Self::Disposed => "disposed",
            Self::TurnEnded => "turn-ended",
            Self::AgentReplaced => "agent-replaced",
            Self::PolicyNever => "policy-never",
            Self::NotInteractive => "not-interactive",
            Self::Full => "full",
        }
    }

    /// The outcome reported to the one who asked; never a person's no for what no person said.
    const fn outcome(self) -> Outcome {
        match self {
            Self::PolicyNever => Outcome::Rejected,
            Self::Aborted | Self::TurnEnded | Self::AgentReplaced => Outcome::Cancelled,
            Self::Decided
            | Self::Expired
            | Self::Presence
            | Self::Disconnected
            | Self::Disposed
            | Self::NotInteractive
            | Self::Full => Outcome::Unavailable,
        }
    }
}
