use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    App,
    extract::{Caller, InSession, Json},
    problem::Problem,
};
use crate::{
    permission::Choice,
    transfer::live::{Choosing, Selected},
};

/// The word for a permission that was put together by hand.
const CUSTOM: &str = "custom";

/// What a session runs under, as a select.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermissionBody {
    /// What can be chosen; `custom` while it is in force, to be shown and not to be chosen.
    options: Vec<PermissionOption>,
    /// What is chosen: what is held, else what is in force.
    current_value: &'static str,
    /// What is in force.
    effective_value: &'static str,
    /// Whether what is chosen waits for the next prompted turn.
    pending: bool,
    /// For `If-Match`.
    revision: String,
}

/// Something that can be chosen.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PermissionOption {
    /// The word to send.
    value: &'static str,
    /// The word to show.
    name: &'static str,
    /// What it means for files.
    description: &'static str,
}

impl From<Selected> for PermissionBody {
    fn from(selected: Selected) -> Self {
        let effective = selected.effective.map_or(CUSTOM, Choice::as_str);
        let current = selected.held.map_or(effective, Choice::as_str);
        let mut options: Vec<_> = Choice::ALL
            .into_iter()
            .map(|choice| PermissionOption {
                value: choice.as_str(),
                name: choice.title(),
                description: choice.effect(),
            })
            .collect();
        if current == CUSTOM {
            options.push(PermissionOption {
                value: CUSTOM,
                name: "Custom",
                description: "put together by hand",
            });
        }
        Self {
            options,
            current_value: current,
            effective_value: effective,
            pending: current != effective,
            revision: selected.revision,
        }
    }
}

fn answer(selected: Selected) -> Response {
    let tag = HeaderValue::try_from(format!("\"{}\"", selected.revision));
    let mut response = axum::Json(PermissionBody::from(selected)).into_response();
    if let Ok(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Shows what the session runs under, and what waits to.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/permission", tag = "permission", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle")),
    responses((status = 200, description = "The select now", body = PermissionBody)),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
) -> Result<Response, Problem> {
    let grant = app
        .granted(move |access| access.read_session(&caller.who, session))
        .await?;
    Ok(answer(app.live.permission(grant).await?))
}

/// A choice.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PermissionForm {
    /// One of the options' values, to the byte.
    value: String,
    /// That the person was told what full access means; needed for it alone.
    #[serde(default)]
    acknowledge_risk: bool,
}

/// Chooses what the session runs under: at once inside an open turn; otherwise the choice is held,
/// durably, until the next turn with a prompt. The last choice wins.
#[utoipa::path(
    put, path = "/v1/sessions/{session}/permission", tag = "permission", security(("bearer" = [])),
    params(
        ("session" = String, Path, description = "The session's handle"),
        ("If-Match" = Option<String>, Header, description = "The revision the choice is made for"),
    ),
    request_body = PermissionForm,
    responses((status = 200, description = "Taken", body = PermissionBody)),
)]
pub(super) async fn choose(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    fields: HeaderMap,
    Json(form): Json<PermissionForm>,
) -> Result<Response, Problem> {
    let revision = fields.get(header::IF_MATCH).map(|value| {
        value
            .to_str()
            .unwrap_or_default()
            .trim_matches('"')
            .to_owned()
    });
    let grant = app
        .granted(move |access| access.decide_in_session(&caller.who, session))
        .await?;
    let choosing = Choosing {
        value: form.value,
        revision,
        acknowledged: form.acknowledge_risk,
    };
    Ok(answer(app.live.choose(grant, choosing).await?))
}
