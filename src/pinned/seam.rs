#![forbid(unsafe_code)]

/// A named place in a read at which the world may change.
///
/// Each is passed after what it names happened, except [`Step::Read`] and
/// [`Step::Again`], which are passed before the read at their offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Nothing has been looked up yet.
    Begun,
    /// The walk holds the component of this index, from 0. `openat2` has no such step.
    Component {
        /// The component's position in the path.
        index: u32,
    },
    /// The path led to a descriptor that can only be asked, not read.
    Resolved,
    /// That descriptor is a plain file within the ceiling and the root's policy.
    Examined,
    /// The same file is open for reading.
    Reopened,
    /// The file's length and times before the first read are known.
    Stamped,
    /// Where the root's policy asks for it: the file's only name is the one it was found by.
    Confirmed,
    /// What was dirty of the file is written, so that the next store through a mapping shows.
    Flushed,
    /// A lease on the file is held.
    Leased,
    /// The filesystem made an atomic copy of the file.
    Cloned,
    /// About to read at this offset, in bytes.
    Read {
        /// Where.
        offset: u64,
    },
    /// About to read a second time at this offset, in bytes.
    Again {
        /// Where.
        offset: u64,
    },
    /// The last read is done; whether the file held still is not known yet.
    Copied,
}

impl Step {
    /// The step's name in reports; steps that recur share one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Component { .. } => "component",
            Self::Resolved => "resolved",
            Self::Examined => "examined",
            Self::Reopened => "reopened",
            Self::Stamped => "stamped",
            Self::Confirmed => "confirmed",
            Self::Flushed => "flushed",
            Self::Leased => "leased",
            Self::Cloned => "cloned",
            Self::Read { .. } => "read",
            Self::Again { .. } => "again",
            Self::Copied => "copied",
        }
    }
}

/// Calls out at every [`Step`]. Production passes `()`, which costs nothing; a test or the prober
/// passes a closure that attacks there.
pub trait Seam {
    /// The read is at `step`.
    fn at(&mut self, step: Step);
}

impl Seam for () {
    #[inline(always)]
    fn at(&mut self, _step: Step) {}
}

impl<F: FnMut(Step)> Seam for F {
    fn at(&mut self, step: Step) {
        self(step);
    }
}
