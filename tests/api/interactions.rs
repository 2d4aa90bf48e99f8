//! Approvals and questions over the wire: what is asked, who answers, what everybody is told.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Answer, Options, Server,
    server::{Person, eventually, request},
    sse::Sse,
};

/// A session of alice with an open turn, and a stream she reads.
struct Desk {
    server: Server,
    session: String,
    stream: Sse,
}

impl Desk {
    fn new() -> Self {
        let server = Server::start();
        let session = server.session(&[&server.alice]);
        let stream = present(&server, &server.alice);
        let desk = Self {
            server,
            session,
            stream,
        };
        desk.turn("turn/start", 1);
        desk
    }

    fn turn(&self, kind: &str, number: u64) {
        let form = json!({"events": [{"type": kind, "data": {"turn": number}}]});
        let target = format!("{}/events", self.session);
        let answer = self.server.post(&target, &self.server.host, &form);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    fn put(&self, form: &Value) -> Answer {
        let target = format!("{}/interactions", self.session);
        self.server.post(&target, &self.server.host, form)
    }

    /// Asks for an approval: its id.
    fn ask(&self) -> String {
        let answer = self.put(&approval());
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["requestId"].as_str().unwrap().to_owned()
    }

    fn pending(&self) -> Vec<Value> {
        pending(&self.server, &self.session, &self.server.alice)
    }

    fn item(&self, id: &str) -> Value {
        let pending = self.pending();
        let item = pending.into_iter().find(|item| item["requestId"] == id);
        item.unwrap()
    }

    fn decide(&self, id: &str, form: &Value) -> Answer {
        self.decide_as(&self.server.alice, id, form)
    }

    fn decide_as(&self, who: &Person, id: &str, form: &Value) -> Answer {
        let target = format!("{}/interactions/{id}/decision", self.session);
        self.server.post(&target, who, form)
    }

    /// What the host is told, waiting for the end.
    fn told(&self, id: &str) -> Value {
        let target = format!("{}/interactions/{id}?waitSeconds=20", self.session);
        let answer = self.server.get(&target, &self.server.host);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    fn log(&self) -> Vec<Value> {
        log(&self.server, &self.session)
    }

    fn tick(&self) {
        let live = self.server.app.live();
        self.server.block_on(async { live.tick() });
    }

    /// That the log has one first and one second row of each ask, and this outcome last.
    fn assert_audited(&self, outcome: &str) {
        let log = self.log();
        let rows = |kind: &str| -> Vec<Value> {
            let rows = log.iter().filter(|event| event["type"] == kind);
            rows.map(|event| event["data"].clone()).collect()
        };
        let (asked, decided) = (rows("approval/asked"), rows("approval/decided"));
        let ids =
            |rows: &[Value]| -> Vec<Value> { rows.iter().map(|row| row["id"].clone()).collect() };
        assert_eq!(ids(&asked), ids(&decided), "{log:#?}");
        assert_eq!(decided.last().unwrap()["outcome"], outcome);
    }
}

fn present(server: &Server, who: &Person) -> Sse {
    let stream = Sse::open(server, who, None);
    assert_eq!(stream.acknowledge(server, who), 200);
    stream
}

fn pending(server: &Server, session: &str, who: &Person) -> Vec<Value> {
    let body = server.get(&format!("{session}/interactions"), who).json();
    body["pendingInteractions"].as_array().unwrap().clone()
}

fn log(server: &Server, session: &str) -> Vec<Value> {
    let page = server.get(&format!("{session}/events?limit=200"), &server.host);
    page.json()["events"].as_array().unwrap().clone()
}

fn approval() -> Value {
    json!({
        "kind": "approval", "agent": "agent-1", "toolName": "shell", "callId": "call-1",
        "reason": "delete build/", "displayReason": {"en": "Delete the folder build"},
    })
}

/// The answer to an item, as a client makes it from what it was shown.
fn answer(item: &Value, decision: &str) -> Value {
    let mut form = json!({"decision": decision});
    for fact in [
        "bridgeGeneration",
        "hostId",
        "session",
        "requestId",
        "approvalId",
        "turn",
        "turnStartSeq",
    ] {
        form[fact] = item[fact].clone();
    }
    form
}

fn refusal(answer: &Answer) -> (u16, String) {
    (answer.status, answer.code())
}

#[test]
fn an_approval_is_asked_shown_decided_audited_and_told() {
    let mut desk = Desk::new();
    let id = desk.ask();
    let shown = desk.stream.until("approval/requested").data;
    assert_eq!(
        shown,
        desk.item(&id),
        "the stream and the list show the same"
    );
    assert_eq!(shown["presentation"], "Delete the folder build");
    assert_eq!(shown["choices"], json!(["allowed-once", "rejected"]));
    let snapshot = desk
        .server
        .get(&format!("{}/snapshot", desk.session), &desk.server.alice)
        .json();
    assert_eq!(snapshot["pendingInteractions"], json!([shown]));
    assert_eq!(snapshot["capabilities"]["approval"]["interactive"], true);
    let decided = desk.decide(&id, &answer(&shown, "allowed-once"));
    assert_eq!(decided.status, 200, "{}", decided.text());
    let body = json!({"accepted": true, "outcome": "allowed-once", "auditPersisted": false});
    assert_eq!(decided.json(), body);
    assert_eq!(desk.told(&id)["outcome"], "allowed-once");
    desk.assert_audited("allowed-once");
    assert_eq!(
        desk.stream.until("approval/resolved").data["outcome"],
        "allowed-once"
    );
    assert_eq!(
        desk.stream.until("session/event").data["event"]["type"],
        "approval/decided"
    );
    assert!(desk.pending().is_empty());
}

#[test]
fn ap_01_an_ask_outside_a_turn_appends_nothing() {
    let desk = Desk::new();
    desk.turn("turn/end", 1);
    let before = desk.log();
    assert_eq!(
        refusal(&desk.put(&approval())),
        (409, "no-open-turn".to_owned())
    );
    let empty = desk.server.session(&[&desk.server.alice]);
    let answer = desk.server.post(
        &format!("{empty}/interactions"),
        &desk.server.host,
        &approval(),
    );
    assert_eq!(refusal(&answer), (409, "no-open-turn".to_owned()));
    assert_eq!(desk.log(), before);
    assert!(log(&desk.server, &empty).is_empty());
}

#[test]
fn ap_02_each_ask_has_exactly_one_end_in_the_log() {
    let desk = Desk::new();
    let id = desk.ask();
    desk.decide(&id, &answer(&desk.item(&id), "rejected"));
    assert_eq!(desk.told(&id)["outcome"], "rejected");
    desk.assert_audited("rejected");
    let id = desk.ask();
    let target = format!("{}/interactions/{id}", desk.session);
    let token = Some(desk.server.host.token.as_str());
    assert_eq!(desk.server.ask("DELETE", &target, token).status, 204);
    assert_eq!(desk.told(&id)["outcome"], "cancelled");
    desk.assert_audited("cancelled");
    let id = desk.ask();
    desk.server.clock.advance(Duration::from_secs(36));
    desk.tick();
    assert_eq!(
        desk.told(&id),
        json!({
            "requestId": id, "state": "settled", "outcome": "unavailable", "cause": "presence",
        })
    );
    desk.assert_audited("unavailable");
    let id = desk.ask();
    assert_eq!(desk.told(&id)["outcome"], "unavailable", "nobody is there");
    desk.assert_audited("unavailable");
    // The end of the turn ends what waits in it; the second row still lies within it.
    assert_eq!(
        desk.stream.acknowledge(&desk.server, &desk.server.alice),
        200
    );
    let id = desk.ask();
    desk.turn("turn/end", 1);
    assert_eq!(desk.told(&id)["cause"], "turn-ended");
    desk.assert_audited("cancelled");
    assert_eq!(desk.log().last().unwrap()["type"], "turn/end");
}

#[test]
fn ap_03_never_refuses_before_anybody_is_asked() {
    let mut desk = Desk::new();
    let policy = json!({"events": [{"type": "approval/policy", "data": {"policy": "never"}}]});
    desk.server.post(
        &format!("{}/events", desk.session),
        &desk.server.host,
        &policy,
    );
    let id = desk.ask();
    assert_eq!(desk.told(&id)["outcome"], "rejected");
    desk.assert_audited("rejected");
    let end = json!({"events": [{"type": "last", "data": {}}]});
    desk.server
        .post(&format!("{}/events", desk.session), &desk.server.host, &end);
    while desk.stream.until("session/event").data["event"]["type"] != "last" {}
    assert!(
        desk.stream.all("approval/requested").is_empty(),
        "nobody was shown it"
    );
}

#[test]
fn ap_05_ap_06_what_is_no_answer_opens_nothing() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    for decision in [
        json!(true),
        json!(null),
        json!({}),
        json!(1),
        json!(["allowed-once"]),
    ] {
        let mut form = answer(&item, "x");
        form["decision"] = decision.clone();
        let refused = desk.decide(&id, &form);
        assert_eq!(
            refusal(&refused),
            (400, "malformed-decision".to_owned()),
            "{decision}"
        );
    }
    let refused = desk.decide(&id, &answer(&item, "allow"));
    assert_eq!(refusal(&refused), (422, "decision-not-offered".to_owned()));
    assert_eq!(desk.item(&id), item, "it waits as before");
}

#[test]
fn ap_07_an_abort_beats_a_late_yes() {
    let desk = Desk::new();
    let id = desk.ask();
    let form = answer(&desk.item(&id), "allowed-once");
    let target = format!("{}/interactions/{id}", desk.session);
    let token = Some(desk.server.host.token.as_str());
    assert_eq!(desk.server.ask("DELETE", &target, token).status, 204);
    let late = desk.decide(&id, &form);
    assert_eq!(refusal(&late), (410, "withdrawn".to_owned()));
    assert_eq!(late.json()["cause"], "aborted");
    assert_eq!(desk.told(&id)["outcome"], "cancelled");
    desk.assert_audited("cancelled");
    assert_eq!(
        refusal(&desk.server.ask("DELETE", &target, token)),
        (410, "withdrawn".to_owned())
    );
}

#[test]
fn ap_08_a_host_that_goes_away_while_it_asks_leaves_no_zombie() {
    let desk = Desk::new();
    for _ in 0..20 {
        let body = approval().to_string();
        let json = [("Content-Type", "application/json")];
        let target = format!("{}/interactions", desk.session);
        let octets = request(
            "POST",
            &target,
            Some(&desk.server.host.token),
            &json,
            Some(body.as_bytes()),
        );
        let mut client = desk.server.connect();
        client.send(&octets).unwrap();
        drop(client);
    }
    // Whatever was put before its host had gone ends like everything else; the log is even.
    eventually("every ask has its rows", || {
        desk.log()
            .iter()
            .filter(|e| e["type"] == "approval/asked")
            .count()
            == desk
                .log()
                .iter()
                .filter(|e| e["type"] == "approval/decided")
                .count()
                + desk.pending().len()
    });
    desk.server.clock.advance(Duration::from_secs(36));
    desk.tick();
    eventually("nothing waits", || desk.pending().is_empty());
}

#[test]
fn ap_10_what_is_shown_in_a_language_is_not_in_the_log() {
    let desk = Desk::new();
    desk.ask();
    let log = json!(desk.log()).to_string();
    assert!(log.contains("delete build/"));
    assert!(!log.contains("Delete the folder"), "{log}");
}

#[test]
fn br_12_an_answer_to_another_session_changes_nothing_there() {
    let desk = Desk::new();
    let other = desk.server.session(&[&desk.server.alice]);
    let id = desk.ask();
    let item = desk.item(&id);
    let target = format!("{other}/interactions/{id}/decision");
    let mut form = answer(&item, "allowed-once");
    for _named in 0..2 {
        let refused = desk.server.post(&target, &desk.server.alice, &form);
        assert_eq!(refusal(&refused), (404, "interaction-unknown".to_owned()));
        form["session"] = json!(other.replace("/v1/sessions/", ""));
    }
    assert_eq!(desk.item(&id), item);
}

#[test]
fn br_20_each_fact_of_an_answer_is_checked() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    for (fact, value, status, code) in [
        ("bridgeGeneration", json!(99), 409, "stale-generation"),
        ("hostId", json!("h_other"), 409, "host-mismatch"),
        (
            "session",
            json!("s_00000000000000000000000000000000"),
            404,
            "interaction-unknown",
        ),
        (
            "requestId",
            json!("i_00000000000000000000000000000000"),
            409,
            "correlation-mismatch",
        ),
        ("approvalId", json!("other"), 409, "correlation-mismatch"),
        ("turn", json!(2), 409, "stale-turn"),
        ("turnStartSeq", json!(7), 409, "stale-turn"),
    ] {
        let mut form = answer(&item, "allowed-once");
        form[fact] = value;
        assert_eq!(
            refusal(&desk.decide(&id, &form)),
            (status, code.to_owned()),
            "{fact}"
        );
    }
    assert_eq!(desk.decide(&id, &answer(&item, "allowed-once")).status, 200);
}

