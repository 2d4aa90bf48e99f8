use holdfast::access::{Grant, ReadSession};

fn forge(session: ReadSession) -> Grant<ReadSession> {
    Grant(session)
}

fn main() {}
