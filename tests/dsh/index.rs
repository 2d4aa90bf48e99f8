//! The index that outlasts the process: it saves reading, and is believed in nothing.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::fs::{FileExt as _, symlink},
    path::Path,
    time::{Duration, Instant},
};

use holdfast::{
    control::rusqlite::Connection,
    journal::{Event, JournalError, Referenced, Source as _, Window, dsh::DshLimits},
    model::{AttachmentId, Digest, Seq},
    seal::SealKey,
};
use serde_json::{Value, json};

use crate::support::{Bench, HomeBuilder, Open, event, frame, header};

const ALL: Window = Window {
    offset: 0,
    limit: 1000,
};

fn file(content: &[u8], name: &str) -> String {
    let id = AttachmentId::new(Digest::of(content));
    let attachment = json!({"attachmentId": id, "name": name, "bytes": content.len()});
    json!({"content": [{"type": "file", "attachment": attachment}]}).to_string()
}

/// `count` events of some 1000 bytes, a reference and a declared path among the first and the last.
fn rows(count: u64) -> Vec<String> {
    (0..count)
        .map(|seq| match seq {
            1 => event(seq, "user/message", &file(b"first", "first.txt")),
            2 => event(
                seq,
                "deliverables/presented",
                r#"{"files":[{"path":"out/a"}]}"#,
            ),
            seq if seq == count - 1 => event(seq, "user/message", &file(b"last", "last.txt")),
            _ => event(seq, "x", &format!("\"{}\"", "x".repeat(1000))),
        })
        .collect()
}

fn log(zstd: bool, rows: &[String]) -> Vec<u8> {
    let head = header(3, "s", None);
    if zstd {
        let batches = rows.chunks(50).map(|rows| frame(rows.concat().as_bytes()));
        std::iter::once(frame(head.as_bytes()))
            .chain(batches)
            .flatten()
            .collect()
    } else {
        format!("{head}{}", rows.concat()).into_bytes()
    }
}

fn name(zstd: bool) -> &'static str {
    if zstd {
        "session.v3.jsonl.zstd"
    } else {
        "session.v3.jsonl"
    }
}

/// A log that has stood still long enough for its stamp to be trusted.
fn settled(home: &HomeBuilder, zstd: bool, rows: &[String]) {
    home.log("s", None, name(zstd), &log(zstd, rows));
    std::thread::sleep(Duration::from_millis(80));
}

/// What a session answers, all of it.
type Answers = (u64, Vec<Referenced>, Vec<String>, Vec<(Seq, String)>);

fn answers(opened: &Open) -> Answers {
    let session = opened.handle("s");
    let page = opened.source.page(session, None, None, 20).unwrap();
    let declared = opened.source.declared(session, ALL).unwrap();
    let references = opened.source.references(session, ALL).unwrap();
    let event = |event: Event| (event.seq, event.data.get().to_owned());
    (
        opened.source.session(session).unwrap().next_seq.get(),
        references,
        declared.into_iter().map(|at| at.presented.path).collect(),
        page.events.into_iter().map(event).collect(),
    )
}

