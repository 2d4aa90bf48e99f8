//! The rows of the machine, one test each, on a clock that moves when told to.

use std::{
    sync::{Arc, Barrier, Mutex},
    time::Duration,
};

use super::{
    Answer, Bridge, BridgeOptions, Cause, DecideError, Decision, Facts, Matter, Opening, Outcome,
    Pending, Policy, Putting, Question, Reply, Request, TurnMark,
};
use crate::model::{
    Clock as _, InteractionHandle, ManualClock, Moment, PrincipalId, Seq, SessionHandle,
    StreamHandle, Timestamp,
};

const ALICE: PrincipalId = PrincipalId::from_random([1; 16]);
const BOB: PrincipalId = PrincipalId::from_random([2; 16]);
const A: SessionHandle = SessionHandle::from_random([1; 16]);
const B: SessionHandle = SessionHandle::from_random([2; 16]);
const TURN: TurnMark = TurnMark {
    number: 3,
    start: Seq::new(11),
};

/// A bridge whose reader of session A and B is present, and its clock.
struct Desk {
    bridge: Bridge,
    clock: ManualClock,
    drawn: u8,
}

fn stream(n: u8) -> StreamHandle {
    StreamHandle::from_random([n; 16])
}

impl Desk {
    fn with(options: BridgeOptions) -> Self {
        let mut desk = Self {
            bridge: Bridge::new(options),
            clock: ManualClock::new(Timestamp::from_millis(1_700_000_000_000)),
            drawn: 0,
        };
        desk.bridge.opened(stream(1), ALICE);
        assert!(desk.acknowledge(1, ALICE));
        desk
    }

    fn new() -> Self {
        Self::with(Self::options())
    }

    fn options() -> BridgeOptions {
        BridgeOptions {
            enabled: true,
            host: "h_1".to_owned(),
            generation: 5,
            ..BridgeOptions::default()
        }
    }

    fn now(&self) -> Moment {
        self.clock.moment()
    }

    fn acknowledge(&mut self, n: u8, who: PrincipalId) -> bool {
        self.bridge
            .acknowledged(stream(n), who, self.clock.moment())
    }

    fn facts() -> Facts {
        Facts {
            agent: "agent-1".to_owned(),
            turn: Some(TURN),
            policy: Policy::Ask,
            deciders: vec![ALICE],
        }
    }

    fn opening(&mut self, session: SessionHandle, reason: Option<&str>) -> Opening {
        self.drawn += 1;
        let request = Request {
            tool: "shell".to_owned(),
            call: Some(format!("call-{}", self.drawn)),
            reason: reason.map(str::to_owned),
            ..Request::default()
        };
        Opening {
            id: InteractionHandle::from_random([self.drawn; 16]),
            audit: format!("audit-{}", self.drawn),
            session,
            facts: Self::facts(),
            matter: Matter::approval(&request, "en").unwrap(),
            life: None,
            delegated: false,
            aborted: false,
            at: self.clock.now(),
        }
    }

    fn put(&mut self, opening: Opening) -> Putting {
        self.bridge.ask(opening, self.clock.moment())
    }

    fn ask(&mut self, session: SessionHandle) -> Pending {
        let opening = self.opening(session, Some("delete build/"));
        match self.put(opening) {
            Putting::Pending(pending) => *pending,
            Putting::Settled(outcome, cause) => panic!("{outcome:?} {cause:?}"),
        }
    }

    fn form(&mut self, session: SessionHandle) -> Pending {
        let mut opening = self.opening(session, None);
        opening.matter = Matter::questions(vec![Question {
            id: "q".to_owned(),
            question: "which?".to_owned(),
            detail: None,
            header: None,
            options: Vec::new(),
            multi_select: false,
            approve: None,
        }])
        .unwrap();
        match self.put(opening) {
            Putting::Pending(pending) => *pending,
            Putting::Settled(outcome, cause) => panic!("{outcome:?} {cause:?}"),
        }
    }

