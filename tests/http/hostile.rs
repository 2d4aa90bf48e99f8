//! Peers that are slow, silent, stopped, or speak in two voices.

use std::{
    io::ErrorKind,
    thread,
    time::{Duration, Instant},
};

use crate::support::{Server, short, until};

/// Keeps I11.
#[test]
fn a_silent_connection_is_closed_without_a_word_at_the_head_deadline() {
    let server = Server::start(short());
    let start = Instant::now();
    let mut client = server.connect();
    assert!(matches!(client.rest(), (0, Ok(()))));
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(server.settles(Duration::from_secs(1)));
}

/// Keeps I11.
#[test]
fn a_head_that_drips_is_cut_at_the_deadline_whatever_it_drips() {
    let server = Server::start(short());
    let mut client = server.connect();
    client.say("GET / HTTP/1.1\r\nHost: a\r\nX: ");
    let start = Instant::now();
    let mut dripping = client.stream.try_clone().unwrap();
    let dripper = thread::spawn(move || {
        while std::io::Write::write_all(&mut dripping, b"x").is_ok() {
            thread::sleep(Duration::from_millis(30));
        }
    });
    let answer = client.answer().unwrap();
    assert_eq!((answer.status, answer.text()), (408, "SlowHead"));
    assert!(answer.closes());
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    // The peer has a moment to read the answer, however much it goes on saying.
    assert!(server.settles(Duration::from_secs(5)));
    assert_eq!(server.served(), 0);
    dripper.join().unwrap();
}

#[test]
fn a_kept_connection_that_asks_nothing_more_is_closed() {
    let server = Server::start(short());
    let mut client = server.connect();
    client.get("/").answer().unwrap();
    assert!(client.ended());
    assert!(server.settles(Duration::from_secs(1)));
}

/// Keeps I11: a stopped reader costs the stall time, and then nothing, not even in the kernel.
#[test]
fn a_reader_that_stops_is_reset_and_everything_held_for_it_is_freed() {
    for (len, close) in [
        (50_000_000, ""),                   // more than any buffer takes
        (200_000, ""),                      // all of it in the kernel's buffers
        (200_000, "Connection: close\r\n"), // the same, and the connection is over for us
    ] {
        let server = Server::start(short());
        let mut client = server.connect_narrow();
        client.say(format!(
            "GET /bytes?{len} HTTP/1.1\r\nHost: a\r\n{close}\r\n"
        ));
        client.head().unwrap();
        assert!(until(Duration::from_secs(1), || server.traffic.live() == 1));
        assert!(
            server.settles(Duration::from_secs(3)),
            "{len} {close} {:?}",
            server.traffic
        );
        assert_eq!(server.traffic.cut(), 1, "{len} {close}");
        let (taken, end) = client.rest();
        assert_eq!(
            end.unwrap_err().kind(),
            ErrorKind::ConnectionReset,
            "{len} {close}"
        );
        assert!(
            taken < 150_000,
            "{taken}: the rest was dropped, not delivered later"
        );
    }
}

/// Keeps I11.
#[test]
fn a_sender_that_stops_is_reset() {
    for start in [
        "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc",
        "POST /take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let server = Server::start(short());
        let mut client = server.connect();
        client.say(start);
        assert!(until(Duration::from_secs(1), || server.busy() == 1));
        assert!(
            server.settles(Duration::from_secs(3)),
            "{:?}",
            server.traffic
        );
        assert!(client.ended());
    }
}

/// Keeps I11: 200 connections that do nothing leave nothing behind, and nobody waits for them.
#[test]
fn two_hundred_idle_connections_return_their_descriptors_and_tasks() {
    let server = Server::alone(short());
    server.connect().get("/").answer().unwrap();
    assert!(server.settles(Duration::from_secs(3)));
    let before = (descriptors(), server.runtime.metrics().num_alive_tasks());
    // Act
    let mut idle: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for client in idle.iter_mut().step_by(2) {
        client.say("GET / HT");
    }
    assert!(until(Duration::from_secs(2), || server.traffic.live() == 200));
    let during = descriptors();
    assert_eq!(server.connect().get("/").answer().unwrap().text(), "hello");
    // Assert
    assert!(
        server.settles(Duration::from_secs(5)),
        "{:?}",
        server.traffic
    );
    drop(idle);
    assert!(during >= before.0 + 400, "both ends of each: {during}");
    let after = || (descriptors(), server.runtime.metrics().num_alive_tasks());
    assert!(
        until(Duration::from_secs(2), || after() == before),
        "{before:?} {:?}",
        after()
    );
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn healthy_clients_are_served_while_others_stall() {
    let server = Server::start(short());
    let mut stalled: Vec<_> = (0..20).map(|_| server.connect_narrow()).collect();
    for client in &mut stalled {
        client.get("/bytes?50000000");
    }
    let mut slowest = Duration::ZERO;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let asked = Instant::now();
        assert_eq!(server.connect().get("/").answer().unwrap().text(), "hello");
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    assert!(server.settles(Duration::from_secs(5)));
}

#[test]
fn a_request_with_two_lengths_or_an_odd_coding_is_refused_and_the_connection_closed() {
    let after = "GET /think?0 HTTP/1.1\r\nHost: a\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "content-length:5\r\ntransfer-encoding:CHUNKED\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\u{b}chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        " folded: x\r\n",
    ] {
        let server = Server::start(short());
        let mut client = server.connect();
        client.say(format!(
            "POST /take HTTP/1.1\r\nHost: a\r\n{fields}\r\n0\r\n\r\n{after}"
        ));
        let answer = client.answer().unwrap();
        assert_eq!(answer.status, 400, "{fields}");
        assert!(answer.closes(), "{fields}");
        assert!(client.ended(), "{fields}");
        assert_eq!(server.served(), 0, "{fields}");
    }
}

