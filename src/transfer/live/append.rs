use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};

use super::{Live, Signal, Told, frames};
use crate::{
    approval::{Policy, Settled},
    journal::{Appended, EventType, JournalError, NewEvent, Once, Session},
    model::{PrincipalId, Seq, SessionHandle},
    pool::PoolError,
    transfer::TransferError,
};

impl Live {
    /// Appends events and tells the session's readers, in the log's order. Goes on to its end even when
    /// the caller goes away: what is durable is told.
    ///
    /// # Errors
    /// As the journal's append.
    pub async fn append(
        self: &Arc<Self>,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
        once: Option<Once>,
    ) -> Result<Appended, TransferError> {
        let live = Arc::clone(self);
        tokio::spawn(async move {
            let _order = live.order(session).await;
            live.append_in_order(session, events, expected, once).await
        })
        .await
        .unwrap_or(Err(TransferError::Pool(PoolError::Gone)))
    }

    async fn append_in_order(
        self: &Arc<Self>,
        session: SessionHandle,
        events: Vec<NewEvent>,
        mut expected: Option<Seq>,
        once: Option<Once>,
    ) -> Result<Appended, TransferError> {
        let is = |event: &NewEvent, kinds: &[&str]| kinds.contains(&event.kind.as_str());
        let turns = events
            .iter()
            .any(|event| is(event, &["turn/start", "turn/end"]));
        let mut known = if turns || once.is_some() {
            let journal = self.parts.journal.clone();
            let now = self
                .blocking(move || Ok(journal.session(session)?.next_seq))
                .await?;
            // A repeat is answered as the first was, wherever the log stands by now.
            let wrong = expected.filter(|expected| *expected != now && once.is_none());
            if let Some(expected) = wrong {
                let present = now;
                return Err(JournalError::SeqMismatch { expected, present }.into());
            }
            Some(now)
        } else {
            None
        };
        if turns && once.is_none() {
            // What waits belongs to the turn that ends here; its second row still lies within it.
            self.with(|state, now| state.bridge.turn_moved(session, None, now));
            let rows = self.audit_in_order(session).await;
            let later = |seq: Seq| Seq::new(seq.get().saturating_add(rows));
            (expected, known) = (expected.map(later), known.map(later));
        } else {
            self.audit_in_order(session).await;
        }
        let prompts = events.iter().any(|event| is(event, &["user/message"]));
        let policy = events.iter().rev().find_map(policy_of);
        let running = events
            .iter()
            .rev()
            .find_map(|event| match event.kind.as_str() {
                "turn/start" => Some(true),
                "turn/end" => Some(false),
                _ => None,
            });
        let (appended, events, audience) = self
            .append_and_keep(session, events, expected, once)
            .await?;
        if known.is_some_and(|known| appended.first < known) {
            // The answer to an earlier request: everybody was told then.
            return Ok(appended);
        }
        self.show(session, appended.first, &events, &audience);
        if let Some(running) = running {
            let frame = frames::signal(session, &Signal::Running(running));
            self.state().hub.publish(&audience, frame);
        }
        if turns {
            self.with(|state, now| state.bridge.turn_moved(session, None, now));
        }
        if let Some(policy) = policy {
            self.with(|state, now| state.bridge.policy_changed(session, policy, now));
        }
        if turns || policy.is_some() {
            self.audit_in_order(session).await;
        }
        if prompts {
            self.prompted(session).await;
        }
        Ok(appended)
    }

    /// Shows readers what was appended.
    pub(super) fn show(
        &self,
        session: SessionHandle,
        first: Seq,
        events: &[NewEvent],
        audience: &[PrincipalId],
    ) {
        let mut state = self.state();
        for (seq, event) in (first.get()..).zip(events) {
            let frame = frames::appended(session, Seq::new(seq), event);
            state.hub.publish(audience, frame);
        }
    }

