use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::{FromRequest, Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::{
    App,
    extract::{Caller, InSession, Interaction, Json, Query, Retry, json_body},
    host::Approval,
    problem::{Code, Facts, Problem},
};
use crate::{
    approval::{Answer, Choice, Decision, Matter, Question, Reply, Request as Asking, TurnMark},
    journal::RetryKey,
    model::{Cancel, Digest, InteractionHandle, Seq, SessionHandle},
    transfer::{
        TransferError,
        live::{Asked, Replay, Running, Signal, Told},
    },
};

/// The longest an answer is waited for in one request, in seconds.
const LONGEST_WAIT: u64 = 60;
/// The longest name of an agent, in bytes.
const MAX_AGENT: usize = 256;

/// What waits for the caller now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct InteractionsBody {
    /// The run of the service all of these belong to.
    bridge_generation: u64,
    /// The place in the caller's stream the list stands at: frames up to it are in the list already,
    /// and a list that is older than a frame says nothing about it.
    as_of: String,
    /// Whether answers would reach anything.
    capabilities: InteractionCapabilities,
    /// What waits, in the order it came.
    #[schema(value_type = Vec<PendingBody>)]
    pending_interactions: Vec<Value>,
}

/// Whether answers would reach anything.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InteractionCapabilities {
    approval: Approval,
}

/// Something that waits for an answer. All texts are untrusted, without credentials, and bounded.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingBody {
    /// `approval` or `question`.
    kind: String,
    /// Its name; it correlates, and opens nothing.
    request_id: String,
    /// The run of the service.
    bridge_generation: u64,
    /// The host.
    host_id: String,
    /// The session.
    session: String,
    /// Its id in the audit.
    approval_id: String,
    /// The turn.
    turn: Option<u64>,
    /// Where that turn starts.
    turn_start_seq: Option<u64>,
    /// When an approval ends, in milliseconds since the epoch; for showing.
    expires_at: Option<i64>,
    /// The tool.
    tool_name: Option<String>,
    /// The model's call.
    call_id: Option<String>,
    /// Why.
    reason: Option<String>,
    /// Why, by language.
    display_reason: Option<BTreeMap<String, String>>,
    /// The text to show.
    presentation: Option<String>,
    /// Whether it can be allowed: there is something readable, shown whole.
    can_allow: Option<bool>,
    /// Whether something of it does not fit.
    truncated: Option<bool>,
    /// What can be decided.
    choices: Option<Vec<String>>,
    /// The form of a question.
    questions: Option<Vec<QuestionForm>>,
}

/// Shows what waits for an answer in the session. Reading it is no presence.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/interactions", tag = "interactions",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle")),
    responses((status = 200, description = "What waits now", body = InteractionsBody)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
) -> Result<Response, Problem> {
    let who = caller.who.clone();
    let owners = app
        .granted(move |access| {
            access.read_session(&who, session)?;
            Ok(access.people(session)?.0)
        })
        .await?;
    let (pending, place) = app.live.pending_for(session, caller.who.id);
    let body = InteractionsBody {
        bridge_generation: app.parts.identity.bridge_generation,
        as_of: place,
        capabilities: InteractionCapabilities {
            approval: Approval::in_session(&app.live, &owners),
        },
        pending_interactions: pending.iter().map(|one| app.live.shown(one)).collect(),
    };
    let text = serde_json::to_vec(&body).unwrap_or_default();
    let tag = HeaderValue::try_from(format!("\"{}\"", Digest::of(&text)));
    let mut response = axum::Json(body).into_response();
    if let Ok(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Something a host puts to the people of a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AskForm {
    /// `approval` or `question`.
    kind: Kind,
    /// The exact agent that asks: another one that takes its place is named otherwise.
    agent: String,
    /// The agent this one belongs to. Only one that nobody owns reaches a person.
    owned_by: Option<String>,
    /// The tool; for an approval.
    tool_name: Option<String>,
    /// The model's call.
    call_id: Option<String>,
    /// Why.
    reason: Option<String>,
    /// Why, by language: `en` and others.
    #[serde(default)]
    display_reason: BTreeMap<String, String>,
    /// A shorter life than the service's.
    life_seconds: Option<u64>,
    /// The form; for a question.
    questions: Option<Vec<QuestionForm>>,
}

/// What is put to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// One action, once.
    Approval,
    /// A form.
    Question,
}

/// One question.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct QuestionForm {
    /// Its id, unique in the form.
    id: String,
    /// What is asked.
    question: String,
    /// More about it.
    detail: Option<String>,
    /// A short heading.
    header: Option<String>,
    /// What can be selected.
    #[serde(default)]
    options: Vec<OptionForm>,
    /// Whether more than one may be.
    #[serde(default)]
    multi_select: bool,
    /// How it is to be presented.
    intent: Option<IntentForm>,
}

