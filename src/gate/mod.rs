//! Decides whether paths beneath a root are served at all.
//!
//! Promises: closed unless a current report of the prober proves that reads are pinned on this
//! host, and every closed gate says why (I3, I15); no flag, approval or field of an event opens it.
//! Leaves to others: making the report (`fsprobe`), reading the files (`pinned`).

#![forbid(unsafe_code)]

mod host;
mod judge;
mod proof;
mod report;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

pub use host::{RootFacts, build_id};
use judge::{Now, Opening, current, judge};
pub use proof::PinningProof;
pub use report::{Forged, MAX_SEALED, Probed, ProbedResolver, ProbedRoot, claims_of, subject_name};
use thiserror::Error;

use crate::{
    model::{Clock, SystemClock, Timestamp},
    pinned::Resolver,
    seal::SealKey,
};

/// How old a report may be unless the configuration says otherwise.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// Why no path beneath a root is served. The normal state, not a failure.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum GateClosed {
    /// The configuration asks for metadata alone.
    #[error("serving paths is not enabled")]
    NotEnabled,
    /// Nothing was probed yet.
    #[error("there is no probe report")]
    NoReport,
    /// There is nowhere to probe on the root's mount.
    #[error("there is no arena on the root's mount to probe in")]
    NoArena,
    /// The report was not made here, or was edited.
    #[error("the probe report is not authentic")]
    Forged,
    /// The report is too old.
    #[error("the probe report is too old")]
    Stale,
    /// The report speaks of another build, kernel, boot, resolver, filesystem or root.
    #[error("the probe report speaks of another host")]
    HostMismatch,
    /// Not every way of probing was run to its end.
    #[error("the probe was not run in full")]
    Incomplete,
    /// The weak reader survived too, so the attacks showed nothing.
    #[error("the probe's attacks did not even beat its weak reader")]
    ControlNotBeaten,
    /// The reader was beaten.
    #[error("the probe saw an escape, a torn read or a hang")]
    EscapeSeen,
}

impl GateClosed {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::NotEnabled,
        Self::NoReport,
        Self::NoArena,
        Self::Forged,
        Self::Stale,
        Self::HostMismatch,
        Self::Incomplete,
        Self::ControlNotBeaten,
        Self::EscapeSeen,
    ];

    /// The reason as one stable word.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotEnabled => "not-enabled",
            Self::NoReport => "no-report",
            Self::NoArena => "no-arena",
            Self::Forged => "forged",
            Self::Stale => "stale",
            Self::HostMismatch => "host-mismatch",
            Self::Incomplete => "incomplete",
            Self::ControlNotBeaten => "control-not-beaten",
            Self::EscapeSeen => "escape-seen",
        }
    }

    /// The setting or command that governs the reason, for those who may change it (I15).
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::NotEnabled => "set deliverables.mode = \"when-proven\"",
            Self::NoArena => {
                "set arena of the root to a directory on its mount, outside every root"
            }
            Self::NoReport | Self::Forged | Self::Stale | Self::HostMismatch | Self::Incomplete => {
                "run `holdfast prove`"
            }
            Self::ControlNotBeaten => "run `holdfast prove` again when the host is less busy",
            Self::EscapeSeen => "keep paths closed: this host cannot pin reads",
        }
    }
}

/// What the operator wants served of declared paths (`deliverables.mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Names and descriptions alone.
    #[default]
    MetadataOnly,
    /// Contents, where and while pinning is proven.
    WhenProven,
}

impl Mode {
    /// The mode as the configuration spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MetadataOnly => "metadata-only",
            Self::WhenProven => "when-proven",
        }
    }

    /// Takes a mode as the configuration spells it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::MetadataOnly, Self::WhenProven]
            .into_iter()
            .find(|mode| mode.name() == text)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a gate is judged by: the sealed file as it lies in the data directory, and this host.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The file, if there is one.
    pub file: Option<&'a [u8]>,
    /// The data directory's key, if there is one.
    pub key: Option<&'a SealKey>,
    /// The program that runs; see [`build_id`].
    pub build: &'a str,
    /// The resolvers that passed the self-test of this start, the stronger first.
    pub sound: &'a [Resolver],
    /// Every root as it is now.
    pub roots: &'a [RootFacts],
}

/// The one place that gives out proofs.
#[derive(Debug)]
pub struct Gate {
    mode: Mode,
    max_age: Duration,
    clock: Arc<dyn Clock>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    probed: Option<Arc<Probed>>,
    roots: Vec<(String, Result<Opening, GateClosed>)>,
}