#[test]
fn br_21_an_id_is_no_credential() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    let form = answer(&item, "allowed-once");
    let target = format!("{}/interactions/{id}/decision", desk.session);
    let json = [("Content-Type", "application/json")];
    let body = form.to_string();
    for token in [None, Some("hf_forged")] {
        let refused = desk
            .server
            .ask_with("POST", &target, token, &json, body.as_bytes());
        assert_eq!(refused.status, 401);
    }
    assert_eq!(desk.decide_as(&desk.server.bob, &id, &form).status, 404);
    let host = desk.decide_as(&desk.server.host, &id, &form);
    assert_eq!(
        refusal(&host),
        (403, "forbidden".to_owned()),
        "a host does not answer itself"
    );
    assert_eq!(desk.item(&id), item);
}

#[test]
fn br_22_history_revives_nothing() {
    let desk = Desk::new();
    let asked =
        json!({"events": [{"type": "approval/asked", "data": {"id": "old", "toolName": "shell"}}]});
    desk.server.post(
        &format!("{}/events", desk.session),
        &desk.server.host,
        &asked,
    );
    let stream = Sse::open(&desk.server, &desk.server.alice, None);
    assert!(stream.all("approval/requested").is_empty());
    assert!(desk.pending().is_empty());
    // A service built anew over the same database.
    desk.ask();
    let hosts = holdfast::http::AllowedHosts::default();
    let options = holdfast::transfer::live::LiveOptions {
        interactive: true,
        ..Default::default()
    };
    let anew = holdfast::http::App::new(desk.server.parts.clone(), hosts, options);
    let handle = desk.session.replace("/v1/sessions/", "").parse_handle();
    assert!(
        desk.server
            .block_on(async { anew.live().pending(handle) })
            .is_empty()
    );
}

