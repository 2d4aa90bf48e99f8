//! The event stream: what it begins with, that nothing is lost or doubled, and what it costs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Server,
    server::{Person, eventually},
    sse::Sse,
};

fn append(server: &Server, session: &str, kind: &str, data: &Value) -> u64 {
    let form = json!({"events": [{"type": kind, "data": data}]});
    let answer = server.post(&format!("{session}/events"), &server.host, &form);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["lastSeq"].as_u64().unwrap()
}

fn ask(server: &Server, session: &str, call: Option<&str>) -> String {
    let form = json!({
        "kind": "approval", "agent": "a", "toolName": "shell", "reason": "build", "callId": call,
    });
    let answer = server.post(&format!("{session}/interactions"), &server.host, &form);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["requestId"].as_str().unwrap().to_owned()
}

fn decide(server: &Server, who: &Person, item: &Value, decision: &str) -> u16 {
    let mut form = json!({"decision": decision});
    for fact in [
        "bridgeGeneration",
        "hostId",
        "session",
        "requestId",
        "turn",
        "turnStartSeq",
    ] {
        form[fact] = item[fact].clone();
    }
    let (session, id) = (
        item["session"].as_str().unwrap(),
        item["requestId"].as_str().unwrap(),
    );
    let target = format!("/v1/sessions/{session}/interactions/{id}/decision");
    server.post(&target, who, &form).status
}

/// The seqs of the session's events in the frames.
fn seqs(stream: &Sse) -> Vec<u64> {
    let events = stream.all("session/event");
    events
        .iter()
        .map(|frame| frame.data["event"]["seq"].as_u64().unwrap())
        .collect()
}

/// A session of alice with an open turn, and a stream of hers.
fn desk() -> (Server, String, Sse) {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    append(&server, &session, "turn/start", &json!({"turn": 1}));
    let stream = Sse::open(&server, &server.alice, None);
    assert_eq!(stream.acknowledge(&server, &server.alice), 200);
    (server, session, stream)
}

#[test]
fn a_stream_begins_with_ready_and_a_baseline_and_goes_on_with_what_happens() {
    let (server, session, mut stream) = desk();
    assert_eq!(stream.seen[0].event, "ready");
    assert_eq!(stream.seen[0].data["bridgeGeneration"], 1);
    let subscribed = &stream.all("session/subscribed")[0].data;
    assert_eq!(subscribed["lastSeq"], 0);
    append(&server, &session, "note", &json!({"text": "a\nb"}));
    let frame = stream.until("session/event");
    assert_eq!(frame.data["event"]["data"], json!({"text": "a\nb"}));
    assert!(frame.id.is_some());
    let signals = format!("{session}/signals");
    for (form, event) in [
        (json!({"running": true}), "host/session-status"),
        (json!({"agentError": "it broke"}), "host/agent-error"),
        (json!({"removed": true}), "host/session-removed"),
    ] {
        assert_eq!(server.post(&signals, &server.host, &form).status, 204);
        stream.until(event);
    }
    let new = server
        .session(&[&server.alice])
        .replace("/v1/sessions/", "");
    assert_eq!(
        stream.until("host/session-added").data["session"],
        json!(new)
    );
    assert_eq!(stream.until("session/subscribed").data["lastSeq"], -1);
}

/// Keeps I14: nothing of another's sessions, in kind or number.
#[test]
fn a_stream_has_nothing_of_sessions_that_are_not_ones_own() {
    let (server, session, mut alice) = desk();
    let mut bob = Sse::open(&server, &server.bob, None);
    let before = bob.last_id();
    for n in 0..20 {
        append(&server, &session, "note", &json!({"n": n}));
    }
    let own = server.session(&[&server.bob]);
    append(&server, &own, "note", &json!({}));
    let frame = bob.until("session/event");
    assert_eq!(
        frame.data["session"],
        json!(own.replace("/v1/sessions/", ""))
    );
    let number = |id: &str| id.split_once('.').unwrap().1.parse::<u64>().unwrap();
    // Added, subscribed, event: three frames, whatever happened elsewhere.
    assert_eq!(number(&frame.id.unwrap()), number(&before) + 3);
    while seqs(&alice).len() < 20 {
        alice.until("session/event");
    }
    assert!(alice.all("host/session-added").is_empty());
}

#[test]
fn mx_01_what_waits_is_shown_the_same_each_time() {
    let (server, session, mut stream) = desk();
    ask(&server, &session, None);
    let live = stream.until("approval/requested");
    let shown: Vec<Value> = (0..2)
        .map(|_| {
            let again = Sse::open(&server, &server.alice, None);
            again.all("approval/requested")[0].data.clone()
        })
        .collect();
    assert_eq!(shown, [live.data.clone(), live.data]);
}

