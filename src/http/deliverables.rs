use std::time::Duration;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    App,
    extract::{Caller, Declaration, InSession, NoQuery, Query, Retry},
    interactions::Answered,
    problem::Problem,
    receipts::ReceiptBody,
};
use crate::{
    journal::{Once, RetryKey},
    model::Digest,
    receipt::Released,
    transfer::{
        archive,
        deliverable::{self, Explained},
        live::Waiting,
        present::{self, File, Presentation},
        release::{self, LONGEST_WAIT, Terms},
    },
};

/// How long to go on trying.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// For how many seconds to try again while the file changes: none when absent, 60 at most.
    #[param(maximum = 60)]
    wait: Option<u64>,
}

/// Marks a request and its repeats. The same key on another route is another key.
fn once(
    caller: &Caller,
    route: &str,
    key: Option<RetryKey>,
    asked: Digest,
) -> Result<Option<Once>, Problem> {
    let once = |key: RetryKey| {
        let scoped = Digest::of(format!("{route} {}", key.as_str()).as_bytes());
        Ok(Once {
            who: caller.who.id,
            key: RetryKey::parse(scoped.to_string().as_bytes())
                .map_err(|_ours| Problem::malformed("the key of a release"))?,
            asked,
        })
    };
    key.map(once).transpose()
}

impl WaitQuery {
    fn terms(
        &self,
        caller: &Caller,
        route: &str,
        key: Option<RetryKey>,
        asked: Digest,
    ) -> Result<Terms, Problem> {
        let wait = Duration::from_secs(self.wait.unwrap_or(0));
        if wait > LONGEST_WAIT {
            return Err(Problem::malformed("`wait` is 0 to 60 seconds"));
        }
        let once = once(caller, route, key, asked)?;
        Ok(Terms { wait, once })
    }
}

/// How far an explanation goes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LookQuery {
    /// Whether the file is looked at as a release of it begins, where no rule refuses before: its type,
    /// links, mount, owner and length. It is not opened for reading.
    #[serde(default)]
    look: bool,
}

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
    /// What it is about: `path`, `root`, `gate`, `name`, `permission` or, where it was looked at, `file`.
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
        ("index" = u32, Path, description = "Its position in the event"), WaitQuery,
        ("Idempotency-Key" = Option<String>, Header,
            description = "Marks the request and its repeats, for a day")),
    responses(
        (status = 201, description = "Released", body = ReceiptBody),
        (status = 202, description = "Somebody has to decide", body = Waiting)),
)]
pub(super) async fn release(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<WaitQuery>,
    Declaration(at): Declaration,
    Retry(key): Retry,
) -> Result<Response, Problem> {
    let located = deliverable::locate(&app.parts, &caller.who, at).await?;
    let asked = Digest::of(format!("{at:?}").as_bytes());
    let terms = query.terms(&caller, "release", key, asked)?;
    let released = release::release(app.live(), &app.parts, &caller.who, located, terms).await?;
    Ok(answer(&app, &released))
}

/// 201 with the receipt, or 202 with the question.
fn answer(app: &App, released: &Released) -> Response {
    match released {
        Released::Now(receipt) => {
            (StatusCode::CREATED, axum::Json(ReceiptBody::from(receipt))).into_response()
        }
        Released::Asked(ask) => {
            (StatusCode::ACCEPTED, axum::Json(app.live().waiting(ask))).into_response()
        }
    }
}

/// Makes one archive of everything in a session: the attachments its log refers to and the files it
/// declares, each as it would be had alone. Releases exactly these bytes, or asks somebody about them where
/// one of the files would be asked about.
///
/// What cannot be in it is listed in its manifest: declared files as long as the gate is closed, unopened,
/// and attachments that are lost or damaged.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/archive", tag = "deliverables",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("Idempotency-Key" = Option<String>, Header,
            description = "Marks the request and its repeats, for a day")),
    responses(
        (status = 201, description = "Released", body = ReceiptBody),
        (status = 202, description = "Somebody has to decide", body = Waiting)),
)]
pub(super) async fn archive(
    State(app): State<App>,
    caller: Caller,
    _: NoQuery,
    InSession(session): InSession,
    Retry(key): Retry,
) -> Result<Response, Problem> {
    let asked = Digest::of(session.to_string().as_bytes());
    let once = once(&caller, "archive", key, asked)?;
    let released = archive::archive(app.live(), &app.parts, &caller.who, session, once).await?;
    Ok(answer(&app, &released))
}

