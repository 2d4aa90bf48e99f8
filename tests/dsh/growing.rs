//! Logs that are written, and rolled back, while they are read.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use holdfast::journal::{Event, JournalError, Source as _, Window};

use crate::support::{Bench, HomeBuilder, Open, event, frame, header};

/// A log as DSH would append it: the header, then a batch after the other.
fn batches(zstd: bool, batches: &[String]) -> Vec<Vec<u8>> {
    let pack = |text: &String| {
        if zstd {
            frame(text.as_bytes())
        } else {
            text.clone().into_bytes()
        }
    };
    batches.iter().map(pack).collect()
}

fn name(zstd: bool) -> &'static str {
    if zstd {
        "session.v3.jsonl.zstd"
    } else {
        "session.v3.jsonl"
    }
}

fn reference(seq: u64) -> String {
    let digest = holdfast::model::Digest::of(&seq.to_le_bytes());
    format!(
        r#"{{"content":[{{"type":"file","attachment":{{"attachmentId":"sha256:{digest}","name":"{seq}.txt","bytes":8}}}}],"seq":{seq}}}"#
    )
}

fn read(opened: &Open) -> Result<(Vec<Event>, usize), JournalError> {
    let session = opened.handle("s");
    let all = Window {
        offset: 0,
        limit: u32::MAX,
    };
    let references = opened.source.references(session, all)?.len();
    Ok((opened.events("s", 20)?, references))
}

#[test]
fn a_log_cut_at_any_byte_reads_as_a_prefix_and_grows_on_from_there() {
    for zstd in [false, true] {
        let home = HomeBuilder::new();
        let batch = |from: u64| -> String {
            (from..from + 2)
                .map(|seq| event(seq, "user/message", &reference(seq)))
                .collect()
        };
        let parts = batches(zstd, &[header(3, "s", None), batch(0), batch(2), batch(4)]);
        let first = parts[0].len();
        let whole = parts.concat();
        let path = home.log("s", None, name(zstd), &whole[..first]);
        let bench = Bench::new();
        let opened = bench.open(home.open());
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        let mut seen = 0;
        for byte in &whole[first..] {
            (&file).write_all(&[*byte]).unwrap();
            let (events, references) = read(&opened).unwrap();
            assert!(events.len() >= seen, "nothing is taken back");
            assert_eq!(references, events.len(), "an index follows its log");
            seen = events.len();
            for (seq, event) in events.iter().enumerate() {
                assert_eq!(event.data.get(), reference(seq as u64), "zstd {zstd}");
            }
        }
        assert_eq!(seen, 6);
        // The same, for one who comes fresh at every length.
        for len in (first..=whole.len()).step_by(97) {
            file.set_len(len as u64).unwrap();
            let (events, _) = read(&Bench::new().open(home.open())).unwrap();
            let (followed, references) = read(&opened).unwrap();
            assert_eq!(
                (events.len(), events.len()),
                (followed.len(), references),
                "cut at {len}"
            );
            fs::write(&path, &whole).unwrap();
        }
    }
}

#[test]
fn a_failed_append_that_is_rolled_back_leaves_no_trace() {
    for zstd in [false, true] {
        let good = |from: u64| -> String {
            (from..from + 2)
                .map(|seq| event(seq, "user/message", &reference(seq)))
                .collect()
        };
        let failed: String = (2..14)
            .map(|seq| event(seq, "user/message", &reference(seq + 100)))
            .collect();
        let parts = batches(
            zstd,
            &[header(3, "s", None), good(0), failed, good(2), good(4)],
        );
        let [head, first, failed, second, third] = &parts[..] else {
            panic!()
        };
        let base = [&head[..], first].concat();
        let home = HomeBuilder::new();
        let path = home.log("s", None, name(zstd), &base);
        let opened = Bench::new().open(home.open());
        for cut in (0..=failed.len()).step_by(13) {
            fs::write(&path, [&base[..], &failed[..cut]].concat()).unwrap();
            let (events, _) = read(&opened).unwrap();
            assert!(events.len() >= 2, "cut at {cut}");
            let file = OpenOptions::new().append(true).open(&path).unwrap();
            file.set_len(base.len() as u64).unwrap();
            if cut % 2 == 0 {
                // Sometimes the reader looks in between, sometimes not.
                assert_eq!(read(&opened).unwrap().0.len(), 2);
            }
            (&file).write_all(second).unwrap();
            (&file).write_all(third).unwrap();
            let (events, references) = read(&opened).unwrap();
            let data: Vec<_> = events
                .iter()
                .map(|event| event.data.get().to_owned())
                .collect();
            let expected: Vec<_> = (0..6).map(reference).collect();
            assert_eq!(data, expected, "zstd {zstd} cut at {cut}");
            assert_eq!(references, 6);
        }
    }
}

