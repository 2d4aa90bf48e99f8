//! What becomes of releases, as the audit trail has it.

use crate::{
    audit::{Audit, Event, Record},
    model::{PrincipalId, SessionHandle},
    receipt::{Answer, Booked, Draft, Ended, Outcome, Receipt, Released},
};

/// What releases came to.
pub(super) fn booked(audit: &Audit, booked: &Booked) {
    for one in &booked.released {
        match one {
            Released::Now(receipt) => audit.note(issued(receipt)),
            Released::Asked(ask) => audit.note(Record {
                who: Some(ask.draft.asked_by),
                ..about(Event::Asked, &ask.draft)
            }),
        }
    }
    lapsed(audit, &booked.ended);
}

/// A receipt that was issued.
fn issued(receipt: &Receipt) -> Record {
    let statement = &receipt.statement;
    let who = statement.decided_by.unwrap_or(statement.released.asked_by);
    Record {
        who: Some(who),
        receipt: Some(statement.receipt),
        ..about(Event::Released, &statement.released)
    }
}

fn about(event: Event, draft: &Draft) -> Record {
    Record {
        session: Some(draft.session),
        id: Some(draft.id),
        name: Some(draft.name.clone()),
        bytes: Some(draft.bytes.get()),
        ..Record::of(event)
    }
}

/// Questions that ended without an answer.
pub(super) fn lapsed(audit: &Audit, ended: &[Ended]) {
    for one in ended {
        audit.note(Record {
            session: Some(one.session),
            code: Some(one.outcome.to_owned()),
            ..Record::of(Event::Lapsed)
        });
    }
}

/// A session that was removed.
pub(super) fn removed(audit: &Audit, who: PrincipalId, session: SessionHandle) {
    audit.note(Record {
        who: Some(who),
        session: Some(session),
        ..Record::of(Event::SessionRemoved)
    });
}

/// A decision.
pub(super) fn decided(audit: &Audit, answer: &Answer, outcome: &Outcome) {
    audit.note(match outcome {
        Outcome::Allowed(receipt) => issued(receipt),
        Outcome::Rejected => Record {
            who: Some(answer.who),
            session: Some(answer.session),
            id: Some(answer.id),
            bytes: Some(answer.bytes.get()),
            ..Record::of(Event::Rejected)
        },
    });
}
