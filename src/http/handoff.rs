use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    App,
    extract::{Caller, InSession, NoQuery, OfferNumber, Retry},
    host::LocalHandoff,
    interactions::{Answered, Replayed, kept, replay, unknown_member},
    problem::Problem,
};
use crate::{
    handoff::{Offer, Receipt, Standing},
    model::{Digest, SessionHandle},
    transfer::live::OpenDesk,
};

/// The longest name of an agent, in bytes.
const MAX_AGENT: usize = 256;

/// What is offered in a session, and what became of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HandoffBody {
    /// Whether anything is run on the caller's machine: never.
    local_handoff: bool,
    /// Why not.
    local_handoff_details: LocalHandoff,
    /// The offers that are kept, oldest first.
    offers: Vec<OfferBody>,
}

/// An action, with everything it is bound to. The digest covers all of it but `state`, `plan` and what
/// became of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfferBody {
    /// Its number in the session.
    offer_id: u64,
    /// What it comes to, for a person.
    plan: String,
    /// `offered`, `asked`, `done` or `retired`.
    state: &'static str,
    /// What retired it.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// The receipt, once it was dispatched.
    #[schema(value_type = Option<HandoffReceipt>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<serde_json::Value>,
    /// The digest to repeat.
    action_digest: String,
    /// The action.
    intent: IntentBody,
    /// Where it comes from.
    source: SourceBody,
    /// Where it would go.
    executor: ExecutorBody,
    /// When it ends, in milliseconds since the epoch.
    expires_at: i64,
}

/// A bounded read of one file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct IntentBody {
    /// 1.
    version: u32,
    /// `read-file`.
    kind: &'static str,
    /// Relative, to the byte as it was sent.
    path: String,
    /// 1 to 1,048,576.
    max_bytes: u64,
}

/// Where an action comes from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceBody {
    host_id: String,
    session: String,
    agent: String,
    turn: u64,
    turn_start_seq: u64,
    bridge_generation: u64,
}

/// Where an action would go.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExecutorBody {
    id: String,
    /// `simulation`.
    kind: &'static str,
    /// Which of its connections.
    generation: u64,
}

/// Evidence of a simulation. It says nothing of the file: nobody looked.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HandoffReceipt {
    /// 1.
    receipt_version: u32,
    offer_id: u64,
    /// The `Idempotency-Key` of the execution.
    request_id: String,
    action_digest: String,
    executor: ExecutorBody,
    /// Always.
    simulated: bool,
    /// Never.
    executed: bool,
    /// `simulated` or `unknown`.
    outcome: String,
    /// When, in milliseconds since the epoch.
    issued_at: i64,
}

impl OfferBody {
    fn of(offer: &Offer, standing: &Standing) -> Self {
        let (state, code, receipt) = match standing {
            Standing::Offered => ("offered", None, None),
            Standing::Asked => ("asked", None, None),
            Standing::Done(receipt) => ("done", None, Some(receipt.json())),
            Standing::Retired(error) => ("retired", Some(error.code()), None),
        };
        let (intent, source) = (&offer.intent, &offer.source);
        Self {
            offer_id: offer.id,
            plan: intent.plan(),
            state,
            code,
            receipt,
            action_digest: offer.digest.to_string(),
            intent: IntentBody {
                version: 1,
                kind: "read-file",
                path: intent.path().to_owned(),
                max_bytes: intent.max_bytes(),
            },
            source: SourceBody {
                host_id: source.host.clone(),
                session: source.session.to_string(),
                agent: source.agent.clone(),
                turn: source.turn.number,
                turn_start_seq: source.turn.start.get(),
                bridge_generation: source.bridge_generation,
            },
            executor: ExecutorBody {
                id: offer.target.id.clone(),
                kind: crate::handoff::SIMULATION,
                generation: offer.target.generation,
            },
            expires_at: offer.expires_at.as_millis(),
        }
    }
}

/// The session's desk, for those who decide in it; where there is no executor, nothing more of the
/// request is looked at.
async fn desk(app: &App, caller: &Caller, session: SessionHandle) -> Result<OpenDesk, Problem> {
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.decide_in_session(&who, session))
        .await?;
    Ok(app.live.handoff(&grant)?)
}

/// Shows what is offered in the session, and what became of it.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/handoff", tag = "handoff", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle")),
    responses((status = 200, description = "The offers", body = HandoffBody)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    InSession(session): InSession,
) -> Result<axum::Json<HandoffBody>, Problem> {
    let offers = desk(&app, &caller, session).await?.offers().await?;
    Ok(axum::Json(HandoffBody {
        local_handoff: false,
        local_handoff_details: LocalHandoff::of(&app.live),
        offers: offers
            .iter()
            .map(|(offer, standing)| OfferBody::of(offer, standing))
            .collect(),
    }))
}