    fn decide(&mut self, decision: &Decision) -> Result<Outcome, DecideError> {
        self.bridge.decide(decision, self.clock.moment())
    }

    fn waits(&mut self, item: &Pending) -> bool {
        let pending = self.bridge.pending(item.session, self.clock.moment());
        pending.iter().any(|one| one.id == item.id)
    }

    fn outcome(&mut self) -> Option<(Outcome, Cause)> {
        let mut settled = self.bridge.take_settled();
        assert!(settled.len() <= 1, "{settled:?}");
        settled.pop().map(|one| (one.outcome, one.cause))
    }
}

fn answer(item: &Pending, word: &str) -> Decision {
    Decision {
        session: item.session,
        id: item.id,
        who: ALICE,
        generation: 5,
        host: "h_1".to_owned(),
        named_session: item.session,
        named_id: item.id,
        audit: Some(item.audit.clone()),
        turn: item.turn,
        answer: Answer::Choice(word.to_owned(), None),
    }
}

fn allow(item: &Pending) -> Decision {
    answer(item, "allowed-once")
}

#[test]
fn br_01_a_bridge_that_is_off_puts_nothing_to_anybody() {
    let mut desk = Desk::with(BridgeOptions {
        enabled: BridgeOptions::default().enabled,
        ..Desk::options()
    });
    let opening = desk.opening(A, Some("why"));
    let put = desk.put(opening);
    assert_eq!(
        put,
        Putting::Settled(Outcome::Unavailable, Cause::NotInteractive)
    );
    assert!(desk.bridge.pending(A, desk.clock.moment()).is_empty());
}

#[test]
fn br_02_without_a_policy_nothing_is_asked() {
    let mut desk = Desk::new();
    let mut opening = desk.opening(A, Some("why"));
    opening.facts.policy = Policy::default();
    let put = desk.put(opening);
    assert_eq!(put, Putting::Settled(Outcome::Rejected, Cause::PolicyNever));
}

/// Sixty-four threads at one item: one is told yes, and what it is told is what happened.
///
/// Keeps I7.
#[test]
fn br_04_of_64_that_decide_at_once_one_does() {
    for _round in 0..50 {
        let mut desk = Desk::new();
        let item = desk.ask(A);
        let now = desk.now();
        let shared = Arc::new((Mutex::new(desk.bridge), Barrier::new(64)));
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..64)
                .map(|n| {
                    let (shared, item) = (Arc::clone(&shared), item.clone());
                    scope.spawn(move || {
                        let word = if n % 2 == 0 {
                            "allowed-once"
                        } else {
                            "rejected"
                        };
                        shared.1.wait();
                        shared.0.lock().unwrap().decide(&answer(&item, word), now)
                    })
                })
                .collect();
            racers
                .into_iter()
                .map(|racer| racer.join().unwrap())
                .collect()
        });
        let won: Vec<Outcome> = outcomes.iter().filter_map(|one| one.ok()).collect();
        assert_eq!(won.len(), 1);
        let recorded = won[0];
        let late = Err(DecideError::AlreadyDecided { recorded });
        assert_eq!(outcomes.iter().filter(|one| **one == late).count(), 63);
        let settled = shared.0.lock().unwrap().take_settled();
        assert_eq!(settled.len(), 1);
        assert_eq!(settled[0].outcome, recorded);
    }
}

#[test]
fn br_05_a_forged_yes_without_details_is_refused_and_no_still_works() {
    let mut desk = Desk::new();
    let opening = desk.opening(A, None);
    let Putting::Pending(item) = desk.put(opening) else {
        panic!("not pending")
    };
    assert_eq!(
        desk.decide(&allow(&item)),
        Err(DecideError::DetailsUnavailable)
    );
    assert!(desk.waits(&item));
    assert_eq!(
        desk.decide(&answer(&item, "rejected")),
        Ok(Outcome::Rejected)
    );
}