trait ParseHandle {
    fn parse_handle(&self) -> holdfast::model::SessionHandle;
}

impl ParseHandle for String {
    fn parse_handle(&self) -> holdfast::model::SessionHandle {
        holdfast::model::SessionHandle::parse(self).unwrap()
    }
}

#[test]
fn br_23_malformed_answers_consume_nothing() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    let good = answer(&item, "allowed-once").to_string();
    let mut state = 1_u64;
    let target = format!("{}/interactions/{id}/decision", desk.session);
    let json = [("Content-Type", "application/json")];
    let token = Some(desk.server.alice.token.as_str());
    let mut refused = 0;
    for _ in 0..1000 {
        let mut body = good.clone().into_bytes();
        for _ in 0..3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(state >> 33).unwrap() % body.len();
            body[at] = b"{}[]\",:x0 \\"[usize::try_from(state >> 13).unwrap() % 11];
        }
        if body == good.as_bytes() {
            continue;
        }
        let status = desk
            .server
            .ask_with("POST", &target, token, &json, &body)
            .status;
        assert!(
            (400..500).contains(&status),
            "{}",
            String::from_utf8_lossy(&body)
        );
        refused += 1;
    }
    assert!(refused > 900);
    assert_eq!(desk.decide(&id, &answer(&item, "allowed-once")).status, 200);
}