/// Something to be handed over.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OfferForm {
    /// The exact agent it comes from.
    agent: String,
    /// A bounded read of one file: `version` 1, `kind` `read-file`, `path`, `maxBytes`, and nothing else.
    #[schema(value_type = serde_json::Value)]
    intent: Box<RawValue>,
}

/// Offers an action, bound to the turn that is open now. Nothing is done and no file is looked at.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/handoff/offers", tag = "handoff",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle")),
    request_body = OfferForm,
    responses((status = 201, description = "Offered", body = OfferBody)),
)]
pub(super) async fn offer(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Answered(form, _): Answered<OfferForm>,
) -> Result<(StatusCode, axum::Json<OfferBody>), Problem> {
    let desk = desk(&app, &caller, session).await?;
    let form = form.map_err(not_a_form)?;
    if form.agent.is_empty() || form.agent.len() > MAX_AGENT {
        return Err(Problem::malformed("`agent` has 1 to 256 bytes"));
    }
    let intent = form.intent.get().as_bytes();
    let offer = desk.offer(form.agent, intent).await?;
    let body = OfferBody::of(&offer, &Standing::Offered);
    Ok((StatusCode::CREATED, axum::Json(body)))
}

/// Which action is meant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ActionForm {
    /// The offer's digest.
    #[schema(value_type = String)]
    action_digest: Digest,
}

/// Says whether the offer could be executed now, and changes nothing.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/handoff/offers/{offer}/validate", tag = "handoff",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("offer" = u64, Path, description = "The offer's number")),
    request_body = ActionForm,
    responses((status = 200, description = "It could", body = OfferBody)),
)]
pub(super) async fn validate(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    OfferNumber(number): OfferNumber,
    Answered(form, _): Answered<ActionForm>,
) -> Result<axum::Json<OfferBody>, Problem> {
    let desk = desk(&app, &caller, session).await?;
    let form = form.map_err(not_a_form)?;
    let offer = desk.validate(number, &form.action_digest).await?;
    Ok(axum::Json(OfferBody::of(&offer, &Standing::Offered)))
}

/// Puts the plan to the session's people as an approval, and answers once they have decided: after a
/// yes, when everything still holds, the simulator is handed the action, once, and does nothing.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/handoff/offers/{offer}/execute", tag = "handoff",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("offer" = u64, Path, description = "The offer's number"),
        ("Idempotency-Key" = String, Header,
            description = "Required: 1 to 255 visible ASCII characters; a repeat is answered as the \
                           first was")),
    request_body = ActionForm,
    responses((status = 200, description = "Simulated; nothing was executed", body = HandoffReceipt)),
)]
pub(super) async fn execute(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    OfferNumber(number): OfferNumber,
    Retry(key): Retry,
    Answered(form, asked): Answered<ActionForm>,
) -> Result<Response, Problem> {
    let desk = desk(&app, &caller, session).await?;
    let form = form.map_err(not_a_form)?;
    let key = key.ok_or_else(|| Problem::malformed("an execution needs an Idempotency-Key"))?;
    let request = key.as_str().to_owned();
    let place = format!("{session}/{number}");
    let running = match replay(&app, &caller, "handoff", &place, Some(key), asked)? {
        Replayed::Do(running) => running,
        Replayed::Done(response) => return Ok(response),
    };
    let receipt: Receipt = desk.execute(number, form.action_digest, request).await?;
    Ok(kept(running, StatusCode::OK, &receipt.json()))
}

/// Takes an offer back.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/handoff/offers/{offer}/cancel", tag = "handoff",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("offer" = u64, Path, description = "The offer's number")),
    request_body = ActionForm,
    responses((status = 204, description = "Taken back")),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    OfferNumber(number): OfferNumber,
    Answered(form, _): Answered<ActionForm>,
) -> Result<Response, Problem> {
    let desk = desk(&app, &caller, session).await?;
    let form = form.map_err(not_a_form)?;
    desk.cancel(number, &form.action_digest).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A form that does not fit; a member beside its own is a word of its own.
fn not_a_form(reason: impl AsRef<str>) -> Problem {
    let reason = reason.as_ref();
    if reason.starts_with("unknown field") {
        unknown_member(reason)
    } else {
        Problem::malformed(format!("body: {reason}"))
    }
}
