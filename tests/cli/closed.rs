//! A closed gate, as the kernel sees it: nothing beneath the root is looked at, by whatever door.

use std::{fs, process::Command};

use serde_json::json;

use crate::{
    program::{Home, Server},
    wire,
};

/// Keeps I3 and I15: with `metadata-only`, and with no report, not one call of the server names a file of the
/// workspace, although every door is tried.
#[test]
fn behind_a_closed_gate_nothing_is_opened_by_any_door() {
    if Command::new("strace").arg("-V").output().is_err() {
        return println!("skipped: there is no strace here");
    }
    for mode in ["metadata-only", "when-proven"] {
        let home = Home::new();
        let first = home.up();
        let session = first.text("session").to_owned();
        first.stop();
        let marked = home.data().join("workspace/notes/plan.md");
        assert!(marked.exists());
        let trace = home.path().join("trace");
        // `up` would look whether its demo file is there.
        let serve = home.command(&["--json", "serve", "--allow-root"]);
        let mut command = Command::new("strace");
        command
            .args([
                "-f",
                "-y",
                "-qq",
                "-s",
                "4096",
                "-e",
                "trace=%file,getdents64",
                "-o",
            ])
            .arg(&trace)
            .arg(serve.get_program())
            .args(serve.get_args())
            .env("HOLDFAST_LISTEN", "127.0.0.1:0")
            .env("HOLDFAST_DELIVERABLES_MODE", mode);
        let mut server = Server::start(command, home.path().join("up.log"));
        every_door(&home, &server, &session);
        let pid = i32::try_from(server.ready["pid"].as_i64().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        server.wait();
        let trace = fs::read_to_string(trace).unwrap();
        assert!(trace.lines().count() > 100, "the server was traced");
        let looks: Vec<&str> = trace
            .lines()
            .filter(|line| line.contains("plan.md") || line.contains("notes"))
            .collect();
        assert!(looks.is_empty(), "{mode}: {looks:#?}");
    }
}

fn every_door(home: &Home, server: &Server, session: &str) {
    let person = home.json(&["token", "create", "you"]);
    let token = person["token"].as_str();
    let item = format!("/v1/sessions/{session}/deliverables/3/1/0");
    let get = |path: &str, verb| wire::request(server.address(), verb, path, token, &[], b"");
    assert_eq!(get(&format!("{item}/release"), "POST").status, 409);
    assert_eq!(get(&format!("{item}/release?wait=1"), "POST").status, 409);
    let everything = get(&format!("/v1/sessions/{session}/archive"), "POST");
    assert_eq!(everything.status, 201, "of attachments alone");
    let explained = get(&format!("{item}/explain"), "GET");
    assert_eq!(explained.json()["outcome"], "refuse");
    let snapshot = get(&format!("/v1/sessions/{session}/snapshot"), "GET");
    assert_eq!(
        snapshot.json()["display"]["deliverables"]["mode"],
        "metadata-only"
    );
    for path in [
        format!("/v1/sessions/{session}/releases"),
        format!("/v1/sessions/{session}/events"),
        "/v1/probe".to_owned(),
        "/".to_owned(),
    ] {
        assert_eq!(get(&path, "GET").status, 200, "{path}");
    }
    let host = home.json(&["token", "create", "demo-host"]);
    let form = json!({"turn": 1, "callId": "c", "capture": true,
        "files": [{"path": "notes/plan.md"}]});
    let path = format!("/v1/sessions/{session}/deliverables");
    let token = host["token"].as_str().unwrap();
    let captured = wire::post_json_as(server.address(), &path, token, &form);
    assert_eq!(captured.status, 409, "{captured:?}");
    for words in [
        &["release", "-s", session, "--as", "you", "notes/plan.md"][..],
        &["present", "-s", session, "--capture", "notes/plan.md"],
        &[
            "explain",
            "--look",
            "-s",
            session,
            "--as",
            "you",
            "notes/plan.md",
        ],
        &["ls", "-s", session, "--as", "you"],
        &["verify", "--session", session, "--as", "you"],
    ] {
        let done = home.run(words);
        assert_eq!(
            done.code,
            if ["release", "present"].contains(&words[0]) {
                7
            } else {
                0
            },
            "{done:?}"
        );
    }
}
