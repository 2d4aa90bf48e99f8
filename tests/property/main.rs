//! What holds for every input; and the fuzzers' corpora again, on a stable compiler.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests read the committed corpora and stop at what is wrong"
)]

mod corpus;
#[cfg(feature = "service")]
mod disposition;
#[cfg(feature = "service")]
mod dsh;
#[cfg(feature = "service")]
mod range;
#[cfg(feature = "service")]
mod record;
#[cfg(feature = "service")]
mod reference;
mod rel_path;