#[test]
fn ap_12_a_choice_that_was_not_offered_never_grants() {
    let mut desk = Desk::new();
    let item = desk.ask(A);
    for word in [
        "",
        "allow",
        "allow_always",
        "ALLOWED-ONCE",
        "cancelled",
        "unavailable",
        "true",
    ] {
        let refused = desk.decide(&answer(&item, word));
        assert_eq!(refused, Err(DecideError::NotOffered), "{word}");
    }
    assert!(desk.waits(&item));
}

#[test]
fn br_11_a_rebuilt_bridge_takes_no_old_answer() {
    let mut old = Desk::new();
    let item = old.ask(A);
    old.bridge.dispose(old.clock.moment());
    let mut new = Desk::with(BridgeOptions {
        generation: 6,
        ..Desk::options()
    });
    let same = new.ask(A);
    assert_eq!(same.id, item.id, "the ids coincide");
    assert_eq!(new.decide(&allow(&item)), Err(DecideError::StaleGeneration));
    assert!(new.waits(&same));
}

/// What is changed, how, and what it is answered with.
type Case = (
    &'static str,
    fn(&mut Decision, InteractionHandle),
    DecideError,
);

#[test]
fn br_12_br_13_br_20_each_identity_fact_is_checked() {
    let mut desk = Desk::new();
    let item = desk.ask(A);
    let other = InteractionHandle::from_random([99; 16]);
    let turn = |number, start| {
        Some(TurnMark {
            number,
            start: Seq::new(start),
        })
    };
    let cases: [Case; 8] = [
        (
            "generation",
            |d, _| d.generation = 4,
            DecideError::StaleGeneration,
        ),
        (
            "host",
            |d, _| d.host = "h_2".to_owned(),
            DecideError::HostMismatch,
        ),
        (
            "session",
            |d, _| d.named_session = B,
            DecideError::ForeignSession,
        ),
        (
            "route",
            |d, _| (d.session, d.named_session) = (B, B),
            DecideError::Unknown,
        ),
        (
            "body's id",
            |d, id| d.named_id = id,
            DecideError::Correlation,
        ),
        (
            "both ids",
            |d, id| (d.id, d.named_id) = (id, id),
            DecideError::Unknown,
        ),
        (
            "audit",
            |d, _| d.audit = Some("x".to_owned()),
            DecideError::Correlation,
        ),
        ("no turn", |d, _| d.turn = None, DecideError::StaleTurn),
    ];
    for (fact, change, error) in cases {
        let mut forged = allow(&item);
        change(&mut forged, other);
        assert_eq!(desk.decide(&forged), Err(error), "{fact}");
    }
    for turn in [turn(4, 11), turn(3, 12)] {
        let forged = Decision {
            turn,
            ..allow(&item)
        };
        assert_eq!(
            desk.decide(&forged),
            Err(DecideError::StaleTurn),
            "{turn:?}"
        );
    }
    assert_eq!(
        desk.decide(&allow(&item)),
        Ok(Outcome::AllowedOnce),
        "nothing was consumed"
    );
}

#[test]
fn br_14_a_replaced_agent_is_granted_nothing() {
    let mut desk = Desk::new();
    let item = desk.ask(A);
    desk.bridge
        .agent_replaced(A, "agent-2", desk.clock.moment());
    assert_eq!(desk.decide(&allow(&item)), Err(DecideError::AgentReplaced));
    assert_eq!(
        desk.outcome(),
        Some((Outcome::Cancelled, Cause::AgentReplaced))
    );
    // By an ask of the new agent, too.
    let item = desk.ask(A);
    let mut opening = desk.opening(A, Some("why"));
    opening.facts.agent = "agent-3".to_owned();
    assert!(matches!(desk.put(opening), Putting::Pending(_)));
    assert_eq!(desk.decide(&allow(&item)), Err(DecideError::AgentReplaced));
}

