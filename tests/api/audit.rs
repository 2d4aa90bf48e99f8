//! What was given, refused and promised is in the audit trail, whole, and nothing is given out that cannot be.

use std::time::Duration;

use holdfast::{
    audit::{Standing, Trail, verify},
    model::ByteCount,
    seal::SealKey,
    transfer::release::tidy,
};
use serde_json::{Value, json};

use crate::{
    doors::{DOORS, House},
    releases::Scene,
    support::{
        Server,
        server::{content, eventually, id, request},
    },
};

/// The lines so far, checked.
fn lines(server: &Server) -> Vec<Value> {
    let data = std::fs::File::open(server.data().join("data")).unwrap();
    let trail = Trail::read(&data).unwrap().unwrap();
    let found = verify(&trail, &SealKey::new([7; 32]), None).unwrap();
    assert_eq!(found.fault, None);
    let mut all = Vec::new();
    trail
        .lines(None, |line| {
            all.push(serde_json::from_str(line).unwrap());
            true
        })
        .unwrap();
    all
}

/// The first line that says all of this, once it is written.
pub(crate) fn line(server: &Server, wanted: &Value) -> Value {
    let says = |line: &Value| {
        let mut wanted = wanted.as_object().unwrap().iter();
        wanted.all(|(key, value)| line.get(key) == Some(value))
    };
    let mut found = None;
    eventually("a line of the audit", || {
        found = lines(server).into_iter().find(says);
        found.is_some()
    });
    found.unwrap()
}

/// Takes the audit its room away.
fn fill(server: &Server) {
    let audit = &server.parts.audit;
    audit.fail_with(rustix::io::Errno::NOSPC.raw_os_error());
    eventually("a full audit", || {
        server.get("/v1/sessions/s_0/snapshot", &server.alice);
        audit.standing() == Standing::Full
    });
}

/// L02: each delivery is there with who, what and how many bytes, by whichever door.
#[test]
fn l02_every_delivery_is_recorded_with_who_what_and_how_much() {
    let house = House::new();
    let server = house.server();
    let alice = json!(server.alice.who.id);
    for door in &DOORS {
        let bytes = format!("through {}", door.name);
        let behind = house.open(door, "a.txt", bytes.as_bytes());
        assert_eq!(behind.ask(server, "HEAD", &[]).status, 200);
        let got = behind.get(server);
        assert_eq!(got.status, 200, "{}", door.name);
        let len = json!(behind.bytes.len());
        let about = json!({"attachmentId": id(&behind.bytes), "who": alice});
        let begun = line(server, &merged(&about, &json!({"event": "sending"})));
        assert_eq!((&begun["bytes"], &begun["of"]), (&len, &len), "{begun}");
        let done = line(server, &merged(&about, &json!({"event": "sent"})));
        assert_eq!(done["bytes"], len, "{done}");
        assert_eq!(done.get("ticket").is_some(), door.name == "ticket");
        let part = behind.ask(server, "GET", &[("Range", "bytes=2-4")]);
        assert_eq!(part.status, 206);
        line(
            server,
            &merged(&about, &json!({"event": "sent", "bytes": 3})),
        );
        // HEAD gave nothing out.
        let sent = lines(server).into_iter().filter(|line| {
            line["event"] == "sending" && line["attachmentId"] == about["attachmentId"]
        });
        assert_eq!(sent.count(), 2, "{}", door.name);
    }
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut all = one.clone();
    let other = other.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(other);
    all
}

/// L02 for what did not arrive: the line says how much had been handed over.
#[test]
fn l02_a_transfer_that_is_cut_is_recorded_as_aborted() {
    let house = House::new();
    let server = house.server();
    let len = 24 << 20;
    let bytes = content(len, 5);
    for door in DOORS.iter().filter(|door| door.name != "ticket") {
        let behind = house.open(door, "large.bin", &bytes);
        let mut client = server.connect();
        client.send(&behind.request("GET", &[])).unwrap();
        assert_eq!(client.read_head().status, 200);
        client.read_body(4096);
        drop(client);
        let wanted = json!({"event": "aborted", "attachmentId": id(&behind.bytes)});
        let cut = line(server, &wanted);
        let handed = cut["bytes"].as_u64().unwrap();
        assert!(handed > 0 && handed < ByteCount::from(len).get(), "{cut}");
        assert_eq!(cut["of"], json!(behind.bytes.len()));
    }
}

