use crate::{
    approval::TurnMark,
    model::{Digest, Digester, Moment, SessionHandle, Timestamp},
};

use super::Intent;

/// Where an action comes from, as the service knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The host.
    pub host: String,
    /// The session.
    pub session: SessionHandle,
    /// The exact agent.
    pub agent: String,
    /// The turn.
    pub turn: TurnMark,
    /// The run of the bridge.
    pub bridge_generation: u64,
}

/// Where it would go: an executor, and which of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The executor.
    pub id: String,
    /// Its connection.
    pub generation: u64,
}

/// An action, bound to everything it was offered under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its number.
    pub id: u64,
    /// What would be done.
    pub intent: Intent,
    /// Where it comes from.
    pub source: Source,
    /// Where it would go.
    pub target: Target,
    /// When it ends, by the time of day; the digest covers it.
    pub expires_at: Timestamp,
    /// The digest of all of that.
    pub digest: Digest,
    pub(super) ends: Moment,
}

/// Says what the digest is about, so that it cannot be taken for another.
const DOMAIN: &[u8] = b"holdfast handoff offer 1\0";

/// The digest of the intent and every fact it is bound to: each with its length before it.
pub(super) fn digest(
    intent: &Intent,
    source: &Source,
    target: &Target,
    expires_at: Timestamp,
) -> Digest {
    let mut digester = Digester::default();
    digester.update(DOMAIN);
    for fact in [
        intent.path(),
        &intent.max_bytes().to_string(),
        &source.host,
        &source.session.to_string(),
        &source.agent,
        &source.turn.number.to_string(),
        &source.turn.start.get().to_string(),
        &source.bridge_generation.to_string(),
        &target.id,
        &target.generation.to_string(),
        &expires_at.as_millis().to_string(),
    ] {
        let length = u64::try_from(fact.len()).unwrap_or(u64::MAX);
        digester.update(&length.to_be_bytes());
        digester.update(fact.as_bytes());
    }
    digester.finish()
}
