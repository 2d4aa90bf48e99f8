use std::{collections::BTreeMap, sync::Mutex, sync::PoisonError, time::Duration};

use subtle::ConstantTimeEq as _;

use super::{HandoffError, Intent};
use crate::{
    approval::TurnMark,
    model::{Digest, Digester, Moment, SessionHandle, Timestamp},
};

/// The most offers kept, retired ones included.
const MOST: usize = 1024;
/// How long an offer stands.
const LIFE: Duration = Duration::from_mins(2);

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

/// An executor as it introduces itself.
#[derive(Clone, Debug)]
pub struct Executor {
    /// What kind it is: `simulation`, or it is refused.
    pub kind: String,
    /// Who and which connection.
    pub target: Target,
}

/// What an executor may do with an action: nothing.
pub trait Simulation: Send + Sync {
    /// Takes the action, and says what came of it. It is given no way to open anything.
    fn take(&self, offer: &Offer) -> Verdict;
}

/// What came of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken.
    Taken,
    /// The executor failed, went away, or did not answer.
    Unknown,
}

/// The trusted question to the person. A member of a message is never an answer to it.
pub trait Confirm {
    /// Whether the person says yes to exactly this; none when nobody could be asked.
    fn confirm(&self, offer: &Offer) -> Option<bool>;
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
    ends: Moment,
}

/// How a dispatch ended, in a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The simulator took the action.
    Simulated,
    /// Nobody knows.
    Unknown,
}

/// Evidence of a simulation. It says nothing of the file: nobody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The offer.
    pub offer: u64,
    /// The offer's digest.
    pub digest: Digest,
    /// The executor and its connection.
    pub target: Target,
    /// What came of it.
    pub outcome: Outcome,
    /// When.
    pub issued_at: Timestamp,
}

impl Receipt {
    /// Always.
    #[must_use]
    pub const fn simulated(&self) -> bool {
        true
    }

    /// Never.
    #[must_use]
    pub const fn executed(&self) -> bool {
        false
    }

    /// The receipt as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "receiptVersion": 1,
            "offerId": self.offer,
            "actionDigest": self.digest.to_string(),
            "executor": {
                "id": self.target.id, "kind": "simulation", "generation": self.target.generation,
            },
            "simulated": self.simulated(),
            "executed": self.executed(),
            "outcome": match self.outcome {
                Outcome::Simulated => "simulated",
                Outcome::Unknown => "unknown",
            },
            "issuedAt": self.issued_at.as_millis(),
        })
    }
}

#[derive(Clone, Debug)]
enum State {
    Offered(Box<Offer>),
    Retired(HandoffError),
}

struct Inner {
    executor: Option<Box<dyn Simulation>>,
    target: Option<Target>,
    source: Option<Source>,
    offers: BTreeMap<u64, State>,
    next: u64,
    disposed: bool,
}