/// L02 for refusals: of somebody known with the code, of nobody known as a number. No secret is in any line.
#[test]
fn l02_refusals_are_recorded_and_secrets_are_not() {
    let house = House::new();
    let server = house.server();
    let ticket = house.open(&DOORS[1], "a.txt", b"by ticket");
    let behind = house.open(&DOORS[0], "a.txt", b"alice's");
    let target = behind.target.split('?').next().unwrap();
    assert_eq!(server.get(target, &server.bob).status, 404);
    let session = target.split('/').nth(3).unwrap();
    let refused = line(
        server,
        &json!({"event": "refused", "who": server.bob.who.id}),
    );
    assert_eq!(
        (
            &refused["code"],
            &refused["session"],
            &refused["attachmentId"]
        ),
        (&json!("not-found"), &json!(session), &json!(id(b"alice's")))
    );
    for (target, token) in [
        (target, None),
        (target, Some("hf_wrong")),
        ("/d/hfd_wrong", None),
    ] {
        let octets = request("GET", target, token, &[], None);
        assert!(server.connect().ask(&octets).status >= 400);
    }
    assert_eq!(ticket.get(server).status, 200);
    line(
        server,
        &json!({"event": "sent", "attachmentId": id(b"by ticket")}),
    );
    line(
        server,
        &json!({"event": "ticket-made", "who": server.alice.who.id}),
    );
    server.parts.audit.finish();
    let unknown = line(server, &json!({"event": "refused-unknown"}));
    assert_eq!(unknown["times"], 3, "{unknown}");
    let text = format!("{:?}", lines(server));
    let secret = ticket.target.rsplit('/').next().unwrap();
    for secret in [
        server.alice.token.as_str(),
        server.bob.token.as_str(),
        secret,
    ] {
        assert!(!text.contains(secret), "{secret}");
    }
    let path = server.data().to_string_lossy().into_owned();
    assert!(!text.contains(&path));
}

/// Nothing is given out that cannot be recorded, by whichever door; and everything is again once it can be.
#[test]
fn without_an_audit_nothing_is_given_out() {
    let house = House::new();
    let server = house.server();
    let all: Vec<_> = DOORS
        .iter()
        .map(|door| (door.name, house.open(door, "a.txt", door.name.as_bytes())))
        .collect();
    let audit = &server.parts.audit;
    fill(server);
    for (name, behind) in &all {
        for range in [&[][..], &[("Range", "bytes=0-0")]] {
            let refused = behind.ask(server, "GET", range);
            assert_eq!(refused.status, 503, "{name}");
            assert_eq!(refused.code(), "audit-unavailable", "{name}");
            assert!(refused.field("retry-after").is_some());
        }
    }
    audit.fail_with(0);
    eventually("room", || audit.standing() == Standing::Open);
    for (name, behind) in &all {
        assert_eq!(behind.get(server).body, behind.bytes, "{name}");
    }
    server.parts.audit.finish();
    assert!(lines(server).iter().any(|line| line["event"] == "refused"));
}

/// The same for releases: no copy is made, nothing asked, nobody's yes taken.
#[test]
fn without_an_audit_nothing_is_released_and_every_step_of_a_release_is_recorded() {
    let scene = Scene::new();
    let server = &scene.server;
    let alice = json!(server.alice.who.id);
    let own = json!(scene.session);
    scene.file("a.txt", b"one");
    scene.file("b.txt", b"two");
    let ask = scene.ask_for("a.txt").json();
    let audit = &server.parts.audit;
    fill(server);
    let yes = scene.decide(&server.alice, &ask, "allowed-once");
    assert_eq!(
        (yes.status, yes.code().as_str()),
        (503, "audit-unavailable")
    );
    server.calls.take();
    let (token, other) = (Some(server.alice.token.as_str()), scene.ask_for("b.txt"));
    assert_eq!(other.code(), "audit-unavailable");
    let archive = format!("/v1/sessions/{}/archive", scene.session);
    assert_eq!(
        server.ask("POST", &archive, token).code(),
        "audit-unavailable"
    );
    let calls = server.calls.take();
    assert!(
        !calls.contains(&"store.spool"),
        "nothing is copied: {calls:?}"
    );
    assert_eq!(server.objects(), 1, "the one that waited before");
    audit.fail_with(0);
    eventually("room", || audit.standing() == Standing::Open);

    let yes = scene.decide(&server.alice, &ask, "allowed-once").json();
    let asked = json!({"event": "asked", "who": alice, "session": own, "name": "a.txt"});
    assert_eq!(line(server, &asked)["attachmentId"], ask["attachmentId"]);
    let released = json!({"event": "released", "who": alice, "bytes": 3,
        "receipt": yes["receipt"]["receipt"]});
    assert_eq!(line(server, &released)["attachmentId"], ask["attachmentId"]);
    let no = scene.ask_for("b.txt").json();
    scene.decide(&server.alice, &no, "rejected");
    line(
        server,
        &json!({"event": "rejected", "attachmentId": no["attachmentId"]}),
    );
    scene.file("c.txt", b"three");
    assert_eq!(scene.ask_for("c.txt").status, 202);
    server.clock.advance(Duration::from_hours(24));
    tidy(server.app.live(), &server.parts);
    line(
        server,
        &json!({"event": "lapsed", "code": "expired", "session": own}),
    );
    server.attach(&format!("/v1/sessions/{}", scene.session), "u.txt", b"up");
    line(
        server,
        &json!({"event": "uploaded", "attachmentId": id(b"up"), "bytes": 2}),
    );
}
