use std::fmt::Write as _;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    App,
    extract::{Caller, Json, NoQuery, Stream},
    problem::Problem,
};
use crate::transfer::live::{Reader, Sent};

/// How long a client waits before it comes back, in milliseconds.
const RETRY: u32 = 2000;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Streams everything the caller may see, as server-sent events: `ready` first, then a baseline
/// (`session/subscribed` for each session, every interaction that waits, `live`), then what happens.
///
/// Frames with an `id` can be gone on after with `Last-Event-ID`, while the service keeps them;
/// otherwise `reset` says that the baseline is all there is. A reader that is too slow gets
/// `stream/error` and the end. Somebody is present who acknowledges what was sent.
#[utoipa::path(
    get, path = "/v1/events", tag = "streams", security(("bearer" = [])),
    params(("Last-Event-ID" = Option<String>, Header, description = "The last frame that was read")),
    responses((status = 200, description = "Frames, until either side ends it",
        content_type = "text/event-stream", body = String)),
)]
pub(super) async fn open(
    State(app): State<App>,
    caller: Caller,
    _none: NoQuery,
    fields: HeaderMap,
) -> Result<Response, Problem> {
    // What is no text is no id of ours, and is answered like any other that is not.
    let last = fields
        .get(LAST_EVENT_ID)
        .map(|value| value.to_str().unwrap_or("-").to_owned());
    let reader = app.live.open(caller.who, last.as_deref()).await?;
    let place = caller.place;
    let begin = format!("retry: {RETRY}\n\n");
    let frames = stream::unfold(
        (reader, place, Some(begin)),
        |(mut reader, place, begin)| async {
            let text = match begin {
                Some(begin) => begin,
                None => next(&mut reader).await?,
            };
            let frame = Ok::<_, std::convert::Infallible>(Bytes::from(text));
            Some((frame, (reader, place, None)))
        },
    );
    let kind = HeaderValue::from_static("text/event-stream");
    let buffering = HeaderName::from_static("x-accel-buffering");
    let fields = [
        (header::CONTENT_TYPE, kind),
        (buffering, HeaderValue::from_static("no")),
    ];
    Ok((fields, Body::from_stream(frames)).into_response())
}

async fn next(reader: &mut Reader) -> Option<String> {
    let mut text = String::new();
    match reader.next().await? {
        Sent::Heartbeat => text.push_str(":\n\n"),
        Sent::Frame { id, event, data } => {
            if let Some(id) = id {
                writeln!(text, "id: {id}").ok()?;
            }
            // JSON of ours has no line end in it.
            write!(text, "event: {event}\ndata: {data}\n\n").ok()?;
        }
    }
    Some(text)
}

/// How far a stream was read.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AckForm {
    /// The id of the last frame read; that of `ready` to begin with.
    last_event_id: String,
}

/// What an acknowledgement is good for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AckBody {
    /// How long the caller counts as present, in seconds, unless it acknowledges again.
    present_seconds: u64,
}

/// Shows that somebody reads the stream. Every 10 to 15 seconds keeps the caller present.
#[utoipa::path(
    post, path = "/v1/streams/{stream}/ack", tag = "streams", security(("bearer" = [])),
    params(("stream" = String, Path, description = "`streamId` of the stream's `ready`")),
    request_body = AckForm,
    responses((status = 200, description = "Present", body = AckBody)),
)]
pub(super) async fn acknowledge(
    State(app): State<App>,
    caller: Caller,
    Stream(stream): Stream,
    Json(form): Json<AckForm>,
) -> Result<(StatusCode, axum::Json<AckBody>), Problem> {
    app.live
        .acknowledge(caller.who.id, stream, &form.last_event_id)?;
    let present_seconds = crate::approval::PRESENCE.as_secs();
    Ok((StatusCode::OK, axum::Json(AckBody { present_seconds })))
}
