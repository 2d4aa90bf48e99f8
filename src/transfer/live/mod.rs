//! Everything that lives in memory alone: pending interactions, who is present, open streams, and the
//! order in which a session's log and its readers learn of things.
//!
//! Promises: per session one thing at a time is appended and told, in the log's order; an interaction's
//! two audit rows lie around it, and its answer reaches the one who asked only after the second is
//! durable; nothing here survives the process, and nothing of an earlier one is revived (I6).

mod append;
mod ask;
mod frames;
mod handoff;
mod permission;
mod releases;
mod removal;
mod replays;
mod streams;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use ask::{Abort, Asked, Standing, Told};
pub use frames::Signal;
pub use handoff::{Executors, OpenDesk};
pub use permission::{Choosing, Selected};
pub use releases::Waiting;
pub use replays::{Replay, Running};
pub use streams::{Reader, Sent};
use tokio::sync::{OwnedMutexGuard, watch};

use super::Parts;
use crate::{
    approval::{Bridge, BridgeOptions, DecideError, Decision, Outcome, Pending, Settled},
    handoff::{Desks, Executor, SIMULATION, Simulator, Target},
    model::{Digest, InteractionHandle, Moment, PrincipalId, SessionHandle},
    stream::Hub,
};

/// How interactions and streams are set up.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Whether interactions are put to people.
    pub interactive: bool,
    /// The language people read.
    pub locale: String,
    /// How long an approval waits.
    pub life: Duration,
    /// The bounds of the streams.
    pub streams: crate::stream::Bounds,
    /// Who takes what is handed over.
    pub executors: Executors,
}

impl Default for LiveOptions {
    fn default() -> Self {
        let bridge = BridgeOptions::default();
        Self {
            interactive: bridge.enabled,
            locale: bridge.locale,
            life: bridge.life,
            streams: crate::stream::Bounds::default(),
            executors: Executors::default(),
        }
    }
}

/// The most answers kept for the one who asked, settled ones included.
const ANSWERS: usize = 8192;
/// How long an answer is kept to be fetched.
const KEPT: Duration = Duration::from_hours(1);
/// How often time is looked at while something waits.
const LOOK: Duration = Duration::from_millis(500);

/// What lives in memory alone.
#[derive(Debug)]
pub struct Live {
    parts: Arc<Parts>,
    state: Mutex<State>,
    orders: Mutex<HashMap<SessionHandle, Arc<tokio::sync::Mutex<()>>>>,
    releases: Mutex<HashMap<SessionHandle, Arc<Mutex<()>>>>,
    replays: replays::Replays,
    executors: Executors,
    desks: Desks,
}

#[derive(Debug)]
struct State {
    bridge: Bridge,
    hub: Hub,
    slots: HashMap<InteractionHandle, Slot>,
    oldest: VecDeque<(Moment, InteractionHandle)>,
    /// Second audit rows that are not in the journal yet.
    unaudited: HashMap<SessionHandle, Vec<Settled>>,
    looking: bool,
}

/// Where the one who asked finds the answer.
#[derive(Debug)]
struct Slot {
    session: SessionHandle,
    audience: Arc<[PrincipalId]>,
    audited: bool,
    answer: watch::Sender<Told>,
}

impl Live {
    /// Nothing pending, nobody present.
    #[must_use]
    pub fn new(parts: Arc<Parts>, options: LiveOptions) -> Self {
        let generation = parts.identity.bridge_generation;
        let bridge = Bridge::new(BridgeOptions {
            enabled: options.interactive,
            host: parts.identity.instance.clone(),
            generation,
            locale: options.locale,
            life: options.life,
            ..BridgeOptions::default()
        });
        Self {
            state: Mutex::new(State {
                bridge,
                hub: Hub::new(generation, options.streams),
                slots: HashMap::new(),
                oldest: VecDeque::new(),
                unaudited: HashMap::new(),
                looking: false,
            }),
            orders: Mutex::default(),
            releases: Mutex::default(),
            replays: replays::Replays::default(),
            executors: options.executors,
            desks: desks(options.executors, generation),
            parts,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.parts.clock.moment()
    }

    /// The one place in line for the session: whoever holds it appends and tells.
    async fn order(&self, session: SessionHandle) -> OwnedMutexGuard<()> {
        let line = {
            let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
            // Lines nobody stands in are forgotten.
            if orders.len() > 1024 {
                orders.retain(|_, line| Arc::strong_count(line) > 1);
            }
            Arc::clone(orders.entry(session).or_default())
        };
        line.lock_owned().await
    }

    /// Answers an interaction, if it is still live and the answer is for exactly it. That it was taken
    /// says nothing of the audit, and nothing of what the host then does.
    ///
    /// # Errors
    /// [`DecideError`]; nothing was consumed then.
    pub fn decide(self: &Arc<Self>, decision: &Decision) -> Result<Outcome, DecideError> {
        let decided = self.with(|state, now| state.bridge.decide(decision, now));
        if matches!(decided, Err(DecideError::ForeignSession)) {
            tracing::warn!(session = %decision.session, "an answer named another session");
        }
        decided
    }

    /// Takes one interaction back.
    ///
    /// # Errors
    /// Why there was nothing to take back.
    pub fn abort(
        self: &Arc<Self>,
        session: SessionHandle,
        id: InteractionHandle,
    ) -> Result<(), DecideError> {
        self.with(|state, now| state.bridge.abort(session, id, now))
    }

    /// Takes the session's interactions back, as its host has gone.
    pub fn disconnect(self: &Arc<Self>, session: SessionHandle) {
        self.with(|state, now| state.bridge.disconnect(session, now));
    }

    /// Ends what time has ended.
    pub fn tick(self: &Arc<Self>) {
        self.with(|state, now| state.bridge.tick(now));
    }

    /// Takes everything back and ends every stream.
    pub fn dispose(self: &Arc<Self>) {
        self.with(|state, now| state.bridge.dispose(now));
        self.state().hub.end();
    }

    /// Whether a decision by one of `deciders` would reach anything now.
    #[must_use]
    pub fn interactive(&self, deciders: &[PrincipalId]) -> bool {
        let now = self.now();
        self.state().bridge.interactive(deciders, now)
    }

    /// Whether interactions are put to people at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.state().bridge.options().enabled
    }

