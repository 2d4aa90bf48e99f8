//! Every log and every reference of the shared data, with the outcome that is written down for it.

use std::{collections::BTreeSet, fs, path::Path};

use holdfast::{
    home::DshHome,
    journal::{JournalError, Source as _, Window, dsh::LogName},
    model::{AttachmentId, Digest, FileName, LogGeneration, Seq},
    store::StoreError,
};
use serde_json::Value;

use crate::support::{Bench, HomeBuilder, Open, data, has_data, snapshot};

const ALL: Window = Window {
    offset: 0,
    limit: u32::MAX,
};

/// Opens the home a log of the data lies in.
fn open(bench: &Bench, log: &str) -> Open {
    let (home, rest) = log.split_once('/').unwrap();
    let sessions = rest.split('/').next().unwrap();
    let home = data().join(home);
    let opened = DshHome::open(&home).unwrap();
    bench.open(opened.with_sessions(&home.join(sessions)).unwrap())
}

pub(crate) fn expected() -> Vec<Value> {
    let text = fs::read_to_string(data().join("expected-references.json")).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(logs) = all["logs"].take() else {
        panic!("no logs")
    };
    assert!(logs.len() >= 12);
    logs
}

#[test]
fn every_log_of_the_data_is_found_with_its_header() {
    if !has_data() {
        return;
    }
    for log in expected() {
        let path = log["log"].as_str().unwrap();
        let opened = open(&Bench::new(), path);
        let header = &log["header"];
        let id = header["id"].as_str().unwrap();
        let session = opened.source.session(opened.handle(id)).unwrap();
        assert_eq!(session.id.as_str(), id, "{path}");
        assert_eq!(
            session.created_at.as_millis(),
            header["createdAt"].as_i64().unwrap(),
            "{path}"
        );
        assert_eq!(session.cwd.as_deref(), header["cwd"].as_str(), "{path}");
        let version = u32::try_from(header["version"].as_u64().unwrap()).unwrap();
        assert_eq!(session.generation, LogGeneration::new(version), "{path}");
        let name = Path::new(path).file_name().unwrap().as_encoded_bytes();
        assert_eq!(LogName::parse(name).unwrap().version, version);
        let events = opened.events(id, 7).unwrap();
        let seqs: Vec<u64> = events.iter().map(|event| event.seq.get()).collect();
        assert_eq!(
            seqs,
            (0..session.next_seq.get()).collect::<Vec<_>>(),
            "{path}"
        );
        assert_eq!(
            opened.source.ended_early(opened.handle(id)).unwrap(),
            None,
            "{path}"
        );
    }
}

/// Keeps I4: a broken reference gives no byte.
#[test]
fn every_reference_of_the_data_has_its_outcome() {
    if !has_data() {
        return;
    }
    let mut outcomes = std::collections::BTreeMap::<String, u32>::new();
    for log in expected() {
        let path = log["log"].as_str().unwrap();
        let opened = open(&Bench::new(), path);
        let session = opened.handle(log["header"]["id"].as_str().unwrap());
        let listed = opened.source.references(session, ALL).unwrap();
        let mut rest = listed.iter();
        for reference in log["references"].as_array().unwrap() {
            let expect = reference["expect"].as_str().unwrap();
            let id = reference["attachmentId"].as_str().unwrap();
            let name = reference["name"].as_str();
            let row = format!("{path}: {id} {name:?}");
            *outcomes.entry(expect.to_owned()).or_default() += 1;
            let parsed = AttachmentId::parse(id).ok().zip(match name {
                Some(name) => FileName::parse(name).ok().map(Some),
                None => Some(None),
            });
            if expect == "INVALID_ATTACHMENT_REF" {
                if let Some((id, name)) = parsed {
                    let found = opened.source.reference(session, id, name.as_ref());
                    assert!(matches!(found, Err(JournalError::NotFound)), "{row}");
                }
                continue;
            }
            let (id, name) = parsed.unwrap();
            let found = opened.source.reference(session, id, name.as_ref()).unwrap();
            let next = rest.next().unwrap();
            assert_eq!(next.reference, found, "{row}: in the order of the log");
            let at = reference["at"][0].as_str().unwrap();
            assert!(
                at.starts_with(&format!("seq {} ", next.seq)),
                "{row}: {} not {at}",
                next.seq
            );
            assert_eq!(
                found.bytes.get(),
                reference["bytes"].as_u64().unwrap(),
                "{row}"
            );
            let read = opened.read(&found);
            match expect {
                "OK" => {
                    let content = read.unwrap();
                    assert_eq!(Digest::of(&content), id.digest(), "{row}");
                    assert_eq!(content.len() as u64, found.bytes.get(), "{row}");
                }
                "ATTACHMENT_NOT_FOUND" => {
                    assert!(
                        matches!(read, Err(StoreError::NotFound(_))),
                        "{row}: {read:?}"
                    );
                }
                "ATTACHMENT_CORRUPT" => assert!(
                    matches!(
                        read,
                        Err(StoreError::DigestMismatch(_) | StoreError::LengthMismatch { .. })
                    ),
                    "{row}: {read:?}"
                ),
                other => panic!("{row}: {other}"),
            }
        }
        assert_eq!(rest.next(), None, "{path}: nothing else is a reference");
    }
    assert_eq!(outcomes.len(), 4, "every outcome occurs: {outcomes:?}");
}

