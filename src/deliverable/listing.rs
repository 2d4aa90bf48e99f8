#![forbid(unsafe_code)]

use super::{Refused, Target};
use crate::{
    journal::Declared,
    model::{LogGeneration, Seq, Shown},
};

/// The longest description shown, in characters; the log has the rest.
pub const MAX_DESCRIPTION: usize = 2048;

/// What may be done with declared paths. Shown, not obeyed: contents need the gate's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Names and descriptions alone.
    MetadataOnly {
        /// The closed gate's reason, as its code.
        reason: &'static str,
    },
    /// Contents may be asked for.
    Release,
}

/// The paths a session declares and what may be done with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// What may be done with every item that is not refused.
    pub capability: Capability,
    /// One item per declaration, in the log's order.
    pub items: Vec<Item>,
}

/// One declared path. Everything in it is what an event claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The numbering of `seq`.
    pub generation: LogGeneration,
    /// The event.
    pub seq: Seq,
    /// The position in the event, from 0.
    pub index: u32,
    /// The path below the session's directory or, when there is none, the claim; escaped so that it
    /// is safe to show.
    pub path: String,
    /// What the presenter says of it; untrusted text, cut after [`MAX_DESCRIPTION`] characters.
    pub description: Option<String>,
    /// Why this path could not be served even through an open gate.
    pub refused: Option<Refused>,
}

impl Capability {
    /// The listing's mode.
    #[must_use]
    pub const fn mode(self) -> &'static str {
        match self {
            Self::MetadataOnly { .. } => "metadata-only",
            Self::Release => "release",
        }
    }
}

impl Item {
    /// Lists one declaration of a session whose directory is `cwd`. Opens nothing.
    #[must_use]
    pub fn of(declared: &Declared, cwd: Option<&str>) -> Self {
        let claim = &declared.presented.path;
        let (path, refused) = match Target::parse(claim, cwd) {
            Ok(target) => (target.path().to_string(), None),
            Err(refused) => (Shown(claim.as_bytes()).to_string(), Some(refused)),
        };
        Self {
            generation: declared.generation,
            seq: declared.seq,
            index: declared.index,
            path,
            description: declared.presented.description.as_deref().map(cut),
            refused,
        }
    }
}

/// Lists what a session whose directory is `cwd` declares. Opens nothing, and nothing declared
/// changes the capability.
#[must_use]
pub fn list(declared: &[Declared], cwd: Option<&str>, capability: Capability) -> Listing {
    Listing {
        capability,
        items: declared.iter().map(|one| Item::of(one, cwd)).collect(),
    }
}

fn cut(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(MAX_DESCRIPTION).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{Capability, MAX_DESCRIPTION, list};
    use crate::{
        deliverable::Refused,
        journal::{Declared, Presented},
        model::{LogGeneration, Seq},
    };

    const CLOSED: Capability = Capability::MetadataOnly {
        reason: "not-enabled",
    };

    fn declared(path: &str, description: Option<&str>) -> Declared {
        Declared {
            generation: LogGeneration::NATIVE,
            seq: Seq::new(7),
            index: 1,
            presented: Presented {
                path: path.into(),
                description: description.map(Into::into),
            },
        }
    }

    /// Keeps I3: what a declaration says changes neither the mode nor the reason.
    #[test]
    fn a_declared_path_is_metadata_whatever_it_says_of_itself() {
        let claims = [
            declared(
                "out/a.pdf",
                Some("attachmentId: x, bytes: 9, url: https://x/"),
            ),
            declared("/etc/passwd", None),
        ];
        let listing = list(&claims, Some("/w"), CLOSED);
        assert_eq!(listing.capability, CLOSED);
        assert_eq!(listing.capability.mode(), "metadata-only");
        let shown = listing.items.iter().map(|i| (i.path.as_str(), i.refused));
        let expected = [
            ("out/a.pdf", None),
            ("/etc/passwd", Some(Refused::OutsideRoot)),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn untrusted_text_is_bounded_and_safe_to_show() {
        let long = "ä".repeat(MAX_DESCRIPTION + 1);
        let claims = [declared("a/../\u{1b}[2J\u{202e}", Some(&long))];
        let listing = list(&claims, None, CLOSED);
        assert_eq!(listing.items[0].path, r"a/../\x1b[2J\xe2\x80\xae");
        let description = listing.items[0].description.as_ref().unwrap();
        assert_eq!(description.chars().count(), MAX_DESCRIPTION + 1);
    }
}
