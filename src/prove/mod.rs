//! Attacks `pinned` the way `fsprobe` attacks any reader, where a root lies and as it is read.

#![forbid(unsafe_code)]

mod subject;

pub use subject::{Flushes, PinnedSubject, READ_WORD, answer_if_asked, relaunch};
