//! What is attacked: a reader that runs inside this process.
//!
//! A subject is opened on a root **before** any attack, the way a server opens its roots at start,
//! and is then asked for one path beneath it while the tree is being rearranged. At each of its own
//! steps it may call out through the [`Seam`]; a subject without steps is still attacked from
//! outside, only less precisely.

#![forbid(unsafe_code)]

pub mod http;
pub mod process;
pub mod stepping;

use std::{fmt, path::Path};

/// Called by a reader at its named steps, in the order they happen; a step may recur.
pub type Seam<'a> = dyn FnMut(&str) + 'a;

/// A reader under attack.
pub trait Subject: Send + Sync {
    /// The name reports use; short, lower case, no spaces.
    fn name(&self) -> &str;

    /// What this reader undertakes beyond staying inside and coming back.
    fn claims(&self) -> Claims {
        Claims::default()
    }

    /// Opens the absolute path `root`; nothing has been rearranged yet.
    ///
    /// # Errors
    /// A refusal here makes the probe inconclusive: the subject could not even start.
    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal>;
}

/// A subject opened on one root.
pub trait Reader: Send {
    /// Reads `path`, relative to the root, and returns at most `ceiling` bytes or a refusal.
    ///
    /// Called on a thread of its own, and in a storm again and again: a read that never comes back
    /// is a result ([`Verdict::Hung`](crate::Verdict::Hung)), not a stuck probe.
    fn read(&mut self, path: &Path, ceiling: u64, seam: &mut Seam<'_>) -> Result<Vec<u8>, Refusal>;
}

/// Why a reader gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reader's own word for it; reports count refusals by this.
    pub class: String,
}

impl Refusal {
    /// A refusal of the given class.
    #[must_use]
    pub fn new(class: impl Into<String>) -> Self {
        Self {
            class: class.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.class)
    }
}

/// What a subject undertakes beyond the two things asked of everybody: no outside bytes, no hang.
///
/// An unclaimed property is still measured and shown; it only does not decide the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent undertakings, each its own row"
)]
pub struct Claims {
    /// Never returns more bytes than the ceiling.
    pub ceiling: bool,
    /// Never returns a content the file did not have at some instant.
    pub whole: bool,
    /// Never opens a FIFO, not even without waiting.
    pub special_files: bool,
    /// Refuses a file that has a second name.
    pub hard_links: bool,
    /// Holds its root by descriptor: replacing the root's name changes nothing.
    pub root: bool,
}

impl Claims {
    /// Every claim at once.
    pub const ALL: Self = Self {
        ceiling: true,
        whole: true,
        special_files: true,
        hard_links: true,
        root: true,
    };
}