#[test]
fn br_15_br_16_another_turn_ends_it_whatever_its_number() {
    for next in [
        None,
        Some(TurnMark { number: 4, ..TURN }),
        Some(TurnMark {
            start: Seq::new(30),
            ..TURN
        }),
    ] {
        let mut desk = Desk::new();
        let item = desk.ask(A);
        desk.bridge.turn_moved(A, next, desk.clock.moment());
        assert_eq!(
            desk.decide(&allow(&item)),
            Err(DecideError::StaleTurn),
            "{next:?}"
        );
        assert_eq!(desk.outcome(), Some((Outcome::Cancelled, Cause::TurnEnded)));
    }
}

#[test]
fn br_17_never_while_pending_is_a_no() {
    let mut desk = Desk::new();
    let item = desk.ask(A);
    desk.bridge
        .policy_changed(A, Policy::Never, desk.clock.moment());
    assert_eq!(desk.decide(&allow(&item)), Err(DecideError::PolicyNever));
    assert_eq!(
        desk.outcome(),
        Some((Outcome::Rejected, Cause::PolicyNever))
    );
}

#[test]
fn br_18_a_life_ends_by_a_clock_nobody_sets() {
    let mut desk = Desk::new();
    let item = desk.ask(A);
    for _ in 0..12 {
        desk.clock.advance(Duration::from_secs(10));
        desk.acknowledge(1, ALICE);
    }
    desk.clock
        .set(Timestamp::from_millis(1_700_000_000_000 - 3_600_000));
    assert_eq!(desk.decide(&allow(&item)), Err(DecideError::Expired));
    assert_eq!(desk.outcome(), Some((Outcome::Unavailable, Cause::Expired)));
}

#[test]
fn br_19_an_answer_at_the_deadline_is_reported_as_it_was() {
    for (early, told) in [
        (Duration::from_nanos(1), Ok(Outcome::AllowedOnce)),
        (Duration::ZERO, Err(DecideError::Expired)),
    ] {
        for tick_first in [false, true] {
            let mut desk = Desk::new();
            let mut opening = desk.opening(A, Some("why"));
            opening.life = Some(Duration::from_secs(30));
            let Putting::Pending(item) = desk.put(opening) else {
                panic!("not pending")
            };
            desk.clock
                .advance(Duration::from_secs(30).saturating_sub(early));
            if tick_first {
                desk.bridge.tick(desk.clock.moment());
            }
            assert_eq!(desk.decide(&allow(&item)), told);
            let seen = desk.outcome().unwrap().0;
            assert_eq!(
                seen,
                told.unwrap_or(Outcome::Unavailable),
                "the agent sees the same"
            );
        }
    }
}

#[test]
fn br_25_so_many_wait_and_the_others_are_unaffected() {
    let mut desk = Desk::with(BridgeOptions {
        per_session: 3,
        in_all: 4,
        ..Desk::options()
    });
    let first = desk.ask(A);
    desk.ask(A);
    desk.ask(A);
    let opening = desk.opening(A, Some("why"));
    assert_eq!(
        desk.put(opening),
        Putting::Settled(Outcome::Unavailable, Cause::Full)
    );
    desk.ask(B);
    let opening = desk.opening(B, Some("why"));
    assert_eq!(
        desk.put(opening),
        Putting::Settled(Outcome::Unavailable, Cause::Full)
    );
    assert_eq!(desk.decide(&allow(&first)), Ok(Outcome::AllowedOnce));
    desk.ask(B);
}

#[test]
fn br_26_disconnect_is_scoped_and_dispose_is_not() {
    let mut desk = Desk::new();
    let (a, b) = (desk.ask(A), desk.ask(B));
    desk.bridge.disconnect(A, desk.clock.moment());
    assert!(!desk.waits(&a) && desk.waits(&b));
    let withdrawn = |cause| Err(DecideError::Withdrawn { cause });
    assert_eq!(desk.decide(&allow(&a)), withdrawn(Cause::Disconnected));
    desk.bridge.dispose(desk.clock.moment());
    assert_eq!(desk.decide(&allow(&b)), withdrawn(Cause::Disposed));
    let opening = desk.opening(B, Some("why"));
    assert_eq!(
        desk.put(opening),
        Putting::Settled(Outcome::Unavailable, Cause::Disposed)
    );
}