/// Keeps I1: what lies in the store and no event refers to is nobody's.
#[test]
fn a_decoy_or_an_object_nothing_refers_to_is_not_found() {
    if !has_data() {
        return;
    }
    let mut stored = BTreeSet::new();
    for home in ["real-rc8-zstd", "real-rc8-plain", "hand-v3"] {
        for tree in ["objects", "file-objects"] {
            let Ok(buckets) = fs::read_dir(data().join(home).join("attachments/v1").join(tree))
            else {
                continue;
            };
            for bucket in buckets {
                for object in fs::read_dir(bucket.unwrap().path()).unwrap() {
                    stored.insert(object.unwrap().file_name().into_string().unwrap());
                }
            }
        }
    }
    let mut hidden = 0;
    for log in expected() {
        let opened = open(&Bench::new(), log["log"].as_str().unwrap());
        let session = opened.handle(log["header"]["id"].as_str().unwrap());
        let own: BTreeSet<&str> = log["references"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|reference| reference["attachmentId"].as_str()?.strip_prefix("sha256:"))
            .collect();
        for digest in stored
            .iter()
            .filter(|digest| !own.contains(digest.as_str()))
        {
            let id = AttachmentId::parse(&format!("sha256:{digest}")).unwrap();
            let found = opened.source.reference(session, id, None);
            assert!(
                matches!(found, Err(JournalError::NotFound)),
                "{digest} in {}",
                log["log"]
            );
            hidden += 1;
        }
    }
    assert!(hidden > 100, "{hidden}");
}

#[test]
fn every_presented_path_of_the_data_is_declared() {
    if !has_data() {
        return;
    }
    let mut declared = 0;
    for log in expected() {
        let opened = open(&Bench::new(), log["log"].as_str().unwrap());
        let session = opened.handle(log["header"]["id"].as_str().unwrap());
        let found: Vec<_> = opened
            .source
            .declared(session, ALL)
            .unwrap()
            .into_iter()
            .map(|found| {
                (
                    found.seq.get(),
                    u64::from(found.index),
                    found.presented.path,
                )
            })
            .collect();
        let expected: Vec<_> = log["presented"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|presented| presented["wellFormed"] == true)
            .map(|presented| {
                (
                    presented["seq"].as_u64().unwrap(),
                    presented["index"].as_u64().unwrap(),
                    presented["path"].as_str().unwrap().to_owned(),
                )
            })
            .collect();
        assert_eq!(found, expected, "{}", log["log"]);
        declared += expected.len();
    }
    assert!(declared >= 7, "{declared}");
}

#[test]
fn a_plain_and_a_compressed_log_of_one_session_read_the_same() {
    if !has_data() {
        return;
    }
    for (first, second) in [
        ("real-rc8-plain/sessions/x", "real-rc8-zstd/sessions/x"),
        ("hand-v3/sessions-plain/x", "hand-v3/sessions/x"),
    ] {
        let (first, second) = (open(&Bench::new(), first), open(&Bench::new(), second));
        for session in first.source.sessions() {
            let id = first.source.session(session).unwrap().id;
            let shape = |opened: &Open| -> Vec<_> {
                let events = opened.events(id.as_str(), 5).unwrap();
                events
                    .into_iter()
                    .map(|event| (event.seq, event.kind))
                    .collect()
            };
            assert_eq!(shape(&first), shape(&second), "{id}");
        }
    }
}