/// Offers and what became of them. Every check and the retirement that follows it are one step under
/// one lock; the lock is not held while a person is asked.
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
    pub fn with(executor: Executor, simulation: Box<dyn Simulation>) -> Result<Self, HandoffError> {
        if executor.kind != "simulation" {
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

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is true of the source now: a new turn, agent, host or bridge ends what was offered under
    /// another.
    pub fn source_is(&self, source: Source) {
        let mut inner = self.inner();
        inner.source = Some(source);
        inner.overtake();
    }

    /// The executor is connected like this now, or not at all.
    pub fn target_is(&self, target: Option<Target>) {
        let mut inner = self.inner();
        inner.target = target;
        inner.overtake();
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
            .ok_or(HandoffError::ScopeStale { field: "source" })?;
        let intent = Intent::parse(intent)?;
        let expires_at = at.after(LIFE);
        let offer = Offer {
            id: inner.next,
            digest: digest(&intent, &source, &target, expires_at),
            intent,
            source,
            target,
            expires_at,
            ends: now.after(LIFE),
        };
        inner.next = inner.next.saturating_add(1);
        inner
            .offers
            .insert(offer.id, State::Offered(Box::new(offer.clone())));
        while inner.offers.len() > MOST {
            inner.offers.pop_first();
        }
        Ok(offer)
    }

    /// Whether the offer could be executed now; changes nothing.
    ///
    /// # Errors
    /// Why it could not.
    pub fn validate(&self, id: u64, digest: &Digest, now: Moment) -> Result<(), HandoffError> {
        let inner = self.inner();
        inner.ready()?;
        inner.live(id, digest, now).map(|_offer| ())
    }

    /// Asks the person, checks everything again, retires the offer, and only then dispatches it.
    ///
    /// # Errors
    /// [`HandoffError`]; after [`HandoffError::OutcomeUnknown`] it may have been taken, and is never
    /// tried again.
    pub fn execute(
        &self,
        id: u64,
        digest: &Digest,
        confirm: &dyn Confirm,
        clock: &dyn Fn() -> (Moment, Timestamp),
    ) -> Result<Receipt, HandoffError> {
        let offer = {
            let inner = self.inner();
            inner.ready()?;
            inner.live(id, digest, clock().0)?.clone()
        };
        // The person sees what is bound, whatever the caller did to its own copy.
        let confirmed = confirm.confirm(&offer);
        let mut inner = self.inner();
        let checked = match confirmed {
            Some(true) => inner
                .ready()
                .and_then(|_target| inner.live(id, digest, clock().0).cloned()),
            Some(false) => Err(HandoffError::ConfirmationDeclined),
            None => Err(HandoffError::ConfirmationUnavailable),
        };
        let offer = match checked {
            Ok(offer) => offer,
            Err(error) => {
                inner.retire(id, error);
                return Err(error);
            }
        };
        // Before the dispatch: a crash between the two loses an action and never doubles one.
        inner.retire(id, HandoffError::OfferRetired);
        let verdict = inner
            .executor
            .as_ref()
            .map_or(Verdict::Unknown, |one| one.take(&offer));
        if verdict == Verdict::Unknown {
            inner
                .offers
                .insert(id, State::Retired(HandoffError::OutcomeUnknown));
            return Err(HandoffError::OutcomeUnknown);
        }
        Ok(Receipt {
            offer: id,
            digest: offer.digest,
            target: offer.target,
            outcome: Outcome::Simulated,
            issued_at: clock().1,
        })
    }

    /// Takes an offer back.
    ///
    /// # Errors
    /// [`HandoffError::OfferUnknown`], or what retired it before.
    pub fn cancel(&self, id: u64) -> Result<(), HandoffError> {
        let mut inner = self.inner();
        inner.ready()?;
        match inner.offers.get(&id) {
            None => Err(HandoffError::OfferUnknown),
            Some(State::Retired(error)) => Err(*error),
            Some(State::Offered(_)) => {
                inner.retire(id, HandoffError::OfferRetired);
                Ok(())
            }
        }
    }

    /// Ends everything.
    pub fn dispose(&self) {
        let mut inner = self.inner();
        inner.disposed = true;
        inner.offers.clear();
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

    /// The offer, if everything it is bound to still holds.
    fn live(&self, id: u64, digest: &Digest, now: Moment) -> Result<&Offer, HandoffError> {
        let offer = match self.offers.get(&id) {
            None => return Err(HandoffError::OfferUnknown),
            Some(State::Retired(error)) => return Err(*error),
            Some(State::Offered(offer)) => offer,
        };
        if now >= offer.ends {
            return Err(HandoffError::OfferExpired);
        }
        let same: bool = offer.digest.as_bytes().ct_eq(digest.as_bytes()).into();
        if !same {
            return Err(HandoffError::DigestMismatch);
        }
        self.scope(offer)?;
        Ok(offer)
    }

    /// Whether everything the offer is bound to is as it was.
    fn scope(&self, offer: &Offer) -> Result<(), HandoffError> {
        let stale = |field| Err(HandoffError::ScopeStale { field });
        let Some(source) = &self.source else {
            return stale("source");
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
            .filter_map(|(id, state)| match state {
                State::Offered(offer) => Some((*id, self.scope(offer).err()?)),
                State::Retired(_) => None,
            })
            .collect();
        for (id, error) in stale {
            self.retire(id, error);
        }
    }

    fn retire(&mut self, id: u64, error: HandoffError) {
        if let Some(state @ State::Offered(_)) = self.offers.get_mut(&id) {
            *state = State::Retired(error);
        }
    }
}

/// Says what the digest is about, so that it cannot be taken for another.
const DOMAIN: &[u8] = b"holdfast handoff offer 1\0";

/// The digest of the intent and every fact it is bound to: each with its length before it.
fn digest(intent: &Intent, source: &Source, target: &Target, expires_at: Timestamp) -> Digest {
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

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc, Barrier, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use serde_json::json;

    use super::{Confirm, Executor, Handoff, Offer, Simulation, Source, Target, Verdict};
    use crate::{
        approval::TurnMark,
        handoff::HandoffError,
        model::{Clock as _, Digest, ManualClock, Moment, Seq, SessionHandle, Timestamp},
    };

    /// Counts what it is given.
    #[derive(Clone, Default)]
    struct Counting {
        taken: Arc<AtomicUsize>,
        seen: Arc<Mutex<Vec<Offer>>>,
        lost: bool,
    }

    impl Simulation for Counting {
        fn take(&self, offer: &Offer) -> Verdict {
            self.taken.fetch_add(1, Ordering::SeqCst);
            self.seen.lock().unwrap().push(offer.clone());
            if self.lost {
                Verdict::Unknown
            } else {
                Verdict::Taken
            }
        }
    }

    /// Answers a person's part with a closure.
    struct Person<F>(F);

    impl<F: Fn(&Offer) -> Option<bool>> Confirm for Person<F> {
        fn confirm(&self, offer: &Offer) -> Option<bool> {
            (self.0)(offer)
        }
    }

    fn source() -> Source {
        Source {
            host: "h".to_owned(),
            session: SessionHandle::from_random([1; 16]),
            agent: "a".to_owned(),
            turn: TurnMark {
                number: 1,
                start: Seq::new(3),
            },
            bridge_generation: 5,
        }
    }

    fn target() -> Target {
        Target {
            id: "desk".to_owned(),
            generation: 1,
        }
    }

    fn intent() -> Vec<u8> {
        json!({"version": 1, "kind": "read-file", "path": "notes.txt", "maxBytes": 10})
            .to_string()
            .into_bytes()
    }

    struct Desk {
        handoff: Handoff,
        simulator: Counting,
        clock: ManualClock,
    }

    impl Desk {
        fn with(simulator: Counting) -> Self {
            let executor = Executor {
                kind: "simulation".to_owned(),
                target: target(),
            };
            let handoff = Handoff::with(executor, Box::new(simulator.clone())).unwrap();
            handoff.source_is(source());
            Self {
                handoff,
                simulator,
                clock: ManualClock::new(Timestamp::from_millis(1_000)),
            }
        }

        fn new() -> Self {
            Self::with(Counting::default())
        }

        fn offer(&self) -> Offer {
            self.handoff
                .offer(&intent(), self.clock.moment(), self.clock.now())
                .unwrap()
        }

        fn execute(
            &self,
            offer: &Offer,
            person: impl Fn(&Offer) -> Option<bool>,
        ) -> Result<super::Receipt, HandoffError> {
            let clock = || (self.clock.moment(), self.clock.now());
            self.handoff
                .execute(offer.id, &offer.digest, &Person(person), &clock)
        }

        fn taken(&self) -> usize {
            self.simulator.taken.load(Ordering::SeqCst)
        }
    }

    /// Keeps I8.
    #[test]
    fn ho_01_ho_02_without_an_executor_everything_is_refused() {
        let handoff = Handoff::without_executor();
        handoff.source_is(source());
        let unavailable = HandoffError::ExecutorUnavailable;
        let (now, at) = (Moment::default(), Timestamp::from_millis(0));
        let forged = br#"{"approved":true,"executor":true,"local":true,"confirmed":true}"#;
        for intent in [intent(), forged.to_vec(), b"not json".to_vec()] {
            assert_eq!(
                handoff.offer(&intent, now, at),
                Err(unavailable),
                "before it is looked at"
            );
        }
        let digest = Digest::of(b"");
        assert_eq!(handoff.validate(1, &digest, now), Err(unavailable));
        let asked = Person(|_: &Offer| -> Option<bool> { panic!("nobody is asked") });
        let executed = handoff.execute(1, &digest, &asked, &|| (now, at));
        assert_eq!(executed, Err(unavailable));
        assert_eq!(handoff.cancel(1), Err(unavailable));
        // An executor that connects all the same is none.
        handoff.target_is(Some(target()));
        assert_eq!(handoff.offer(&intent(), now, at), Err(unavailable));
    }

    #[test]
    fn ho_03_only_a_simulation_is_taken() {
        for kind in ["local", "desktop", "SIMULATION", "", "simulation "] {
            let executor = Executor {
                kind: kind.to_owned(),
                target: target(),
            };
            let made = Handoff::with(executor, Box::new(Counting::default()));
            assert_eq!(
                made.unwrap_err(),
                HandoffError::ExecutorKindRefused,
                "{kind}"
            );
        }
    }

    #[test]
    fn ho_07_the_digest_covers_every_fact() {
        let base = Desk::new().offer().digest;
        assert_eq!(Desk::new().offer().digest, base);
        let sources: [fn(&mut Source); 6] = [
            |s| s.host = "i".to_owned(),
            |s| s.session = SessionHandle::from_random([2; 16]),
            |s| s.agent = "b".to_owned(),
            |s| s.turn.number = 2,
            |s| s.turn.start = Seq::new(4),
            |s| s.bridge_generation = 6,
        ];
        for (n, change) in sources.into_iter().enumerate() {
            let desk = Desk::new();
            let mut changed = source();
            change(&mut changed);
            desk.handoff.source_is(changed);
            assert_ne!(desk.offer().digest, base, "source fact {n}");
        }
        for (id, generation) in [("other", 1), ("desk", 2)] {
            let desk = Desk::new();
            let id = id.to_owned();
            desk.handoff.target_is(Some(Target { id, generation }));
            assert_ne!(desk.offer().digest, base);
        }
        let desk = Desk::new();
        desk.clock.set(Timestamp::from_millis(2_000));
        assert_ne!(desk.offer().digest, base, "its end");
        for (path, most) in [("notes.txu", 10), ("notes.txt", 11)] {
            let desk = Desk::new();
            let other = json!({"version": 1, "kind": "read-file", "path": path, "maxBytes": most});
            let other = other.to_string();
            let (now, at) = (desk.clock.moment(), desk.clock.now());
            assert_ne!(
                desk.handoff
                    .offer(other.as_bytes(), now, at)
                    .unwrap()
                    .digest,
                base
            );
        }
        let desk = Desk::new();
        let mut forged = desk.offer();
        forged.digest = Digest::of(b"");
        let refused = desk.execute(&forged, |_| Some(true));
        assert_eq!(refused.unwrap_err(), HandoffError::DigestMismatch);
        assert_eq!(desk.taken(), 0);
    }

    #[test]
    fn ho_08_of_64_that_execute_at_once_one_is_dispatched() {
        for _ in 0..20 {
            let desk = Desk::new();
            let offer = desk.offer();
            let start = Barrier::new(64);
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..64)
                    .map(|_| {
                        scope.spawn(|| {
                            start.wait();
                            desk.execute(&offer, |_| Some(true))
                        })
                    })
                    .collect();
                racers.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(outcomes.iter().filter(|one| one.is_ok()).count(), 1);
            assert_eq!(desk.taken(), 1);
        }
    }

    #[test]
    fn ho_09_ho_10_what_changes_while_the_person_is_asked_stops_it() {
        type Change = (&'static str, fn(&Handoff));
        let changes: [Change; 7] = [
            ("executor", |h| {
                let generation = 2;
                h.target_is(Some(Target {
                    generation,
                    ..target()
                }));
            }),
            ("executor", |h| {
                h.target_is(None);
                h.target_is(Some(target()));
            }),
            ("turn", |h| {
                let turn = TurnMark {
                    number: 2,
                    start: Seq::new(9),
                };
                h.source_is(Source { turn, ..source() });
            }),
            ("agent", |h| {
                let agent = "b".to_owned();
                h.source_is(Source { agent, ..source() });
            }),
            ("host", |h| {
                let host = "i".to_owned();
                h.source_is(Source { host, ..source() });
            }),
            ("bridgeGeneration", |h| {
                let bridge_generation = 6;
                h.source_is(Source {
                    bridge_generation,
                    ..source()
                });
            }),
            ("session", |h| {
                let session = SessionHandle::from_random([2; 16]);
                h.source_is(Source {
                    session,
                    ..source()
                });
            }),
        ];
        for (field, change) in changes {
            let desk = Desk::new();
            let offer = desk.offer();
            let stopped = desk.execute(&offer, |_| {
                change(&desk.handoff);
                Some(true)
            });
            assert_eq!(stopped.unwrap_err(), HandoffError::ScopeStale { field });
            // Even when things look as before again.
            desk.handoff.source_is(source());
            desk.handoff.target_is(Some(target()));
            assert!(desk.execute(&offer, |_| Some(true)).is_err());
            assert_eq!(desk.taken(), 0, "{field}");
        }
    }

    #[test]
    fn ho_11_the_person_is_shown_what_is_bound() {
        let desk = Desk::new();
        let offer = desk.offer();
        let mut mutated = offer.clone();
        mutated.source.agent = "harmless".to_owned();
        let shown = Mutex::new(None);
        let done = desk.execute(&mutated, |seen| {
            *shown.lock().unwrap() = Some(seen.clone());
            Some(true)
        });
        assert!(done.is_ok());
        assert_eq!(shown.lock().unwrap().as_ref(), Some(&offer));
        assert_eq!(desk.simulator.seen.lock().unwrap()[..], [offer]);
    }

    #[test]
    fn ho_12_what_is_not_known_is_not_tried_again() {
        let desk = Desk::with(Counting {
            lost: true,
            ..Counting::default()
        });
        let offer = desk.offer();
        for _ in 0..3 {
            let unknown = desk.execute(&offer, |_| Some(true));
            assert_eq!(unknown.unwrap_err(), HandoffError::OutcomeUnknown);
        }
        assert_eq!(desk.taken(), 1);
    }

    /// Keeps I8.
    #[test]
    fn ho_14_a_receipt_says_that_nothing_was_executed() {
        let desk = Desk::new();
        let offer = desk.offer();
        let receipt = desk.execute(&offer, |_| Some(true)).unwrap().json();
        assert_eq!(receipt["simulated"], true);
        assert_eq!(receipt["executed"], false);
        assert_eq!(receipt["offerId"], offer.id);
        assert_eq!(receipt["actionDigest"], offer.digest.to_string());
        assert_eq!(
            receipt["executor"],
            json!({"id": "desk", "kind": "simulation", "generation": 1})
        );
        let members: Vec<&String> = receipt.as_object().unwrap().keys().collect();
        let all = [
            "actionDigest",
            "executed",
            "executor",
            "issuedAt",
            "offerId",
            "outcome",
            "receiptVersion",
            "simulated",
        ];
        assert_eq!(
            members, all,
            "no content, no length, no word on whether there is a file"
        );
    }

    #[test]
    fn ho_15_cancel_expiry_and_the_end_fail_closed_whenever_they_come() {
        type End = (fn(&Desk, u64), HandoffError);
        let ends: [End; 3] = [
            (
                |d, id| d.handoff.cancel(id).unwrap(),
                HandoffError::OfferRetired,
            ),
            (
                |d, _| d.clock.advance(Duration::from_mins(2)),
                HandoffError::OfferExpired,
            ),
            (|d, _| d.handoff.dispose(), HandoffError::Disposed),
        ];
        for (end, error) in ends {
            let before = Desk::new();
            let offer = before.offer();
            end(&before, offer.id);
            assert_eq!(before.execute(&offer, |_| Some(true)).unwrap_err(), error);
            let during = Desk::new();
            let offer = during.offer();
            let stopped = during.execute(&offer, |_| {
                end(&during, offer.id);
                Some(true)
            });
            assert_eq!(stopped.unwrap_err(), error);
            assert_eq!((before.taken(), during.taken()), (0, 0));
        }
        for (answer, error) in [
            (Some(false), HandoffError::ConfirmationDeclined),
            (None, HandoffError::ConfirmationUnavailable),
        ] {
            let desk = Desk::new();
            let offer = desk.offer();
            assert_eq!(desk.execute(&offer, |_| answer).unwrap_err(), error);
            assert_eq!(
                desk.execute(&offer, |_| Some(true)).unwrap_err(),
                error,
                "retired"
            );
        }
        let after = Desk::new();
        let offer = after.offer();
        after.execute(&offer, |_| Some(true)).unwrap();
        assert_eq!(
            after.handoff.cancel(offer.id),
            Err(HandoffError::OfferRetired)
        );
        assert_eq!(after.taken(), 1);
    }
}
