use std::fmt;

use serde::{Deserialize, Serialize};

/// The position of an event in one generation of a session's log: dense from 0.
///
/// Meaningful only beside a [`LogGeneration`]: a DSH migration renumbers (spec `DSH`, section 3).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// The first event of a log.
    pub const FIRST: Self = Self(0);

    /// The event at position `n`, from 0.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The position, from 0.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position after this one, or `None` at the end of the number range.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which numbering of a session's log a [`Seq`] belongs to.
///
/// For a DSH session this is the format version of the log file that is the session now; a native
/// session stays at [`LogGeneration::NATIVE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogGeneration(u32);

impl LogGeneration {
    /// The one generation of a native session: the layout its export is written in.
    pub const NATIVE: Self = Self(3);

    /// Generation `n`.
    #[must_use]
    pub const fn new(n: u32) -> Self {
        Self(n)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for LogGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
