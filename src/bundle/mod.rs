//! One archive of many files: stored members, exact length, the same bytes for the same files.
//!
//! Promises: regular files alone, under relative names that are safe to unpack on any usual system
//! and never meet one another; no clock, owner or special bit gets in, so an archive has one digest
//! and can be resumed like any other object. Leaves to others: where the files come from and whether
//! they may leave (`transfer`).

#![forbid(unsafe_code)]

mod names;
mod zip;

pub use names::{MemberName, Names};
pub use zip::{Take, ZipError, ZipWriter};
