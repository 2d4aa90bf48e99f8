//! Everything in a session as one archive: what it refers to, what it declares, and what had to stay out.

use std::{fs, os::unix::fs::symlink};

use holdfast::{
    gate::Mode,
    model::{ByteCount, Limits},
};
use serde_json::{Value, json};

use crate::{
    directories::{class, unpacked},
    releases::Scene,
    support::{
        Answer, Options,
        server::{id, request},
    },
};

fn session(scene: &Scene) -> String {
    format!("/v1/sessions/{}", scene.session)
}

fn ask(scene: &Scene) -> Answer {
    let token = Some(scene.server.alice.token.as_str());
    let target = format!("{}/archive", session(scene));
    scene.server.ask("POST", &target, token)
}

/// Downloads what a receipt released.
fn download(scene: &Scene, receipt: &Value) -> Vec<u8> {
    let href = receipt["href"].as_str().unwrap();
    let got = scene.server.get(href, &scene.server.alice);
    assert_eq!(got.status, 200, "{}", got.text());
    got.body
}

/// The archive, decided on where somebody is asked.
fn everything(scene: &Scene) -> (Value, Vec<u8>) {
    let answer = ask(scene);
    let receipt = match answer.status {
        201 => answer.json(),
        202 => {
            let ask = answer.json();
            let alice = &scene.server.alice;
            scene.decide(alice, &ask, "allowed-once").json()["receipt"].clone()
        }
        _ => panic!("{}", answer.text()),
    };
    let bytes = download(scene, &receipt);
    (receipt, bytes)
}

fn manifest(members: &Value) -> Value {
    serde_json::from_str(members["holdfast-manifest.json"].as_str().unwrap()).unwrap()
}

/// Keeps I2, I5 and I10: each file by the rules it has alone, and the whole by a receipt like any other.
#[test]
fn everything_in_a_session_is_one_archive_of_what_may_leave() {
    let scene = Scene::new();
    let (server, own) = (&scene.server, session(&scene));
    server.attach(&own, "notes.txt", b"attached");
    server.attach(&own, "again.txt", b"attached");
    server.attach(&own, "lost.txt", b"lost");
    server.attach(&own, "bent.txt", b"bent");
    for (content, damaged) in [(&b"lost"[..], None), (b"bent", Some(&b"tneb"[..]))] {
        let object = server.object(content);
        fs::remove_file(&object).unwrap();
        if let Some(damaged) = damaged {
            fs::write(&object, damaged).unwrap();
        }
    }
    scene.file("notes.txt", b"in the workspace");
    scene.file("out/deep/a.csv", b"1,2\n");
    scene.file("out/.env", b"KEY=1");
    fs::write(server.data().join("secret"), b"not for you").unwrap();
    symlink(server.data().join("secret"), scene.root().join("link")).unwrap();
    scene.present(&json!([
        {"path": "notes.txt"}, {"path": "out"}, {"path": "link"}, {"path": "../../etc/passwd"},
        {"path": "absent"}, {"path": "id_rsa"},
    ]));
    scene.present(&json!([{"path": "notes.txt"}]));

    let asked = ask(&scene);
    assert_eq!(asked.status, 202, "a new session asks: {}", asked.text());
    let asked = asked.json();
    assert_eq!(
        (&asked["path"], &asked["index"]),
        (&json!(null), &json!(null))
    );
    let (receipt, bytes) = everything(&scene);
    let statement = &receipt["statement"];
    assert_eq!(statement["attachmentId"], asked["attachmentId"]);
    assert_eq!(statement["attachmentId"], json!(id(&bytes)));
    assert_eq!(statement["bytes"], json!(bytes.len()));
    assert_eq!(statement["root"], "ws");
    let name = statement["name"].as_str().unwrap();
    assert_eq!(name.rsplit_once('.').unwrap().1, "zip");
    let Some(members) = unpacked(&bytes) else {
        return;
    };
    let manifest = manifest(&members);
    for (name, content) in [
        ("attachments/notes.txt", "attached"),
        ("attachments/again.txt", "attached"),
        ("files/notes.txt", "in the workspace"),
        ("files/out/deep/a.csv", "1,2\n"),
    ] {
        assert_eq!(members[name], content, "{name}");
        let mut listed = manifest["files"].as_array().unwrap().iter();
        let listed = listed.find(|one| one["name"] == name).unwrap();
        assert_eq!(listed["attachmentId"], json!(id(content.as_bytes())));
        assert_eq!(
            listed.get("grade").is_some(),
            name.starts_with("files/"),
            "{listed}"
        );
    }
    for (path, expected) in [
        ("attachments/lost.txt", "lost"),
        ("attachments/bent.txt", "damaged"),
        ("files/link", "denied_symlink"),
        ("../../etc/passwd", "outside-root"),
        ("files/absent", "not_found"),
        ("files/id_rsa", "denied_name"),
        ("files/out/.env", "denied_name"),
    ] {
        assert_eq!(class(&manifest, path), expected, "{path}: {manifest}");
    }
    assert_eq!(members.as_object().unwrap().len(), 5, "{members}");
    assert!(!String::from_utf8_lossy(&bytes).contains("not for you"));

    // The same session gives the same archive, and asks nobody twice at a time.
    let (again, _) = everything(&scene);
    assert_eq!(
        again["statement"]["attachmentId"],
        statement["attachmentId"]
    );
    assert_eq!(
        ask(&scene).json()["requestId"],
        ask(&scene).json()["requestId"]
    );
    scene.file("notes.txt", b"changed since");
    let first = ask(&scene).json();
    scene.file("notes.txt", b"changed again");
    scene.present(&json!([{"path": "notes.txt"}]));
    let second = ask(&scene).json();
    let late = scene.decide(&server.alice, &first, "allowed-once");
    assert_eq!((late.status, late.code().as_str()), (410, "withdrawn"));
    assert_eq!(scene.pending(), [second]);
}

