//! Callers that leave while something is released for them: the work stops, and what stands is whole.

use std::{
    fs,
    io::Write as _,
    net::TcpStream,
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use holdfast::model::{ByteCount, Limits};
use serde_json::json;

use crate::{
    releases::{Scene, SetOnDrop},
    room::{Left, left},
    support::{
        Answer, Options, Server,
        server::{eventually, request},
    },
};

/// Threads of one root: so many reads hold up all others of it.
const THREADS: usize = 4;
/// Longer than is copied before anybody looks.
const LARGE: u64 = 2 << 30;

/// A workspace whose files may be large.
fn scene() -> Scene {
    Scene::proven(Options {
        limits: Limits {
            file: ByteCount::gib(8),
            session_bytes: ByteCount::gib(64),
            ..Options::default().limits
        },
        max_file: ByteCount::gib(8),
        ..Options::default()
    })
}

/// The lengths of the private copies that are being made.
pub(crate) fn copies(server: &Server) -> Vec<u64> {
    let inside = server.data().to_str().unwrap().to_owned();
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let copy = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let target = fs::read_link(&path).ok()?.to_str()?.to_owned();
        let is_ours = target.starts_with(&inside) && target.ends_with(" (deleted)");
        is_ours.then(|| fs::metadata(path).ok()).flatten()
    };
    entries.filter_map(copy).map(|found| found.len()).collect()
}

/// The server's tasks when it does nothing for anybody.
fn idle(server: &Server) -> usize {
    let look = |_| {
        std::thread::sleep(Duration::from_millis(1));
        server.tasks()
    };
    (0..50).map(look).min().unwrap()
}

/// A request whose caller does not wait for the answer.
fn send(scene: &Scene, target: &str, key: &str) -> TcpStream {
    let mut socket = TcpStream::connect(scene.server.address).unwrap();
    let token = Some(scene.server.alice.token.as_str());
    let octets = request(
        "POST",
        target,
        token,
        &[("Idempotency-Key", key)],
        Some(b""),
    );
    socket.write_all(&octets).unwrap();
    socket
}

fn sparse(scene: &Scene, path: &str) {
    scene.file(path, b"begins");
    let file = fs::File::options()
        .write(true)
        .open(scene.root().join(path));
    file.unwrap().set_len(LARGE).unwrap();
}

/// D02: whoever leaves while a large file, an archive of one or everything in the session is copied stops
/// the copy; the root's threads are free and nothing is kept. Keeps I11.
#[test]
fn d02_a_caller_that_leaves_stops_the_copy_made_for_it() {
    let scene = scene();
    sparse(&scene, "large");
    sparse(&scene, "d/large");
    scene.file("small", b"answered");
    let file = scene.present(&json!([{"path": "large"}]));
    let directory = scene.present(&json!([{"path": "d"}]));
    let small = scene.present(&json!([{"path": "small"}]));
    for target in [
        scene.item(file, 0, "release"),
        scene.item(directory, 0, "release"),
        format!("/v1/sessions/{}/archive", scene.session),
    ] {
        let tasks = idle(&scene.server);
        let callers = (0..THREADS).map(|n| send(&scene, &target, &format!("key{n}")));
        let callers: Vec<_> = callers.collect();
        eventually("every thread copies", || {
            let begun = copies(&scene.server).into_iter().filter(|len| *len > 0);
            begun.count() >= THREADS
        });
        drop(callers);
        let mut furthest = 0;
        eventually("the copies are gone", || {
            let copies = copies(&scene.server);
            furthest = copies.iter().copied().fold(furthest, u64::max);
            copies.is_empty()
        });
        assert!(furthest < LARGE, "{target}: one was copied to its end");
        eventually("nobody works for them", || scene.server.tasks() <= tasks);
        let next = scene.release(small);
        assert_eq!(next.status, 202, "{target}: {}", next.text());
        let rejected = scene.decide(&scene.server.alice, &next.json(), "rejected");
        assert_eq!(rejected.status, 200);
        assert_eq!((scene.server.objects(), scene.pending().len()), (0, 0));
    }
}

