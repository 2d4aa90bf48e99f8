use holdfast::{access::ReadSession, model::SessionHandle};

fn forge(session: SessionHandle) -> ReadSession {
    ReadSession::new(session)
}

fn main() {}
