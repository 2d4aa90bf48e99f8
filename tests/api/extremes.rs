//! Files, directories and names at the far ends of what a workspace may hold: refused before work, or
//! released in memory that does not grow with them.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::FileExt as _},
    path::Path,
    time::Duration,
};

use holdfast::model::{ByteCount, Limits};
use serde_json::{Value, json};

use crate::{
    directories::{archive, class, unpacked},
    left::copies,
    releases::Scene,
    support::{
        Answer, Client, Options,
        server::{eventually, request},
    },
};

/// How much memory may grow, in KiB.
const MAX_GROWTH: u64 = 32 << 10;

fn sparse(path: &Path, bytes: u64) -> fs::File {
    let file = fs::File::create(path).unwrap();
    file.set_len(bytes).unwrap();
    file
}

/// A number of KiB from this process's status, with the client in it.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let rest = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = rest.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// The peak from here on.
fn forget_peak() -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    memory("VmHWM")
}

fn explain(scene: &Scene, seq: u64) -> Value {
    let answer = scene
        .server
        .get(&scene.item(seq, 0, "explain"), &scene.server.alice);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Z03 and D05: what is larger than a setting lets out is refused before a byte of it is copied, with its
/// size, the limit and the setting's name; by a release, at its presentation, and within a directory.
#[test]
fn z03_d05_what_is_too_large_is_refused_before_work_with_size_limit_and_setting() {
    const SIZE: u64 = 5 << 30;
    let usual = Limits::default().file;
    for (file, max_file, setting) in [
        (usual, ByteCount::gib(1), "root.max_file"),
        (ByteCount::gib(2), ByteCount::gib(8), "limits.file"),
    ] {
        let scene = Scene::proven(Options {
            limits: Limits {
                file,
                ..Options::default().limits
            },
            max_file,
            ..Options::default()
        });
        fs::create_dir(scene.root().join("d")).unwrap();
        sparse(&scene.root().join("large"), SIZE);
        for n in 0..3 {
            sparse(&scene.root().join(format!("d/{n}")), 1 << 30);
        }
        let limit = file.min(max_file).get();
        let refused = |answer: &Answer, size: u64, limit: u64, setting: &str| {
            let body = answer.json();
            assert_eq!((answer.status, answer.code().as_str()), (413, "over-limit"));
            assert_eq!(body["class"], "too_large", "{body}");
            assert_eq!(body["sizeBytes"], size, "{body}");
            assert_eq!(body["limitBytes"], limit, "{body}");
            assert_eq!(body["setting"], setting, "{body}");
            assert_eq!(copies(&scene.server), [0; 0], "nothing was copied");
        };
        let files = json!([{"path": "large"}]);
        for answer in [scene.ask_for("large"), scene.capture(&files, None)] {
            refused(&answer, SIZE, limit, setting);
        }
        // Each file may be so large; the archive may not.
        refused(&scene.ask_for("d"), 3 << 30, file.get(), "limits.file");
        assert_eq!((scene.server.objects(), scene.pending().len()), (0, 0));
    }
}

/// Z03: a directory of a hundred thousand files is refused before anything in it is opened, by whatever
/// door, with the limit; sessions and explanations are answered beside it.
#[test]
fn z03_a_directory_of_too_many_files_is_refused_in_bounded_memory_beside_others() {
    let scene = Scene::new();
    let many = scene.root().join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..100_000 {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            many.join(n.to_string()),
            rustix::fs::FileType::RegularFile,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
    }
    let seq = scene.present(&json!([{"path": "many"}]));
    scene.server.calls.take();
    let files = json!([{"path": "many"}]);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| (0..8).map(|_| scene.release(seq)).collect::<Vec<_>>());
        for _ in 0..8 {
            assert_eq!(explain(&scene, seq)["outcome"], "ask");
            assert_eq!(scene.last_seq(), seq);
        }
        let answers = asking.join().unwrap();
        for answer in answers.into_iter().chain([scene.capture(&files, None)]) {
            assert_eq!((answer.status, answer.code().as_str()), (413, "over-limit"));
            assert!(answer.text().contains("10000 entries"), "{}", answer.text());
        }
    });
    assert_eq!(scene.last_seq(), seq, "nothing was declared");
    assert!(!scene.server.calls.has("store.commit"));
    assert_eq!((scene.server.objects(), scene.pending().len()), (0, 0));
    // What is besides it in the session leaves all the same.
    scene.file("small", b"small");
    assert_eq!(scene.ask_for("small").status, 202);
}

