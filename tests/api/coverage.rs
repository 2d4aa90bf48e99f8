//! Every route has its refusals, and every promise a test or a plain "not yet".

use std::{fs, path::Path};

use holdfast::http::router::{Route, Scope, routes};
use serde_json::json;

use crate::support::{
    Answer, Server,
    server::{Person, id, message},
};

/// A route and method that names somebody's session, and what a good request to it carries.
struct Case {
    method: &'static str,
    path: &'static str,
    query: &'static str,
    body: fn() -> String,
}

fn nothing() -> String {
    String::new()
}

fn event() -> String {
    json!({"events": [{"type": "turn/start", "data": {}}]}).to_string()
}

fn action() -> String {
    json!({"actionDigest": "0".repeat(64)}).to_string()
}

const CONTENT: &[u8] = b"the content of alice's file";

/// One row per guarded route and method. A route without its row fails the test below.
const CASES: &[Case] = &[
    Case {
        method: "GET",
        path: "/v1/sessions",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions",
        query: "",
        body: || json!({"owners": []}).to_string(),
    },
    Case {
        method: "DELETE",
        path: "/v1/sessions/{session}",
        query: "",
        body: nothing,
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/snapshot",
        query: "",
        body: nothing,
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/events",
        query: "?limit=1",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/events",
        query: "",
        body: event,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/attachments",
        query: "?name=a.txt",
        body: || "upload".to_owned(),
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/attachments/{attachment}",
        query: "",
        body: nothing,
    },
    Case {
        method: "GET",
        path: "/v1/probe",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/messages",
        query: "",
        body: || json!({"text": "hello"}).to_string(),
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/permission",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/deliverables",
        query: "",
        body: || json!({"turn": 1, "callId": "c", "files": [{"path": "a"}]}).to_string(),
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/deliverables/{generation}/{seq}/{index}/release",
        query: "",
        body: nothing,
    },
    Case {
        method: "PUT",
        path: "/v1/sessions/{session}/permission",
        query: "",
        body: || json!({"value": "read-only"}).to_string(),
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/deliverables/{generation}/{seq}/{index}/explain",
        query: "",
        body: nothing,
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/releases",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/archive",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/releases/{interaction}/decision",
        query: "",
        body: || {
            json!({"attachmentId": id(CONTENT), "bytes": 1, "decision": "rejected"}).to_string()
        },
    },
    Case {
        method: "GET",
        path: "/v1/receipts/{receipt}",
        query: "",
        body: nothing,
    },
    Case {
        method: "GET",
        path: "/v1/receipts/{receipt}/content",
        query: "",
        body: nothing,
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/interactions",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/interactions",
        query: "",
        body: || json!({"kind": "approval", "agent": "a", "toolName": "shell"}).to_string(),
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/interactions/{interaction}",
        query: "",
        body: nothing,
    },
    Case {
        method: "DELETE",
        path: "/v1/sessions/{session}/interactions/{interaction}",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/interactions/{interaction}/decision",
        query: "",
        body: || {
            json!({
                "bridgeGeneration": 1, "hostId": "h", "decision": "rejected",
                "session": "s_00000000000000000000000000000000",
                "requestId": "i_00000000000000000000000000000000",
            })
            .to_string()
        },
    },
    Case {
        method: "GET",
        path: "/v1/sessions/{session}/handoff",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/handoff/offers",
        query: "",
        body: || json!({"agent": "a", "intent": {}}).to_string(),
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/handoff/offers/{offer}/validate",
        query: "",
        body: action,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/handoff/offers/{offer}/execute",
        query: "",
        body: action,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/handoff/offers/{offer}/cancel",
        query: "",
        body: action,
    },
    Case {
        method: "POST",
        path: "/v1/sessions/{session}/signals",
        query: "",
        body: || json!({"running": true}).to_string(),
    },
    Case {
        method: "GET",
        path: "/v1/events",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/streams/{stream}/ack",
        query: "",
        body: || json!({"lastEventId": "1.1"}).to_string(),
    },
    Case {
        method: "GET",
        path: "/v1/tickets",
        query: "",
        body: nothing,
    },
    Case {
        method: "POST",
        path: "/v1/tickets",
        query: "",
        body: || {
            let session = "s_00000000000000000000000000000000";
            json!({"session": session, "attachmentId": id(CONTENT)}).to_string()
        },
    },
    Case {
        method: "DELETE",
        path: "/v1/tickets/{ticket}",
        query: "",
        body: nothing,
    },
];

/// Addresses that are a right by themselves; `tickets.rs` compares what they answer.
const HELD: &[&str] = &["/d/{ticket}"];

