//! What is done to the tree, one kind of rearrangement at a time.
//!
//! A *standing* attack is there before the subject looks. Every other one is struck at a moment an
//! explorer chooses; swaps are a single exchange, so that there is never a moment without a name.

#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

/// One kind of rearrangement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Nothing: a plain file, which must be read.
    Plain,
    /// The file itself is a link to outside, from the start.
    FinalLinkThere,
    /// The file's directory is a link to outside, from the start.
    ParentLinkThere,
    /// The file is larger than the ceiling, from the start.
    TooLarge,
    /// The file is exchanged with a link to an outside file.
    FinalLink,
    /// The file's directory is exchanged with a link to an outside directory.
    ParentLink,
    /// The directory above that is exchanged with a link to an outside directory.
    GrandparentLink,
    /// The directory above the file's directory is moved out from under the root.
    AncestorOut,
    /// An outside file is renamed to the file's name.
    OutsideOver,
    /// The name is given to a file that has another name outside.
    HardLink,
    /// The file is exchanged with a FIFO nobody writes to.
    Fifo,
    /// The file grows past the ceiling.
    Grow,
    /// The file loses its second half.
    Truncate,
    /// The file is rewritten to the same length with `write`.
    RewriteByWrite,
    /// The file is rewritten to the same length through a mapping whose pages are dirty already.
    RewriteByMapping,
    /// The root's name is given to another tree.
    RootReplaced,
}

impl Attack {
    /// All of them, in the order reports list them.
    pub const ALL: [Self; 16] = [
        Self::Plain,
        Self::FinalLinkThere,
        Self::ParentLinkThere,
        Self::TooLarge,
        Self::FinalLink,
        Self::ParentLink,
        Self::GrandparentLink,
        Self::AncestorOut,
        Self::OutsideOver,
        Self::HardLink,
        Self::Fifo,
        Self::Grow,
        Self::Truncate,
        Self::RewriteByWrite,
        Self::RewriteByMapping,
        Self::RootReplaced,
    ];

    /// The name used in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::FinalLinkThere => "final-link-there",
            Self::ParentLinkThere => "parent-link-there",
            Self::TooLarge => "too-large",
            Self::FinalLink => "final-link",
            Self::ParentLink => "parent-link",
            Self::GrandparentLink => "grandparent-link",
            Self::AncestorOut => "ancestor-out",
            Self::OutsideOver => "outside-over",
            Self::HardLink => "hard-link",
            Self::Fifo => "fifo",
            Self::Grow => "grow",
            Self::Truncate => "truncate",
            Self::RewriteByWrite => "rewrite-by-write",
            Self::RewriteByMapping => "rewrite-by-mapping",
            Self::RootReplaced => "root-replaced",
        }
    }

    /// What it does, for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Plain => "plain file, nothing happens",
            Self::FinalLinkThere => "file is a link to outside already",
            Self::ParentLinkThere => "directory is a link to outside already",
            Self::TooLarge => "file is over the ceiling already",
            Self::FinalLink => "file swapped for a link to outside",
            Self::ParentLink => "directory swapped for a link to outside",
            Self::GrandparentLink => "directory above swapped for a link to outside",
            Self::AncestorOut => "directory above moved out of the root",
            Self::OutsideOver => "outside file renamed over the name",
            Self::HardLink => "outside file hard-linked to the name",
            Self::Fifo => "file swapped for a FIFO",
            Self::Grow => "file grows past the ceiling",
            Self::Truncate => "file cut in half",
            Self::RewriteByWrite => "file rewritten by write",
            Self::RewriteByMapping => "file rewritten through a mapping",
            Self::RootReplaced => "root's name given to another tree",
        }
    }

    /// Whether it is in place before the subject looks, so that one run says everything.
    #[must_use]
    pub fn is_standing(self) -> bool {
        matches!(
            self,
            Self::Plain | Self::FinalLinkThere | Self::ParentLinkThere | Self::TooLarge
        )
    }

    /// Whether it changes the bytes of the file rather than what a name leads to.
    #[must_use]
    pub fn is_content(self) -> bool {
        matches!(
            self,
            Self::Grow | Self::Truncate | Self::RewriteByWrite | Self::RewriteByMapping
        )
    }

    /// The attack of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attack| attack.name() == name)
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_serialised_form() {
        for attack in Attack::ALL {
            let json = serde_json::to_string(&attack).unwrap();
            assert_eq!(json, format!("{:?}", attack.name()));
            assert_eq!(Attack::by_name(attack.name()), Some(attack));
        }
    }
}
