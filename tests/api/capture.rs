//! J3, and what a release leaves behind however it ends.

use std::{
    fs::OpenOptions,
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use holdfast::{
    model::{ByteCount, Limits},
    transfer::release::{recover, tidy},
};
use serde_json::{Value, json};

use crate::{
    releases::Scene,
    support::{Answer, Options, server::Person},
};

impl Scene {
    /// Has the host present these files, captured at once, under a key where one is given.
    pub(crate) fn capture(&self, files: &Value, key: Option<&str>) -> Answer {
        let body = json!({"turn": 1, "callId": "c", "files": files, "capture": true});
        self.post("", &self.server.host, &body, key)
    }

    /// As [`Scene::capture`], waiting so many seconds for files to stand still.
    pub(crate) fn capture_waiting(&self, files: &Value, seconds: u64) -> Answer {
        let body = json!({"turn": 1, "callId": "c", "files": files, "capture": true});
        let query = format!("?wait={seconds}");
        self.post(&query, &self.server.host, &body, None)
    }

    fn post(&self, query: &str, who: &Person, body: &Value, key: Option<&str>) -> Answer {
        let target = format!("/v1/sessions/{}/deliverables{query}", self.session);
        let mut fields = vec![("Content-Type", "application/json")];
        fields.extend(key.map(|key| ("Idempotency-Key", key)));
        let body = body.to_string();
        self.server
            .ask_with("POST", &target, Some(&who.token), &fields, body.as_bytes())
    }

    /// Files that are not sensitive leave without a question from here on.
    pub(crate) fn release_without_asking(&self) {
        let events = format!("/v1/sessions/{}/events", self.session);
        let turn = json!({"events": [{"type": "turn/start", "data": {"turn": 1}}]});
        assert_eq!(
            self.server.post(&events, &self.server.host, &turn).status,
            201
        );
        let target = format!("/v1/sessions/{}/permission", self.session);
        let body = json!({"value": "workspace-write", "acknowledgeRisk": true}).to_string();
        let fields = [("Content-Type", "application/json")];
        let token = Some(self.server.alice.token.as_str());
        let chosen = self
            .server
            .ask_with("PUT", &target, token, &fields, body.as_bytes());
        assert_eq!(chosen.status, 200, "{}", chosen.text());
    }

    pub(crate) fn last_seq(&self) -> u64 {
        let target = format!("/v1/sessions/{}/snapshot", self.session);
        self.server.get(&target, &self.server.alice).json()["lastSeq"]
            .as_u64()
            .unwrap_or(0)
    }
}

/// J3: the receipts are in the answer that says it worked, and are for the bytes of that moment.
#[test]
fn j3_a_captured_file_comes_with_its_receipt_in_the_same_answer() {
    let scene = Scene::new();
    scene.release_without_asking();
    scene.file("out/a.txt", b"first");
    scene.file("out/b.txt", b"second");
    let files = json!([{"path": "out/a.txt", "description": "the first"}, {"path": "out/b.txt"}]);
    let done = scene.capture(&files, None);
    assert_eq!(done.status, 201, "{}", done.text());
    let done = done.json();
    scene.file("out/a.txt", b"other");
    for (index, content) in [(0, &b"first"[..]), (1, b"second")] {
        let file = &done["files"][index];
        assert_eq!(file["outcome"], "released", "{file}");
        let statement = &file["receipt"]["statement"];
        assert_eq!(
            (&statement["seq"], &statement["index"]),
            (&done["seq"], &json!(index))
        );
        let href = file["receipt"]["href"].as_str().unwrap();
        let got = scene.server.get(href, &scene.server.alice);
        assert_eq!(got.body, content);
    }
    let target = format!("/v1/sessions/{}/events", scene.session);
    let page = scene.server.get(&target, &scene.server.alice).json();
    let last = page["events"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["type"], &last["seq"]),
        (&json!("deliverables/presented"), &done["seq"])
    );
    assert_eq!(last["data"]["files"], files);
}

