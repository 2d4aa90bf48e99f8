use holdfast::access::{Grant, ReadSession};

fn forge() -> Grant<ReadSession> {
    Default::default()
}

fn main() {}
