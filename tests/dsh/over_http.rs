//! `up --dsh-home`: what a person gets of an existing home.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use holdfast::model::Digest;
use serde_json::{Value, json};

use crate::{
    fixtures::expected,
    program::{Home, Server},
    support::{HomeBuilder, data, event, has_data, header, snapshot},
    wire::{self, Answer},
};

/// Serves a DSH home for `alice`.
fn serve(home: &Home, dsh: &Path) -> Server {
    home.up_with(|command: &mut Command| {
        command
            .arg("--dsh-home")
            .arg(dsh)
            .args(["--owner", "alice"]);
    })
}

/// The sessions alice sees, by own id.
fn sessions(server: &Server) -> BTreeMap<String, Value> {
    let body = server.get("/v1/sessions?limit=100").json();
    let rows = body["sessions"].as_array().unwrap();
    let by_id = rows
        .iter()
        .map(|row| (row["id"].as_str().unwrap().to_owned(), row.clone()));
    by_id.collect()
}

fn attachment(server: &Server, session: &str, id: &str, name: Option<&str>) -> Answer {
    let name = name.map_or_else(String::new, |name| {
        let all = percent_encoding::NON_ALPHANUMERIC;
        format!("?name={}", percent_encoding::utf8_percent_encode(name, all))
    });
    let id = percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC);
    server.get(&format!("/v1/sessions/{session}/attachments/{id}{name}"))
}

/// The same by a ticket, which asks for no token.
fn by_ticket(server: &Server, session: &str, id: &str, name: Option<&str>) -> Vec<u8> {
    let wish = json!({"session": session, "attachmentId": id, "name": name});
    let (address, token) = (server.address(), server.text("token"));
    let made = wire::post_json_as(address, "/v1/tickets", token, &wish);
    assert_eq!(made.status, 201, "{made:?}");
    let href = made.json()["href"].as_str().unwrap().to_owned();
    let answer = wire::get(address, &href, None, &[]);
    assert_eq!(answer.status, 200, "{}", answer.head);
    answer.body
}

/// One archive of the session has what can be had, and names what cannot (I08).
fn in_the_archive(server: &Server, session: &str, references: &[Value]) {
    let (address, token) = (server.address(), server.text("token"));
    let target = format!("/v1/sessions/{session}/archive");
    let made = wire::request(address, "POST", &target, Some(token), &[], b"");
    assert_eq!(made.status, 201, "attachments alone: {made:?}");
    let archive = server.get(made.json()["href"].as_str().unwrap()).body;
    // Its members are stored as they are, the list of them last.
    let begins = b"{\n  \"files\"";
    let at = archive
        .windows(begins.len())
        .rposition(|part| part == begins);
    let mut values = serde_json::Deserializer::from_slice(&archive[at.unwrap()..]).into_iter();
    let manifest: Value = values.next().unwrap().unwrap();
    let of = |state: &str| {
        let all = references.iter().filter(|one| match state {
            "OK" => one["expect"] == "OK",
            _ => one["expect"] != "OK" && one["expect"] != "INVALID_ATTACHMENT_REF",
        });
        let named = all.map(|one| (one["attachmentId"].as_str(), one["name"].as_str()));
        named.collect::<std::collections::BTreeSet<_>>()
    };
    let files = manifest["files"].as_array().unwrap();
    assert_eq!(files.len(), of("OK").len(), "{manifest}");
    for (id, _) in of("OK") {
        assert!(files.iter().any(|one| one["attachmentId"].as_str() == id));
    }
    let left_out = manifest["leftOut"].as_array().unwrap();
    let lost = left_out.iter().filter(|one| {
        let path = one["path"].as_str().unwrap();
        path.starts_with("attachments/")
    });
    assert_eq!(lost.count(), of("broken").len(), "{manifest}");
}

