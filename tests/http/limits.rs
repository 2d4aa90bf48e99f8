//! Sizes and counts.

use std::time::Duration;

use holdfast::{http::semantics::MAX_TARGET, model::Limits};

use crate::support::{Server, short, until};

#[test]
fn an_oversized_head_is_refused_and_an_ample_one_is_not() {
    let limits = Limits::default();
    let room = usize::try_from(limits.request_head.get()).unwrap();
    for (head, status) in [
        (format!("Host: a\r\nX: {}\r\n", "a".repeat(room - 200)), 200),
        (format!("Host: a\r\nX: {}\r\n", "a".repeat(room)), 431),
        (format!("Host: a\r\nX: {}\r\n", "a".repeat(10 * room)), 431),
        (
            format!(
                "Host: a\r\n{}",
                "X: a\r\n".repeat(limits.request_fields - 1)
            ),
            200,
        ),
        (
            format!("Host: a\r\n{}", "X: a\r\n".repeat(limits.request_fields)),
            431,
        ),
    ] {
        let server = Server::start(limits.clone());
        let mut client = server.connect();
        let sent = std::io::Write::write_all(
            &mut client.stream,
            format!("GET / HTTP/1.1\r\n{head}\r\n").as_bytes(),
        );
        assert!(sent.is_ok() || status == 431);
        assert_eq!(
            client.answer().unwrap().status,
            status,
            "{} bytes",
            head.len()
        );
    }
}

#[test]
fn a_target_is_bounded_before_it_reaches_the_service() {
    let server = Server::start(short());
    let longest = format!("/{}", "a".repeat(MAX_TARGET - 1));
    assert_eq!(server.connect().get(&longest).answer().unwrap().status, 404);
    let refused = server
        .connect()
        .get(&format!("{longest}a"))
        .answer()
        .unwrap();
    assert!(refused.text().contains("TargetTooLong") && refused.closes());
    assert_eq!(server.served(), 1);
}

/// Keeps I11: beyond the cap connections wait in the kernel, and are served when there is room.
#[test]
fn no_more_connections_are_held_than_allowed() {
    let limits = Limits {
        connections: 4,
        ..short()
    };
    let server = Server::start(limits);
    let mut holding: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut holding {
        client.get("/think?1000");
    }
    let mut waiting: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.get("/");
    }
    assert!(until(Duration::from_secs(1), || server.busy() == 4));
    assert_eq!((server.traffic.live(), server.traffic.accepted()), (4, 4));
    for client in &mut holding {
        assert_eq!(client.answer().unwrap().text(), "thought");
    }
    drop(holding);
    for client in &mut waiting {
        assert_eq!(client.answer().unwrap().text(), "hello");
    }
}

/// Keeps I11: a pipeline of requests is worked off one at a time, and stops when nobody reads.
#[test]
fn a_pipeline_nobody_reads_the_answers_of_makes_no_work() {
    let server = Server::start(short());
    let mut client = server.connect_narrow();
    let request = "GET /bytes?100000 HTTP/1.1\r\nHost: a\r\n\r\n";
    client.say(request.repeat(500));
    assert!(until(Duration::from_secs(2), || server.served() > 0));
    assert!(server.settles(Duration::from_secs(3)));
    assert!(server.served() < 100, "{}", server.served());
}