#[test]
fn the_second_of_two_requests_is_judged_by_its_own_lengths() {
    let server = Server::start(short());
    let mut client = server.connect();
    client.say(
        "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab\
         POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
    assert_eq!(client.answer().unwrap().text(), "2");
    let refused = client.answer().unwrap();
    assert!(refused.status == 400 && refused.closes());
    assert!(client.ended());
}

#[test]
fn nothing_is_read_after_a_chunked_request() {
    let server = Server::start(short());
    let mut client = server.connect();
    client.say(
        "POST /take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
         GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let answer = client.answer().unwrap();
    assert!(answer.text() == "3" && answer.closes());
    assert!(client.ended());
    assert_eq!(server.served(), 1);
}

#[test]
fn a_host_is_asked_for_once_and_in_good_form() {
    for fields in [
        "",
        "Host: \r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nhost: b\r\n",
        "Host: a b\r\n",
        "Host: a,b\r\n",
        "Host: http://a\r\n",
        "Host: user@a\r\n",
        "Host: a/..\r\n",
        "Host: a:99999\r\n",
        "Host: [::1\r\n",
    ] {
        let server = Server::start(short());
        let mut client = server.connect();
        client.say(format!("GET / HTTP/1.1\r\n{fields}\r\n"));
        let answer = client.answer().unwrap();
        assert!(answer.status == 400 && answer.closes(), "{fields}");
        assert!(answer.text().contains("Host"), "{fields}");
        assert!(client.ended(), "{fields}");
        assert_eq!(server.served(), 0, "{fields}");
    }
}

#[test]
fn only_a_path_is_a_target() {
    for line in [
        "GET http://a/ HTTP/1.1",
        "GET https://a/ HTTP/1.1",
        "GET a:80 HTTP/1.1",
        "CONNECT a:80 HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET * HTTP/1.1",
    ] {
        let server = Server::start(short());
        let mut client = server.connect();
        client.say(format!("{line}\r\nHost: a\r\n\r\n"));
        let answer = client.answer().unwrap();
        assert!(answer.status == 400 && answer.closes(), "{line}");
        assert_eq!(server.served(), 0, "{line}");
    }
}

#[test]
fn what_is_not_http_1_is_refused() {
    for bytes in [
        "\u{16}\u{3}\u{1}\u{2}\0garbage\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
        "GET /\r\n\r\n",
        "G\0T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let server = Server::start(short());
        let mut client = server.connect();
        client.say(bytes);
        let answer = client.answer().unwrap();
        assert_eq!((answer.status, answer.text()), (400, "Head(Syntax)"));
        assert!(answer.closes() && client.ended(), "{bytes:?}");
        assert!(server.settles(Duration::from_secs(3)), "{bytes:?}");
        assert_eq!(server.served(), 0, "{bytes:?}");
    }
}

/// A head that will be refused waits for its turn: what was asked before it is answered in full.
#[test]
fn a_bad_head_in_a_pipeline_is_refused_after_the_answers_before_it() {
    for (before, body) in [
        ("GET /bytes?3000000 HTTP/1.1\r\nHost: a\r\n\r\n", 3_000_000),
        ("GET /think?300 HTTP/1.1\r\nHost: a\r\n\r\n", 7),
        (
            "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
            1,
        ),
        ("HEAD /bytes?100 HTTP/1.1\r\nHost: a\r\n\r\n", 0),
    ] {
        for bad in ["GET /a b HTTP/1.1\r\n\r\n", "\0\0\0"] {
            let server = Server::start(short());
            let mut client = server.connect();
            client.say(format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{before}{bad}"));
            assert_eq!(client.answer().unwrap().text(), "hello");
            let method = before.split(' ').next().unwrap();
            let answer = client.answer_to(method).unwrap();
            assert_eq!((answer.status, answer.body.len()), (200, body), "{before}");
            let refused = client.answer().unwrap();
            assert_eq!((refused.status, refused.text()), (400, "Head(Syntax)"));
            assert!(refused.closes() && client.ended());
            assert_eq!(server.served(), 2, "{before}");
        }
    }
}

/// Octet by octet or all at once, a pipeline with bodies is read alike.
#[test]
fn a_pipeline_that_drips_is_read_like_one_that_does_not() {
    let server = Server::start(short());
    let mut client = server.connect();
    let pipeline = "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n\
                    \r\nGET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for octet in pipeline.as_bytes() {
        client.say([*octet]);
    }
    assert_eq!(client.answer().unwrap().text(), "4");
    assert_eq!(client.answer().unwrap().text(), "hello");
    assert_eq!(client.answer().unwrap().text(), "hello");
}