/// J3: the permission decides whether somebody is asked; what was captured is what arrives.
#[test]
fn j3_what_has_to_be_decided_waits_with_the_captured_bytes() {
    let scene = Scene::new();
    scene.file("a.txt", b"captured");
    let done = scene.capture(&json!([{"path": "a.txt"}]), None).json();
    assert_eq!(done["files"][0]["outcome"], "awaiting-decision");
    scene.file("a.txt", b"replaced");
    let ask = &done["files"][0]["release"];
    assert_eq!(scene.pending(), std::slice::from_ref(ask));
    let (from, to) = (&ask["askedAt"], &ask["expiresAt"]);
    let life = to.as_i64().unwrap() - from.as_i64().unwrap();
    assert_eq!(
        ask["remindAt"].as_i64().unwrap(),
        to.as_i64().unwrap() - life / 5
    );
    let decided = scene
        .decide(&scene.server.alice, ask, "allowed-once")
        .json();
    let href = decided["receipt"]["href"].as_str().unwrap();
    assert_eq!(
        scene.server.get(href, &scene.server.alice).body,
        b"captured"
    );
}

/// J3: one file that cannot be captured, and nothing is declared, kept or asked. Keeps I12.
#[test]
fn j3_of_several_files_all_are_captured_or_none() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    std::os::unix::fs::symlink("/etc/shadow", scene.root().join("link")).unwrap();
    let before = scene.last_seq();
    for (path, status, code) in [
        ("link", 422, "source-refused"),
        ("none", 404, "source-missing"),
        ("../a", 422, "source-refused"),
        ("id_rsa", 422, "source-refused"),
    ] {
        let refused = scene.capture(&json!([{"path": "a.txt"}, { "path": path }]), None);
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (status, code),
            "{path}"
        );
        assert_eq!(refused.json()["index"], 1, "{path}");
    }
    let many: Vec<_> = (0..17).map(|_| json!({"path": "a.txt"})).collect();
    for files in [json!([]), json!(many)] {
        assert_eq!(scene.capture(&files, None).status, 422);
    }
    assert_eq!(scene.last_seq(), before);
    assert_eq!((scene.server.objects(), scene.pending().len()), (0, 0));
    let by_owner = json!({"turn": 1, "callId": "c", "files": [{"path": "a.txt"}], "capture": true});
    let refused = scene.post("", &scene.server.alice, &by_owner, None);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "forbidden")
    );
}

/// A request that comes again under its key gets what it got, and does nothing.
#[test]
fn a_repeat_under_a_key_is_answered_and_not_done_again() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    let files = json!([{"path": "a.txt"}]);
    let first = scene.capture(&files, Some("k"));
    assert_eq!(first.status, 201, "{}", first.text());
    let after = scene.last_seq();
    scene.file("a.txt", b"text that is another by now");
    let again = scene.capture(&files, Some("k"));
    assert_eq!(again.json(), first.json());
    assert_eq!((scene.last_seq(), scene.pending().len()), (after, 1));
    let other = scene.capture(&json!([{"path": "b.txt"}]), Some("k"));
    assert_eq!(
        (other.status, other.code().as_str()),
        (422, "idempotency-key-reused")
    );

    scene.file("c.txt", b"released");
    let seq = scene.present(&json!([{"path": "c.txt"}]));
    let release = || {
        let token = Some(scene.server.alice.token.as_str());
        let target = scene.item(seq, 0, "release");
        let key = [("Idempotency-Key", "k")];
        scene.server.ask_with("POST", &target, token, &key, b"")
    };
    let first = release();
    assert_eq!(first.status, 202, "{}", first.text());
    scene.decide(&scene.server.alice, &first.json(), "rejected");
    assert_eq!(
        release().json(),
        first.json(),
        "also when it was decided since"
    );
    assert_eq!(scene.pending().len(), 1, "what the capture asked");
}

