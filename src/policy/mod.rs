//! Judges what may leave a root: by name first, then by what the session's permission says.
//!
//! Promises: one list for every way out, so that what may not be read may not be delivered either; a
//! judgement names its rule and the setting behind it (I15); nothing here widens a root or opens a
//! gate. Leaves to others: reading (`pinned`), whether reading is proven (`gate`), asking
//! (`approval`). Lists of names stop accidents, not somebody who copies or renames a file.

mod names;
mod preset;

pub use names::{NameClass, NameRules, PatternError, Sensitive};
pub use preset::{Asking, Decision, Preset};
