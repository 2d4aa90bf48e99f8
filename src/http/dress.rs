//! The outer layer: what every request meets first and every answer wears last.
//!
//! Promises: the fence stands before anything else is looked at; the security fields are on every
//! status, set here and nowhere else (I13); problem bodies are written here, with the request's id, as
//! JSON or as a page when a person navigates.

use std::time::Instant;

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tracing::Instrument;

use super::{
    App,
    page::OwnPage,
    problem::{self, Code, Facts, Problem},
    semantics::{AuthorityError, HeadError, Host, ProblemForm, problem_form},
    server::Refusal,
};
use crate::{access::random_bits, model::RequestId};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The fields every answer carries, whatever its status.
const SECURITY: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "sandbox; default-src 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
];

/// What the form of a problem, and whether there is one, depends on: the same for every problem, so
/// that nothing can be told from it (I9).
const VARY: HeaderValue = HeaderValue::from_static("Authorization, Accept, Sec-Fetch-Mode");

/// Passes one request through the fence and dresses its answer.
pub(super) async fn dress(State(app): State<App>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = request_id();
    let method = request.method().clone();
    let form = problem_form(request.headers());
    let span = tracing::info_span!("request", id = %id);
    let mut response = async {
        let host = request.extensions().get::<Host>();
        let admitted = app.hosts.admit(host).and_then(|()| {
            app.hosts
                .admit_origin(host, request.method(), request.headers())
        });
        match admitted {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        }
    }
    .instrument(span.clone())
    .await;
    response = dressed(&app, response, id, form);
    // The target stays out of the log: it may hold names of files.
    tracing::info!(
        parent: &span,
        %method,
        status = response.status().as_u16(),
        micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
        "answered"
    );
    response
}

/// Renders what the accept loop refused before there was a request to route.
pub(super) fn refusal(app: &App, refusal: Refusal) -> Response {
    let problem = match refusal {
        Refusal::Authority(AuthorityError::TargetTooLong)
        | Refusal::Head(HeadError::TargetTooLong) => Problem::new(Code::TargetTooLong),
        Refusal::Authority(
            error @ (AuthorityError::Target
            | AuthorityError::HostCount
            | AuthorityError::HostSyntax),
        ) => Problem::malformed(error.to_string()),
        Refusal::Framing => {
            Problem::malformed("the body's length is stated twice, or in a coding that is not read")
        }
        Refusal::Head(HeadError::TooLarge) => governed(
            Code::HeadTooLarge,
            "limits.request_head, limits.request_fields",
        ),
        Refusal::Head(error @ (HeadError::Syntax | HeadError::Length | HeadError::Coding)) => {
            Problem::malformed(error.to_string())
        }
        Refusal::SlowHead => governed(Code::Timeout, "limits.head_deadline"),
        Refusal::Crowded => governed(Code::Busy, "limits.connections_per_address"),
        Refusal::NotTls => {
            Problem::malformed("this address speaks TLS: ask it by an https:// address")
        }
    };
    dressed(
        app,
        problem.into_response(),
        request_id(),
        ProblemForm::Json,
    )
}

/// A refusal that a setting governs; whoever meets it may not even be known.
fn governed(code: Code, setting: &'static str) -> Problem {
    Problem::new(code).with_facts(Facts {
        setting: Some(setting),
        ..Facts::default()
    })
}

fn request_id() -> RequestId {
    // Without random bits an id that repeats: it names no object and opens nothing.
    RequestId::from_random(random_bits().unwrap_or_default())
}

/// The answer with its problem body written, if it is a problem, and the fields all answers carry.
fn dressed(app: &App, mut response: Response, id: RequestId, form: ProblemForm) -> Response {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = with_body(response, &problem, id, form);
    }
    secure(response.headers_mut());
    if let Some(own) = response.extensions_mut().remove::<OwnPage>() {
        response
            .headers_mut()
            .insert(header::CONTENT_SECURITY_POLICY, own.policy());
    }
    response
        .headers_mut()
        .insert(REQUEST_ID, value(&id.to_string()));
    app.counters.answered(response.status());
    response
}

fn with_body(response: Response, problem: &Problem, id: RequestId, form: ProblemForm) -> Response {
    let (mut head, _empty) = response.into_parts();
    let body = problem.body(id);
    let (media_type, body) = match form {
        ProblemForm::Json => (
            "application/problem+json",
            serde_json::to_vec(&body).unwrap_or_default(),
        ),
        ProblemForm::Page => (
            "text/html; charset=utf-8",
            problem::page(&body).into_bytes(),
        ),
    };
    for (name, value) in [
        (header::CONTENT_LENGTH, HeaderValue::from(body.len())),
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::VARY, VARY),
    ] {
        head.headers.insert(name, value);
    }
    Response::from_parts(head, Body::from(body))
}

fn secure(fields: &mut HeaderMap) {
    for (name, text) in SECURITY {
        fields.insert(name, HeaderValue::from_static(text));
    }
    // An answer that may be kept says so itself; nothing else is kept anywhere.
    fields
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("-"))
}
