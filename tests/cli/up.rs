//! `up`: from nothing to a verified download.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    program::{Home, run},
    wire,
};

fn digest(bytes: &[u8]) -> String {
    holdfast::model::Digest::of(bytes).to_string()
}

/// Keeps I3 and I4 end to end: the uploaded file arrives whole and as its id says; the workspace
/// file is listed with the reason and without a byte of its content.
#[test]
fn up_on_an_empty_directory_serves_a_verified_download_and_says_what_is_not_released() {
    let home = Home::new();
    let server = home.up();
    let sessions = server.get("/v1/sessions").json();
    assert_eq!(sessions["sessions"][0]["session"], server.text("session"));
    let path = format!("/v1/sessions/{}/snapshot", server.text("session"));
    let snapshot = server.get(&path);
    let shown = snapshot.json();
    assert_eq!(
        shown["display"]["files"][0]["attachmentId"],
        server.text("attachmentId")
    );
    let deliverables = &shown["display"]["deliverables"];
    assert_eq!(deliverables["mode"], "metadata-only");
    assert_eq!(deliverables["reason"], "no-report");
    assert_eq!(deliverables["items"][0]["path"], "notes/plan.md");
    let plan = std::fs::read_to_string(home.data().join("workspace/notes/plan.md")).unwrap();
    let line = plan.lines().nth(2).unwrap();
    assert!(
        !String::from_utf8_lossy(&snapshot.body).contains(line),
        "content leaked"
    );

    let answer = server.get(&server.attachment());
    assert_eq!(answer.status, 200);
    assert_eq!(
        format!("sha256:{}", digest(&answer.body)),
        server.text("attachmentId")
    );
    assert_eq!(
        answer.body.len().to_string(),
        answer.field("content-length").unwrap()
    );
    assert!(
        answer
            .field("content-disposition")
            .unwrap()
            .contains("welcome.txt")
    );

    let stranger = wire::get(server.address(), &server.attachment(), None, &[]);
    assert_eq!(stranger.status, 401);
    let log = server.stop();
    assert!(
        log.contains("no boundary"),
        "says that our own root is no boundary: {log}"
    );
}

#[test]
fn what_up_makes_is_for_its_owner_alone() {
    let home = Home::new();
    let _server = home.up();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&home.data()), 0o700);
    assert_eq!(mode(&home.data().join("data")), 0o700);
    assert_eq!(mode(&home.data().join("holdfast.toml")), 0o600);
    assert_eq!(mode(&home.data().join("data/control.sock")), 0o600);
}

#[test]
fn the_sign_in_code_works_once() {
    let home = Home::new();
    let server = home.up();
    let form = json!({"code": server.text("loginCode")});
    let first = wire::post_json(server.address(), "/v1/login", &form);
    assert_eq!(first.status, 200);
    let token = first.json()["token"].as_str().unwrap().to_owned();
    let answer = wire::get(server.address(), &server.attachment(), Some(&token), &[]);
    assert_eq!(answer.status, 200);
    let second = wire::post_json(server.address(), "/v1/login", &form);
    assert_eq!(second.status, 401);
}

