//! What the logs never hold, however much is logged.

use serde_json::json;

use crate::{program::Home, wire};

/// Keeps I14. A05: tokens and codes, in fields, bodies or addresses, never reach a log; neither do
/// file names and host paths, nor a digest together with whose it is.
#[test]
fn a05_tokens_codes_names_and_paths_never_reach_the_log() {
    let home = Home::new();
    let server = home.up_with(|command| {
        command.env("HOLDFAST_LOG", "trace");
    });
    let token = server.text("token").to_owned();
    let code = server.text("loginCode").to_owned();
    let file = home.file("payslip-of-alice.pdf", b"secret");
    let session = server.text("session").to_owned();
    home.json(&["put", "-s", &session, "--reference", file.to_str().unwrap()]);
    server.get(&server.attachment());
    let login = wire::post_json(server.address(), "/v1/login", &json!({"code": code}));
    let second = login.json()["token"].as_str().unwrap().to_owned();
    // A ticket: made, used, and shown in wrong places.
    let of_demo = json!({"session": session, "attachmentId": server.text("attachmentId")});
    let ticket = wire::post_json_as(server.address(), "/v1/tickets", &token, &of_demo).json();
    let ticket = ticket["href"].as_str().unwrap().to_owned();
    for path in [
        &ticket[..],
        &format!("{ticket}?x"),
        &format!("{ticket}/x"),
        &ticket[2..],
    ] {
        wire::get(server.address(), path, None, &[]);
    }
    // Misplaced by a confused client.
    let address = server.address().to_owned();
    for path in [
        format!("/v1/sessions?token={token}"),
        format!("/{token}"),
        format!("/v1/sessions/{token}/snapshot"),
        format!("/v1/sessions/{session}/attachments/sha256:0?name=payslip-of-alice.pdf"),
    ] {
        let answer = wire::get(&address, &path, Some(&token), &[]);
        assert!(
            !String::from_utf8_lossy(&answer.body).contains(&token),
            "{path}"
        );
    }
    wire::get(&address, "/v1/sessions", Some(&format!("{token}0")), &[]);
    wire::get(
        &address,
        "/v1/sessions",
        None,
        &[&format!("Cookie: t={token}")],
    );
    home.run(&["token", "create", "you"]);
    let log = server.stop();
    assert!(log.len() > 1000, "something was logged: {log}");
    let place = home.path().to_str().unwrap();
    for (what, secret) in [
        ("a token", &token[3..]),
        ("a token got by signing in", &second[3..]),
        ("a code", &code[3..]),
        ("a ticket", &ticket[6..]),
        ("a file name", "payslip-of-alice"),
        ("a host path", place),
    ] {
        let found = log.lines().find(|line| line.contains(secret));
        assert!(found.is_none(), "{what} is in the log: {found:?}");
    }
}

#[test]
fn logs_are_json_when_no_terminal_looks() {
    let home = Home::new();
    let log = home.up().stop();
    let events: Vec<serde_json::Value> = log
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        events.iter().any(|event| event["message"] == "serving"),
        "{log}"
    );
}

/// Content that went missing in a crash is named at the next start; after an orderly stop nothing
/// is looked for.
#[test]
fn what_a_crash_took_is_named_at_the_next_start() {
    let home = Home::new();
    let mut server = home.up();
    let id = server.text("attachmentId").to_owned();
    server.signal(rustix::process::Signal::KILL);
    server.wait();
    let hex = id.strip_prefix("sha256:").unwrap();
    let object = home.data().join("data/objects/sha256");
    let object = object.join(&hex[..2]).join(hex);
    let aside = home.path().join("aside");
    std::fs::rename(&object, &aside).unwrap();
    let before = server.log().len();
    let log = home.up().stop().split_off(before);
    let lost = log.lines().find(|line| line.contains("content is lost"));
    assert!(lost.is_some_and(|line| line.contains(&id)), "{log}");
    assert_eq!(log.matches("content is lost").count(), 1);
    // It ended in order, so what it started with is not asked for again.
    std::fs::remove_file(&object).ok();
    let before = before + log.len();
    let log = home.up().stop().split_off(before);
    assert!(!log.contains("content is lost"), "{log}");
}