#[test]
fn a_torn_tail_that_dsh_repairs_is_read_anew() {
    let home = HomeBuilder::new();
    let start = [header(3, "s", None), event(0, "turn/start", "{}")].concat();
    let torn = format!("{start}{}", r#"{"type":"user/message","seq":1,"ti"#);
    let path = home.log("s", None, name(false), torn.as_bytes());
    let opened = Bench::new().open(home.open());
    assert_eq!(opened.events("s", 10).unwrap().len(), 1);
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    file.set_len(start.len() as u64).unwrap();
    (&file)
        .write_all(event(1, "turn/end", r#"{"reason":{"kind":"interrupted"}}"#).as_bytes())
        .unwrap();
    let events = opened.events("s", 10).unwrap();
    assert_eq!((events.len(), events[1].kind.as_str()), (2, "turn/end"));
    // Replaced as a whole: another file under the same name.
    let fresh = [
        header(3, "s", None),
        event(0, "x", "{}"),
        event(1, "y", "{}"),
        event(2, "z", "{}"),
    ];
    let beside = path.with_file_name("session.tmp");
    fs::write(&beside, fresh.concat()).unwrap();
    fs::rename(&beside, &path).unwrap();
    let kinds: Vec<_> = opened
        .events("s", 10)
        .unwrap()
        .into_iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(kinds, ["x", "y", "z"]);
}

/// The payload of an event: everything a reader needs to see that it is the right one.
fn payload(seq: u64, attempt: u64) -> String {
    let fill = "x".repeat(usize::try_from(seq % 97).unwrap());
    format!(r#"{{"seq":{seq},"attempt":{attempt},"fill":"{fill}"}}"#)
}

/// Appends batches in pieces of any size; every third is first written under another attempt, in
/// part, and rolled back.
fn write(path: &Path, zstd: bool, until: Instant, written: &AtomicU64) {
    let file = OpenOptions::new().append(true).open(path).unwrap();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut seq, mut attempt) = (0, 0);
    while Instant::now() < until {
        let count = 1 + next(40);
        let pack = |attempt: u64| -> Vec<u8> {
            let text: String = (seq..seq + count)
                .map(|seq| event(seq, "e", &payload(seq, attempt)))
                .collect();
            if zstd {
                frame(text.as_bytes())
            } else {
                text.into_bytes()
            }
        };
        let base = file.metadata().unwrap().len();
        if next(3) == 0 {
            let failed = pack(attempt);
            let part = usize::try_from(next(failed.len() as u64 + 1)).unwrap();
            (&file).write_all(&failed[..part]).unwrap();
            if next(2) == 0 {
                std::thread::sleep(Duration::from_micros(next(800)));
            }
            file.set_len(base).unwrap();
            attempt += 1;
        }
        let mut rest = &pack(attempt)[..];
        while !rest.is_empty() {
            let part = usize::try_from(1 + next(rest.len() as u64)).unwrap();
            (&file).write_all(&rest[..part]).unwrap();
            rest = &rest[part..];
            if next(4) == 0 {
                std::thread::sleep(Duration::from_micros(next(300)));
            }
        }
        attempt += 1;
        seq += count;
        written.store(seq, Ordering::Release);
    }
}

/// Checks a page: dense, each event as written, and no event of a rolled back batch before one of a
/// batch that followed.
fn check(events: &[Event]) {
    let mut attempts = Vec::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.seq.get(), events[0].seq.get() + index as u64);
        let data: serde_json::Value = serde_json::from_str(event.data.get()).unwrap();
        let attempt = data["attempt"].as_u64().unwrap();
        assert_eq!(event.data.get(), payload(event.seq.get(), attempt));
        attempts.push(attempt);
    }
    assert!(attempts.is_sorted(), "a mixture: {attempts:?}");
}

#[test]
fn readers_beside_a_writer_never_see_a_wrong_or_second_event_and_never_hang() {
    for zstd in [false, true] {
        let home = HomeBuilder::new();
        let head = header(3, "s", None);
        let head = if zstd {
            frame(head.as_bytes())
        } else {
            head.into_bytes()
        };
        let path = home.log("s", None, name(zstd), &head);
        let bench = Bench::new();
        let opened = bench.open(home.open());
        let session = opened.handle("s");
        let until = Instant::now() + Duration::from_millis(1500);
        let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let pages = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for reader in 0..2_u64 {
                let (opened, written, done, pages) = (&opened, &written, &done, &pages);
                scope.spawn(move || {
                    let mut at = 0_u64;
                    while !done.load(Ordering::Acquire) {
                        let durable = written.load(Ordering::Acquire);
                        let tail = opened.source.page(session, None, None, 60);
                        match tail {
                            Ok(page) => {
                                check(&page.events);
                                let end = page.events.last().map_or(0, |event| event.seq.get() + 1);
                                assert!(end >= durable, "fresh: {end} of {durable}");
                            }
                            // It never stood still; honest, and rare.
                            Err(JournalError::Busy) => {}
                            Err(other) => panic!("{other:?}"),
                        }
                        at = (at * 31 + reader + 7) % durable.max(1);
                        let before = holdfast::model::Seq::new(at);
                        match opened.source.page(session, None, Some(before), 25) {
                            Ok(page) => check(&page.events),
                            Err(JournalError::Busy) => {}
                            Err(other) => panic!("{other:?}"),
                        }
                        pages.fetch_add(2, Ordering::Relaxed);
                    }
                });
            }
            write(&path, zstd, until, &written);
            done.store(true, Ordering::Release);
        });
        let events = opened.events("s", 200).unwrap();
        assert_eq!(events.len() as u64, written.load(Ordering::Acquire));
        check(&events);
        let pages = pages.load(Ordering::Relaxed);
        println!(
            "zstd {zstd}: {} events written, {pages} pages read",
            events.len()
        );
        assert!(pages > 20, "readers were not stuck: {pages}");
    }
}