/// One option.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OptionForm {
    /// What is selected by it.
    label: String,
    /// More about it.
    description: Option<String>,
}

/// How a question is to be presented.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub(super) enum IntentForm {
    /// A plan: `detail` has it, and this label approves it.
    PlanReview {
        /// The label.
        approve: String,
    },
}

impl From<QuestionForm> for Question {
    fn from(form: QuestionForm) -> Self {
        Self {
            id: form.id,
            question: form.question,
            detail: form.detail,
            header: form.header,
            options: form
                .options
                .into_iter()
                .map(|option| Choice {
                    label: option.label,
                    description: option.description,
                })
                .collect(),
            multi_select: form.multi_select,
            approve: form
                .intent
                .map(|IntentForm::PlanReview { approve }| approve),
        }
    }
}

impl AskForm {
    fn parse(self, locale: &str) -> Result<Asked, Problem> {
        let names = |name: &String| !name.is_empty() && name.len() <= MAX_AGENT;
        if !names(&self.agent) || !self.owned_by.as_ref().is_none_or(names) {
            return Err(Problem::malformed(
                "`agent` and `ownedBy` have 1 to 256 bytes",
            ));
        }
        let refused = |error| Problem::from(TransferError::Ask(error));
        let approval = self.kind == Kind::Approval;
        let (matter, audit) = match (self.questions, self.tool_name) {
            (None, Some(tool)) if approval => {
                let mut audit = json!({"toolName": tool});
                let optional = [("callId", &self.call_id), ("reason", &self.reason)];
                for (key, value) in optional {
                    if let (Some(audit), Some(value)) = (audit.as_object_mut(), value) {
                        audit.insert(key.to_owned(), json!(value));
                    }
                }
                let asking = Asking {
                    tool,
                    call: self.call_id,
                    reason: self.reason,
                    display_reason: self.display_reason,
                };
                let matter = Matter::approval(&asking, locale).map_err(refused)?;
                (matter, Some(audit))
            }
            (Some(questions), None) if !approval => {
                let questions = questions.into_iter().map(Question::from).collect();
                (Matter::questions(questions).map_err(refused)?, None)
            }
            _ => {
                return Err(Problem::malformed(
                    "an approval has `toolName`, a question has `questions`",
                ));
            }
        };
        Ok(Asked {
            agent: self.agent,
            delegated: self.owned_by.is_some(),
            matter,
            audit,
            life: self.life_seconds.map(Duration::from_secs),
        })
    }
}

/// Something that was put to people.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AskedBody {
    /// Its name.
    request_id: String,
    /// Where the answer is waited for.
    href: String,
}

