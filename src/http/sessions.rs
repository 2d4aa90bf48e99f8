use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    App,
    extract::{Caller, InSession, Json, Query},
    problem::Problem,
};
use crate::{
    access::random_bits,
    journal::{JournalError, NewSession, Session},
    model::{PrincipalId, SessionHandle, SessionId},
    transfer::TransferError,
};

/// The most sessions in one page, and the most owners of one session.
const MOST: u32 = 100;

/// The longest working directory a session may state, in bytes.
const MAX_CWD: usize = 4095;

/// A session to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionForm {
    /// The host's own id for it, unique among its sessions; made up when absent.
    #[schema(value_type = Option<String>)]
    id: Option<SessionId>,
    /// The absolute directory its declared paths are relative to.
    cwd: Option<String>,
    /// The users who may read it, by id.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    owners: Vec<PrincipalId>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionBody {
    /// Its name in addresses.
    session: String,
    /// Its own id, as its host wrote it.
    id: String,
    /// When it was created, in milliseconds since the epoch.
    created_at: i64,
    /// The numbering of its seqs.
    log_generation: u32,
    /// The seq of its last event; -1 when it has none.
    last_seq: i64,
}

impl From<&Session> for SessionBody {
    fn from(session: &Session) -> Self {
        Self {
            session: session.handle.to_string(),
            id: session.id.to_string(),
            created_at: session.created_at.as_millis(),
            log_generation: session.generation.get(),
            last_seq: last_seq(session),
        }
    }
}

/// The seq of the last event; -1 when there is none, as every client of the protocol expects.
pub(super) fn last_seq(session: &Session) -> i64 {
    i64::try_from(session.next_seq.get()).map_or(i64::MAX, |next| next.saturating_sub(1))
}

/// A page of the caller's sessions.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionsBody {
    /// The sessions, newest first.
    sessions: Vec<SessionBody>,
    /// The caller's sessions on this page whose log cannot be read; the operator can say more.
    damaged: Vec<String>,
    /// Whether there are more after the last of these.
    has_more: bool,
}

/// Which page of the caller's sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionsQuery {
    /// The session after which the page starts.
    #[param(value_type = Option<String>)]
    after: Option<SessionHandle>,
    /// The most sessions to return: 1 to 100, 50 when absent.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// Lists the sessions the caller may read, newest first.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions", security(("bearer" = [])),
    params(SessionsQuery),
    responses((status = 200, description = "A page of sessions", body = SessionsBody)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<SessionsQuery>,
) -> Result<axum::Json<SessionsBody>, Problem> {
    let limit = in_bounds(query.limit, 50, MOST)?;
    let (access, journal) = (app.parts.access.clone(), app.parts.journal.clone());
    let body = app
        .parts
        .pools
        .control
        .run(move || {
            let mut own = access.sessions(&caller.who, query.after, limit.saturating_add(1))?;
            let most = usize::try_from(limit).unwrap_or(usize::MAX);
            let has_more = own.len() > most;
            own.truncate(most);
            let mut body = SessionsBody {
                sessions: Vec::with_capacity(own.len()),
                damaged: Vec::new(),
                has_more,
            };
            for handle in own {
                match journal.session(handle) {
                    Ok(session) => body.sessions.push(SessionBody::from(&session)),
                    // Gone since it was listed.
                    Err(JournalError::NotFound) => {}
                    // One bad log must not hide the others.
                    Err(error) => {
                        tracing::warn!(session = %handle, %error, "a session cannot be listed");
                        body.damaged.push(handle.to_string());
                    }
                }
            }
            Ok::<_, TransferError>(body)
        })
        .await??;
    Ok(axum::Json(body))
}

/// Creates a session. The calling host alone may write to it.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", security(("bearer" = [])),
    request_body = SessionForm,
    responses((status = 201, description = "Created", body = SessionBody,
        headers(("Location" = String, description = "Where its snapshot is")))),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(form): Json<SessionForm>,
) -> Result<Response, Problem> {
    app.parts.access.may_create_sessions(&caller.who)?;
    if form.owners.len() > usize::try_from(MOST).unwrap_or(usize::MAX) {
        return Err(Problem::malformed(format!(
            "a session has at most {MOST} owners"
        )));
    }
    if let Some(cwd) = &form.cwd {
        let plain = cwd.starts_with('/') && cwd.len() <= MAX_CWD && !cwd.contains('\0');
        if !plain {
            return Err(Problem::malformed("`cwd` is not an absolute path"));
        }
    }
    let handle = SessionHandle::from_random(random_bits()?);
    let id = match form.id {
        Some(id) => id,
        None => SessionId::parse(&handle.to_string())
            .map_err(|_ours| Problem::malformed("no id could be made up"))?,
    };
    let new = NewSession {
        handle,
        id,
        cwd: form.cwd,
        host: caller.who.id,
        owners: form.owners,
        created_at: app.parts.clock.now(),
    };
    let (access, journal) = (app.parts.access.clone(), app.parts.journal.clone());
    let owners = new.owners.clone();
    let session = app
        .parts
        .pools
        .control
        .run(move || {
            access.known_owners(&new.owners)?;
            Ok::<_, TransferError>(journal.create(new)?)
        })
        .await??;
    app.live.added(&session, &owners, caller.who.id);
    let mut response =
        (StatusCode::CREATED, axum::Json(SessionBody::from(&session))).into_response();
    let location = format!("/v1/sessions/{}/snapshot", session.handle);
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Removes a session with everything in it: its log, its attachments, its releases, tickets to them.
///
/// For the host that created it. What other sessions refer to stays with them; its id may be given again.
/// Transfers that are under way go on to their end, those by ticket excepted.
#[utoipa::path(
    delete, path = "/v1/sessions/{session}", tag = "sessions", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle")),
    responses((status = 204, description = "Nobody can have anything of it any more")),
)]
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
) -> Result<StatusCode, Problem> {
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.remove_session(&who, session))
        .await?;
    app.live.remove(grant, &caller.who).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A count the caller may choose up to `most`.
pub(super) fn in_bounds(asked: Option<u32>, usual: u32, most: u32) -> Result<u32, Problem> {
    match asked {
        None => Ok(usual),
        Some(n) if (1..=most).contains(&n) => Ok(n),
        Some(_) => Err(Problem::malformed(format!("`limit` is 1 to {most}"))),
    }
}
