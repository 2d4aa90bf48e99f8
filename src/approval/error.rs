use thiserror::Error;

use super::{Cause, Outcome};

/// Why a decision changed nothing. One variant for each row that must stay distinguishable.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecideError {
    /// No such interaction in this session, now or lately.
    #[error("no such interaction")]
    Unknown,
    /// The answer is for a session other than the one it was sent to.
    #[error("the answer names another session")]
    ForeignSession,
    /// Somebody decided first.
    #[error("it was decided already: {}", .recorded.as_str())]
    AlreadyDecided {
        /// What was decided.
        recorded: Outcome,
    },
    /// Its lifetime is over.
    #[error("its lifetime is over")]
    Expired,
    /// It was taken back.
    #[error("it was withdrawn: {}", .cause.as_str())]
    Withdrawn {
        /// Why.
        cause: Cause,
    },
    /// The answer was made for another run of the service.
    #[error("the answer is for another run")]
    StaleGeneration,
    /// The answer was made for another host.
    #[error("the answer is for another host")]
    HostMismatch,
    /// The turn is over, or another one.
    #[error("the turn is another")]
    StaleTurn,
    /// Another agent has taken the place of the one that asked.
    #[error("the agent was replaced")]
    AgentReplaced,
    /// The session asks nobody any more.
    #[error("the session's policy is never")]
    PolicyNever,
    /// The ids of the answer belong to different interactions.
    #[error("the ids do not belong together")]
    Correlation,
    /// The decision is not one of the choices.
    #[error("the decision was not offered")]
    NotOffered,
    /// To allow, there would have to be something readable to allow.
    #[error("nothing readable says what would be allowed")]
    DetailsUnavailable,
    /// Answers are not taken: the bridge is off, or nobody is present.
    #[error("not interactive")]
    NotInteractive,
    /// The answers do not fit the questions; the text says how.
    #[error("{0}")]
    BadAnswer(&'static str),
}

/// Why a question or an approval was not put to anybody.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AskError {
    /// No turn of the session is open.
    #[error("no turn is open")]
    NoOpenTurn,
    /// The agent that asks belongs to another agent.
    #[error("the caller is owned by another agent")]
    DelegatedCaller,
    /// A part of the ask breaks a rule; the text says which.
    #[error("{0}")]
    Refused(&'static str),
    /// As many interactions are pending as may be.
    #[error("too many interactions are pending")]
    Full,
}
