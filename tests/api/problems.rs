//! A refusal as a program reads it and as a person does.

use crate::support::{Answer, Server};

/// What Chromium sends when somebody follows a link.
const NAVIGATION: &[(&str, &str)] = &[
    (
        "Accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8",
    ),
    ("Sec-Fetch-Dest", "document"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-Site", "same-origin"),
];

/// What a page's own `fetch` sends, whatever it says it accepts.
const FETCH: &[(&str, &str)] = &[
    ("Accept", "text/html"),
    ("Sec-Fetch-Dest", "empty"),
    ("Sec-Fetch-Mode", "cors"),
];

/// A method, a target, a token, a field, and the status of the answer.
type Row = (&'static str, String, Option<String>, (String, String), u16);

/// One request per status that a person can meet.
fn refusals(server: &Server) -> Vec<Row> {
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "a", b"abc");
    let alice = Some(server.alice.token.clone());
    let no = || ("X".to_owned(), "y".to_owned());
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let ticket = format!("/d/hft_{}", "0".repeat(43));
    vec![
        (
            "GET",
            "/v1/sessions?x=1".to_owned(),
            alice.clone(),
            no(),
            400,
        ),
        ("GET", target.clone(), None, no(), 401),
        (
            "POST",
            "/v1/sessions".to_owned(),
            alice.clone(),
            field("Content-Type", "application/json"),
            403,
        ),
        ("GET", "/nowhere".to_owned(), None, no(), 404),
        ("GET", ticket, None, no(), 404),
        ("DELETE", target.clone(), alice.clone(), no(), 405),
        (
            "GET",
            target.clone(),
            alice.clone(),
            field("If-Match", "\"x\""),
            412,
        ),
        ("GET", target, alice, field("Range", "bytes=9-"), 416),
    ]
}

/// Keeps I9 and I13: the form is the only difference, and the page runs nothing.
#[test]
fn a_person_gets_a_page_and_a_program_json_with_the_same_fields() {
    let server = Server::start();
    for (method, target, token, field, status) in refusals(&server) {
        let ask = |form: &[(&str, &str)]| -> Answer {
            let mut fields = form.to_vec();
            fields.push((&field.0, &field.1));
            let body: &[u8] = if method == "POST" { b"{}" } else { b"" };
            server.ask_with(method, &target, token.as_deref(), &fields, body)
        };
        let (page, json, fetched) = (ask(NAVIGATION), ask(&[]), ask(FETCH));
        let what = format!("{method} {target}");
        assert_eq!((page.status, json.status), (status, status), "{what}");
        assert_eq!(
            page.field("content-type"),
            Some("text/html; charset=utf-8"),
            "{what}"
        );
        let text = page.text();
        assert!(text.starts_with("<!DOCTYPE html>"), "{text}");
        assert!(
            text.contains(&format!("<dt>code<dd>{}\n", json.code())),
            "{text}"
        );
        let id = page.field("x-request-id").unwrap();
        assert!(text.contains(&format!("<dt>requestId<dd>{id}\n")), "{text}");
        assert_eq!(fetched.code(), json.code(), "{what}: a script reads JSON");
        let others = |answer: &Answer| {
            let mut fields = answer.fields.clone();
            let form = ["content-type", "content-length", "date", "x-request-id"];
            fields.retain(|(name, _)| !form.contains(&name.as_str()));
            fields
        };
        assert_eq!(others(&page), others(&json), "{what}");
        assert_eq!(
            page.field("vary"),
            Some("Authorization, Accept, Sec-Fetch-Mode"),
            "{what}"
        );
        assert_eq!(page.field("cache-control"), Some("no-store"), "{what}");
        assert_eq!(
            page.field("content-security-policy"),
            Some("sandbox; default-src 'none'; frame-ancestors 'none'"),
            "{what}"
        );
        assert!(
            status != 416 || json.body.len() < 1024,
            "{what}: the rest of a file follows it"
        );
    }
}

#[test]
fn head_promises_the_page_that_get_would_give() {
    let server = Server::start();
    let [get, head] =
        ["GET", "HEAD"].map(|method| server.ask_with(method, "/nowhere", None, NAVIGATION, b""));
    assert!(head.body.is_empty());
    let but_id = |answer: &Answer| {
        let mut fields = answer.fields.clone();
        fields.retain(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
        fields
    };
    assert_eq!(but_id(&head), but_id(&get));
    assert_eq!(
        head.field("content-length"),
        Some(get.body.len().to_string().as_str())
    );
}

/// Keeps I13: what the request says comes back as text.
#[test]
fn a_page_quotes_the_request_and_escapes_it() {
    let server = Server::start();
    let target = "/v1/sessions/s_00000000000000000000000000000000/events?limit=%3Cscript%3Ealert(1)%3C/script%3E";
    let answer = server.ask_with("GET", target, Some(&server.alice.token), NAVIGATION, b"");
    assert!(!answer.text().contains("<script"), "{}", answer.text());
    let target = "/v1/sessions?%3Cscript%3E=1";
    let answer = server.ask_with("GET", target, Some(&server.alice.token), NAVIGATION, b"");
    assert_eq!(answer.status, 400);
    assert!(!answer.text().contains("<script"), "{}", answer.text());
}
