use axum::{extract::State, response::Response};
use data_encoding::HEXLOWER;
use http::{HeaderMap, Method};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    App,
    audited::Sender,
    download::{Right, answer},
    extract::{Caller, NoQuery, ReceiptId},
    problem::Problem,
};
use crate::{receipt::Receipt, transfer::receipt};

/// Evidence of a release.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReceiptBody {
    /// The receipt's name.
    receipt: String,
    /// Where the content is downloaded.
    href: String,
    /// What was released, from where, by whom and when, in its one spelling: the text the seal is
    /// over.
    #[schema(value_type = Object)]
    statement: Box<RawValue>,
    /// `hmac-sha256:` and the seal over the statement; `holdfast verify-receipt` checks it.
    seal: String,
}

impl From<&Receipt> for ReceiptBody {
    fn from(receipt: &Receipt) -> Self {
        let name = receipt.statement.receipt;
        Self {
            receipt: name.to_string(),
            href: format!("/v1/receipts/{name}/content"),
            statement: RawValue::from_string(receipt.statement.canonical())
                .unwrap_or_else(|_never| RawValue::NULL.to_owned()),
            seal: format!("hmac-sha256:{}", HEXLOWER.encode(&receipt.seal)),
        }
    }
}

/// Shows a receipt.
#[utoipa::path(
    get, path = "/v1/receipts/{receipt}", tag = "receipts", security(("bearer" = [])),
    params(("receipt" = String, Path, description = "The receipt's name")),
    responses((status = 200, description = "The receipt", body = ReceiptBody)),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    ReceiptId(id): ReceiptId,
) -> Result<axum::Json<ReceiptBody>, Problem> {
    let (receipt, _granted) = receipt::find(&app.parts, &caller.who, id).await?;
    Ok(axum::Json(ReceiptBody::from(&receipt)))
}

/// Sends what a receipt vouches for, as an attachment is sent.
#[utoipa::path(
    method(get, head), path = "/v1/receipts/{receipt}/content", tag = "receipts",
    security(("bearer" = [])),
    params(("receipt" = String, Path, description = "The receipt's name"),
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
    _: NoQuery,
    ReceiptId(id): ReceiptId,
    fields: HeaderMap,
) -> Result<Response, Problem> {
    let opened = receipt::open(&app.parts, &caller.who, id).await?;
    let sender = Sender {
        who: caller.who.id,
        session: None,
        receipt: Some(id),
        ticket: None,
    };
    let right = Right::Own(caller.place, sender);
    answer(&app, &method, &fields, opened, right).await
}
