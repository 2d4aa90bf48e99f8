//! Many events and many readers at once; figures for people, and no loss for anybody.

use std::{
    collections::BTreeSet,
    io::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use holdfast::{
    access::{PrincipalKind, PrincipalName},
    model::Limits,
};
use serde_json::json;

use crate::support::{
    Options, Server,
    server::Person,
    sse::{Frame, Sse},
};

fn say(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").unwrap();
}

/// A server that takes as many connections of one address as it takes at all.
fn wide() -> Server {
    Server::with(&Options {
        limits: Limits {
            connections: 4096,
            connections_per_address: 4096,
            ..Options::default().limits
        },
        ..Options::default()
    })
}

fn append(server: &Server, session: &str, events: usize) {
    let event = json!({"type": "note", "data": {"text": "what an agent says in a line or so"}});
    let form = json!({"events": vec![event; events]});
    let answer = server.post(&format!("{session}/events"), &server.host, &form);
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// The resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Reads one stream until it has seen `all` events, again after a cut; what was missed is read from the
/// history. Every seq once: doubles stop it.
fn read_all(
    server: &Server,
    who: &Person,
    session: &str,
    all: u64,
    seen: &AtomicU64,
) -> (u64, u64) {
    let (mut seqs, mut cuts) = (BTreeSet::<u64>::new(), 0);
    let take = |frame: &Frame, seqs: &mut BTreeSet<u64>| {
        if frame.event == "session/event" {
            let seq = frame.data["event"]["seq"].as_u64().unwrap();
            assert!(seqs.insert(seq), "seq {seq} twice");
            seen.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut stream = Sse::open(server, who, None);
    while seqs.last().is_none_or(|last| last + 1 < all) {
        if let Some(frame) = stream.next() {
            take(&frame, &mut seqs);
            // A long run needs little of what was seen.
            stream.seen.drain(..stream.seen.len().saturating_sub(4));
            continue;
        }
        cuts += 1;
        let last = stream.last_id();
        stream = Sse::open(server, who, Some(&last));
        let baseline = std::mem::take(&mut stream.seen);
        for frame in &baseline {
            take(frame, &mut seqs);
        }
        stream.seen = baseline;
        let subscribed = stream.all("session/subscribed");
        let ended = |frame: &&&Frame| frame.data["lastSeq"].as_u64() == Some(all - 1);
        if subscribed.iter().find(ended).is_some() {
            break;
        }
    }
    let missed: Vec<u64> = (0..all).filter(|seq| !seqs.contains(seq)).collect();
    for seq in &missed {
        if seqs.contains(seq) {
            continue;
        }
        let target = format!("{session}/events?beforeSeq={}&limit=200", seq + 200);
        let page = server.get(&target, who).json();
        for event in page["events"].as_array().unwrap() {
            seqs.insert(event["seq"].as_u64().unwrap());
        }
    }
    assert_eq!(
        seqs.len() as u64,
        all,
        "every event, from the stream or from the history"
    );
    (cuts, missed.len() as u64)
}

/// 100,000 events to ten readers: none is lost and none comes twice.
#[test]
#[ignore = "some minutes"]
fn a_hundred_thousand_events_reach_ten_readers_once() {
    const ALL: u64 = 100_000;
    const BATCH: u64 = 100;
    let server = wide();
    let session = server.session(&[&server.alice]);
    let seen = AtomicU64::new(0);
    let start = Instant::now();
    let outcomes: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..10)
            .map(|_| scope.spawn(|| read_all(&server, &server.alice, &session, ALL, &seen)))
            .collect();
        // The streams are open before the first event.
        std::thread::sleep(Duration::from_secs(1));
        for _ in 0..ALL / BATCH {
            append(&server, &session, usize::try_from(BATCH).unwrap());
        }
        readers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = seen.load(Ordering::Relaxed) as f64 / seconds;
    say(&format!(
        "100,000 events to 10 readers: {seconds:.1} s, {rate:.0} frames/s, (cuts, read from history): \
         {outcomes:?}, resident {} MiB",
        resident() / 1024
    ));
}

/// 1,000 readers at 100 events a second in all, one of whom never reads: it costs bounded memory and is cut
/// off alone; the others miss nothing.
#[test]
#[ignore = "a minute"]
fn a_thousand_readers_do_not_notice_the_one_that_never_reads() {
    const SECONDS: usize = 30;
    const PEOPLE: usize = 63;
    let server = wide();
    let access = &server.parts.access;
    let people: Vec<(Person, String)> = (0..PEOPLE)
        .map(|n| {
            let name = PrincipalName::parse(&format!("reader-{n}")).unwrap();
            let who = access.create_principal(PrincipalKind::User, name).unwrap();
            let token = access.issue_token(who.id, "load", None).unwrap().token;
            let person = Person {
                who,
                token: token.reveal(),
            };
            let session = server.session(&[&person]);
            (person, session)
        })
        .collect();
    let before = resident();
    let silent = Sse::unread(&server, &people[0].0, None);
    let expected = |n: usize| (0..SECONDS * 100).filter(|tick| tick % PEOPLE == n).count();
    let (delivered, readers) = std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for (n, (person, _)) in people.iter().enumerate() {
            let streams = if n == 0 { 15 } else { 16 };
            for _ in 0..streams {
                let server = &server;
                readers.push(scope.spawn(move || {
                    let mut stream = Sse::open(server, person, None);
                    let mut seqs = BTreeSet::new();
                    while seqs.len() < expected(n) {
                        let frame = stream.until("session/event");
                        let seq = frame.data["event"]["seq"].as_u64().unwrap();
                        assert!(seqs.insert(seq), "seq {seq} twice");
                    }
                    seqs.len() as u64
                }));
            }
        }
        // Everybody is there before the first event.
        std::thread::sleep(Duration::from_secs(5));
        let start = Instant::now();
        for tick in 0..SECONDS * 100 {
            append(&server, &people[tick % PEOPLE].1, 1);
            let due = Duration::from_millis((tick as u64 + 1) * 10);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
        say(&format!("3,000 events in {:?}", start.elapsed()));
        let count = readers.len();
        let delivered: u64 = readers.into_iter().map(|one| one.join().unwrap()).sum();
        (delivered, count)
    });
    let after = resident();
    say(&format!(
        "{readers} readers and one that never reads: {delivered} frames, none missed, resident {} to {} MiB",
        before / 1024,
        after / 1024
    ));
    // Events until its queue is full cost what the queue may hold, and then it is gone.
    for _ in 0..30 {
        append(&server, &people[0].1, 100);
    }
    let grown = resident().saturating_sub(after);
    say(&format!(
        "3,000 more to the one that never reads: {grown} KiB more"
    ));
    assert!(grown < 64 * 1024, "{grown} KiB for one reader");
    drop(silent);
}
