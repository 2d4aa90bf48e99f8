use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use subtle::ConstantTimeEq as _;

use super::{
    Executor, HandoffError, Intent, Offer, Outcome, Receipt, SIMULATION, Simulation, Source,
    Target, Verdict, offer,
};
use crate::model::{Digest, Moment, Timestamp};

/// The most offers kept, retired ones included.
pub const MOST_OFFERS: usize = 64;
/// How long an offer stands.
const LIFE: Duration = Duration::from_mins(2);

/// The trusted question to the person. A member of a message is never an answer to it.
pub trait Confirm {
    /// Whether the person says yes to exactly this; none when nobody could be asked.
    fn confirm(&self, offer: &Offer) -> Option<bool>;
}

/// How an offer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It can be executed.
    Offered,
    /// The person is being asked.
    Asked,
    /// It was dispatched, once.
    Done(Receipt),
    /// It is over.
    Retired(HandoffError),
}

#[derive(Clone, Debug)]
struct Entry {
    offer: Offer,
    standing: Standing,
}

struct Inner {
    executor: Option<Arc<dyn Simulation>>,
    target: Option<Target>,
    source: Option<Source>,
    offers: BTreeMap<u64, Entry>,
    next: u64,
    disposed: bool,
}

/// The offers of one session and what became of them. Every check and the retirement that follows it
/// are one step under one lock; the lock is not held while a person is asked.
pub struct Handoff(Mutex<Inner>);

impl std::fmt::Debug for Handoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handoff").finish_non_exhaustive()
    }
}

impl Handoff {
    /// As in production: without an executor.
    #[must_use]
    pub fn without_executor() -> Self {
        Self(Mutex::new(Inner {
            executor: None,
            target: None,
            source: None,
            offers: BTreeMap::new(),
            next: 1,
            disposed: false,
        }))
    }