#[test]
fn br_24_members_an_answer_cannot_have_are_refused() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    for member in ["approved", "choices", "canAllow", "__proto__", "kind"] {
        let mut form = answer(&item, "allowed-once");
        form[member] = json!(true);
        assert_eq!(
            refusal(&desk.decide(&id, &form)),
            (400, "unknown-member".to_owned()),
            "{member}"
        );
    }
    let mut form = answer(&item, "allowed-once");
    form["error"] = json!({"code": "cancelled"});
    assert_eq!(
        refusal(&desk.decide(&id, &form)),
        (400, "malformed-decision".to_owned())
    );
    let twice =
        answer(&item, "rejected")
            .to_string()
            .replacen('{', "{\"decision\":\"allowed-once\",", 1);
    let target = format!("{}/interactions/{id}/decision", desk.session);
    let json = [("Content-Type", "application/json")];
    let token = Some(desk.server.alice.token.as_str());
    let refused = desk
        .server
        .ask_with("POST", &target, token, &json, twice.as_bytes());
    assert_eq!(refusal(&refused), (400, "malformed-decision".to_owned()));
    assert_eq!(desk.item(&id), item);
}

#[test]
fn br_28_an_acknowledgement_is_no_completion() {
    let desk = Desk::new();
    let id = desk.ask();
    let decided = desk
        .decide(&id, &answer(&desk.item(&id), "allowed-once"))
        .json();
    assert_eq!(decided["auditPersisted"], false);
    let members: Vec<&String> = decided.as_object().unwrap().keys().collect();
    assert_eq!(members, ["accepted", "auditPersisted", "outcome"]);
    let failed = json!({"events": [{"type": "tool/result", "data": {"error": "it failed"}}]});
    desk.told(&id);
    assert_eq!(
        desk.server
            .post(
                &format!("{}/events", desk.session),
                &desk.server.host,
                &failed
            )
            .status,
        201
    );
}

