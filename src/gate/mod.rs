//! Decides whether paths beneath a root are served at all.
//!
//! Promises: closed unless a current report of the prober proves that reads are pinned on this
//! host, and every closed gate says why (I3, I15); no flag, approval or field of an event opens it.
//! Leaves to others: making the report (`fsprobe`), reading the files (`pinned`).

#![forbid(unsafe_code)]

mod proof;

use std::fmt;

pub use proof::PinningProof;
use thiserror::Error;

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

/// The one place that gives out proofs.
#[derive(Debug)]
pub struct Gate {
    state: Result<PinningProof, GateClosed>,
}

impl Gate {
    /// A gate for a host that was not probed.
    #[must_use]
    pub fn unproven(mode: Mode) -> Self {
        let reason = match mode {
            Mode::MetadataOnly => GateClosed::NotEnabled,
            Mode::WhenProven => GateClosed::NoReport,
        };
        Self { state: Err(reason) }
    }

    /// The proof that reads are pinned here.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn proof(&self) -> Result<&PinningProof, GateClosed> {
        match &self.state {
            Ok(proof) => Ok(proof),
            Err(reason) => Err(*reason),
        }
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
            assert_eq!(Gate::unproven(mode).proof().err(), Some(reason), "{mode}");
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