    /// With a simulator, for authors of clients and tests.
    ///
    /// # Errors
    /// [`HandoffError::ExecutorKindRefused`] for any other kind.
    pub fn with(executor: Executor, simulation: Arc<dyn Simulation>) -> Result<Self, HandoffError> {
        if executor.kind != SIMULATION {
            return Err(HandoffError::ExecutorKindRefused);
        }
        let handoff = Self::without_executor();
        {
            let mut inner = handoff.inner();
            inner.executor = Some(simulation);
            inner.target = Some(executor.target);
        }
        Ok(handoff)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is an executor at all; asked before anything of a request is looked at.
    ///
    /// # Errors
    /// [`HandoffError::ExecutorUnavailable`], or [`HandoffError::Disposed`].
    pub fn ready(&self) -> Result<(), HandoffError> {
        self.inner().ready().map(|_target| ())
    }

    /// What is true of the source now, none when no turn is open: a new turn, agent, host or bridge ends
    /// what was offered under another.
    pub fn source_is(&self, source: Option<Source>) {
        let mut inner = self.inner();
        inner.source = source;
        inner.overtake();
    }

    /// The executor is connected like this now, or not at all.
    pub fn target_is(&self, target: Option<Target>) {
        let mut inner = self.inner();
        inner.target = target;
        inner.overtake();
    }

    /// The agent the offers come from, as far as one is known.
    #[must_use]
    pub fn agent(&self) -> Option<String> {
        let inner = self.inner();
        inner.source.as_ref().map(|source| source.agent.clone())
    }

    /// The session's agent is this one now.
    pub fn agent_is(&self, agent: &str) {
        let mut inner = self.inner();
        if let Some(source) = &mut inner.source {
            agent.clone_into(&mut source.agent);
        }
        inner.overtake();
    }

    /// The offers that are kept, oldest first, and how each stands.
    #[must_use]
    pub fn offers(&self, now: Moment) -> Vec<(Offer, Standing)> {
        let inner = self.inner();
        let each = inner.offers.values().map(|entry| {
            let late = entry.over().is_ok() && now >= entry.offer.ends;
            let standing = if late {
                Standing::Retired(HandoffError::OfferExpired)
            } else {
                entry.standing.clone()
            };
            (entry.offer.clone(), standing)
        });
        each.collect()
    }

    /// Offers an action.
    ///
    /// # Errors
    /// [`HandoffError`]; without an executor before anything is looked at.
    pub fn offer(&self, intent: &[u8], now: Moment, at: Timestamp) -> Result<Offer, HandoffError> {
        let mut inner = self.inner();
        let target = inner.ready()?;
        let source = inner
            .source
            .clone()
            .ok_or(HandoffError::ScopeStale { field: "turn" })?;
        let intent = Intent::parse(intent)?;
        let expires_at = at.after(LIFE);
        let offer = Offer {
            id: inner.next,
            digest: offer::digest(&intent, &source, &target, expires_at),
            intent,
            source,
            target,
            expires_at,
            ends: now.after(LIFE),
        };
        inner.next = inner.next.saturating_add(1);
        let entry = Entry {
            offer: offer.clone(),
            standing: Standing::Offered,
        };
        inner.offers.insert(offer.id, entry);
        while inner.offers.len() > MOST_OFFERS {
            inner.offers.pop_first();
        }
        Ok(offer)
    }

    /// Whether the offer could be executed now; changes nothing.
    ///
    /// # Errors
    /// Why it could not.
    pub fn validate(&self, id: u64, digest: &Digest, now: Moment) -> Result<Offer, HandoffError> {
        let inner = self.inner();
        inner.ready()?;
        inner.live(id, digest, &Standing::Offered, now).cloned()
    }

    /// The first half of an execution: the offer exactly as it is bound, for the person to be asked
    /// about. One call gets it.
    ///
    /// # Errors
    /// [`HandoffError`]; nothing was changed then.
    pub fn begin(&self, id: u64, digest: &Digest, now: Moment) -> Result<Offer, HandoffError> {
        let mut inner = self.inner();
        inner.ready()?;
        let offer = inner.live(id, digest, &Standing::Offered, now)?.clone();
        inner.stands(id, Standing::Asked);
        Ok(offer)
    }

    /// The second half, after the person was asked: checks everything again, retires the offer, and only
    /// then dispatches it. `request` is the caller's own name for the execution.
    ///
    /// A receipt whose outcome is not known says that the offer may have been taken; it is never tried
    /// again.
    ///
    /// # Errors
    /// [`HandoffError`]; nothing was dispatched then.
    pub fn finish(
        &self,
        offer: &Offer,
        request: &str,
        confirmed: Option<bool>,
        (now, at): (Moment, Timestamp),
    ) -> Result<Receipt, HandoffError> {
        let mut inner = self.inner();
        let id = offer.id;
        let checked = inner.ready().and_then(|_target| {
            let offer = inner.live(id, &offer.digest, &Standing::Asked, now)?;
            match confirmed {
                Some(true) => Ok(offer.clone()),
                Some(false) => Err(HandoffError::ConfirmationDeclined),
                None => Err(HandoffError::ConfirmationUnavailable),
            }
        });
        let offer = match checked {
            Ok(offer) => offer,
            Err(error) => {
                inner.retire(id, error);
                return Err(error);
            }
        };
        // Before the dispatch: a crash between the two loses an action and never doubles one.
        inner.retire(id, HandoffError::OutcomeUnknown);
        let taken = inner.executor.as_ref().map(|one| one.take(&offer));
        let receipt = Receipt {
            offer: id,
            request: request.to_owned(),
            digest: offer.digest,
            target: offer.target,
            outcome: match taken {
                Some(Verdict::Taken) => Outcome::Simulated,
                Some(Verdict::Unknown) | None => Outcome::Unknown,
            },
            issued_at: at,
        };
        inner.stands(id, Standing::Done(receipt.clone()));
        Ok(receipt)
    }

    /// Both halves, with the person asked between them.
    ///
    /// # Errors
    /// As both.
    pub fn execute(
        &self,
        id: u64,
        digest: &Digest,
        request: &str,
        confirm: &dyn Confirm,
        clock: &dyn Fn() -> (Moment, Timestamp),
    ) -> Result<Receipt, HandoffError> {
        let offer = self.begin(id, digest, clock().0)?;
        // The person sees what is bound, whatever the caller did to its own copy.
        let confirmed = confirm.confirm(&offer);
        self.finish(&offer, request, confirmed, clock())
    }

    /// Takes an offer back.
    ///
    /// # Errors
    /// [`HandoffError::OfferUnknown`], or what retired it before.
    pub fn cancel(&self, id: u64, digest: &Digest) -> Result<(), HandoffError> {
        let mut inner = self.inner();
        inner.ready()?;
        inner.named(id, digest)?.over()?;
        inner.retire(id, HandoffError::OfferRetired);
        Ok(())
    }

    /// Ends everything.
    pub fn dispose(&self) {
        let mut inner = self.inner();
        inner.disposed = true;
        inner.offers.clear();
    }
}

impl Entry {
    /// What retired it, if anything did.
    const fn over(&self) -> Result<(), HandoffError> {
        match &self.standing {
            Standing::Offered | Standing::Asked => Ok(()),
            Standing::Done(receipt) => Err(match receipt.outcome {
                Outcome::Simulated => HandoffError::OfferRetired,
                Outcome::Unknown => HandoffError::OutcomeUnknown,
            }),
            Standing::Retired(error) => Err(*error),
        }
    }
}

impl Inner {
    fn ready(&self) -> Result<Target, HandoffError> {
        if self.disposed {
            return Err(HandoffError::Disposed);
        }
        match (&self.executor, &self.target) {
            (Some(_), Some(target)) => Ok(target.clone()),
            _ => Err(HandoffError::ExecutorUnavailable),
        }
    }

