//! The owner-only ways in: the control socket and the router in a command's own process.
//!
//! Promises: everything of the public listener is here through the same access check (I10); on top
//! of it stand the operator's own questions about principals and their secrets, which the public
//! listener does not have. Leaves to others: letting only our own uid in (`app`).

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use futures_util::stream;
use http::{HeaderName, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

use super::{
    App, dress,
    extract::{Caller, InSession, Json, Vouched},
    problem::{Code, Problem},
    router::Public,
    semantics::Host,
    server,
};
use crate::{
    access::{Access, Principal, PrincipalKind, PrincipalName, TokenInfo, TokenNumber},
    audit::{Event, Record},
    model::{PrincipalId, Timestamp},
    transfer::{TransferError, chain, exchange},
};

/// The field that names the principal to act as, percent-encoded. It means something here alone.
pub(crate) const ACTING: HeaderName = HeaderName::from_static("holdfast-as");

/// The longest life a token or code can be asked to have.
const LONGEST: Duration = Duration::from_hours(24 * 3660);

/// The service of the owner-only ways in.
#[derive(Clone, Debug)]
pub struct Local {
    public: Public,
    router: Router,
}

impl Local {
    /// The public routes and the owner's own over `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        let public = Public::new(app.clone());
        let router = Router::new()
            .route(
                "/local/v1/principals",
                get(principals).post(create_principal),
            )
            .route("/local/v1/tokens", get(tokens).post(create_token))
            .route("/local/v1/tokens/{token}", delete(revoke_token))
            .route("/local/v1/login-codes", post(create_code))
            .route("/local/v1/sessions/{session}/log", get(export_log))
            .route("/local/v1/sessions/{session}/chain", get(verify_chain))
            .route("/local/v1/imports", post(import_session))
            .layer(from_fn_with_state(app.clone(), dress::dress))
            .with_state(app.clone())
            .fallback_service(public.router())
            .layer(from_fn_with_state(app, vouch));
        Self { public, router }
    }

    /// Answers a request of this very process, which came over no connection.
    pub async fn ask(&self, mut request: Request) -> Response {
        if let Ok(host) = Host::of(request.headers()) {
            request.extensions_mut().insert(host);
        }
        server::Handler::answer(self, request).await
    }
}

