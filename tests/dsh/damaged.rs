//! Logs that are damaged or torn.

use std::fs;

use holdfast::journal::{Event, JournalError, Source as _};
use serde_json::Value;

use crate::support::{Bench, HomeBuilder, data, event, frame, has_data, header};

const ID: &str = "session-0b6f3c1e-6f0a-4f59-9d58-1f1f6f2f7a01";
const CWD: Option<&str> = Some("/workspaces/demo alpha/报告");

/// How many events DSH would add in memory to close what is open at the end of the log.
fn closers(events: &[Event]) -> usize {
    let (mut turn, mut step) = (false, false);
    for event in events {
        match event.kind.as_str() {
            "turn/start" => turn = true,
            "turn/end" => turn = false,
            "step/start" => step = true,
            "step/end" => step = false,
            _ => {}
        }
    }
    usize::from(turn) + usize::from(step)
}

#[test]
fn every_damaged_log_of_the_data_reads_as_dsh_itself_reads_it() {
    if !has_data() {
        return;
    }
    let folder = data().join("damaged-rc8");
    let text = fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let files = expected["files"].as_object().unwrap();
    assert_eq!(files.len(), 10);
    for (name, expected) in files {
        let home = HomeBuilder::new();
        let stem = if name.contains(".zstd") {
            "session.jsonl.zstd"
        } else {
            "session.jsonl"
        };
        home.log(ID, CWD, stem, &fs::read(folder.join(name)).unwrap());
        // An honest neighbour, which is never taken down.
        home.log(
            "honest",
            None,
            "session.v3.jsonl",
            header(3, "honest", None).as_bytes(),
        );
        let opened = Bench::new().open(home.open());
        if expected["readable"] == true {
            let events = opened.events(ID, 9).unwrap();
            let all = events.len() + closers(&events);
            assert_eq!(all as u64, expected["events"].as_u64().unwrap(), "{name}");
        } else {
            let why = opened.refusal(ID);
            let said = expected["error"].as_str().unwrap();
            for (theirs, ours) in [
                ("frame at byte 162", "the frame at byte 162 is damaged"),
                ("header-less", "the header: the log"),
                (
                    "line 27 (expected 36, got 99)",
                    "row 27: its seq is 99, not 36",
                ),
                (
                    "\"deliverables/presented\" (seq 46)",
                    "has no deliverables/presented",
                ),
            ] {
                assert_eq!(said.contains(theirs), why.contains(ours), "{name}: {why}");
            }
        }
        assert!(
            opened.source.session(opened.handle("honest")).is_ok(),
            "{name}"
        );
    }
}

#[test]
fn a_bad_row_ends_a_log_after_its_last_turn_and_refuses_it_before() {
    let bad = [
        "{oops}\n",
        "\n",
        "[]\n",
        "{\"type\":\"x\",\"seq\":7,\"time\":1,\"data\":{}}\n",
        "{\"type\":\"x\",\"seq\":1,\"time\":1,\"data\":{}}\n",
        "\u{feff}{\"type\":\"x\",\"seq\":2,\"time\":1,\"data\":{}}\n",
        "{\"type\":\"x\",\"seq\":2,\"time\":1,\"data\":{}} trailing\n",
    ];
    for bad in bad {
        for zstd in [false, true] {
            let start = [
                header(3, "s", None),
                event(0, "turn/start", "{}"),
                event(1, "turn/end", "{}"),
            ];
            let tail = event(2, "x", "{}");
            let later = event(2, "turn/end", "{}");
            for (after, refused) in [(&tail, false), (&later, true)] {
                let parts = [&start[0], &start[1], &start[2], bad, after];
                let (name, bytes) = if zstd {
                    let frames: Vec<u8> = parts.iter().flat_map(|p| frame(p.as_bytes())).collect();
                    ("session.v3.jsonl.zstd", frames)
                } else {
                    ("session.v3.jsonl", parts.concat().into_bytes())
                };
                let home = HomeBuilder::new();
                home.log("s", None, name, &bytes);
                let opened = Bench::new().open(home.open());
                if refused {
                    assert!(opened.refusal("s").starts_with("row 3: "), "{bad:?}");
                } else {
                    assert_eq!(opened.events("s", 10).unwrap().len(), 2, "{bad:?}");
                    let why = opened
                        .source
                        .ended_early(opened.handle("s"))
                        .unwrap()
                        .unwrap();
                    assert!(why.starts_with("row 3: "), "{bad:?}: {why}");
                }
            }
        }
    }
}