/// Puts an approval or a form to the people of a session. Answers once the first audit row of an
/// approval is durable; when the host goes away before that, nothing is put.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/interactions", tag = "interactions",
    security(("bearer" = [])),
    params(
        ("session" = String, Path, description = "The session's handle"),
        ("Idempotency-Key" = Option<String>, Header,
            description = "1 to 255 visible ASCII characters; a repeat is answered as the first was"),
    ),
    request_body = AskForm,
    responses((status = 201, description = "Asked", body = AskedBody)),
)]
pub(super) async fn ask(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Retry(key): Retry,
    Answered(form, asked): Answered<AskForm>,
) -> Result<Response, Problem> {
    let form = form.map_err(Problem::malformed)?;
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.ask_in_session(&who, session))
        .await?;
    let replayed = replay(&app, &caller, "ask", &session.to_string(), key, asked)?;
    let running = match replayed {
        Replayed::Do(running) => running,
        Replayed::Done(response) => return Ok(response),
    };
    let asked = form.parse(&app.live.locale())?;
    let abort = Cancel::new();
    // Fires when the host goes away and this future is dropped.
    let gone = abort.fire_on_drop();
    let id = app.live.ask(grant, asked, abort).await?;
    drop(gone);
    let body = AskedBody {
        request_id: id.to_string(),
        href: format!("/v1/sessions/{session}/interactions/{id}"),
    };
    Ok(kept(running, StatusCode::CREATED, &body))
}

/// How long an answer is waited for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// The most seconds to wait for an end: 0 to 60, none when absent.
    #[param(maximum = 60)]
    wait_seconds: Option<u64>,
}

/// What became of an interaction.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToldBody {
    /// Its name.
    request_id: String,
    /// `pending` or `settled`.
    state: &'static str,
    /// `allowed-once`, `rejected`, `cancelled`, `unavailable` or `answered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    /// What ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    /// What a person said with a rejection; untrusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// The answers of a form; free text grants nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<ReplyForm>,
}

/// Waits for the end of an interaction, for the host that asked. An approval's second audit row is
/// durable by then.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/interactions/{interaction}", tag = "interactions",
    security(("bearer" = [])),
    params(
        ("session" = String, Path, description = "The session's handle"),
        ("interaction" = String, Path, description = "The interaction's id"),
        WaitQuery,
    ),
    responses((status = 200, description = "Its end, or that it waits still", body = ToldBody)),
)]
pub(super) async fn told(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<WaitQuery>,
    InSession(session): InSession,
    Interaction(id): Interaction,
) -> Result<axum::Json<ToldBody>, Problem> {
    let wait = query.wait_seconds.unwrap_or_default();
    if wait > LONGEST_WAIT {
        return Err(Problem::malformed("`waitSeconds` is 0 to 60"));
    }
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.ask_in_session(&who, session))
        .await?;
    let wait = Duration::from_secs(wait);
    let told = app.live.told(grant.session(), id, wait).await;
    let mut body = ToldBody {
        request_id: id.to_string(),
        state: "pending",
        outcome: None,
        cause: None,
        note: None,
        answers: Vec::new(),
    };
    match told.map_err(TransferError::Decide)? {
        Told::Pending => {}
        Told::Unaudited => return Err(TransferError::Unaudited.into()),
        Told::Settled(settled) => {
            body.state = "settled";
            body.outcome = Some(settled.outcome.as_str());
            body.cause = Some(settled.cause.as_str());
            body.note = settled.note;
            body.answers = settled.replies.into_iter().map(ReplyForm::from).collect();
        }
    }
    Ok(axum::Json(body))
}

/// Takes an interaction back, for the host that asked.
#[utoipa::path(
    delete, path = "/v1/sessions/{session}/interactions/{interaction}", tag = "interactions",
    security(("bearer" = [])),
    params(
        ("session" = String, Path, description = "The session's handle"),
        ("interaction" = String, Path, description = "The interaction's id"),
    ),
    responses((status = 204, description = "Taken back")),
)]
pub(super) async fn abort(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Interaction(id): Interaction,
) -> Result<StatusCode, Problem> {
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.ask_in_session(&who, session))
        .await?;
    let aborted = app.live.abort(grant.session(), id);
    aborted.map_err(TransferError::Decide)?;
    Ok(StatusCode::NO_CONTENT)
}

