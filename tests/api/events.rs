use serde_json::json;

use crate::support::{
    Server,
    server::{id, message},
};

fn event(n: u32) -> serde_json::Value {
    json!({"type": "turn/start", "time": n, "data": {"turn": n}})
}

#[test]
fn what_is_appended_is_read_back_in_order_and_to_the_octet() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let events = format!("{session}/events");
    let raw = br#"{"events": [{"type": "note", "time": 5, "ignorable": true, "data": {"z": 1.0, "a":  [1e2]}}]}"#;
    let json = [("Content-Type", "application/json")];
    let token = Some(server.host.token.as_str());
    let answer = server.ask_with("POST", &events, token, &json, raw);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let body = answer.json();
    assert_eq!(
        (&body["firstSeq"], &body["lastSeq"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(body["head"].as_str().unwrap().len(), 64);
    let page = server.get(&events, &server.alice);
    let text = page.text();
    assert!(text.contains(r#""data":{"z": 1.0, "a":  [1e2]}"#), "{text}");
    let expected = json!([{"seq": 0, "type": "note", "time": 5, "ignorable": true, "data": {"z": 1.0, "a": [1e2]}}]);
    assert_eq!(page.json()["events"], expected);
}

/// Keeps I6: pages meet without a gap.
#[test]
fn pages_go_backwards_without_a_gap() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let events = format!("{session}/events");
    let all: Vec<_> = (0..7).map(event).collect();
    assert_eq!(
        server
            .post(&events, &server.host, &json!({"events": all}))
            .status,
        201
    );
    let mut seqs = Vec::new();
    let mut target = format!("{events}?limit=3&logGeneration=3");
    loop {
        let page = server.get(&target, &server.alice).json();
        let mut these: Vec<u64> = page["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["seq"].as_u64().unwrap())
            .collect();
        let first = these[0];
        these.append(&mut seqs);
        seqs = these;
        if page["hasMore"] == json!(false) {
            break;
        }
        target = format!("{events}?limit=3&beforeSeq={first}&logGeneration=3");
    }
    assert_eq!(seqs, (0..7).collect::<Vec<_>>());
}

#[test]
fn an_append_elsewhere_than_expected_changes_nothing() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let events = format!("{session}/events");
    let body = |expected: u64| json!({"expectedSeq": expected, "events": [event(1)]});
    assert_eq!(server.post(&events, &server.host, &body(0)).status, 201);
    let answer = server.post(&events, &server.host, &body(0));
    assert_eq!(
        (answer.status, answer.code()),
        (409, "seq-mismatch".to_owned())
    );
    assert_eq!(answer.json()["nextSeq"], 1);
    let page = server.get(&events, &server.alice).json();
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
}

#[test]
fn an_address_of_another_generation_is_stale() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let answer = server.get(&format!("{session}/events?logGeneration=2"), &server.alice);
    assert_eq!(
        (answer.status, answer.code()),
        (409, "stale-generation".to_owned())
    );
    assert_eq!(answer.json()["logGeneration"], 3);
}

/// Keeps I1: a digest known from elsewhere gives nothing, and the answer does not say whether
/// anybody has it.
#[test]
fn an_event_cannot_refer_to_what_was_not_uploaded_here() {
    let server = Server::start();
    let content = b"alice's own";
    let alices = server.session(&[&server.alice]);
    server.attach(&alices, "a.txt", content);
    let bobs = server.session(&[&server.bob]);
    let ask = |content: &[u8]| server.refer(&bobs, "a.txt", content);
    let known = ask(content);
    assert_eq!(
        (known.status, known.code()),
        (422, "unknown-reference".to_owned())
    );
    assert_eq!(known.masked(), ask(b"nobody's").masked());
    let target = format!("{bobs}/attachments/{}", id(content));
    assert_eq!(server.get(&target, &server.bob).status, 404);
    let page = server.get(&format!("{bobs}/events"), &server.bob).json();
    assert_eq!(page["events"], json!([]), "nothing was appended");
}

/// Keeps I4: the reference's length is the content's.
#[test]
fn an_event_with_a_wrong_length_is_refused() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let content = b"seven b";
    assert_eq!(
        server.upload(&session, "a", &server.host, content).status,
        201
    );
    let mut wrong = message("a", content);
    wrong["data"]["content"][0]["attachment"]["bytes"] = json!(8);
    let answer = server.post(
        &format!("{session}/events"),
        &server.host,
        &json!({"events": [wrong]}),
    );
    assert_eq!(
        (answer.status, answer.code()),
        (422, "unknown-reference".to_owned())
    );
}

#[test]
fn all_events_of_an_append_are_taken_or_none() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let events = format!("{session}/events");
    let body = json!({"events": [event(1), message("a", b"never uploaded")]});
    assert_eq!(server.post(&events, &server.host, &body).status, 422);
    let list = server.get(&events, &server.alice).json();
    assert_eq!(list["events"], json!([]));
}

#[test]
fn an_append_that_is_not_one_is_refused() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let events = format!("{session}/events");
    for body in [
        json!({}),
        json!({"events": [{"type": "a b", "data": {}}]}),
        json!({"events": [{"type": "", "data": {}}]}),
        json!({"events": [{"type": "note"}]}),
        json!({"events": [{"type": "note", "data": {}, "seq": 4}]}),
        json!({"events": [], "durable": true}),
    ] {
        let answer = server.post(&events, &server.host, &body);
        assert_eq!(
            (answer.status, answer.code()),
            (400, "malformed".to_owned()),
            "{body}"
        );
    }
}

/// Rows 46 and 47 of `spec/store.md` section 7.
#[test]
fn a_repeat_under_a_key_is_answered_and_appends_nothing() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let events = format!("{session}/events");
    let token = Some(server.host.token.as_str());
    let append = |keys: &[&str], body: &serde_json::Value| {
        let json = ("Content-Type", "application/json");
        let mut fields = vec![json];
        fields.extend(keys.iter().map(|key| ("Idempotency-Key", *key)));
        server.ask_with("POST", &events, token, &fields, body.to_string().as_bytes())
    };
    // Without a time: the repeat is made later.
    let body = json!({"expectedSeq": 0, "events": [{"type": "note", "data": {}}]});
    let first = append(&["k-1"], &body);
    assert_eq!(first.status, 201, "{}", first.text());
    let again = append(&["k-1"], &body);
    assert_eq!((again.status, again.json()), (201, first.json()));
    let other = append(&["k-1"], &json!({"events": [{"type": "note", "data": {}}]}));
    assert_eq!(
        (other.status, other.code()),
        (422, "idempotency-key-reused".to_owned())
    );
    let stale = append(&["k-2"], &body);
    assert_eq!(
        (stale.status, stale.code()),
        (409, "seq-mismatch".to_owned())
    );
    for malformed in [&[""][..], &["a b"], &["k-1", "k-1"]] {
        let answer = append(malformed, &body);
        assert_eq!(
            (answer.status, answer.code()),
            (400, "malformed".to_owned()),
            "{malformed:?}"
        );
    }
    let page = server.get(&events, &server.alice).json();
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
}
