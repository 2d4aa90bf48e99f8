//! Hands out files from directories that something untrusted still writes to, and immutable
//! attachments, so that what arrives is exactly what was meant: from inside, whole, and the
//! approved bytes.
//!
//! A request travels through the modules in the order below: parsed ids, a grant, a proof, a pinned
//! file, a spool, a stored object, a verified stream. ARCHITECTURE.md draws the picture;
//! SECURITY.md states the promises I1 to I15 that docs and tests cite.

// Values: parsed once, at the edge.
pub mod model;

// What says that something was made here.
pub mod seal;

// The one leaf with `unsafe`.
mod sys;

// Where blocking work runs.
#[cfg(feature = "service")]
pub mod pool;

// Bytes in motion, and foreign directories read in place.
#[cfg(feature = "service")]
mod beneath;
#[cfg(feature = "service")]
pub mod bundle;
#[cfg(feature = "service")]
pub mod home;
pub mod spool;

// Mechanisms, strangers to each other.
#[cfg(feature = "service")]
pub mod control;
#[cfg(feature = "service")]
pub mod journal;
pub mod pinned;
#[cfg(feature = "service")]
pub mod store;

// Decisions: they make grants and proofs.
#[cfg(feature = "service")]
pub mod access;
#[cfg(feature = "service")]
pub mod approval;
#[cfg(feature = "service")]
pub mod audit;
#[cfg(feature = "service")]
pub mod deliverable;
pub mod gate;
#[cfg(feature = "service")]
pub mod permission;
#[cfg(feature = "service")]
pub mod policy;
#[cfg(feature = "service")]
pub mod receipt;
#[cfg(feature = "service")]
pub mod removal;
#[cfg(feature = "service")]
pub mod stream;

// Attacks `pinned` and writes what the gate reads.
pub mod prove;

// Journeys, and the one that goes nowhere.
#[cfg(feature = "service")]
pub mod handoff;
#[cfg(feature = "service")]
pub mod transfer;

// Requests and answers.
#[cfg(feature = "service")]
pub mod http;

// Builds the parts and starts them.
#[cfg(feature = "service")]
pub mod app;
#[cfg(feature = "service")]
pub mod cli;
#[cfg(feature = "service")]
pub mod config;
#[cfg(feature = "service")]
pub mod telemetry;