/// An answer: the identity fields of the interaction as they were shown, and one of `decision`,
/// `answers` and `cancel`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DecisionForm {
    bridge_generation: u64,
    host_id: String,
    #[schema(value_type = String)]
    session: SessionHandle,
    #[schema(value_type = String)]
    request_id: InteractionHandle,
    approval_id: Option<String>,
    turn: Option<u64>,
    turn_start_seq: Option<u64>,
    /// One of the approval's `choices`.
    decision: Option<String>,
    /// At most 500 bytes for the host, with a rejection.
    note: Option<String>,
    /// One answer for each question, in their order.
    answers: Option<Vec<ReplyForm>>,
    /// Hands the form back as a whole.
    cancel: Option<bool>,
}

/// The answer to one question.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplyForm {
    /// The question.
    id: String,
    /// The labels selected; none skips it.
    selected: Vec<String>,
    /// Free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<String>,
}

impl From<Reply> for ReplyForm {
    fn from(reply: Reply) -> Self {
        Self {
            id: reply.id,
            selected: reply.selected,
            custom: reply.custom,
        }
    }
}

impl From<ReplyForm> for Reply {
    fn from(form: ReplyForm) -> Self {
        Self {
            id: form.id,
            selected: form.selected,
            custom: form.custom,
        }
    }
}

/// What an answer did. It was taken while live; that says nothing of the audit, nor of what the host
/// does then.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecidedBody {
    accepted: bool,
    /// `allowed-once`, `rejected`, `answered` or `cancelled`.
    outcome: &'static str,
    /// Never known at this moment.
    audit_persisted: bool,
}

/// Answers an interaction, if it is still live and the answer is for exactly it.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/interactions/{interaction}/decision",
    tag = "interactions", security(("bearer" = [])),
    params(
        ("session" = String, Path, description = "The session's handle"),
        ("interaction" = String, Path, description = "The interaction's id"),
        ("Idempotency-Key" = Option<String>, Header,
            description = "1 to 255 visible ASCII characters; a repeat is answered as the first was"),
    ),
    request_body = DecisionForm,
    responses((status = 200, description = "Taken", body = DecidedBody)),
)]
pub(super) async fn decide(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Interaction(id): Interaction,
    Retry(key): Retry,
    Answered(form, asked): Answered<DecisionForm>,
) -> Result<Response, Problem> {
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.decide_in_session(&who, session))
        .await?;
    let form = form.map_err(not_an_answer)?;
    let turn = match (form.turn, form.turn_start_seq) {
        (None, None) => None,
        (Some(number), Some(start)) => Some(TurnMark {
            number,
            start: Seq::new(start),
        }),
        _ => {
            return Err(not_an_answer("`turn` and `turnStartSeq` go together"));
        }
    };
    let answer = match (form.decision, form.answers, form.cancel) {
        (Some(choice), None, None) => Answer::Choice(choice, form.note),
        (None, Some(replies), None) if form.note.is_none() => {
            Answer::Replies(replies.into_iter().map(Reply::from).collect())
        }
        (None, None, Some(true)) if form.note.is_none() => Answer::Cancel,
        _ => {
            return Err(not_an_answer("one of `decision`, `answers` and `cancel`"));
        }
    };
    let place = format!("{session}/{id}");
    let running = match replay(&app, &caller, "decide", &place, key, asked)? {
        Replayed::Do(running) => running,
        Replayed::Done(response) => return Ok(response),
    };
    let outcome = app.live.decide(&Decision {
        session: grant.session(),
        id,
        who: caller.who.id,
        generation: form.bridge_generation,
        host: form.host_id,
        named_session: form.session,
        named_id: form.request_id,
        audit: form.approval_id,
        turn,
        answer,
    });
    let body = DecidedBody {
        accepted: true,
        outcome: outcome.map_err(TransferError::Decide)?.as_str(),
        audit_persisted: false,
    };
    Ok(kept(running, StatusCode::OK, &body))
}

