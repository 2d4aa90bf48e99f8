//! What a connection owes and is owed, and when that has gone on for too long.
//!
//! Promises: a decision is a plain function of counters and a moment, so that it is tested without a
//! socket. Leaves to others: counting (`socket`), acting (`server`).

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::model::{ByteCount, Limits};

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing was asked within the deadline, or the service shuts down: closed without a word.
    Idle,
    /// A head was begun and not finished within the deadline: 408.
    SlowHead,
    /// The peer took no octet of what it asked for: reset.
    StalledOut,
    /// The peer sent no octet of what it announced: reset.
    StalledIn,
    /// The peer keeps below the least rate: reset.
    TooSlow,
    /// Still busy when the drain ended: reset.
    Drained,
}

/// The bounds that apply to one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) head: Duration,
    pub(super) stall: Duration,
    /// The least rate in bytes a second, and how long a transfer may take to reach it.
    pub(super) rate: Option<(ByteCount, Duration)>,
}

impl Patience {
    pub(super) fn of(limits: &Limits) -> Self {
        Self {
            head: limits.head_deadline,
            stall: limits.stall,
            rate: (limits.minimum_rate > ByteCount::ZERO)
                .then_some((limits.minimum_rate, limits.stall)),
        }
    }

    /// How often to look: fine enough for the shortest bound, never busy.
    pub(super) fn interval(&self) -> Duration {
        let shortest = self.head.min(self.stall);
        (shortest / 8).clamp(Duration::from_millis(10), Duration::from_secs(2))
    }
}

/// The counters of one connection, shared by its socket, its bodies and its watch. They all run on
/// one task, so the lock is never waited for.
#[derive(Debug)]
pub(super) struct Life(Mutex<State>);

#[derive(Debug)]
struct State {
    patience: Patience,
    requests: u64,
    /// The request that announced two lengths.
    two_lengths: Option<u64>,
    answers: u64,
    read: u64,
    /// Of what was read, octets of requests: without TLS all of them.
    heard: u64,
    written: u64,
    /// The HTTP library holds output the socket did not take.
    blocked: bool,
    /// The service waits for the request's body.
    wanting: bool,
    /// Since when a head is expected, and what had been heard by then.
    head: Option<(Instant, u64)>,
    out: Flow,
    into: Flow,
}

/// Progress in one direction.
#[derive(Debug)]
struct Flow {
    /// Octets seen at the last look.
    seen: u64,
    /// When they last moved, or began to be waited for.
    moved: Instant,
    awaited: bool,
    looked: Instant,
    /// Since the request began: how long octets were waited for, and how many came.
    waited: Duration,
    came: u64,
}

