use serde_json::json;

use crate::support::{Answer, Server, server::request};

/// Keeps I13: on every status the fields that keep an answer from running anything or being read by
/// another site.
#[test]
fn every_status_carries_the_security_fields() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "a", b"abc");
    let tag = format!("\"{}\"", target.rsplit(':').next().unwrap());
    let alice = Some(server.alice.token.as_str());
    let host = Some(server.host.token.as_str());
    let json = ("Content-Type", "application/json");
    let events = format!("{session}/events");
    let upload = format!("{session}/attachments?name=b");
    let ask = |method: &str, target: &str, token, fields: &[(&str, &str)], body: &[u8]| {
        server.ask_with(method, target, token, fields, body)
    };
    let answers: Vec<(u16, Answer)> = vec![
        (200, ask("GET", &target, alice, &[], b"")),
        (200, ask("HEAD", &target, alice, &[], b"")),
        (200, ask("GET", "/v1/host", None, &[], b"")),
        (200, ask("GET", "/openapi.json", None, &[], b"")),
        (201, ask("POST", &upload, host, &[], b"b")),
        (
            204,
            server
                .connect()
                .ask(&request("OPTIONS", &target, None, &[], None)),
        ),
        (
            206,
            ask("GET", &target, alice, &[("Range", "bytes=0-0")], b""),
        ),
        (
            304,
            ask("GET", &target, alice, &[("If-None-Match", &tag)], b""),
        ),
        (400, ask("GET", "/v1/sessions?x=1", alice, &[], b"")),
        (401, ask("GET", "/v1/sessions", None, &[], b"")),
        (403, ask("POST", "/v1/sessions", alice, &[json], b"{}")),
        (404, ask("GET", "/v1/nothing", alice, &[], b"")),
        (404, ask("HEAD", "/v1/nothing", alice, &[], b"")),
        (405, ask("DELETE", &target, alice, &[], b"")),
        (
            409,
            ask("GET", &format!("{events}?logGeneration=1"), alice, &[], b""),
        ),
        (
            412,
            ask("GET", &target, alice, &[("If-Match", "\"x\"")], b""),
        ),
        (
            413,
            ask(
                "POST",
                "/v1/sessions",
                host,
                &[json],
                &vec![b' '; (4 << 20) + 1],
            ),
        ),
        (415, ask("POST", "/v1/sessions", host, &[], b"{}")),
        (
            416,
            ask("GET", &target, alice, &[("Range", "bytes=9-")], b""),
        ),
        (
            422,
            ask(
                "POST",
                &upload.replace(
                    "name=b",
                    &format!("name=b&digest={}", target.rsplit('/').next().unwrap()),
                ),
                host,
                &[],
                b"b",
            ),
        ),
        (422, server.refer(&session, "z", b"never")),
        (500, {
            std::fs::remove_file(server.object(b"abc")).unwrap();
            std::fs::create_dir(server.object(b"abc")).unwrap();
            ask("GET", &target, alice, &[], b"")
        }),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{}", answer.text());
        wears_them(&answer);
    }
}

/// Asserts that an answer has the fields that every answer has, and none that no answer has.
pub(crate) fn wears_them(answer: &Answer) {
    let status = answer.status;
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        (
            "content-security-policy",
            "sandbox; default-src 'none'; frame-ancestors 'none'",
        ),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(answer.field(name), Some(value), "{status}");
    }
    let cache = answer.field("cache-control").unwrap();
    assert!(
        cache.contains("no-store") || cache.starts_with("private,"),
        "{status}: {cache}"
    );
    let id = answer.field("x-request-id").unwrap();
    assert!(id.starts_with("q_") && id.len() == 34, "{id}");
    for other in ["server", "set-cookie", "access-control-allow-origin"] {
        assert_eq!(answer.field(other), None, "{status}");
    }
}

/// Keeps I14 and I15: a problem has a fixed text and the request's id, and no path of this machine.
#[test]
fn a_problem_says_what_to_do_and_names_no_path() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "a", b"abc");
    let object = server.object(b"abc");
    std::fs::remove_file(&object).unwrap();
    std::fs::create_dir(&object).unwrap();
    let answer = server.get(&target, &server.alice);
    let body = answer.json();
    let id = answer.field("x-request-id").unwrap();
    assert_eq!(
        body,
        json!({
            "type": "urn:holdfast:problem:integrity",
            "title": "the stored content is damaged",
            "status": 500,
            "detail": "The bytes in the store are not the ones this address names, so none are sent. \
                       Tell the operator the request id; uploading the same bytes again heals it.",
            "code": "integrity",
            "instance": id,
            "requestId": id,
            "retryable": false,
        })
    );
    assert!(!answer.text().contains("/data/") && !answer.text().contains("objects"));
}
