use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Executor, Handoff, HandoffError, Simulation};
use crate::model::SessionHandle;

/// The most sessions whose offers are kept.
const MOST: usize = 256;

/// The desks of all sessions. Where there is no executor, they are one that refuses everything.
pub struct Desks {
    executor: Option<(Executor, Arc<dyn Simulation>)>,
    closed: Arc<Handoff>,
    open: Mutex<HashMap<SessionHandle, (u64, Arc<Handoff>)>>,
}

impl std::fmt::Debug for Desks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desks").finish_non_exhaustive()
    }
}

impl Desks {
    /// As in production: without an executor.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            executor: None,
            closed: Arc::new(Handoff::without_executor()),
            open: Mutex::default(),
        }
    }

    /// With a simulator.
    ///
    /// # Errors
    /// [`HandoffError::ExecutorKindRefused`] for any other kind.
    pub fn with(executor: Executor, simulation: Arc<dyn Simulation>) -> Result<Self, HandoffError> {
        // Refused now, not at the first offer.
        Handoff::with(executor.clone(), Arc::clone(&simulation))?;
        Ok(Self {
            executor: Some((executor, simulation)),
            ..Self::closed()
        })
    }

    /// The session's desk. Of too many, the one that was asked for longest ago is forgotten, and its
    /// offers with it.
    #[must_use]
    pub fn of(&self, session: SessionHandle) -> Arc<Handoff> {
        let made = || {
            let (executor, simulation) = self.executor.clone()?;
            Handoff::with(executor, simulation).ok().map(Arc::new)
        };
        let mut desks = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = desks.values().map(|(at, _)| *at).max().unwrap_or_default();
        let at = newest.saturating_add(1);
        if let Some((used, desk)) = desks.get_mut(&session) {
            *used = at;
            return Arc::clone(desk);
        }
        let Some(desk) = made() else {
            return Arc::clone(&self.closed);
        };
        if desks.len() >= MOST {
            let oldest = desks.iter().min_by_key(|(_, (at, _))| *at);
            if let Some(oldest) = oldest.map(|(session, _)| *session) {
                desks.remove(&oldest);
            }
        }
        desks.insert(session, (at, Arc::clone(&desk)));
        desk
    }

    /// The session's desk, if it has one.
    #[must_use]
    pub fn known(&self, session: SessionHandle) -> Option<Arc<Handoff>> {
        let desks = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        desks.get(&session).map(|(_, desk)| Arc::clone(desk))
    }

    /// Forgets the session's desk, and its offers with it.
    pub fn forget(&self, session: SessionHandle) {
        let mut desks = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        desks.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Desks, MOST};
    use crate::{
        handoff::{Executor, HandoffError, SIMULATION, Simulator, Target},
        model::SessionHandle,
    };

    fn session(n: usize) -> SessionHandle {
        SessionHandle::from_random((n as u128).to_be_bytes())
    }

    /// Keeps I11.
    #[test]
    fn desks_are_bounded_and_the_one_longest_unused_goes() {
        let target = Target {
            id: "simulator".to_owned(),
            generation: 1,
        };
        let executor = Executor {
            kind: SIMULATION.to_owned(),
            target,
        };
        let desks = Desks::with(executor, Arc::new(Simulator)).unwrap();
        let first = desks.of(session(0));
        for n in 1..MOST {
            drop(desks.of(session(n)));
        }
        assert!(Arc::ptr_eq(&first, &desks.of(session(0))));
        drop(desks.of(session(MOST)));
        assert!(desks.known(session(0)).is_some());
        assert!(desks.known(session(1)).is_none());
        assert_eq!(desks.open.lock().unwrap().len(), MOST);
    }

    #[test]
    fn without_an_executor_no_desk_is_kept() {
        let desks = Desks::closed();
        for n in 0..3 {
            let refused = desks.of(session(n)).ready();
            assert_eq!(refused, Err(HandoffError::ExecutorUnavailable));
        }
        assert!(desks.open.lock().unwrap().is_empty());
    }
}