/// Keeps I12: a stop, and a kill -9 as well, loses nothing; the next `up` finds it and adds nothing.
#[test]
fn a_second_up_starts_again_with_fresh_credentials_and_the_same_session() {
    let home = Home::new();
    let first = home.up();
    let (session, file) = (
        first.text("session").to_owned(),
        first.text("attachmentId").to_owned(),
    );
    let token = first.text("token").to_owned();
    first.stop();
    assert!(
        !home.data().join("data/control.sock").exists(),
        "the socket goes with the server"
    );

    let mut second = home.up();
    assert_eq!(
        (second.text("session"), second.text("attachmentId")),
        (&*session, &*file)
    );
    assert_ne!(second.text("token"), token);
    second.signal(Signal::KILL);
    second.wait();

    let third = home.up();
    assert_eq!(
        (third.text("session"), third.text("attachmentId")),
        (&*session, &*file)
    );
    assert_eq!(third.get(&third.attachment()).status, 200);
    let events = third.get(&format!("/v1/sessions/{session}/events")).json();
    assert_eq!(
        events["events"].as_array().unwrap().len(),
        2,
        "the demo is made once"
    );
    let all = third.get("/v1/sessions").json();
    assert_eq!(all["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_setup_that_was_cut_short_is_finished_by_the_next() {
    let home = Home::new();
    home.up().stop();
    // As if the run had ended before its last step: the configuration.
    std::fs::remove_file(home.data().join("holdfast.toml")).unwrap();
    let server = home.up();
    assert_eq!(server.get(&server.attachment()).status, 200);
}

#[test]
fn up_refuses_a_directory_that_holds_something_else() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    std::fs::set_permissions(home.data(), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(home.data().join("thesis.tex"), "x").unwrap();
    let done = home.run(&["up", "--no-prove", "--listen", "127.0.0.1:0"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("was not set up by Holdfast"), "{done:?}");
    let names = std::fs::read_dir(home.data()).unwrap().count();
    assert_eq!(names, 1, "nothing was added");
}

#[test]
fn a_second_server_on_the_same_directory_is_refused_at_once() {
    let home = Home::new();
    let server = home.up();
    let done = home.run(&["up", "--no-prove", "--listen", "127.0.0.1:0"]);
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.err.contains("in use"), "{done:?}");
    assert_eq!(
        server.get(&server.attachment()).status,
        200,
        "the first one goes on"
    );
}

#[test]
fn an_address_in_use_is_named_with_the_way_out() {
    let home = Home::new();
    let server = home.up();
    let other = Home::new();
    let done = other.run(&["up", "--no-prove", "--listen", server.address()]);
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.err.contains("--listen"), "{done:?}");
}

#[test]
fn people_get_lines_to_paste_that_work() {
    use std::io::{BufRead as _, BufReader};
    let home = Home::new();
    let mut command = home.command(&["up", "--no-prove", "--listen", "127.0.0.1:0"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut script = String::from("set -e\n");
    let mut is_shown = false;
    for line in &mut lines {
        let line = line.unwrap();
        if line.starts_with("The same beside") {
            break;
        }
        is_shown |= line.starts_with("  TOKEN=");
        if is_shown {
            script.push_str(&line);
            script.push('\n');
        }
    }
    let ran = if which("curl") && which("sha256sum") {
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(home.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}\n{script}");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("welcome.txt: OK"), "{out}");
        assert!(out.contains("\"metadata-only\""), "{out}");
        assert!(out.contains("\"token\""), "{out}");
        true
    } else {
        println!("skipped: curl and sha256sum are needed to paste what `up` prints");
        false
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ran || script.contains("curl"));
}

fn which(program: &str) -> bool {
    run(std::process::Command::new("sh").args(["-c", &format!("command -v {program}")])).code == 0
}

/// A stop lets what runs finish.
#[test]
fn a_stop_lets_a_running_download_finish() {
    use std::io::{Read as _, Write as _};
    let home = Home::new();
    let mut server = home.up();
    let content: Vec<u8> = (0..8_u32 << 20).map(|i| i.to_le_bytes()[1]).collect();
    let file = home.file("big.bin", &content);
    let session = server.text("session").to_owned();
    let stored = home.json(&[
        "put",
        "--session",
        &session,
        "--reference",
        file.to_str().unwrap(),
    ]);
    let id = stored["attachmentId"].as_str().unwrap();
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    let request = format!(
        "GET /v1/sessions/{session}/attachments/{id} HTTP/1.1\r\nHost: {}\r\n\
         Authorization: Bearer {}\r\nConnection: close\r\n\r\n",
        server.address(),
        server.text("token"),
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![0; 1000];
    stream.read_exact(&mut answer).unwrap();
    server.signal(Signal::TERM);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(
        std::net::TcpStream::connect(server.address()).is_err(),
        "nothing more is accepted"
    );
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(digest(&wire::parse(&answer).body), digest(&content));
    assert!(server.wait().success());
}

#[test]
fn the_operators_listener_answers_without_a_token_and_the_public_one_does_not_have_it() {
    let home = Home::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = free.local_addr().unwrap().to_string();
    drop(free);
    let server = home.up_with(|command| {
        command.env("HOLDFAST_ADMIN", &admin);
    });
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(wire::get(&admin, path, None, &[]).status, 200, "{path}");
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}
