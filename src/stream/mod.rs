//! Frames on their way to readers that may be slow.
//!
//! Promises: each principal has a numbered row of frames of its own, so that nothing of another's,
//! not even how much, can be seen in it (I14); a reader's queue is bounded, and one that stops reading
//! loses its stream and nothing else (I11). Leaves to others: who may see what (`transfer`), the wire
//! (`http`).

#![forbid(unsafe_code)]

mod hub;

pub use hub::{Bounds, Frame, Hub, LastId, Next, Opened, TooManyStreams};
