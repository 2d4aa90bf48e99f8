//! The accept loop against peers that are slow, silent, stubborn or wrong, over real sockets.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests count descriptors by name, and their helpers fail by panicking"
)]

mod drain;
mod hostile;
mod limits;
mod support;
mod tls;
mod wellbehaved;