#[test]
fn pr_02_an_open_stream_is_no_presence_until_it_is_acknowledged() {
    let mut desk = Desk::new();
    desk.bridge.closed(stream(1), desk.clock.moment());
    desk.bridge.opened(stream(2), ALICE);
    assert!(!desk.bridge.interactive(&[ALICE], desk.now()));
    assert!(!desk.acknowledge(2, BOB), "not his stream");
    assert!(!desk.acknowledge(3, ALICE), "no such stream");
    assert!(!desk.bridge.interactive(&[ALICE], desk.now()));
    assert!(desk.acknowledge(2, ALICE));
    assert!(desk.bridge.interactive(&[ALICE], desk.now()));
}

#[test]
fn pr_03_pr_04_silence_of_35_seconds_is_absence() {
    let mut desk = Desk::new();
    let item = desk.ask(A);
    desk.clock.advance(Duration::from_millis(34_900));
    desk.bridge.tick(desk.clock.moment());
    assert!(desk.waits(&item));
    desk.clock.advance(Duration::from_millis(200));
    desk.bridge.tick(desk.clock.moment());
    assert_eq!(
        desk.outcome(),
        Some((Outcome::Unavailable, Cause::Presence))
    );
    let cause = Cause::Presence;
    assert_eq!(
        desk.decide(&allow(&item)),
        Err(DecideError::Withdrawn { cause })
    );
}

#[test]
fn pr_05_a_decision_at_the_presence_deadline_has_one_outcome() {
    let mut desk = Desk::new();
    for round in 0..1000 {
        desk.drawn = 0;
        desk.bridge = Bridge::new(Desk::options());
        desk.bridge.opened(stream(1), ALICE);
        desk.acknowledge(1, ALICE);
        let item = desk.ask(A);
        desk.clock.advance(Duration::from_secs(35));
        let now = desk.now();
        let shared = Arc::new((
            Mutex::new(std::mem::replace(
                &mut desk.bridge,
                Bridge::new(Desk::options()),
            )),
            Barrier::new(2),
        ));
        let ticker = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                shared.1.wait();
                shared.0.lock().unwrap().tick(now);
            })
        };
        shared.1.wait();
        let told = shared.0.lock().unwrap().decide(&allow(&item), now);
        ticker.join().unwrap();
        let settled = shared.0.lock().unwrap().take_settled();
        assert_eq!(settled.len(), 1, "round {round}");
        assert_eq!(
            told.ok(),
            (settled[0].outcome == Outcome::AllowedOnce).then_some(Outcome::AllowedOnce)
        );
    }
}

#[test]
fn pr_06_presence_is_held_while_any_stream_is() {
    let mut desk = Desk::new();
    desk.bridge.opened(stream(2), ALICE);
    desk.acknowledge(2, ALICE);
    let item = desk.ask(A);
    desk.bridge.closed(stream(1), desk.clock.moment());
    assert!(desk.waits(&item));
    desk.bridge.closed(stream(2), desk.clock.moment());
    assert!(!desk.waits(&item));
    assert_eq!(
        desk.outcome(),
        Some((Outcome::Unavailable, Cause::Presence))
    );
}

#[test]
fn pr_07_presence_grants_nothing() {
    let mut desk = Desk::new();
    desk.ask(A);
    for _ in 0..200 {
        desk.clock.advance(Duration::from_secs(10));
        desk.acknowledge(1, ALICE);
    }
    assert_eq!(desk.outcome(), Some((Outcome::Unavailable, Cause::Expired)));
}

