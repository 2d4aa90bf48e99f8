//! Attacks a file reader with swaps, growth, links and special files, and shows whether it leaks.
//!
//! The question is always the same: while somebody rearranges the directory, can a read that
//! should stay beneath a root return bytes from outside it, return a mixture, or hang? A reader is
//! a [`Subject`]; the tree it reads is a [`Cell`] inside an [`Arena`] of our own; what is done to
//! the tree is an [`Attack`]; and the [`oracle`] judges the answer by its content, because inside
//! and outside are made equal in every other respect.
//!
//! Promises: nothing outside the arena is touched, and the arena is removed, after a failure too.
//! Leaves to others: what a subject's own policy is worth. A reader that loses here is unsafe; one
//! that does not lose has only survived these attacks on this host.
//!
//! The crate knows nothing of the program it is used in.

// What is rearranged, and where.
pub mod arena;
pub mod attack;
pub mod content;

// Who reads.
pub mod child;
pub mod control;
pub mod subject;

// What is made of the answer.
pub mod oracle;

// When it happens.
pub mod explore;

pub mod host;
pub mod report;

// Ready-made questions.
pub mod baseline;
pub mod page;
pub mod prove;

mod error;
mod rng;
mod sys;

pub use arena::{Arena, Cell};
pub use attack::Attack;
pub use child::{Relaunch, answer_if_asked};
pub use error::ProbeError;
pub use explore::{Progress, Silent};
pub use host::Host;
pub use oracle::Verdict;
pub use prove::{Options, Target, prove};
pub use report::{Conclusion, Report};
pub use rng::fresh_seed;
pub use subject::{Claims, Reader, Refusal, Seam, Subject, http::Http, process::Command};
