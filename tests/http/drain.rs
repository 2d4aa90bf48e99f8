//! How a service goes down.

use std::{
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use holdfast::model::Limits;

use crate::support::{Server, short, until};

#[test]
fn a_drain_lets_a_transfer_finish_and_sends_idle_connections_away() {
    let limits = Limits {
        drain: Duration::from_secs(10),
        head_deadline: Duration::from_secs(10),
        ..short()
    };
    let mut server = Server::start(limits);
    let mut running = server.connect_narrow();
    running.get("/bytes?300000").head().unwrap();
    let (mut idle, mut begun) = (server.connect(), server.connect());
    idle.get("/").answer().unwrap();
    begun.say("GET / HT");
    assert!(until(Duration::from_secs(1), || server.traffic.live() == 3));
    // Act
    server.begin_stop();
    // Assert
    assert!(idle.ended() && begun.ended());
    let address = server.address;
    assert!(until(Duration::from_secs(1), || TcpStream::connect(
        address
    )
    .is_err()));
    let mut taken = 0;
    while taken < 300_000 {
        taken += running.sip(20_000.min(300_000 - taken)).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    assert!(running.ended(), "the connection is not kept");
    assert_eq!(server.stopped().cut, 0);
}

#[test]
fn what_is_busy_at_the_end_of_the_drain_is_reset() {
    let limits = Limits {
        stall: Duration::from_mins(1),
        ..short()
    };
    let mut server = Server::start(limits.clone());
    let mut stuck = server.connect_narrow();
    stuck.get("/bytes?50000000").head().unwrap();
    let mut thinking = server.connect();
    thinking.get("/think?60000");
    assert!(until(Duration::from_secs(1), || server.busy() == 2));
    let start = Instant::now();
    server.begin_stop();
    let traffic = std::sync::Arc::clone(&server.traffic);
    assert_eq!(server.stopped().cut, 2);
    assert!(start.elapsed() >= limits.drain && start.elapsed() < limits.drain * 2);
    assert_eq!(traffic.live(), 0);
    assert!(stuck.rest().1.is_err() && thinking.ended());
}

#[test]
fn an_answer_given_during_the_drain_says_that_the_connection_ends() {
    let mut server = Server::start(short());
    let mut thinking = server.connect();
    thinking.get("/think?300");
    assert!(until(Duration::from_secs(1), || server.busy() == 1));
    server.begin_stop();
    let answer = thinking.answer().unwrap();
    assert!(answer.text() == "thought" && answer.closes(), "{answer:?}");
}

#[test]
fn a_service_without_connections_stops_at_once() {
    let mut server = Server::start(Limits::default());
    let start = Instant::now();
    server.begin_stop();
    assert_eq!(server.stopped().cut, 0);
    assert!(start.elapsed() < Duration::from_secs(1));
}
