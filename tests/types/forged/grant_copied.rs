//! `Grant<Session>` cannot be copied, made of nothing, or read from a message.

use holdfast::{access::Grant, journal::Session};

fn copied(of: &Grant<Session>) -> Grant<Session> {
    Clone::clone(of)
}

fn out_of_nothing() -> Grant<Session> {
    Default::default()
}

fn read(text: &str) -> Grant<Session> {
    serde_json::from_str(text).unwrap()
}

fn main() {}