/// A file that is being rewritten is refused as changed; with `wait` it is released once its writer
/// pauses, whole.
#[test]
fn a_release_waits_for_a_writer_to_pause_where_it_is_told_to() {
    let scene = Scene::proven(Options {
        max_file: ByteCount::mib(2),
        ..Options::default()
    });
    let generation = |n: u8| vec![n; 1 << 20];
    scene.file("busy", &generation(0));
    let seq = scene.present(&json!([{"path": "busy"}]));
    let file = OpenOptions::new()
        .write(true)
        .open(scene.root().join("busy"))
        .unwrap();
    let ask = |query: &str| {
        let target = scene.item(seq, 0, "release") + query;
        scene
            .server
            .ask("POST", &target, Some(&scene.server.alice.token))
    };
    assert_eq!(ask("?wait=61").status, 400);
    let (is_over, refused) = (AtomicBool::new(false), AtomicBool::new(false));
    let released = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            // Until a read was refused, and a moment longer: then it rests.
            while !is_over.load(Ordering::Relaxed) {
                n = u8::wrapping_add(n, 1);
                file.write_all_at(&generation(n), 0).unwrap();
            }
        });
        let _rests = Rests(&is_over);
        for _ in 0..50 {
            let answer = ask("");
            if answer.status == 409 {
                assert_eq!(answer.code(), "changed");
                refused.store(true, Ordering::Relaxed);
                break;
            }
        }
        let waiting = scope.spawn(|| ask("?wait=30"));
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        waiting.join().unwrap()
    });
    assert!(refused.into_inner(), "no read met the writer");
    assert_eq!(released.status, 202, "{}", released.text());
    let decided = scene
        .decide(&scene.server.alice, &released.json(), "allowed-once")
        .json();
    let href = decided["receipt"]["href"].as_str().unwrap();
    let got = scene.server.get(href, &scene.server.alice).body;
    assert!(got.windows(2).all(|pair| pair[0] == pair[1]), "torn");
}

struct Rests<'a>(&'a AtomicBool);

impl Drop for Rests<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// FR-05: however an ask ends, its copy leaves the store. Keeps I12.
#[test]
fn fr_05_nothing_is_kept_of_what_expired_was_withdrawn_or_had_no_room() {
    let day = Duration::from_hours(24);
    let scene = Scene::proven(Options {
        limits: Limits {
            session_bytes: ByteCount::new(20),
            ..Options::default().limits
        },
        ..Options::default()
    });
    let parts = &scene.server.parts;
    scene.file("a.txt", b"first");
    let seq = scene.present(&json!([{"path": "a.txt"}]));
    let first = scene.release(seq).json();
    scene.file("a.txt", b"second");
    let second = scene.release(seq).json();
    assert_ne!(first["requestId"], second["requestId"]);
    assert_eq!(scene.server.objects(), 1, "the first was withdrawn");
    let late = scene.decide(&scene.server.alice, &first, "allowed-once");
    assert_eq!((late.status, late.code().as_str()), (410, "withdrawn"));
    scene.file("large", &[7; 15]);
    let refused = scene.ask_for("large");
    assert_eq!(refused.code(), "over-quota", "{}", refused.text());
    assert_eq!(scene.server.objects(), 1, "what had no room is gone");
    scene.server.clock.advance(day);
    tidy(scene.server.app.live(), parts);
    assert_eq!(scene.server.objects(), 0, "its time is over");
    let late = scene.decide(&scene.server.alice, &second, "allowed-once");
    assert_eq!((late.status, late.code().as_str()), (410, "expired"));
}

/// Content that a crash left between its commit and its row goes at the next start; what has a row
/// stays. Keeps I12.
#[test]
fn what_a_crash_left_of_a_release_goes_at_the_next_start() {
    let scene = Scene::new();
    let parts = &scene.server.parts;
    scene.file("a.txt", b"kept");
    scene.ask_for("a.txt");
    let mut spool = parts.store.spool(None, ByteCount::kib(1)).unwrap();
    spool.write(b"left").unwrap();
    let spool = spool.finish();
    parts.ledger.claim(&[spool.digest()]).unwrap();
    drop(parts.store.commit(spool).unwrap());
    assert_eq!(scene.server.objects(), 2);
    tidy(scene.server.app.live(), parts);
    assert_eq!(
        scene.server.objects(),
        2,
        "somebody may be about to keep it"
    );
    recover(parts);
    assert_eq!(scene.server.objects(), 1);
    assert_eq!(scene.pending().len(), 1);
}
