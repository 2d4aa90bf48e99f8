use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use super::{
    Confirm, Executor, Handoff, HandoffError, Offer, Receipt, Simulation, Source, Target, Verdict,
};
use crate::{
    approval::TurnMark,
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
        let handoff = Handoff::with(executor, Arc::new(simulator.clone())).unwrap();
        handoff.source_is(Some(source()));
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
    ) -> Result<Receipt, HandoffError> {
        let clock = || (self.clock.moment(), self.clock.now());
        self.handoff
            .execute(offer.id, &offer.digest, "q", &Person(person), &clock)
    }

    fn taken(&self) -> usize {
        self.simulator.taken.load(Ordering::SeqCst)
    }
}

/// Keeps I8.
#[test]
fn ho_01_ho_02_without_an_executor_everything_is_refused() {
    let handoff = Handoff::without_executor();
    handoff.source_is(Some(source()));
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
    assert_eq!(handoff.validate(1, &digest, now).unwrap_err(), unavailable);
    let asked = Person(|_: &Offer| -> Option<bool> { panic!("nobody is asked") });
    let executed = handoff.execute(1, &digest, "q", &asked, &|| (now, at));
    assert_eq!(executed, Err(unavailable));
    assert_eq!(handoff.cancel(1, &digest), Err(unavailable));
    // An executor that connects all the same is none.
    handoff.target_is(Some(target()));
    assert_eq!(handoff.offer(&intent(), now, at), Err(unavailable));
}

/// Keeps I8: every member there is or could be, each alone and all together, set to true.
#[test]
fn ho_02_no_boolean_is_an_executor_or_a_yes() {
    let members = [
        "version",
        "kind",
        "path",
        "maxBytes",
        "approved",
        "confirmed",
        "executor",
        "local",
        "localHandoff",
        "executesLocally",
        "simulated",
        "executed",
        "enabled",
        "force",
        "__proto__",
    ];
    let good = json!({"version": 1, "kind": "read-file", "path": "a", "maxBytes": 1});
    let mut forged: Vec<_> = members
        .iter()
        .map(|member| {
            let mut one = good.clone();
            one[*member] = json!(true);
            one
        })
        .collect();
    let all = members
        .iter()
        .map(|member| ((*member).to_owned(), json!(true)));
    forged.push(all.collect::<serde_json::Map<_, _>>().into());
    for intent in forged {
        let intent = intent.to_string();
        let (now, at) = (Moment::default(), Timestamp::from_millis(0));
        let closed = Handoff::without_executor();
        closed.source_is(Some(source()));
        let refused = closed.offer(intent.as_bytes(), now, at).unwrap_err();
        assert_eq!(refused, HandoffError::ExecutorUnavailable, "{intent}");
        // Not even where there is one.
        let desk = Desk::new();
        assert!(
            desk.handoff.offer(intent.as_bytes(), now, at).is_err(),
            "{intent}"
        );
        assert_eq!(desk.taken(), 0);
    }
}

#[test]
fn ho_03_only_a_simulation_is_taken() {
    for kind in ["local", "desktop", "SIMULATION", "", "simulation "] {
        let executor = Executor {
            kind: kind.to_owned(),
            target: target(),
        };
        let made = Handoff::with(executor, Arc::new(Counting::default()));
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
        desk.handoff.source_is(Some(changed));
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
            h.source_is(Some(Source { turn, ..source() }));
        }),
        ("agent", |h| {
            let agent = "b".to_owned();
            h.source_is(Some(Source { agent, ..source() }));
        }),
        ("host", |h| {
            let host = "i".to_owned();
            h.source_is(Some(Source { host, ..source() }));
        }),
        ("bridgeGeneration", |h| {
            let bridge_generation = 6;
            h.source_is(Some(Source {
                bridge_generation,
                ..source()
            }));
        }),
        ("session", |h| {
            let session = SessionHandle::from_random([2; 16]);
            h.source_is(Some(Source {
                session,
                ..source()
            }));
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
        desk.handoff.source_is(Some(source()));
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
    let receipt = desk.execute(&offer, |_| Some(true)).unwrap();
    assert_eq!(receipt.json()["outcome"], "unknown");
    assert_eq!(receipt.json()["executed"], false);
    for _ in 0..3 {
        let refused = desk.execute(&offer, |_| Some(true));
        assert_eq!(refused.unwrap_err(), HandoffError::OutcomeUnknown);
        assert_eq!(
            desk.handoff.cancel(offer.id, &offer.digest),
            Err(HandoffError::OutcomeUnknown)
        );
    }
    assert_eq!(desk.taken(), 1);
}

#[test]
fn ho_12_an_executor_that_dies_in_the_middle_is_not_asked_again() {
    struct Dying(AtomicUsize);
    impl Simulation for Dying {
        fn take(&self, _offer: &Offer) -> Verdict {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("it dies")
        }
    }
    let dying = Arc::new(Dying(AtomicUsize::new(0)));
    let executor = Executor {
        kind: "simulation".to_owned(),
        target: target(),
    };
    let handoff = Handoff::with(executor, Arc::<Dying>::clone(&dying)).unwrap();
    handoff.source_is(Some(source()));
    let now = (Moment::default(), Timestamp::from_millis(0));
    let offer = handoff.offer(&intent(), now.0, now.1).unwrap();
    let execute = || {
        let yes = Person(|_: &Offer| Some(true));
        handoff.execute(offer.id, &offer.digest, "q", &yes, &|| now)
    };
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(execute));
    assert!(died.is_err());
    assert_eq!(execute().unwrap_err(), HandoffError::OutcomeUnknown);
    assert_eq!(dying.0.load(Ordering::SeqCst), 1);
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
        "requestId",
        "simulated",
    ];
    assert_eq!(
        members, all,
        "no content, no length, no word on whether there is a file"
    );
}

#[test]
fn ho_15_cancel_expiry_and_the_end_fail_closed_whenever_they_come() {
    type End = (fn(&Desk, &Offer), HandoffError);
    let ends: [End; 3] = [
        (
            |d, offer| d.handoff.cancel(offer.id, &offer.digest).unwrap(),
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
        end(&before, &offer);
        assert_eq!(before.execute(&offer, |_| Some(true)).unwrap_err(), error);
        let during = Desk::new();
        let offer = during.offer();
        let stopped = during.execute(&offer, |_| {
            end(&during, &offer);
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
        after.handoff.cancel(offer.id, &offer.digest),
        Err(HandoffError::OfferRetired)
    );
    assert_eq!(after.taken(), 1);
}
