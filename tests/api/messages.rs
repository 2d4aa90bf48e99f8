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

/// ST-02: pages are counted by the messages that were appended; copies that a replacement carries do not
/// count, and nothing is left out or doubled between pages.
#[test]
fn st_02_pages_count_messages_and_no_copies() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let copy = json!({"type": "user/message", "data": {"text": "a copy"}});
    let mut events = vec![json!({"type": "note", "data": {}})];
    for n in 0..9 {
        let kind = if n % 2 == 0 {
            "user/message"
        } else {
            "assistant/message"
        };
        events.push(json!({"type": kind, "data": {"n": n}}));
        events.push(json!({"type": "step", "data": {}}));
        if n % 3 == 0 {
            let data = json!({"messages": [copy, copy, copy]});
            events.push(json!({"type": "conversation/replace", "data": data}));
        }
    }
    let all = events.len() as u64;
    let answer = server.post(
        &format!("{session}/events"),
        &server.host,
        &json!({ "events": events }),
    );
    assert_eq!(answer.status, 201);
    let (mut seen, mut counts): (Vec<u64>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut before = String::new();
    loop {
        let page = log(&server, &session, &format!("maxMessages=4{before}"));
        let events = page["events"].as_array().unwrap();
        let is_message = |event: &&Value| event["type"].as_str().unwrap().ends_with("/message");
        counts.push(events.iter().filter(is_message).count());
        assert!(is_message(&&events[0]) || events[0]["seq"] == 0, "{page}");
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
    assert_eq!(counts, [4, 4, 1]);
    assert_eq!(seen, (0..all).collect::<Vec<_>>());
    for wrong in [
        "maxMessages=0",
        "maxMessages=201",
        "projections=true&beforeSeq=3",
    ] {
        let target = format!("{session}/events?{wrong}");
        assert_eq!(server.get(&target, &server.alice).status, 400, "{wrong}");
    }
}

/// ST-03: what holds at the end of the last page is of the same cut as its events, while others append.
#[test]
fn st_03_projections_are_of_the_page_s_own_end() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let empty = log(&server, &session, "projections=true");
    assert_eq!(empty["projections"]["asOfSeq"], -1);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..60 {
                for kind in ["turn/start", "turn/end"] {
                    let event = json!({"type": kind, "data": {"turn": turn}});
                    let form = json!({ "events": [event] });
                    server.post(&format!("{session}/events"), &server.host, &form);
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut looks = 0;
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) || looks < 20 {
            looks += 1;
            let target = format!("{session}/events?projections=true&limit=5");
            let answer = server.get(&target, &server.alice);
            if answer.status == 503 {
                continue;
            }
            let page = answer.json();
            let projections = &page["projections"];
            let Some(last) = page["events"].as_array().unwrap().last() else {
                continue;
            };
            assert_eq!(projections["asOfSeq"], last["seq"]);
            let open = (last["type"] == "turn/start").then(|| last["seq"].clone());
            let said = &projections["values"]["openTurnStartSeq"];
            assert_eq!(*said, open.unwrap_or(Value::Null), "{page}");
        }
    });
}
