use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    App,
    extract::{Caller, Declaration, NoQuery},
    problem::Problem,
    receipts::ReceiptBody,
    releases::ReleaseBody,
};
use crate::{
    receipt::Released,
    transfer::deliverable::{self, Explained},
};

/// Which rules govern a declared file, and what they come to. Nothing was opened.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainBody {
    /// What a release would come to: `release`, `ask` or `refuse`, as far as can be said without
    /// opening the file.
    outcome: &'static str,
    /// The rules in the order they are asked.
    rules: Vec<RuleBody>,
}

/// One rule.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleBody {
    /// What it is about: `path`, `root`, `gate`, `name` or `permission`.
    rule: &'static str,
    /// Whether it lets the file through.
    passed: bool,
    /// What it found.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// The setting that governs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<&'static str>,
}

impl From<Explained> for ExplainBody {
    fn from(explained: Explained) -> Self {
        Self {
            outcome: explained.outcome,
            rules: explained
                .rules
                .into_iter()
                .map(|rule| RuleBody {
                    rule: rule.rule,
                    passed: rule.passed,
                    class: rule.class,
                    remedy: rule.remedy,
                    setting: rule.setting,
                })
                .collect(),
        }
    }
}

/// Copies a declared file, unchanged and whole, and releases exactly these bytes, or asks somebody
/// about them first.
///
/// The file is named by its place in the log alone. It is read once, beneath its root, following no
/// link; what is decided on is the copy, whatever becomes of the file.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/deliverables/{generation}/{seq}/{index}/release",
    tag = "deliverables", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("generation" = u32, Path, description = "The numbering of `seq`"),
        ("seq" = u64, Path, description = "The event that declares the file"),
        ("index" = u32, Path, description = "Its position in the event")),
    responses(
        (status = 201, description = "Released", body = ReceiptBody),
        (status = 202, description = "Somebody has to decide", body = ReleaseBody)),
)]
pub(super) async fn release(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    Declaration(at): Declaration,
) -> Result<Response, Problem> {
    let located = deliverable::locate(&app.parts, &caller.who, at).await?;
    let released = deliverable::release(&app.parts, &caller.who, located, None).await?;
    Ok(match released {
        Released::Now(receipt) => {
            (StatusCode::CREATED, axum::Json(ReceiptBody::from(&receipt))).into_response()
        }
        Released::Asked(ask) => {
            let body = ReleaseBody::of(&ask, app.parts.identity.bridge_generation);
            (StatusCode::ACCEPTED, axum::Json(body)).into_response()
        }
    })
}

/// Says which rule governs a declared file, which setting is behind it and what to do. Opens nothing.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/deliverables/{generation}/{seq}/{index}/explain",
    tag = "deliverables", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("generation" = u32, Path, description = "The numbering of `seq`"),
        ("seq" = u64, Path, description = "The event that declares the file"),
        ("index" = u32, Path, description = "Its position in the event")),
    responses((status = 200, description = "The rules", body = ExplainBody)),
)]
pub(super) async fn explain(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    Declaration(at): Declaration,
) -> Result<axum::Json<ExplainBody>, Problem> {
    let explained = deliverable::explain(&app.parts, &caller.who, at).await?;
    Ok(axum::Json(explained.into()))
}