    /// What of the session waits.
    #[must_use]
    pub fn pending(self: &Arc<Self>, session: SessionHandle) -> Vec<Pending> {
        self.with(|state, now| state.bridge.pending(session, now))
    }

    /// Looks a request up that may come again and whose effect lives in memory alone.
    #[must_use]
    pub fn replay(&self, scope: String, key: &str, asked: Digest) -> Replay {
        self.replays.begin(scope, key.to_owned(), asked, self.now())
    }

    /// What people are shown of an interaction that waits.
    #[must_use]
    pub fn shown(&self, pending: &Pending) -> serde_json::Value {
        let identity = &self.parts.identity;
        frames::item(pending, &identity.instance, identity.bridge_generation)
    }

    /// The language people read.
    #[must_use]
    pub fn locale(&self) -> String {
        self.state().bridge.options().locale.clone()
    }

    /// What of the session waits, and the place in `who`'s stream the list stands at.
    #[must_use]
    pub fn pending_for(
        self: &Arc<Self>,
        session: SessionHandle,
        who: PrincipalId,
    ) -> (Vec<Pending>, String) {
        let generation = self.parts.identity.bridge_generation;
        // What has ended by now is told before the list is made.
        self.tick();
        self.with(|state, now| {
            let pending = state.bridge.pending(session, now);
            (pending, format!("{generation}.{}", state.hub.number(who)))
        })
    }

    /// One step of the machine, and everything that follows from it before anybody else looks.
    fn with<T>(self: &Arc<Self>, step: impl FnOnce(&mut State, Moment) -> T) -> T {
        let mut state = self.state();
        let now = self.now();
        let result = step(&mut state, now);
        let sessions = state.settle(now);
        drop(state);
        for session in sessions {
            let live = Arc::clone(self);
            // At the very end there is nobody to write the row, and the log keeps the first alone.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { live.audit(session).await });
            }
        }
        result
    }

    /// Looks at the time for as long as something waits.
    fn look(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state().looking, true) {
            return;
        }
        let live = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(live) = live.upgrade() else {
                    return;
                };
                live.tick();
                let mut state = live.state();
                if !state.bridge.has_any() {
                    state.looking = false;
                    return;
                }
            }
        });
    }
}

/// The offers of all sessions; the simulator's connection is this run.
fn desks(executors: Executors, generation: u64) -> Desks {
    let simulator = Executor {
        kind: SIMULATION.to_owned(),
        target: Target {
            id: "simulator".to_owned(),
            generation,
        },
    };
    match executors {
        Executors::None => Desks::closed(),
        Executors::Simulator => {
            Desks::with(simulator, Arc::new(Simulator)).unwrap_or_else(|_kind| Desks::closed())
        }
    }
}

impl State {
    /// Tells of what has settled; the sessions that have audit rows to come.
    fn settle(&mut self, now: Moment) -> Vec<SessionHandle> {
        let mut sessions = Vec::new();
        for settled in self.bridge.take_settled() {
            let Some(slot) = self.slots.get(&settled.id) else {
                continue;
            };
            if settled.was_pending {
                let audience = Arc::clone(&slot.audience);
                self.hub.publish(&audience, frames::resolved(&settled));
            }
            if slot.audited {
                sessions.push(settled.session);
                self.unaudited
                    .entry(settled.session)
                    .or_default()
                    .push(settled);
            } else {
                slot.answer.send_replace(Told::Settled(Box::new(settled)));
            }
        }
        self.forget(now);
        sessions.dedup();
        sessions
    }

    fn forget(&mut self, now: Moment) {
        while let Some(&(since, id)) = self.oldest.front() {
            let pending = self
                .slots
                .get(&id)
                .is_some_and(|slot| matches!(*slot.answer.borrow(), Told::Pending));
            if pending || (self.oldest.len() <= ANSWERS && now < since.after(KEPT)) {
                break;
            }
            self.oldest.pop_front();
            self.slots.remove(&id);
        }
    }
}
