use holdfast::access::{Grant, ReadSession};

fn forge(grant: &Grant<ReadSession>) -> Grant<ReadSession> {
    grant.clone()
}

fn main() {}