#[test]
fn a_header_that_does_not_lead_here_is_refused() {
    for (bytes, why) in [
        (header(3, "other", Some("/w")), "its id is another folder's"),
        (
            header(3, "s", Some("/elsewhere")),
            "its directory is another folder's",
        ),
        (header(3, "s", None), "its directory is another folder's"),
        (
            header(2, "s", Some("/w")),
            "it says format 2, the name of the file 3",
        ),
        ("{}\n".to_owned(), "it is no header"),
        (event(0, "x", "{}"), "it is no header"),
        (
            header(3, "s", Some("/w")).trim_end().to_owned(),
            "the log ends within it",
        ),
        ("\n".to_owned(), "it is no header"),
    ] {
        let home = HomeBuilder::new();
        home.log("s", Some("/w"), "session.v3.jsonl", bytes.as_bytes());
        let opened = Bench::new().open(home.open());
        let said = opened.refusal("s");
        assert!(
            said.starts_with("the header: ") && said.contains(why),
            "{said}"
        );
    }
    // The newest generation is the session, known or not.
    let home = HomeBuilder::new();
    home.log(
        "s",
        None,
        "session.v3.jsonl",
        header(3, "s", None).as_bytes(),
    );
    home.log(
        "s",
        None,
        "session.v5.jsonl",
        header(5, "s", None).as_bytes(),
    );
    let opened = Bench::new().open(home.open());
    assert_eq!(opened.refusal("s"), "the header: format 5 is newer than 4");
}

#[test]
fn every_format_is_read_and_the_unverified_one_is_said_to_be() {
    for version in 0..=4 {
        let home = HomeBuilder::new();
        let name = if version == 0 {
            "session.jsonl".to_owned()
        } else {
            format!("session.v{version}.jsonl")
        };
        let log = [
            header(version, "s", None),
            event(0, "turn/start", r#"{"turn":1}"#),
            "{\"type\":\"x/unknown\",\"seq\":1,\"time\":1,\"data\":{},\"ignorable\":true}\n".to_owned(),
            "{\"type\":\"x/unknown\",\"seq\":2,\"time\":1,\"data\":{},\"extra\":[],\"sourceEventSeqs\":[[0,1]]}\n".to_owned(),
        ];
        home.log("s", None, &name, log.concat().as_bytes());
        let opened = Bench::new().open(home.open());
        assert_eq!(opened.events("s", 2).unwrap().len(), 3, "format {version}");
        assert_eq!(
            opened.source.notes().len(),
            usize::from(version == 4),
            "format {version}"
        );
    }
}

#[test]
fn one_generation_both_plain_and_compressed_is_refused() {
    let home = HomeBuilder::new();
    let bytes = header(3, "s", None);
    home.log("s", None, "session.v3.jsonl", bytes.as_bytes());
    home.log("s", None, "session.v3.jsonl.zstd", &frame(bytes.as_bytes()));
    let opened = Bench::new().open(home.open());
    assert_eq!(
        opened.refusal("s"),
        "format 3 lies there both plain and compressed"
    );
}

#[test]
fn a_root_of_mixed_encodings_is_served_and_noted() {
    let home = HomeBuilder::new();
    home.log(
        "a",
        None,
        "session.v3.jsonl",
        header(3, "a", None).as_bytes(),
    );
    home.log(
        "b",
        None,
        "session.v3.jsonl.zstd",
        &frame(header(3, "b", None).as_bytes()),
    );
    let opened = Bench::new().open(home.open());
    for id in ["a", "b"] {
        assert!(opened.source.session(opened.handle(id)).is_ok(), "{id}");
    }
    assert_eq!(opened.source.notes().len(), 1);
}

#[test]
fn one_id_in_two_projects_is_refused_for_both_and_for_nobody_else() {
    let home = HomeBuilder::new();
    for cwd in ["/a", "/b"] {
        home.log(
            "twice",
            Some(cwd),
            "session.v3.jsonl",
            header(3, "twice", Some(cwd)).as_bytes(),
        );
    }
    home.log(
        "once",
        Some("/a"),
        "session.v3.jsonl",
        header(3, "once", Some("/a")).as_bytes(),
    );
    // A folder without a log claims nothing.
    home.folder("once", Some("/b"));
    home.folder("empty", Some("/b"));
    let opened = Bench::new().open(home.open());
    assert_eq!(
        opened.refusal("twice"),
        "two project folders have a session of this id"
    );
    assert!(opened.source.session(opened.handle("once")).is_ok());
    let none = opened.source.session(opened.handle("empty"));
    assert!(matches!(none, Err(JournalError::NotFound)), "{none:?}");
}