/// A path of a hundred components, and one that is as long as a path may be, go through every door.
#[test]
fn a_path_of_a_hundred_components_goes_through_every_door() {
    let scene = Scene::new();
    let deep = vec!["d"; 99].join("/") + "/file.txt";
    scene.file(&deep, b"down here");
    let seq = scene.present(&json!([{ "path": deep }]));
    assert_eq!(explain(&scene, seq)["outcome"], "ask");
    let asked = scene.release(seq);
    assert_eq!(asked.status, 202, "{}", asked.text());
    assert_eq!(asked.json()["path"], deep);
    let captured = scene.capture(&json!([{ "path": deep }]), None);
    assert_eq!(captured.status, 201, "{}", captured.text());
    let release = &captured.json()["files"][0]["release"];
    assert_eq!(release["attachmentId"], asked.json()["attachmentId"]);
    let (_, bytes) = archive(&scene, "d");
    if let Some(members) = unpacked(&bytes) {
        assert_eq!(members[&deep[2..]], "down here", "{members}");
    }
    // One component more than the name of a path may hold is refused by its letters.
    let long = vec!["d".repeat(200); 30].join("/");
    for (path, class) in [(long.as_str(), "invalid-path"), ("a//b", "invalid-path")] {
        let refused = scene.ask_for(path);
        assert_eq!(refused.code(), "source-refused", "{}", refused.text());
        assert_eq!(refused.json()["class"], class, "{}", refused.text());
    }
}

/// Names that are no text: no path of an event can be one, so such a file leaves in the archive of its
/// directory, under a name that is safe, and a receipt tells it apart from every other.
#[test]
fn names_that_are_no_text_leave_within_their_directory_and_name_nothing_else() {
    let scene = Scene::new();
    scene.file("odd/plain", b"plain");
    let names: [&[u8]; 4] = [b"\xff\xfe", b"caf\xe9.txt", b"\xed\xa0\x80", b"a\xffb"];
    for (n, name) in names.into_iter().enumerate() {
        let path = scene.root().join("odd").join(OsStr::from_bytes(name));
        fs::write(path, format!("odd {n}")).unwrap();
    }
    let (_, bytes) = archive(&scene, "odd");
    let Some(members) = unpacked(&bytes) else {
        return;
    };
    let text = members["holdfast-manifest.json"].as_str().unwrap();
    let manifest: Value = serde_json::from_str(text).unwrap();
    let files = manifest["files"].as_array().unwrap();
    assert_eq!(files.len(), 5, "{manifest}");
    assert_eq!(manifest["leftOut"], json!([]));
    let mut contents: Vec<_> = files
        .iter()
        .map(|file| {
            let name = file["name"].as_str().unwrap();
            members[name].as_str().unwrap()
        })
        .collect();
    contents.sort_unstable();
    assert_eq!(contents, ["odd 0", "odd 1", "odd 2", "odd 3", "plain"]);
    let mut paths: Vec<_> = files.iter().map(|file| file["path"].to_string()).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 5, "{paths:?}");
    assert_eq!(class(&manifest, "plain"), "");
    // What stands for it in the list is no name of it: nothing is found by it, and nothing else is.
    for file in files.iter().filter(|file| file["path"] != "plain") {
        let shown = file["path"].as_str().unwrap();
        let seq = scene.present(&json!([{"path": format!("odd/{shown}")}]));
        assert_eq!(explain(&scene, seq)["outcome"], "ask");
        let refused = scene.release(seq);
        assert_eq!(refused.code(), "source-missing", "{}", refused.text());
        let files = json!([{"path": format!("odd/{shown}")}]);
        assert_eq!(scene.capture(&files, None).code(), "source-missing");
    }
    // Octets that are no text are no path in a request either.
    let target = format!("/v1/sessions/{}/deliverables", scene.session);
    let mut body = br#"{"turn":1,"callId":"c","capture":true,"files":[{"path":"odd/"#.to_vec();
    body.extend(b"\xff\xfe\"}]}");
    let fields = [("Content-Type", "application/json")];
    let token = Some(scene.server.host.token.as_str());
    let refused = scene
        .server
        .ask_with("POST", &target, token, &fields, &body);
    assert_eq!(refused.code(), "malformed", "{}", refused.text());
}

/// Reads an answer's body to its end and keeps nothing of it; how long it was, and how much is not zero.
fn drain(client: &mut Client, bytes: u64) -> (u64, u64) {
    let (mut seen, mut other) = (0, 0);
    while seen < bytes {
        let want = usize::try_from((bytes - seen).min(1 << 20)).unwrap();
        let some = client.read_body(want);
        if some.is_empty() {
            break;
        }
        seen += some.len() as u64;
        other += some.iter().filter(|byte| **byte != 0).count() as u64;
    }
    (seen, other)
}

/// Settings under which files of many gibibytes leave, alone in the process.
fn roomy() -> Scene {
    Scene::proven(Options {
        alone: true,
        limits: Limits {
            file: ByteCount::gib(8),
            session_bytes: ByteCount::gib(32),
            ..Options::default().limits
        },
        max_file: ByteCount::gib(8),
        ..Options::default()
    })
}

fn connect(scene: &Scene) -> Client {
    let client = scene.server.connect();
    client.is_patient(Duration::from_mins(10));
    client
}