fn not_an_answer(reason: impl AsRef<str>) -> Problem {
    let reason = reason.as_ref();
    if reason.starts_with("unknown field") && !reason.starts_with("unknown field `error`") {
        return unknown_member(reason);
    }
    with_reason(Code::MalformedDecision, reason)
}

/// A closed form with a member it does not have.
pub(super) fn unknown_member(reason: &str) -> Problem {
    with_reason(Code::UnknownMember, reason)
}

fn with_reason(code: Code, reason: &str) -> Problem {
    Problem::new(code).with_facts(Facts {
        reason: Some(reason.chars().take(240).collect()),
        ..Facts::default()
    })
}

/// What a host tells of its session outside the log: one of the members.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SignalForm {
    /// Whether the agent runs.
    running: Option<bool>,
    /// A failure that has no place in a turn; at most 2,048 bytes are shown.
    agent_error: Option<String>,
    /// The session is over: what waits in it is taken back.
    removed: Option<bool>,
}

/// Tells the readers of a session what has no place in its log.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/signals", tag = "interactions", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle")),
    request_body = SignalForm,
    responses((status = 204, description = "Told to those who listen now")),
)]
pub(super) async fn signal(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Json(form): Json<SignalForm>,
) -> Result<StatusCode, Problem> {
    let who = caller.who.clone();
    let grant = app
        .granted(move |access| access.append_to_session(&who, session))
        .await?;
    let signal = match (form.running, form.agent_error, form.removed) {
        (Some(running), None, None) => Signal::Running(running),
        (None, Some(text), None) => Signal::AgentError(crate::approval::shown(&text)),
        (None, None, Some(true)) => Signal::Removed,
        _ => {
            return Err(Problem::malformed(
                "one of `running`, `agentError` and `removed`",
            ));
        }
    };
    app.live.signal(grant.session(), signal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A JSON body as a closed form, with the digest of its bytes. What does not fit is left to the
/// handler, which has a word of its own for it.
#[derive(Debug)]
pub(super) struct Answered<T>(pub(super) Result<T, String>, pub(super) Digest);

impl<T: DeserializeOwned> FromRequest<App> for Answered<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bytes: Bytes = json_body(request, app).await?;
        let form = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        Ok(Self(form, Digest::of(&bytes)))
    }
}

/// Whether a request is to be done.
pub(super) enum Replayed {
    /// It is; its answer goes with this.
    Do(Option<Running>),
    /// It was: this was the answer.
    Done(Response),
}

/// Looks a request up by the caller, the route and the key.
pub(super) fn replay(
    app: &App,
    caller: &Caller,
    route: &str,
    place: &str,
    key: Option<RetryKey>,
    asked: Digest,
) -> Result<Replayed, Problem> {
    let Some(key) = key else {
        return Ok(Replayed::Do(None));
    };
    let scope = format!("{} {route} {place}", caller.who.id);
    match app.live.replay(scope, key.as_str(), asked) {
        Replay::New(running) => Ok(Replayed::Do(Some(running))),
        Replay::Same(status, body) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            let kind = HeaderValue::from_static("application/json");
            let response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
            Ok(Replayed::Done(response))
        }
        Replay::Other => Err(Problem::new(Code::IdempotencyKeyReused)),
        Replay::InHand => Err(Problem::new(Code::IdempotencyKeyInUse)),
    }
}

/// The answer, kept for the request's repeats where there can be any.
pub(super) fn kept(
    running: Option<Running>,
    status: StatusCode,
    body: &impl Serialize,
) -> Response {
    let text = serde_json::to_string(body).unwrap_or_default();
    if let Some(running) = running {
        running.finish(status.as_u16(), &text);
    }
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}
