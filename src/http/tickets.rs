use std::time::Duration;

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    App,
    audited::Known,
    download::{Right, answer},
    extract::{Caller, Json, NoQuery, Secret, TicketId},
    problem::{Code, Facts, Problem},
};
use crate::{
    access::{Asked, MOST_USES, Terms, TicketInfo},
    audit::{Event, Record},
    model::{AttachmentId, FileName, ReceiptHandle, SessionHandle},
    transfer::ticket::{self, Wish},
};

/// How long a ticket lasts when nobody says.
const USUAL_LIFE: Duration = Duration::from_mins(10);

/// A ticket to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TicketForm {
    /// The session that refers to the content.
    #[schema(value_type = String)]
    session: SessionHandle,
    /// The content.
    #[schema(value_type = String)]
    attachment_id: AttachmentId,
    /// The name under which the session refers to it; the first one when absent.
    #[schema(value_type = Option<String>)]
    name: Option<FileName>,
    /// The receipt that released the content, where no event refers to it.
    #[schema(value_type = Option<String>)]
    receipt: Option<ReceiptHandle>,
    /// How long it lasts: 10 minutes when absent, at most `limits.ticket_life`, and never longer
    /// than the token it is made with.
    #[schema(minimum = 1)]
    life_seconds: Option<u64>,
    /// How often the content may be fetched: 1 when absent.
    #[schema(minimum = 1, maximum = 100)]
    uses: Option<u32>,
}

/// A ticket.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TicketBody {
    /// Its public id: for listing and revoking, never for downloading.
    ticket: String,
    /// Where its holder downloads; shown once, to its maker.
    #[serde(skip_serializing_if = "Option::is_none")]
    href: Option<String>,
    /// The session that refers to the content.
    session: String,
    /// The content.
    attachment_id: String,
    /// Its name there.
    name: Option<String>,
    /// The receipt that released the content, where no event refers to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    /// Its length.
    bytes: u64,
    /// How often the content may be fetched.
    uses: u32,
    /// How often that was begun.
    opened: u32,
    /// When it was made, in milliseconds since the epoch.
    created_at: i64,
    /// When it ends.
    expires_at: i64,
}

/// The caller's tickets.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TicketsBody {
    /// The living ones, newest first.
    tickets: Vec<TicketBody>,
}

impl From<TicketInfo> for TicketBody {
    fn from(ticket: TicketInfo) -> Self {
        Self {
            ticket: ticket.handle.to_string(),
            href: None,
            session: ticket.session.to_string(),
            attachment_id: ticket.attachment.to_string(),
            name: ticket.name.as_ref().map(ToString::to_string),
            receipt: ticket.receipt.map(|receipt| receipt.to_string()),
            bytes: ticket.bytes.get(),
            uses: ticket.uses,
            opened: ticket.opened,
            created_at: ticket.created_at.as_millis(),
            expires_at: ticket.expires_at.as_millis(),
        }
    }
}

/// Makes a ticket: an address by which whoever holds it can download one attachment, without a token.
///
/// It ends with its time, its uses, its revocation, and with its maker's right to the content.
#[utoipa::path(
    post, path = "/v1/tickets", tag = "tickets", security(("bearer" = [])),
    request_body = TicketForm,
    responses((status = 201, description = "Made; `href` is shown this once", body = TicketBody)),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(form): Json<TicketForm>,
) -> Result<Response, Problem> {
    let wish = Wish {
        terms: terms(&app, &form)?,
        session: form.session,
        id: form.attachment_id,
        name: form.name,
        receipt: form.receipt,
    };
    let who = caller.who.id;
    let made = ticket::make(&app.parts, caller.who, caller.token, wish).await;
    let (secret, info) = made?;
    app.parts.audit.note(Record {
        who: Some(who),
        session: Some(info.session),
        id: Some(info.attachment),
        ticket: Some(info.handle),
        ..Record::of(Event::TicketMade)
    });
    let mut body = TicketBody::from(info);
    body.href = Some(format!("/d/{}", secret.reveal()));
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

fn terms(app: &App, form: &TicketForm) -> Result<Terms, Problem> {
    let limits = &app.parts.limits;
    let life = form
        .life_seconds
        .map_or(USUAL_LIFE.min(limits.ticket_life), Duration::from_secs);
    if life.is_zero() || life > limits.ticket_life {
        return Err(Problem::new(Code::Malformed).with_facts(Facts {
            reason: Some(format!(
                "`lifeSeconds` is 1 to {}",
                limits.ticket_life.as_secs()
            )),
            setting: Some("limits.ticket_life"),
            ..Facts::default()
        }));
    }
    let uses = form.uses.unwrap_or(1);
    if !(1..=MOST_USES).contains(&uses) {
        return Err(Problem::malformed(format!("`uses` is 1 to {MOST_USES}")));
    }
    Ok(Terms {
        life,
        uses,
        most: limits.tickets_per_principal,
        grace: limits.ticket_grace,
    })
}

/// Lists the caller's living tickets, newest first.
#[utoipa::path(
    get, path = "/v1/tickets", tag = "tickets", security(("bearer" = [])),
    responses((status = 200, description = "The tickets", body = TicketsBody)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
) -> Result<axum::Json<TicketsBody>, Problem> {
    let access = app.parts.access.clone();
    let listing = move || access.tickets(&caller.who);
    let all = app.parts.pools.control.run(listing).await??;
    Ok(axum::Json(TicketsBody {
        tickets: all.into_iter().map(TicketBody::from).collect(),
    }))
}

/// Ends a ticket of the caller's now. A download by it that is under way does not finish.
#[utoipa::path(
    delete, path = "/v1/tickets/{ticket}", tag = "tickets", security(("bearer" = [])),
    params(("ticket" = String, Path, description = "The ticket's public id")),
    responses((status = 204, description = "Gone")),
)]
pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    TicketId(id): TicketId,
) -> Result<StatusCode, Problem> {
    let access = app.parts.access.clone();
    let who = caller.who.id;
    let revoking = move || access.revoke_ticket(&caller.who, id);
    app.parts.pools.control.run(revoking).await??;
    app.parts.audit.note(Record {
        who: Some(who),
        ticket: Some(id),
        ..Record::of(Event::TicketRevoked)
    });
    Ok(StatusCode::NO_CONTENT)
}

/// Sends the attachment the ticket is for, as the attachment's own address does. No token is asked
/// for, and none is looked at.
///
/// The first request that sends a byte opens a use; ranges belong to it until it has sent the content
/// and a tenth more; a GET without one opens the next. HEAD, 304, 412 and 416 open none.
#[utoipa::path(
    method(get, head), path = "/d/{ticket}", tag = "tickets",
    params(("ticket" = String, Path, description = "The secret in the ticket's `href`"),
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
    _: NoQuery,
    Secret(secret): Secret,
    Extension(known): Extension<Known>,
    fields: HeaderMap,
) -> Result<Response, Problem> {
    let asked = match (&method, fields.contains_key(header::RANGE)) {
        (&Method::HEAD, _) => Asked::Fields,
        (_, false) => Asked::Whole,
        (_, true) => Asked::Ranges,
    };
    let (ticket, opened) = ticket::open(&app.parts, secret, asked).await?;
    known.set(ticket.maker().id);
    let place = app
        .holders
        .enter(ticket.maker().id, app.parts.limits.requests_per_principal)
        .ok_or(Problem::new(Code::Busy))?;
    answer(&app, &method, &fields, opened, Right::Ticket(ticket, place)).await
}
