//! What is answered before there is a request to route: in the same words and fields as everything
//! else, and then the connection ends.

use std::time::Duration;

use holdfast::model::Limits;

use crate::{
    fields::wears_them,
    support::{Answer, Options, Server},
};

fn server(limits: Limits) -> Server {
    Server::with(&Options {
        limits: Limits {
            free_reserve: Options::default().limits.free_reserve,
            ..limits
        },
        ..Options::default()
    })
}

fn is_last_and_a_problem(answer: &Answer, status: u16, code: &str, setting: Option<&str>) {
    assert_eq!((answer.status, answer.code()), (status, code.to_owned()));
    assert_eq!(answer.field("connection"), Some("close"), "{code}");
    assert!(answer.whole && answer.field("date").is_some(), "{code}");
    assert_eq!(answer.json()["setting"].as_str(), setting, "{code}");
    wears_them(answer);
}

/// Keeps I13 and I15.
#[test]
fn a_head_that_cannot_be_read_is_answered_like_any_other_refusal() {
    let server = server(Limits::default());
    let long = "a".repeat(40_000);
    for (octets, status, code, setting) in [
        (
            "GET / HTTP/1.1\r\n folded: x\r\n\r\n".to_owned(),
            400,
            "malformed",
            None,
        ),
        ("\u{16}\u{3}\u{1}".to_owned(), 400, "malformed", None),
        ("GET / HTTP/2.0\r\n\r\n".to_owned(), 400, "malformed", None),
        (
            "POST /v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n".to_owned(),
            400,
            "malformed",
            None,
        ),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "malformed", None),
        (
            format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", &long[..9000]),
            414,
            "target-too-long",
            None,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"),
            431,
            "head-too-large",
            Some("limits.request_head, limits.request_fields"),
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
                "X: y\r\n".repeat(100)
            ),
            431,
            "head-too-large",
            Some("limits.request_head, limits.request_fields"),
        ),
    ] {
        let answer = server.connect().ask(octets.as_bytes());
        is_last_and_a_problem(&answer, status, code, setting);
    }
}

/// Keeps I11 and I15.
#[test]
fn a_head_that_does_not_come_is_answered_with_the_setting_that_says_so() {
    let server = server(Limits {
        head_deadline: Duration::from_millis(200),
        ..Limits::default()
    });
    let answer = server.connect().ask(b"GET / HTTP/1.1\r\nHost: loc");
    is_last_and_a_problem(&answer, 408, "timeout", Some("limits.head_deadline"));
}

/// Keeps I11 and I15.
#[test]
fn an_address_with_too_many_connections_is_told_when_to_come_back() {
    let server = server(Limits {
        connections_per_address: 1,
        ..Limits::default()
    });
    let mut first = server.connect();
    let octets = b"GET /v1/host HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(first.ask(octets).status, 200);
    let answer = server.connect().ask(octets);
    is_last_and_a_problem(&answer, 503, "busy", Some("limits.connections_per_address"));
    assert_eq!(answer.field("retry-after"), Some("1"));
    assert_eq!(
        first.ask(octets).status,
        200,
        "who was here first is served"
    );
}

/// Heads with one octet changed, left out or doubled: whatever is refused is refused in our words,
/// never in the HTTP library's, whose answers have no body.
#[test]
fn no_refusal_is_bare() {
    let server = server(Limits::default());
    let head = b"GET /v1/host HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nX: y\r\n\r\n";
    let odd = [
        0, b'\r', b'\n', b' ', b':', b'\t', b'/', b'%', b'"', b'{', 0x7f, 0xff, b'A', b'9',
    ];
    let mut seen = [0, 0];
    let mut state = 0x9e37_79b9_u32;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    for round in 0..1500 {
        let mut octets = head.to_vec();
        let at = random(head.len() - 4);
        match round % 3 {
            0 => octets[at] = odd[random(odd.len())],
            1 => octets.insert(at, odd[random(odd.len())]),
            _ => drop(octets.remove(at)),
        }
        // So that no change leaves the head without an end.
        octets.extend_from_slice(b"\r\n\r\n");
        let answer = server.connect().ask(&octets);
        let what = String::from_utf8_lossy(&octets).into_owned();
        if answer.status >= 400 {
            seen[1] += 1;
            assert!(answer.json()["code"].is_string(), "{what:?} {answer:?}");
            wears_them(&answer);
        } else {
            seen[0] += 1;
        }
    }
    eprintln!("1500 heads: {} taken, {} refused", seen[0], seen[1]);
    assert!(seen[0] > 50 && seen[1] > 50, "{seen:?}");
}
