//! The permission a session runs under: what can be chosen, what is in force, and what is held until the
//! next prompted turn.
//!
//! Promises: what is in force is what the log says; a choice made while no turn is open is kept, durably,
//! and said to be pending; the last choice wins, held or not. Leaves to others: appending to the log and
//! the order in which that happens (`transfer`), what a preset means for a file (`policy`).

#![forbid(unsafe_code)]

mod held;

use thiserror::Error;

pub use held::{Held, HeldChoices};

use crate::{
    control::ControlError,
    journal::{Event, Journal, JournalError},
    model::SessionHandle,
};

/// A preset that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nothing is modified, everything is asked.
    ReadOnly,
    /// The workspace may be modified.
    WorkspaceWrite,
    /// No confinement, nobody is asked.
    DangerFullAccess,
}

impl Choice {
    /// All of them, in the order they are offered.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::WorkspaceWrite, Self::DangerFullAccess];

    /// Its word, everywhere on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }

    /// The choice of this word, to the byte: a title is no value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == text)
    }

    /// What people read.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::ReadOnly => "Read Only",
            Self::WorkspaceWrite => "Workspace Write",
            Self::DangerFullAccess => "Full access",
        }
    }

    /// What it means for the files of the session.
    #[must_use]
    pub const fn effect(self) -> &'static str {
        match self {
            Self::ReadOnly => "asks before each release of a file",
            Self::WorkspaceWrite => "releases ordinary files, asks about sensitive ones",
            Self::DangerFullAccess => {
                "releases ordinary files, refuses sensitive ones, asks nobody"
            }
        }
    }

    const fn sandbox(self) -> &'static str {
        self.as_str()
    }

    const fn approval(self) -> &'static str {
        match self {
            Self::ReadOnly | Self::WorkspaceWrite => "ask",
            Self::DangerFullAccess => "never",
        }
    }
}

/// What a session runs under, as its log says; what the log does not say is as with a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    preset: Option<String>,
    sandbox: String,
    approval: String,
    /// How many events the log had at the last change: the revision of what is in force.
    pub changed_at: u64,
}

/// Why a choice was not taken.
#[derive(Debug, Error)]
pub enum PermissionError {
    /// The word is none of the options.
    #[error("no such permission")]
    Unknown,
    /// The choice takes confinement away, and the risk was not acknowledged.
    #[error("the risk was not acknowledged")]
    RiskNotAcknowledged,
    /// Another choice came first.
    #[error("the permission is at another revision")]
    OtherRevision,
    /// The choice that is held could not be read or kept.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The log could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl InForce {
    /// Reads it. Blocks.
    ///
    /// # Errors
    /// As the journal's.
    pub fn read(journal: &dyn Journal, session: SessionHandle) -> Result<Self, JournalError> {
        let mut changed_at = 0;
        let mut last = |kind: &str, key: &str| -> Result<Option<String>, JournalError> {
            let event = journal.latest(session, &[kind])?;
            Ok(event.and_then(|event| {
                changed_at = changed_at.max(event.seq.get().saturating_add(1));
                word(&event, key)
            }))
        };
        let usual = Choice::ReadOnly;
        Ok(Self {
            preset: last("permission/preset", "preset")?,
            sandbox: last("sandbox/mode", "mode")?.unwrap_or_else(|| usual.sandbox().to_owned()),
            approval: last("approval/policy", "policy")?
                .unwrap_or_else(|| usual.approval().to_owned()),
            changed_at,
        })
    }

    /// The choice in force; none where the session was put together by hand (`custom`). A recorded
    /// preset counts while it still goes with both knobs.
    #[must_use]
    pub fn choice(&self) -> Option<Choice> {
        let goes = |choice: &Choice| {
            choice.sandbox() == self.sandbox && choice.approval() == self.approval
        };
        let recorded = self.preset.as_deref().and_then(Choice::parse);
        recorded
            .filter(goes)
            .or_else(|| Choice::ALL.into_iter().find(goes))
    }

    /// Whether anybody is asked at all.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.approval == Choice::ReadOnly.approval()
    }

    /// The events that put `choice` in force, as type and the one member of their data: the preset
    /// first, then the knobs that differ; none when it is in force.
    #[must_use]
    pub fn change_to(&self, choice: Choice) -> Vec<(&'static str, &'static str, &'static str)> {
        if self.choice() == Some(choice) {
            return Vec::new();
        }
        let mut events = vec![("permission/preset", "preset", choice.as_str())];
        if self.sandbox != choice.sandbox() {
            events.push(("sandbox/mode", "mode", choice.sandbox()));
        }
        if self.approval != choice.approval() {
            events.push(("approval/policy", "policy", choice.approval()));
        }
        events
    }
}

fn word(event: &Event, key: &str) -> Option<String> {
    let data: serde_json::Value = serde_json::from_str(event.data.get()).ok()?;
    data.get(key)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{Choice, InForce};

    fn in_force(preset: Option<&str>, sandbox: &str, approval: &str) -> InForce {
        InForce {
            preset: preset.map(str::to_owned),
            sandbox: sandbox.to_owned(),
            approval: approval.to_owned(),
            changed_at: 0,
        }
    }

    #[test]
    fn a_recorded_preset_counts_while_it_goes_with_the_knobs() {
        use Choice::{DangerFullAccess, ReadOnly, WorkspaceWrite};
        for (preset, sandbox, approval, choice) in [
            (None, "read-only", "ask", Some(ReadOnly)),
            (
                Some("workspace-write"),
                "workspace-write",
                "ask",
                Some(WorkspaceWrite),
            ),
            (Some("workspace-write"), "read-only", "ask", Some(ReadOnly)),
            (None, "danger-full-access", "never", Some(DangerFullAccess)),
            (
                Some("danger-full-access"),
                "danger-full-access",
                "ask",
                None,
            ),
            (Some("custom"), "read-only", "never", None),
        ] {
            let now = in_force(preset, sandbox, approval);
            assert_eq!(now.choice(), choice, "{preset:?} {sandbox} {approval}");
        }
    }

    #[test]
    fn a_change_says_the_preset_and_the_knobs_that_differ() {
        let now = in_force(None, "read-only", "ask");
        assert!(now.change_to(Choice::ReadOnly).is_empty());
        let kinds = |choice| -> Vec<&str> {
            now.change_to(choice)
                .into_iter()
                .map(|(kind, ..)| kind)
                .collect()
        };
        assert_eq!(
            kinds(Choice::WorkspaceWrite),
            ["permission/preset", "sandbox/mode"]
        );
        let all = ["permission/preset", "sandbox/mode", "approval/policy"];
        assert_eq!(kinds(Choice::DangerFullAccess), all);
    }

    #[test]
    fn pm_07_a_title_is_no_value() {
        assert_eq!(
            Choice::parse("workspace-write"),
            Some(Choice::WorkspaceWrite)
        );
        for text in [
            "Workspace Write",
            "Workspace-Write",
            "custom",
            "",
            " read-only",
        ] {
            assert_eq!(Choice::parse(text), None, "{text:?}");
        }
    }
}
