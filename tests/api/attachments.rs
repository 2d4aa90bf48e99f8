use serde_json::json;

use crate::support::{
    Client, Server,
    server::{content, id, request},
};

/// The first thing that works end to end.
#[test]
fn what_was_uploaded_and_referenced_is_downloaded() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    for size in [
        0,
        1,
        4096,
        (256 << 10) - 1,
        256 << 10,
        (256 << 10) + 1,
        3 << 20,
    ] {
        let bytes = content(size, 5);
        let target = server.attach(&session, &format!("f{size}"), &bytes);
        let answer = server.get(&target, &server.alice);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(
            answer.field("content-length"),
            Some(size.to_string().as_str())
        );
        assert!(answer.whole && answer.body == bytes, "{size}");
    }
}

#[test]
fn two_attachments_come_over_one_connection() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let (one, two) = (content(700_000, 1), content(500_000, 2));
    let targets = [
        server.attach(&session, "1", &one),
        server.attach(&session, "2", &two),
    ];
    let mut client = server.connect();
    for (target, bytes) in targets.iter().zip([&one, &two]).cycle().take(6) {
        let octets = request("GET", target, Some(&server.alice.token), &[], None);
        assert_eq!(client.ask(&octets).body, *bytes);
    }
}

/// Every download answers HEAD with the fields of GET (N06). Keeps I10.
#[test]
fn n06_head_has_the_fields_of_get_and_no_body() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let bytes = content(300_000, 3);
    let target = server.attach(&session, "résumé.pdf", &bytes);
    let fields = |method: &str, range: &[(&str, &str)]| {
        let token = Some(server.alice.token.as_str());
        let mut client = server.connect();
        let answer = client.ask(&request(method, &target, token, range, None));
        let mut fields = answer.fields.clone();
        fields.retain(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
        if method == "HEAD" {
            client.end_output();
            assert_eq!(client.read_to_end(), b"", "HEAD has no body");
        }
        (answer.status, fields)
    };
    let get = fields("GET", &[]);
    assert_eq!(fields("HEAD", &[]), get);
    assert_eq!(
        fields("HEAD", &[("Range", "bytes=0-9")]),
        get,
        "HEAD ignores Range"
    );
    let disposition = get.1.iter().find(|(name, _)| name == "content-disposition");
    let (_, disposition) = disposition.unwrap();
    assert!(disposition.starts_with("attachment; "), "{disposition}");
    assert!(
        disposition.contains("filename*=UTF-8''r%C3%A9sum%C3%A9.pdf"),
        "{disposition}"
    );
}

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

/// Protected content is never public in a cache (C01).
#[test]
fn c01_content_is_private_and_everything_else_is_not_kept() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "a", b"abc");
    let tag = format!("\"{}\"", id(b"abc").trim_start_matches("sha256:"));
    let token = Some(server.alice.token.as_str());
    for (fields, status) in [
        (&[][..], 200),
        (&[("Range", "bytes=1-1")], 206),
        (&[("If-None-Match", tag.as_str())], 304),
    ] {
        let answer = server.ask_with("GET", &target, token, fields, b"");
        assert_eq!(answer.status, status);
        let keep = "private, max-age=31536000, immutable, no-transform";
        assert_eq!(answer.field("cache-control"), Some(keep));
        assert_eq!(answer.field("vary"), Some("Authorization"));
        assert_eq!(answer.field("etag"), Some(tag.as_str()));
    }
    for target in [
        format!("{session}/snapshot"),
        format!("{session}/events"),
        "/v1/sessions".into(),
    ] {
        assert_eq!(
            server.get(&target, &server.alice).field("cache-control"),
            Some("no-store")
        );
    }
    for (fields, status) in [
        (&[("Range", "bytes=9-")][..], 416),
        (&[("If-Match", "\"other\"")], 412),
    ] {
        let answer = server.ask_with("GET", &target, token, fields, b"");
        assert_eq!(answer.status, status);
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

#[test]
fn ranges_conditions_and_digests_reach_the_wire() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let bytes = content(600_000, 9);
    let target = server.attach(&session, "a.bin", &bytes);
    let token = Some(server.alice.token.as_str());
    let ask = |fields: &[(&str, &str)]| server.ask_with("GET", &target, token, fields, b"");

    let part = ask(&[("Range", "bytes=262000-300000")]);
    assert_eq!(part.status, 206);
    assert_eq!(
        part.field("content-range"),
        Some("bytes 262000-300000/600000")
    );
    assert!(part.body == bytes[262_000..=300_000]);
    let last = ask(&[("Range", "bytes=-5")]);
    assert!(last.body == bytes[599_995..]);
    let parts = ask(&[("Range", "bytes=0-9,590000-590009")]);
    assert_eq!(parts.status, 206);
    assert!(
        parts
            .field("content-type")
            .unwrap()
            .starts_with("multipart/byteranges; boundary=")
    );
    let text = &parts.body;
    for slice in [&bytes[..10], &bytes[590_000..590_010]] {
        assert!(text.windows(10).any(|ten| ten == slice));
    }

    let none = ask(&[("Range", "bytes=600000-")]);
    assert_eq!((none.status, none.code()), (416, "range".to_owned()));
    assert_eq!(none.field("content-range"), Some("bytes */600000"));
    assert!(
        none.body.len() < 1024,
        "small, because old clients append it to the file"
    );

    let whole = ask(&[]);
    let tag = whole.field("etag").unwrap().to_owned();
    assert_eq!(whole.field("accept-ranges"), Some("bytes"));
    assert!(whole.field("repr-digest").unwrap().starts_with("sha-256=:"));
    assert_eq!(ask(&[("If-None-Match", &tag)]).status, 304);
    assert_eq!(ask(&[("If-Match", "\"x\"")]).code(), "precondition");
    let resumed = ask(&[("Range", "bytes=10-19"), ("If-Range", &tag)]);
    assert_eq!((resumed.status, resumed.body.len()), (206, 10));
    let stale = ask(&[("Range", "bytes=10-19"), ("If-Range", "\"x\"")]);
    assert_eq!((stale.status, stale.body.len()), (200, 600_000));
}

#[test]
fn only_get_head_and_options_are_answered() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "a", b"abc");
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
        let answer = server.ask(method, &target, Some(&server.alice.token));
        assert_eq!(
            (answer.status, answer.code()),
            (405, "method-not-allowed".to_owned())
        );
        assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
    }
    let mut client: Client = server.connect();
    let answer = client.ask(&request("OPTIONS", &target, None, &[], None));
    assert_eq!(answer.status, 204);
    assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
}

#[test]
fn many_at_once_get_the_same_bytes() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let bytes = content(2 << 20, 4);
    let target = server.attach(&session, "a", &bytes);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let answer = server.get(&target, &server.alice);
                assert!(answer.whole && answer.body == bytes);
            });
        }
    });
}
