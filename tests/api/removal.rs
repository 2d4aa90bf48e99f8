//! A session that is deleted: its host's to delete, at once nobody's, and then nowhere (G01).

use std::{fs, path::Path, time::Duration};

use holdfast::{
    access::AccessError,
    control::{ControlError, rusqlite},
    removal,
    transfer::release::{sweep, tidy},
};
use serde_json::{Value, json};

use crate::{
    audit::line,
    releases::Scene,
    support::{
        Answer, Server,
        server::{Person, eventually, id, message},
        sse::Sse,
    },
    told::until_own_session,
};

/// What must not be found on the disk afterwards.
const MARK: &str = "marked-5d1f2c";

fn delete(scene: &Scene, who: &Person) -> Answer {
    let target = format!("/v1/sessions/{}", scene.session);
    scene.server.ask("DELETE", &target, Some(&who.token))
}

/// A session of alice's under this id, as [`Scene::session`].
fn create(scene: &Scene, id: &str) -> String {
    Scene::begin(&scene.server, scene.root(), Some(id))
}

/// The files of a directory that hold the mark.
fn marked(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(marked(&path));
        } else if let Ok(content) = fs::read(&path) {
            let has = content.windows(MARK.len()).any(|at| at == MARK.as_bytes());
            found.extend(has.then(|| path.display().to_string()));
        }
    }
    found
}

/// Tables that have rows of sessions, and how many they have.
fn rows(server: &Server) -> Vec<(String, i64)> {
    let counted = server.parts.control.read(|conn| {
        let mut tables = conn.prepare(
            "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
             WHERE m.type = 'table' AND (c.name = 'session' OR m.name = 'sessions')",
        )?;
        let names = tables.query_map([], |row| row.get::<_, String>(0))?;
        let count = |name: rusqlite::Result<String>| {
            let name = name?;
            let sql = format!("SELECT count(*) FROM {name}");
            let count = conn.query_row(&sql, [], |row| row.get(0))?;
            Ok((name, count))
        };
        names.map(count).collect::<Result<_, ControlError>>()
    });
    counted.unwrap()
}

/// Content that is noted to be cleared away.
fn claims(server: &Server) -> i64 {
    let counted = server.parts.control.read(|conn| {
        let count = conn.query_row("SELECT count(*) FROM unclaimed", [], |row| row.get(0))?;
        Ok::<_, ControlError>(count)
    });
    counted.unwrap()
}

/// A session that has something of each kind, with the mark in it.
struct Full {
    /// By which its content is had.
    addresses: Vec<String>,
    ticket: String,
    waiting: Value,
}

impl Full {
    fn new(scene: &Scene) -> Self {
        let server = &scene.server;
        let target = format!("/v1/sessions/{}", scene.session);
        let says = |what: &str| format!("{MARK} {what}").into_bytes();
        let own = server.attach(&target, "own.txt", &says("own"));
        server.upload(&target, "never.txt", &server.alice, &says("never"));
        let asked = |path: &str| {
            scene.file(path, &says(path));
            scene.ask_for(path).json()
        };
        let decide = |ask: &Value, decision| {
            let decided = scene.decide(&server.alice, ask, decision);
            assert_eq!(decided.status, 200, "{}", decided.text());
            decided.json()
        };
        let yes = decide(&asked("yes.txt"), "allowed-once");
        decide(&asked("no.txt"), "rejected");
        let waiting = asked("wait.txt");
        let text = json!({"events": [{"type": "turn/start", "data": {"turn": 1, "note": MARK}}]});
        server.post(&format!("{target}/events"), &server.host, &text);
        let (held, permission) = (
            json!({"value": "read-only"}),
            format!("{target}/permission"),
        );
        let (body, json) = (held.to_string(), [("Content-Type", "application/json")]);
        let token = Some(server.alice.token.as_str());
        server.ask_with("PUT", &permission, token, &json, body.as_bytes());
        let wish = json!({"session": scene.session, "attachmentId": id(&says("own"))});
        let ticket = server.post("/v1/tickets", &server.alice, &wish);
        assert_eq!(ticket.status, 201, "{}", ticket.text());
        let content = yes["receipt"]["href"].as_str().unwrap();
        let receipt = content.strip_suffix("/content").unwrap();
        let mut addresses = vec![own, content.to_owned(), receipt.to_owned(), permission];
        let lists = ["snapshot", "events", "releases"];
        addresses.extend(lists.map(|list| format!("{target}/{list}")));
        Self {
            addresses,
            ticket: ticket.json()["href"].as_str().unwrap().to_owned(),
            waiting,
        }
    }

