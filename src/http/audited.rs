//! What requests leave in the audit trail: what was sent, cut and refused, by whoever asked.
//!
//! A refusal is recorded where it leaves, for every route but the open ones, with what the address names: so it
//! is the same for what is absent and what is foreign (I9).

use std::sync::{Arc, OnceLock};

use axum::{
    RequestExt as _,
    extract::{RawPathParams, Request, State},
    middleware::Next,
    response::Response,
};

use super::{App, problem::Problem};
use crate::{
    access::Ticket,
    audit::{Audit, Event, Record, Unavailable},
    model::{AttachmentId, PrincipalId, ReceiptHandle, SessionHandle, TicketHandle},
};

/// Who a request turns out to be of, for whoever looks at its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<OnceLock<PrincipalId>>);

impl Known {
    pub(super) fn set(&self, who: PrincipalId) {
        self.0.set(who).ok();
    }
}

/// Records the refusal a request ends in.
pub(super) async fn refusals(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let known = Known::default();
    request.extensions_mut().insert(known.clone());
    let mut record = Record::of(Event::Refused);
    if let Ok(names) = request.extract_parts::<RawPathParams>().await {
        for (name, value) in &names {
            match name {
                "session" => record.session = SessionHandle::parse(value).ok(),
                "attachment" => record.id = AttachmentId::parse(value).ok(),
                "receipt" => record.receipt = ReceiptHandle::parse(value).ok(),
                _ => {}
            }
        }
    }
    let response = next.run(request).await;
    if let Some(problem) = response.extensions().get::<Problem>() {
        match known.0.get() {
            None => app.parts.audit.count_unknown(),
            Some(who) => app.parts.audit.note(Record {
                who: Some(*who),
                code: Some(problem.code().as_str()),
                ..record
            }),
        }
    }
    response
}

/// In whose right content is sent, and by which address.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) who: PrincipalId,
    pub(super) session: Option<SessionHandle>,
    pub(super) receipt: Option<ReceiptHandle>,
    pub(super) ticket: Option<TicketHandle>,
}

impl Sender {
    /// The holder of a ticket, in its maker's right.
    pub(super) fn of(ticket: &Ticket) -> Self {
        Self {
            who: ticket.maker().id,
            session: Some(ticket.session()),
            receipt: ticket.receipt(),
            ticket: Some(ticket.handle()),
        }
    }
}

/// A delivery that is under way. Its end is recorded when it is dropped.
pub(super) struct Delivery {
    audit: Arc<Audit>,
    record: Record,
    announced: u64,
    handed: u64,
}

impl Delivery {
    /// Records that an answer of `announced` bytes about this content is about to be sent: before its first
    /// byte, or there is none.
    pub(super) fn begin(
        audit: &Arc<Audit>,
        record: Record,
        announced: u64,
    ) -> Result<Self, Unavailable> {
        audit.admit(Record {
            event: Event::Sending,
            bytes: Some(announced),
            ..record.clone()
        })?;
        Ok(Self {
            audit: Arc::clone(audit),
            record,
            announced,
            handed: 0,
        })
    }

    pub(super) fn handed(&mut self, bytes: u64) {
        self.handed = self.handed.saturating_add(bytes);
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let event = if self.handed >= self.announced {
            Event::Sent
        } else {
            Event::Aborted
        };
        self.audit.note(Record {
            event,
            bytes: Some(self.handed),
            ..self.record.clone()
        });
    }
}