/// The bytes this thread has read so far.
fn bytes_read() -> u64 {
    let mut text = String::new();
    File::open("/proc/thread-self/io")
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_later_start_answers_without_reading_the_log() {
    for zstd in [false, true] {
        let home = HomeBuilder::new();
        let rows: Vec<String> = rows(8_000)
            .into_iter()
            .enumerate()
            // What does not compress away.
            .map(|(at, row)| {
                let noise: String = (0..15_u8)
                    .map(|part| {
                        Digest::of(&[at.to_le_bytes().as_slice(), &[part]].concat()).to_string()
                    })
                    .collect();
                row.replace(&"x".repeat(1000), &noise)
            })
            .collect();
        settled(&home, zstd, &rows);
        let whole = fs::metadata(home.folder("s", None).join(name(zstd)))
            .unwrap()
            .len();
        assert!(whole > 3 << 20, "{whole}");
        let bench = Bench::new();
        let mut seen = Vec::new();
        for start in 0..2 {
            let before = bytes_read();
            let opened = bench.open(home.open());
            let opening = bytes_read() - before;
            assert!(opening < 256 << 10, "a start reads no log: {opening}");
            let before = bytes_read();
            seen.push(answers(&opened));
            let id = AttachmentId::new(Digest::of(b"last"));
            opened
                .source
                .reference(opened.handle("s"), id, None)
                .unwrap();
            let read = bytes_read() - before;
            println!("zstd {zstd}, start {start}: {read} of {whole} bytes read");
            assert_eq!(read < whole / 4, start == 1, "{read} of {whole}");
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!((seen[0].0, seen[0].1.len(), seen[0].2.len()), (8_000, 2, 1));
    }
}

/// The rows of the index, by hand.
fn entries(bench: &Bench) -> Vec<(String, String, String)> {
    let Ok(conn) = Connection::open(bench.journal().join("dsh-index")) else {
        return Vec::new();
    };
    let read = || -> holdfast::control::rusqlite::Result<Vec<_>> {
        conn.prepare("SELECT source, session, entry FROM logs ORDER BY session")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect()
    };
    read().unwrap_or_default()
}

#[test]
fn an_index_that_is_lost_damaged_or_of_another_version_is_made_anew() {
    let home = HomeBuilder::new();
    settled(&home, false, &rows(100));
    let bench = Bench::new();
    let truth = answers(&bench.open(home.open()));
    let path = bench.journal().join("dsh-index");
    let sql = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let remove = || {
        for end in ["", "-wal", "-shm"] {
            fs::remove_file(bench.journal().join(format!("dsh-index{end}"))).ok();
        }
    };
    let scribble = |at: u64| {
        sql("PRAGMA wal_checkpoint(TRUNCATE)");
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0xa5; 4096], at).unwrap();
    };
    let ways: [(&str, &dyn Fn()); 8] = [
        ("gone", &remove),
        ("empty", &|| {
            remove();
            fs::write(&path, b"").unwrap();
        }),
        ("no database", &|| {
            remove();
            fs::write(&path, "x".repeat(10_000)).unwrap();
        }),
        ("damaged at its start", &|| scribble(0)),
        ("damaged within", &|| scribble(4096)),
        ("a later version", &|| sql("PRAGMA user_version = 99")),
        ("other tables", &|| {
            sql("DROP TABLE logs; CREATE TABLE logs (x)");
        }),
        ("a link", &|| {
            remove();
            symlink(home.path(), &path).unwrap();
        }),
    ];
    for (what, harm) in ways {
        harm();
        let opened = bench.open(home.open());
        assert_eq!(answers(&opened), truth, "{what}");
        assert_eq!(answers(&opened), truth, "{what}");
        drop(opened);
        // The first use may have found the damage, and the next start makes the entry.
        assert_eq!(answers(&bench.open(home.open())), truth, "{what}");
        assert_eq!(entries(&bench).len(), 1, "{what}: it is there again");
    }
}