    fn is_had(&self, server: &Server, status: u16) {
        for path in &self.addresses {
            let answer = server.get(path, &server.alice);
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
    }
}

/// G01: bytes, rows, tickets and what was written into the log are gone, wherever they were kept; what
/// another session refers to stays; and the id is free.
#[test]
fn g01_a_deleted_session_is_nowhere_any_more() {
    let mut scene = Scene::new();
    let before = rows(&scene.server);
    scene.session = create(&scene, "to go");
    let target = format!("/v1/sessions/{}", scene.session);
    let full = Full::new(&scene);
    let server = &scene.server;
    let other = server.session(&[&server.bob]);
    server.attach(&target, "same.txt", b"shared");
    let shared = server.attach(&other, "same.txt", b"shared");
    assert!(!marked(&server.data().join("data")).is_empty());

    // It is its host's to delete, not its owners'.
    let refused = delete(&scene, &server.alice);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "forbidden")
    );
    assert_eq!(delete(&scene, &server.bob).status, 404);
    full.is_had(server, 200);

    let done = delete(&scene, &server.host);
    assert_eq!((done.status, done.body.as_slice()), (204, &b""[..]));
    full.is_had(server, 404);
    assert_eq!(server.ask("GET", &full.ticket, None).status, 404);
    assert_eq!(
        server.get("/v1/tickets", &server.alice).json()["tickets"],
        json!([])
    );
    assert_eq!(
        scene
            .decide(&server.alice, &full.waiting, "allowed-once")
            .status,
        404
    );
    assert_eq!(
        server.upload(&target, "a", &server.host, b"late").status,
        404
    );
    assert_eq!(server.refer(&target, "same.txt", b"shared").status, 404);
    assert_eq!(delete(&scene, &server.host).status, 404, "it is gone");
    let sessions = server.get("/v1/sessions", &server.host).json();
    assert!(!sessions.to_string().contains(&scene.session), "{sessions}");

    assert_eq!(server.get(&shared, &server.bob).body, b"shared");
    assert_eq!(server.objects(), 1, "what another session needs");
    assert_eq!(claims(server), 0);
    eventually("nothing of it is on the disk", || {
        marked(&server.data().join("data")).is_empty()
    });
    let log = server.attach(&other, "b.txt", b"b");
    assert_eq!(server.get(&log, &server.bob).status, 200);
    let trail = json!({"event": "session-removed", "who": server.host.who.id,
        "session": scene.session});
    line(server, &trail);
    line(
        server,
        &json!({"event": "lapsed", "code": "withdrawn", "session": scene.session}),
    );

    let again = create(&scene, "to go");
    assert_ne!(again, scene.session, "another session of the same id");
    assert!(
        before.iter().any(|(name, _)| name == "receipts"),
        "{before:?}"
    );
    scene.session = again;
    assert_eq!(delete(&scene, &scene.server.host).status, 204);
    scene.session = other.strip_prefix("/v1/sessions/").unwrap().to_owned();
    assert_eq!(delete(&scene, &scene.server.host).status, 204);
    assert_eq!(rows(&scene.server), before, "in whatever table");
    assert_eq!(scene.server.objects(), 0);
}

