use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{
    App,
    extract::{Caller, InSession, Retry},
    interactions::Answered,
    problem::Problem,
};
use crate::{
    access::random_bits,
    journal::{EventType, NewEvent, Once, RetryKey},
    model::{AttachmentId, Digest, RequestId},
};

/// The longest text of one message, in bytes.
const MAX_TEXT: usize = 256 * 1024;
/// The most attachments of one message.
const MOST_FILES: usize = 64;

/// A message to be submitted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageForm {
    /// What is said.
    text: String,
    /// What was uploaded to the session and goes with it.
    #[serde(default)]
    attachments: Vec<MessageFile>,
}

/// An attachment of a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct MessageFile {
    #[schema(value_type = String)]
    attachment_id: AttachmentId,
    name: String,
    bytes: u64,
}

/// Evidence that a message is in the log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageReceipt {
    /// The request's own key: it stands in the message's `source.requestId`, so that a client finds the
    /// message it is the echo of.
    request_id: String,
    /// The numbering of `seq`.
    log_generation: u32,
    /// Where the message stands.
    seq: u64,
    /// The head of the session's hash chain after it.
    head: String,
}

/// Submits a message to the session. The receipt comes after the flush; a repeat under the same key
/// gets the same receipt and inserts nothing.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/messages", tag = "sessions", security(("bearer" = [])),
    params(
        ("session" = String, Path, description = "The session's handle"),
        ("Idempotency-Key" = String, Header,
            description = "Required: 1 to 255 visible ASCII characters drawn by the client"),
    ),
    request_body = MessageForm,
    responses((status = 201, description = "Durable", body = MessageReceipt)),
)]
pub(super) async fn submit(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Retry(key): Retry,
    Answered(form, asked): Answered<MessageForm>,
) -> Result<Response, Problem> {
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.submit_to_session(&who, session))
        .await?;
    let form = form.map_err(|error| Problem::malformed(format!("body: {error}")))?;
    let key = key.ok_or_else(|| Problem::malformed("a message needs an Idempotency-Key"))?;
    let empty = form.text.trim().is_empty() && form.attachments.is_empty();
    if empty || form.text.len() > MAX_TEXT || form.attachments.len() > MOST_FILES {
        return Err(Problem::malformed(
            "a message has a text or attachments, within bounds",
        ));
    }
    let mut content = Vec::new();
    if !form.text.is_empty() {
        content.push(json!({"type": "text", "text": form.text}));
    }
    for file in form.attachments {
        let attachment = json!({
            "attachmentId": file.attachment_id, "name": file.name, "bytes": file.bytes,
        });
        content.push(json!({"type": "file", "attachment": attachment}));
    }
    let data = json!({
        "id": RequestId::from_random(random_bits()?),
        "role": "user",
        "source": {"kind": "user", "requestId": key.as_str()},
        "content": content,
    });
    let event = NewEvent {
        kind: EventType::parse("user/message")
            .map_err(|_ours| Problem::malformed("the type of a message"))?,
        time: app.parts.clock.now(),
        data: serde_json::value::to_raw_value(&data)
            .map_err(|_ours| Problem::malformed("the form of a message"))?,
        ignorable: false,
    };
    let once = Once {
        who: caller.who.id,
        key: of_messages(&key)?,
        asked,
    };
    let appended = app
        .live
        .append(grant.session(), vec![event], None, Some(once))
        .await?;
    let receipt = MessageReceipt {
        request_id: key.as_str().to_owned(),
        log_generation: appended.generation.get(),
        seq: appended.first.get(),
        head: appended.head.to_string(),
    };
    Ok((StatusCode::CREATED, axum::Json(receipt)).into_response())
}

/// The key as one of this route: the same key on another route is another key.
fn of_messages(key: &RetryKey) -> Result<RetryKey, Problem> {
    let scoped = Digest::of(format!("messages {}", key.as_str()).as_bytes());
    RetryKey::parse(scoped.to_string().as_bytes())
        .map_err(|_ours| Problem::malformed("the key of a message"))
}