#[test]
fn a_packed_row_gives_every_event_it_stands_for() {
    if !has_data() {
        return;
    }
    let opened = open(&Bench::new(), "real-rc8-plain/sessions/x");
    let id = "session-0b6f3c1e-6f0a-4f59-9d58-1f1f6f2f7a01";
    let whole = opened.events(id, 200).unwrap();
    assert_eq!(whole.len(), 46);
    let data = |seq: usize| whole[seq].data.get();
    assert_eq!(
        data(12),
        r#"{"turn":1,"step":1,"chunk":{"type":"reasoning-delta","index":0,"text":"the "}}"#
    );
    assert_eq!(
        data(25),
        r#"{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":2,"id":"call_1","name":"bash","argumentsDelta":"and\":\""}}"#
    );
    // A page may begin and end within a packed row.
    let page = opened
        .source
        .page(opened.handle(id), None, Some(Seq::new(14)), 3)
        .unwrap();
    let seqs: Vec<u64> = page.events.iter().map(|event| event.seq.get()).collect();
    assert_eq!((seqs, page.has_more), (vec![11, 12, 13], true));
}

#[test]
fn the_newest_generation_is_the_session_and_an_address_of_another_is_stale() {
    if !has_data() {
        return;
    }
    let home = HomeBuilder::new();
    let id = "session-9a4b2c10-1d2e-4f3a-8b5c-6d7e8f901204";
    let cwd = Some("/workspaces/plain");
    let v0 = data()
        .join("real-rc8-plain/sessions/--workspaces-plain--")
        .join(id)
        .join("session.jsonl");
    home.log(id, cwd, "session.jsonl", &fs::read(v0).unwrap());
    let opened = Bench::new().open(home.open());
    let session = opened.handle(id);
    let seq_of_reference = || opened.source.references(session, ALL).unwrap()[0].seq.get();
    assert_eq!(
        opened.source.session(session).unwrap().generation,
        LogGeneration::new(0)
    );
    let first = seq_of_reference();
    for version in [2, 3] {
        let name = format!("session.v{version}.jsonl");
        home.log(
            id,
            cwd,
            &name,
            &fs::read(data().join("real-migrated").join(&name)).unwrap(),
        );
        home.log(id, cwd, "session.v9.jsonl.tmp", b"not there yet");
        home.log(id, cwd, "session.lock", b"");
        let present = LogGeneration::new(version);
        assert_eq!(opened.source.session(session).unwrap().generation, present);
        let stale = opened
            .source
            .page(session, Some(LogGeneration::new(version - 1)), None, 10);
        assert!(
            matches!(stale, Err(JournalError::StaleGeneration { present: now, .. }) if now == present),
            "{stale:?}"
        );
        assert!(opened.source.page(session, Some(present), None, 10).is_ok());
    }
    assert_ne!(seq_of_reference(), first, "a migration renumbers");
}

#[test]
fn handles_stay_the_same_over_restarts_and_say_nothing() {
    if !has_data() {
        return;
    }
    let bench = Bench::new();
    let log = "hand-v3/sessions/x";
    let first = open(&bench, log);
    let mut before: Vec<_> = first.source.sessions();
    drop(first);
    let second = open(&bench, log);
    let mut after = second.source.sessions();
    before.sort();
    after.sort();
    assert_eq!(before, after);
    assert_eq!(after.len(), 3);
    let other = open(&Bench::new(), log);
    assert!(
        other
            .source
            .sessions()
            .iter()
            .all(|handle| !after.contains(handle))
    );
}

/// Nothing is ever written, locked, repaired or created in a home.
#[test]
fn a_home_is_the_same_before_and_after() {
    if !has_data() {
        return;
    }
    for (log, root) in [
        ("real-rc8-zstd/sessions/x", "real-rc8-zstd"),
        ("real-rc8-plain/sessions/x", "real-rc8-plain"),
        ("hand-v3/sessions/x", "hand-v3"),
    ] {
        let before = snapshot(&data().join(root));
        let opened = open(&Bench::new(), log);
        for session in opened.source.sessions() {
            let id = opened.source.session(session).unwrap().id;
            opened.events(id.as_str(), 3).unwrap();
            for found in opened.source.references(session, ALL).unwrap() {
                drop(opened.read(&found.reference));
            }
        }
        opened.source.look().unwrap();
        assert_eq!(snapshot(&data().join(root)), before);
    }
}