/// FR-11: answers, the question's end and the session's end come at once; whichever is first, at most one
/// receipt is made, and none outlives the session. Keeps I7.
#[test]
fn fr_11_decisions_expiry_and_removal_at_once_release_at_most_once() {
    let mut scene = Scene::new();
    let mut allowed = 0;
    for round in 0..40 {
        scene.session = create(&scene, &format!("round {round}"));
        scene.file("a.txt", format!("round {round}").as_bytes());
        let ask = scene.ask_for("a.txt").json();
        let server = &scene.server;
        // Sometimes the decisions have a start.
        let pause = Duration::from_micros(300 * (round % 8));
        let answers = std::thread::scope(|scope| {
            let decide = |decision| {
                let (scene, ask) = (&scene, &ask);
                scope.spawn(move || scene.decide(&scene.server.alice, ask, decision))
            };
            let answers = [
                decide("allowed-once"),
                decide("allowed-once"),
                decide("rejected"),
            ];
            let expiring = (round % 4 == 0).then(|| {
                scope.spawn(|| {
                    server.clock.advance(Duration::from_hours(24));
                    tidy(server.app.live(), &server.parts);
                })
            });
            std::thread::sleep(pause);
            assert_eq!(delete(&scene, &server.host).status, 204);
            if let Some(expiring) = expiring {
                expiring.join().unwrap();
            }
            answers.map(|answer| answer.join().unwrap())
        });
        let yes: Vec<_> = answers[..2]
            .iter()
            .filter(|one| one.status == 200)
            .collect();
        assert!(yes.len() <= 1, "{round}: two receipts");
        for answer in &answers {
            let code = match answer.status {
                200 => "",
                _ => &answer.code(),
            };
            assert!(
                [
                    "",
                    "not-found",
                    "already-decided",
                    "interaction-unknown",
                    "expired"
                ]
                .contains(&code),
                "{round}: {}",
                answer.text()
            );
        }
        for one in yes {
            allowed += 1;
            let receipt = one.json()["receipt"].clone();
            let href = receipt["href"].as_str().unwrap();
            assert_eq!(server.get(href, &server.alice).status, 404, "{round}");
        }
        eventually("nothing is left of it", || {
            server.block_on(sweep(&server.parts));
            let control = &server.parts.control;
            server.objects() == 0 && !removal::is_left(control).unwrap()
        });
        let left = rows(server)
            .into_iter()
            .filter(|(name, _)| name != "sessions");
        let kept = left.filter(|(name, count)| *count > 0 && name != "session_owners");
        assert_eq!(kept.count(), 0, "{round}: {:?}", rows(server));
    }
    assert!((1..40).contains(&allowed), "a race: {allowed} of 40");
}

/// Those who could read it are told of everything that ended with it; nobody else is told anything.
#[test]
fn the_end_of_a_session_is_told_with_all_that_waited_in_it() {
    let scene = Scene::new();
    let server = &scene.server;
    let mut all = [&server.alice, &server.host].map(|who| Sse::open(server, who, None));
    let mut bob = Sse::open(server, &server.bob, None);
    scene.file("a.txt", b"one");
    let ask = scene.ask_for("a.txt").json();
    let target = format!("/v1/sessions/{}", scene.session);
    assert_eq!(all[0].acknowledge(server, &server.alice), 200);
    let turn = json!({"events": [{"type": "turn/start", "data": {"turn": 1}}]});
    let started = server.post(&format!("{target}/events"), &server.host, &turn);
    assert_eq!(started.status, 201, "{}", started.text());
    let approval = json!({"kind": "approval", "agent": "a", "toolName": "shell", "callId": "c",
        "reason": "delete build/", "displayReason": {"en": "Delete the folder build"}});
    let asked = server.post(&format!("{target}/interactions"), &server.host, &approval);
    assert_eq!(asked.status, 201, "{}", asked.text());
    assert_eq!(delete(&scene, &server.host).status, 204);
    for stream in &mut all {
        let removed = stream.until("host/session-removed").data;
        assert_eq!(removed["session"], json!(scene.session));
        let ends: Vec<&Value> = stream
            .seen
            .iter()
            .filter(|frame| frame.event == "release/resolved")
            .map(|frame| &frame.data)
            .collect();
        let end = json!({"session": scene.session, "requestId": ask["requestId"],
            "outcome": "withdrawn"});
        assert_eq!(ends, [&end]);
        let mut seen = stream.seen.iter();
        assert!(seen.any(|frame| frame.event == "approval/resolved"));
    }
    until_own_session(server, &mut bob);
    assert!(
        bob.seen
            .iter()
            .all(|frame| !frame.data.to_string().contains(&scene.session))
    );
    assert!(
        Sse::open(server, &server.alice, None)
            .all("release/requested")
            .is_empty()
    );
}

