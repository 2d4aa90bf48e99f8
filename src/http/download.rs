//! The answer to a download, whatever the address it was asked by: one door (I10).

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Frame, SizeHint};

use super::{
    App, Counters,
    audited::{Delivery, Sender},
    extract::Place,
    problem::{Code, Problem},
    semantics::{self, ByteRange, Cache, Content, Object, Plan, Verb},
};
use crate::{
    access::{Grant, Ticket, Wanted},
    audit::{Event, Record},
    model::{AttachmentRef, SaveName},
    transfer::{
        TransferError,
        attachment::{Opened, Piece, Sending},
        ticket::Use,
    },
};

/// In whose right content is asked for, and the request's place among others of that right.
pub(super) enum Right {
    /// The caller's own.
    Own(Place, Sender),
    /// That of the ticket's maker.
    Ticket(Grant<Ticket>, Place),
}

/// Answers GET or HEAD for an opened attachment: verified before the first byte, and again block by
/// block. A ticket's use is opened when everything else is settled, and only for bytes.
pub(super) async fn answer(
    app: &App,
    method: &Method,
    fields: &HeaderMap,
    opened: Opened,
    right: Right,
) -> Result<Response, Problem> {
    let verb = if method == Method::HEAD {
        Verb::Head
    } else {
        Verb::Get
    };
    let cache = match right {
        Right::Own(..) => Cache::Immutable,
        Right::Ticket(..) => Cache::NoStore,
    };
    let plan = plan(verb, fields, opened.reference(), cache);
    let (ticket, place, sender) = match right {
        Right::Own(place, sender) => (None, place, sender),
        Right::Ticket(ticket, place) if !ticket.is_late() || goes_on(&plan) => {
            let sender = Sender::of(&ticket);
            (Some(ticket), place, sender)
        }
        // What has ended answers like what never was, whatever was asked of it.
        Right::Ticket(..) => return Err(Problem::new(Code::NotFound)),
    };
    let len = opened.reference().bytes.get();
    let record = Record {
        who: Some(sender.who),
        session: sender.session,
        id: Some(opened.reference().id),
        name: opened.reference().name.clone(),
        of: Some(len),
        receipt: sender.receipt,
        ticket: sender.ticket,
        ..Record::of(Event::Sending)
    };
    let (pieces, wanted) = match plan.content {
        Content::Problem => return Ok(planned_problem(plan)),
        Content::Nothing if plan.status == StatusCode::NOT_MODIFIED => {
            return Ok((plan.status, plan.fields).into_response());
        }
        Content::Nothing => (Vec::new(), None),
        Content::Whole => (vec![Piece::Content(0..len)], Some((Wanted::Whole, len))),
        Content::One(range) => (vec![Piece::Content(range.span())], part_of(&[range])),
        Content::Parts(parts) => {
            let ranges: Vec<ByteRange> = parts.parts.iter().map(|part| part.range).collect();
            let pieces = parts
                .parts
                .into_iter()
                .flat_map(|part| [Piece::Framing(part.head), Piece::Content(part.range.span())])
                .chain([Piece::Framing(parts.tail)])
                .collect();
            (pieces, part_of(&ranges))
        }
    };
    let content = opened.verify(&app.parts).await?;
    let used = match (ticket, wanted) {
        // Of nothing there is no byte to send.
        (Some(ticket), Some((wanted, bytes))) if bytes > 0 => {
            Some(Use::open(&app.parts, ticket, wanted, bytes).await?)
        }
        _ => None,
    };
    let body = match verb {
        // What HEAD promises was checked as GET checks it.
        Verb::Head => Body::empty(),
        Verb::Get => {
            let owed = owed(&plan.fields);
            let delivery =
                Delivery::begin(&app.parts.audit, record, owed).map_err(TransferError::from)?;
            app.counters.download_begun();
            Body::new(Download {
                step: Step::Asked(Box::new(Sending::new(&app.parts, content, pieces, used))),
                owed,
                delivery,
                counters: app.counters.clone(),
                _place: place,
            })
        }
    };
    Ok((plan.status, plan.fields, body).into_response())
}

