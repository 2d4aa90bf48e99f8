#![forbid(unsafe_code)]

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
}
