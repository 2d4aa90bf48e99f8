//! The attachments of a DSH home, read where they lie.
//!
//! Promises: an object is opened at the one place its reference names, beneath the home, through no
//! link, and only when it is a regular file of the referenced length (I2); nothing is written there.
//! Leaves to others: whether the content is what its digest says (`verified`), who may have it
//! (`access`).
//!
//! # Source
//! spec `DSH`, section 2, "On disk", "Naming rule for files".

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

use std::{fs::File, sync::Arc};

use super::{Blob, Objects, StoreError};
use crate::{
    beneath::{BeneathError, ForeignDir, Stamp},
    home::DshHome,
    model::{AttachmentKind, AttachmentRef, ByteCount, Digest},
};

/// Images and canonical file objects: one file per content.
const IMAGES: &[u8] = b"objects";
const FILE_OBJECTS: &[u8] = b"file-objects";
/// Files under each name they were saved by, as hard links to the canonical ones.
const FILES: &[u8] = b"files";

/// The longest file name, in bytes of UTF-8.
const MAX_NAME: usize = 255;

/// The attachments of a home.
#[derive(Debug)]
pub struct DshObjects {
    home: Arc<DshHome>,
}

impl DshObjects {
    /// The attachments of `home`.
    #[must_use]
    pub fn new(home: Arc<DshHome>) -> Self {
        Self { home }
    }

    /// The home.
    pub(crate) fn home(&self) -> &DshHome {
        &self.home
    }

    fn find(&self, reference: &AttachmentRef) -> Result<Option<(File, Stamp)>, BeneathError> {
        let hex = reference.id.digest().to_string();
        let bucket = hex.get(..2).unwrap_or_default();
        let in_bucket = |tree| -> Result<ForeignDir, BeneathError> {
            self.home.attachments()?.dir(tree)?.dir(bucket.as_bytes())
        };
        let found = match (reference.kind, &reference.name) {
            (AttachmentKind::Image { .. }, _) => in_bucket(IMAGES)?.file(hex.as_bytes())?,
            // The same bytes under a name they were never saved by are not there: the name is part of
            // what was saved, and DSH says the same.
            (AttachmentKind::File, Some(name)) => {
                if saved_name(name.as_str()) != name.as_str() {
                    return Ok(None);
                }
                let names = in_bucket(FILES)?.dir(hex.as_bytes())?;
                names.file(name.as_str().as_bytes())?
            }
            (AttachmentKind::File, None) => in_bucket(FILE_OBJECTS)?.file(hex.as_bytes())?,
        };
        Ok(Some(found))
    }
}

impl Objects for DshObjects {
    fn open(&self, reference: &AttachmentRef) -> Result<Blob, StoreError> {
        let digest: Digest = reference.id.digest();
        let (file, stamp) = match self.find(reference) {
            Ok(Some(found)) => found,
            Ok(None) | Err(BeneathError::Missing) => return Err(StoreError::NotFound(digest)),
            Err(BeneathError::Wrong(_) | BeneathError::TooMany(_)) => {
                return Err(StoreError::NotAnObject(digest));
            }
            Err(BeneathError::Io(error)) => {
                return Err(StoreError::from_io("opening an attachment", error));
            }
        };
        let len = ByteCount::new(stamp.len);
        if len != reference.bytes {
            return Err(StoreError::LengthMismatch {
                digest,
                expected: reference.bytes,
                found: len,
            });
        }
        Ok(Blob { file, digest, len })
    }
}

/// The name DSH saves a file of this name under; a reference has no other.
pub(crate) fn saved_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let plain: String = last
        .chars()
        .filter(|c| !c.is_ascii_control())
        .map(|c| match c {
            '<' | '>' | ':' | '"' | '|' | '?' | '*' => '_',
            other => other,
        })
        .collect();
    let tail = ['.', ' '];
    let mut name = plain
        .trim_matches(is_blank)
        .trim_end_matches(tail)
        .to_owned();
    if is_device(name.split('.').next().unwrap_or_default()) {
        name.insert(0, '_');
    }
    let cut = name.floor_char_boundary(MAX_NAME);
    name.truncate(cut);
    name.truncate(name.trim_end_matches(tail).len());
    match &*name {
        "" | "." | ".." => "file".to_owned(),
        _ => name,
    }
}

/// White space as JavaScript trims it.
fn is_blank(c: char) -> bool {
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

fn is_device(stem: &str) -> bool {
    let stem = stem.to_ascii_lowercase();
    let numbered = |digit: &str| matches!(digit.as_bytes(), [b'1'..=b'9']);
    matches!(&*stem, "con" | "prn" | "aux" | "nul")
        || stem.strip_prefix("com").is_some_and(numbered)
        || stem.strip_prefix("lpt").is_some_and(numbered)
}

#[cfg(test)]
mod tests {
    use super::saved_name;

    #[test]
    fn a_saved_name_follows_the_rule_of_the_home() {
        let long = format!("{}.txt", "长".repeat(100));
        for (name, saved) in [
            ("report.pdf", "report.pdf"),
            ("季度报告 📊 (最终版).pdf", "季度报告 📊 (最终版).pdf"),
            ("a/b\\c.txt", "c.txt"),
            ("../../escape.txt", "escape.txt"),
            ("a\u{1}\u{7f}b", "ab"),
            ("<a>:\"|?*", "_a______"),
            (" \u{a0}a. . ", "a"),
            ("CON.txt", "_CON.txt"),
            ("com0", "com0"),
            ("lpt9.a.b", "_lpt9.a.b"),
            ("console", "console"),
            ("", "file"),
            ("..", "file"),
            ("...", "file"),
            (".hidden", ".hidden"),
            ("invoice\u{202e}fdp.exe", "invoice\u{202e}fdp.exe"),
            ("\u{85}", "\u{85}"),
            ("\u{feff}x", "x"),
            (&long, &"长".repeat(85)),
        ] {
            assert_eq!(saved_name(name), saved, "{name:?}");
        }
        // The rule is not quite idempotent: what it makes here, it refuses when read.
        assert_eq!(saved_name("a\u{a0}."), "a\u{a0}");
        assert_eq!(saved_name("a\u{a0}"), "a");
    }
}
