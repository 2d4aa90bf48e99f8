//! Commands beside a running server, and without one: the same commands, the same answers (I10).

use holdfast::control::rusqlite::Connection;
use serde_json::json;

use crate::{
    program::{Home, run},
    wire,
};

/// A day in the life of a host, by the command line alone. Keeps I10: with a server and without one
/// the same commands give the same answers.
fn a_hosts_day(home: &Home) -> serde_json::Value {
    let file = home.file("results.csv", b"a,b\n1,2\n");
    let events = home.file(
        "events.jsonl",
        b"{\"type\":\"turn/start\",\"time\":1,\"data\":{\"turn\":1}}\n\
          {\"type\":\"deliverables/presented\",\"time\":2,\"data\":{\"turn\":1,\"callId\":\"c\",\
          \"files\":[{\"path\":\"out/x\"}]}}\n",
    );
    let made = home.json(&[
        "session", "create", "--id", "day/1", "--cwd", "/srv/ws", "--owner", "you",
    ]);
    let session = made["session"].as_str().unwrap();

    let appended = home.json(&["append", "--session", session, events.to_str().unwrap()]);
    assert_eq!(
        (&appended["firstSeq"], &appended["lastSeq"]),
        (&json!(0), &json!(1))
    );
    let stale = home.run(&[
        "append",
        "-s",
        session,
        "--expected-seq",
        "0",
        events.to_str().unwrap(),
    ]);
    assert_eq!(stale.code, 7, "{stale:?}");
    assert!(stale.err.contains("seq-mismatch"), "{stale:?}");

    let stored = home.json(&["put", "--session", "day/1", file.to_str().unwrap()]);
    assert_eq!(
        (&stored["name"], &stored["bytes"]),
        (&json!("results.csv"), &json!(8))
    );
    let unreferenced = home.run(&["get", "--session", session, "results.csv"]);
    assert_eq!(
        unreferenced.code, 4,
        "uploaded, but no event refers to it: {unreferenced:?}"
    );
    let again = home.json(&["put", "-s", session, "--reference", file.to_str().unwrap()]);
    assert_eq!(again, stored, "the same bytes give the same answer");

    let listed = home.json(&["ls", "--session", session]);
    assert_eq!(listed["files"][0]["attachmentId"], stored["attachmentId"]);
    assert_eq!(listed["deliverables"]["mode"], "metadata-only");
    let text = home.run(&["ls", "--session", session]);
    assert!(
        text.out.contains("results.csv") && text.out.contains("metadata-only"),
        "{text:?}"
    );

    let got = home.json(&[
        "get",
        "-s",
        session,
        "results.csv",
        "-o",
        "got.csv",
        "--force",
    ]);
    assert_eq!(got["bytes"], 8);
    assert_eq!(
        std::fs::read(home.path().join("got.csv")).unwrap(),
        b"a,b\n1,2\n"
    );
    let verified = home.json(&["verify", "--session", session]);
    assert_eq!(
        (&verified["attachments"], &verified["bad"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(home.run(&["verify"]).code, 0);

    tickets(home, session);

    let made = home.json(&["session", "create", "--id", "short", "--owner", "you"]);
    let mut delete = vec!["session", "delete", "short"];
    assert_eq!(
        home.run(&[&delete[..], &["--as", "you"]].concat()).code,
        4,
        "it is its host's"
    );
    let done = home.json(&delete);
    assert_eq!(done, json!({"session": made["session"], "deleted": true}));
    let again = home.run(&delete);
    assert_eq!(again.code, 4, "{again:?}");
    assert!(again.err.contains("no session `short`"), "{again:?}");
    delete[2] = made["session"].as_str().unwrap();
    assert_eq!(home.run(&delete).code, 4);

    let all = home.json(&["session", "list"]);
    assert_eq!(all["sessions"].as_array().unwrap().len(), 2);
    let mut snapshot = home.json(&["snapshot", "--session", session]);
    for unlike in ["session", "createdAt", "bridgeGeneration"] {
        snapshot[unlike] = json!(null);
    }
    snapshot["display"]["files"][0]["href"] = json!(null);
    snapshot
}

/// Makes tickets for a file of the session, lists and revokes them.
fn tickets(home: &Home, session: &str) {
    let create = [
        "ticket",
        "create",
        "-s",
        session,
        "results.csv",
        "--uses",
        "2",
    ];
    let ticket = home.json(&create);
    assert_eq!(
        (&ticket["name"], &ticket["uses"]),
        (&json!("results.csv"), &json!(2))
    );
    let (url, href) = (ticket["url"].as_str(), ticket["href"].as_str().unwrap());
    assert!(url.unwrap().starts_with("http://") && url.unwrap().ends_with(href));
    assert!(href.starts_with("/d/ht_"), "{href}");
    let text = home.run(&create);
    assert!(
        text.out.contains("/d/ht_") && text.err.contains("t_"),
        "{text:?}"
    );
    let tickets = home.run(&["ticket", "list"]);
    assert!(tickets.out.contains("0 of 2") && !tickets.out.contains("ht_"));
    let id = ticket["ticket"].as_str().unwrap();
    assert_eq!(home.json(&["ticket", "revoke", id])["revoked"], true);
    assert_eq!(home.run(&["ticket", "revoke", id]).code, 4);
    let left = home.json(&["ticket", "list"]);
    assert_eq!(left["tickets"].as_array().unwrap().len(), 1);
    assert_eq!(
        home.run(&[&create[..], &["--expires", "soon"]].concat())
            .code,
        2
    );
    assert_eq!(home.run(&[&create[..5], &["--uses", "0"]].concat()).code, 7);
    assert_eq!(
        home.run(&["ticket", "create", "-s", session, "absent"])
            .code,
        4
    );
}

#[test]
fn commands_beside_a_server_and_without_one_say_the_same() {
    let with = Home::new();
    let server = with.up();
    let beside = a_hosts_day(&with);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");

    let without = Home::new();
    without.up().stop();
    let alone = a_hosts_day(&without);
    assert_eq!(beside, alone);
}

/// A ticket made without a server is good once there is one, and one made over the network is
/// addressed by the network's name.
#[test]
fn a_ticket_made_alone_is_redeemed_at_the_next_server() {
    let home = Home::new();
    let first = home.up();
    let session = first.text("session").to_owned();
    first.stop();
    let create = ["ticket", "create", "-s", &session, "welcome.txt"];
    let ticket = home.json(&create);
    let server = home.up();
    let href = ticket["href"].as_str().unwrap();
    let answer = wire::get(server.address(), href, None, &[]);
    assert_eq!(answer.status, 200);
    assert!(answer.body.starts_with(b"Welcome"));
    assert_eq!(wire::get(server.address(), href, None, &[]).status, 404);
    let (url, token) = (server.text("url"), server.text("token"));
    let network = [&create[..], &["--url", url, "--token", token]].concat();
    let ticket = home.json(&network);
    let expected = format!("{url}{}", ticket["href"].as_str().unwrap());
    assert_eq!(ticket["url"], expected.as_str());
}

/// Keeps I9 and I10 on the socket: it names whom a command acts as, and grants nothing by itself.
#[test]
fn acting_as_somebody_sees_what_that_principal_sees() {
    let home = Home::new();
    let server = home.up();
    home.json(&["token", "create", "other-host", "--kind", "host"]);
    let session = server.text("session");
    for (who, code) in [
        ("demo-host", 0),
        ("you", 0),
        ("other-host", 4),
        ("operator", 4),
    ] {
        let done = home.run(&["ls", "--as", who, "--session", session]);
        assert_eq!(done.code, code, "{who}: {done:?}");
    }
    let done = home.run(&["ls", "--as", "nobody", "--session", session]);
    assert_eq!(done.code, 4, "{done:?}");
    assert!(done.err.contains("no principal `nobody`"), "{done:?}");
    let done = home.run(&["ls", "--session", session]);
    assert_eq!(done.code, 2, "two hosts, and none was named: {done:?}");
    assert!(done.err.contains("--as"), "{done:?}");
    let upload = home.file("x", b"x");
    let done = home.run(&[
        "append",
        "--as",
        "you",
        "--session",
        session,
        upload.to_str().unwrap(),
    ]);
    assert_eq!(done.code, 2, "not JSON: {done:?}");
    let event = home.file("e", b"{\"type\":\"turn/start\",\"data\":{}}\n");
    let done = home.run(&[
        "append",
        "--as",
        "you",
        "--session",
        session,
        event.to_str().unwrap(),
    ]);
    assert_eq!(done.code, 4, "an owner may read, not write: {done:?}");
    assert!(done.err.contains("forbidden"), "{done:?}");
}

#[test]
fn a_token_is_shown_once_listed_without_its_secret_and_dies_when_revoked() {
    let home = Home::new();
    let server = home.up();
    let made = home.json(&["token", "create", "you", "--expires", "1h"]);
    let token = made["token"].as_str().unwrap();
    let asks =
        |token: &str| crate::wire::get(server.address(), "/v1/sessions", Some(token), &[]).status;
    assert_eq!(asks(token), 200);
    let listed = home.run(&["token", "list"]);
    assert!(listed.out.contains("you"), "{listed:?}");
    assert!(
        !listed.out.contains(&token[3..]),
        "the secret is not listed"
    );
    let id = made["id"].to_string();
    assert_eq!(home.run(&["token", "revoke", &id]).code, 0);
    assert_eq!(asks(token), 401);
    assert_eq!(home.run(&["token", "revoke", "999999"]).code, 4);
    for (arguments, code) in [
        (&["token", "create", "stranger"][..], 4),
        (&["token", "create", "you", "--kind", "host"], 7),
        (&["token", "create", "you", "--expires", "soon"], 2),
    ] {
        let done = home.run(arguments);
        assert_eq!(done.code, code, "{arguments:?}: {done:?}");
    }
}

/// The owner-only questions do not exist on the public listener.
#[test]
fn the_public_listener_knows_nothing_of_the_sockets_own_questions() {
    let home = Home::new();
    let server = home.up();
    for path in ["/local/v1/principals", "/local/v1/tokens"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    let acting = crate::wire::get(
        server.address(),
        "/v1/sessions",
        None,
        &["Holdfast-As: you"],
    );
    assert_eq!(
        acting.status, 401,
        "naming somebody is no proof on the network"
    );
}

#[test]
fn put_takes_standard_input_when_it_has_a_name() {
    use std::io::Write as _;
    let home = Home::new();
    let server = home.up();
    let session = server.text("session");
    let mut command = home.command(&["--json", "put", "-s", session, "--name", "pipe.txt", "-"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"through a pipe")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let stored: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stored["bytes"], 14);
    let nameless = run(&mut home.command(&["put", "-s", session, "-"]));
    assert_eq!(nameless.code, 2, "{nameless:?}");
}

#[test]
fn a_file_over_the_limit_is_refused_with_the_settings_name() {
    let home = Home::new();
    let server = home.up_with(|command| {
        command.env("HOLDFAST_LIMITS_FILE", "1KiB");
    });
    for size in [1025, 8 << 20] {
        let file = home.file("big", &vec![0; size]);
        let file = file.to_str().unwrap();
        let put = ["put", "-s", server.text("session"), file];
        let network = ["--url", server.text("url"), "--token", server.text("token")];
        for arguments in [&put[..], &[&put[..], &network].concat()] {
            let done = home.run(arguments);
            assert_eq!(done.code, 7, "{size}: {done:?}");
            assert!(done.err.contains("limits.file"), "{size}: {done:?}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_so() {
    let done = run(crate::program::holdfast().args([
        "ls",
        "--session",
        "x",
        "--url",
        "http://127.0.0.1:9",
        "--token",
        "hf_x",
    ]));
    assert_eq!(done.code, 6, "{done:?}");
    let home = Home::new();
    let done = home.run(&["session", "list"]);
    assert_eq!(done.code, 3, "no configuration: {done:?}");
    assert!(done.err.contains("holdfast.toml"), "{done:?}");
}

/// Keeps I12: a log that was edited in the middle, where no page looks, is found and named; the
/// others are checked all the same.
#[test]
fn verify_reads_every_log_against_its_chain() {
    let home = Home::new();
    home.up().stop();
    let line = |n| format!("{{\"type\":\"turn/start\",\"time\":{n},\"data\":{{\"turn\":{n}}}}}\n");
    let events = home.file(
        "events.jsonl",
        (1..=3).map(line).collect::<String>().as_bytes(),
    );
    let events = events.to_str().unwrap();
    let [edited, _whole] = ["edited", "whole"].map(|id| {
        let made = home.json(&["session", "create", "--id", id, "--owner", "you"]);
        home.json(&["append", "--session", id, events]);
        made["session"].as_str().unwrap().to_owned()
    });
    let good = home.json(&["verify"]);
    let logs = good["logs"].as_array().unwrap();
    assert_eq!((&good["badLogs"], logs.len()), (&json!(0), 3), "{good}");
    let counted =
        |log: &&serde_json::Value| log["events"] == 3 && log["session"] == edited.as_str();
    assert_eq!(logs.iter().filter(counted).count(), 1, "{good}");
    let database = home.data().join("data/journal/db");
    Connection::open(database)
        .unwrap()
        .execute(
            "UPDATE events SET data = '{\"turn\":7}' WHERE seq = 1
             AND session = (SELECT id FROM sessions WHERE handle = ?1)",
            [&edited],
        )
        .unwrap();
    let found = home.run(&["--json", "verify"]);
    assert_eq!(found.code, 5, "{found:?}");
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(found["badLogs"], 1);
    for log in found["logs"].as_array().unwrap() {
        assert_eq!(log["ok"], log["session"] != edited.as_str(), "{log}");
    }
    let text = home.run(&["verify", "--session", "edited"]);
    assert!(
        text.out.contains("1 bad") && text.out.contains(&edited),
        "{text:?}"
    );
}