/// Files a host presents.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PresentForm {
    /// The turn they were made in.
    turn: u64,
    /// The tool call that made them.
    call_id: String,
    /// The files: 1 to 16.
    files: Vec<PresentedFile>,
    /// Whether they are captured now: then the answer has a receipt, or the question somebody has to
    /// decide, for each.
    #[serde(default)]
    capture: bool,
}

/// One file a host presents.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PresentedFile {
    /// Its path in the session's directory.
    path: String,
    /// What the agent says of it, at most 4096 bytes; shown as its words.
    description: Option<String>,
}

/// Files that stand in the log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PresentedBody {
    /// The session.
    session: String,
    /// The numbering of `seq`.
    log_generation: u32,
    /// The event that declares them.
    seq: u64,
    /// The files, in their order.
    files: Vec<PresentedRow>,
}

/// What became of a presented file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PresentedRow {
    /// Its position in the event.
    index: u32,
    /// `presented`: it is declared and was not read. `released`: it can be downloaded by the receipt.
    /// `awaiting-decision`: somebody has to decide about exactly the bytes that were captured.
    outcome: &'static str,
    /// The receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
    /// The question.
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<Waiting>,
}

/// Declares files in the session's log; with `capture` each is copied at this moment, and the answer
/// has its receipt or the question about it. All of it or nothing.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/deliverables", tag = "deliverables",
    security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"), WaitQuery,
        ("Idempotency-Key" = Option<String>, Header,
            description = "Marks the request and its repeats, for a day")),
    request_body = PresentForm,
    responses((status = 201, description = "Declared, and captured where asked", body = PresentedBody)),
)]
pub(super) async fn present(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<WaitQuery>,
    InSession(session): InSession,
    Retry(key): Retry,
    Answered(form, asked): Answered<PresentForm>,
) -> Result<Response, Problem> {
    let who = caller.who.clone();
    app.granted(move |access| access.append_to_session(&who, session))
        .await?;
    let form = form.map_err(|error| Problem::malformed(format!("body: {error}")))?;
    let asked = Digest::of(format!("{session} {asked}").as_bytes());
    let terms = query.terms(&caller, "present", key, asked)?;
    let count = u32::try_from(form.files.len()).unwrap_or(u32::MAX);
    let presentation = Presentation {
        turn: form.turn,
        call_id: form.call_id,
        capture: form.capture,
        files: form
            .files
            .into_iter()
            .map(|file| File {
                path: file.path,
                description: file.description,
            })
            .collect(),
    };
    let presented = present::present(
        &app.live,
        &app.parts,
        &caller.who,
        session,
        presentation,
        terms,
    )
    .await?;
    let mut captured = presented.captured.into_iter();
    let files = (0..count)
        .map(|index| match captured.next() {
            None => PresentedRow {
                index,
                outcome: "presented",
                receipt: None,
                release: None,
            },
            Some(Released::Now(receipt)) => PresentedRow {
                index,
                outcome: "released",
                receipt: Some(ReceiptBody::from(&receipt)),
                release: None,
            },
            Some(Released::Asked(ask)) => PresentedRow {
                index,
                outcome: "awaiting-decision",
                receipt: None,
                release: Some(app.live().waiting(&ask)),
            },
        })
        .collect();
    let body = PresentedBody {
        session: session.to_string(),
        log_generation: presented.log_generation.get(),
        seq: presented.seq.get(),
        files,
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// Says which rule governs a declared file, which setting is behind it and what to do. Opens nothing.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/deliverables/{generation}/{seq}/{index}/explain",
    tag = "deliverables", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"),
        ("generation" = u32, Path, description = "The numbering of `seq`"),
        ("seq" = u64, Path, description = "The event that declares the file"),
        ("index" = u32, Path, description = "Its position in the event"), LookQuery),
    responses((status = 200, description = "The rules", body = ExplainBody)),
)]
pub(super) async fn explain(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<LookQuery>,
    Declaration(at): Declaration,
) -> Result<axum::Json<ExplainBody>, Problem> {
    let explained = deliverable::explain(&app.parts, &caller.who, at, query.look).await?;
    Ok(axum::Json(explained.into()))
}