#[test]
fn br_27_taking_one_back_leaves_the_others_alone() {
    let desk = Desk::new();
    let (one, other) = (desk.ask(), desk.ask());
    let target = format!("{}/interactions/{one}", desk.session);
    desk.server
        .ask("DELETE", &target, Some(&desk.server.host.token));
    let prompt =
        json!({"events": [{"type": "user/message", "data": {"role": "user", "content": []}}]});
    assert_eq!(
        desk.server
            .post(
                &format!("{}/events", desk.session),
                &desk.server.host,
                &prompt
            )
            .status,
        201
    );
    assert_eq!(
        desk.decide(&other, &answer(&desk.item(&other), "allowed-once"))
            .status,
        200
    );
}

/// Keeps I7: what everybody is told is what happened, over the wire as well.
#[test]
fn br_04_of_many_that_answer_at_once_one_is_taken() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..16)
            .map(|n| {
                let word = if n % 2 == 0 {
                    "allowed-once"
                } else {
                    "rejected"
                };
                let (desk, id, form) = (&desk, &id, answer(&item, word));
                scope.spawn(move || desk.decide(id, &form))
            })
            .collect();
        racers
            .into_iter()
            .map(|racer| racer.join().unwrap())
            .collect()
    });
    let won: Vec<&Answer> = answers.iter().filter(|one| one.status == 200).collect();
    assert_eq!(won.len(), 1);
    let outcome = won[0].json()["outcome"].clone();
    for late in answers.iter().filter(|one| one.status != 200) {
        assert_eq!(refusal(late), (410, "already-decided".to_owned()));
        assert_eq!(late.json()["recordedOutcome"], outcome);
    }
    assert_eq!(desk.told(&id)["outcome"], outcome);
    desk.assert_audited(outcome.as_str().unwrap());
}

#[test]
fn br_01_a_service_that_is_off_shows_nothing_and_says_so() {
    let server = Server::with(&Options {
        interactive: false,
        ..Options::default()
    });
    let session = server.session(&[&server.alice]);
    let _stream = present(&server, &server.alice);
    let start = json!({"events": [{"type": "turn/start", "data": {"turn": 1}}]});
    server.post(&format!("{session}/events"), &server.host, &start);
    let asked = server.post(
        &format!("{session}/interactions"),
        &server.host,
        &approval(),
    );
    let id = asked.json()["requestId"].as_str().unwrap().to_owned();
    let told = server
        .get(
            &format!("{session}/interactions/{id}?waitSeconds=20"),
            &server.host,
        )
        .json();
    assert_eq!(told["outcome"], "unavailable");
    assert!(pending(&server, &session, &server.alice).is_empty());
    let list = server
        .get(&format!("{session}/interactions"), &server.alice)
        .json();
    assert_eq!(
        list["capabilities"]["approval"],
        json!({"interactive": false, "reason": "off"})
    );
    let form = json!({
        "bridgeGeneration": 1, "hostId": server.parts.identity.instance, "requestId": id,
        "session": session.replace("/v1/sessions/", ""), "decision": "rejected",
    });
    let refused = server.post(
        &format!("{session}/interactions/{id}/decision"),
        &server.alice,
        &form,
    );
    assert_eq!(refusal(&refused), (503, "not-interactive".to_owned()));
}

