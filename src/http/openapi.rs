//! The description of the interface, made from the code that serves it.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, Ref, RefOr, Response as Described,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use super::{
    attachments, deliverables, events, handoff, host, interactions, login, messages, permissions,
    probe, problem::ProblemBody, receipts, releases, sessions, snapshot, streams, tickets, uploads,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast",
        description = "Hands out immutable attachments of sessions, verified before the first byte, \
                       and lists what sessions declare.",
    ),
    paths(
        host::describe,
        probe::read,
        login::redeem,
        sessions::list,
        sessions::create,
        sessions::remove,
        snapshot::read,
        events::page,
        events::append,
        messages::submit,
        permissions::read,
        permissions::choose,
        interactions::list,
        interactions::ask,
        interactions::told,
        interactions::abort,
        interactions::decide,
        interactions::signal,
        handoff::list,
        handoff::offer,
        handoff::validate,
        handoff::execute,
        handoff::cancel,
        streams::open,
        streams::acknowledge,
        uploads::receive,
        attachments::download,
        deliverables::present,
        deliverables::release,
        deliverables::archive,
        deliverables::explain,
        releases::list,
        releases::settle,
        receipts::read,
        receipts::download,
        tickets::list,
        tickets::create,
        tickets::revoke,
        tickets::download,
    ),
    components(schemas(ProblemBody)),
    modifiers(&Common),
)]
struct Api;

/// What all operations share: how a caller signs in, and what a refusal looks like.
struct Common;

impl Modify for Common {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let components = api.components.get_or_insert_default();
        components.add_security_scheme(
            "bearer",
            SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)),
        );
        for (name, path) in &mut api.paths.paths {
            let operations = [
                ("get", &mut path.get),
                ("head", &mut path.head),
                ("post", &mut path.post),
                ("put", &mut path.put),
                ("delete", &mut path.delete),
            ];
            for (method, operation) in operations {
                let Some(operation) = operation else {
                    continue;
                };
                operation.operation_id = Some(operation_id(method, name));
                operation
                    .responses
                    .responses
                    .entry("default".to_owned())
                    .or_insert_with(refusal);
            }
        }
    }
}

/// Method and path as one word, which no two operations share.
fn operation_id(method: &str, path: &str) -> String {
    let parts = path.split(['/', '{', '}', '.', '-']);
    parts
        .filter(|part| !part.is_empty())
        .fold(method.to_owned(), |mut id, part| {
            let mut letters = part.chars();
            id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            id.push_str(letters.as_str());
            id
        })
}

fn refusal() -> RefOr<Described> {
    let body = Content::new(Some(RefOr::Ref(Ref::from_schema_name("ProblemBody"))));
    let mut described = Described::new("A refusal: an RFC 9457 problem with a stable code");
    described
        .content
        .insert("application/problem+json".to_owned(), RefOr::T(body));
    described.into()
}

/// The description as pretty JSON with a newline at the end: what is served and kept as
/// `openapi.json`.
///
/// # Panics
/// Never: the description is made of strings, numbers and maps of them.
#[must_use]
pub fn document() -> String {
    let mut text = Api::openapi()
        .to_pretty_json()
        .expect("a description of strings and maps is always JSON");
    text.push('\n');
    text
}

/// Serves the description.
pub(super) async fn serve() -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], document()).into_response()
}