    /// The append itself; with the events for those who listen, if anybody does.
    pub(super) async fn append_and_keep(
        self: &Arc<Self>,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
        once: Option<Once>,
    ) -> Result<(Appended, Vec<NewEvent>, Vec<PrincipalId>), TransferError> {
        let (access, journal) = (self.parts.access.clone(), self.parts.journal.clone());
        let live = Arc::clone(self);
        self.blocking(move || {
            let audience = access.people(session).map(|(mut owners, host)| {
                owners.extend(host);
                owners
            })?;
            let kept = if live.state().hub.has_any(&audience) {
                events.clone()
            } else {
                Vec::new()
            };
            let appended = match once {
                None => journal.append(session, events, expected)?,
                Some(once) => journal.append_once(session, events, expected, once)?,
            };
            Ok((appended, kept, audience))
        })
        .await
    }

    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
    ) -> Result<T, TransferError> {
        self.parts.pools.control.run(work).await?
    }

    /// Writes the second audit rows that wait, and then tells the ones who asked.
    pub(super) async fn audit(self: Arc<Self>, session: SessionHandle) {
        let _order = self.order(session).await;
        self.audit_in_order(session).await;
    }

    /// As [`Live::audit`], by whoever holds the session's line; how many rows there were.
    pub(super) async fn audit_in_order(self: &Arc<Self>, session: SessionHandle) -> u64 {
        let rows = self.state().unaudited.remove(&session).unwrap_or_default();
        if rows.is_empty() {
            return 0;
        }
        let now = self.parts.clock.now();
        let events: Vec<NewEvent> = rows
            .iter()
            .map(|row| NewEvent {
                kind: kind("approval/decided"),
                time: now,
                data: data(&serde_json::json!({
                    "id": row.audit,
                    "outcome": row.outcome.as_str(),
                })),
                ignorable: true,
            })
            .collect();
        let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
        let appended = self.append_and_keep(session, events, None, None).await;
        match appended {
            Ok((appended, events, audience)) => {
                self.show(session, appended.first, &events, &audience);
                let state = self.state();
                tell(&state.slots, rows, |row| Told::Settled(Box::new(row)));
                count
            }
            Err(error) => {
                tracing::error!(%error, %session, "a decision could not be audited");
                let state = self.state();
                tell(&state.slots, rows, |_row| Told::Unaudited);
                0
            }
        }
    }

    /// Tells the readers of a session that was created.
    pub fn added(&self, session: &Session, owners: &[PrincipalId], host: PrincipalId) {
        let mut audience = owners.to_vec();
        audience.push(host);
        let mut state = self.state();
        state.hub.publish(&audience, frames::added(session.handle));
        let baseline = frames::subscribed(session.handle, -1, session.generation.get());
        state.hub.publish(&audience, baseline);
    }

    /// Tells the readers of a session what its host says of it outside its log.
    ///
    /// # Errors
    /// As the database fails.
    pub async fn signal(
        self: &Arc<Self>,
        session: SessionHandle,
        signal: Signal,
    ) -> Result<(), TransferError> {
        let _order = self.order(session).await;
        let access = self.parts.access.clone();
        let (mut audience, host) = self.blocking(move || Ok(access.people(session)?)).await?;
        audience.extend(host);
        if matches!(signal, Signal::Removed) {
            self.disconnect(session);
            self.audit_in_order(session).await;
        }
        self.state()
            .hub
            .publish(&audience, frames::signal(session, &signal));
        Ok(())
    }
}

fn tell(
    slots: &std::collections::HashMap<crate::model::InteractionHandle, super::Slot>,
    rows: Vec<Settled>,
    told: impl Fn(Settled) -> Told,
) {
    for row in rows {
        if let Some(slot) = slots.get(&row.id) {
            slot.answer.send_replace(told(row));
        }
    }
}

/// The policy an event puts in force.
fn policy_of(event: &NewEvent) -> Option<Policy> {
    (event.kind.as_str() == "approval/policy").then(|| policy_in(event.data.get()))
}

/// The policy in the data of an `approval/policy` event; what is not `ask` asks nobody.
pub(super) fn policy_in(data: &str) -> Policy {
    #[derive(serde::Deserialize)]
    struct Data {
        policy: String,
    }
    match serde_json::from_str::<Data>(data) {
        Ok(data) if data.policy == Policy::Ask.as_str() => Policy::Ask,
        _ => Policy::Never,
    }
}

pub(super) fn kind(text: &'static str) -> EventType {
    EventType::parse(text).expect("a type of ours has the form of one")
}

pub(super) fn data(value: &serde_json::Value) -> Box<RawValue> {
    to_raw_value(value).expect("a value of ours has a JSON form")
}
