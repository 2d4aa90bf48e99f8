//! The audit trail: who was given, refused or promised what, in lines that cannot be changed unseen.
//!
//! Promises: every line is sealed over the one before it, with the data directory's key, so that a line
//! edited, left out, moved or added is found; a line is durable at most a second after what it says; while
//! none can be written, nothing is given out ([`Audit::admit`]). A crash loses at most the last second and
//! leaves at most half a line, which the next start cuts off and says so. Leaves to others: what is
//! recorded (`transfer`, `http`), and keeping the head elsewhere, without which a trail that was cut at its
//! end looks whole (`app`).

#![forbid(unsafe_code)]

mod files;
mod line;
mod log;
mod verify;

pub use files::{AuditError, Place, Trail};
pub use line::{Event, Head, KIND, Record};
pub use log::{Audit, Standing, Unavailable};
pub use verify::{Fault, Found, verify};
