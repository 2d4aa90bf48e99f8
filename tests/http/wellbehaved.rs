//! What honest clients rely on.

use std::{io::Write, thread, time::Duration};

use holdfast::{http::server::Listener, model::Limits};

use crate::support::{Server, short};

#[test]
fn a_connection_serves_one_request_after_another() {
    let server = Server::start(short());
    let mut client = server.connect();
    for _ in 0..3 {
        let answer = client.get("/").answer().unwrap();
        assert_eq!((answer.status, answer.text()), (200, "hello"));
    }
    assert_eq!(server.traffic.accepted(), 1);
}

#[test]
fn pipelined_requests_are_answered_in_order_and_head_has_no_body() {
    let server = Server::start(short());
    let mut client = server.connect();
    client.say(
        "HEAD /bytes?70000 HTTP/1.1\r\nHost: a\r\n\r\n\
         GET / HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let head = client.answer_to("HEAD").unwrap();
    assert!(head.head.contains("content-length: 70000"), "{}", head.head);
    assert_eq!(client.answer().unwrap().text(), "hello");
    assert_eq!(client.answer().unwrap().text(), "3");
    assert_eq!(client.answer().unwrap().status, 404);
}

/// Keeps I11 without punishing the honest: the time limit is on progress, not on the transfer (r11).
#[test]
fn r11_a_slow_reader_far_beyond_the_stall_time_gets_everything() {
    let limits = short();
    let server = Server::start(limits.clone());
    let mut client = server.connect_narrow();
    client.get("/bytes?400000").head().unwrap();
    let mut taken = 0;
    let start = std::time::Instant::now();
    while taken < 400_000 {
        taken += client.sip(10_000.min(400_000 - taken)).unwrap();
        thread::sleep(Duration::from_millis(90));
    }
    assert!(start.elapsed() > limits.stall * 5, "{:?}", start.elapsed());
    assert_eq!(client.get("/").answer().unwrap().text(), "hello");
    assert_eq!(server.traffic.cut(), 0);
}

#[test]
fn a_slow_sender_far_beyond_the_stall_time_is_heard_out() {
    let server = Server::start(short());
    let mut client = server.connect();
    client.say("POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n");
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(150));
        client.say("x");
    }
    assert_eq!(client.answer().unwrap().text(), "20");
}

#[test]
fn a_service_may_think_for_longer_than_any_limit_on_peers() {
    let server = Server::start(short());
    let answer = server.connect().get("/think?2000").answer().unwrap();
    assert_eq!(answer.text(), "thought");
}

#[test]
fn an_early_refusal_is_readable_although_the_upload_goes_on() {
    let server = Server::start(short());
    let mut client = server.connect();
    client.say("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n");
    // Keeps sending for a while, as an upload in full swing does.
    for _ in 0..20 {
        client.stream.write_all(&[0; 16 * 1024]).ok();
        thread::sleep(Duration::from_millis(5));
    }
    let answer = client.answer().unwrap();
    assert_eq!((answer.status, answer.text()), (413, "too much"));
}

#[test]
fn a_client_that_goes_away_stops_the_work_done_for_it() {
    let server = Server::start(Limits::default());
    let mut thinking = server.connect();
    thinking.get("/think?60000");
    let mut streaming = server.connect_narrow();
    streaming.get("/bytes?100000000").head().unwrap();
    assert!(crate::support::until(Duration::from_secs(5), || server
        .busy()
        == 2));
    drop((thinking, streaming));
    assert!(
        server.settles(Duration::from_secs(5)),
        "{:?}",
        server.traffic
    );
    assert_eq!(server.traffic.cut(), 0, "not counted as given up by us");
}

#[test]
fn the_owners_socket_serves_its_owner_and_replaces_a_stale_one() {
    // Arrange
    let dir = tempfile::tempdir().unwrap();
    let opened = rustix::fs::open(
        dir.path(),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("control")).unwrap());
    let server = Server::on(short(), || Listener::unix(&opened, "control").unwrap());
    // Act
    let mut stream = std::os::unix::net::UnixStream::connect(dir.path().join("control")).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    // Assert
    assert!(answer.ends_with("hello"), "{answer}");
    let mode = rustix::fs::statat(&opened, "control", rustix::fs::AtFlags::empty())
        .unwrap()
        .st_mode;
    assert_eq!(mode & 0o777, 0o600);
    assert!(server.settles(Duration::from_secs(5)));
}