impl server::Handler for Local {
    async fn answer(&self, request: Request) -> Response {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn refuse(&self, refusal: server::Refusal) -> Response {
        self.public.refuse(refusal)
    }
}

/// Vouches for the principal the request names, unless it shows a token of its own.
async fn vouch(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let named = request.headers().get(&ACTING).cloned();
    if let Some(named) = named
        && !request.headers().contains_key(header::AUTHORIZATION)
    {
        match acting(&app, named.as_bytes()).await {
            Ok(who) => {
                request.extensions_mut().insert(Vouched(who));
            }
            // Not dressed: the one who asks is ourselves, and reads the status.
            Err(problem) => return problem.into_response(),
        }
    }
    next.run(request).await
}

async fn acting(app: &App, named: &[u8]) -> Result<Principal, Problem> {
    let name = std::str::from_utf8(named)
        .ok()
        .and_then(|text| percent_decode_str(text).decode_utf8().ok())
        .and_then(|text| PrincipalName::parse(&text).ok())
        .ok_or_else(|| Problem::malformed("`holdfast-as` is not a principal's name"))?;
    app.granted(move |access| access.principal_named(&name))
        .await
}

/// A principal.
#[derive(Debug, Serialize)]
struct PrincipalRow {
    id: PrincipalId,
    kind: &'static str,
    name: String,
}

impl From<Principal> for PrincipalRow {
    fn from(principal: Principal) -> Self {
        Self {
            id: principal.id,
            kind: principal.kind.as_str(),
            name: principal.name.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
struct PrincipalRows {
    principals: Vec<PrincipalRow>,
}

async fn principals(State(app): State<App>) -> Result<axum::Json<PrincipalRows>, Problem> {
    let all = app.granted(Access::principals).await?;
    Ok(axum::Json(PrincipalRows {
        principals: all.into_iter().map(PrincipalRow::from).collect(),
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrincipalForm {
    kind: String,
    name: String,
}

async fn create_principal(
    State(app): State<App>,
    Json(form): Json<PrincipalForm>,
) -> Result<Response, Problem> {
    let kind = PrincipalKind::parse(&form.kind)
        .ok_or_else(|| Problem::malformed("a kind is `operator`, `host` or `user`"))?;
    let name = name(&form.name)?;
    let made = app
        .granted(move |access| access.create_principal(kind, name))
        .await?;
    Ok((StatusCode::CREATED, axum::Json(PrincipalRow::from(made))).into_response())
}

fn name(text: &str) -> Result<PrincipalName, Problem> {
    PrincipalName::parse(text).map_err(|error| Problem::malformed(error.to_string()))
}

/// A token without its secret.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenRow {
    id: i64,
    principal: PrincipalId,
    label: String,
    created_at: i64,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
}

impl From<TokenInfo> for TokenRow {
    fn from(token: TokenInfo) -> Self {
        Self {
            id: token.number.get(),
            principal: token.principal,
            label: token.label,
            created_at: token.created_at.as_millis(),
            expires_at: token.expires_at.map(Timestamp::as_millis),
            revoked_at: token.revoked_at.map(Timestamp::as_millis),
        }
    }
}

#[derive(Debug, Serialize)]
struct TokenRows {
    tokens: Vec<TokenRow>,
}

async fn tokens(State(app): State<App>) -> Result<axum::Json<TokenRows>, Problem> {
    let all = app.granted(Access::tokens).await?;
    Ok(axum::Json(TokenRows {
        tokens: all.into_iter().map(TokenRow::from).collect(),
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SecretForm {
    /// The principal's name.
    principal: String,
    /// What it is made for.
    #[serde(default)]
    label: String,
    /// How long it lasts.
    life_seconds: u64,
}

impl SecretForm {
    fn life(&self) -> Result<Duration, Problem> {
        let life = Duration::from_secs(self.life_seconds);
        if life.is_zero() || life > LONGEST {
            return Err(Problem::malformed("`lifeSeconds` is from 1 to ten years"));
        }
        Ok(life)
    }
}

/// A token with its secret, this once.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewToken {
    id: i64,
    token: String,
    expires_at: Option<i64>,
}

async fn create_token(
    State(app): State<App>,
    Json(form): Json<SecretForm>,
) -> Result<Response, Problem> {
    let (life, name) = (form.life()?, name(&form.principal)?);
    let issued = app
        .granted(move |access| {
            let who = access.principal_named(&name)?;
            access.issue_token(who.id, &form.label, Some(life))
        })
        .await?;
    let body = NewToken {
        id: issued.number.get(),
        token: issued.token.reveal(),
        expires_at: issued.expires_at.map(Timestamp::as_millis),
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

async fn revoke_token(
    State(app): State<App>,
    Path(token): Path<String>,
) -> Result<StatusCode, Problem> {
    let number = token
        .parse()
        .map(TokenNumber::new)
        .map_err(|_not_a_number| Problem::new(Code::NotFound))?;
    app.granted(move |access| access.revoke_token(number))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A one-time sign-in code, this once.
#[derive(Serialize)]
struct NewCode {
    code: String,
}

async fn create_code(
    State(app): State<App>,
    Json(form): Json<SecretForm>,
) -> Result<Response, Problem> {
    let (life, name) = (form.life()?, name(&form.principal)?);
    let code = app
        .granted(move |access| {
            let who = access.principal_named(&name)?;
            access.issue_login_code(who.id, life)
        })
        .await?;
    let body = NewCode {
        code: code.reveal(),
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// The session's log in the layout of a DSH home, working directory included: for the owner-only ways
/// in alone.
async fn export_log(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
) -> Result<Response, Problem> {
    let log = exchange::Log::open(&app.parts, &caller.who, session).await?;
    let record = Record {
        who: Some(caller.who.id),
        session: Some(session),
        ..Record::of(Event::Exported)
    };
    app.parts.audit.admit(record).map_err(TransferError::from)?;
    // The caller's place is kept until the last line.
    let start = (log, app.parts.clone(), caller.place);
    let lines = stream::try_unfold(start, |(log, parts, place)| async move {
        let next = log.next(&parts).await;
        if let Err(error) = &next {
            tracing::warn!(%error, "an export was cut short");
        }
        Ok::<_, TransferError>(next?.map(|(bytes, log)| (bytes, (log, parts, place))))
    });
    Ok(Body::from_stream(lines).into_response())
}

/// What reading a whole log again found in order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChainBody {
    /// Whether the log has a chain; a home's has none.
    chained: bool,
    events: u64,
    head: Option<String>,
    references: u64,
}

async fn verify_chain(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
) -> Result<axum::Json<ChainBody>, Problem> {
    let found = chain::verify(&app.parts, &caller.who, session).await?;
    Ok(axum::Json(ChainBody {
        chained: found.is_some(),
        events: found.as_ref().map_or(0, |found| found.events),
        references: found.as_ref().map_or(0, |found| found.references),
        head: found.map(|found| found.head.to_string()),
    }))
}

/// A session that came in.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportedBody {
    session: String,
    id: String,
    events: u64,
    attachments: usize,
    is_new: bool,
}

async fn import_session(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    let body = Box::pin(body.into_data_stream());
    let (imported, contents) = exchange::import(&app.parts, &caller.who, body).await?;
    let status = if imported.is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let body = ImportedBody {
        session: imported.session.handle.to_string(),
        id: imported.session.id.to_string(),
        events: contents.events,
        attachments: contents.references.len(),
        is_new: imported.is_new,
    };
    Ok((status, axum::Json(body)).into_response())
}
