//! The one table of routes, and the router made from it.
//!
//! Promises: what is not in the table does not exist; the table says for each row what its refusals
//! must be, and the coverage test asks for a case of each.

use std::fmt::Write as _;

use axum::{
    Router,
    body::Body,
    extract::State,
    handler::Handler,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, get},
};
use http::{HeaderValue, Request, StatusCode, header};
use tower::ServiceExt as _;

use super::{
    App, attachments, audited, deliverables, dress, events, handoff, host, interactions, login,
    messages, openapi, page, permissions, probe,
    problem::{Code, Problem},
    receipts, releases, server, sessions, snapshot, streams, tickets, uploads,
};
use crate::gate::Standing;

/// Who may use a route, which decides what its refusals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Anybody: no object of anyone is named.
    Open,
    /// Anybody signed in: no object of anyone is named.
    SignedIn,
    /// Those entitled to the session the path names.
    Session,
    /// Those entitled to the session, to an attachment it refers to.
    Attachment,
    /// The one who opened the stream the path names.
    Stream,
    /// Those entitled to the session, to a file it declares.
    Deliverable,
    /// Those entitled to the session a receipt is of.
    Receipt,
    /// The one who made the ticket whose public id the path names.
    Ticket,
    /// Anybody who holds the ticket whose secret the path ends in.
    Holder,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The path, with `{parameters}`.
    pub path: &'static str,
    /// The methods beside OPTIONS.
    pub methods: &'static [&'static str],
    /// Who may use it.
    pub scope: Scope,
}

struct Row {
    route: Route,
    service: MethodRouter<App>,
}

/// A path's handlers, gathered method by method.
fn row(path: &'static str, scope: Scope) -> Row {
    Row {
        route: Route {
            path,
            methods: &[],
            scope,
        },
        service: MethodRouter::new(),
    }
}

impl Row {
    fn get<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        // HEAD is GET without the body, unless the row says otherwise.
        self.on(MethodFilter::GET, handler, &["GET", "HEAD"])
    }

    fn post<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.on(MethodFilter::POST, handler, &["POST"])
    }

    fn put<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.on(MethodFilter::PUT, handler, &["PUT"])
    }

    fn delete<T: 'static>(self, handler: impl Handler<T, App>) -> Self {
        self.on(MethodFilter::DELETE, handler, &["DELETE"])
    }

    fn on<T: 'static>(
        mut self,
        filter: MethodFilter,
        handler: impl Handler<T, App>,
        methods: &'static [&'static str],
    ) -> Self {
        self.service = self.service.on(filter, handler);
        self.route.methods = match (self.route.methods, methods) {
            ([], methods) => methods,
            (["POST"], ["GET", "HEAD"]) | (["GET", "HEAD"], ["POST"]) => &["GET", "HEAD", "POST"],
            (["GET", "HEAD"], ["DELETE"]) => &["GET", "HEAD", "DELETE"],
            (["GET", "HEAD"], ["PUT"]) => &["GET", "HEAD", "PUT"],
            (first, _) => first,
        };
        self
    }

    fn mount(self, router: Router<App>, app: &App) -> Router<App> {
        let mut allow = self.route.methods.join(", ");
        allow.push_str(", OPTIONS");
        let allow = HeaderValue::try_from(allow).unwrap_or(HeaderValue::from_static("OPTIONS"));
        let options = {
            let allow = allow.clone();
            move || async move { (StatusCode::NO_CONTENT, [(header::ALLOW, allow)]).into_response() }
        };
        let other = move || async move {
            Problem::new(Code::MethodNotAllowed).with_field(header::ALLOW, allow)
        };
        let service = self
            .service
            .on(MethodFilter::OPTIONS, options)
            .fallback(other);
        let service = if self.route.scope == Scope::Open {
            // No object of anyone is named.
            service
        } else {
            service.layer(from_fn_with_state(app.clone(), audited::refusals))
        };
        router.route(self.route.path, service)
    }
}