/// A problem has two forms, and in neither may one be told from the other: what asks for each.
const FORMS: [(&str, &str); 2] = [
    ("Accept", "application/json"),
    ("Sec-Fetch-Mode", "navigate"),
];

impl Case {
    fn ask(
        &self,
        server: &Server,
        method: &str,
        who: Option<&Person>,
        names: &Names<'_>,
        form: (&str, &str),
    ) -> Answer {
        let target = self
            .path
            .replace("{session}", names.session)
            .replace("{attachment}", &names.attachment)
            .replace("{ticket}", "t_00000000000000000000000000000000")
            .replace("{interaction}", "i_00000000000000000000000000000000")
            .replace("{offer}", "1")
            .replace("{stream}", "e_00000000000000000000000000000000")
            .replace("{receipt}", "r_00000000000000000000000000000000")
            .replace("{generation}/{seq}/{index}", "3/0/0")
            + self.query;
        let body = (self.body)();
        let json = [("Content-Type", "application/json"), form];
        let token = who.map(|person| person.token.as_str());
        server.ask_with(method, &target, token, &json, body.as_bytes())
    }

    /// HEAD beside GET: the same door; each in both forms.
    fn methods(&self) -> impl Iterator<Item = (&'static str, (&'static str, &'static str))> {
        let head = (self.method == "GET").then_some("HEAD");
        let methods = std::iter::once(self.method).chain(head);
        methods.flat_map(|method| FORMS.map(|form| (method, form)))
    }
}

struct Names<'a> {
    session: &'a str,
    attachment: String,
}

fn guarded() -> impl Iterator<Item = Route> {
    routes().filter(|route| !matches!(route.scope, Scope::Open | Scope::Holder))
}

/// Keeps I9: a route cannot be added without its refusals.
#[test]
fn every_guarded_route_and_method_has_its_case() {
    for route in guarded() {
        for method in route.methods.iter().filter(|method| **method != "HEAD") {
            let found = CASES
                .iter()
                .any(|case| case.path == route.path && case.method == *method);
            assert!(found, "{method} {} has no case in CASES", route.path);
        }
    }
    for route in routes().filter(|route| route.scope == Scope::Holder) {
        assert!(HELD.contains(&route.path), "{} is not compared", route.path);
    }
}

/// Keeps I9 and I10.
#[test]
fn nobody_gets_through_a_guarded_route_without_a_token() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let handle = session.strip_prefix("/v1/sessions/").unwrap();
    server.attach(&session, "a.txt", CONTENT);
    for case in CASES {
        for (method, form) in case.methods() {
            let present = Names {
                session: handle,
                attachment: id(CONTENT),
            };
            let absent = Names {
                session: "s_00000000000000000000000000000000",
                attachment: id(b"never"),
            };
            server.calls.take();
            let [one, other] =
                [present, absent].map(|names| case.ask(&server, method, None, &names, form));
            assert_eq!(one.status, 401, "{method} {}", case.path);
            assert_eq!(one.masked(), other.masked(), "{method} {}", case.path);
            assert_eq!(
                one.field("www-authenticate"),
                Some("Bearer realm=\"holdfast\"")
            );
            assert_eq!(server.calls.take(), [""; 0], "{method} {}", case.path);
        }
    }
}

/// Keeps I9: octets of the answer and calls behind it, for each route that names a session.
#[test]
fn a_foreign_session_looks_like_an_absent_one() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let foreign = session.strip_prefix("/v1/sessions/").unwrap();
    server.attach(&session, "a.txt", CONTENT);
    let never = "s_00000000000000000000000000000000";
    let scoped = |case: &&Case| case.path.contains("{session}");
    for case in CASES.iter().filter(scoped) {
        for (method, form) in case.methods() {
            for attachment in [id(CONTENT), id(b"never")] {
                let ask = |session: &str| {
                    server.calls.take();
                    let names = Names {
                        session,
                        attachment: attachment.clone(),
                    };
                    let answer = case.ask(&server, method, Some(&server.bob), &names, form);
                    (answer, server.calls.take())
                };
                let (absent, absent_calls) = ask(never);
                let (hidden, hidden_calls) = ask(foreign);
                let (malformed, malformed_calls) = ask("not-a-handle");
                assert_eq!(absent.status, 404, "{method} {}", case.path);
                assert_eq!(hidden.masked(), absent.masked(), "{method} {}", case.path);
                assert_eq!(
                    malformed.masked(),
                    absent.masked(),
                    "{method} {}",
                    case.path
                );
                assert_eq!(hidden_calls, absent_calls, "{method} {}", case.path);
                assert_eq!(malformed_calls, absent_calls, "{method} {}", case.path);
            }
        }
    }
}