#[test]
fn mx_02_between_baseline_and_live_nothing_is_lost_or_doubled() {
    let (server, session, stream) = desk();
    let last = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..60 {
                append(&server, &session, "note", &json!({"n": n}));
                let id = ask(&server, &session, None);
                let target = format!("{session}/interactions/{id}");
                server.ask("DELETE", &target, Some(&server.host.token));
            }
            append(&server, &session, "end", &json!({}))
        });
        let readers: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let mut reader = Sse::open(&server, &server.alice, None);
                    while reader.until("session/event").data["event"]["type"] != "end" {}
                    reader
                })
            })
            .collect();
        let last = writer.join().unwrap();
        for reader in readers {
            let reader = reader.join().unwrap();
            let begun = reader.all("session/subscribed")[0].data["lastSeq"]
                .as_u64()
                .unwrap();
            assert_eq!(seqs(&reader), (begun + 1..=last).collect::<Vec<_>>());
            // Whatever was shown to wait was also shown to end, once.
            for shown in reader.all("approval/requested") {
                let ends = reader.all("approval/resolved");
                let own = ends
                    .iter()
                    .filter(|end| end.data["requestId"] == shown.data["requestId"]);
                assert_eq!(own.count(), 1, "{shown:?}");
            }
        }
        last
    });
    assert!(last > 120);
    drop(stream);
}

#[test]
fn mx_03_an_end_is_told_once() {
    let (server, session, mut stream) = desk();
    let id = ask(&server, &session, None);
    let item = stream.until("approval/requested").data;
    assert_eq!(decide(&server, &server.alice, &item, "rejected"), 200);
    let target = format!("{session}/interactions/{id}");
    assert_eq!(
        server
            .ask("DELETE", &target, Some(&server.host.token))
            .status,
        410
    );
    server.block_on(async { server.app.live().dispose() });
    stream.drain();
    assert_eq!(stream.all("approval/resolved").len(), 1);
}

#[test]
fn mx_04_a_stale_list_says_that_it_is_older() {
    let (server, session, mut stream) = desk();
    ask(&server, &session, None);
    let item = stream.until("approval/requested");
    let list = server
        .get(&format!("{session}/interactions"), &server.alice)
        .json();
    assert_eq!(list["pendingInteractions"], json!([item.data]));
    decide(&server, &server.alice, &item.data, "rejected");
    let resolved = stream.until("approval/resolved");
    // The list arrives now: it stands before the frame, so it says nothing about it.
    let number = |id: &str| id.split_once('.').unwrap().1.parse::<u64>().unwrap();
    let as_of = number(list["asOf"].as_str().unwrap());
    assert!(number(&item.id.unwrap()) <= as_of);
    assert!(as_of < number(&resolved.id.unwrap()));
    let fresh = server
        .get(&format!("{session}/interactions"), &server.alice)
        .json();
    assert_eq!(fresh["pendingInteractions"], json!([]));
    assert!(number(fresh["asOf"].as_str().unwrap()) > as_of);
}

#[test]
fn mx_05_mx_06_each_ask_has_its_own_rows_and_its_own_answer() {
    let (server, session, mut stream) = desk();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let asks = [Some("c1"), Some("c2"), None, None].map(|call| {
            let (server, session) = (&server, &session);
            scope.spawn(move || ask(server, session, call))
        });
        asks.map(|one| one.join().unwrap()).into()
    });
    let mut wanted = Vec::new();
    for n in 0..4 {
        let item = stream.until("approval/requested").data;
        let decision = if n % 2 == 0 {
            "allowed-once"
        } else {
            "rejected"
        };
        assert_eq!(decide(&server, &server.alice, &item, decision), 200);
        wanted.push((
            item["approvalId"].clone(),
            item["requestId"].clone(),
            decision,
        ));
    }
    for (approval, id, decision) in wanted {
        let id = id.as_str().unwrap();
        assert!(ids.iter().any(|one| one == id));
        let target = format!("{session}/interactions/{id}?waitSeconds=20");
        assert_eq!(
            server.get(&target, &server.host).json()["outcome"],
            decision
        );
        let page = server
            .get(&format!("{session}/events?limit=200"), &server.host)
            .json();
        let events = page["events"].as_array().unwrap();
        let decided = events
            .iter()
            .filter(|event| event["type"] == "approval/decided" && event["data"]["id"] == approval);
        let outcomes: Vec<&Value> = decided.map(|event| &event["data"]["outcome"]).collect();
        assert_eq!(outcomes, [decision]);
        let asked = events
            .iter()
            .filter(|e| e["type"] == "approval/asked" && e["data"]["id"] == approval);
        assert_eq!(asked.count(), 1);
    }
}

#[test]
fn mx_07_the_end_of_the_service_leaves_nobody_waiting() {
    let (server, session, mut stream) = desk();
    let id = ask(&server, &session, None);
    let told = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let target = format!("{session}/interactions/{id}?waitSeconds=60");
            server.get(&target, &server.host).json()
        });
        stream.until("approval/requested");
        server.block_on(async { server.app.live().dispose() });
        waiting.join().unwrap()
    });
    assert_eq!(
        (&told["outcome"], &told["cause"]),
        (&json!("unavailable"), &json!("disposed"))
    );
    stream.drain();
    assert_eq!(stream.all("approval/resolved").len(), 1);
}

