use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{Cause, DecideError, Outcome};
use crate::model::{InteractionHandle, Moment, SessionHandle};

/// How many settled interactions are remembered, and for how long: "decided already" and "unknown"
/// stay different without unbounded memory.
const MOST: usize = 4096;
const LIFE: Duration = Duration::from_hours(1);

/// What is remembered of interactions that settled.
#[derive(Clone, Debug, Default)]
pub(super) struct Tombs {
    known: HashMap<InteractionHandle, Tomb>,
    oldest: VecDeque<(Moment, InteractionHandle)>,
}

#[derive(Clone, Copy, Debug)]
struct Tomb {
    session: SessionHandle,
    outcome: Outcome,
    cause: Cause,
}

impl Tombs {
    /// Remembers one more; the one forgotten in its place, if any.
    pub(super) fn add(
        &mut self,
        id: InteractionHandle,
        session: SessionHandle,
        outcome: Outcome,
        cause: Cause,
        now: Moment,
    ) {
        let tomb = Tomb {
            session,
            outcome,
            cause,
        };
        if self.known.insert(id, tomb).is_none() {
            self.oldest.push_back((now, id));
        }
        while let Some(&(since, id)) = self.oldest.front() {
            if self.oldest.len() <= MOST && now < since.after(LIFE) {
                break;
            }
            self.oldest.pop_front();
            self.known.remove(&id);
        }
    }

    /// Why an answer to this interaction comes too late.
    pub(super) fn late(&self, id: InteractionHandle, session: SessionHandle) -> DecideError {
        match self.known.get(&id) {
            Some(tomb) if tomb.session == session => match tomb.cause {
                Cause::Decided => DecideError::AlreadyDecided {
                    recorded: tomb.outcome,
                },
                Cause::Expired => DecideError::Expired,
                Cause::TurnEnded => DecideError::StaleTurn,
                Cause::AgentReplaced => DecideError::AgentReplaced,
                Cause::PolicyNever => DecideError::PolicyNever,
                Cause::NotInteractive => DecideError::NotInteractive,
                cause @ (Cause::Aborted
                | Cause::Presence
                | Cause::Disconnected
                | Cause::Disposed
                | Cause::Full) => DecideError::Withdrawn { cause },
            },
            _ => DecideError::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LIFE, MOST, Tombs};
    use crate::{
        approval::{Cause, DecideError, Outcome},
        model::{InteractionHandle, Moment, SessionHandle},
    };

    /// Keeps I11.
    #[test]
    fn so_many_are_remembered_for_so_long() {
        let session = SessionHandle::from_random([1; 16]);
        let id = |n: usize| InteractionHandle::from_random((n as u128).to_be_bytes());
        let mut tombs = Tombs::default();
        let begin = Moment::default();
        for n in 0..=MOST {
            tombs.add(id(n), session, Outcome::Rejected, Cause::Decided, begin);
        }
        assert_eq!(tombs.known.len(), MOST);
        assert_eq!(tombs.late(id(0), session), DecideError::Unknown);
        let recorded = Outcome::Rejected;
        let known = DecideError::AlreadyDecided { recorded };
        assert_eq!(tombs.late(id(1), session), known);
        assert_eq!(
            tombs.late(id(1), SessionHandle::from_random([2; 16])),
            DecideError::Unknown
        );
        tombs.add(
            id(9999),
            session,
            Outcome::Rejected,
            Cause::Decided,
            begin.after(LIFE),
        );
        assert_eq!(tombs.known.len(), 1);
    }
}
