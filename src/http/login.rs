use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{App, extract::Json, problem::Problem};
use crate::model::Timestamp;

/// How long a token got by signing in lives.
const SIGNED_IN_FOR: Duration = Duration::from_hours(12);

/// A one-time sign-in code.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginForm {
    /// The code, as it stands after `#` in the sign-in link.
    code: String,
}

/// A token in exchange for a code.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoginBody {
    /// The bearer token; shown this once.
    token: String,
    /// When it ends, in milliseconds since the epoch.
    expires_at: Option<i64>,
    /// Whose token it is.
    principal: PrincipalBody,
}

/// A principal.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PrincipalBody {
    /// Its id.
    id: String,
    /// `operator`, `host` or `user`.
    kind: &'static str,
    /// What people call it.
    name: String,
}

/// Redeems a one-time code for a short-lived token. A code works once.
#[utoipa::path(
    post, path = "/v1/login", tag = "host",
    request_body = LoginForm,
    responses((status = 200, description = "Signed in", body = LoginBody)),
)]
pub(super) async fn redeem(
    State(app): State<App>,
    Json(form): Json<LoginForm>,
) -> Result<axum::Json<LoginBody>, Problem> {
    let (who, issued) = app
        .granted(move |access| access.redeem(&form.code, SIGNED_IN_FOR))
        .await?;
    Ok(axum::Json(LoginBody {
        token: issued.token.reveal(),
        expires_at: issued.expires_at.map(Timestamp::as_millis),
        principal: PrincipalBody {
            id: who.id.to_string(),
            kind: who.kind.as_str(),
            name: who.name.to_string(),
        },
    }))
}
