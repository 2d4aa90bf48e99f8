use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use tokio::sync::watch;

use super::{
    Live, Slot,
    append::{data, kind, policy_in},
    frames,
};
use crate::{
    access::{AskInSession, Grant, random_bits},
    approval::{
        AskError, Cause, DecideError, Facts, Matter, Opening, Outcome, Policy, Putting, Settled,
        TurnMark,
    },
    journal::{Event, Journal, JournalError, NewEvent},
    model::{InteractionHandle, PrincipalId, SessionHandle},
    pool::PoolError,
    transfer::TransferError,
};

/// What the one who asked is told.
#[derive(Clone, Debug)]
pub enum Told {
    /// Nothing yet.
    Pending,
    /// How it ended; the second audit row, where there is one, is durable.
    Settled(Box<Settled>),
    /// It ended, and its second audit row could not be written: nothing was granted.
    Unaudited,
}

/// Takes an ask back when the one who asks has gone.
pub type Abort = crate::model::Cancel;

/// What is asked, by which agent.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The exact agent.
    pub agent: String,
    /// Whether it belongs to another agent.
    pub delegated: bool,
    /// What.
    pub matter: Matter,
    /// The tool, the call and the reason as they go into the audit; none for a form.
    pub audit: Option<serde_json::Value>,
    /// A shorter life than usual.
    pub life: Option<Duration>,
}

/// How a session stands, by its log.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The open turn.
    pub turn: Option<TurnMark>,
    /// The policy in force.
    pub policy: Policy,
}

impl Standing {
    /// Reads it. Blocks.
    ///
    /// # Errors
    /// As the journal's.
    pub fn read(journal: &dyn Journal, session: SessionHandle) -> Result<Self, JournalError> {
        let turn = journal.latest(session, &["turn/start", "turn/end"])?;
        let policy = journal.latest(session, &["approval/policy"])?;
        Ok(Self {
            turn: turn.as_ref().and_then(open_turn),
            // What a session without a word of its own runs under asks.
            policy: policy.map_or(Policy::Ask, |event| policy_in(event.data.get())),
        })
    }
}

/// The turn an event opens. A start that does not say its number opens turn 0.
fn open_turn(event: &Event) -> Option<TurnMark> {
    #[derive(Deserialize)]
    struct Data {
        turn: u64,
    }
    (event.kind == "turn/start").then(|| TurnMark {
        number: serde_json::from_str::<Data>(event.data.get()).map_or(0, |data| data.turn),
        start: event.seq,
    })
}

impl Live {
    /// Puts something to the people of a session. The first audit row is durable before anybody is
    /// shown it; when the one who asks goes away before it is put, nothing is put.
    ///
    /// # Errors
    /// [`TransferError::Ask`]; nothing was appended then. Otherwise as the journal's append.
    pub async fn ask(
        self: &Arc<Self>,
        grant: Grant<AskInSession>,
        asked: Asked,
        abort: Abort,
    ) -> Result<InteractionHandle, TransferError> {
        self.put(grant.session(), asked, abort).await
    }

    /// As [`Live::ask`], for a journey that has its own grant.
    pub(super) async fn put(
        self: &Arc<Self>,
        session: SessionHandle,
        asked: Asked,
        abort: Abort,
    ) -> Result<InteractionHandle, TransferError> {
        let live = Arc::clone(self);
        tokio::spawn(async move {
            let _order = live.order(session).await;
            live.audit_in_order(session).await;
            let asking = live.ask_in_order(session, asked, &abort).await;
            live.audit_in_order(session).await;
            asking
        })
        .await
        .unwrap_or(Err(TransferError::Pool(PoolError::Gone)))
    }

    async fn ask_in_order(
        self: &Arc<Self>,
        session: SessionHandle,
        asked: Asked,
        abort: &Abort,
    ) -> Result<InteractionHandle, TransferError> {
        let id = InteractionHandle::from_random(random_bits()?);
        let audit = format!("{:032x}", u128::from_be_bytes(random_bits()?));
        let (access, journal) = (self.parts.access.clone(), self.parts.journal.clone());
        let (standing, (owners, host)) = self
            .blocking(move || {
                let standing = Standing::read(journal.as_ref(), session)?;
                Ok((standing, access.people(session)?))
            })
            .await?;
        let mut audience = owners.clone();
        audience.extend(host);
        let audience: Arc<[PrincipalId]> = audience.into();
        if let Some(desk) = self.desks.known(session) {
            desk.agent_is(&asked.agent);
        }
        let audited = asked.audit.is_some();
        if audited && standing.turn.is_none() {
            return Err(AskError::NoOpenTurn.into());
        }
        if !audited && asked.delegated {
            return Err(AskError::DelegatedCaller.into());
        }
        if let Some(mut row) = asked.audit {
            if let Some(row) = row.as_object_mut() {
                row.insert("id".to_owned(), audit.clone().into());
            }
            let event = NewEvent {
                kind: kind("approval/asked"),
                time: self.parts.clock.now(),
                data: data(&row),
                ignorable: true,
            };
            let (appended, events, audience) = self
                .append_and_keep(session, vec![event], None, None)
                .await?;
            self.show(session, appended.first, &events, &audience);
        }
        let opening = Opening {
            id,
            audit,
            session,
            facts: Facts {
                agent: asked.agent,
                turn: standing.turn,
                policy: standing.policy,
                deciders: owners,
            },
            matter: asked.matter,
            life: asked.life,
            delegated: asked.delegated,
            // Looked at last, in the same step that puts it.
            aborted: false,
            at: self.parts.clock.now(),
        };
        let put = self.with(move |state, now| {
            let (answer, _first) = watch::channel(Told::Pending);
            let slot = Slot {
                session,
                audience: Arc::clone(&audience),
                audited,
                answer,
            };
            state.slots.insert(id, slot);
            state.oldest.push_back((now, id));
            let opening = Opening {
                aborted: abort.is_fired(),
                ..opening
            };
            let put = state.bridge.ask(opening, now);
            if let Putting::Pending(pending) = &put {
                let options = state.bridge.options();
                let frame = frames::requested(pending, &options.host, options.generation);
                state.hub.publish(&audience, frame);
            }
            put
        });
        if let Putting::Pending(_) = put {
            self.look();
        }
        Ok(id)
    }

    /// What became of an interaction of this session, waiting for at most `patience`.
    ///
    /// # Errors
    /// [`DecideError::Unknown`] when there is none.
    pub async fn told(
        &self,
        session: SessionHandle,
        id: InteractionHandle,
        patience: Duration,
    ) -> Result<Told, DecideError> {
        let mut answer = {
            let state = self.state();
            let slot = state.slots.get(&id).filter(|slot| slot.session == session);
            slot.ok_or(DecideError::Unknown)?.answer.subscribe()
        };
        let waited = tokio::time::timeout(patience, answer.wait_for(Told::is_final)).await;
        drop(waited.map(|told| told.map(|told| told.clone())));
        let told = answer.borrow().clone();
        Ok(told)
    }
}

impl Told {
    /// How it ended, where it did.
    #[must_use]
    pub fn end(&self) -> Option<(Outcome, Cause)> {
        match self {
            Self::Settled(settled) => Some((settled.outcome, settled.cause)),
            Self::Pending | Self::Unaudited => None,
        }
    }
}
