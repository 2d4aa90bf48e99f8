//! Whole journeys as straight-line functions over the parts below: download, upload, release.
//!
//! Promises: no step happens without the value the step before it made: a grant before a lookup, a
//! whole-content check before a byte (I4), a flush before a receipt (I5). Leaves to others: who asks
//! and how it is rendered (`http`, `cli`).

#![forbid(unsafe_code)]

pub mod archive;
pub mod attachment;
pub mod chain;
pub mod decide;
pub mod deliverable;
mod error;
pub mod exchange;
mod gather;
mod homes;
pub mod live;
mod parts;
pub mod present;
mod progress;
pub mod receipt;
mod recorded;
pub mod release;
mod roots;
pub mod ticket;
pub mod upload;

pub use error::TransferError;
pub use homes::Attachments;
pub use parts::{HostIdentity, Parts, Pools};
pub use roots::{HeldRoot, OpenRoot, Place, Roots, Rules, setting_of};
