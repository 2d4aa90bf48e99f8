use crate::support::Server;

fn ask(server: &Server, target: &str, hosts: &[&str]) -> (u16, String) {
    let mut text = format!("GET {target} HTTP/1.1\r\n");
    for host in hosts {
        text.extend(["Host: ", host, "\r\n"]);
    }
    text.push_str("\r\n");
    let answer = server.connect().ask(text.as_bytes());
    let code = if answer.status == 200 {
        String::new()
    } else {
        answer.code()
    };
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    (answer.status, code)
}

/// The fence against rebinding stands before every route, open ones too.
#[test]
fn a_request_names_this_host_exactly_once() {
    let server = Server::start();
    let port = server.address.port();
    let here = format!("127.0.0.1:{port}");
    for (hosts, status, code) in [
        (&[here.as_str()][..], 200, ""),
        (&["localhost"], 200, ""),
        (&["[::1]:80"], 200, ""),
        (&[], 400, "malformed"),
        (&["localhost", "localhost"], 400, "malformed"),
        (&["localhost", "evil.example"], 400, "malformed"),
        (&["user@localhost"], 400, "malformed"),
        (&["localhost, evil.example"], 400, "malformed"),
        (&["localhost:port"], 400, "malformed"),
        (&["evil.example"], 421, "misdirected"),
        (&["localhost.evil.example"], 421, "misdirected"),
        (&["0.0.0.0"], 421, "misdirected"),
    ] {
        for target in ["/v1/host", "/v1/sessions", "/nothing"] {
            let answer = ask(&server, target, hosts);
            if status == 200 {
                assert_ne!(answer.0, 421, "{hosts:?} {target}");
            } else {
                assert_eq!(answer, (status, code.to_owned()), "{hosts:?} {target}");
            }
        }
    }
}

#[test]
fn a_target_that_is_no_path_is_refused() {
    let server = Server::start();
    for target in ["http://evil.example/v1/host", "*", "evil.example:80"] {
        let (status, _) = ask(&server, target, &["localhost"]);
        assert_eq!(status, 400, "{target}");
    }
    let long = format!("/v1/host?{}", "x".repeat(8 << 10));
    assert_eq!(ask(&server, &long, &["localhost"]).0, 414);
}

/// What a page of another site can make a browser send, with a token it would have to know: nothing of
/// it is done, and nothing that comes back may be read.
#[test]
fn ht_02_another_name_or_another_origin_does_nothing() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = format!("{session}/messages");
    let ask = |fields: &[(&str, &str)], token: Option<&str>| {
        let mut text = format!("POST {target} HTTP/1.1\r\nContent-Type: application/json\r\n");
        if let Some(token) = token {
            text.extend(["Authorization: Bearer ", token, "\r\n"]);
        }
        for (name, value) in fields {
            text.extend([*name, ": ", value, "\r\n"]);
        }
        let body = r#"{"text":"hello"}"#;
        text.push_str("Idempotency-Key: k\r\n");
        text.extend([
            "Content-Length: ",
            &body.len().to_string(),
            "\r\n\r\n",
            body,
        ]);
        server.connect().ask(text.as_bytes())
    };
    let token = Some(server.alice.token.as_str());
    let port = server.address.port();
    let here = format!("http://127.0.0.1:{port}");
    let name = format!("127.0.0.1:{port}");
    for (fields, token, status, code) in [
        (&[("Host", "evil.example")][..], token, 421, "misdirected"),
        (&[], token, 400, "malformed"),
        (
            &[("Host", &name), ("Origin", "https://evil.example")],
            token,
            403,
            "foreign-origin",
        ),
        (
            &[("Host", &name), ("Origin", "null")],
            token,
            403,
            "foreign-origin",
        ),
        (
            &[("Host", &name), ("Origin", "http://127.0.0.1:1")],
            token,
            403,
            "foreign-origin",
        ),
        (
            &[("Host", &name), ("Origin", &here), ("Origin", &here)],
            token,
            403,
            "foreign-origin",
        ),
        (
            &[("Host", &name), ("Sec-Fetch-Site", "cross-site")],
            token,
            403,
            "foreign-origin",
        ),
        // There is nothing a browser adds by itself: without the token nobody is asking.
        (
            &[("Host", &name), ("Origin", &here)],
            None,
            401,
            "unauthenticated",
        ),
    ] {
        let answer = ask(fields, token);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{fields:?}"
        );
        assert_eq!(
            answer.field("access-control-allow-origin"),
            None,
            "{fields:?}"
        );
    }
    let log = server
        .get(&format!("{session}/events"), &server.alice)
        .json();
    assert_eq!(log["events"], serde_json::json!([]), "nothing was done");
    for origin in [&here, "http://localhost"] {
        let host = origin.trim_start_matches("http://");
        let own = [
            ("Host", host),
            ("Origin", origin),
            ("Sec-Fetch-Site", "same-origin"),
        ];
        assert_eq!(ask(&own, token).status, 201, "{origin}");
    }
}