/// The table.
fn rows() -> Vec<Row> {
    let mut rows = vec![
        row("/openapi.json", Scope::Open).get(openapi::serve),
        row("/v1/host", Scope::Open).get(host::describe),
        row("/v1/login", Scope::Open).post(login::redeem),
        row("/v1/probe", Scope::SignedIn).get(probe::read),
        row("/v1/sessions", Scope::SignedIn)
            .get(sessions::list)
            .post(sessions::create),
        row("/v1/sessions/{session}", Scope::Session).delete(sessions::remove),
        row("/v1/sessions/{session}/snapshot", Scope::Session).get(snapshot::read),
        row("/v1/sessions/{session}/events", Scope::Session)
            .get(events::page)
            .post(events::append),
        row("/v1/sessions/{session}/messages", Scope::Session).post(messages::submit),
        row("/v1/sessions/{session}/permission", Scope::Session)
            .get(permissions::read)
            .put(permissions::choose),
        row("/v1/sessions/{session}/interactions", Scope::Session)
            .get(interactions::list)
            .post(interactions::ask),
        row(
            "/v1/sessions/{session}/interactions/{interaction}",
            Scope::Session,
        )
        .get(interactions::told)
        .delete(interactions::abort),
        row(
            "/v1/sessions/{session}/interactions/{interaction}/decision",
            Scope::Session,
        )
        .post(interactions::decide),
        row("/v1/sessions/{session}/handoff", Scope::Session).get(handoff::list),
        row("/v1/sessions/{session}/handoff/offers", Scope::Session).post(handoff::offer),
        row(
            "/v1/sessions/{session}/handoff/offers/{offer}/validate",
            Scope::Session,
        )
        .post(handoff::validate),
        row(
            "/v1/sessions/{session}/handoff/offers/{offer}/execute",
            Scope::Session,
        )
        .post(handoff::execute),
        row(
            "/v1/sessions/{session}/handoff/offers/{offer}/cancel",
            Scope::Session,
        )
        .post(handoff::cancel),
        row("/v1/sessions/{session}/signals", Scope::Session).post(interactions::signal),
        row("/v1/events", Scope::SignedIn).get(streams::open),
        row("/v1/streams/{stream}/ack", Scope::Stream).post(streams::acknowledge),
        row("/v1/sessions/{session}/attachments", Scope::Session).post(uploads::receive),
        row(
            "/v1/sessions/{session}/attachments/{attachment}",
            Scope::Attachment,
        )
        .get(attachments::download),
        row("/v1/sessions/{session}/deliverables", Scope::Session).post(deliverables::present),
        row(
            "/v1/sessions/{session}/deliverables/{generation}/{seq}/{index}/release",
            Scope::Deliverable,
        )
        .post(deliverables::release),
        row(
            "/v1/sessions/{session}/deliverables/{generation}/{seq}/{index}/explain",
            Scope::Deliverable,
        )
        .get(deliverables::explain),
        row("/v1/sessions/{session}/archive", Scope::Session).post(deliverables::archive),
        row("/v1/sessions/{session}/releases", Scope::Session).get(releases::list),
        row(
            "/v1/sessions/{session}/releases/{interaction}/decision",
            Scope::Session,
        )
        .post(releases::settle),
        row("/v1/receipts/{receipt}", Scope::Receipt).get(receipts::read),
        row("/v1/receipts/{receipt}/content", Scope::Receipt).get(receipts::download),
        row("/v1/tickets", Scope::SignedIn)
            .get(tickets::list)
            .post(tickets::create),
        row("/v1/tickets/{ticket}", Scope::Ticket).delete(tickets::revoke),
        row("/d/{ticket}", Scope::Holder).get(tickets::download),
    ];
    rows.extend(
        page::ASSETS
            .into_iter()
            .map(|asset| row(asset.path, Scope::Open).get(move || async move { asset.serve() })),
    );
    rows
}

/// The routes of the public listener, in the order of the table.
pub fn routes() -> impl Iterator<Item = Route> {
    rows().into_iter().map(|row| row.route)
}

/// The service of the public listener.
#[derive(Clone, Debug)]
pub struct Public {
    app: App,
    router: Router,
}

impl Public {
    /// The table's routes over `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        let router = rows()
            .into_iter()
            .fold(Router::new(), |router, row| row.mount(router, &app))
            .fallback(nowhere)
            .layer(from_fn_with_state(app.clone(), dress::dress))
            .with_state(app.clone());
        Self { app, router }
    }

    /// The routes by themselves, to stand behind others.
    pub(super) fn router(&self) -> Router {
        self.router.clone()
    }
}

impl server::Handler for Public {
    async fn answer(&self, request: Request<Body>) -> Response {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn refuse(&self, refusal: server::Refusal) -> Response {
        dress::refusal(&self.app, refusal)
    }
}

async fn nowhere() -> Problem {
    Problem::new(Code::NotFound)
}

/// The service of the admin listener: whether the process lives, whether it can serve, what it did.
#[derive(Clone, Debug)]
pub struct Admin {
    app: App,
    router: Router,
}

impl Admin {
    /// The admin pages over `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        let router = Router::new()
            .route("/healthz", get(async || "alive\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .fallback(nowhere)
            .layer(from_fn_with_state(app.clone(), dress::dress))
            .with_state(app.clone());
        Self { app, router }
    }
}

impl server::Handler for Admin {
    async fn answer(&self, request: Request<Body>) -> Response {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn refuse(&self, refusal: server::Refusal) -> Response {
        dress::refusal(&self.app, refusal)
    }
}

async fn ready(State(app): State<App>) -> Response {
    let (control, store) = (app.parts.control.clone(), app.parts.store.clone());
    let audit = app.parts.audit.clone();
    let asking = move || {
        audit.ready().map_err(|_closed| "audit")?;
        control.standing().map_err(|_closed| "journal")?;
        store.standing().map_err(|_degraded| "store")
    };
    match app.parts.pools.control.run(asking).await {
        Ok(Ok(())) => (StatusCode::OK, format!("ready\n{}", standing(&app).await)).into_response(),
        Ok(Err(part)) => not_ready(part),
        Err(_busy) => not_ready("pool"),
    }
}

/// How the gate stands for each root, and whether the root's path still leads to it. A closed gate is
/// the normal state, so it keeps nobody from being ready.
async fn standing(app: &App) -> String {
    let mut text = String::new();
    for held in app.parts.roots.held() {
        let name = held.name();
        // Writing to a String cannot fail.
        match app.parts.gate.standing(name) {
            Standing::Open { .. } => writeln!(text, "gate {name}: open"),
            Standing::Closed(closed) => writeln!(text, "gate {name}: closed, {}", closed.code()),
        }
        .ok();
        match app.parts.roots.is_at_its_name(name).await {
            Some(true) => {}
            Some(false) => {
                let says = "its path leads elsewhere; the directory held is still served";
                writeln!(text, "root {name}: {says}").ok();
            }
            None => {
                writeln!(text, "root {name}: does not answer").ok();
            }
        }
    }
    text
}

fn not_ready(part: &str) -> Response {
    let text = format!("not ready: {part}\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics(State(app): State<App>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], app.counters.render()).into_response()
}
