//! The descriptor behind a `Blob` or a `Verified` gives no byte that was not checked.

use holdfast::store::{Blob, verified::Verified};

fn unchecked(blob: &Blob) -> &std::fs::File {
    &blob.file
}

fn behind(verified: &Verified<Blob>) -> &Blob {
    &verified.content
}

fn main() {}