/// What is changed in an entry, and how.
type Change = (&'static str, fn(&mut Value));

/// Writes an entry by hand, sealed with the key the database keeps, or with none.
fn poison(bench: &Bench, sealed: bool, change: impl FnOnce(&mut Value)) {
    let (source, session, entry) = entries(bench).remove(0);
    let mut entry: Value = serde_json::from_str(&entry).unwrap();
    change(&mut entry);
    let entry = entry.to_string();
    let control = Connection::open(bench.journal().join("db")).unwrap();
    let key: String = control
        .query_row(
            "SELECT value FROM meta WHERE key = 'dsh_index_key'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let key = SealKey::new(*Digest::parse(&key).unwrap().as_bytes());
    let text = format!("{source}\0{session}\0{entry}");
    let seal = key.seal(
        if sealed { "holdfast dsh index 1" } else { "x" },
        text.as_bytes(),
    );
    let conn = Connection::open(bench.journal().join("dsh-index")).unwrap();
    let done = conn.execute("UPDATE logs SET entry = ?1, seal = ?2", (entry, seal));
    assert_eq!(done.unwrap(), 1);
}

/// Keeps I1: whatever the index says, with our own seal on it or not, what no event of the log refers
/// to is not found, what it lists is what the log says, and the entry is right again afterwards.
#[test]
fn a_poisoned_index_gives_nothing_away_and_heals() {
    let home = HomeBuilder::new();
    settled(&home, false, &rows(300));
    let bench = Bench::new();
    let truth = answers(&bench.open(home.open()));
    let fine = entries(&bench);
    let decoy = AttachmentId::new(Digest::of(b"decoy"));
    let change: [Change; 9] = [
        ("another content", |log| {
            log["references"][0][0] = json!(AttachmentId::new(Digest::of(b"decoy")));
        }),
        ("one more", |log| {
            let id = AttachmentId::new(Digest::of(b"decoy"));
            let all = log["references"].as_array_mut().unwrap();
            all.push(json!([id, "decoy.txt", 5, null, 7]));
        }),
        ("one more, past the end", |log| {
            let id = AttachmentId::new(Digest::of(b"decoy"));
            let all = log["references"].as_array_mut().unwrap();
            all.insert(0, json!([id, null, 5, null, 9_000_000]));
        }),
        ("another name", |log| {
            log["references"][0][1] = json!("other.txt");
        }),
        ("another length", |log| log["references"][0][2] = json!(6)),
        ("an image", |log| {
            log["references"][0][3] = json!(["image/png", 1, 1]);
        }),
        ("another path", |log| {
            log["declared"][0][2] = json!("/etc/passwd");
        }),
        ("more events", |log| log["next"] = json!(400)),
        ("other places", |log| {
            for mark in log["marks"].as_array_mut().unwrap() {
                mark[0] = json!(mark[0].as_u64().unwrap() + 3);
            }
        }),
    ];
    for (what, change) in change {
        for sealed in [false, true] {
            poison(&bench, sealed, |entry| change(&mut entry["outcome"]["Log"]));
            let opened = bench.open(home.open());
            let session = opened.handle("s");
            let found = opened.source.reference(session, decoy, None);
            assert!(
                matches!(found, Err(JournalError::NotFound)),
                "{what}, sealed {sealed}: {found:?}"
            );
            let id = AttachmentId::new(Digest::of(b"first"));
            let first = opened.source.reference(session, id, None);
            if let Ok(first) = &first {
                assert_eq!(*first, truth.1[0].reference, "{what}, sealed {sealed}");
            }
            assert_eq!(answers(&opened), truth, "{what}, sealed {sealed}");
            drop(opened);
            let healed: Value = serde_json::from_str(&entries(&bench)[0].2).unwrap();
            let right: Value = serde_json::from_str(&fine[0].2).unwrap();
            assert_eq!(healed, right, "{what}, sealed {sealed}");
        }
    }
    // What the log is not asked about again stands under the seal alone.
    let under_seal: [Change; 3] = [
        ("a reference less", |log| {
            log["references"].as_array_mut().unwrap().remove(0);
        }),
        ("another directory", |log| log["cwd"] = json!("/etc")),
        ("another time", |log| log["created_at"] = json!(1)),
    ];
    let created = |opened: &Open| {
        let session = opened.source.session(opened.handle("s")).unwrap();
        (session.created_at, session.cwd)
    };
    let written = created(&bench.open(home.open()));
    for (what, change) in under_seal {
        poison(&bench, false, |entry| change(&mut entry["outcome"]["Log"]));
        let opened = bench.open(home.open());
        assert_eq!(created(&opened), written, "{what}");
        assert_eq!(answers(&opened), truth, "{what}");
    }
    // An entry of one session is none of another's, whatever its seal.
    poison(&bench, true, |_| {});
    let conn = Connection::open(bench.journal().join("dsh-index")).unwrap();
    conn.execute("UPDATE logs SET source = 'dsh:other'", [])
        .unwrap();
    assert_eq!(answers(&bench.open(home.open())), truth);
}

#[test]
fn a_log_that_changed_while_nobody_looked_is_read_anew() {
    let home = HomeBuilder::new();
    let old = rows(200);
    settled(&home, false, &old);
    let path = home.folder("s", None).join(name(false));
    let bench = Bench::new();
    let truth = answers(&bench.open(home.open()));
    let keep_times = |change: &dyn Fn(&File)| {
        let times = fs::metadata(&path).unwrap().modified().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        change(&file);
        file.set_modified(times).unwrap();
    };
    let decoy = AttachmentId::new(Digest::of(b"first"));
    // Rewritten in place, of the same length and time: nothing refers to the file any more.
    let other = String::from_utf8(log(false, &old))
        .unwrap()
        .replace("\"type\":\"file\"", "\"type\":\"flie\"");
    keep_times(&|file| file.write_all_at(other.as_bytes(), 0).unwrap());
    let opened = bench.open(home.open());
    let found = opened.source.reference(opened.handle("s"), decoy, None);
    assert!(matches!(found, Err(JournalError::NotFound)), "{found:?}");
    assert!(answers(&opened).1.is_empty());
    drop(opened);
    // Another file in its place.
    fs::remove_file(&path).unwrap();
    settled(&home, false, &old);
    assert_eq!(answers(&bench.open(home.open())), truth);
    // Cut, and grown.
    keep_times(&|file| file.set_len(100_000).unwrap());
    let cut = answers(&bench.open(home.open()));
    assert!(cut.0 < 200 && cut.1.len() == 1, "{cut:?}");
    settled(&home, false, &rows(200));
    assert_eq!(answers(&bench.open(home.open())), truth);
    let mut file = File::options().append(true).open(&path).unwrap();
    let more = event(200, "user/message", &self::file(b"more", "more.txt"));
    file.write_all(more.as_bytes()).unwrap();
    let grown = answers(&bench.open(home.open()));
    assert_eq!((grown.0, grown.1.len()), (201, 3));
    // Damaged: refused, also by what is kept of it, until it is whole again.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(80));
        file.write_all(b"{}\n").unwrap();
        file.write_all(event(201, "turn/end", "{}").as_bytes())
            .unwrap();
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(80));
            assert!(bench.open(home.open()).refusal("s").contains("row 202"));
        }
    }
    fs::remove_file(&path).unwrap();
    settled(&home, false, &old);
    assert_eq!(answers(&bench.open(home.open())), truth);
    // A session that went takes its entry along.
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let opened = bench.open(home.open());
    drop(opened);
    home.log("s", None, name(false), &log(false, &old));
    let opened = bench.open(home.open());
    assert_eq!(answers(&opened), truth);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    opened.source.look().unwrap();
    assert_eq!(entries(&bench), []);
}

