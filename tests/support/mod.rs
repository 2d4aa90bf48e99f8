//! Builders the test binaries share: a whole server on loopback, and a client that writes the
//! octets it is told to.

pub(crate) mod client;
pub(crate) mod recording;
pub(crate) mod server;
pub(crate) mod sse;

pub(crate) use client::{Answer, Client};
pub(crate) use server::{Options, Server};