/// Keeps I11, with sockets.
#[test]
fn mx_08_a_reader_that_stops_is_ended_and_others_go_on() {
    let (server, session, mut reading) = desk();
    let mut stopped = Sse::unread(&server, &server.alice, None);
    let big = "x".repeat(200_000);
    let mut last = 0;
    for _ in 0..80 {
        last = append(&server, &session, "note", &json!({"big": big}));
        while seqs(&reading).last() != Some(&last) {
            reading.until("session/event");
        }
    }
    assert_eq!(seqs(&reading), (1..=last).collect::<Vec<_>>());
    stopped.drain();
    assert_eq!(stopped.all("stream/error").len(), 1);
    assert!(seqs(&stopped).len() < 80);
    assert_eq!(reading.acknowledge(&server, &server.alice), 200);
}

#[test]
fn mx_10_a_last_id_is_hostile_input() {
    let (server, session, mut stream) = desk();
    append(&server, &session, "one", &json!({}));
    append(&server, &session, "two", &json!({}));
    let first = stream.until("session/event").id.unwrap();
    let second = stream.until("session/event").id.unwrap();
    let resumed = Sse::open(&server, &server.alice, Some(&first));
    assert!(resumed.all("reset").is_empty());
    assert_eq!(resumed.seen[0].data["resumed"], true);
    let mut resumed = resumed;
    assert_eq!(resumed.until("session/event").data["event"]["type"], "two");
    let (generation, number) = second.split_once('.').unwrap();
    let number: u64 = number.parse().unwrap();
    let long = "9".repeat(20_000);
    for last in [
        "-1".to_owned(),
        format!("{generation}.-1"),
        format!("{generation}.{}", number + 1000),
        format!("0.{number}"),
        "x".to_owned(),
        long,
    ] {
        let reset = Sse::open(&server, &server.alice, Some(&last));
        assert_eq!(reset.all("reset").len(), 1, "{last}");
        assert_eq!(reset.all("session/subscribed").len(), 1);
        assert!(reset.all("session/event").is_empty());
    }
    let foreign = Sse::open(&server, &server.bob, Some(&first));
    assert_eq!(foreign.all("reset").len(), 1);
    assert!(foreign.all("session/subscribed").is_empty());
}

#[test]
fn pr_03_pr_04_a_stream_nobody_acknowledges_is_nobody() {
    let (server, session, mut stream) = desk();
    ask(&server, &session, None);
    stream.until("approval/requested");
    server.clock.advance(Duration::from_secs(34));
    assert_eq!(stream.acknowledge(&server, &server.alice), 200);
    server.clock.advance(Duration::from_secs(34));
    assert!(stream.all("approval/resolved").is_empty());
    server.clock.advance(Duration::from_secs(2));
    // The socket stays open; somebody looks at the time without being asked.
    assert_eq!(stream.until("approval/resolved").data["cause"], "presence");
}

#[test]
fn pr_06_presence_ends_with_the_last_stream() {
    let (server, session, stream) = desk();
    let mut other = Sse::open(&server, &server.alice, None);
    assert_eq!(other.acknowledge(&server, &server.alice), 200);
    let id = ask(&server, &session, None);
    drop(stream);
    other.until("approval/requested");
    let list = || {
        server
            .get(&format!("{session}/interactions"), &server.alice)
            .json()
    };
    assert_eq!(list()["pendingInteractions"][0]["requestId"], json!(id));
    drop(other);
    // A closed socket is noticed by the next write at the latest.
    append(&server, &session, "note", &json!({}));
    append(&server, &session, "note", &json!({}));
    eventually("nobody is present", || {
        list()["pendingInteractions"] == json!([])
    });
}

#[test]
fn an_acknowledgement_is_for_a_frame_of_ones_own_stream() {
    let (server, _session, stream) = desk();
    let target = format!("/v1/streams/{}/ack", stream.stream);
    let form = json!({"lastEventId": stream.last_id()});
    let absent = server.post(
        "/v1/streams/e_00000000000000000000000000000000/ack",
        &server.bob,
        &form,
    );
    let foreign = server.post(&target, &server.bob, &form);
    assert_eq!(foreign.status, 404);
    assert_eq!(foreign.masked(), absent.masked());
    for last in ["", "1.1", "1.99999999999", "x"] {
        let refused = server.post(&target, &server.alice, &json!({"lastEventId": last}));
        assert_eq!(
            (refused.status, refused.code()),
            (400, "malformed".to_owned()),
            "{last}"
        );
    }
}

/// E05: a stream on which nothing happens shows that it lives, so that a half-open one can be told from it.
#[test]
fn e05_a_stream_on_which_nothing_happens_beats() {
    let (server, _session, mut stream) = desk();
    assert!(stream.beats(), "{:?}", stream.seen);
    drop(server);
}