/// Keeps I1 and I4: OK references arrive to the byte under their names, broken ones give a typed
/// refusal, and what no event refers to is not found.
#[test]
fn every_reference_of_the_data_has_its_outcome_over_http() {
    if !has_data() {
        return;
    }
    let mut seen = BTreeMap::<&str, u32>::new();
    let all = expected();
    for root in ["real-rc8-zstd", "real-rc8-plain", "hand-v3"] {
        let before = snapshot(&data().join(root));
        let home = Home::new();
        let server = serve(&home, &data().join(root));
        let sessions = sessions(&server);
        for log in all.iter().filter(|log| {
            let path = log["log"].as_str().unwrap();
            path.starts_with(&format!("{root}/sessions/"))
        }) {
            let id = log["header"]["id"].as_str().unwrap();
            let session = sessions[id]["session"].as_str().unwrap();
            assert_eq!(
                sessions[id]["logGeneration"], log["header"]["version"],
                "{id}"
            );
            let path = format!("/v1/sessions/{session}/snapshot");
            let snapshot = server.get(&path).json();
            let files = snapshot["display"]["files"].as_array().unwrap();
            let presented = &snapshot["display"]["deliverables"];
            assert_ne!(presented["mode"], "release", "{id}");
            let mut rows = files.iter();
            for reference in log["references"].as_array().unwrap() {
                let name = reference["name"].as_str();
                let id = reference["attachmentId"].as_str().unwrap();
                let answer = attachment(&server, session, id, name);
                let what = format!("{root} {id} {name:?}: {}", answer.head);
                match reference["expect"].as_str().unwrap() {
                    "OK" => {
                        assert_eq!(answer.status, 200, "{what}");
                        assert_eq!(format!("sha256:{}", Digest::of(&answer.body)), id, "{what}");
                        assert_eq!(
                            answer.body.len() as u64,
                            reference["bytes"].as_u64().unwrap()
                        );
                        let row = rows.next().unwrap();
                        assert_eq!(
                            (row["attachmentId"].as_str(), row["name"].as_str()),
                            (Some(id), name)
                        );
                        assert_eq!(row["state"], "available", "{what}");
                        assert_eq!(by_ticket(&server, session, id, name), answer.body);
                        *seen.entry("OK").or_default() += 1;
                    }
                    "INVALID_ATTACHMENT_REF" => {
                        assert!(matches!(answer.status, 400 | 404), "{what}");
                        *seen.entry("invalid").or_default() += 1;
                    }
                    broken => {
                        let status = if broken == "ATTACHMENT_NOT_FOUND" {
                            404
                        } else {
                            500
                        };
                        assert_eq!(answer.status, status, "{what}");
                        let problem = answer.json();
                        assert_eq!(problem["status"], status, "{what}");
                        assert!(problem["code"].is_string(), "{what}");
                        rows.next().unwrap();
                        *seen.entry("broken").or_default() += 1;
                    }
                }
            }
            assert_eq!(rows.next(), None, "{id}");
            in_the_archive(&server, session, log["references"].as_array().unwrap());
        }
        // A decoy: stored, looked like a reference, and is none.
        let decoy = "sha256:ea6102100e40dc40eb1769c14d1b7d9111865d5940affefd68d7884d72ed91ec";
        for row in sessions.values() {
            let answer = attachment(&server, row["session"].as_str().unwrap(), decoy, None);
            assert_eq!(answer.status, 404);
            *seen.entry("decoy").or_default() += 1;
        }
        server.stop();
        assert_eq!(snapshot(&data().join(root)), before);
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn a_damaged_log_is_refused_with_its_row_and_hides_no_other() {
    let dsh = HomeBuilder::new();
    let log = [
        header(3, "bad", None),
        "{oops}\n".to_owned(),
        event(0, "turn/end", "{}"),
    ]
    .concat();
    dsh.log("bad", None, "session.v3.jsonl", log.as_bytes());
    dsh.log(
        "good",
        None,
        "session.v3.jsonl",
        header(3, "good", None).as_bytes(),
    );
    dsh.folder("empty", None);
    let home = Home::new();
    let server = serve(&home, dsh.path());
    let body = server.get("/v1/sessions").json();
    let damaged = body["damaged"].as_array().unwrap();
    assert_eq!(damaged.len(), 1, "{body}");
    assert!(sessions(&server).contains_key("good"));
    let answer = server.get(&format!(
        "/v1/sessions/{}/snapshot",
        damaged[0].as_str().unwrap()
    ));
    assert_eq!(answer.status, 500);
    let reason = answer.json()["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("row 1: "), "{reason}");
}

#[test]
fn an_append_and_a_new_session_show_within_a_second_and_an_old_address_is_stale() {
    let dsh = HomeBuilder::new();
    let path = dsh.log(
        "s",
        Some("/w"),
        "session.v2.jsonl",
        header(2, "s", Some("/w")).as_bytes(),
    );
    let home = Home::new();
    let server = serve(&home, dsh.path());
    let session = sessions(&server)["s"]["session"]
        .as_str()
        .unwrap()
        .to_owned();
    let events = format!("/v1/sessions/{session}/events");
    assert_eq!(
        server.get(&events).json()["events"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let mut log = fs::read(&path).unwrap();
    log.extend(event(0, "x", r#"{"n":1}"#).as_bytes());
    fs::write(&path, &log).unwrap();
    assert_eq!(server.get(&events).json()["events"][0]["data"]["n"], 1);
    dsh.log(
        "new",
        None,
        "session.v3.jsonl",
        header(3, "new", None).as_bytes(),
    );
    let start = std::time::Instant::now();
    while !sessions(&server).contains_key("new") {
        assert!(start.elapsed().as_secs() < 2, "it does not show");
    }
    dsh.log(
        "s",
        Some("/w"),
        "session.v3.jsonl",
        header(3, "s", Some("/w")).as_bytes(),
    );
    let stale = server.get(&format!("{events}?logGeneration=2&beforeSeq=1"));
    assert_eq!(
        (stale.status, stale.json()["code"].as_str()),
        (409, Some("stale-generation"))
    );
    // The same handles after a restart; and nobody writes to a home.
    let before = sessions(&server);
    let token = server.text("token").to_owned();
    server.stop();
    let server = serve(&home, dsh.path());
    let after = sessions(&server);
    let handles = |rows: &BTreeMap<String, Value>| -> Vec<_> {
        rows.iter()
            .map(|(id, row)| (id.clone(), row["session"].clone()))
            .collect()
    };
    assert_eq!(handles(&before), handles(&after));
    for (method, rest) in [("POST", "/attachments?name=x"), ("DELETE", "")] {
        let request = format!(
            "{method} /v1/sessions/{session}{rest} HTTP/1.1\r\nHost: {}\r\n\
             Authorization: Bearer {token}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
            server.address()
        );
        let answer = crate::wire::parse(&crate::wire::send(server.address(), request.as_bytes()));
        assert_eq!(answer.status, 403, "{method}: {}", answer.head);
    }
}

/// Nothing is ever written, locked, repaired or created in a home, as the kernel sees it.
#[test]
fn no_system_call_of_the_server_changes_anything_in_a_home() {
    let dsh = HomeBuilder::new();
    let torn = format!("{}{}", header(3, "s", None), r#"{"type":"x","seq":0"#);
    dsh.log("s", None, "session.v3.jsonl", torn.as_bytes());
    dsh.log("s", None, "session.lock", b"");
    let home = Home::new();
    let trace = home.path().join("trace");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-qq", "-s", "0", "-o"])
        .arg(&trace);
    command.args(["-e", "trace=%file,%desc,flock,ftruncate,fchmod,fchown"]);
    let up = home.command(&[
        "--json",
        "up",
        "--no-prove",
        "--listen",
        "127.0.0.1:0",
        "--dsh-home",
    ]);
    command
        .arg(up.get_program())
        .args(up.get_args())
        .arg(dsh.path());
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: there is no strace here");
        return;
    }
    let mut server = Server::start(command, home.path().join("up.log"));
    assert_eq!(sessions(&server)["s"]["lastSeq"], -1);
    // The server itself, not its tracer: that ends with it.
    let pid = i32::try_from(server.ready["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    server.wait();
    let trace = fs::read_to_string(trace).unwrap();
    let place = dsh.path().to_str().unwrap();
    let calls: Vec<&str> = trace.lines().filter(|line| line.contains(place)).collect();
    assert!(calls.len() > 10, "the home was read: {}", calls.len());
    let harmless = [
        "openat(",
        "open(",
        "fstat(",
        "newfstatat(",
        "statx(",
        "pread64(",
        "read(",
        "getdents64(",
        "close(",
        "lseek(",
        "fcntl(",
        "execve(",
        "write(2",
        "dup(",
    ];
    for call in calls {
        let call_name = call
            .split_once(' ')
            .map_or(call, |(_, rest)| rest.trim_start());
        if call_name.starts_with("<...") {
            continue;
        }
        assert!(
            harmless.iter().any(|name| call_name.starts_with(name)),
            "{call}"
        );
        let writes = [
            "O_WRONLY",
            "O_RDWR",
            "O_CREAT",
            "O_TRUNC",
            "O_TMPFILE",
            "F_SETLK",
            "F_OFD_SETLK",
        ];
        assert!(!writes.iter().any(|flag| call.contains(flag)), "{call}");
    }
}