#[test]
fn a_new_session_shows_by_itself_within_a_second() {
    let home = HomeBuilder::new();
    let opened = Bench::new().open(home.open());
    let watch = opened.source.watch().unwrap();
    for (id, cwd) in [("one", Some("/w")), ("two", Some("/w")), ("three", None)] {
        home.log(id, cwd, "session.v3.jsonl", header(3, id, cwd).as_bytes());
        let start = Instant::now();
        while !opened
            .source
            .handle_of(id)
            .is_some_and(|session| opened.source.has(session))
        {
            assert!(
                start.elapsed() < Duration::from_secs(1),
                "{id} does not show"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(opened.source.session(opened.handle(id)).is_ok());
    }
    let gone = opened.handle("two");
    fs::remove_dir_all(home.folder("two", Some("/w"))).unwrap();
    let start = Instant::now();
    while opened.source.has(gone) {
        assert!(start.elapsed() < Duration::from_secs(1), "it does not go");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(
        opened.source.session(gone),
        Err(JournalError::NotFound)
    ));
    // Back again, it is the same session.
    home.log(
        "two",
        Some("/w"),
        "session.v3.jsonl",
        header(3, "two", Some("/w")).as_bytes(),
    );
    drop(watch);
    opened.source.look().unwrap();
    assert!(opened.source.session(gone).is_ok());
}

#[test]
fn a_home_may_be_filled_after_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let opened = Bench::new().open(holdfast::home::DshHome::open(dir.path()).unwrap());
    assert_eq!(opened.source.sessions(), []);
    let folder = dir.path().join("sessions/_no-cwd/s");
    fs::create_dir_all(&folder).unwrap();
    let file = File::create(folder.join("session.v3.jsonl")).unwrap();
    file.write_all_at(header(3, "s", None).as_bytes(), 0)
        .unwrap();
    opened.source.look().unwrap();
    assert!(opened.source.session(opened.handle("s")).is_ok());
}

#[test]
fn a_long_append_that_was_read_and_rolled_back_leaves_no_trace() {
    let rows = |from: u64, attempt: u64| -> Vec<String> {
        let fill = "y".repeat(1000);
        (from..from + 300)
            .map(|seq| {
                event(
                    seq,
                    "e",
                    &format!(r#"{{"attempt":{attempt},"fill":"{fill}"}}"#),
                )
            })
            .collect()
    };
    for zstd in [false, true] {
        let pack = |rows: Vec<String>| -> Vec<u8> {
            // Frames far smaller than the distance of the places an index keeps.
            let batches = rows.chunks(10).map(<[String]>::concat);
            batches
                .flat_map(|text| {
                    if zstd {
                        frame(text.as_bytes())
                    } else {
                        text.into_bytes()
                    }
                })
                .collect()
        };
        let home = HomeBuilder::new();
        let base = pack(vec![header(3, "s", None)]);
        let path = home.log(
            "s",
            None,
            name(zstd),
            &[&base[..], &pack(rows(0, 1))].concat(),
        );
        let opened = Bench::new().open(home.open());
        assert_eq!(opened.events("s", 100).unwrap().len(), 300);
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        file.set_len(base.len() as u64).unwrap();
        // Of other lengths, so that old places fall into the middle of rows.
        (&file)
            .write_all(&pack(vec![event(0, "first", "{}")]))
            .unwrap();
        (&file).write_all(&pack(rows(1, 2))).unwrap();
        let events = opened.events("s", 100).unwrap();
        assert_eq!(events.len(), 301, "zstd {zstd}");
        assert_eq!(events[0].kind, "first");
        assert!(
            events[1..]
                .iter()
                .all(|event| event.data.get().starts_with(r#"{"attempt":2"#))
        );
    }
}
