//! `Verified<Blob>` cannot be copied, made of nothing, or read from a message.

use holdfast::store::{Blob, verified::Verified};

fn copied(of: &Verified<Blob>) -> Verified<Blob> {
    Clone::clone(of)
}

fn out_of_nothing() -> Verified<Blob> {
    Default::default()
}

fn read(text: &str) -> Verified<Blob> {
    serde_json::from_str(text).unwrap()
}

fn main() {}
