//! The acceptance rows of a decision about a file: what it cannot be talked into, whatever is declared,
//! decided or done at the same time.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use holdfast::transfer::release::tidy;
use serde_json::{Value, json};

use crate::{
    damage::in_place,
    releases::Scene,
    support::server::{id, request},
};

/// Every door by which one declared file could leave, and what each says of it.
fn answers(scene: &Scene, path: &str) -> Vec<(&'static str, u16, Value)> {
    let alice = &scene.server.alice;
    let seq = scene.present(&json!([{ "path": path }]));
    let release = scene.release(seq);
    let explain = scene.server.get(&scene.item(seq, 0, "explain"), alice);
    let form = json!({"turn": 1, "callId": "c", "files": [{ "path": path }], "capture": true});
    let target = format!("/v1/sessions/{}/deliverables", scene.session);
    let capture = scene.server.post(&target, &scene.server.host, &form);
    [
        ("release", release),
        ("explain", explain),
        ("capture", capture),
    ]
    .map(|(door, answer)| (door, answer.status, answer.json()))
    .into()
}

/// FR-02: no decision makes the root wider. What lies outside is refused by every door, and there is
/// nothing to decide about it. Keeps I2.
#[test]
fn fr_02_a_decision_never_widens_the_root() {
    let scene = Scene::new();
    let outside = scene.server.data().join("secret");
    fs::write(&outside, b"outside").unwrap();
    fs::create_dir(scene.root().join("d")).unwrap();
    let absolute = outside.to_str().unwrap();
    for path in [absolute, "../secret", "d/../../secret", "/etc/passwd"] {
        for (door, status, body) in answers(&scene, path) {
            if door == "explain" {
                assert_eq!(
                    (status, &body["outcome"]),
                    (200, &json!("refuse")),
                    "{path}"
                );
            } else {
                assert_eq!(status, 422, "{door} {path}: {body}");
            }
        }
        let forged = json!({"requestId": "i_00000000000000000000000000000000",
            "attachmentId": id(b"outside"), "bytes": 7});
        let decided = scene.decide(&scene.server.alice, &forged, "allowed-once");
        assert_eq!(decided.code(), "interaction-unknown");
    }
    assert_eq!((scene.pending().len(), scene.server.objects()), (0, 0));
}

/// FR-04: what may not be read may not be released either: one list of names behind every door.
#[test]
fn fr_04_one_list_of_names_stands_behind_every_door() {
    let scene = Scene::new();
    for (path, leaves) in [
        ("notes.txt", true),
        (".notes", true),
        ("page.html", true),
        ("id_rsa", false),
        (".ssh/config", false),
        ("deep/in/server.key", false),
        ("cert.pem", false),
    ] {
        scene.file(path, path.as_bytes());
        for (door, status, body) in answers(&scene, path) {
            let passes = match door {
                "explain" => body["outcome"] != "refuse",
                _ => status < 300,
            };
            assert_eq!(passes, leaves, "{door} {path}: {status} {body}");
            if !leaves && door != "explain" {
                assert_eq!(body["class"], "denied_name", "{door} {path}");
                assert_eq!(body["setting"], "root.deny", "{door} {path}");
            }
        }
    }
}

/// A released file: where it is downloaded, and what was approved.
fn released(scene: &Scene, path: &str, content: &[u8]) -> String {
    scene.file(path, content);
    let ask = scene.ask_for(path).json();
    let decided = scene.decide(&scene.server.alice, &ask, "allowed-once");
    let decided = decided.json();
    decided["receipt"]["href"].as_str().unwrap().to_owned()
}

/// FR-06: a download that was given up in the middle leaves nothing to trust: the next begins anew, with
/// the same digest.
#[test]
fn fr_06_a_download_given_up_halfway_is_no_start() {
    let scene = Scene::proven(crate::support::Options {
        max_file: holdfast::model::ByteCount::mib(8),
        ..crate::support::Options::default()
    });
    let content: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let href = released(&scene, "large.bin", &content);
    let digest = |answer: &crate::support::Answer| answer.field("repr-digest").map(str::to_owned);
    let whole = scene.server.get(&href, &scene.server.alice);
    for stop in [1, 1000, 300_000] {
        let mut socket = TcpStream::connect(scene.server.address).unwrap();
        let octets = request("GET", &href, Some(&scene.server.alice.token), &[], None);
        socket.write_all(&octets).unwrap();
        let mut some = vec![0; stop];
        socket.read_exact(&mut some).unwrap();
        drop(socket);
        let again = scene.server.get(&href, &scene.server.alice);
        assert_eq!(again.body, content, "{stop}");
        assert!(digest(&again).is_some());
        assert_eq!(digest(&again), digest(&whole), "{stop}");
    }
}

