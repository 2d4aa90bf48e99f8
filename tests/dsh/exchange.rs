//! A native session written out and taken in again: the same events, pages, files and downloads,
//! whole or not at all.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, symlink},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast::{
    control::Control,
    home::DshHome,
    journal::{
        Event, EventType, Journal as _, NewEvent, NewSession, Page, Source as _, Window,
        dsh::{DshLimits, DshOwners, DshSource},
        export,
        native::NativeJournal,
    },
    model::{
        AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest, FileName, JournalLimits,
        PrincipalId, Seq, SessionHandle, SessionId, SystemClock, Timestamp,
    },
};
use serde_json::{Value, json, value::RawValue};

use crate::{
    program::{Done, Home, Server},
    support::{HomeBuilder, data, event, has_data, header, owner, snapshot},
    wire::{self, Answer},
};

const ID: &str = "trip/1 子 ..";
const CWD: &str = "/workspaces/team β";
const NAMES: [&str; 3] = ["季度 📊.csv", "plain.txt", "b'; %2e.html"];

/// A native session with everything a log can refer to. Returns its handle.
fn session(home: &Home) -> String {
    let made = home.json(&[
        "session", "create", "--id", ID, "--cwd", CWD, "--owner", "you",
    ]);
    let handle = made["session"].as_str().unwrap().to_owned();
    for (at, name) in NAMES.iter().enumerate() {
        let file = home.file("upload", format!("content {at}").as_bytes());
        home.json(&[
            "put",
            "-s",
            ID,
            "--reference",
            "--name",
            name,
            file.to_str().unwrap(),
        ]);
    }
    // The same bytes under a second name, and as an image.
    let file = home.file("upload", b"content 0");
    let again = home.json(&[
        "put",
        "-s",
        ID,
        "--reference",
        "--name",
        "again.csv",
        file.to_str().unwrap(),
    ]);
    let image = json!({"type": "user/message", "time": 7, "data": {"content": [{"type": "image",
        "attachment": {"attachmentId": again["attachmentId"], "mediaType": "image/png",
        "bytes": 9, "width": 1, "height": 2}}]}});
    append(
        home,
        &[
            image,
            json!({"type": "turn/start", "time": -3, "data": {"turn": 1}}),
            json!({"type": "plugin/x", "time": 1, "data": {"attachmentId": "decoy"}, "ignorable": true}),
            json!({"type": "deliverables/presented", "time": 2, "data": {"turn": 1, "callId": "c",
            "files": [{"path": "out/../x", "description": "d"}, {"path": "/etc/passwd"}]}}),
            json!({"type": "assistant/message", "time": 3, "data": {"turn": 1, "step": 1,
            "message": {"id": "m", "role": "assistant", "content": [{"type": "text",
            "text": "line\nbreak"}]}}}),
            json!({"type": "turn/end", "time": 4, "data": null}),
        ],
    );
    handle
}

fn append(home: &Home, events: &[Value]) {
    let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
    let file = home.file("events", lines.concat().as_bytes());
    home.json(&["append", "-s", ID, file.to_str().unwrap()]);
}

/// The folder an object of this digest lies in.
fn bucket(digest: &str) -> &str {
    digest.get(..2).unwrap()
}

