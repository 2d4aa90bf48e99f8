use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    App,
    extract::{Caller, InSession, Query},
    problem::Problem,
    semantics::claimed_digest,
};
use crate::{
    audit::{Event, Record},
    model::{AttachmentId, AttachmentRef, ByteCount, Digest, FileName},
    transfer::upload,
};

/// What the sender says of its content.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UploadQuery {
    /// The name it gets: one path component of 1 to 255 UTF-16 units.
    #[param(value_type = String)]
    name: FileName,
    /// Its id, when known beforehand; content of another one is refused.
    #[param(value_type = Option<String>)]
    digest: Option<AttachmentId>,
}

/// Content that was stored.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UploadBody {
    /// Its id, by which events of this session may now refer to it.
    attachment_id: String,
    /// The name it was stored under.
    name: String,
    /// Its length.
    bytes: u64,
}

impl UploadBody {
    fn of(reference: &AttachmentRef) -> Self {
        Self {
            attachment_id: reference.id.to_string(),
            name: reference
                .name
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            bytes: reference.bytes.get(),
        }
    }
}

/// Stores content for the session; answers once it is durable. The same content again gives the same
/// answer. It can be downloaded once an event of the session refers to it.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/attachments", tag = "attachments",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"), UploadQuery,
        ("Repr-Digest" = Option<String>, Header, description = "RFC 9530; a `sha-256` is checked"),
        ("Content-Digest" = Option<String>, Header, description = "RFC 9530; a `sha-256` is checked")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream",
        description = "The bytes; their declared type is not kept"),
    responses((status = 201, description = "Durable", body = UploadBody,
        headers(("Location" = String, description = "Where it is once an event refers to it")))),
)]
pub(super) async fn receive(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Query(query): Query<UploadQuery>,
    fields: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let announced = upload::Announced {
        name: query.name,
        bytes: content_length(&fields)?,
        digest: one_digest(query.digest.map(AttachmentId::digest), &fields)?,
    };
    let who = caller.who.id;
    let grant = app
        .granted(move |access| access.upload_to_session(&caller.who, session))
        .await?;
    let reference = upload::receive(&app.parts, grant, announced, body.into_data_stream()).await?;
    drop(caller.place);
    app.counters.uploaded(reference.bytes.get());
    app.parts.audit.note(Record {
        who: Some(who),
        session: Some(session),
        id: Some(reference.id),
        name: reference.name.clone(),
        bytes: Some(reference.bytes.get()),
        ..Record::of(Event::Uploaded)
    });
    let body = UploadBody::of(&reference);
    let location = format!("/v1/sessions/{session}/attachments/{}", reference.id);
    let mut response = (StatusCode::CREATED, axum::Json(body)).into_response();
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// The announced length: digits alone, or a body of unknown length.
fn content_length(fields: &HeaderMap) -> Result<Option<ByteCount>, Problem> {
    let Some(line) = fields.get(header::CONTENT_LENGTH) else {
        return Ok(None);
    };
    let wrong = || Problem::malformed("`Content-Length` is not a length");
    let digits = line.to_str().map_err(|_opaque| wrong())?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let bytes = digits.parse().map_err(|_too_large| wrong())?;
    Ok(Some(ByteCount::new(bytes)))
}

/// The digest the request states, in whichever of its three places; they may not disagree.
fn one_digest(asked: Option<Digest>, fields: &HeaderMap) -> Result<Option<Digest>, Problem> {
    let mut stated = asked;
    for name in ["repr-digest", "content-digest"].map(HeaderName::from_static) {
        let lines = fields.get_all(&name).iter().map(HeaderValue::as_bytes);
        let claimed = claimed_digest(lines)
            .map_err(|error| Problem::malformed(format!("{name}: {error}")))?;
        match (stated, claimed) {
            (Some(one), Some(other)) if one != other => {
                return Err(Problem::malformed(
                    "the request states two different digests",
                ));
            }
            (None, Some(_)) => stated = claimed,
            (_, None) | (Some(_), Some(_)) => {}
        }
    }
    Ok(stated)
}