/// D02: nobody tries again for a caller that has left while it waited for a file to stand still.
#[test]
fn d02_a_caller_that_leaves_while_it_waits_ends_the_tries() {
    let scene = Scene::new();
    scene.file("busy", &[0; 1000]);
    let seq = scene.present(&json!([{"path": "busy"}]));
    let file = fs::File::options()
        .write(true)
        .open(scene.root().join("busy"));
    let (file, stop) = (file.unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..=255_u8).cycle() {
                file.write_all_at(&[n; 1000], 0).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _stop = SetOnDrop(&stop);
        // One that is refused at once, so that the caller after it is one that waits.
        eventually("a read meets the writer", || {
            scene.release(seq).status == 409
        });
        let tasks = idle(&scene.server);
        let mut met = 0;
        for n in 0..20 {
            let target = scene.item(seq, 0, "release?wait=60");
            let caller = send(&scene, &target, &format!("key{n}"));
            eventually("it is being tried", || {
                scene.server.calls.has("store.spool")
            });
            met += usize::from(scene.server.tasks() > tasks);
            drop(caller);
            eventually("nobody tries for it", || scene.server.tasks() <= tasks);
            scene.server.calls.take();
        }
        assert!(met > 0, "no caller left while it waited");
    });
    eventually("its copies are gone", || copies(&scene.server).is_empty());
    // Those that were answered between two writes are whole questions about whole contents.
    let asks = scene.pending();
    assert!(asks.len() <= 1, "{asks:?}");
    assert_eq!(scene.server.objects(), asks.len());
}

/// Keeps I5 and I12: whoever leaves once content is being committed for it has a whole release, and gets it
/// by asking again under the same key.
#[test]
fn a_caller_that_leaves_after_the_commit_began_leaves_a_whole_release() {
    let scene = Scene::new();
    scene.release_without_asking();
    scene.file("now", b"a file");
    scene.file(".asked", b"one that is asked about");
    scene.file("d/file", b"one in a directory");
    for (n, (path, status)) in [("now", 201), (".asked", 202), ("d", 201)]
        .into_iter()
        .enumerate()
    {
        let seq = scene.present(&json!([{ "path": path }]));
        let target = scene.item(seq, 0, "release");
        let tasks = idle(&scene.server);
        scene.server.calls.take();
        let held = scene.server.calls.hold_commits();
        let caller = send(&scene, &target, &format!("key{n}"));
        eventually("it is being committed", || {
            scene.server.calls.has("store.commit")
        });
        drop(caller);
        eventually("its caller is gone", || scene.server.tasks() <= tasks);
        let before = left(&scene);
        drop(held);
        let whole = |left: Left| left.receipts + left.waiting == n + 1 && left.claims == 0;
        eventually("it is whole", || whole(left(&scene)));
        assert_eq!((before.receipts + before.waiting, before.claims), (n, 1));
        assert_eq!(scene.server.objects(), n + 1);
        let again = again(&scene, &target, &format!("key{n}"));
        assert_eq!(again.status, status, "{path}: {}", again.text());
        assert!(whole(left(&scene)), "{path}");
        let answer = again.json();
        if status == 202 {
            assert_eq!(scene.pending(), [answer]);
        } else {
            let href = answer["href"].as_str().unwrap();
            let got = scene.server.get(href, &scene.server.alice);
            assert_eq!(got.status, 200, "{path}");
        }
    }
}

/// Keeps I12: whoever leaves while files are declared finds them declared, once, and captured by asking again.
#[test]
fn a_host_that_leaves_while_its_files_are_declared_declares_them_once() {
    let scene = Scene::new();
    scene.file("a", b"captured");
    let files = json!([{"path": "a"}]);
    let body = json!({"turn": 1, "callId": "c", "files": files, "capture": true}).to_string();
    let target = format!("/v1/sessions/{}/deliverables", scene.session);
    let fields = [
        ("Content-Type", "application/json"),
        ("Idempotency-Key", "key"),
    ];
    let token = Some(scene.server.host.token.as_str());
    let octets = request("POST", &target, token, &fields, Some(body.as_bytes()));
    let (calls, tasks) = (&scene.server.calls, idle(&scene.server));
    calls.take();
    let held = calls.hold_appends();
    let mut caller = TcpStream::connect(scene.server.address).unwrap();
    caller.write_all(&octets).unwrap();
    eventually("it is being declared", || calls.has("journal.append_once"));
    drop(caller);
    // What appends for it goes on.
    eventually("its caller is gone", || scene.server.tasks() <= tasks + 1);
    drop(held);
    eventually("it is declared", || scene.server.tasks() <= tasks);
    assert_eq!(left(&scene).waiting, 0, "nobody asked for it any more");
    assert_eq!(
        (scene.server.objects(), copies(&scene.server).len()),
        (0, 0)
    );
    let again = scene.capture(&files, Some("key"));
    assert_eq!(again.status, 201, "{}", again.text());
    assert_eq!((scene.last_seq(), &again.json()["seq"]), (0, &json!(0)));
    assert_eq!((scene.pending().len(), scene.server.objects()), (1, 1));
}

fn again(scene: &Scene, target: &str, key: &str) -> Answer {
    let token = Some(scene.server.alice.token.as_str());
    let fields = [("Idempotency-Key", key)];
    scene.server.ask_with("POST", target, token, &fields, b"")
}
