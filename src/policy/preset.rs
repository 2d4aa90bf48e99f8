use super::NameClass;

/// Whether a session asks people at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// It does.
    Ask,
    /// Never: no prompt, and so no grant.
    Never,
}

/// Which permission a session runs under, as far as files are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Asks about every file. What a new session has.
    #[default]
    ReadOnly,
    /// Asks about sensitive files.
    WorkspaceWrite,
    /// Never asks, so that sensitive files stay.
    DangerFullAccess,
    /// Put together by hand.
    Custom(Asking),
}

/// What becomes of a file that a root's rules let through to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is released.
    Release,
    /// Somebody has to say yes to exactly its bytes.
    Ask,
    /// It stays: its name is denied, whatever anybody says.
    Denied,
    /// It stays: somebody would have to be asked, and this session asks nobody.
    NobodyAsked,
}

impl Preset {
    /// What this preset makes of a file of this class.
    #[must_use]
    pub fn decide(self, class: &NameClass<'_>) -> Decision {
        match (class, self) {
            (NameClass::Denied(_), _) => Decision::Denied,
            (NameClass::Ordinary, Self::WorkspaceWrite | Self::DangerFullAccess) => {
                Decision::Release
            }
            (
                NameClass::Ordinary | NameClass::Sensitive(_),
                Self::ReadOnly | Self::Custom(Asking::Ask),
            )
            | (NameClass::Sensitive(_), Self::WorkspaceWrite) => Decision::Ask,
            (NameClass::Sensitive(_), Self::DangerFullAccess)
            | (NameClass::Ordinary | NameClass::Sensitive(_), Self::Custom(Asking::Never)) => {
                Decision::NobodyAsked
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Asking, Decision, Preset};
    use crate::policy::{NameClass, Sensitive};

    #[test]
    fn every_preset_decides_every_class_as_the_table_says() {
        use Decision::{Ask, Denied, NobodyAsked, Release};
        for (preset, ordinary, sensitive) in [
            (Preset::ReadOnly, Ask, Ask),
            (Preset::WorkspaceWrite, Release, Ask),
            (Preset::DangerFullAccess, Release, NobodyAsked),
            (Preset::Custom(Asking::Ask), Ask, Ask),
            (Preset::Custom(Asking::Never), NobodyAsked, NobodyAsked),
        ] {
            let sensitive_name = NameClass::Sensitive(Sensitive::DotName);
            assert_eq!(preset.decide(&NameClass::Ordinary), ordinary, "{preset:?}");
            assert_eq!(preset.decide(&sensitive_name), sensitive, "{preset:?}");
            assert_eq!(preset.decide(&NameClass::Denied(".env")), Denied);
        }
    }

    #[test]
    fn a_new_session_asks_about_everything() {
        assert_eq!(Preset::default(), Preset::ReadOnly);
    }
}
