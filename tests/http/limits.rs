//! Sizes and counts.

use std::time::Duration;

use holdfast::{
    http::semantics::MAX_TARGET,
    model::{ByteCount, Limits},
};

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
        let answer = client.answer().unwrap();
        assert_eq!(answer.status, status, "{} bytes", head.len());
        if status == 431 {
            // Said by the service, not by the HTTP library.
            assert_eq!(answer.text(), "Head(TooLarge)");
            assert!(answer.closes() && client.ended());
        }
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

#[test]
fn an_address_with_too_many_connections_is_told_to_come_back() {
    let limits = Limits {
        connections_per_address: 2,
        ..short()
    };
    let server = Server::start(limits);
    let mut holding: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut holding {
        client.get("/think?500");
    }
    assert!(until(Duration::from_secs(1), || server.busy() == 2));
    let refused = server.connect().answer().unwrap();
    assert_eq!((refused.status, refused.text()), (503, "Crowded"));
    assert!(refused.closes());
    assert_eq!(server.traffic.refused(), 1);
    for client in &mut holding {
        assert_eq!(client.answer().unwrap().text(), "thought");
    }
    drop(holding);
    assert!(server.settles(Duration::from_secs(3)));
    assert_eq!(server.connect().get("/").answer().unwrap().text(), "hello");
}

/// Keeps I11: progress alone is not enough where the operator asks for a rate.
#[test]
fn a_reader_below_the_least_rate_is_reset_and_one_above_it_is_not() {
    let limits = Limits {
        minimum_rate: ByteCount::kib(50),
        ..short()
    };
    let server = Server::start(limits);
    for (sip, served) in [(1_000, false), (12_000, true)] {
        let mut client = server.connect_narrow();
        client.get("/bytes?400000").head().unwrap();
        let mut left = 400_000;
        while left > 0 && server.traffic.live() == 1 {
            match client.sip(sip.min(left)) {
                Ok(taken) => left -= taken,
                Err(_) => break,
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(left == 0, served, "{sip} bytes at a time: {left} left");
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