    /// The offer of this number, if the digest is its own.
    fn named(&self, id: u64, digest: &Digest) -> Result<&Entry, HandoffError> {
        let entry = self.offers.get(&id).ok_or(HandoffError::OfferUnknown)?;
        let same: bool = entry
            .offer
            .digest
            .as_bytes()
            .ct_eq(digest.as_bytes())
            .into();
        if same {
            Ok(entry)
        } else {
            Err(HandoffError::DigestMismatch)
        }
    }

    /// The offer, if it stands as it should and everything it is bound to still holds.
    fn live(
        &self,
        id: u64,
        digest: &Digest,
        standing: &Standing,
        now: Moment,
    ) -> Result<&Offer, HandoffError> {
        let entry = self.named(id, digest)?;
        entry.over()?;
        if now >= entry.offer.ends {
            return Err(HandoffError::OfferExpired);
        }
        self.scope(&entry.offer)?;
        // The person is asked about an offer once.
        if entry.standing != *standing {
            return Err(HandoffError::OfferRetired);
        }
        Ok(&entry.offer)
    }

    /// Whether everything the offer is bound to is as it was.
    fn scope(&self, offer: &Offer) -> Result<(), HandoffError> {
        let stale = |field| Err(HandoffError::ScopeStale { field });
        let Some(source) = &self.source else {
            return stale("turn");
        };
        let then = &offer.source;
        if source.host != then.host {
            stale("host")
        } else if source.session != then.session {
            stale("session")
        } else if source.agent != then.agent {
            stale("agent")
        } else if source.turn != then.turn {
            stale("turn")
        } else if source.bridge_generation != then.bridge_generation {
            stale("bridgeGeneration")
        } else if self.target.as_ref() != Some(&offer.target) {
            stale("executor")
        } else {
            Ok(())
        }
    }

    /// Retires what was offered under other facts, for good: they may look the same again later.
    fn overtake(&mut self) {
        let stale: Vec<(u64, HandoffError)> = self
            .offers
            .iter()
            .filter(|(_, entry)| entry.over().is_ok())
            .filter_map(|(id, entry)| Some((*id, self.scope(&entry.offer).err()?)))
            .collect();
        for (id, error) in stale {
            self.retire(id, error);
        }
    }

    fn retire(&mut self, id: u64, error: HandoffError) {
        if self.offers.get(&id).is_some_and(|one| one.over().is_ok()) {
            self.stands(id, Standing::Retired(error));
        }
    }

    fn stands(&mut self, id: u64, standing: Standing) {
        if let Some(entry) = self.offers.get_mut(&id) {
            entry.standing = standing;
        }
    }
}
