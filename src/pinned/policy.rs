#![forbid(unsafe_code)]

use super::{Facts, PinnedError};

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

/// What a root lets out, besides being beneath it and a plain file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Files with several names.
    pub hard_links: HardLinks,
    /// Mounts below the root.
    pub mounts: Mounts,
    /// Whose files.
    pub owner: Owner,
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
