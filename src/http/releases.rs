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
    receipt::{Answer, Ask, Decision, Outcome},
    transfer::decide,
};

/// A release that waits for somebody's yes or no.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReleaseBody {
    /// What sort of question it is.
    kind: &'static str,
    /// Its id; no credential.
    request_id: String,
    /// The run of the service that shows it.
    bridge_generation: u64,
    /// The session.
    session: String,
    /// The event that declares the file.
    log_generation: u32,
    /// The event that declares the file.
    seq: u64,
    /// The position in the event.
    index: u32,
    /// The path beneath the root; untrusted text, escaped so that it is safe to show.
    path: String,
    /// The name it would be handed out under.
    name: String,
    /// The content a yes releases, and nothing else.
    attachment_id: String,
    /// Its length.
    bytes: u64,
    /// How sure it is that the bytes were the file's content at one moment.
    grade: String,
    /// When it was copied, in milliseconds since the epoch.
    pinned_at: i64,
    /// Who asked for it.
    asked_by: String,
    /// When the question was put.
    asked_at: i64,
    /// From when on whoever shows it should remind somebody: four fifths of its time are over.
    remind_at: i64,
    /// When it ends without an answer; the copy is then no longer kept.
    expires_at: i64,
    /// What may be decided.
    choices: [&'static str; 2],
}

impl ReleaseBody {
    pub(super) fn of(ask: &Ask, bridge_generation: u64) -> Self {
        let draft = &ask.draft;
        Self {
            kind: "release",
            request_id: ask.handle.to_string(),
            bridge_generation,
            session: draft.session.to_string(),
            log_generation: draft.log_generation.get(),
            seq: draft.seq.get(),
            index: draft.index,
            path: draft.path.clone(),
            name: draft.name.to_string(),
            attachment_id: draft.id.to_string(),
            bytes: draft.bytes.get(),
            grade: draft.grade.clone(),
            pinned_at: draft.pinned_at.as_millis(),
            asked_by: draft.asked_by.to_string(),
            asked_at: ask.asked_at.as_millis(),
            remind_at: ask.remind_at().as_millis(),
            expires_at: ask.expires_at.as_millis(),
            choices: [Decision::AllowedOnce.as_str(), Decision::Rejected.as_str()],
        }
    }
}

/// What waits for a decision in a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReleasesBody {
    /// The run of the service.
    bridge_generation: u64,
    /// The questions, oldest first.
    pending_releases: Vec<ReleaseBody>,
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
        pending_releases: waiting
            .iter()
            .map(|ask| ReleaseBody::of(ask, bridge_generation))
            .collect(),
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
    let outcome = decide::settle(&app.parts, &caller.who, answer).await?;
    Ok(axum::Json(ReleaseDecidedBody {
        accepted: true,
        outcome: decision.as_str(),
        receipt: match &outcome {
            Outcome::Allowed(receipt) => Some(ReceiptBody::from(receipt.as_ref())),
            Outcome::Rejected => None,
        },
    }))
}
