//! What a session's log declares: names, descriptions and paths, with what may be done with them.
//!
//! Promises: a declared path is a claim, not a permission; nothing is opened here, and nothing an
//! event says beside the path and its description changes the answer (I3). Leaves to others: the
//! log (`journal`), whether contents are served (`gate`), reading them (`pinned`).

#![forbid(unsafe_code)]

mod declared;
mod listing;

pub use declared::{Refused, Target};
pub use listing::{Capability, Item, Listing, MAX_DESCRIPTION, list};
