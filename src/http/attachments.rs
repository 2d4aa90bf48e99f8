use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Frame, SizeHint};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App, Counters,
    extract::{Attachment, Caller, InSession, Place, Query},
    problem::{Code, Problem},
    semantics::{self, Cache, Content, Object, Plan, SaveName, Verb},
};
use crate::{
    model::{AttachmentRef, FileName},
    transfer::{
        TransferError,
        attachment::{self, Piece, Sending},
    },
};

/// Which of an attachment's names.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DownloadQuery {
    /// The name under which the session refers to it; the first one when absent.
    #[param(value_type = Option<String>)]
    name: Option<FileName>,
}

/// Sends an attachment of the session, verified before the first byte and again block by block.
///
/// HEAD takes the same path and sends the same fields (I10).
#[utoipa::path(
    method(get, head), path = "/v1/sessions/{session}/attachments/{attachment}", tag = "attachments",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("attachment" = String, Path, description = "`sha256:` and 64 hexadecimal digits"),
        DownloadQuery,
        ("Range" = Option<String>, Header, description = "RFC 9110; a malformed one is ignored"),
        ("If-Range" = Option<String>, Header, description = "RFC 9110; the strong tag alone matches"),
        ("If-None-Match" = Option<String>, Header, description = "RFC 9110"),
        ("If-Match" = Option<String>, Header, description = "RFC 9110")),
    responses(
        (status = 200, description = "The whole content", content_type = "application/octet-stream",
            body = Vec<u8>,
            headers(("ETag" = String, description = "The digest, as a strong tag"),
                ("Repr-Digest" = String, description = "RFC 9530, of the whole content"),
                ("Content-Disposition" = String, description = "Always an attachment"))),
        (status = 206, description = "The ranges asked for", content_type = "application/octet-stream",
            body = Vec<u8>),
        (status = 304, description = "The caller's copy is the content"),
        (status = 412, description = "A precondition does not hold",
            content_type = "application/problem+json", body = super::problem::ProblemBody),
        (status = 416, description = "No such range",
            content_type = "application/problem+json", body = super::problem::ProblemBody)),
)]
pub(super) async fn download(
    State(app): State<App>,
    method: Method,
    caller: Caller,
    Query(query): Query<DownloadQuery>,
    InSession(session): InSession,
    Attachment(id): Attachment,
    fields: HeaderMap,
) -> Result<Response, Problem> {
    let opened = attachment::open(&app.parts, &caller.who, session, id, query.name).await?;
    let verb = if method == Method::HEAD {
        Verb::Head
    } else {
        Verb::Get
    };
    let plan = plan(verb, &fields, opened.reference());
    let pieces = match plan.content {
        Content::Problem => return Ok(planned_problem(plan)),
        Content::Nothing if plan.status == StatusCode::NOT_MODIFIED => {
            return Ok((plan.status, plan.fields).into_response());
        }
        Content::Nothing => Vec::new(),
        Content::Whole => vec![Piece::Content(0..opened.reference().bytes.get())],
        Content::One(range) => vec![Piece::Content(range.span())],
        Content::Parts(parts) => parts
            .parts
            .into_iter()
            .flat_map(|part| [Piece::Framing(part.head), Piece::Content(part.range.span())])
            .chain([Piece::Framing(parts.tail)])
            .collect(),
    };
    let content = opened.verify(&app.parts).await?;
    let body = match verb {
        // What HEAD promises was checked as GET checks it.
        Verb::Head => Body::empty(),
        Verb::Get => {
            app.counters.download_begun();
            Body::new(Download {
                step: Step::Asked(Box::new(Sending::new(&app.parts, content, pieces))),
                owed: owed(&plan.fields),
                counters: app.counters.clone(),
                _place: caller.place,
            })
        }
    };
    Ok((plan.status, plan.fields, body).into_response())
}

fn plan(verb: Verb, fields: &HeaderMap, reference: &AttachmentRef) -> Plan {
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
        cache: Cache::Immutable,
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
                self.owed = self
                    .owed
                    .saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
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
