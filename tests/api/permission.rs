//! The permission select: what is chosen, what is in force, and when the one becomes the other.

use serde_json::{Value, json};

use crate::support::{Answer, Server, server::Person};

fn put_with(
    server: &Server,
    session: &str,
    who: &Person,
    fields: &[(&str, &str)],
    form: &Value,
) -> Answer {
    let mut all = vec![("Content-Type", "application/json")];
    all.extend(fields);
    let body = form.to_string();
    let target = format!("{session}/permission");
    let mut octets = format!(
        "PUT {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n",
        who.token
    );
    for (name, value) in all {
        octets.extend([name, ": ", value, "\r\n"]);
    }
    octets.extend([
        "Content-Length: ",
        &body.len().to_string(),
        "\r\n\r\n",
        &body,
    ]);
    server.connect().ask(octets.as_bytes())
}

fn put(server: &Server, session: &str, value: &str) -> Answer {
    let form = json!({"value": value, "acknowledgeRisk": true});
    put_with(server, session, &server.alice, &[], &form)
}

fn get(server: &Server, session: &str) -> Value {
    server
        .get(&format!("{session}/permission"), &server.alice)
        .json()
}

fn append(server: &Server, session: &str, events: &[(&str, Value)]) {
    let events: Vec<Value> = events
        .iter()
        .map(|(kind, data)| json!({"type": kind, "data": data}))
        .collect();
    let answer = server.post(
        &format!("{session}/events"),
        &server.host,
        &json!({"events": events}),
    );
    assert_eq!(answer.status, 201, "{}", answer.text());
}

fn start(turn: u64) -> (&'static str, Value) {
    ("turn/start", json!({"turn": turn}))
}

fn end(turn: u64) -> (&'static str, Value) {
    ("turn/end", json!({"turn": turn}))
}

fn prompt() -> (&'static str, Value) {
    (
        "user/message",
        json!({"id": "m", "role": "user", "content": []}),
    )
}

fn kinds(server: &Server, session: &str) -> Vec<String> {
    let page = server
        .get(&format!("{session}/events?limit=200"), &server.host)
        .json();
    let events = page["events"].as_array().unwrap();
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

fn values(select: &Value) -> (&str, &str, bool) {
    (
        select["currentValue"].as_str().unwrap(),
        select["effectiveValue"].as_str().unwrap(),
        select["pending"].as_bool().unwrap(),
    )
}

#[test]
fn pm_01_custom_and_titles_are_no_targets() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    for value in ["custom", "Workspace Write", "nothing", ""] {
        let refused = put(&server, &session, value);
        assert_eq!(
            (refused.status, refused.code()),
            (400, "malformed".to_owned()),
            "{value}"
        );
    }
    append(
        &server,
        &session,
        &[("approval/policy", json!({"policy": "never"}))],
    );
    let select = get(&server, &session);
    assert_eq!(values(&select), ("custom", "custom", false));
    assert_eq!(
        select["options"].as_array().unwrap().len(),
        4,
        "shown while it is in force"
    );
    assert_eq!(
        put(&server, &session, "custom").status,
        200,
        "an echo of what is"
    );
}

#[test]
fn pm_02_an_echo_records_nothing() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    append(&server, &session, &[start(1)]);
    let before = get(&server, &session);
    let echo = put(&server, &session, "read-only");
    assert_eq!(echo.json(), before);
    assert_eq!(kinds(&server, &session), ["turn/start"]);
}

#[test]
fn pm_03_an_idle_choice_waits_for_a_prompted_turn() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let chosen = put(&server, &session, "workspace-write").json();
    assert_eq!(values(&chosen), ("workspace-write", "read-only", true));
    append(&server, &session, &[start(1)]);
    append(&server, &session, &[end(1)]);
    assert_eq!(
        kinds(&server, &session),
        ["turn/start", "turn/end"],
        "nobody prompted"
    );
    append(&server, &session, &[start(2)]);
    append(&server, &session, &[prompt()]);
    let flushed = [
        "turn/start",
        "user/message",
        "permission/preset",
        "sandbox/mode",
    ];
    assert_eq!(kinds(&server, &session)[2..], flushed);
    assert_eq!(
        values(&get(&server, &session)),
        ("workspace-write", "workspace-write", false)
    );
}

