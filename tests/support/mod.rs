//! Builders the test binaries share: a whole server on loopback, and a client that writes the
//! octets it is told to.

pub mod client;
pub mod recording;
pub mod server;

pub use client::{Answer, Client};
pub use server::{Options, Server};
