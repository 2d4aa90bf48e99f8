//! What releases of declared files and their receipts refuse.

use super::{Code, Facts, Problem, bounded};
use crate::{
    deliverable::Refused,
    gate::GateClosed,
    model::ByteCount,
    pinned::PinnedError,
    receipt::{DecideError, LedgerError},
    spool::SpoolError,
    transfer::setting_of,
};

impl Problem {
    /// A path that leads out of its session's directory, or is none.
    pub(super) fn of_outside(refused: Refused) -> Self {
        Self::refused(refused.code(), None)
    }

    /// A session whose directory lies in no root.
    pub(super) fn no_root() -> Self {
        Self::refused("no-root", Some("root.path"))
    }

    /// A closed gate: its reason, and what governs it.
    pub(super) fn of_gate(closed: GateClosed) -> Self {
        Self::new(Code::MetadataOnly).with_facts(Facts {
            class: Some(closed.code()),
            reason: Some(closed.remedy().to_owned()),
            setting: match closed {
                GateClosed::NotEnabled => Some("deliverables.mode"),
                GateClosed::NoArena => Some("root.arena"),
                GateClosed::NoReport
                | GateClosed::Forged
                | GateClosed::Stale
                | GateClosed::HostMismatch
                | GateClosed::Incomplete
                | GateClosed::ControlNotBeaten
                | GateClosed::EscapeSeen => None,
            },
            ..Facts::default()
        })
    }

    /// A name that never leaves.
    pub(super) fn name_denied(pattern: &str) -> Self {
        Self::new(Code::SourceRefused).with_facts(Facts {
            class: Some("denied_name"),
            reason: Some(bounded(format!("the pattern `{pattern}` denies the name"))),
            setting: Some("root.deny"),
            ..Facts::default()
        })
    }

    /// A file that has more bytes than the setting lets out.
    pub(super) fn of_too_large(
        limit: ByteCount,
        size: Option<ByteCount>,
        setting: &'static str,
    ) -> Self {
        Self::new(Code::OverLimit).with_facts(Facts {
            class: Some("too_large"),
            size_bytes: size.map(ByteCount::get),
            limit_bytes: Some(limit.get()),
            setting: Some(setting),
            ..Facts::default()
        })
    }

    /// A file that cannot be read as it has to be. Only those who may see the declaration get here,
    /// so the class may be told (I15).
    pub(super) fn of_pinned(error: &PinnedError) -> Self {
        let code = match error {
            PinnedError::OverLimit { limit, size } => {
                return Self::of_too_large(*limit, *size, "root.max_file");
            }
            PinnedError::Spool(SpoolError::Full(_)) => return Self::disk_full(),
            PinnedError::NotFound => Code::SourceMissing,
            PinnedError::Changed(_) => Code::Changed,
            PinnedError::Busy(_)
            | PinnedError::Deadline
            | PinnedError::RootReplaced
            | PinnedError::Resource(_)
            | PinnedError::Cancelled
            | PinnedError::Spool(SpoolError::Resource(_)) => Code::Busy,
            PinnedError::Unsupported(_) => Code::Unsupported,
            PinnedError::Io { .. } | PinnedError::Spool(_) => Code::Internal,
            PinnedError::DeniedSymlink
            | PinnedError::DeniedMount
            | PinnedError::DeniedHardlink
            | PinnedError::DeniedOwner
            | PinnedError::InvalidPath(_)
            | PinnedError::NameTooLong
            | PinnedError::DeniedMagicLink
            | PinnedError::DeniedEscape
            | PinnedError::SymlinkLoop
            | PinnedError::NotRegular(_)
            | PinnedError::PermissionDenied => Code::SourceRefused,
        };
        // Errors of the system carry no more than their class; the log has the rest.
        let reason = (code != Code::Internal).then(|| bounded(error.to_string()));
        Self::new(code).with_facts(Facts {
            class: Some(error.class()),
            reason,
            setting: setting_of(error),
            ..Facts::default()
        })
    }

    pub(super) fn of_ledger(error: &LedgerError) -> Self {
        match error {
            LedgerError::NotFound => Self::new(Code::NotFound),
            LedgerError::KeyReused => Self::new(Code::IdempotencyKeyReused),
            LedgerError::TooManyAsks { most } => Self::new(Code::TooManyAsks).with_facts(Facts {
                reason: Some(format!("{most} releases of one session may wait at once")),
                setting: Some("limits.releases_waiting"),
                ..Facts::default()
            }),
            LedgerError::OverQuota { used, limit } => {
                Self::new(Code::OverQuota).with_facts(Facts {
                    limit_bytes: Some(*limit),
                    used_bytes: Some(*used),
                    setting: Some("limits.session_bytes"),
                    ..Facts::default()
                })
            }
            LedgerError::Corrupt(_) | LedgerError::NoEntropy(_) => Self::new(Code::Internal),
            LedgerError::Control(error) => Self::of_control(error),
        }
    }

    pub(super) fn of_settle(error: &DecideError) -> Self {
        match error {
            DecideError::Unknown => Self::new(Code::InteractionUnknown),
            DecideError::AlreadyDecided { outcome } => {
                Self::new(Code::AlreadyDecided).with_facts(Facts {
                    recorded_outcome: Some(outcome.as_str()),
                    ..Facts::default()
                })
            }
            DecideError::Expired => Self::new(Code::Expired),
            DecideError::Withdrawn => Self::new(Code::Withdrawn),
            DecideError::OtherBytes => Self::new(Code::CorrelationMismatch),
            DecideError::Ledger(error) => Self::of_ledger(error),
        }
    }

    fn refused(class: &'static str, setting: Option<&'static str>) -> Self {
        Self::new(Code::SourceRefused).with_facts(Facts {
            class: Some(class),
            setting,
            ..Facts::default()
        })
    }
}
