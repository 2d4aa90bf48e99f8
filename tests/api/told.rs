//! Releases on the event stream: questions, how they end, and how far a copy is.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use holdfast::{model::ByteCount, transfer::release::tidy};
use serde_json::{Value, json};

use crate::{
    releases::Scene,
    support::{Options, Server, sse::Sse},
};

fn stream(server: &Server) -> Sse {
    Sse::open(server, &server.alice, None)
}

/// Reads bob's stream up to a session of his own that is added now: whatever was told before has been seen.
pub(crate) fn until_own_session(server: &Server, bob: &mut Sse) {
    let own = server.session(&[&server.bob]);
    let added = bob.until("host/session-added").data["session"].clone();
    assert_eq!(format!("/v1/sessions/{}", added.as_str().unwrap()), own);
}

/// E02 and E08 for releases: a question reappears under its id on every new stream until it ends, and
/// each way it ends is told.
#[test]
fn a_release_that_waits_is_told_and_so_is_its_end() {
    let scene = Scene::new();
    let server = &scene.server;
    let mut early = stream(server);
    scene.file("a.txt", b"one");
    let ask = scene.ask_for("a.txt").json();
    assert_eq!(early.until("release/requested").data, ask);
    let late = stream(server);
    let replayed = late.all("release/requested");
    let replayed: Vec<&Value> = replayed.iter().map(|frame| &frame.data).collect();
    assert_eq!(replayed, [&ask]);

    let decided = scene.decide(&server.alice, &ask, "allowed-once").json();
    let told = early.until("release/resolved").data;
    assert_eq!(
        told,
        json!({"session": scene.session, "requestId": ask["requestId"],
            "outcome": "allowed-once", "receipt": decided["receipt"]["receipt"]})
    );
    scene.file("b.txt", b"two");
    let seq = scene.present(&json!([{"path": "b.txt"}]));
    let first = scene.release(seq).json();
    scene.file("b.txt", b"other");
    let second = scene.release(seq).json();
    let withdrawn = early.until("release/resolved").data;
    assert_eq!(
        (&withdrawn["requestId"], &withdrawn["outcome"]),
        (&first["requestId"], &json!("withdrawn"))
    );
    server.clock.advance(Duration::from_hours(24));
    tidy(server.app.live(), &server.parts);
    let expired = early.until("release/resolved").data;
    assert_eq!(
        (&expired["requestId"], &expired["outcome"]),
        (&second["requestId"], &json!("expired"))
    );
    assert!(stream(server).all("release/requested").is_empty());
}

/// Keeps I14.
#[test]
fn a_release_is_told_to_nobody_else() {
    let scene = Scene::new();
    let server = &scene.server;
    let mut bob = Sse::open(server, &server.bob, None);
    scene.file("a.txt", b"one");
    let ask = scene.ask_for("a.txt").json();
    scene.decide(&server.alice, &ask, "rejected");
    until_own_session(server, &mut bob);
    let told = bob
        .seen
        .iter()
        .filter(|one| one.event.starts_with("release"));
    assert_eq!(told.count(), 0);
    assert!(
        Sse::open(server, &server.bob, None)
            .all("release/requested")
            .is_empty()
    );
}

/// A decision that comes while its question is still being told is told after it.
#[test]
fn a_question_is_told_before_its_end() {
    let scene = Scene::new();
    let server = &scene.server;
    let mut stream = stream(server);
    for round in 0..30 {
        let path = format!("f{round}");
        scene.file(&path, path.as_bytes());
        let seq = scene.present(&json!([{ "path": path }]));
        std::thread::scope(|scope| {
            let releasing = scope.spawn(|| scene.release(seq));
            loop {
                let pending = scene.pending();
                if let Some(ask) = pending.first() {
                    let decided = scene.decide(&server.alice, ask, "rejected");
                    assert_eq!(decided.status, 200, "{}", decided.text());
                    break;
                }
            }
            releasing.join().unwrap();
        });
        stream.until("release/resolved");
        let told: Vec<_> = stream
            .seen
            .iter()
            .filter(|frame| frame.event.starts_with("release/re"))
            .map(|frame| frame.event.as_str())
            .collect();
        assert_eq!(told.len(), 2 * (round + 1), "{told:?}");
        assert_eq!(told[2 * round], "release/requested");
    }
}

/// Ends a writer, also when a test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A release that takes its time says how far it is, to the one who asked and nobody else.
#[test]
fn progress_is_told_while_a_release_goes_on() {
    let scene = Scene::proven(Options {
        max_file: ByteCount::mib(8),
        ..Options::default()
    });
    let server = &scene.server;
    let (mut alice, mut host) = (stream(server), Sse::open(server, &server.host, None));
    scene.file("moving", &vec![1; 8 << 20]);
    let seq = scene.present(&json!([{"path": "moving"}]));
    let (path, stop) = (scene.root().join("moving"), AtomicBool::new(false));
    let writes = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        scope.spawn(|| {
            let file = File::options().write(true).open(path).unwrap();
            let mut n = 0_u8;
            while !stop.load(Ordering::Relaxed) {
                n = n.wrapping_add(1);
                file.write_all_at(&[n; 4096], 0).unwrap();
                writes.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        while writes.load(Ordering::Relaxed) < 10 {
            std::thread::yield_now();
        }
        let releasing = scope.spawn(|| {
            let token = Some(server.alice.token.as_str());
            let target = scene.item(seq, 0, "release?wait=60");
            server.ask("POST", &target, token)
        });
        let progress = loop {
            let progress = alice.until("release/progress").data;
            if progress["bytes"].as_u64().unwrap() > 0 {
                break progress;
            }
        };
        drop(stops);
        assert_eq!(progress["session"], json!(scene.session));
        assert_eq!(
            (&progress["seq"], &progress["index"]),
            (&json!(seq), &json!(0))
        );
        let done = releasing.join().unwrap();
        assert_eq!(done.status, 202, "{}", done.text());
    });
    host.until("release/requested");
    assert!(host.all("release/progress").is_empty());
}
