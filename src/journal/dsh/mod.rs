//! Sessions of an existing DSH home, read where they lie.
//!
//! Promises: nothing of the home is written, locked, repaired or created; no link below it is
//! followed and only regular files are opened (I2); a log is read to its last good event, or refused
//! with the row that is wrong, and never takes another session down; a log that grows or is rolled
//! back while it is read gives no wrong and no second event; memory is bounded whatever the bytes say
//! (I11). Leaves to others: who may read a session (`access`), the attachments' bytes (`store::dsh`).
//!
//! # Source
//! spec `DSH`: formats v0 to v3 as DSH's published packages write them; v4 from one fork's
//! documentation alone, so unverified.

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

mod catalog;
mod limits;
pub(super) mod lines;
mod log;
mod logs;
mod names;
pub(super) mod row;
mod shelf;
mod source;
mod watch;
mod whole;

pub use limits::DshLimits;
pub use names::{Encoding, LogName, project_folder, session_folder, session_id};
pub use source::{DshOwners, DshSource};
pub use watch::Watch;
pub use whole::{WholeLog, read_log};