/// Everything a person can see of a session, and every file of it; what names the server masked.
fn seen(server: &Server, id: &str) -> Vec<Value> {
    let sessions = server.get("/v1/sessions?limit=100").json();
    let rows = sessions["sessions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == id).unwrap();
    let session = row["session"].as_str().unwrap();
    let of = format!("/v1/sessions/{session}");
    let mut shown = server.get(&format!("{of}/snapshot")).json();
    // What the service makes of the session, not what the session says: it takes no setting for one it
    // only reads.
    for own in ["session", "bridgeGeneration", "permission", "capabilities"] {
        shown[own] = Value::Null;
    }
    let mut files = Vec::new();
    for file in shown["display"]["files"].as_array_mut().unwrap() {
        let answer = server.get(file["href"].as_str().unwrap());
        let name = answer.field("content-disposition").map(str::to_owned);
        files.push(json!([
            answer.status,
            name,
            Digest::of(&answer.body).to_string()
        ]));
        file["href"] = Value::Null;
    }
    let mut all = vec![
        row["createdAt"].clone(),
        row["lastSeq"].clone(),
        shown,
        json!(files),
    ];
    let end = row["lastSeq"].as_u64().unwrap() + 1;
    for limit in 1..=end {
        for before in 0..=end {
            all.push(
                server
                    .get(&format!("{of}/events?limit={limit}&beforeSeq={before}"))
                    .json(),
            );
        }
    }
    all
}

fn serve(home: &Home, dsh: &Path) -> Server {
    home.up_with(|command| {
        command.arg("--dsh-home").arg(dsh);
    })
}

fn exported(home: &Home, into: &str) -> PathBuf {
    let done = home.json(&["export", ID, into]);
    assert_eq!(done["outcome"], "new", "{done}");
    home.path().join(into).join(done["log"].as_str().unwrap())
}

/// Keeps I10: written beside a server and without one, a session is the same; served from there it
/// is what it was; taken in elsewhere it is that again, and once.
#[test]
fn an_exported_session_is_served_and_taken_in_as_it_was() {
    let home = Home::new();
    let server = home.up();
    session(&home);
    let native = seen(&server, ID);
    assert_eq!(
        native[3].as_array().unwrap().len(),
        5,
        "every reference is a file"
    );
    let beside = exported(&home, "beside");
    server.stop();
    let alone = exported(&home, "alone");
    assert_eq!(fs::read(&beside).unwrap(), fs::read(&alone).unwrap());

    // A name is a hard link to the one content, and nothing may write to it.
    let digest = Digest::of(b"content 0").to_string();
    let v1 = home.path().join("beside/attachments/v1");
    let object = v1.join("file-objects").join(bucket(&digest)).join(&digest);
    let facts = fs::metadata(&object).unwrap();
    assert_eq!((facts.mode() & 0o777, facts.nlink()), (0o400, 3));
    assert!(
        v1.join("objects")
            .join(bucket(&digest))
            .join(&digest)
            .is_file()
    );

    let other = Home::new();
    let in_place = serve(&other, &home.path().join("beside"));
    let read = seen(&in_place, ID);
    in_place.stop();
    assert_eq!(read, native, "read in place, it is the same");

    let third = Home::new();
    let server = third.up();
    let tree = snapshot(&home.path().join("beside"));
    let directory = home.path().join("beside");
    let import = ["import", directory.to_str().unwrap(), "--owner", "you"];
    let plan = third.json(&[&import[..], &["--dry-run"]].concat());
    assert_eq!(plan["sessions"][0]["events"], 10);
    assert_eq!(ids(&third), ["demo"], "a dry run takes nothing in");
    for is_new in [true, false] {
        let done = third.json(&import);
        assert_eq!(done["sessions"][0]["isNew"], is_new, "{done}");
        assert_eq!(seen(&server, ID), native);
    }
    server.stop();
    assert_eq!(
        third.json(&import)["sessions"][0]["isNew"],
        false,
        "and without a server"
    );
    assert_eq!(
        tree,
        snapshot(&directory),
        "nothing is written where it came from"
    );
    let back = exported(&third, "back");
    assert_eq!(fs::read(&beside).unwrap(), fs::read(back).unwrap());
}

fn ids(home: &Home) -> Vec<String> {
    let all = home.json(&["session", "list"]);
    let rows = all["sessions"].as_array().unwrap();
    let mut ids: Vec<_> = rows
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[test]
fn what_lies_at_the_target_is_continued_or_left_alone() {
    let home = Home::new();
    home.up().stop();
    session(&home);
    let log = exported(&home, "out");
    let again = |outcome: &str| {
        let done = home.json(&["export", ID, "out"]);
        assert_eq!(done["outcome"], outcome);
    };
    again("unchanged");
    let before = fs::read(&log).unwrap();
    append(
        &home,
        &[json!({"type": "turn/start", "time": 9, "data": {"turn": 2}})],
    );
    again("extended");
    let after = fs::read(&log).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());

    let refused = |what: &str, code: i32, why: &str| {
        let tree = snapshot(&home.path().join("out"));
        let done = home.run(&["export", ID, "out"]);
        assert_eq!(done.code, code, "{what}: {done:?}");
        assert!(done.err.contains(why), "{what}: {done:?}");
        assert_eq!(snapshot(&home.path().join("out")), tree, "{what}");
    };
    // Somebody else's log, one that went on elsewhere, one cut within a line.
    let own = fs::metadata(&log).unwrap().permissions();
    let put = |bytes: &[u8]| {
        fs::remove_file(&log).unwrap();
        fs::write(&log, bytes).unwrap();
        fs::set_permissions(&log, own.clone()).unwrap();
    };
    for bytes in [
        &b"{}\n"[..],
        &[&after[..], b"{}\n"].concat(),
        &after[..after.len() - 9],
    ] {
        put(bytes);
        refused("another log", 7, "left as it is");
    }
    put(&after);
    let newer = log.with_file_name("session.v4.jsonl.zstd");
    fs::write(&newer, b"x").unwrap();
    refused("a newer generation", 7, "another generation");
    fs::remove_file(newer).unwrap();
    // A DSH host, or another export, writes there now.
    let lock = fs::File::open(log.with_file_name("session.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    refused("a held lock", 6, "somebody else writes");
    drop(lock);
    again("unchanged");

    // Links below the directory are not followed, wherever they stand.
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let linked = home.path().join("linked");
    fs::create_dir(&linked).unwrap();
    symlink(&elsewhere, linked.join("sessions")).unwrap();
    assert_eq!(home.run(&["export", ID, "linked"]).code, 1);
    fs::remove_file(linked.join("sessions")).unwrap();
    symlink(&elsewhere, linked.join("attachments")).unwrap();
    assert_eq!(home.run(&["export", ID, "linked"]).code, 1);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    let logs = |dir: &Path| {
        snapshot(dir)
            .iter()
            .filter(|row| row.contains("session.v3"))
            .count()
    };
    assert_eq!(logs(&linked), 0, "no log without its attachments");

    // A wrong object at its place, and content that is lost, leave no log either.
    let digest = Digest::of(b"content 1").to_string();
    let place = home
        .path()
        .join("bad/attachments/v1/file-objects")
        .join(bucket(&digest));
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join(&digest), b"content X").unwrap();
    assert_eq!(home.run(&["export", ID, "bad"]).code, 5);
    assert_eq!(logs(&home.path().join("bad")), 0);
    let objects = home
        .data()
        .join("data/objects/sha256")
        .join(bucket(&digest));
    fs::rename(objects.join(&digest), home.path().join("lost")).unwrap();
    let lost = home.run(&["export", ID, "lost-one"]);
    assert_ne!(lost.code, 0, "{lost:?}");
    assert_eq!(logs(&home.path().join("lost-one")), 0);
}

#[test]
fn what_a_dsh_home_cannot_hold_is_refused_by_name() {
    let home = Home::new();
    home.up().stop();
    home.json(&["session", "create", "--id", ID, "--cwd", CWD]);
    let file = home.file("upload", b"x");
    home.json(&[
        "put",
        "-s",
        ID,
        "--reference",
        "--name",
        "a:b?.txt",
        file.to_str().unwrap(),
    ]);
    let done = home.run(&["export", ID, "out"]);
    assert_eq!(done.code, 7);
    assert!(done.err.contains("a:b?.txt"), "{done:?}");
    let url = home.run(&[
        "export",
        ID,
        "out",
        "--url",
        "http://127.0.0.1:9",
        "--token",
        "t",
    ]);
    assert_eq!(url.code, 2, "{url:?}");
}

/// A home with one session in native format.
fn small(rows: &[String]) -> HomeBuilder {
    let home = HomeBuilder::new();
    let log = format!("{}{}", header(3, "one", Some("/w")), rows.concat());
    home.log("one", Some("/w"), "session.v3.jsonl", log.as_bytes());
    home
}

fn file_row(seq: u64, content: &[u8], bytes: usize) -> String {
    event(seq, "user/message", &file_data(content, bytes))
}

/// The payload of a message that refers to a file.
fn file_data(content: &[u8], bytes: usize) -> String {
    let id = AttachmentId::new(Digest::of(content));
    let attachment = json!({"attachmentId": id, "name": "f.txt", "bytes": bytes});
    json!({"content": [{"type": "file", "attachment": attachment}]}).to_string()
}

/// Puts an attachment where its reference says.
fn put(home: &HomeBuilder, content: &[u8], as_if: &[u8]) {
    let digest = Digest::of(as_if).to_string();
    let names = home
        .path()
        .join("attachments/v1/files")
        .join(bucket(&digest))
        .join(&digest);
    fs::create_dir_all(&names).unwrap();
    fs::write(names.join("f.txt"), content).unwrap();
}

/// Keeps I12: everything is checked first, and what is refused leaves no session.
#[test]
fn what_cannot_be_taken_in_whole_is_refused_with_the_row() {
    let home = Home::new();
    home.up().stop();
    let fine = event(0, "turn/start", "{}");
    let end = event(1, "turn/end", "{}");
    let row = |text: &str| format!("{text}\n");
    for (rows, why) in [
        (vec![fine.clone(), "{}\n".to_owned(), end.clone()], "row 2"),
        (
            vec![
                fine.clone(),
                row(r#"{"type":"x","seq":2,"time":1,"data":1}"#),
            ],
            "row 2: its seq is 2, not 1",
        ),
        (
            vec![
                fine.clone(),
                r#"{"type":"x","seq":1,"time":1,"data":1}"#.to_owned(),
            ],
            "ends within it",
        ),
        (
            vec![row(r#"{"type":"x","seq":0,"time":1,"data":1,"extra":1}"#)],
            "row 1: unknown field",
        ),
        (
            vec![row(
                r#"{"type":"x","seq":0,"time":1,"data":1,"sourceEventSeqs":[0]}"#,
            )],
            "sourceEventSeqs",
        ),
        (
            vec![row(
                r#"{"type":"user/message","seq":0,"time":1,"data":{},"surfaceOp":"other"}"#,
            )],
            "surface operations",
        ),
        (
            vec![row(
                r#"{"type":"user/message","seq":0,"time":1,"data":{},"surfaceOp":{"op":"replace","startSeq":0,"endSeq":0}}"#,
            )],
            "row 1",
        ),
        (
            vec![row(r#"{"type":"a b","seq":0,"time":1,"data":1}"#)],
            "row 1: an event type",
        ),
        (
            vec![row(
                r#"{"type":"user/message","seq":0,"time":1,"data":{"content":[{"type":"file"}]}}"#,
            )],
            "malformed reference",
        ),
        // Within every bound of a log, and past one of the journal: found in the middle of the commit.
        (
            vec![
                fine.clone(),
                event(1, "x", &format!("\"{}\"", "x".repeat(2 << 20))),
            ],
            "event 1: an event has",
        ),
        (vec![fine.clone(), file_row(1, b"absent", 6)], "f.txt"),
        (vec![fine.clone(), file_row(1, b"short", 6)], "f.txt"),
        (
            vec![fine.clone(), file_row(1, b"wrong", 5)],
            "its content is another",
        ),
    ] {
        let from = small(&rows);
        put(&from, b"short", b"short");
        put(&from, b"WRONG", b"wrong");
        let done = home.run(&["import", from.path().to_str().unwrap()]);
        assert_eq!(done.code, 7, "{why}: {done:?}");
        assert!(done.err.contains(why), "{why}: {done:?}");
        assert_eq!(ids(&home), ["demo"], "{why}");
    }
}

/// Keeps I12: a home with one bad session gives none; another session of the same id is not merged.
#[test]
fn other_sessions_and_other_homes_are_refused_and_nothing_is_merged() {
    let home = Home::new();
    home.up().stop();
    let fine = event(0, "turn/start", "{}");
    let end = event(1, "turn/end", "{}");
    for (name, head, why) in [
        ("session.jsonl", header(0, "one", Some("/w")), "format 0"),
        (
            "session.v3.jsonl",
            header(3, "two", Some("/w")),
            "another folder",
        ),
        (
            "session.v3.jsonl",
            header(3, "one", Some("/v")),
            "another folder",
        ),
        (
            "session.v3.jsonl",
            header(3, "one", Some("/w")).replace("false", "true"),
            "a fork",
        ),
        (
            "session.v3.jsonl",
            header(3, "one", Some("/w"))
                .replace("\"isSeeded\"", "\"origin\":\"subagent\",\"isSeeded\""),
            "unknown field `origin`",
        ),
    ] {
        let from = HomeBuilder::new();
        from.log("one", Some("/w"), name, head.as_bytes());
        let done = home.run(&["import", from.path().to_str().unwrap()]);
        assert_eq!(
            (done.code, done.err.contains(why)),
            (7, true),
            "{why}: {done:?}"
        );
    }
    // One bad session and a good one: nothing comes in.
    let from = small(std::slice::from_ref(&fine));
    from.log("two", None, "session.v3.jsonl", b"{}\n");
    assert_eq!(home.run(&["import", from.path().to_str().unwrap()]).code, 7);
    let one = home.json(&["import", from.path().to_str().unwrap(), "--session", "one"]);
    assert_eq!(one["sessions"][0]["isNew"], true);
    // Another session of the same id is not merged with it.
    for other in [
        small(&[end.replace("\"seq\":1", "\"seq\":0")]),
        small(&[fine, end]),
    ] {
        let done = home.run(&["import", other.path().to_str().unwrap()]);
        assert_eq!(
            (done.code, done.err.contains("session-exists")),
            (7, true),
            "{done:?}"
        );
    }
    assert_eq!(ids(&home), ["demo", "one"]);
    assert_eq!(
        home.run(&["import", from.path().to_str().unwrap(), "--session", "no"])
            .code,
        4
    );
}

/// Asks the control socket itself.
fn ask(home: &Home, acting: &str, manifest: &Value, rest: &[u8]) -> Answer {
    let body = [format!("{manifest}\n").as_bytes(), rest].concat();
    let mut stream = UnixStream::connect(home.data().join("data/control.sock")).unwrap();
    let head = format!(
        "POST /local/v1/imports HTTP/1.1\r\nhost: localhost\r\nholdfast-as: {acting}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    wire::parse(&answer)
}

/// Keeps I1: content that another session has is no content of this one, unless it is sent along.
#[test]
fn a_digest_in_a_log_is_no_right_to_the_bytes() {
    let home = Home::new();
    let server = home.up();
    session(&home);
    let content = b"content 1";
    let log = format!(
        "{}{}",
        header(3, "thief", None),
        file_row(0, content, content.len())
    );
    let id = AttachmentId::new(Digest::of(content)).to_string();
    let known = json!([{"id": id, "bytes": content.len()}]);
    let host = "demo-host";
    for (content, rest, acting, status, what) in [
        (
            json!([]),
            log.clone().into_bytes(),
            host,
            422,
            "not sent along",
        ),
        (
            known.clone(),
            [log.as_bytes(), b"CONTENT 1"].concat(),
            host,
            422,
            "other bytes sent",
        ),
        (
            known.clone(),
            [log.as_bytes(), b"con"].concat(),
            host,
            400,
            "cut short",
        ),
        (
            known.clone(),
            [log.as_bytes(), content].concat(),
            "you",
            403,
            "not a host",
        ),
        (
            known.clone(),
            [log.as_bytes(), content].concat(),
            host,
            201,
            "sent along",
        ),
    ] {
        let before = ids(&home);
        let manifest = json!({"log": log.len(), "content": content, "owners": []});
        let answer = ask(&home, acting, &manifest, &rest);
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert_eq!(ids(&home) == before, status != 201, "{what}");
    }
    let done: Done = home.run(&["get", "-s", "thief", "f.txt", "-o", "got"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(fs::read(home.path().join("got")).unwrap(), content);
    // None of the ways in on the network has any of this.
    let url = server.address();
    assert_eq!(
        wire::get(url, "/local/v1/imports", Some(server.text("token")), &[]).status,
        404
    );
}

/// Logs of format 3 that DSH's own packages would accept are taken in as far as a native session can
/// hold them, and never in part.
#[test]
fn logs_of_other_writers_come_in_whole_or_not_at_all() {
    if !has_data() {
        return;
    }
    let home = Home::new();
    home.up().stop();
    for root in ["hand-v3", "real-rc8-zstd"] {
        let done = home.run(&["import", data().join(root).to_str().unwrap()]);
        assert_eq!(done.code, 7, "{done:?}");
    }
    assert_eq!(ids(&home), ["demo"]);
}

/// Events of every kind, some of them large.
fn varied() -> impl Iterator<Item = NewEvent> {
    let kinds = [
        "turn/start",
        "user/message",
        "step/start",
        "tool/call",
        "assistant/message",
    ];
    (0..60_usize).map(move |at| {
        // Messages come in no fixed rhythm; some events are large, so that pages end by bytes.
        let kind = kinds[(at * at + at / 7) % 5];
        let pad = "x".repeat(if at % 13 == 5 { 900_000 } else { 10 });
        let data = match (kind, at % 4) {
            ("user/message", 1) => file_data(b"x", 1),
            _ => format!("{{\n \"pad\":\"{pad}\"\r\n}}"),
        };
        NewEvent {
            kind: EventType::parse(kind).unwrap(),
            time: Timestamp::from_millis(i64::try_from(at).unwrap()),
            data: RawValue::from_string(data).unwrap(),
            ignorable: at % 3 == 0,
        }
    })
}

/// The library's own parts: whatever the events, a page of the log begins where one of the native
/// session does.
#[test]
fn pages_of_an_exported_log_begin_where_native_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::open_inline(fs::File::open(dir.path()).unwrap(), Arc::new(SystemClock));
    let control = Arc::new(control.unwrap());
    let native = NativeJournal::new(
        Arc::clone(&control),
        JournalLimits::default(),
        ByteCount::gib(1),
    );
    let handle = SessionHandle::from_random([3; 16]);
    let new = NewSession {
        handle,
        id: SessionId::parse("s").unwrap(),
        cwd: None,
        host: PrincipalId::from_random([1; 16]),
        owners: vec![owner()],
        created_at: Timestamp::from_millis(1),
    };
    native.create(new).unwrap();
    let reference = AttachmentRef {
        id: AttachmentId::new(Digest::of(b"x")),
        name: Some(FileName::parse("f.txt").unwrap()),
        bytes: ByteCount::new(1),
        kind: AttachmentKind::File,
    };
    native
        .record_upload(handle, &reference, Timestamp::from_millis(1))
        .unwrap();
    for event in varied() {
        native.append(handle, vec![event], None).unwrap();
    }

    let home = HomeBuilder::new();
    let session = native.session(handle).unwrap();
    let place = export::place("s", None).unwrap();
    let mut log = Vec::new();
    export::write(&mut log, &session);
    let mut next = Seq::FIRST;
    while next < session.next_seq {
        for event in native.events_from(handle, next, 7).unwrap() {
            assert_eq!(event.seq, next);
            export::append(&mut log, &event);
            next = event.seq.next().unwrap();
        }
    }
    let path = home.log("s", None, &place.file, &log);
    assert!(path.ends_with(format!("{}/{}/{}", place.project, place.folder, place.file)));
    let owners = DshOwners {
        owners: vec![owner()],
        host: None,
    };
    let home = Arc::new(DshHome::open(home.path()).unwrap());
    let dsh = DshSource::open(control, home, "h", owners, DshLimits::default()).unwrap();
    let there = dsh.handle_of("s").unwrap();
    let flat = |page: Page| {
        let one = |event: Event| {
            let data: Value = serde_json::from_str(event.data.get()).unwrap();
            (
                event.seq,
                event.kind,
                event.time,
                event.ignorable,
                data.to_string().len(),
            )
        };
        (
            page.has_more,
            page.events.into_iter().map(one).collect::<Vec<_>>(),
        )
    };
    for limit in [0, 1, 2, 3, 5, 8, 20, 59, 60, 1000] {
        for before in 0..=61 {
            let before = Some(Seq::new(before));
            let [one, other] = [
                (&native as &dyn holdfast::journal::Source, handle),
                (&dsh, there),
            ]
            .map(|(source, session)| flat(source.page(session, None, before, limit).unwrap()));
            assert_eq!(one, other, "limit {limit}, before {before:?}");
        }
    }
    let all = Window {
        offset: 0,
        limit: 100,
    };
    assert_eq!(
        native.references(handle, all).unwrap(),
        dsh.references(there, all).unwrap()
    );
    assert!(!native.references(handle, all).unwrap().is_empty());
}

/// Runs a command and kills it after so many milliseconds; says whether it ended by itself.
fn killed(home: &Home, arguments: &[&str], after: u64) -> bool {
    let mut command = home.command(arguments);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(after));
    child.kill().unwrap();
    child.wait().unwrap().success()
}

/// Keeps I12: killed at any time, an import has brought in the whole session or none, an export has
/// written the whole log or none, and the next one finishes what the first could not.
#[test]
fn a_kill_at_any_time_leaves_a_session_whole_or_absent() {
    let rows: Vec<String> = (0..3_000)
        .map(|seq| match seq {
            9 => file_row(seq, b"content", 7),
            _ => event(seq, "x", &format!("\"{}\"", "x".repeat(200))),
        })
        .collect();
    let from = small(&rows);
    put(&from, b"content", b"content");
    let directory = from.path().to_str().unwrap();
    let first = Home::new();
    first.up().stop();
    let start = Instant::now();
    first.json(&["import", directory]);
    let took = u64::try_from(start.elapsed().as_millis()).unwrap();
    let log = |home: &Home| home.path().join("out/sessions/--w--/one/session.v3.jsonl");
    first.json(&["export", "one", "out"]);
    let whole = fs::read(log(&first)).unwrap();
    let (mut absent, mut there) = (0, 0);
    for round in 1..=7 {
        let home = Home::new();
        home.up().stop();
        let ended = killed(&home, &["import", directory], took * round / 6);
        match ids(&home).len() {
            1 => {
                assert!(!ended);
                absent += 1;
            }
            _ => there += 1,
        }
        let was_there = ids(&home).len() == 2;
        let again = home.json(&["import", directory]);
        assert_eq!(again["sessions"][0]["isNew"], !was_there, "round {round}");
        assert_eq!(home.run(&["verify", "--session", "one"]).code, 0);

        let log = log(&home);
        killed(&home, &["export", "one", "out"], took * round / 6);
        // A log that has its name has everything, and what it refers to lies there.
        if log.exists() {
            assert!(fs::read(&log).unwrap() == whole, "round {round}");
        }
        let done = home.json(&["export", "one", "out"]);
        assert_ne!(done["outcome"], "extended", "round {round}");
        let back = home.run(&["import", "out", "--dry-run"]);
        assert_eq!(back.code, 0, "round {round}: {back:?}");
    }
    println!("{absent} times absent, {there} times whole, after up to {took} ms");
    assert!(absent > 0, "no kill came early enough");
}