#[test]
fn pm_04_pm_06_the_last_choice_wins_whether_held_or_written() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    put(&server, &session, "workspace-write");
    append(&server, &session, &[start(1)]);
    let chosen = put(&server, &session, "danger-full-access").json();
    assert_eq!(
        values(&chosen),
        ("danger-full-access", "danger-full-access", false)
    );
    append(&server, &session, &[prompt()]);
    assert_eq!(
        values(&get(&server, &session)),
        ("danger-full-access", "danger-full-access", false)
    );
    let policies = kinds(&server, &session);
    assert_eq!(
        policies
            .iter()
            .filter(|kind| *kind == "permission/preset")
            .count(),
        1
    );
}

#[test]
fn pm_05_a_held_choice_outlasts_the_process() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    put(&server, &session, "workspace-write");
    // The same database, and nothing that was in memory.
    let hosts = holdfast::http::AllowedHosts::default();
    let options = holdfast::transfer::live::LiveOptions::default();
    let anew = holdfast::http::App::new(server.parts.clone(), hosts, options);
    let handle = session.replace("/v1/sessions/", "");
    let handle = holdfast::model::SessionHandle::parse(&handle).unwrap();
    let selected = anew.live().selected(handle).unwrap();
    assert_eq!(
        selected.held,
        Some(holdfast::permission::Choice::WorkspaceWrite)
    );
}

#[test]
fn pm_08_a_choice_is_of_one_session() {
    let server = Server::start();
    let (one, other) = (
        server.session(&[&server.alice]),
        server.session(&[&server.alice]),
    );
    append(&server, &one, &[start(1)]);
    put(&server, &one, "workspace-write");
    assert_eq!(values(&get(&server, &one)).1, "workspace-write");
    assert_eq!(values(&get(&server, &other)).1, "read-only");
}

#[test]
fn pm_09_widening_needs_a_word_and_a_host_does_not_choose() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let form = json!({"value": "danger-full-access"});
    let refused = put_with(&server, &session, &server.alice, &[], &form);
    assert_eq!(
        (refused.status, refused.code()),
        (422, "risk-not-acknowledged".to_owned())
    );
    let form = json!({"value": "workspace-write"});
    assert_eq!(
        put_with(&server, &session, &server.host, &[], &form).status,
        403
    );
    let select = get(&server, &session);
    assert_eq!(values(&select), ("read-only", "read-only", false));
    let stale = [("If-Match", "\"9-9\"")];
    let refused = put_with(&server, &session, &server.alice, &stale, &form);
    assert_eq!(
        (refused.status, refused.code()),
        (412, "precondition".to_owned())
    );
    let present = format!("\"{}\"", select["revision"].as_str().unwrap());
    let taken = put_with(
        &server,
        &session,
        &server.alice,
        &[("If-Match", &present)],
        &form,
    );
    assert_eq!(taken.status, 200);
    assert_ne!(taken.json()["revision"], select["revision"]);
}

#[test]
fn br_17_a_switch_to_never_refuses_what_waits() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    append(&server, &session, &[start(1)]);
    let stream = crate::support::sse::Sse::open(&server, &server.alice, None);
    stream.acknowledge(&server, &server.alice);
    let ask = json!({"kind": "approval", "agent": "a", "toolName": "shell", "reason": "build"});
    let asked = server
        .post(&format!("{session}/interactions"), &server.host, &ask)
        .json();
    put(&server, &session, "danger-full-access");
    let target = format!(
        "{session}/interactions/{}?waitSeconds=20",
        asked["requestId"].as_str().unwrap()
    );
    let told = server.get(&target, &server.host).json();
    assert_eq!(
        (&told["outcome"], &told["cause"]),
        (&json!("rejected"), &json!("policy-never"))
    );
}
