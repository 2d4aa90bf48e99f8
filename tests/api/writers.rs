//! Files whose writer never rests: what is released of one is a content it had, or it is refused as changed.

use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use holdfast::model::ByteCount;
use serde_json::{Value, json};

use crate::{
    directories::{class, unpacked},
    releases::{Scene, SetOnDrop},
    support::{
        Answer, Options,
        server::{eventually, id},
    },
};

/// The length of each content: more than one read.
const LEN: usize = 1 << 20;
/// How many contents there are.
const CONTENTS: u8 = 32;

fn content(n: u8) -> Vec<u8> {
    vec![n % CONTENTS; LEN]
}

/// A way of putting one content in place of another, so that every moment has one of them, or none.
struct Writer {
    name: &'static str,
    write: fn(&Path, &[u8]),
}

const WRITERS: [Writer; 3] = [
    Writer {
        name: "in place",
        write: |path, content| {
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(content, 0).unwrap();
        },
    },
    Writer {
        name: "emptied first",
        write: |path, content| {
            let file = File::options().write(true).open(path).unwrap();
            file.set_len(0).unwrap();
            file.write_all_at(content, 0).unwrap();
        },
    },
    Writer {
        name: "put in its place",
        write: |path, content| {
            let new = path.with_extension("new");
            fs::write(&new, content).unwrap();
            fs::rename(new, path).unwrap();
        },
    },
];

fn scene() -> Scene {
    Scene::proven(Options {
        max_file: ByteCount::mib(2),
        ..Options::default()
    })
}

/// The ids of all there ever was.
fn contents() -> HashSet<String> {
    let each = (0..CONTENTS).map(|n| id(&content(n)));
    each.chain([id(b"")]).collect()
}

/// Runs `work` while the file is written all the time; `work` may say that the writer is to rest.
fn while_written<T>(path: &Path, writer: &Writer, work: impl FnOnce(&AtomicBool) -> T) -> T {
    let rests = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..=u8::MAX).cycle() {
                (writer.write)(path, &content(n));
                if rests.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _rests = SetOnDrop(&rests);
        work(&rests)
    })
}

fn release(scene: &Scene, seq: u64, query: &str) -> Answer {
    let target = scene.item(seq, 0, "release") + query;
    let token = Some(scene.server.alice.token.as_str());
    scene.server.ask("POST", &target, token)
}

/// Whether it was refused because it changed, for a reason that is said.
fn is_changed(answer: &Answer) -> bool {
    if answer.status < 300 {
        return false;
    }
    let (code, body) = (answer.code(), answer.json());
    assert_eq!((answer.status, code.as_str()), (409, "changed"), "{body}");
    assert_eq!(body["class"], "changed", "{body}");
    assert_eq!(body["retryable"], true, "{body}");
    let reason = body["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the file changed while it was read: "),
        "{reason}"
    );
    true
}

