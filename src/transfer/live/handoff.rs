use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;

use super::{Asked, Live, Standing, Told};
use crate::{
    access::{DecideInSession, Grant},
    approval::{Matter, Outcome, Request},
    handoff::{self, Handoff, HandoffError, Offer, Receipt, Source},
    model::{Cancel, Digest, SessionHandle},
    pool::PoolError,
    transfer::TransferError,
};

/// What people are told wants to act.
const TOOL: &str = "local-handoff";
/// Longer than any confirmation waits.
const PATIENCE: Duration = Duration::from_mins(11);

/// Who takes what is handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executors {
    /// Nobody: as in production.
    #[default]
    None,
    /// The simulator, which does nothing: for authors of clients.
    Simulator,
}

/// A session's offers, where there is an executor: only [`Live::handoff`] makes one.
#[derive(Debug)]
pub struct OpenDesk {
    live: Arc<Live>,
    session: SessionHandle,
    desk: Arc<Handoff>,
}

impl Live {
    /// The session's offers.
    ///
    /// # Errors
    /// [`HandoffError::ExecutorUnavailable`] without an executor: before anything else is looked at.
    pub fn handoff(
        self: &Arc<Self>,
        grant: &Grant<DecideInSession>,
    ) -> Result<OpenDesk, HandoffError> {
        let desk = self.desks.of(grant.session());
        desk.ready()?;
        Ok(OpenDesk {
            live: Arc::clone(self),
            session: grant.session(),
            desk,
        })
    }

    /// Whether anything is taken, if only to do nothing with it.
    #[must_use]
    pub const fn executors(&self) -> Executors {
        self.executors
    }
}

impl OpenDesk {
    /// Offers an action of `agent` under the turn that is open now.
    ///
    /// # Errors
    /// [`TransferError::Handoff`]; otherwise as the journal fails.
    pub async fn offer(&self, agent: String, intent: &[u8]) -> Result<Offer, TransferError> {
        let _order = self.live.order(self.session).await;
        // One that something else waits for is the session's agent, and no other takes its place here.
        if self.waiting().is_some_and(|present| present != agent) {
            return Err(HandoffError::ScopeStale { field: "agent" }.into());
        }
        self.look(Some(agent)).await?;
        let clock = &self.live.parts.clock;
        Ok(self.desk.offer(intent, clock.moment(), clock.now())?)
    }

    /// The offers that are kept, and how each stands now.
    ///
    /// # Errors
    /// As the journal fails.
    pub async fn offers(&self) -> Result<Vec<(Offer, handoff::Standing)>, TransferError> {
        let _order = self.live.order(self.session).await;
        self.look(None).await?;
        Ok(self.desk.offers(self.live.now()))
    }

    /// Whether the offer could be executed now; changes nothing.
    ///
    /// # Errors
    /// [`TransferError::Handoff`] with why it could not.
    pub async fn validate(&self, id: u64, digest: &Digest) -> Result<Offer, TransferError> {
        let _order = self.live.order(self.session).await;
        self.look(None).await?;
        Ok(self.desk.validate(id, digest, self.live.now())?)
    }

    /// Puts the plan to the session's people, and hands the action to the simulator if they allow it.
    /// Goes on to its end even when the caller goes away.
    ///
    /// # Errors
    /// [`TransferError::Handoff`]; nothing was dispatched then.
    pub async fn execute(
        self,
        id: u64,
        digest: Digest,
        request: String,
    ) -> Result<Receipt, TransferError> {
        tokio::spawn(async move {
            let offer = {
                let _order = self.live.order(self.session).await;
                self.look(None).await?;
                self.desk.begin(id, &digest, self.live.now())?
            };
            let confirmed = self.confirm(&offer).await;
            let _order = self.live.order(self.session).await;
            self.look(None).await?;
            let clock = &self.live.parts.clock;
            let now = (clock.moment(), clock.now());
            Ok(self.desk.finish(&offer, &request, confirmed, now)?)
        })
        .await
        .unwrap_or(Err(TransferError::Pool(PoolError::Gone)))
    }

    /// Takes an offer back.
    ///
    /// # Errors
    /// [`TransferError::Handoff`] when there was nothing to take back.
    pub async fn cancel(&self, id: u64, digest: &Digest) -> Result<(), TransferError> {
        let _order = self.live.order(self.session).await;
        self.look(None).await?;
        Ok(self.desk.cancel(id, digest)?)
    }

    /// Asks the session's people through the one door there is for decisions; none when nobody could be
    /// asked, or nobody answered.
    async fn confirm(&self, offer: &Offer) -> Option<bool> {
        let plan = offer.intent.plan();
        let request = Request {
            tool: TOOL.to_owned(),
            call: None,
            reason: Some(plan.clone()),
            display_reason: BTreeMap::new(),
        };
        let asked = Asked {
            agent: offer.source.agent.clone(),
            delegated: false,
            matter: Matter::approval(&request, &self.live.locale()).ok()?,
            audit: Some(json!({"toolName": TOOL, "reason": plan})),
            life: None,
        };
        let put = self.live.put(self.session, asked, Cancel::new()).await;
        let id = put
            .inspect_err(|error| tracing::debug!(%error, "nobody could be asked to confirm"))
            .ok()?;
        let told = self.live.told(self.session, id, PATIENCE).await.ok()?;
        let Told::Settled(settled) = told else {
            return None;
        };
        match settled.outcome {
            Outcome::AllowedOnce => Some(true),
            Outcome::Rejected => Some(false),
            Outcome::Cancelled | Outcome::Unavailable | Outcome::Answered => None,
        }
    }

    /// The agent something of the session waits for.
    fn waiting(&self) -> Option<String> {
        let pending = self.live.pending(self.session);
        pending.into_iter().next().map(|one| one.agent)
    }

    /// Tells the desk what is true now. Whoever holds the session's line does it, so that it stays true
    /// until the line is given up.
    async fn look(&self, agent: Option<String>) -> Result<(), TransferError> {
        let (journal, session) = (self.live.parts.journal.clone(), self.session);
        let read = move || Ok(Standing::read(journal.as_ref(), session)?);
        let standing = self.live.blocking(read).await?;
        let identity = &self.live.parts.identity;
        let agent = agent.or_else(|| self.desk.agent());
        let source = standing.turn.zip(agent).map(|(turn, agent)| Source {
            host: identity.instance.clone(),
            session,
            agent,
            turn,
            bridge_generation: identity.bridge_generation,
        });
        self.desk.source_is(source);
        Ok(())
    }
}