#[test]
fn pr_01_polling_is_no_presence() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let start = json!({"events": [{"type": "turn/start", "data": {"turn": 1}}]});
    server.post(&format!("{session}/events"), &server.host, &start);
    let _unacknowledged = Sse::open(&server, &server.alice, None);
    // A host that reads is nobody who decides.
    let _host = present(&server, &server.host);
    for _ in 0..5 {
        let list = server
            .get(&format!("{session}/interactions"), &server.alice)
            .json();
        assert_eq!(list["capabilities"]["approval"]["interactive"], false);
    }
    let asked = server.post(
        &format!("{session}/interactions"),
        &server.host,
        &approval(),
    );
    let id = asked.json()["requestId"].as_str().unwrap().to_owned();
    let told = server
        .get(
            &format!("{session}/interactions/{id}?waitSeconds=20"),
            &server.host,
        )
        .json();
    assert_eq!(
        (&told["outcome"], &told["cause"]),
        (&json!("unavailable"), &json!("presence"))
    );
}

#[test]
fn qu_07_a_question_has_answers_and_an_owned_child_has_none() {
    let mut desk = Desk::new();
    let form = json!({"kind": "question", "agent": "agent-1", "questions": [
        {"id": "a", "question": "which?", "options": [{"label": "yes"}, {"label": "no"}]},
    ]});
    let mut owned = form.clone();
    owned["ownedBy"] = json!("agent-0");
    assert_eq!(
        refusal(&desk.put(&owned)),
        (422, "delegated-caller".to_owned())
    );
    let asked = desk.put(&form);
    let id = asked.json()["requestId"].as_str().unwrap().to_owned();
    let item = desk.stream.until("question/requested").data;
    let mut filled = answer(&item, "x");
    filled.as_object_mut().unwrap().remove("decision");
    filled["answers"] = json!([{"id": "a", "selected": ["maybe"]}]);
    assert_eq!(
        refusal(&desk.decide(&id, &filled)),
        (400, "malformed-decision".to_owned())
    );
    filled["answers"] = json!([{"id": "a", "selected": ["yes"]}]);
    assert_eq!(desk.decide(&id, &filled).status, 200);
    let told = desk.told(&id);
    assert_eq!(told["answers"], json!([{"id": "a", "selected": ["yes"]}]));
    assert!(
        desk.log().iter().all(|event| event["type"] == "turn/start"),
        "no audit of a form"
    );
}

#[test]
fn ht_01_what_is_not_json_is_not_executed() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    let target = format!("{}/interactions/{id}/decision", desk.session);
    let body = answer(&item, "allowed-once").to_string();
    let token = Some(desk.server.alice.token.as_str());
    for fields in [
        &[("Content-Type", "text/plain")][..],
        &[("Content-Type", "application/x-www-form-urlencoded")],
        &[],
    ] {
        let refused = desk
            .server
            .ask_with("POST", &target, token, fields, body.as_bytes());
        assert_eq!(
            refusal(&refused),
            (415, "unsupported-media-type".to_owned()),
            "{fields:?}"
        );
    }
    assert_eq!(desk.item(&id), item);
}

#[test]
fn ht_03_a_get_never_decides() {
    let desk = Desk::new();
    let id = desk.ask();
    let item = desk.item(&id);
    let token = Some(desk.server.alice.token.as_str());
    for query in ["", "?decision=allowed-once"] {
        let target = format!("{}/interactions/{id}/decision{query}", desk.session);
        let purpose = [("Sec-Purpose", "prefetch")];
        assert_eq!(
            desk.server
                .ask_with("GET", &target, token, &purpose, b"")
                .status,
            405
        );
        assert_eq!(desk.server.ask("HEAD", &target, token).status, 405);
    }
    assert_eq!(desk.item(&id), item);
}

