use std::sync::Arc;

use super::{
    Live,
    append::{data, kind, policy_in},
    ask::Standing,
};
use crate::{
    access::{DecideInSession, Grant, ReadSession},
    journal::NewEvent,
    model::SessionHandle,
    permission::{Choice, HeldChoices, InForce, PermissionError},
    pool::PoolError,
    transfer::TransferError,
};

/// What a session runs under, and what is chosen for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// What the log says; none for one put together by hand.
    pub effective: Option<Choice>,
    /// What waits for the next prompted turn.
    pub held: Option<Choice>,
    /// Changes with everything that is chosen or comes into force.
    pub revision: String,
}

/// A choice of a person.
#[derive(Clone, Debug)]
pub struct Choosing {
    /// The word.
    pub value: String,
    /// The revision it was made for; any when absent.
    pub revision: Option<String>,
    /// Whether the person was told what full access means.
    pub acknowledged: bool,
}

impl Live {
    /// What the session runs under.
    ///
    /// # Errors
    /// As the journal's and the database's.
    pub async fn permission(
        self: &Arc<Self>,
        grant: Grant<ReadSession>,
    ) -> Result<Selected, TransferError> {
        let live = Arc::clone(self);
        self.blocking(move || live.selected(grant.session())).await
    }

    /// As [`Live::permission`]. Blocks.
    ///
    /// # Errors
    /// As [`Live::permission`].
    pub fn selected(&self, session: SessionHandle) -> Result<Selected, TransferError> {
        let journal = self.parts.journal.as_ref();
        let now = InForce::read(journal, session).map_err(PermissionError::Journal)?;
        let held = self.held().of(session).map_err(PermissionError::Control)?;
        let effective = now.choice();
        Ok(Selected {
            effective,
            // What is in force already waits for nothing.
            held: held.choice.filter(|choice| effective != Some(*choice)),
            revision: format!("{}-{}", held.revision, now.changed_at),
        })
    }

    fn held(&self) -> HeldChoices {
        HeldChoices::new(Arc::clone(&self.parts.control))
    }

    /// Takes a choice: at once inside an open turn, held until the next prompted turn otherwise.
    ///
    /// # Errors
    /// [`TransferError::Permission`]; nothing was changed then.
    pub async fn choose(
        self: &Arc<Self>,
        grant: Grant<DecideInSession>,
        choosing: Choosing,
    ) -> Result<Selected, TransferError> {
        let live = Arc::clone(self);
        tokio::spawn(async move {
            let _order = live.order(grant.session()).await;
            live.choose_in_order(grant.session(), choosing).await
        })
        .await
        .unwrap_or(Err(TransferError::Pool(PoolError::Gone)))
    }

    async fn choose_in_order(
        self: &Arc<Self>,
        session: SessionHandle,
        choosing: Choosing,
    ) -> Result<Selected, TransferError> {
        self.audit_in_order(session).await;
        let live = Arc::clone(self);
        let (selected, standing) = self
            .blocking(move || {
                let standing = Standing::read(live.parts.journal.as_ref(), session)?;
                Ok((live.selected(session)?, standing))
            })
            .await?;
        if choosing
            .revision
            .as_ref()
            .is_some_and(|revision| *revision != selected.revision)
        {
            return Err(PermissionError::OtherRevision.into());
        }
        let reported = selected.held.or(selected.effective);
        let word = reported.map_or("custom", Choice::as_str);
        if choosing.value == word {
            return Ok(selected);
        }
        let choice = Choice::parse(&choosing.value).ok_or(PermissionError::Unknown)?;
        if choice == Choice::DangerFullAccess && !choosing.acknowledged {
            return Err(PermissionError::RiskNotAcknowledged.into());
        }
        if standing.turn.is_some() {
            self.put_in_force(session, choice).await?;
        } else {
            let held = self.held();
            self.blocking(move || {
                held.set(session, Some(choice))
                    .map_err(|error| PermissionError::Control(error).into())
            })
            .await?;
        }
        let live = Arc::clone(self);
        self.blocking(move || live.selected(session)).await
    }

    /// Puts a choice in force, and holds nothing any more: whatever was held is older.
    async fn put_in_force(
        self: &Arc<Self>,
        session: SessionHandle,
        choice: Choice,
    ) -> Result<(), TransferError> {
        let live = Arc::clone(self);
        let now = self.parts.clock.now();
        let events = self
            .blocking(move || {
                let in_force = InForce::read(live.parts.journal.as_ref(), session)
                    .map_err(PermissionError::Journal)?;
                let events = in_force.change_to(choice).into_iter();
                Ok(events
                    .map(|(event, key, value)| NewEvent {
                        kind: kind(event),
                        time: now,
                        data: data(&serde_json::json!({ key: value })),
                        ignorable: true,
                    })
                    .collect::<Vec<_>>())
            })
            .await?;
        if !events.is_empty() {
            let policy = events
                .iter()
                .find(|event| event.kind.as_str() == "approval/policy")
                .map(|event| policy_in(event.data.get()));
            let (appended, events, audience) =
                self.append_and_keep(session, events, None, None).await?;
            self.show(session, appended.first, &events, &audience);
            if let Some(policy) = policy {
                self.with(|state, now| state.bridge.policy_changed(session, policy, now));
                self.audit_in_order(session).await;
            }
        }
        let held = self.held();
        self.blocking(move || {
            held.set(session, None)
                .map_err(|error| PermissionError::Control(error).into())
        })
        .await
    }

    /// After a prompt of an open turn: what was held comes into force, inside that turn and before the
    /// host has its receipt, and so before the turn's request is put together.
    pub(super) async fn prompted(self: &Arc<Self>, session: SessionHandle) {
        let live = Arc::clone(self);
        let held = self
            .blocking(move || {
                let standing = Standing::read(live.parts.journal.as_ref(), session)?;
                let held = live.held().of(session).map_err(PermissionError::Control)?;
                Ok(held.choice.filter(|_| standing.turn.is_some()))
            })
            .await;
        let flushed = match held {
            Ok(None) => return,
            Ok(Some(choice)) => self.put_in_force(session, choice).await,
            Err(error) => Err(error),
        };
        if let Err(error) = flushed {
            // It stays held, and is said to be.
            tracing::error!(%error, %session, "a held permission could not be put in force");
        }
    }
}