#[test]
fn pr_01_somebody_elses_presence_is_none() {
    let mut desk = Desk::new();
    let mut opening = desk.opening(A, Some("why"));
    opening.facts.deciders = vec![BOB];
    assert_eq!(
        desk.put(opening),
        Putting::Settled(Outcome::Unavailable, Cause::Presence)
    );
}

#[test]
fn ap_08_what_was_aborted_before_it_was_put_leaves_nothing() {
    let mut desk = Desk::new();
    let mut opening = desk.opening(A, Some("why"));
    opening.aborted = true;
    assert_eq!(
        desk.put(opening),
        Putting::Settled(Outcome::Cancelled, Cause::Aborted)
    );
    assert!(desk.bridge.pending(A, desk.clock.moment()).is_empty());
    let settled = desk.bridge.take_settled();
    assert!(
        settled.iter().all(|one| !one.was_pending),
        "nobody was shown it"
    );
}

#[test]
fn ap_09_a_grant_covers_one_action() {
    let mut desk = Desk::new();
    let first = desk.ask(A);
    assert_eq!(desk.decide(&allow(&first)), Ok(Outcome::AllowedOnce));
    let second = desk.ask(A);
    assert!(desk.waits(&second), "the same again is asked again");
    let recorded = Outcome::AllowedOnce;
    assert_eq!(
        desk.decide(&allow(&first)),
        Err(DecideError::AlreadyDecided { recorded })
    );
    assert!(desk.waits(&second));
}

#[test]
fn qu_05_a_form_has_one_end() {
    let mut desk = Desk::new();
    for (first, then) in [(Answer::Cancel, false), (Answer::Replies(Vec::new()), true)] {
        let item = desk.form(A);
        let replies = vec![Reply {
            id: "q".to_owned(),
            selected: Vec::new(),
            custom: Some("so".to_owned()),
        }];
        let filled = Decision {
            answer: Answer::Replies(replies),
            ..allow(&item)
        };
        let back = Decision {
            answer: Answer::Cancel,
            ..allow(&item)
        };
        let (one, other) = if then {
            (&filled, &back)
        } else {
            (&back, &filled)
        };
        let recorded = if then {
            Outcome::Answered
        } else {
            Outcome::Cancelled
        };
        assert_eq!(desk.decide(one), Ok(recorded), "{first:?}");
        assert_eq!(
            desk.decide(other),
            Err(DecideError::AlreadyDecided { recorded })
        );
        assert_eq!(desk.bridge.take_settled().len(), 1);
    }
}

#[test]
fn qu_06_free_text_grants_nothing() {
    let mut desk = Desk::new();
    let (item, form) = (desk.ask(A), desk.form(A));
    let replies = vec![Reply {
        id: "q".to_owned(),
        selected: Vec::new(),
        custom: Some("allowed-once".to_owned()),
    }];
    let filled = |to: &Pending| Decision {
        answer: Answer::Replies(replies.clone()),
        ..allow(to)
    };
    assert!(matches!(
        desk.decide(&filled(&item)),
        Err(DecideError::BadAnswer(_))
    ));
    assert_eq!(desk.decide(&filled(&form)), Ok(Outcome::Answered));
    assert!(matches!(
        desk.decide(&allow(&form)),
        Err(DecideError::AlreadyDecided { .. })
    ));
    assert!(desk.waits(&item));
}

#[test]
fn a_form_waits_for_whoever_comes_back() {
    let mut desk = Desk::new();
    let form = desk.form(A);
    desk.bridge.closed(stream(1), desk.clock.moment());
    desk.clock.advance(Duration::from_hours(9));
    desk.bridge.tick(desk.clock.moment());
    assert!(desk.waits(&form));
}

#[test]
fn ap_04_a_delegated_child_reaches_nobody() {
    let mut desk = Desk::new();
    let mut opening = desk.opening(A, Some("why"));
    opening.delegated = true;
    assert_eq!(
        desk.put(opening),
        Putting::Settled(Outcome::Rejected, Cause::PolicyNever)
    );
}
