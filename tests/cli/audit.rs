//! The audit trail of the real program: written, read beside it, checked, and whole after a kill.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    program::{Done, Home},
    wire,
};

fn trail(home: &Home) -> std::path::PathBuf {
    home.data().join("data/audit/000001.jsonl")
}

/// What a query finds, once it finds something.
fn found(home: &Home, words: &[&str]) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let mut all = vec!["--json", "audit", "query"];
        all.extend(words);
        let done = home.run(&all);
        assert_eq!(done.code, 0, "{done:?}");
        let lines: Vec<Value> = done
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if !lines.is_empty() {
            return lines;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{words:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn verify(home: &Home) -> Done {
    home.run(&["audit", "verify"])
}

/// Keeps L02's promise to an operator: who had it is found in one command, and that the answer was not
/// tampered with in another.
#[test]
fn an_operator_asks_who_had_a_file_and_whether_the_answer_was_changed() {
    let home = Home::new();
    assert_eq!(verify(&home).code, 3, "no directory yet");
    let server = home.up();
    let id = server.text("attachmentId").to_owned();
    assert_eq!(server.get(&server.attachment()).status, 200);
    let sent = found(&home, &["--event", "sent", "--attachment", &id]);
    assert_eq!(sent.len(), 1, "{sent:?}");
    let who = sent[0]["who"].as_str().unwrap();
    assert_eq!(found(&home, &["--who", who, "--event", "sending"]).len(), 1);
    assert_eq!(
        found(&home, &["--last", "1", "--event", "started"]).len(),
        1
    );
    let beside = verify(&home);
    assert_eq!(beside.code, 0, "{beside:?}");
    let log = server.stop();
    let said = log
        .lines()
        .find(|line| line.contains("the audit trail stands here"));
    assert!(said.is_some(), "{log}");
    let head = home.json(&["audit", "verify"])["head"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(log.contains(&head), "{head}: {log}");

    let tail = home.run(&["audit", "tail", "-n", "2"]);
    assert_eq!(tail.out.lines().count(), 2, "{tail:?}");
    assert!(tail.out.contains("stopped"), "{tail:?}");
    let against = home.run(&["audit", "verify", "--head", &head]);
    assert_eq!(against.code, 0, "{against:?}");

    // Edited: found, named, and nothing is given out until somebody looks.
    let whole = fs::read_to_string(trail(&home)).unwrap();
    let edited = whole.replace("\"event\":\"sent\"", "\"event\":\"lost\"");
    fs::write(trail(&home), &edited).unwrap();
    let at = 1 + whole
        .lines()
        .position(|line| line.contains("\"sent\""))
        .unwrap();
    let bad = verify(&home);
    assert_eq!(bad.code, 5, "{bad:?}");
    assert!(
        bad.err.contains(&format!("000001.jsonl, line {at}:")),
        "{bad:?}"
    );
    let server = home.up();
    let refused = server.get(&server.attachment());
    assert_eq!(refused.json()["code"], "audit-unavailable", "{refused:?}");
    assert!(server.log().contains("the audit trail is damaged"));
    server.stop();
    assert_eq!(fs::read_to_string(trail(&home)).unwrap(), edited);

    // Cut at its end it looks whole, but for the head that was kept.
    let cut: String = whole.split_inclusive('\n').take(2).collect();
    fs::write(trail(&home), cut).unwrap();
    assert_eq!(verify(&home).code, 0);
    let bad = home.run(&["audit", "verify", "--head", &head]);
    assert_eq!(bad.code, 5, "{bad:?}");
    let server = home.up();
    assert_eq!(server.get(&server.attachment()).status, 503);
    server.stop();
    fs::write(trail(&home), &whole).unwrap();
    let server = home.up();
    assert_eq!(server.get(&server.attachment()).status, 200);
}

/// What a line says cannot move the cursor of whoever reads it.
#[test]
fn what_is_read_of_the_audit_has_no_control_characters() {
    let home = Home::new();
    home.up().stop();
    let mut text = fs::read_to_string(trail(&home)).unwrap();
    text.push_str("{\"seq\":9,\"event\":\"a\\u001b[2J\u{202e}\",\"name\":\"\\u001b]0;x\\u0007\"}\nno json \u{7}\n");
    fs::write(trail(&home), text).unwrap();
    for words in [
        &["audit", "tail"][..],
        &["--json", "audit", "tail"],
        &["audit", "query"],
        &["--json", "audit", "query"],
    ] {
        let done = home.run(words);
        let controls = done.out.chars().filter(|c| c.is_control() && *c != '\n');
        assert_eq!(controls.count(), 0, "{done:?}");
        assert!(
            !done.out.contains('\u{202e}') && done.out.contains("\\u{202e}"),
            "{done:?}"
        );
    }
}

/// Keeps I12: killed while it sends, a service leaves a trail that is whole up to the last second; what was sent
/// longer ago is in it.
#[test]
fn after_a_kill_the_audit_is_whole_and_goes_on() {
    let home = Home::new();
    let mut seen = 0;
    for round in 0..4_u32 {
        let mut server = home.up();
        let (address, token) = (server.address().to_owned(), server.text("token").to_owned());
        let (path, stop) = (server.attachment(), AtomicBool::new(false));
        let had = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let asked = wire::request(&address, "HEAD", &path, Some(&token), &[], b"");
                        if asked.status != 200 {
                            break;
                        }
                        wire::get(&address, &path, Some(&token), &[]);
                        had.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(400 + 150 * u64::from(round)));
            stop.store(true, Ordering::Relaxed);
        });
        let had = had.load(Ordering::Relaxed);
        assert!(had > 0);
        // What was sent a second ago and more is durable.
        std::thread::sleep(Duration::from_secs(1));
        server.signal(Signal::KILL);
        server.wait();
        let done = verify(&home);
        assert_eq!(done.code, 0, "{round}: {done:?}");
        let sent = found(&home, &["--event", "sent"]).len();
        seen += usize::try_from(had).unwrap();
        assert!(sent >= seen, "{round}: {sent} of {seen}");
        seen = sent;
    }
    home.up().stop();
    assert_eq!(verify(&home).code, 0);
}
