use serde_json::json;

use crate::support::{Server, server::id};

#[test]
fn n06_the_name_asked_for_is_the_name_suggested() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "first.txt", b"same bytes");
    server.attach(&session, "second.txt", b"same bytes");
    for (query, name) in [
        ("", "first.txt"),
        ("?name=first.txt", "first.txt"),
        ("?name=second.txt", "second.txt"),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = server.ask(
                method,
                &format!("{target}{query}"),
                Some(&server.alice.token),
            );
            let disposition = answer.field("content-disposition").unwrap().to_owned();
            assert_eq!(
                disposition,
                format!("attachment; filename=\"{name}\""),
                "{method} {query}"
            );
        }
    }
    let unknown = server.get(&format!("{target}?name=third.txt"), &server.alice);
    assert_eq!(
        (unknown.status, unknown.code()),
        (404, "not-found".to_owned())
    );
}

/// What is no content is not kept at all (C01).
#[test]
fn c01_lists_are_not_kept() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    server.attach(&session, "a", b"abc");
    for target in [
        format!("{session}/snapshot"),
        format!("{session}/events"),
        "/v1/sessions".into(),
    ] {
        let answer = server.get(&target, &server.alice);
        assert_eq!(answer.field("cache-control"), Some("no-store"));
    }
}

/// Active content is not shown in our origin, whoever says what it is (X01, X03). Keeps I13.
#[test]
fn x01_x03_a_page_or_drawing_with_script_stays_a_download() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let page = b"<!doctype html><script>alert(1)</script>";
    let drawing = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>";
    for (name, bytes, kind) in [
        ("x.html", &page[..], "text/html"),
        ("x.png", page, "image/png"),
        ("x.svg", drawing, "image/svg+xml"),
    ] {
        let target = format!("{session}/attachments?name={name}");
        let token = Some(server.host.token.as_str());
        let answer = server.ask_with("POST", &target, token, &[("Content-Type", kind)], bytes);
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(server.refer(&session, name, bytes).status, 201);
        let target = format!("{session}/attachments/{}?name={name}", id(bytes));
        let accept = [("Accept", "text/html,image/svg+xml")];
        let token = Some(server.alice.token.as_str());
        let answer = server.ask_with("GET", &target, token, &accept, b"");
        assert_eq!(answer.body, bytes);
        assert_eq!(
            answer.field("content-type"),
            Some("application/octet-stream"),
            "{name}"
        );
        assert!(
            answer
                .field("content-disposition")
                .unwrap()
                .starts_with("attachment;")
        );
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
        let policy = answer.field("content-security-policy").unwrap();
        assert!(
            policy.contains("sandbox") && policy.contains("default-src 'none'"),
            "{policy}"
        );
    }
    // An image reference has a declared type; it is one of four that cannot run anything.
    let attachment = |kind: &str| {
        json!({"attachmentId": id(page), "name": "x.png", "mediaType": kind,
            "bytes": page.len(), "width": 1, "height": 1})
    };
    let event = |kind: &str| {
        json!({"events": [{"type": "user/message", "data": {"id": "m", "role": "user",
            "source": {"kind": "user"}, "content": [{"type": "image", "attachment": attachment(kind)}]}}]})
    };
    let events = format!("{session}/events");
    let answer = server.post(&events, &server.host, &event("image/svg+xml"));
    assert_eq!(answer.status, 422, "{}", answer.text());
}