/// Keeps I12: what is uploaded or released into a session as it goes belongs to nobody, and is not kept.
#[test]
fn what_arrives_while_a_session_goes_is_refused_and_not_kept() {
    let mut scene = Scene::new();
    let calls = scene.server.calls.clone();
    for released in [false, true] {
        scene.session = create(&scene, &format!("late {released}"));
        scene.file("a.txt", b"a release that is too late");
        let seq = scene.present(&json!([{"path": "a.txt"}]));
        let server = &scene.server;
        let target = format!("/v1/sessions/{}", scene.session);
        std::thread::scope(|scope| {
            let held = calls.hold_commits();
            calls.take();
            let arriving = scope.spawn(|| {
                if released {
                    scene.release(seq)
                } else {
                    server.upload(
                        &target,
                        "late.txt",
                        &server.host,
                        b"an upload that is too late",
                    )
                }
            });
            let mut seen = Vec::new();
            eventually("it is about to be kept", || {
                seen.extend(calls.take());
                seen.iter().any(|call| call.starts_with("store.commit"))
            });
            let removing = scope.spawn(|| delete(&scene, &server.host));
            eventually("the session is nobody's", || {
                server
                    .get(&format!("{target}/snapshot"), &server.alice)
                    .status
                    == 404
            });
            drop(held);
            let answer = arriving.join().unwrap();
            assert_eq!((answer.status, answer.code().as_str()), (404, "not-found"));
            assert_eq!(removing.join().unwrap().status, 204);
        });
        eventually("nothing is kept", || {
            server.block_on(sweep(&server.parts));
            server.objects() == 0
        });
        assert_eq!(claims(server), 0);
    }
}

/// A session whose log cannot be read can be deleted: nothing else could be done with it.
#[test]
fn a_session_with_a_damaged_log_can_be_deleted() {
    let scene = Scene::new();
    let server = &scene.server;
    let target = format!("/v1/sessions/{}", scene.session);
    server.attach(&target, "a.txt", b"text");
    let damaging = server.parts.control.write(|tx| {
        tx.execute("UPDATE events SET data = '{}'", [])?;
        Ok::<_, ControlError>(())
    });
    damaging.unwrap();
    let read = server.get(&format!("{target}/events"), &server.alice);
    assert_eq!(read.code(), "journal", "{}", read.text());
    assert_eq!(delete(&scene, &server.host).status, 204);
    assert_eq!(server.objects(), 0);
    assert!(
        rows(server).iter().all(|(_, count)| *count == 0),
        "{:?}",
        rows(server)
    );
}

/// However long it is, it goes in steps, between which others write; and what a stop left goes later.
#[test]
fn a_long_session_goes_in_steps_that_a_stop_may_part() {
    let scene = Scene::new();
    let server = &scene.server;
    let target = format!("/v1/sessions/{}", scene.session);
    server.attach(&target, "a.txt", b"text");
    for _ in 0..10 {
        let events: Vec<_> = (0..250).map(|_| message("a.txt", b"text")).collect();
        let form = json!({ "events": events });
        let answer = server.post(&format!("{target}/events"), &server.host, &form);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let handle = holdfast::model::SessionHandle::parse(&scene.session).unwrap();
    let control = &server.parts.control;
    let ended = removal::remove(control, handle).unwrap();
    assert_eq!(ended, Some(Vec::new()));
    assert_eq!(removal::remove(control, handle).unwrap(), None, "once");
    let gone = server.parts.access.read_session(&server.alice.who, handle);
    assert!(matches!(gone, Err(AccessError::Hidden)), "{gone:?}");
    let events = |all: Vec<(String, i64)>| {
        let mut all = all.into_iter();
        all.find(|(name, _)| name == "events").unwrap().1
    };
    let (mut steps, mut before) = (0, events(rows(server)));
    while removal::step(control).unwrap() {
        steps += 1;
        let now = events(rows(server));
        assert!(before - now <= 1000, "{before} {now}");
        before = now;
        assert!(steps < 100, "it comes to an end");
    }
    assert!(steps > 2, "{steps}");
    assert!(!removal::is_left(control).unwrap());
    server.block_on(sweep(&server.parts));
    assert_eq!(server.objects(), 0);
}