/// Keeps I3: what is declared stays shut behind a closed gate, and what was attached is had all the same.
#[test]
fn behind_a_closed_gate_an_archive_has_the_attachments_alone_and_asks_nobody() {
    let scene = Scene::with(Mode::MetadataOnly);
    let own = session(&scene);
    scene.server.attach(&own, "notes.txt", b"attached");
    scene.file("a.txt", b"in the workspace");
    scene.present(&json!([{"path": "a.txt"}]));
    let answer = ask(&scene);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let receipt = answer.json();
    for part in ["path", "index", "root", "resolver", "grade"] {
        assert_eq!(receipt["statement"][part], json!(null), "{part}");
    }
    let bytes = download(&scene, &receipt);
    let Some(members) = unpacked(&bytes) else {
        return;
    };
    assert_eq!(members["attachments/notes.txt"], "attached");
    assert_eq!(members.as_object().unwrap().len(), 2, "{members}");
    assert_eq!(class(&manifest(&members), "files/a.txt"), "not-enabled");
}

#[test]
fn what_is_too_much_for_an_archive_is_said_before_anything_is_copied() {
    let limits = Limits {
        file: ByteCount::kib(2),
        ..Limits::default()
    };
    let scene = Scene::proven(Options {
        limits,
        ..Options::default()
    });
    for (n, path) in ["a", "b", "c"].into_iter().enumerate() {
        scene.file(path, &[u8::try_from(n).unwrap(); 900]);
        scene.present(&json!([{ "path": path }]));
    }
    scene.server.calls.take();
    let refused = ask(&scene);
    assert_eq!(refused.status, 413, "{}", refused.text());
    let calls = scene.server.calls.take();
    let spools = calls.iter().filter(|call| **call == "store.spool");
    assert!(
        spools.count() <= 1,
        "the archive's own and no copy: {calls:?}"
    );
    let problem = refused.json();
    assert_eq!(
        (&problem["limitBytes"], &problem["setting"]),
        (&json!(2048), &json!("limits.file"))
    );
    assert_eq!(scene.server.objects(), 0);
    assert_eq!(scene.pending(), Vec::<Value>::new());
}

#[test]
fn a_repeat_under_its_key_gets_the_same_receipt_and_makes_nothing() {
    let scene = Scene::with(Mode::MetadataOnly);
    let (own, token) = (session(&scene), scene.server.alice.token.clone());
    scene.server.attach(&own, "notes.txt", b"attached");
    let again = || {
        let target = format!("{own}/archive");
        let key = [("Idempotency-Key", "k1")];
        let octets = request("POST", &target, Some(&token), &key, Some(b""));
        let answer = scene.server.connect().ask(&octets);
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["receipt"].clone()
    };
    let first = again();
    scene.server.attach(&own, "more.txt", b"more");
    assert_eq!(again(), first);
    let other = ask(&scene).json();
    assert_ne!(other["receipt"], first);
}

/// Keeps I9: who may not have a session's files does not learn that there is one.
#[test]
fn only_an_owner_has_a_session_s_archive() {
    let scene = Scene::new();
    let target = format!("{}/archive", session(&scene));
    for (who, status) in [(&scene.server.host, 403), (&scene.server.bob, 404)] {
        let answer = scene.server.ask("POST", &target, Some(&who.token));
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}
