#![forbid(unsafe_code)]

use std::fmt;

use super::{Facts, PinnedError};

/// Whether a path may lead through symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Refused in every component.
    #[default]
    Deny,
    /// Followed while they stay beneath the root: no absolute target, no climb above the root, no
    /// magic link, at most 40.
    Beneath,
}

/// Whether a file with more than one name is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HardLinks {
    /// Refused: another name may lie outside the root.
    #[default]
    Deny,
    /// Read. Package stores link honestly and need this.
    Allow,
}

/// Whether a path may cross into another mount below the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mounts {
    /// Refused, bind mounts of the same filesystem included.
    #[default]
    Deny,
    /// Followed: whoever may mount below the root then decides what is beneath it.
    Allow,
}

/// Whose files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Everybody's.
    #[default]
    Any,
    /// Those of the listed user ids.
    Users(Vec<u32>),
}

/// How sure it is that a copy is the file's content at one moment; the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// Two passes gave the same bytes and the times stood still. Evidence, no proof: a writer
    /// through a mapping could have put the bytes back in between.
    DoubleRead,
    /// Nothing moved the file's times or length, taken so that neither a write under way nor a
    /// store through a mapping could hide.
    Stamped,
    /// A read lease was held throughout: nobody had the file open or mapped for writing.
    Lease,
    /// The filesystem made an atomic copy.
    Clone,
}

impl Grade {
    /// The grade's name in configuration and receipts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DoubleRead => "double-read",
            Self::Stamped => "stamped",
            Self::Lease => "lease",
            Self::Clone => "clone",
        }
    }

    /// Takes a grade as the configuration spells it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::DoubleRead, Self::Stamped, Self::Lease, Self::Clone]
            .into_iter()
            .find(|grade| grade.name() == text)
    }
}

/// Whether reads may take a lease on the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leases {
    /// Never.
    #[default]
    Never,
    /// Where the system allows it. Somebody who opens the file for writing meanwhile waits for the
    /// read or, without blocking, fails: why this is opt-in.
    Try,
}

/// What a root lets out, besides being beneath it and a plain file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Symbolic links.
    pub links: Links,
    /// Files with several names.
    pub hard_links: HardLinks,
    /// Mounts below the root.
    pub mounts: Mounts,
    /// Whose files.
    pub owner: Owner,
    /// The weakest grade of copy accepted.
    pub stability: Grade,
    /// Leases as a means to a grade.
    pub leases: Leases,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            links: Links::default(),
            hard_links: HardLinks::default(),
            mounts: Mounts::default(),
            owner: Owner::default(),
            stability: Grade::Stamped,
            leases: Leases::default(),
        }
    }
}

impl Policy {
    /// Whether a file with these facts may be read.
    ///
    /// # Errors
    /// [`PinnedError::DeniedHardlink`] or [`PinnedError::DeniedOwner`].
    pub(super) fn admit(&self, facts: &Facts) -> Result<(), PinnedError> {
        if self.hard_links == HardLinks::Deny && facts.links > 1 {
            return Err(PinnedError::DeniedHardlink);
        }
        match &self.owner {
            Owner::Users(users) if !users.contains(&facts.owner) => Err(PinnedError::DeniedOwner),
            Owner::Users(_) | Owner::Any => Ok(()),
        }
    }

    /// Takes a policy as [`Policy`]'s display form spells it, whole and in that order.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut word = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
        let policy = Self {
            links: match word("links")? {
                "deny" => Links::Deny,
                "beneath" => Links::Beneath,
                _ => return None,
            },
            hard_links: match word("hardlinks")? {
                "deny" => HardLinks::Deny,
                "allow" => HardLinks::Allow,
                _ => return None,
            },
            mounts: match word("mounts")? {
                "deny" => Mounts::Deny,
                "allow" => Mounts::Allow,
                _ => return None,
            },
            owner: match word("owner")? {
                "any" => Owner::Any,
                users => Owner::Users(
                    users
                        .split(',')
                        .map(|user| user.parse().ok())
                        .collect::<Option<_>>()?,
                ),
            },
            stability: Grade::parse(word("stability")?)?,
            leases: match word("leases")? {
                "never" => Leases::Never,
                "try" => Leases::Try,
                _ => return None,
            },
        };
        words.next().is_none().then_some(policy)
    }
}

/// The whole policy in one line: what a report says it was made for.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = match self.links {
            Links::Deny => "deny",
            Links::Beneath => "beneath",
        };
        let hard_links = match self.hard_links {
            HardLinks::Deny => "deny",
            HardLinks::Allow => "allow",
        };
        let mounts = match self.mounts {
            Mounts::Deny => "deny",
            Mounts::Allow => "allow",
        };
        let owner = match &self.owner {
            Owner::Any => "any".to_owned(),
            Owner::Users(users) => {
                let users: Vec<String> = users.iter().map(u32::to_string).collect();
                users.join(",")
            }
        };
        let stability = self.stability.name();
        let leases = match self.leases {
            Leases::Never => "never",
            Leases::Try => "try",
        };
        write!(
            f,
            "links={links} hardlinks={hard_links} mounts={mounts} owner={owner} \
             stability={stability} leases={leases}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Grade, HardLinks, Leases, Links, Mounts, Owner, Policy};

    #[test]
    fn a_policy_is_read_as_it_is_written_and_nothing_else_is_one() {
        let open = Policy {
            links: Links::Beneath,
            hard_links: HardLinks::Allow,
            mounts: Mounts::Allow,
            owner: Owner::Users(vec![7, 1000]),
            stability: Grade::Clone,
            leases: Leases::Try,
        };
        for policy in [Policy::default(), open] {
            assert_eq!(Policy::from_text(&policy.to_string()), Some(policy));
        }
        let text = Policy::default().to_string();
        for wrong in [
            String::new(),
            format!("{text} "),
            text.replace("deny", "maybe"),
            text.replace("owner=any", "owner=me"),
        ] {
            assert_eq!(Policy::from_text(&wrong), None, "{wrong:?}");
        }
    }
}
