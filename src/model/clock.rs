use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A moment in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment `ms` milliseconds after the epoch.
    #[must_use]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The moment `life` later, stopping at the end of the range.
    #[must_use]
    pub fn after(self, life: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(life.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment of a clock that only goes forward, however the time of day is set. What must end on time
/// ends by it; it means nothing in another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `since` after the clock began.
    #[must_use]
    pub const fn new(since: Duration) -> Self {
        Self(since)
    }

    /// The moment `life` later, stopping at the end of the range.
    #[must_use]
    pub const fn after(self, life: Duration) -> Self {
        Self(self.0.saturating_add(life))
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where times come from. Nothing else in the crate asks the system for the time of day.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The present moment, by the time of day.
    fn now(&self) -> Timestamp;

    /// The present moment, by a clock nobody sets.
    fn moment(&self) -> Moment;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg_attr(
        not(doc),
        expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the wall clock"
        )
    )]
    fn now(&self) -> Timestamp {
        // Before 1970 the clock is wrong; time zero makes every expiry refuse less, never crash.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn moment(&self) -> Moment {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        Moment(BEGUN.get_or_init(Instant::now).elapsed())
    }
}

/// A clock that moves only when told to, for tests. Clones share one time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<(Timestamp, Moment)>>);

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new((start, Moment::default()))))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = (now.0.after(by), now.1.after(by));
    }

    /// Sets the time of day, as an operator can; the moment stays.
    pub fn set(&self, to: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = to;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn moment(&self) -> Moment {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}