/// Releases what is declared at `path`: where it is downloaded, and how long it is.
fn released(scene: &Scene, path: &str) -> (String, u64) {
    let seq = scene.present(&json!([{ "path": path }]));
    let target = scene.item(seq, 0, "release");
    let token = Some(scene.server.alice.token.as_str());
    let octets = request("POST", &target, token, &[], Some(b""));
    let asked = connect(scene).ask(&octets);
    assert_eq!(asked.status, 202, "{}", asked.text());
    let decided = scene.decide(&scene.server.alice, &asked.json(), "allowed-once");
    let href = decided.json()["receipt"]["href"].clone();
    (
        href.as_str().unwrap().to_owned(),
        asked.json()["bytes"].as_u64().unwrap(),
    )
}

fn get(scene: &Scene, client: &mut Client, href: &str, fields: &[(&str, &str)]) -> Answer {
    let token = Some(scene.server.alice.token.as_str());
    client
        .send(&request("GET", href, token, fields, None))
        .unwrap();
    client.read_head()
}

fn report(text: &str) {
    eprintln!("{text}, limit {MAX_GROWTH} KiB");
}

/// R09 and D05: five gibibytes, released, downloaded from the last megabyte and whole, in flat memory.
#[test]
#[ignore = "a minute or two"]
fn r09_d05_five_gibibytes_are_released_and_downloaded_in_flat_memory() {
    const SIZE: u64 = 5 << 30;
    let scene = roomy();
    // What the first of each kind allocates is no growth with size.
    scene.file("small", &vec![0; 3 << 20]);
    let (href, bytes) = released(&scene, "small");
    let mut client = connect(&scene);
    get(&scene, &mut client, &href, &[]);
    assert_eq!(drain(&mut client, bytes), (3 << 20, 0));
    let file = sparse(&scene.root().join("large"), SIZE);
    file.write_all_at(b"the end", SIZE - 7).unwrap();
    file.sync_all().unwrap();
    let before = forget_peak();
    let (href, bytes) = released(&scene, "large");
    assert_eq!(bytes, SIZE);
    let copied = memory("VmHWM").saturating_sub(before);
    let mut client = connect(&scene);
    let last = get(&scene, &mut client, &href, &[("Range", "bytes=-1048576")]);
    assert_eq!(last.status, 206, "{last:?}");
    let range = format!("bytes {}-{}/{SIZE}", SIZE - (1 << 20), SIZE - 1);
    assert_eq!(last.field("content-range"), Some(range.as_str()));
    let tail = client.read_body(1 << 20);
    assert_eq!(tail.len(), 1 << 20);
    assert!(tail.ends_with(b"\0the end"));
    let ranged = memory("VmHWM").saturating_sub(before);
    let whole = get(&scene, &mut client, &href, &[]);
    assert_eq!(whole.status, 200);
    assert_eq!(drain(&mut client, SIZE), (SIZE, 7));
    let growth = memory("VmHWM").saturating_sub(before);
    report(&format!(
        "5 GiB: peak growth {copied} KiB released, {ranged} KiB with its last megabyte, {growth} KiB with all of it"
    ));
    assert!(growth < MAX_GROWTH);
    eventually("its copies are gone", || copies(&scene.server).is_empty());
}

/// Z03 and Z04: a directory of more than four gibibytes is one archive in flat memory, in the 64-bit form, whose
/// last member is had by a range; one of too many files is refused in flat memory as well.
#[test]
#[ignore = "some minutes"]
fn z03_z04_an_archive_of_more_than_four_gibibytes_is_made_in_flat_memory() {
    const SIZE: u64 = 5 << 30;
    let scene = roomy();
    scene.file("small/file", &vec![0; 3 << 20]);
    released(&scene, "small");
    fs::create_dir(scene.root().join("d")).unwrap();
    let file = sparse(&scene.root().join("d/a large"), SIZE);
    file.sync_all().unwrap();
    scene.file("d/b last", b"the last of them");
    let before = forget_peak();
    let (href, bytes) = released(&scene, "d");
    let growth = memory("VmHWM").saturating_sub(before);
    assert!(bytes > SIZE && bytes < SIZE + (1 << 20), "{bytes}");
    let mut client = connect(&scene);
    let last = get(&scene, &mut client, &href, &[("Range", "bytes=-8192")]);
    assert_eq!(last.status, 206, "{last:?}");
    let tail = client.read_body(8192);
    let has = |what: &[u8]| tail.windows(what.len()).any(|some| some == what);
    assert!(has(b"the last of them") && has(b"holdfast-manifest.json"));
    assert!(has(b"PK\x06\x06"), "the 64-bit form of the end");
    let many = scene.root().join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..100_000 {
        fs::File::create(many.join(n.to_string())).unwrap();
    }
    let before = forget_peak();
    let refused = scene.ask_for("many");
    assert_eq!(refused.code(), "over-limit");
    let listed = memory("VmHWM").saturating_sub(before);
    report(&format!(
        "an archive of 5 GiB: peak growth {growth} KiB; of 100,000 files, refused: {listed} KiB"
    ));
    assert!(growth < MAX_GROWTH && listed < MAX_GROWTH);
}
