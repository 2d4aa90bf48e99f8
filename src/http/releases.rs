use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    App,
    extract::{Caller, InSession, Interaction, Json, NoQuery},
    problem::Problem,
    receipts::ReceiptBody,
};
use crate::{
    model::{AttachmentId, ByteCount},
    receipt::{Answer, Decision, Outcome},
    transfer::{decide, live::Waiting},
};

/// What waits for a decision in a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReleasesBody {
    /// The run of the service.
    bridge_generation: u64,
    /// The questions, oldest first.
    pending_releases: Vec<Waiting>,
}

/// A decision, about exactly one content.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ReleaseDecisionForm {
    /// The content the one who decides was shown.
    #[schema(value_type = String)]
    attachment_id: AttachmentId,
    /// Its length.
    bytes: u64,
    /// What is decided.
    #[schema(value_type = String)]
    decision: ReleaseChoice,
}

/// What may be decided.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ReleaseChoice {
    AllowedOnce,
    Rejected,
}

/// That a decision was taken.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReleaseDecidedBody {
    /// Always true: what was not taken is a refusal.
    accepted: bool,
    /// What was decided.
    outcome: &'static str,
    /// The receipt, after a yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
}

/// Lists what waits for a decision in a session.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/releases", tag = "deliverables",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle")),
    responses((status = 200, description = "What waits", body = ReleasesBody)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    InSession(session): InSession,
) -> Result<axum::Json<ReleasesBody>, Problem> {
    let waiting = decide::waiting(&app.parts, &caller.who, session).await?;
    let bridge_generation = app.parts.identity.bridge_generation;
    Ok(axum::Json(ReleasesBody {
        bridge_generation,
        pending_releases: waiting.iter().map(|ask| app.live().waiting(ask)).collect(),
    }))
}

/// Decides, once. The decision holds for exactly the content it names.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/releases/{interaction}/decision", tag = "deliverables",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("interaction" = String, Path, description = "The question's id")),
    request_body = ReleaseDecisionForm,
    responses((status = 200, description = "Taken", body = ReleaseDecidedBody)),
)]
pub(super) async fn settle(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Interaction(handle): Interaction,
    Json(form): Json<ReleaseDecisionForm>,
) -> Result<axum::Json<ReleaseDecidedBody>, Problem> {
    let decision = match form.decision {
        ReleaseChoice::AllowedOnce => Decision::AllowedOnce,
        ReleaseChoice::Rejected => Decision::Rejected,
    };
    let answer = Answer {
        session,
        handle,
        id: form.attachment_id,
        bytes: ByteCount::new(form.bytes),
        decision,
        who: caller.who.id,
    };
    let outcome = decide::settle(app.live(), &app.parts, &caller.who, answer).await?;
    Ok(axum::Json(ReleaseDecidedBody {
        accepted: true,
        outcome: decision.as_str(),
        receipt: match &outcome {
            Outcome::Allowed(receipt) => Some(ReceiptBody::from(receipt.as_ref())),
            Outcome::Rejected => None,
        },
    }))
}