impl Life {
    pub(super) fn new(patience: Patience, now: Instant) -> Self {
        Self(Mutex::new(State {
            patience,
            requests: 0,
            two_lengths: None,
            answers: 0,
            read: 0,
            heard: 0,
            written: 0,
            blocked: false,
            wanting: false,
            head: Some((now, 0)),
            out: Flow::new(now),
            into: Flow::new(now),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_read(&self, bytes: usize) {
        let mut state = self.state();
        state.read = state.read.saturating_add(count(bytes));
    }

    pub(super) fn has_heard(&self, bytes: usize) {
        let mut state = self.state();
        state.heard = state.heard.saturating_add(count(bytes));
    }

    pub(super) fn has_written(&self, bytes: usize) {
        let mut state = self.state();
        state.written = state.written.saturating_add(count(bytes));
        state.blocked = false;
    }

    pub(super) fn is_blocked(&self) {
        self.state().blocked = true;
    }

    pub(super) fn wants_body(&self, wanting: bool) {
        self.state().wanting = wanting;
    }

    /// The `nth` head, from 0, has two lengths.
    pub(super) fn has_two_lengths(&self, nth: u64) {
        self.state().two_lengths = Some(nth);
    }

    /// A head is complete. Says whether it announced two lengths.
    pub(super) fn begins(&self) -> bool {
        let mut state = self.state();
        let conflict = state.two_lengths == Some(state.requests);
        state.requests = state.requests.saturating_add(1);
        state.head = None;
        state.out.restart();
        state.into.restart();
        conflict
    }

    /// The answer has been handed over in full: the next head is expected.
    pub(super) fn ends(&self, now: Instant) {
        let mut state = self.state();
        state.answers = state.answers.saturating_add(1);
        state.head = Some((now, state.heard));
    }

    /// How many answers have been handed over, if no request waits for one.
    pub(super) fn answered(&self) -> Option<u64> {
        let state = self.state();
        (state.answers == state.requests).then_some(state.answers)
    }

    /// No more requests are wanted; whether the connection rests between two of them.
    pub(super) fn is_idle(&self, unacknowledged: u64) -> bool {
        let state = self.state();
        state.head.is_some() && !state.blocked && unacknowledged == 0
    }

    /// Looks at the counters. To be called again within [`Patience::interval`].
    pub(super) fn judge(&self, now: Instant, unacknowledged: u64) -> Option<Cut> {
        let mut state = self.state();
        let State {
            patience,
            read,
            heard,
            written,
            blocked,
            wanting,
            head,
            out,
            into,
            ..
        } = &mut *state;
        let owed = *blocked || unacknowledged > 0;
        if out.look(now, written.saturating_sub(unacknowledged), owed) > patience.stall {
            return Some(Cut::StalledOut);
        }
        if into.look(now, *read, *wanting) > patience.stall {
            return Some(Cut::StalledIn);
        }
        if let Some((rate, allowance)) = patience.rate
            && (out.is_below(rate, allowance) || into.is_below(rate, allowance))
        {
            return Some(Cut::TooSlow);
        }
        let (since, before) = head.as_mut()?;
        if owed {
            // The last answer is still on its way: the next head is not late yet.
            *since = now;
        }
        let late = now.saturating_duration_since(*since) > patience.head;
        late.then_some(if *heard > *before {
            Cut::SlowHead
        } else {
            Cut::Idle
        })
    }
}

impl Flow {
    fn new(now: Instant) -> Self {
        Self {
            seen: 0,
            moved: now,
            awaited: false,
            looked: now,
            waited: Duration::ZERO,
            came: 0,
        }
    }

    fn restart(&mut self) {
        self.waited = Duration::ZERO;
        self.came = 0;
    }

    /// Takes the present count; says for how long octets have been waited for in vain.
    fn look(&mut self, now: Instant, seen: u64, awaited: bool) -> Duration {
        let more = seen.saturating_sub(self.seen);
        if awaited {
            let passed = now.saturating_duration_since(self.looked);
            self.waited = self.waited.saturating_add(passed);
        }
        self.came = self.came.saturating_add(more);
        self.seen = seen;
        self.looked = now;
        if more > 0 || !(awaited && self.awaited) {
            self.moved = now;
        }
        self.awaited = awaited;
        now.saturating_duration_since(self.moved)
    }

    fn is_below(&self, rate: ByteCount, allowance: Duration) -> bool {
        let least = u128::from(rate.get()).saturating_mul(self.waited.as_millis()) / 1000;
        self.waited > allowance && u128::from(self.came) < least
    }
}

fn count(bytes: usize) -> u64 {
    ByteCount::from(bytes).get()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Cut, Life, Patience};
    use crate::model::ByteCount;

    const SECOND: Duration = Duration::from_secs(1);

    fn life(rate: Option<(ByteCount, Duration)>) -> (Life, Instant) {
        let patience = Patience {
            head: 10 * SECOND,
            stall: 5 * SECOND,
            rate,
        };
        let start = Instant::now();
        (Life::new(patience, start), start)
    }

    /// Looks once a second; says when and why the connection was cut, within `seconds`.
    fn watch(
        life: &Life,
        start: Instant,
        seconds: u32,
        mut each: impl FnMut(u32) -> u64,
    ) -> Option<(u32, Cut)> {
        (1..=seconds).find_map(|second| {
            let unacknowledged = each(second);
            let cut = life.judge(start + second * SECOND, unacknowledged)?;
            Some((second, cut))
        })
    }

    #[test]
    fn a_silent_connection_and_a_slow_head_end_at_the_deadline() {
        let (silent, start) = life(None);
        assert_eq!(watch(&silent, start, 60, |_| 0), Some((11, Cut::Idle)));
        let (slow, start) = life(None);
        let cut = watch(&slow, start, 60, |_| {
            slow.has_heard(1);
            0
        });
        assert_eq!(cut, Some((11, Cut::SlowHead)));
    }

    #[test]
    fn a_service_that_thinks_is_left_alone() {
        let (life, start) = life(None);
        life.begins();
        assert_eq!(watch(&life, start, 3600, |_| 0), None);
    }

    #[test]
    fn r11_a_slow_reader_that_acknowledges_is_never_cut_and_a_stopped_one_is() {
        let (life, start) = life(None);
        life.begins();
        life.has_written(1_000_000);
        life.is_blocked();
        // One octet every four seconds, for a day and a bit, then none.
        let cut = watch(&life, start, 100_000, |second| {
            1_000_000 - u64::from(second.min(90_000) / 4)
        });
        assert_eq!(cut, Some((90_000 + 6, Cut::StalledOut)));
    }

    #[test]
    fn the_next_head_is_not_late_while_the_last_answer_is_on_its_way() {
        let (life, start) = life(None);
        life.begins();
        life.has_written(100);
        life.ends(start);
        let cut = watch(&life, start, 200, |second| {
            100_u64.saturating_sub(second.into())
        });
        assert_eq!(cut, Some((99 + 11, Cut::Idle)));
    }

    #[test]
    fn a_body_that_is_waited_for_must_come() {
        let (life, start) = life(None);
        life.begins();
        life.wants_body(true);
        let cut = watch(&life, start, 100, |second| {
            if second < 50 {
                life.has_read(1);
            }
            0
        });
        assert_eq!(cut, Some((49 + 6, Cut::StalledIn)));
    }

    #[test]
    fn a_rate_below_the_least_is_cut_after_the_allowance_and_pauses_of_ours_do_not_count() {
        let rate = Some((ByteCount::new(100), 20 * SECOND));
        let (slow, start) = life(rate);
        slow.begins();
        slow.has_written(1_000_000);
        let cut = watch(&slow, start, 1000, |s| 1_000_000 - 99 * u64::from(s));
        assert_eq!(cut, Some((21, Cut::TooSlow)));
        let (enough, start) = life(rate);
        enough.begins();
        enough.has_written(1_000_000);
        let cut = watch(&enough, start, 1000, |s| 1_000_000 - 101 * u64::from(s));
        assert_eq!(cut, None);
        let (paused, start) = life(rate);
        paused.begins();
        assert_eq!(watch(&paused, start, 1000, |_| 0), None);
    }

    /// Octets of a handshake are no request: whoever stops after it has asked nothing.
    #[test]
    fn what_is_read_below_the_requests_is_no_head() {
        let (life, start) = life(None);
        let cut = watch(&life, start, 60, |_| {
            life.has_read(100);
            0
        });
        assert_eq!(cut, Some((11, Cut::Idle)));
    }

    #[test]
    fn answers_are_complete_when_no_request_waits_for_one() {
        let (life, start) = life(None);
        assert_eq!(life.answered(), Some(0));
        life.has_two_lengths(1);
        assert_eq!((life.begins(), life.answered()), (false, None));
        life.ends(start);
        assert_eq!(life.answered(), Some(1));
        assert!(life.begins(), "the second has two lengths");
    }
}
