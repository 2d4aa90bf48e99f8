//! Attacks `pinned` the way `fsprobe` attacks any reader, for each root in an arena of its own, and
//! keeps what was found.
//!
//! Promises: the reader attacked is the one the service uses, with the root's policy and both
//! resolvers; nothing outside the arena is touched; a report is kept whole or not at all, sealed with
//! the data directory's key. Leaves to others: where an arena may be (`app`), what a report opens
//! (`gate`).

#![forbid(unsafe_code)]

mod keep;
mod run;
mod subject;

pub use keep::{Keeper, Kept, key, read, read_key};
pub use run::{Ground, Work, run};
pub use subject::{Flushes, PinnedSubject, READ_WORD, answer_if_asked, relaunch};
