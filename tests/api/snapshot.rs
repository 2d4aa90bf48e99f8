use serde_json::json;

use crate::support::{
    Server,
    server::{id, message},
};

fn presented(files: &serde_json::Value) -> serde_json::Value {
    json!({"type": "deliverables/presented", "time": 1, "data": {"turn": 1, "callId": "c1", "files": files}})
}

/// Keeps I3: declared paths are metadata, whatever the event says of them.
#[test]
fn a_snapshot_shows_files_to_download_and_paths_as_claims() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let content = b"the report";
    server.attach(&session, "report #1.txt", content);
    let decoy = json!([
        {"path": "out/report.pdf", "description": "the report", "attachmentId": id(content), "bytes": 10},
        {"path": "/workspaces/demo/out/b.txt"},
        {"path": "../../etc/passwd"},
    ]);
    let body = json!({"events": [presented(&decoy)]});
    let answer = server.post(&format!("{session}/events"), &server.host, &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer = server.get(&format!("{session}/snapshot"), &server.alice);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut body = answer.json();
    let created = body["createdAt"].take();
    assert!(created.is_i64());
    let handle = session.replace("/v1/sessions/", "");
    let permission = server.get(&format!("{session}/permission"), &server.alice);
    let permission = permission.json();
    assert_eq!(permission["effectiveValue"], "read-only");
    let expected = json!({
        "session": handle, "id": body["id"], "createdAt": null,
        "logGeneration": 3, "lastSeq": 1, "bridgeGeneration": 1,
        "capabilities": {
            "composer": false,
            "approval": {"interactive": false, "reason": "nobody-present"},
            "localHandoff": false,
            "localHandoffDetails": {"reason": "executor-unavailable", "executesLocally": false},
        },
        "permission": permission,
        "pendingInteractions": [],
        "display": {
            "files": [{
                "attachmentId": id(content), "name": "report #1.txt", "bytes": 10,
                "kind": "file", "mediaType": "application/octet-stream", "seq": 0,
                "href": format!("{session}/attachments/{}?name=report%20%231%2Etxt", id(content)),
                "state": "available",
            }],
            "filesHaveMore": false,
            "deliverables": {
                "mode": "metadata-only", "reason": "not-enabled", "hasMore": false,
                "gate": {"root": null, "state": "closed", "reason": "no-root"},
                "items": [
                    {"logGeneration": 3, "seq": 1, "index": 0, "path": "out/report.pdf", "description": "the report"},
                    {"logGeneration": 3, "seq": 1, "index": 1, "path": "out/b.txt"},
                    {"logGeneration": 3, "seq": 1, "index": 2, "path": "../../etc/passwd", "refused": "outside-root"},
                ],
            },
        },
    });
    assert_eq!(body, expected);
}

/// One lost object marks its own row and nothing else (I08).
#[test]
fn i08_a_lost_object_is_marked_and_everything_else_works() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let lost = server.attach(&session, "lost", b"soon gone");
    let kept = server.attach(&session, "kept", b"stays");
    let short = server.attach(&session, "short", b"soon short");
    std::fs::remove_file(server.object(b"soon gone")).unwrap();
    crate::damage::in_place(&server.object(b"soon short"), |file| {
        file.set_len(4).unwrap();
    });

    let snapshot = server
        .get(&format!("{session}/snapshot"), &server.alice)
        .json();
    let states: Vec<_> = snapshot["display"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            (
                file["name"].as_str().unwrap(),
                file["state"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        states,
        [
            ("lost", "lost"),
            ("kept", "available"),
            ("short", "damaged")
        ]
    );
    let answer = server.get(&lost, &server.alice);
    assert_eq!(
        (answer.status, answer.code()),
        (404, "content-lost".to_owned())
    );
    assert_eq!(server.get(&short, &server.alice).code(), "integrity");
    assert_eq!(server.get(&kept, &server.alice).body, b"stays");
    assert_eq!(
        server
            .get(&format!("{session}/events"), &server.alice)
            .status,
        200
    );
    // Uploading the same bytes brings them back, as the refusal says.
    assert_eq!(
        server
            .upload(&session, "lost", &server.alice, b"soon gone")
            .status,
        201
    );
    assert_eq!(server.get(&lost, &server.alice).body, b"soon gone");
}

/// Keeps I11.
#[test]
fn a_snapshot_shows_so_many_files_and_says_that_there_are_more() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let mut events = Vec::new();
    for n in 0..203_u32 {
        let content = n.to_le_bytes();
        let name = format!("f{n}");
        assert_eq!(
            server
                .upload(&session, &name, &server.host, &content)
                .status,
            201
        );
        events.push(message(&name, &content));
    }
    let body = json!({"events": events});
    assert_eq!(
        server
            .post(&format!("{session}/events"), &server.host, &body)
            .status,
        201
    );
    let page = |offset: u32| {
        let target = format!("{session}/snapshot?filesOffset={offset}");
        let display = server.get(&target, &server.alice).json()["display"].clone();
        let count = display["files"].as_array().unwrap().len();
        (count, display["filesHaveMore"].as_bool().unwrap())
    };
    assert_eq!(page(0), (200, true));
    assert_eq!(page(200), (3, false));
}

/// Content that no event refers to is not shown and not downloadable, not even to its uploader.
#[test]
fn an_upload_appears_once_an_event_refers_to_it() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let target = format!("{session}/attachments/{}", id(b"early"));
    assert_eq!(
        server.upload(&session, "e", &server.alice, b"early").status,
        201
    );
    let files = |server: &Server| {
        let snapshot = server.get(&format!("{session}/snapshot"), &server.alice);
        snapshot.json()["display"]["files"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(files(&server), 0);
    for who in [&server.alice, &server.host] {
        for method in ["GET", "HEAD"] {
            assert_eq!(server.ask(method, &target, Some(&who.token)).status, 404);
        }
    }
    assert_eq!(server.refer(&session, "e", b"early").status, 201);
    assert_eq!(files(&server), 1);
    assert_eq!(server.get(&target, &server.alice).body, b"early");
}