/// What sending these ranges draws from a ticket.
fn part_of(ranges: &[ByteRange]) -> Option<(Wanted, u64)> {
    let start = ranges.iter().map(|range| range.span().start).min()?;
    let bytes = ranges.iter().map(|range| range.len()).sum();
    Some((Wanted::Ranges { start, bytes }, bytes))
}

/// Whether an answer goes on with content somebody has the beginning of, or says that there is no
/// more of it.
fn goes_on(plan: &Plan) -> bool {
    let is_later = |range: &ByteRange| range.span().start > 0;
    match &plan.content {
        Content::One(range) => is_later(range),
        Content::Parts(parts) => parts.parts.iter().all(|part| is_later(&part.range)),
        Content::Problem => plan.status == StatusCode::RANGE_NOT_SATISFIABLE,
        Content::Nothing | Content::Whole => false,
    }
}

fn plan(verb: Verb, fields: &HeaderMap, reference: &AttachmentRef, cache: Cache) -> Plan {
    let digest = reference.id.digest();
    let name = match &reference.name {
        Some(name) => SaveName::new(name.as_str()),
        // Only an image may come without a name; its digest tells it from others.
        None => SaveName::new(&format!("image-{digest}")),
    };
    let object = Object {
        digest,
        len: reference.bytes,
        media_type: reference.kind.media_type(),
        name: &name,
        cache,
    };
    semantics::plan(verb, fields, &object)
}

/// 412 or 416, with the fields the plan adds.
fn planned_problem(plan: Plan) -> Response {
    let code = if plan.status == StatusCode::RANGE_NOT_SATISFIABLE {
        Code::Range
    } else {
        Code::Precondition
    };
    let mut response = Problem::new(code).into_response();
    response.headers_mut().extend(plan.fields);
    response
}

/// The bytes a planned answer announces.
fn owed(fields: &HeaderMap) -> u64 {
    fields
        .get(http::header::CONTENT_LENGTH)
        .and_then(|line| line.to_str().ok()?.parse().ok())
        .unwrap_or_default()
}

/// A body that reads a block while the one before is on its way, and no further.
///
/// An error ends the connection short of `Content-Length`, so that no client takes the part for the
/// whole (I4).
struct Download {
    step: Step,
    owed: u64,
    delivery: Delivery,
    counters: Arc<Counters>,
    _place: Place,
}

type Next = (Box<Sending>, Result<Option<Bytes>, TransferError>);

enum Step {
    /// The next block has not been asked for.
    Asked(Box<Sending>),
    /// It is being read.
    Reading(Pin<Box<dyn Future<Output = Next> + Send>>),
    /// Nothing follows.
    Ended,
}

impl Download {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TransferError>>> {
        loop {
            match std::mem::replace(&mut self.step, Step::Ended) {
                Step::Ended => return Poll::Ready(None),
                Step::Asked(sending) => self.step = Step::Reading(read(sending)),
                Step::Reading(mut next) => match next.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.step = Step::Reading(next);
                        return Poll::Pending;
                    }
                    Poll::Ready((sending, Ok(Some(bytes)))) => {
                        self.step = Step::Asked(sending);
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                    Poll::Ready((_, Ok(None))) => {}
                    Poll::Ready((_, Err(error))) => return Poll::Ready(Some(Err(error))),
                },
            }
        }
    }
}

fn read(mut sending: Box<Sending>) -> Pin<Box<dyn Future<Output = Next> + Send>> {
    Box::pin(async move {
        let next = sending.next().await;
        (sending, next)
    })
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = TransferError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransferError>>> {
        let next = std::task::ready!(self.poll_next(cx));
        Poll::Ready(match next {
            None => None,
            Some(Ok(bytes)) => {
                let handed = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.owed = self.owed.saturating_sub(handed);
                self.delivery.handed(handed);
                self.counters.sent(bytes.len());
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(error)) => {
                tracing::error!(%error, owed = self.owed, "a transfer was cut");
                Some(Err(error))
            }
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.owed)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if self.owed > 0 {
            self.counters.download_cut();
        }
    }
}
