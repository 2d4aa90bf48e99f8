use axum::{extract::State, response::Response};
use http::{HeaderMap, Method};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App,
    audited::Sender,
    download::{Right, answer},
    extract::{Attachment, Caller, InSession, Query},
    problem::Problem,
};
use crate::{model::FileName, transfer::attachment};

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
    let sender = Sender {
        who: caller.who.id,
        session: Some(session),
        receipt: None,
        ticket: None,
    };
    let right = Right::Own(caller.place, sender);
    answer(&app, &method, &fields, opened, right).await
}