fn kept_length(bench: &Bench) -> u64 {
    let entries = entries(bench);
    let entry = entries.first().map_or(Value::Null, |(_, _, entry)| {
        serde_json::from_str(entry).unwrap_or_default()
    });
    entry["len"].as_u64().unwrap_or_default()
}

fn grow(path: &Path, seq: u64) -> u64 {
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(event(seq, "x", "1").as_bytes()).unwrap();
    file.metadata().unwrap().len()
}

/// An append shows at once to whoever asks; the index follows within a second by itself, heard of or,
/// without watches, looked for.
#[test]
fn the_index_follows_an_append_within_a_second() {
    for watches in [DshLimits::default().watches, 1, 0] {
        let home = HomeBuilder::new();
        settled(&home, false, &rows(50));
        let path = home.folder("s", None).join(name(false));
        let bench = Bench::new();
        let limits = DshLimits {
            watches,
            ..DshLimits::default()
        };
        let opened = bench.open_with(home.open(), limits);
        let _watch = opened.source.watch().unwrap();
        let session = opened.handle("s");
        // Nobody asked yet, so there is nothing to keep up, and the log is not read.
        grow(&path, 50);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(kept_length(&bench), 0, "{watches} watches");
        let notes = opened.source.notes();
        let said = notes.iter().any(|note| note.contains("in turn"));
        assert_eq!(said, watches < 3, "{watches} watches: {notes:?}");
        opened.source.session(session).unwrap();
        for seq in 51..54 {
            let len = grow(&path, seq);
            let start = Instant::now();
            while kept_length(&bench) != len {
                assert!(
                    start.elapsed() < Duration::from_secs(1),
                    "{watches} watches, seq {seq}"
                );
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(
                opened.source.session(session).unwrap().next_seq,
                Seq::new(seq + 1)
            );
        }
    }
}