/// HT-04: while the first request of a key is under way, its repeat is told so, and another principal's is not
/// concerned.
#[test]
fn ht_04_a_repeat_while_the_first_is_under_way_is_told_so() {
    let desk = Desk::new();
    let target = format!("{}/interactions", desk.session);
    let post = |who: &Person| {
        let fields = [
            ("Content-Type", "application/json"),
            ("Idempotency-Key", "k"),
        ];
        let body = approval().to_string();
        desk.server
            .ask_with("POST", &target, Some(&who.token), &fields, body.as_bytes())
    };
    let gate = desk.server.calls.hold_appends();
    desk.server.calls.take();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| post(&desk.server.host));
        eventually("the first is under way", || {
            desk.server.calls.has("journal.append")
        });
        let repeat = post(&desk.server.host);
        assert_eq!(refusal(&repeat), (409, "idempotency-key-in-use".to_owned()));
        let other = post(&desk.server.alice);
        assert_eq!(other.status, 403, "an owner does not ask: {}", other.text());
        drop(gate);
        assert_eq!(first.join().unwrap().status, 201);
    });
    assert_eq!(
        post(&desk.server.host).status,
        201,
        "and is answered afterwards"
    );
    assert_eq!(desk.pending().len(), 1);
}

#[test]
fn ht_04_a_repeat_under_a_key_is_answered_and_not_done_again() {
    let desk = Desk::new();
    let target = format!("{}/interactions", desk.session);
    let post = |target: &str, who: &Person, key: &str, body: &Value| {
        let fields = [
            ("Content-Type", "application/json"),
            ("Idempotency-Key", key),
        ];
        let body = body.to_string();
        desk.server
            .ask_with("POST", target, Some(&who.token), &fields, body.as_bytes())
    };
    let first = post(&target, &desk.server.host, "k", &approval());
    let again = post(&target, &desk.server.host, "k", &approval());
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    assert_eq!(desk.pending().len(), 1);
    let mut other = approval();
    other["reason"] = json!("something else");
    let reused = post(&target, &desk.server.host, "k", &other);
    assert_eq!(refusal(&reused), (422, "idempotency-key-reused".to_owned()));
    let id = first.json()["requestId"].as_str().unwrap().to_owned();
    let form = answer(&desk.item(&id), "allowed-once");
    let decision = format!("{target}/{id}/decision");
    // The same key of another principal, on another route, is another key.
    let first = post(&decision, &desk.server.alice, "k", &form);
    let again = post(&decision, &desk.server.alice, "k", &form);
    assert_eq!((first.status, again.status), (200, 200), "{}", again.text());
    assert_eq!(first.body, again.body);
    let without = desk.decide(&id, &form);
    assert_eq!(refusal(&without), (410, "already-decided".to_owned()));
}