/// How the gate stands for one root at one moment. To be shown; only [`Gate::proof`] opens anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A current report shows pinned reads.
    Open {
        /// The resolvers it speaks of, the stronger first.
        resolvers: Vec<Resolver>,
        /// When it was made.
        made_at: Timestamp,
        /// From when on it is too old.
        until: Timestamp,
    },
    /// Nothing is read.
    Closed(GateClosed),
}

impl Gate {
    /// A gate for a host that was not probed.
    #[must_use]
    pub fn unproven(mode: Mode) -> Self {
        Self::new(mode, DEFAULT_MAX_AGE, Arc::new(SystemClock))
    }

    /// A closed gate that takes no report older than `max_age` by `clock`.
    #[must_use]
    pub fn new(mode: Mode, max_age: Duration, clock: Arc<dyn Clock>) -> Self {
        Self {
            mode,
            max_age,
            clock,
            state: RwLock::default(),
        }
    }

    /// Judges every root anew, and forgets what was known before.
    pub fn load(&self, evidence: &Evidence<'_>) {
        let opened = match (evidence.file, evidence.key) {
            (None, _) => Err(GateClosed::NoReport),
            (Some(_), None) => Err(GateClosed::Forged),
            (Some(file), Some(key)) => Probed::open(file, key).map_err(|Forged| GateClosed::Forged),
        };
        let now = Now {
            build: evidence.build,
            sound: evidence.sound,
            time: self.clock.now(),
            max_age: self.max_age,
        };
        let roots = evidence.roots.iter().map(|root| {
            let opening = match &opened {
                Ok(probed) => judge(probed, root, &now),
                Err(closed) => Err(*closed),
            };
            (root.name.clone(), opening)
        });
        let state = State {
            roots: roots.collect(),
            probed: opened.ok().map(Arc::new),
        };
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The proof that reads of the root of this name are pinned here and now.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn proof(&self, root: &str) -> Result<PinningProof, GateClosed> {
        let opening = self.opening(root)?;
        Ok(PinningProof::made(root, opening.resolvers))
    }

    /// How the gate stands for the root of this name.
    #[must_use]
    pub fn standing(&self, root: &str) -> Standing {
        match self.opening(root) {
            Ok(Opening { resolvers, made_at }) => Standing::Open {
                resolvers,
                made_at,
                until: made_at.after(self.max_age),
            },
            Err(closed) => Standing::Closed(closed),
        }
    }

    /// What the configuration asks for.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How old a report may be.
    #[must_use]
    pub fn max_age(&self) -> Duration {
        self.max_age
    }

    /// The latest report whose seal fitted, whatever it says.
    #[must_use]
    pub fn probed(&self) -> Option<Arc<Probed>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.probed.clone()
    }

    fn opening(&self, root: &str) -> Result<Opening, GateClosed> {
        match self.mode {
            Mode::MetadataOnly => return Err(GateClosed::NotEnabled),
            Mode::WhenProven => {}
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let known = state.roots.iter().find(|(name, _)| name == root);
        let opening = match known {
            Some((_, opening)) => opening.clone()?,
            None => return Err(GateClosed::NoReport),
        };
        // Time goes on after the report was loaded.
        current(opening.made_at, self.clock.now(), self.max_age)?;
        Ok(opening)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Gate, GateClosed, Mode};

    /// Keeps I3: without a report there is no proof, whatever the configuration asks for.
    #[test]
    fn a_host_that_was_not_probed_has_a_closed_gate_that_says_why() {
        for (mode, reason) in [
            (Mode::MetadataOnly, GateClosed::NotEnabled),
            (Mode::WhenProven, GateClosed::NoReport),
            (Mode::default(), GateClosed::NotEnabled),
        ] {
            assert_eq!(
                Gate::unproven(mode).proof("any").err(),
                Some(reason),
                "{mode}"
            );
        }
    }

    /// Keeps I15: every reason has a code of its own and says what governs it.
    #[test]
    fn every_reason_has_its_own_code() {
        let codes: BTreeSet<_> = GateClosed::ALL.map(GateClosed::code).into();
        assert_eq!(codes.len(), GateClosed::ALL.len());
        for reason in GateClosed::ALL {
            let code = reason.code();
            assert!(
                code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{code}"
            );
            assert!(!reason.remedy().is_empty());
        }
    }

    #[test]
    fn a_mode_is_read_as_it_is_written_and_nothing_else_is_one() {
        for mode in [Mode::MetadataOnly, Mode::WhenProven] {
            assert_eq!(Mode::parse(mode.name()), Some(mode));
        }
        for text in ["", "always", "When-Proven", "release"] {
            assert_eq!(Mode::parse(text), None, "{text:?}");
        }
    }
}
