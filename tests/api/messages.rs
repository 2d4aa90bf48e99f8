//! Durable submit: a receipt for what is in the log, once.

use serde_json::{Value, json};

use crate::support::{
    Answer, Server,
    server::{Person, eventually},
};

fn submit(server: &Server, session: &str, who: &Person, key: &str, text: &str) -> Answer {
    let fields = [
        ("Content-Type", "application/json"),
        ("Idempotency-Key", key),
    ];
    let body = json!({"text": text}).to_string();
    let target = format!("{session}/messages");
    server.ask_with("POST", &target, Some(&who.token), &fields, body.as_bytes())
}

fn log(server: &Server, session: &str, query: &str) -> Value {
    server
        .get(&format!("{session}/events?{query}"), &server.host)
        .json()
}

#[test]
fn st_06_a_repeat_inserts_nothing_and_gets_the_same_receipt() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let first = submit(&server, &session, &server.alice, "k", "hello");
    assert_eq!(first.status, 201, "{}", first.text());
    let at_once: Vec<Answer> = std::thread::scope(|scope| {
        let repeats: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| submit(&server, &session, &server.alice, "k", "hello")))
            .collect();
        repeats.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(at_once.iter().all(|one| one.body == first.body));
    assert_eq!(
        log(&server, &session, "limit=50")["events"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let other = submit(&server, &session, &server.alice, "k", "bye");
    assert_eq!(
        (other.status, other.code()),
        (422, "idempotency-key-reused".to_owned())
    );
    // Another principal's key is another key.
    assert_eq!(
        submit(&server, &session, &server.host, "k", "bye").status,
        201
    );
    let without = server.post(
        &format!("{session}/messages"),
        &server.alice,
        &json!({"text": "x"}),
    );
    assert_eq!(
        (without.status, without.code()),
        (400, "malformed".to_owned())
    );
}

#[test]
fn st_07_each_echo_finds_its_own_message() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let receipts: Vec<Value> = ["a", "b"]
        .iter()
        .map(|key| submit(&server, &session, &server.alice, key, "the same").json())
        .collect();
    let events = log(&server, &session, "limit=50");
    for receipt in receipts {
        let seq = usize::try_from(receipt["seq"].as_u64().unwrap()).unwrap();
        let event = &events["events"][seq];
        assert_eq!(event["data"]["source"]["requestId"], receipt["requestId"]);
    }
}

#[test]
fn st_01_a_page_never_starts_inside_a_message() {
    let server = Server::start();
    let mut state = 7_u64;
    for _ in 0..8 {
        let session = server.session(&[&server.alice]);
        let mut kinds = Vec::new();
        for _ in 0..60 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            kinds.push(
                ["user/message", "assistant/message", "step", "tool/result"]
                    [usize::try_from(state >> 62).unwrap()],
            );
        }
        let events: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"type": kind, "data": {}}))
            .collect();
        let answer = server.post(
            &format!("{session}/events"),
            &server.host,
            &json!({"events": events}),
        );
        assert_eq!(answer.status, 201);
        let mut seen: Vec<u64> = Vec::new();
        let mut before = String::new();
        loop {
            let page = log(&server, &session, &format!("limit=20{before}"));
            let events = page["events"].as_array().unwrap();
            let first = &events[0];
            let is_message = first["type"].as_str().unwrap().ends_with("/message");
            assert!(is_message || first["seq"] == 0, "{first}");
            let seqs: Vec<u64> = events
                .iter()
                .map(|event| event["seq"].as_u64().unwrap())
                .collect();
            before = format!("&beforeSeq={}", seqs[0]);
            seen.splice(0..0, seqs);
            if page["hasMore"] == json!(false) {
                break;
            }
        }
        assert_eq!(seen, (0..60).collect::<Vec<_>>());
    }
}

/// Keeps I5: no receipt before the flush, and none when it fails.
#[test]
fn st_04_a_receipt_comes_after_the_flush() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let gate = server.calls.hold_appends();
    server.calls.take();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| submit(&server, &session, &server.alice, "k", "hello"));
        eventually("the append has begun", || {
            server.calls.has("journal.append_once")
        });
        assert!(!waiting.is_finished(), "nobody has a receipt yet");
        assert_eq!(log(&server, &session, "limit=50")["events"], json!([]));
        drop(gate);
        assert_eq!(waiting.join().unwrap().status, 201);
    });
    server.calls.let_appends_through(Some(0));
    let failed = submit(&server, &session, &server.alice, "l", "lost");
    assert_eq!((failed.status, failed.code()), (500, "journal".to_owned()));
    server.calls.let_appends_through(None);
    let events = log(&server, &session, "limit=50");
    assert_eq!(events["events"].as_array().unwrap().len(), 1);
    let again = submit(&server, &session, &server.alice, "l", "lost");
    assert_eq!(again.status, 201, "what failed is not kept as done");
}
