//! Every order of the small machine: decide, expiry, abort, loss of presence, disposal, change of
//! policy, turn and agent, to a depth, each step from every state the steps before it lead to.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Answer, Bridge, BridgeOptions, Cause, Decision, Facts, Matter, Opening, Outcome, Policy,
    Putting, Request, TurnMark,
};
use crate::model::{
    InteractionHandle, Moment, PrincipalId, Seq, SessionHandle, StreamHandle, Timestamp,
};

const SESSION: SessionHandle = SessionHandle::from_random([1; 16]);
const PERSON: PrincipalId = PrincipalId::from_random([2; 16]);
const STREAM: StreamHandle = StreamHandle::from_random([3; 16]);
const TURN: TurnMark = TurnMark {
    number: 1,
    start: Seq::new(4),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Allow(u8),
    Reject(u8),
    Abort(u8),
    Expire,
    Silence,
    Close,
    Acknowledge,
    Never,
    NextTurn,
    OtherAgent,
    Disconnect,
    Dispose,
}

const STEPS: [Step; 15] = [
    Step::Allow(0),
    Step::Allow(1),
    Step::Reject(0),
    Step::Reject(1),
    Step::Abort(0),
    Step::Abort(1),
    Step::Expire,
    Step::Silence,
    Step::Close,
    Step::Acknowledge,
    Step::Never,
    Step::NextTurn,
    Step::OtherAgent,
    Step::Disconnect,
    Step::Dispose,
];

/// What must be true, kept apart from the machine in the plainest way.
#[derive(Clone, Debug)]
struct Oracle {
    now: Duration,
    /// When the last acknowledgement was; none once the stream ended.
    acknowledged: Option<Duration>,
    /// What each item became.
    ended: BTreeMap<u8, (Outcome, Cause)>,
    settlements: usize,
}

impl Oracle {
    fn end(&mut self, item: u8, outcome: Outcome, cause: Cause) {
        self.ended.entry(item).or_insert((outcome, cause));
    }

    fn end_all(&mut self, outcome: Outcome, cause: Cause) {
        for item in 0..2 {
            self.end(item, outcome, cause);
        }
    }

    /// Item 0 lives 60 s, item 1 lives 100 s; presence 35 s.
    fn lapse(&mut self) {
        for (item, life) in [(0, 60), (1, 100)] {
            if self.now >= Duration::from_secs(life) {
                self.end(item, Outcome::Unavailable, Cause::Expired);
            }
        }
        let present = self
            .acknowledged
            .is_some_and(|at| self.now < at + Duration::from_secs(35));
        if !present {
            self.end_all(Outcome::Unavailable, Cause::Presence);
        }
    }
}

fn id(item: u8) -> InteractionHandle {
    InteractionHandle::from_random([10 + item; 16])
}

fn begin() -> (Bridge, Oracle) {
    let mut bridge = Bridge::new(BridgeOptions {
        enabled: true,
        host: "h".to_owned(),
        generation: 7,
        ..BridgeOptions::default()
    });
    let now = Moment::default();
    bridge.opened(STREAM, PERSON);
    assert!(bridge.acknowledged(STREAM, PERSON, now));
    for (item, life) in [(0, 60), (1, 100)] {
        let request = Request {
            tool: "shell".to_owned(),
            reason: Some("build it".to_owned()),
            ..Request::default()
        };
        let put = bridge.ask(
            Opening {
                id: id(item),
                audit: format!("a{item}"),
                session: SESSION,
                facts: Facts {
                    agent: "one".to_owned(),
                    turn: Some(TURN),
                    policy: Policy::Ask,
                    deciders: vec![PERSON],
                },
                matter: Matter::approval(&request, "en").unwrap(),
                life: Some(Duration::from_secs(life)),
                delegated: false,
                aborted: false,
                at: Timestamp::from_millis(0),
            },
            now,
        );
        assert!(matches!(put, Putting::Pending(_)));
    }
    let oracle = Oracle {
        now: Duration::ZERO,
        acknowledged: Some(Duration::ZERO),
        ended: BTreeMap::new(),
        settlements: 0,
    };
    (bridge, oracle)
}