/// I02: whatever way a file is rewritten all the time, each release of it and each capture is one of its
/// contents, or refused as changed with its reason; told to wait, they succeed once the writer rests.
#[test]
fn i02_a_release_is_one_content_or_changed_and_succeeds_once_the_writer_rests() {
    let contents = contents();
    for writer in &WRITERS {
        let scene = scene();
        let path = scene.root().join("busy");
        scene.file("busy", &content(0));
        let seq = scene.present(&json!([{"path": "busy"}]));
        let files = json!([{"path": "busy"}]);
        let is_whole = |ask: &Value| {
            let found = ask["attachmentId"].as_str().unwrap();
            assert!(contents.contains(found), "{}: torn: {ask}", writer.name);
        };
        let (mut changed, mut whole) = (0, 0);
        let (released, captured) = while_written(&path, writer, |rests| {
            for n in 0..60 {
                let before = scene.last_seq();
                let answer = if n % 2 == 0 {
                    release(&scene, seq, "")
                } else {
                    scene.capture(&files, None)
                };
                if is_changed(&answer) {
                    changed += 1;
                    assert_eq!(scene.last_seq(), before, "it is not declared either");
                    continue;
                }
                whole += 1;
                let answer = answer.json();
                is_whole(if n % 2 == 0 {
                    &answer
                } else {
                    &answer["files"][0]["release"]
                });
            }
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| release(&scene, seq, "?wait=30"));
                let presenting = scope.spawn(|| scene.capture_waiting(&files, 30));
                // Both are at it before the writer rests.
                std::thread::sleep(Duration::from_millis(200));
                rests.store(true, Ordering::Relaxed);
                (waiting.join().unwrap(), presenting.join().unwrap())
            })
        });
        assert_eq!(released.status, 202, "{}: {}", writer.name, released.text());
        is_whole(&released.json());
        assert_eq!(captured.status, 201, "{}: {}", writer.name, captured.text());
        is_whole(&captured.json()["files"][0]["release"]);
        assert!(
            changed > 0,
            "{}: no read met the writer: {whole}",
            writer.name
        );
        // What waits is kept, and nothing else of all the tries.
        let waiting: HashSet<_> = scene
            .pending()
            .iter()
            .map(|ask| ask["attachmentId"].to_string())
            .collect();
        assert_eq!(scene.server.objects(), waiting.len(), "{}", writer.name);
        eventually("its copies are gone", || {
            crate::left::copies(&scene.server).is_empty()
        });
    }
}

/// I02: a writer that never rests is not waited for any longer than was asked.
#[test]
fn i02_a_wait_for_a_writer_that_never_rests_ends_as_changed() {
    let contents = contents();
    let scene = scene();
    scene.file("busy", &content(0));
    let seq = scene.present(&json!([{"path": "busy"}]));
    let refused = while_written(&scene.root().join("busy"), &WRITERS[0], |_| {
        (0..20).any(|_| {
            let answer = release(&scene, seq, "?wait=1");
            let changed = is_changed(&answer);
            let is_right = |answer: &Answer| {
                contents.contains(answer.json()["attachmentId"].as_str().unwrap())
            };
            assert!(changed || is_right(&answer), "torn: {}", answer.text());
            changed
        })
    });
    assert!(refused, "each wait found a moment of rest");
}

/// I02: in an archive a file that is rewritten all the time is one of its contents, or left out as changed;
/// the others are there either way.
#[test]
fn i02_a_file_of_an_archive_is_one_content_or_left_out_as_changed() {
    let contents = contents();
    let scene = scene();
    scene.file("d/busy", &content(0));
    scene.file("d/still", b"still");
    let seq = scene.present(&json!([{"path": "d"}]));
    let (mut changed, mut whole) = (0, 0);
    while_written(&scene.root().join("d/busy"), &WRITERS[0], |_| {
        for _ in 0..20 {
            let answer = release(&scene, seq, "");
            assert_eq!(answer.status, 202, "{}", answer.text());
            let answer = answer.json();
            let hex = answer["attachmentId"]
                .as_str()
                .unwrap()
                .strip_prefix("sha256:")
                .unwrap();
            let objects = scene.server.data().join("data/objects/sha256");
            let bytes = fs::read(objects.join(&hex[..2]).join(hex)).unwrap();
            let Some(members) = unpacked(&bytes) else {
                return;
            };
            assert_eq!(members["still"], "still");
            let text = members["holdfast-manifest.json"].as_str().unwrap();
            let manifest: Value = serde_json::from_str(text).unwrap();
            let files = manifest["files"].as_array().unwrap();
            if let Some(file) = files.iter().find(|file| file["path"] == "busy") {
                whole += 1;
                let found = file["attachmentId"].as_str().unwrap();
                assert!(contents.contains(found), "torn: {manifest}");
                let member = members["busy"].as_str().unwrap().as_bytes();
                assert!(contents.contains(&id(member)), "torn");
            } else {
                changed += 1;
                assert_eq!(class(&manifest, "busy"), "changed", "{manifest}");
                assert!(members.get("busy").is_none());
            }
        }
        assert!(changed > 0, "no read met the writer: {whole}");
    });
}
