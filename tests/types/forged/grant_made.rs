//! `Grant<Session>` comes from `access` and from nowhere else.

use holdfast::{access::Grant, journal::Session};

fn made(session: Session) -> Grant<Session> {
    Grant(session)
}

fn main() {}