fn take(bridge: &mut Bridge, oracle: &mut Oracle, step: Step) {
    if step == Step::Expire {
        oracle.now += Duration::from_secs(30);
    } else if step == Step::Silence {
        oracle.now += Duration::from_secs(35);
    }
    oracle.lapse();
    let now = Moment::new(oracle.now);
    match step {
        Step::Allow(item) | Step::Reject(item) => {
            let (word, outcome) = if step == Step::Allow(item) {
                ("allowed-once", Outcome::AllowedOnce)
            } else {
                ("rejected", Outcome::Rejected)
            };
            let decided = bridge.decide(
                &Decision {
                    session: SESSION,
                    id: id(item),
                    who: PERSON,
                    generation: 7,
                    host: "h".to_owned(),
                    named_session: SESSION,
                    named_id: id(item),
                    audit: Some(format!("a{item}")),
                    turn: Some(TURN),
                    answer: Answer::Choice(word.to_owned(), None),
                },
                now,
            );
            let live = !oracle.ended.contains_key(&item);
            assert_eq!(
                decided.ok(),
                live.then_some(outcome),
                "an answer is taken once, while live"
            );
            oracle.end(item, outcome, Cause::Decided);
        }
        Step::Abort(item) => {
            let aborted = bridge.abort(SESSION, id(item), now);
            assert_eq!(aborted.is_ok(), !oracle.ended.contains_key(&item));
            oracle.end(item, Outcome::Cancelled, Cause::Aborted);
        }
        Step::Expire | Step::Silence => bridge.tick(now),
        Step::Close => {
            bridge.closed(STREAM, now);
            oracle.acknowledged = None;
            oracle.lapse();
        }
        Step::Acknowledge => {
            if bridge.acknowledged(STREAM, PERSON, now) {
                oracle.acknowledged = Some(oracle.now);
            } else {
                assert_eq!(oracle.acknowledged, None);
            }
        }
        Step::Never => {
            bridge.policy_changed(SESSION, Policy::Never, now);
            oracle.end_all(Outcome::Rejected, Cause::PolicyNever);
        }
        Step::NextTurn => {
            let start = Seq::new(9);
            bridge.turn_moved(SESSION, Some(TurnMark { number: 1, start }), now);
            oracle.end_all(Outcome::Cancelled, Cause::TurnEnded);
        }
        Step::OtherAgent => {
            bridge.agent_replaced(SESSION, "two", now);
            oracle.end_all(Outcome::Cancelled, Cause::AgentReplaced);
        }
        Step::Disconnect => {
            bridge.disconnect(SESSION, now);
            oracle.end_all(Outcome::Unavailable, Cause::Disconnected);
        }
        Step::Dispose => {
            bridge.dispose(now);
            oracle.end_all(Outcome::Unavailable, Cause::Disposed);
        }
    }
    for settled in bridge.take_settled() {
        let item = u8::from(settled.id == id(1));
        oracle.settlements += 1;
        let expected = oracle.ended.get(&item).copied();
        assert_eq!(
            Some((settled.outcome, settled.cause)),
            expected,
            "item {item}"
        );
    }
    assert_eq!(
        oracle.settlements,
        oracle.ended.len(),
        "each settles exactly once"
    );
    let pending = bridge.pending(SESSION, now).len();
    assert_eq!(
        pending + oracle.ended.len(),
        2,
        "what has not ended waits, and nothing else"
    );
}

/// Every sequence of four steps, and every longer one of the steps that matter most.
///
/// Keeps I7 and I6.
#[test]
fn br_04_br_17_br_19_pr_05_every_order_has_one_winner_and_everybody_is_told_the_same() {
    let mut runs = 0_u64;
    explore(&begin(), &STEPS, 4, &mut Vec::new(), &mut runs);
    let few = [
        Step::Allow(0),
        Step::Reject(0),
        Step::Abort(0),
        Step::Expire,
        Step::Close,
        Step::Never,
        Step::Dispose,
    ];
    explore(&begin(), &few, 6, &mut Vec::new(), &mut runs);
    assert!(runs > 150_000, "{runs} sequences");
}

fn explore(
    from: &(Bridge, Oracle),
    steps: &[Step],
    depth: usize,
    path: &mut Vec<Step>,
    runs: &mut u64,
) {
    if depth == 0 {
        *runs += 1;
        return;
    }
    for &step in steps {
        path.push(step);
        let mut next = from.clone();
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            take(&mut next.0, &mut next.1, step);
        }));
        assert!(taken.is_ok(), "after {path:?}");
        explore(&next, steps, depth - 1, path, runs);
        path.pop();
    }
}
