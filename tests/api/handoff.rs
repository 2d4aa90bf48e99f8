//! The handoff protocol: refused where there is no executor, and with the simulator a way to try all of
//! it in which nothing is ever done.

use std::{os::unix::fs::symlink, time::Duration};

use holdfast::transfer::live::Executors;
use serde_json::{Value, json};

use crate::support::{
    Answer, Server,
    server::{Options, Person, eventually},
    sse::Sse,
};

const INTENT: &str = r#"{"version":1,"kind":"read-file","path":"notes.txt","maxBytes":10}"#;

fn simulated() -> Server {
    Server::with(&Options {
        executors: Executors::Simulator,
        ..Options::default()
    })
}

fn append(server: &Server, session: &str, kind: &str, data: &Value) {
    let form = json!({"events": [{"type": kind, "data": data}]});
    let answer = server.post(&format!("{session}/events"), &server.host, &form);
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// A session of alice with an open turn, and alice present.
struct Scene {
    server: Server,
    session: String,
    stream: Sse,
}

impl Scene {
    fn new() -> Self {
        let server = simulated();
        let session = server.session(&[&server.alice]);
        append(&server, &session, "turn/start", &json!({"turn": 1}));
        let stream = Sse::open(&server, &server.alice, None);
        assert_eq!(stream.acknowledge(&server, &server.alice), 200);
        Self {
            server,
            session,
            stream,
        }
    }

    fn offer_of(&self, intent: &str) -> Answer {
        let form = format!(r#"{{"agent":"a","intent":{intent}}}"#);
        let target = format!("{}/handoff/offers", self.session);
        post(&self.server, &target, &self.server.alice, &[], &form)
    }

    fn offer(&self) -> Value {
        let answer = self.offer_of(INTENT);
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    fn ask(&self, offer: &Value, step: &str, key: &str) -> Answer {
        let target = format!(
            "{}/handoff/offers/{}/{step}",
            self.session, offer["offerId"]
        );
        let form = json!({"actionDigest": offer["actionDigest"]}).to_string();
        let key = [("Idempotency-Key", key)];
        post(&self.server, &target, &self.server.alice, &key, &form)
    }

    /// What waits now, once something does.
    fn asked(&self) -> Value {
        let target = format!("{}/interactions", self.session);
        let mut found = Value::Null;
        eventually("the person is asked", || {
            let list = self.server.get(&target, &self.server.alice).json();
            found = list["pendingInteractions"][0].clone();
            !found.is_null()
        });
        found
    }

    fn decide(&self, decision: &str) {
        let item = self.asked();
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
        let id = item["requestId"].as_str().unwrap();
        let target = format!("{}/interactions/{id}/decision", self.session);
        let answer = self.server.post(&target, &self.server.alice, &form);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Executes, with `meanwhile` done once the person was asked.
    fn execute(&self, offer: &Value, key: &str, meanwhile: impl FnOnce(&Self)) -> Answer {
        std::thread::scope(|scope| {
            let executing = scope.spawn(|| self.ask(offer, "execute", key));
            meanwhile(self);
            executing.join().unwrap()
        })
    }

    fn standing(&self, offer: &Value) -> Value {
        let target = format!("{}/handoff", self.session);
        let list = self.server.get(&target, &self.server.alice).json();
        let offers = list["offers"].as_array().unwrap();
        let own = offers.iter().find(|one| one["offerId"] == offer["offerId"]);
        own.cloned().unwrap_or_default()
    }
}

fn post(
    server: &Server,
    target: &str,
    who: &Person,
    fields: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut fields = fields.to_vec();
    fields.push(("Content-Type", "application/json"));
    server.ask_with("POST", target, Some(&who.token), &fields, body.as_bytes())
}

/// Keeps I8.
#[test]
fn ho_01_ho_02_without_an_executor_every_call_is_refused_before_anything_is_looked_at() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    append(&server, &session, "turn/start", &json!({"turn": 1}));
    let digest = json!({"actionDigest": "0".repeat(64)}).to_string();
    let good = format!(r#"{{"agent":"a","intent":{INTENT}}}"#);
    let forged = json!({
        "agent": "a", "intent": {}, "approved": true, "executor": true, "localHandoff": true,
        "confirmed": true, "simulated": false, "executesLocally": true,
    });
    let calls = [
        ("offers", good.as_str()),
        ("offers", &forged.to_string()),
        ("offers", "not json"),
        ("offers/1/validate", &digest),
        ("offers/1/execute", &digest),
        ("offers/1/execute", r#"{"approved":true}"#),
        ("offers/1/cancel", &digest),
    ];
    server.calls.take();
    for (step, body) in calls {
        let target = format!("{session}/handoff/{step}");
        let key = [("Idempotency-Key", "k")];
        let answer = post(&server, &target, &server.alice, &key, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (409, "executor-unavailable"),
            "{step} {body}"
        );
    }
    let listed = server.get(&format!("{session}/handoff"), &server.alice);
    assert_eq!(listed.code(), "executor-unavailable");
    // Who asks was looked up, and neither log nor store was.
    assert_eq!(server.calls.take(), [""; 0]);
    let host = server.ask("GET", "/v1/host", None).json();
    let capabilities = &host["capabilities"];
    assert_eq!(capabilities["localHandoff"], false);
    assert_eq!(
        capabilities["localHandoffDetails"],
        json!({"reason": "executor-unavailable", "executesLocally": false})
    );
}

/// Keeps I8: not even the simulator makes it true.
#[test]
fn a_simulator_is_no_local_handoff() {
    let server = simulated();
    let host = server.ask("GET", "/v1/host", None).json();
    assert_eq!(host["capabilities"]["localHandoff"], false);
    let details = &host["capabilities"]["localHandoffDetails"];
    assert_eq!(
        details,
        &json!({"reason": "simulation-only", "executesLocally": false})
    );
}

#[test]
fn an_offer_says_what_it_would_come_to_and_what_it_is_bound_to() {
    let scene = Scene::new();
    let offer = scene.offer();
    assert_eq!(
        offer["plan"],
        "the assistant wants at most 10 bytes of `notes.txt` from your computer; nothing was read"
    );
    assert_eq!(offer["source"]["turnStartSeq"], 0);
    assert_eq!(offer["executor"]["kind"], "simulation");
    let valid = scene.ask(&offer, "validate", "k");
    assert_eq!((valid.status, valid.json()), (200, offer.clone()));
    assert_eq!(scene.standing(&offer), offer);
    let forms = [
        (r#"{"agent":"a"}"#, "malformed"),
        (r#"{"agent":"","intent":{}}"#, "malformed"),
        (
            r#"{"agent":"a","intent":{},"approved":true}"#,
            "unknown-member",
        ),
    ];
    for (form, code) in forms {
        let target = format!("{}/handoff/offers", scene.session);
        let answer = post(&scene.server, &target, &scene.server.alice, &[], form);
        assert_eq!(answer.code(), code, "{form}");
    }
    for (intent, status, code) in [
        (r#"{"version":2}"#, 422, "intent-invalid"),
        (
            r#"{"version":1,"kind":"read-file","path":"../a","maxBytes":1}"#,
            422,
            "path-refused",
        ),
        (
            r#"{"version":1,"kind":"read-file","path":"a"}"#,
            422,
            "bound-missing",
        ),
        (
            r#"{"version":1,"kind":"read-file","path":"a","maxBytes":1,"cwd":"/"}"#,
            400,
            "unknown-member",
        ),
        (
            r#"{"version":1,"kind":"read-file","path":"a","path":"b","maxBytes":1}"#,
            422,
            "intent-invalid",
        ),
    ] {
        let answer = scene.offer_of(intent);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{intent}"
        );
    }
    // The host runs the agent, and does not say yes for the person.
    let target = format!("{}/handoff", scene.session);
    assert_eq!(scene.server.get(&target, &scene.server.host).status, 403);
}

/// Keeps I8.
#[test]
fn ho_14_every_receipt_says_that_nothing_was_executed() {
    let mut scene = Scene::new();
    let offer = scene.offer();
    let answer = scene.execute(&offer, "one", |scene| {
        let item = scene.asked();
        assert_eq!(item["toolName"], "local-handoff");
        assert_eq!(item["presentation"], offer["plan"]);
        assert_eq!(scene.standing(&offer)["state"], "asked");
        scene.decide("allowed-once");
    });
    assert_eq!(answer.status, 200, "{}", answer.text());
    let receipt = answer.json();
    let generation = &offer["executor"]["generation"];
    assert_eq!(
        receipt,
        json!({
            "receiptVersion": 1, "offerId": offer["offerId"], "requestId": "one",
            "actionDigest": offer["actionDigest"],
            "executor": {"id": "simulator", "kind": "simulation", "generation": generation},
            "simulated": true, "executed": false, "outcome": "simulated",
            "issuedAt": receipt["issuedAt"],
        })
    );
    // A repeat gets the first answer, another execution none.
    assert_eq!(scene.ask(&offer, "execute", "one").json(), receipt);
    let again = scene.ask(&offer, "execute", "two");
    assert_eq!(
        (again.status, again.code().as_str()),
        (410, "offer-retired")
    );
    assert_eq!(scene.standing(&offer)["receipt"], receipt);
    // The question and its answer stand in the log as any other.
    scene.stream.until("approval/resolved");
    let target = format!("{}/events", scene.session);
    let log = scene.server.get(&target, &scene.server.alice).json();
    let kinds: Vec<&str> = log["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["turn/start", "approval/asked", "approval/decided"]);
}

#[test]
fn an_execution_needs_a_key_and_the_offer_s_digest() {
    let scene = Scene::new();
    let offer = scene.offer();
    let target = format!("{}/handoff/offers/1/execute", scene.session);
    let good = json!({"actionDigest": offer["actionDigest"]}).to_string();
    let keyless = post(&scene.server, &target, &scene.server.alice, &[], &good);
    assert_eq!(
        (keyless.status, keyless.code().as_str()),
        (400, "malformed")
    );
    for step in ["validate", "execute", "cancel"] {
        let mut forged = offer.clone();
        forged["actionDigest"] = json!("0".repeat(64));
        let answer = scene.ask(&forged, step, "k");
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (422, "digest-mismatch")
        );
        forged["offerId"] = json!(7);
        let answer = scene.ask(&forged, step, "k");
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "offer-unknown")
        );
    }
    assert_eq!(scene.standing(&offer)["state"], "offered");
    let yes = scene.execute(&offer, "k", |scene| scene.decide("allowed-once"));
    assert_eq!(yes.status, 200);
    let key = [("Idempotency-Key", "k")];
    let other = json!({"actionDigest": "1".repeat(64)}).to_string();
    let reused = post(&scene.server, &target, &scene.server.alice, &key, &other);
    assert_eq!(reused.code(), "idempotency-key-reused");
}

#[test]
fn ho_08_of_many_that_execute_at_once_one_is_dispatched() {
    let scene = Scene::new();
    let offer = scene.offer();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let (scene, offer) = (&scene, &offer);
        let racers: Vec<_> = (0..16)
            .map(|n| scope.spawn(move || scene.ask(offer, "execute", &format!("k{n}"))))
            .collect();
        scene.decide("allowed-once");
        racers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let taken = answers.iter().filter(|answer| answer.status == 200);
    assert_eq!(taken.count(), 1);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.code(), "offer-retired");
    }
    let list = scene
        .server
        .get(
            &format!("{}/interactions", scene.session),
            &scene.server.alice,
        )
        .json();
    assert_eq!(
        list["pendingInteractions"],
        json!([]),
        "one question was put"
    );
}

#[test]
fn ho_10_what_changes_while_the_person_is_asked_stops_it() {
    let scene = Scene::new();
    let offer = scene.offer();
    let stale = scene.execute(&offer, "k", |scene| {
        scene.asked();
        append(&scene.server, &scene.session, "turn/end", &json!({}));
        append(
            &scene.server,
            &scene.session,
            "turn/start",
            &json!({"turn": 1}),
        );
    });
    assert_eq!((stale.status, stale.code().as_str()), (409, "scope-stale"));
    assert_eq!(stale.json()["field"], "turn");
    assert_eq!(scene.standing(&offer)["code"], "scope-stale");
    // Another agent asks: the one the offer is from was replaced.
    let offer = scene.offer();
    let stale = scene.execute(&offer, "l", |scene| {
        scene.asked();
        let form = json!({"kind": "approval", "agent": "b", "toolName": "shell", "reason": "x"});
        let target = format!("{}/interactions", scene.session);
        let asked = scene.server.post(&target, &scene.server.host, &form);
        assert_eq!(asked.status, 201);
    });
    assert_eq!((stale.status, stale.code().as_str()), (409, "scope-stale"));
    assert_eq!(stale.json()["field"], "agent");
    // And while that one waits, an offer of another does not take its place.
    let refused = scene.offer_of(INTENT);
    assert_eq!(refused.json()["field"], "agent");
    assert_eq!(scene.asked()["toolName"], "shell");
}

#[test]
fn ho_10_an_offer_of_an_earlier_turn_is_stale() {
    let scene = Scene::new();
    let offer = scene.offer();
    append(&scene.server, &scene.session, "turn/end", &json!({}));
    for step in ["validate", "execute", "cancel"] {
        let answer = scene.ask(&offer, step, step);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (409, "scope-stale")
        );
    }
    assert_eq!(scene.offer_of(INTENT).json()["field"], "turn");
}

/// Keeps I8.
#[test]
fn ho_13_the_simulator_does_not_look_at_the_file() {
    let scene = Scene::new();
    let place = scene.server.data().join("workspace");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("plain"), b"content").unwrap();
    symlink("plain", place.join("link")).unwrap();
    let fifo = std::process::Command::new("mkfifo")
        .arg(place.join("pipe"))
        .status();
    assert!(fifo.unwrap().success());
    let form = json!({"cwd": place, "owners": [scene.server.alice.who.id.to_string()]});
    let made = scene.server.post("/v1/sessions", &scene.server.host, &form);
    let session = format!("/v1/sessions/{}", made.json()["session"].as_str().unwrap());
    append(&scene.server, &session, "turn/start", &json!({"turn": 1}));
    let scene = Scene { session, ..scene };
    let mut receipts = Vec::new();
    for path in ["pipe", "missing", "link", "plain"] {
        let intent = INTENT.replace("notes.txt", path);
        let offer = scene.offer_of(&intent).json();
        scene.server.calls.take();
        let answer = scene.execute(&offer, path, |scene| scene.decide("allowed-once"));
        let mut receipt = answer.json();
        for own in ["offerId", "actionDigest", "requestId"] {
            assert!(receipt[own].take() != Value::Null, "{own}");
        }
        receipts.push((answer.status, receipt));
    }
    assert_eq!(receipts[0].0, 200);
    assert!(
        receipts.iter().all(|one| *one == receipts[0]),
        "{receipts:?}"
    );
}

#[test]
fn ho_15_no_cancel_expiry_or_absence_lets_anything_through() {
    let scene = Scene::new();
    let offer = scene.offer();
    assert_eq!(scene.ask(&offer, "cancel", "k").status, 204);
    assert_eq!(scene.ask(&offer, "execute", "k").code(), "offer-retired");

    let offer = scene.offer();
    let stopped = scene.execute(&offer, "l", |scene| {
        scene.asked();
        assert_eq!(scene.ask(&offer, "cancel", "k").status, 204);
        scene.decide("allowed-once");
    });
    assert_eq!(stopped.code(), "offer-retired");

    let offer = scene.offer();
    let stopped = scene.execute(&offer, "m", |scene| scene.decide("rejected"));
    assert_eq!(
        (stopped.status, stopped.code().as_str()),
        (409, "confirmation-declined")
    );
    assert_eq!(
        scene.ask(&offer, "execute", "n").code(),
        "confirmation-declined"
    );

    let offer = scene.offer();
    scene.server.clock.advance(Duration::from_mins(2));
    assert_eq!(scene.ask(&offer, "execute", "o").code(), "offer-expired");
    assert_eq!(scene.standing(&offer)["code"], "offer-expired");

    // Nobody has acknowledged for two minutes: nobody can be asked.
    let offer = scene.offer();
    let alone = scene.ask(&offer, "execute", "p");
    assert_eq!(
        (alone.status, alone.code().as_str()),
        (409, "confirmation-unavailable")
    );
    for offer in 1..=5 {
        let standing = scene.standing(&json!({"offerId": offer}));
        assert_eq!(standing["receipt"], Value::Null);
    }
}