/// Keeps I9 and I1: within one's own session, what others stored is as absent as what nobody did.
#[test]
fn a_foreign_attachment_looks_like_an_absent_one() {
    let server = Server::start();
    let alices = server.session(&[&server.alice]);
    server.attach(&alices, "a.txt", CONTENT);
    let bobs = server.session(&[&server.bob]);
    for (method, form) in ["GET", "HEAD"]
        .into_iter()
        .flat_map(|method| FORMS.map(|form| (method, form)))
    {
        let ask = |content: &[u8], query: &str| {
            server.calls.take();
            let target = format!("{bobs}/attachments/{}{query}", id(content));
            let token = Some(server.bob.token.as_str());
            let answer = server.ask_with(method, &target, token, &[form], b"");
            (answer.status, answer.masked(), server.calls.take())
        };
        for query in ["", "?name=a.txt"] {
            let (status, absent, calls) = ask(b"never", query);
            assert_eq!(status, 404);
            assert_eq!(
                ask(CONTENT, query),
                (status, absent, calls),
                "{method} {query}"
            );
        }
    }
}

/// The field by which the owner-only socket takes a name on trust means nothing here.
///
/// Keeps I10.
#[test]
fn a_name_is_not_taken_on_trust_from_the_network() {
    let server = Server::start();
    for name in ["alice", "host"] {
        let fields = [("holdfast-as", name)];
        let answer = server.ask_with("GET", "/v1/sessions", None, &fields, b"");
        assert_eq!(answer.status, 401, "{name}");
        let target = "/local/v1/principals";
        assert_eq!(
            server.ask_with("GET", target, None, &fields, b"").status,
            404
        );
        assert_eq!(server.get(target, &server.host).status, 404);
    }
}

/// A conditional or ranged request learns nothing more than a plain one.
///
/// Keeps I9.
#[test]
fn conditions_are_no_way_to_ask_what_may_not_be_seen() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "a.txt", CONTENT);
    let absent = format!("{session}/attachments/{}", id(b"never"));
    let tag = format!("\"{}\"", id(CONTENT).trim_start_matches("sha256:"));
    for field in [
        ("If-None-Match", tag.as_str()),
        ("If-None-Match", "*"),
        ("If-Match", "\"other\""),
        ("Range", "bytes=99999-"),
        ("Range", "bytes=0-0"),
    ] {
        let ask = |target: &str| {
            let token = Some(server.bob.token.as_str());
            server.ask_with("GET", target, token, &[field], b"")
        };
        assert_eq!(ask(&target).status, 404, "{field:?}");
        assert_eq!(ask(&target).masked(), ask(&absent).masked(), "{field:?}");
    }
}

/// Keeps I15: to an owner, who may see the session, a refusal is a refusal.
#[test]
fn an_owner_is_told_that_it_may_not_append() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let body = json!({"events": [message("a.txt", CONTENT)]});
    let answer = server.post(&format!("{session}/events"), &server.alice, &body);
    assert_eq!(
        (answer.status, answer.code()),
        (403, "forbidden".to_owned())
    );
    let answer = server.post("/v1/sessions", &server.alice, &json!({}));
    assert_eq!(
        (answer.status, answer.code()),
        (403, "forbidden".to_owned())
    );
}

/// Every promise has a test that cites it, or SECURITY.md says plainly that it has none yet.
#[test]
fn every_promise_is_cited_by_a_test_or_owned_up_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cited = Vec::new();
    for dir in ["src", "tests", "fsprobe"] {
        citations(&root.join(dir), &mut cited);
    }
    let security = fs::read_to_string(root.join("SECURITY.md")).unwrap_or_default();
    for number in 1..=15 {
        let promise = format!("I{number}");
        let owned_up = security
            .lines()
            .any(|line| has_word(line, &promise) && line.contains("not yet"));
        assert!(
            owned_up || cited.iter().any(|line| has_word(line, &promise)),
            "{promise} is cited by no test, and SECURITY.md does not say \"not yet\""
        );
    }
}

/// Doc comments directly above tests.
fn citations(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            citations(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut comment = String::new();
            for line in text.lines().map(str::trim) {
                if let Some(words) = line.strip_prefix("///") {
                    comment.push_str(words);
                } else if line.starts_with("#[") && line.contains("test]") {
                    found.push(std::mem::take(&mut comment));
                } else if !line.starts_with("#[") {
                    comment.clear();
                }
            }
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| part == word)
}