/// FR-07: what an agent says of a file stands beside the facts and never among them.
#[test]
fn fr_07_a_description_forges_no_fact() {
    let scene = Scene::new();
    scene.file("a.txt", b"true content");
    let forged = "the plan\nsize 3 B\ncontent sha256:0000\nbytes: 3\n\u{202e}gepj.txt";
    let files = json!([{"path": "a.txt", "description": forged, "bytes": 3, "name": "plan.txt"}]);
    let seq = scene.present(&files);
    let ask = scene.release(seq).json();
    assert_eq!(ask["attachmentId"], json!(id(b"true content")));
    assert_eq!((&ask["bytes"], &ask["name"]), (&json!(12), &json!("a.txt")));
    assert!(!ask.to_string().contains("0000\\n") && ask.get("description").is_none());
    let decided = scene
        .decide(&scene.server.alice, &ask, "allowed-once")
        .json();
    let statement = decided["receipt"]["statement"].to_string();
    assert!(!statement.contains("the plan"), "{statement}");
    // The listing has it as what it is: the agent's words, under a name of their own.
    let target = format!("/v1/sessions/{}/snapshot", scene.session);
    let shown = scene.server.get(&target, &scene.server.alice).json();
    let item = &shown["display"]["deliverables"]["items"][0];
    assert_eq!((&item["path"], item.get("bytes")), (&json!("a.txt"), None));
}

/// What is done to a stored copy.
type Change = fn(&fs::File);

/// FR-09: a copy that was changed where it is kept gives not one byte, before a decision and after it.
/// Keeps I4.
#[test]
fn fr_09_a_copy_that_fails_its_check_gives_no_byte() {
    let scene = Scene::new();
    let changes: [(&str, Change); 3] = [
        ("flipped", |file| {
            use std::os::unix::fs::FileExt as _;
            file.write_all_at(b"X", 3).unwrap();
        }),
        ("cut", |file| file.set_len(5).unwrap()),
        ("grown", |file| file.set_len(50).unwrap()),
    ];
    for (name, change) in changes {
        for before in [true, false] {
            let content = format!("what was approved, {name} {before}").into_bytes();
            let path = format!("{name}-{before}.txt");
            scene.file(&path, &content);
            let ask = scene.ask_for(&path).json();
            let object = scene.server.object(&content);
            if before {
                in_place(&object, change);
            }
            let decided = scene
                .decide(&scene.server.alice, &ask, "allowed-once")
                .json();
            if !before {
                in_place(&object, change);
            }
            let href = decided["receipt"]["href"].as_str().unwrap();
            let got = scene.server.get(href, &scene.server.alice);
            assert_eq!(
                (got.status, got.code().as_str()),
                (500, "integrity"),
                "{path}"
            );
            assert!(!got.text().contains("approved"), "{path}");
        }
    }
}

/// FR-11: decided, expired and asked again at once: at most one receipt, and none after its time.
#[test]
fn fr_11_a_release_is_settled_once_and_never_again() {
    let scene = Scene::new();
    let alice = &scene.server.alice;
    for round in 0..8 {
        let path = format!("f{round}");
        let content = format!("content {round}");
        scene.file(&path, content.as_bytes());
        let seq = scene.present(&json!([{ "path": path }]));
        let ask = scene.release(seq).json();
        let receipts: usize = std::thread::scope(|scope| {
            let deciding: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| scene.decide(alice, &ask, "allowed-once").status))
                .collect();
            let rejecting = scope.spawn(|| scene.decide(alice, &ask, "rejected").status);
            scope.spawn(|| {
                if round % 2 == 0 {
                    scene.server.clock.advance(Duration::from_hours(24));
                }
                tidy(scene.server.app.live(), &scene.server.parts);
            });
            let yes = deciding.into_iter().map(|one| one.join().unwrap());
            let yes = yes.filter(|status| *status == 200).count();
            assert!(
                yes + usize::from(rejecting.join().unwrap() == 200) <= 1,
                "{round}"
            );
            yes
        });
        tidy(scene.server.app.live(), &scene.server.parts);
        let late = scene.decide(alice, &ask, "allowed-once");
        assert_eq!(late.status, 410, "{}", late.text());
        let kept = scene.server.object(content.as_bytes()).exists();
        assert_eq!(
            kept,
            receipts == 1,
            "{round}: bytes and their owner go together"
        );
    }
}