#[test]
fn ht_05_no_refusal_names_a_path_or_another_session() {
    let desk = Desk::new();
    let other = desk
        .server
        .session(&[&desk.server.bob])
        .replace("/v1/sessions/", "");
    let id = desk.ask();
    let item = desk.item(&id);
    let mut texts = Vec::new();
    for (fact, value) in [
        ("bridgeGeneration", json!(99)),
        ("hostId", json!("x")),
        ("session", json!(other)),
        ("turn", json!(9)),
        ("decision", json!("maybe")),
        ("extra", json!(1)),
    ] {
        let mut form = answer(&item, "allowed-once");
        form[fact] = value;
        texts.push(desk.decide(&id, &form).text());
    }
    let here = desk.server.data().to_string_lossy().into_owned();
    for text in texts {
        for secret in [other.as_str(), here.as_str(), "src/", "panicked"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn ht_06_the_ways_to_be_late_are_told_apart() {
    let desk = Desk::new();
    let mut codes = Vec::new();
    let unknown = "i_00000000000000000000000000000000";
    let mut form = answer(&desk.item(&desk.ask()), "rejected");
    form["requestId"] = json!(unknown);
    codes.push(desk.decide(unknown, &form).code());
    let id = desk.ask();
    let form = answer(&desk.item(&id), "rejected");
    desk.decide(&id, &form);
    codes.push(desk.decide(&id, &form).code());
    let id = desk.ask();
    let form = answer(&desk.item(&id), "rejected");
    desk.server.ask(
        "DELETE",
        &format!("{}/interactions/{id}", desk.session),
        Some(&desk.server.host.token),
    );
    codes.push(desk.decide(&id, &form).code());
    let id = desk.ask();
    let form = answer(&desk.item(&id), "rejected");
    desk.turn("turn/end", 1);
    codes.push(desk.decide(&id, &form).code());
    desk.turn("turn/start", 2);
    let id = desk.ask();
    let form = answer(&desk.item(&id), "rejected");
    for _ in 0..13 {
        desk.server.clock.advance(Duration::from_secs(10));
        assert_eq!(
            desk.stream.acknowledge(&desk.server, &desk.server.alice),
            200
        );
    }
    codes.push(desk.decide(&id, &form).code());
    assert_eq!(
        codes,
        [
            "interaction-unknown",
            "already-decided",
            "withdrawn",
            "stale-turn",
            "expired"
        ]
    );
}

#[test]
fn ap_11_what_cannot_be_logged_is_an_error_and_no_grant() {
    let desk = Desk::new();
    desk.server.calls.let_appends_through(Some(0));
    let failed = desk.put(&approval());
    assert_eq!(refusal(&failed), (500, "journal".to_owned()));
    assert!(
        desk.pending().is_empty(),
        "nobody is shown what is not in the log"
    );
    desk.server.calls.let_appends_through(Some(1));
    let id = desk.ask();
    let form = answer(&desk.item(&id), "allowed-once");
    assert_eq!(desk.decide(&id, &form).json()["auditPersisted"], false);
    let target = format!("{}/interactions/{id}?waitSeconds=20", desk.session);
    let told = desk.server.get(&target, &desk.server.host);
    assert_eq!(
        refusal(&told),
        (500, "journal".to_owned()),
        "{}",
        told.text()
    );
    desk.server.calls.let_appends_through(None);
    let log = desk.log();
    let rows = |kind: &str| log.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((rows("approval/asked"), rows("approval/decided")), (1, 0));
}

/// The end is told before its row is durable: a service that stops between the two leaves the first
/// row alone, and nothing waits in the next one.
#[test]
fn mx_09_an_end_that_was_told_claims_no_durability() {
    let mut desk = Desk::new();
    let id = desk.ask();
    let item = desk.stream.until("approval/requested").data;
    let gate = desk.server.calls.hold_appends();
    let decided = desk.decide(&id, &answer(&item, "allowed-once"));
    assert_eq!(decided.json()["auditPersisted"], false);
    desk.stream.until("approval/resolved");
    let log = desk.log();
    assert_eq!(log.last().unwrap()["type"], "approval/asked");
    let told = desk.server.get(
        &format!("{}/interactions/{id}", desk.session),
        &desk.server.host,
    );
    assert_eq!(told.json()["state"], "pending", "the host has no grant yet");
    // What a new process finds: this log, and nothing of the memory.
    let hosts = holdfast::http::AllowedHosts::default();
    let options = holdfast::transfer::live::LiveOptions {
        interactive: true,
        ..Default::default()
    };
    let anew = holdfast::http::App::new(desk.server.parts.clone(), hosts, options);
    let handle = desk.session.replace("/v1/sessions/", "").parse_handle();
    let pending = desk.server.block_on(async { anew.live().pending(handle) });
    assert!(pending.is_empty());
    drop(gate);
    assert_eq!(desk.told(&id)["outcome"], "allowed-once");
    desk.assert_audited("allowed-once");
}

#[test]
fn br_03_a_session_is_its_hosts_by_exact_id_alone() {
    let desk = Desk::new();
    let name = holdfast::access::PrincipalName::parse("host-2").unwrap();
    let kind = holdfast::access::PrincipalKind::Host;
    let access = &desk.server.parts.access;
    let who = access.create_principal(kind, name).unwrap();
    let token = access
        .issue_token(who.id, "test", None)
        .unwrap()
        .token
        .reveal();
    let other = Person { who, token };
    let own = desk
        .server
        .post("/v1/sessions", &other, &json!({"id": desk.session}));
    assert_eq!(
        own.status, 201,
        "its own session may be called like another's"
    );
    let target = format!("{}/interactions", desk.session);
    for target in [target.clone(), format!("{}0/interactions", desk.session)] {
        let refused = desk.server.post(&target, &other, &approval());
        assert_eq!(refusal(&refused), (404, "not-found".to_owned()));
    }
    assert!(desk.pending().is_empty());
    assert_eq!(desk.log().len(), 1);
}
