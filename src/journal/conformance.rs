//! What every journal that takes events must do, as a suite that each of them runs.
//!
//! A backend's test makes a [`Rig`] and hands it to [`journal`]. A property that does not hold
//! panics with its name. Compiled for tests alone.

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a test suite: a broken promise is a panic"
)]

use std::{fmt, sync::Arc, thread};

use serde_json::{Value, json, value::RawValue};

use super::{
    Appended, Event, EventType, Journal, JournalError, NewEvent, NewSession, Once, RetryKey,
    Session, Window,
};
use crate::model::{
    AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest, FileName, JournalLimits,
    LogGeneration, MediaType, PrincipalId, Seq, SessionHandle, SessionId, Timestamp,
};

/// A backend under test.
pub trait Rig: fmt::Debug {
    /// The journal, with [`limits`] and [`QUOTA`].
    fn journal(&self) -> Arc<dyn Journal>;

    /// The same journal after a restart.
    fn reopen(&mut self);
}

/// The quota of each session.
pub const QUOTA: ByteCount = ByteCount::new(1000);

/// The limits the suite expects.
#[must_use]
pub fn limits() -> JournalLimits {
    JournalLimits {
        event: ByteCount::new(4096),
        events_per_append: 8,
        events_per_page: 16,
        depth: 8,
        references_per_event: 4,
    }
}

/// Everywhere.
const ALL: Window = Window {
    offset: 0,
    limit: 1000,
};

/// Runs the whole suite on fresh rigs.
pub fn journal<R: Rig>(fresh: impl Fn() -> R) {
    a_session_is_what_was_created(&mut fresh());
    an_append_is_read_back_to_the_byte(&mut fresh());
    an_append_is_all_or_none(&fresh());
    a_stale_expectation_changes_nothing(&fresh());
    bounds_are_refusals(&fresh());
    only_content_of_the_session_may_be_referred_to(&fresh());
    references_are_found_by_content_and_name(&mut fresh());
    declared_paths_keep_their_address(&fresh());
    a_quota_is_charged_once_and_never_passed(&mut fresh());
    pages_join_up_to_the_whole_log(&fresh());
    an_absent_session_is_not_found(&fresh());
    writers_at_once_leave_no_gap(&mut fresh());
    a_repeat_is_answered_and_not_appended(&mut fresh());
    a_key_is_its_principals_on_one_session_for_one_request(&fresh());
}

/// A header whose handle and id come from `n`.
#[must_use]
pub fn header(n: u8) -> NewSession {
    NewSession {
        handle: SessionHandle::from_random([n; 16]),
        id: SessionId::parse(&format!("子会话/#{n}")).unwrap(),
        cwd: Some("/workspaces/demo".to_owned()),
        host: PrincipalId::from_random([1; 16]),
        owners: vec![PrincipalId::from_random([2; 16])],
        created_at: Timestamp::from_millis(1_790_000_000_000 + i64::from(n)),
    }
}

/// An event of this type with this data.
#[must_use]
pub fn event(kind: &str, data: &Value) -> NewEvent {
    raw(kind, &data.to_string())
}

fn raw(kind: &str, data: &str) -> NewEvent {
    NewEvent {
        kind: EventType::parse(kind).unwrap(),
        time: Timestamp::from_millis(1_790_000_000_001),
        data: RawValue::from_string(data.to_owned()).unwrap(),
        ignorable: false,
    }
}

/// A reference to a file of this content and name.
#[must_use]
pub fn file(content: &str, name: &str) -> AttachmentRef {
    AttachmentRef {
        id: AttachmentId::new(Digest::of(content.as_bytes())),
        name: Some(FileName::parse(name).unwrap()),
        bytes: content.len().into(),
        kind: AttachmentKind::File,
    }
}

/// A user message that refers to `references`.
#[must_use]
pub fn message(references: &[&AttachmentRef]) -> NewEvent {
    let blocks: Vec<Value> = references.iter().map(|r| block(r)).collect();
    event("user/message", &json!({"content": blocks}))
}

fn block(reference: &AttachmentRef) -> Value {
    let mut fields = json!({
        "attachmentId": reference.id,
        "bytes": reference.bytes,
    });
    if let Some(name) = &reference.name {
        fields["name"] = json!(name);
    }
    let kind = match reference.kind {
        AttachmentKind::File => "file",
        AttachmentKind::Image {
            media_type,
            width,
            height,
        } => {
            fields["mediaType"] = json!(media_type);
            fields["width"] = json!(width);
            fields["height"] = json!(height);
            "image"
        }
    };
    json!({"type": kind, "attachment": fields})
}

fn text(n: usize) -> NewEvent {
    event("step/note", &json!({ "n": n }))
}

fn created(journal: &dyn Journal, n: u8) -> Session {
    journal.create(header(n)).unwrap()
}

fn all_events(journal: &dyn Journal, session: SessionHandle) -> Vec<Event> {
    let mut events = Vec::new();
    let mut before = None;
    loop {
        let page = journal.page(session, None, before, usize::MAX).unwrap();
        before = page.events.first().map(|event| event.seq);
        events.splice(0..0, page.events);
        if !page.has_more {
            return events;
        }
    }
}

fn uploaded(journal: &dyn Journal, session: SessionHandle, reference: &AttachmentRef) {
    journal
        .record_upload(session, reference, Timestamp::from_millis(1))
        .unwrap();
}

/// Keeps I12.
fn a_session_is_what_was_created(rig: &mut dyn Rig) {
    let new = header(1);
    let session = rig.journal().create(new.clone()).unwrap();
    let expected = Session {
        handle: new.handle,
        id: new.id.clone(),
        created_at: new.created_at,
        cwd: new.cwd.clone(),
        generation: LogGeneration::NATIVE,
        next_seq: Seq::FIRST,
    };
    assert_eq!(session, expected);
    rig.reopen();
    assert_eq!(rig.journal().session(new.handle).unwrap(), expected);

    let again = NewSession {
        handle: SessionHandle::from_random([9; 16]),
        ..new.clone()
    };
    let refused = rig.journal().create(again.clone());
    assert!(matches!(refused, Err(JournalError::Exists)), "{refused:?}");
    let of_another_host = NewSession {
        host: PrincipalId::from_random([3; 16]),
        ..again
    };
    assert!(rig.journal().create(of_another_host).is_ok());
}

/// Keeps I5 and I6.
fn an_append_is_read_back_to_the_byte(rig: &mut dyn Rig) {
    let session = created(&*rig.journal(), 1).handle;
    let spaced = "{ \"b\" : 1,\n\t\"a\":\"\\u00e9\\ud83d\\ude00 \u{202e}\\u0000\" }";
    let odd = raw("plugin/anything-9._", spaced);
    let mut ignorable = raw("x", "null");
    ignorable.ignorable = true;
    ignorable.time = Timestamp::from_millis(-1);
    let first = rig
        .journal()
        .append(session, vec![odd, ignorable], None)
        .unwrap();
    assert_eq!((first.first, first.last), (Seq::new(0), Seq::new(1)));
    assert_eq!(first.generation, LogGeneration::NATIVE);
    let second = rig.journal().append(session, vec![text(2)], None).unwrap();
    assert_eq!((second.first, second.last), (Seq::new(2), Seq::new(2)));
    assert_ne!(first.head, second.head);

    rig.reopen();
    let journal = rig.journal();
    assert_eq!(journal.session(session).unwrap().next_seq, Seq::new(3));
    let events = all_events(&*journal, session);
    let seqs: Vec<u64> = events.iter().map(|event| event.seq.get()).collect();
    assert_eq!(seqs, [0, 1, 2]);
    assert_eq!(events[0].data.get(), spaced);
    assert_eq!(events[0].kind, "plugin/anything-9._");
    assert!(!events[0].ignorable);
    assert_eq!(events[1].time, Timestamp::from_millis(-1));
    assert!(events[1].ignorable);
}

/// Keeps I12.
fn an_append_is_all_or_none(rig: &dyn Rig) {
    let journal = rig.journal();
    let session = created(&*journal, 1).handle;
    let unknown = file("guessed", "guessed");
    let refused = journal.append(session, vec![text(0), message(&[&unknown])], None);
    assert!(matches!(refused, Err(JournalError::UnknownReference(id)) if id == unknown.id));
    assert_eq!(journal.session(session).unwrap().next_seq, Seq::FIRST);
    assert!(all_events(&*journal, session).is_empty());
}

/// Row 48 of `spec/store.md` section 7.
fn a_stale_expectation_changes_nothing(rig: &dyn Rig) {
    let journal = rig.journal();
    let session = created(&*journal, 1).handle;
    let at = |n| Some(Seq::new(n));
    assert!(journal.append(session, vec![text(0)], at(0)).is_ok());
    for stale in [0, 2, u64::MAX] {
        let refused = journal.append(session, vec![text(1)], at(stale));
        match refused {
            Err(JournalError::SeqMismatch { expected, present }) => {
                assert_eq!((expected, present), (Seq::new(stale), Seq::new(1)));
            }
            other => unreachable!("{other:?}"),
        }
    }
    assert!(journal.append(session, vec![text(1)], at(1)).is_ok());
}

/// Keeps I11.
fn bounds_are_refusals(rig: &dyn Rig) {
    let journal = rig.journal();
    let session = created(&*journal, 1).handle;
    let limits = limits();
    let deep = "[".repeat(limits.depth + 1) + &"]".repeat(limits.depth + 1);
    let large = format!("\"{}\"", "x".repeat(4096));
    let upload = file("x", "x");
    uploaded(&*journal, session, &upload);
    let many: Vec<&AttachmentRef> = vec![&upload; limits.references_per_event + 1];
    let malformed = json!({"content": [{"type": "file", "attachment": {"attachmentId": "x"}}]});
    for (what, events) in [
        ("none", vec![]),
        (
            "too many",
            (0..=limits.events_per_append).map(text).collect(),
        ),
        ("too deep", vec![raw("a", &deep)]),
        ("too large", vec![raw("a", &large)]),
        ("too many references", vec![message(&many)]),
        (
            "malformed reference",
            vec![event("user/message", &malformed)],
        ),
    ] {
        let refused = journal.append(session, events, None);
        assert!(
            matches!(refused, Err(JournalError::Refused(_))),
            "{what}: {refused:?}"
        );
    }
    assert_eq!(journal.session(session).unwrap().next_seq, Seq::FIRST);
    let most = (0..limits.events_per_append).map(text).collect();
    assert!(journal.append(session, most, None).is_ok());
}

/// Keeps I1 and I14: knowing a digest is not a right to the bytes.
fn only_content_of_the_session_may_be_referred_to(rig: &dyn Rig) {
    let journal = rig.journal();
    let (mine, theirs) = (created(&*journal, 1).handle, created(&*journal, 2).handle);
    let secret = file("secret of another", "secret.txt");
    uploaded(&*journal, theirs, &secret);
    assert!(
        journal
            .append(theirs, vec![message(&[&secret])], None)
            .is_ok()
    );
    let refused = |reference: &AttachmentRef, what: &str| {
        let refused = journal.append(mine, vec![message(&[reference])], None);
        assert!(
            matches!(refused, Err(JournalError::UnknownReference(_))),
            "{what}: {refused:?}"
        );
    };
    refused(&secret, "content of another session");

    let own = file("own", "own.txt");
    uploaded(&*journal, mine, &own);
    let bytes = ByteCount::new(4);
    refused(
        &AttachmentRef {
            bytes,
            ..own.clone()
        },
        "another length",
    );
    refused(&file("own", "other.txt"), "another name");
    assert!(journal.append(mine, vec![message(&[&own])], None).is_ok());
    assert!(
        journal
            .append(mine, vec![message(&[&own, &own])], None)
            .is_ok()
    );

    // An image is known by its content, under whatever name it was uploaded.
    let image = AttachmentRef {
        name: None,
        kind: AttachmentKind::Image {
            media_type: MediaType::Png,
            width: 1,
            height: 2,
        },
        ..own.clone()
    };
    assert!(journal.append(mine, vec![message(&[&image])], None).is_ok());

    // Look-alikes neither need the content nor gain it.
    let decoys = vec![
        event("plugin/x", &json!({"content": [block(&secret)]})),
        event(
            "tool/call",
            &json!({"arguments": block(&secret).to_string()}),
        ),
        event(
            "deliverables/presented",
            &json!({"files": [{"path": "a", "attachment": block(&secret)}]}),
        ),
    ];
    assert!(journal.append(mine, decoys, None).is_ok());
    let absent = journal.reference(mine, secret.id, None);
    assert!(matches!(absent, Err(JournalError::NotFound)), "{absent:?}");
    refused(&secret, "content of another session, named by decoys");
}

fn references_are_found_by_content_and_name(rig: &mut dyn Rig) {
    let session = created(&*rig.journal(), 1).handle;
    let (a, b) = (file("x", "a.txt"), file("x", "b.txt"));
    let image = AttachmentRef {
        kind: AttachmentKind::Image {
            media_type: MediaType::Webp,
            width: 24,
            height: 16,
        },
        ..file("picture", "p.webp")
    };
    for reference in [&a, &b, &image] {
        uploaded(&*rig.journal(), session, reference);
    }
    let unreferenced = rig.journal().reference(session, a.id, None);
    assert!(
        matches!(unreferenced, Err(JournalError::NotFound)),
        "an upload is no reference"
    );
    let events = vec![
        text(0),
        message(&[&b]),
        message(&[&image, &b]),
        event(
            "tool/result",
            &json!({"message": {"content": [
            {"type": "tool-result", "content": [block(&a)]}]}}),
        ),
    ];
    rig.journal().append(session, events, None).unwrap();
    rig.reopen();
    let journal = rig.journal();
    let listed: Vec<_> = journal
        .references(session, ALL)
        .unwrap()
        .into_iter()
        .map(|found| (found.reference, found.seq.get()))
        .collect();
    assert_eq!(listed, [(b.clone(), 1), (image.clone(), 2), (a.clone(), 3)]);
    let second = Window {
        offset: 1,
        limit: 1,
    };
    assert_eq!(
        journal.references(session, second).unwrap()[0].reference,
        image
    );

    let found = |id, name: Option<&str>| {
        let name = name.map(|name| FileName::parse(name).unwrap());
        journal.reference(session, id, name.as_ref()).ok()
    };
    assert_eq!(found(a.id, None).as_ref(), Some(&b), "the first in the log");
    assert_eq!(found(a.id, Some("a.txt")).as_ref(), Some(&a));
    assert_eq!(found(image.id, None), Some(image));
    assert_eq!(found(a.id, Some("c.txt")), None);
}

fn declared_paths_keep_their_address(rig: &dyn Rig) {
    let journal = rig.journal();
    let session = created(&*journal, 1).handle;
    let files =
        json!({"files": [{"path": "a", "description": "d"}, {"path": 1}, {"path": "../b"}]});
    let events = vec![
        event("deliverables/presented", &json!({"files": []})),
        event("deliverables/presented", &files),
        event("deliverables/presented", &json!({"files": [{"path": "c"}]})),
    ];
    journal.append(session, events, None).unwrap();
    let address = |window| {
        let listed = journal.declared(session, window).unwrap();
        let address = |d: super::Declared| (d.seq.get(), d.index, d.presented.path);
        listed.into_iter().map(address).collect::<Vec<_>>()
    };
    let own = str::to_owned;
    assert_eq!(
        address(ALL),
        [(1, 0, own("a")), (1, 2, own("../b")), (2, 0, own("c"))]
    );
    let last = Window {
        offset: 2,
        limit: 9,
    };
    assert_eq!(address(last), [(2, 0, own("c"))]);
}

/// Keeps I11; rows 58 and 59 of `spec/store.md` section 7.
fn a_quota_is_charged_once_and_never_passed(rig: &mut dyn Rig) {
    let session = created(&*rig.journal(), 1).handle;
    let at = Timestamp::from_millis(1);
    let reference = |n: u64, name: &str| AttachmentRef {
        bytes: ByteCount::new(n),
        ..file(name, name)
    };
    let journal = rig.journal();
    for _ in 0..3 {
        journal
            .record_upload(session, &reference(400, "a"), at)
            .unwrap();
    }
    // The same content under another name is another charge.
    let renamed = AttachmentRef {
        name: Some(FileName::parse("a2").unwrap()),
        ..reference(400, "a")
    };
    journal.record_upload(session, &renamed, at).unwrap();
    let over = |outcome: Result<(), JournalError>| {
        matches!(outcome, Err(JournalError::OverQuota { used, limit, .. })
            if used == ByteCount::new(800) && limit == QUOTA)
    };
    assert!(over(journal.record_upload(
        session,
        &reference(201, "b"),
        at
    )));
    let admit = |name: &str, bytes: u64| {
        let name = FileName::parse(name).unwrap();
        journal.admit_upload(session, &name, ByteCount::new(bytes))
    };
    assert!(over(admit("b", 201)));
    assert!(over(admit("b", u64::MAX)));
    admit("b", 200).unwrap();
    admit("a", 400).unwrap();
    assert!(over(admit("a", 401)), "no repeat of what was recorded");
    let refused = journal.append(session, vec![message(&[&reference(201, "b")])], None);
    assert!(
        matches!(refused, Err(JournalError::UnknownReference(_))),
        "not uploaded after all"
    );

    rig.reopen();
    let journal = rig.journal();
    journal
        .record_upload(session, &reference(400, "a"), at)
        .unwrap();
    journal
        .record_upload(session, &reference(200, "c"), at)
        .unwrap();
    let fresh = FileName::parse("fresh").unwrap();
    assert!(
        journal
            .admit_upload(session, &fresh, ByteCount::new(1))
            .is_err()
    );
    let lied = AttachmentRef {
        bytes: ByteCount::new(1),
        name: Some(FileName::parse("lied").unwrap()),
        ..reference(400, "a")
    };
    let refused = journal.record_upload(session, &lied, at);
    assert!(
        matches!(refused, Err(JournalError::Refused(_))),
        "{refused:?}"
    );
}

fn pages_join_up_to_the_whole_log(rig: &dyn Rig) {
    let journal = rig.journal();
    let session = created(&*journal, 1).handle;
    // Messages at 3, 4, 10 and 20; a stretch of more than a page without one after that.
    let kinds = (0..45).map(|n| match n {
        3 | 10 => event("user/message", &json!({"content": []})),
        4 | 20 => event("assistant/message", &json!({"message": {"content": []}})),
        n => text(n),
    });
    let kinds: Vec<_> = kinds.collect();
    for some in kinds.chunks(limits().events_per_append) {
        journal.append(session, some.to_vec(), None).unwrap();
    }
    for (before, limit, start, end) in [
        (None, 4, 41, 45),
        (None, usize::MAX, 29, 45),
        (None, 0, 44, 45),
        (Some(29), 16, 20, 29),
        (Some(20), 16, 4, 20),
        (Some(20), 9, 20 - 9, 20),
        (Some(20), 10, 10, 20),
        (Some(4), 16, 0, 4),
        (Some(1), 16, 0, 1),
        (Some(0), 16, 0, 0),
        (Some(u64::MAX), 1, 44, 45),
    ] {
        let asked = before.map(Seq::new);
        let page = journal.page(session, None, asked, limit).unwrap();
        let seqs: Vec<u64> = page.events.iter().map(|event| event.seq.get()).collect();
        let expected: Vec<u64> = (start..end).collect();
        assert_eq!(seqs, expected, "before {before:?}, limit {limit}");
        assert_eq!(page.has_more, start > 0, "before {before:?}, limit {limit}");
    }
    assert_eq!(all_events(&*journal, session).len(), 45);
    let stale = journal.page(session, Some(LogGeneration::new(2)), None, 1);
    assert!(
        matches!(stale, Err(JournalError::StaleGeneration { .. })),
        "{stale:?}"
    );
    let current = journal.page(session, Some(LogGeneration::NATIVE), None, 1);
    assert!(current.is_ok());
}

fn an_absent_session_is_not_found(rig: &dyn Rig) {
    let journal = rig.journal();
    created(&*journal, 1);
    let absent = SessionHandle::from_random([7; 16]);
    let reference = file("x", "x");
    for (call, error) in [
        ("session", journal.session(absent).err()),
        ("page", journal.page(absent, None, None, 1).err()),
        ("references", journal.references(absent, ALL).err()),
        (
            "reference",
            journal.reference(absent, reference.id, None).err(),
        ),
        ("declared", journal.declared(absent, ALL).err()),
        ("append", journal.append(absent, vec![text(0)], None).err()),
        (
            "record_upload",
            journal
                .record_upload(absent, &reference, Timestamp::from_millis(1))
                .err(),
        ),
        (
            "admit_upload",
            journal
                .admit_upload(absent, &FileName::parse("a").unwrap(), ByteCount::ZERO)
                .err(),
        ),
    ] {
        assert!(
            matches!(error, Some(JournalError::NotFound)),
            "{call}: {error:?}"
        );
    }
}

/// Keeps I5 and I6: every acknowledged event is there after a restart, in a dense order.
fn writers_at_once_leave_no_gap(rig: &mut dyn Rig) {
    const WRITERS: usize = 32;
    const EACH: usize = 4;
    let sessions = [
        created(&*rig.journal(), 1).handle,
        created(&*rig.journal(), 2).handle,
    ];
    let journal = rig.journal();
    let acknowledged: Vec<(SessionHandle, usize, Appended)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (journal, session) = (&journal, sessions[writer % 2]);
                scope.spawn(move || {
                    (0..EACH)
                        .map(|n| {
                            let event = text(writer * EACH + n);
                            let appended = journal.append(session, vec![event], None).unwrap();
                            (session, writer * EACH + n, appended)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        writers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect()
    });
    drop(journal);
    rig.reopen();
    for session in sessions {
        let events = all_events(&*rig.journal(), session);
        let seqs: Vec<usize> = events
            .iter()
            .map(|e| usize::try_from(e.seq.get()).unwrap())
            .collect();
        assert_eq!(seqs, (0..WRITERS / 2 * EACH).collect::<Vec<_>>());
        for (_, n, appended) in acknowledged.iter().filter(|(of, ..)| *of == session) {
            let event = &events[usize::try_from(appended.first.get()).unwrap()];
            assert_eq!(event.data.get(), json!({ "n": n }).to_string());
        }
    }
}

fn once(who: u8, key: &str, asked: &str) -> Once {
    Once {
        who: PrincipalId::from_random([who; 16]),
        key: RetryKey::parse(key.as_bytes()).unwrap(),
        asked: Digest::of(asked.as_bytes()),
    }
}

/// Row 46 of `spec/store.md` section 7: racers and a repeat after a restart get one answer.
fn a_repeat_is_answered_and_not_appended(rig: &mut dyn Rig) {
    let session = created(&*rig.journal(), 1).handle;
    let journal = rig.journal();
    let append = |journal: &dyn Journal| {
        let events = vec![text(7), text(8)];
        journal.append_once(session, events, Some(Seq::FIRST), once(1, "k", "asked"))
    };
    let answers: Vec<Appended> = thread::scope(|scope| {
        let racers: Vec<_> = (0..32).map(|_| scope.spawn(|| append(&*journal))).collect();
        let answers = racers.into_iter().map(|racer| racer.join().unwrap());
        answers.collect::<Result<_, _>>().unwrap()
    });
    drop(journal);
    rig.reopen();
    let again = append(&*rig.journal()).unwrap();
    assert!(answers.iter().all(|answer| *answer == again), "{answers:?}");
    assert_eq!((again.first, again.last), (Seq::new(0), Seq::new(1)));
    assert_eq!(all_events(&*rig.journal(), session).len(), 2);
}

/// Row 47 of `spec/store.md` section 7.
fn a_key_is_its_principals_on_one_session_for_one_request(rig: &dyn Rig) {
    let journal = rig.journal();
    let (one, two) = (created(&*journal, 1).handle, created(&*journal, 2).handle);
    let append = |session, once| journal.append_once(session, vec![text(0)], None, once);
    append(one, once(1, "k", "asked")).unwrap();
    let refused = append(one, once(1, "k", "another"));
    assert!(
        matches!(refused, Err(JournalError::KeyReused)),
        "{refused:?}"
    );
    assert_eq!(
        journal.session(one).unwrap().next_seq,
        Seq::new(1),
        "nothing changed"
    );
    append(one, once(2, "k", "another")).unwrap();
    append(two, once(1, "k", "another")).unwrap();
    append(one, once(1, "K", "another")).unwrap();
    assert_eq!(journal.session(one).unwrap().next_seq, Seq::new(3));
    // What was refused is not kept: the same request may succeed later.
    let wanted = file("wanted", "wanted");
    let refer = || {
        let events = vec![message(&[&wanted])];
        journal.append_once(one, events, None, once(1, "r", "refer"))
    };
    assert!(matches!(refer(), Err(JournalError::UnknownReference(_))));
    uploaded(&*journal, one, &wanted);
    assert!(refer().is_ok());
}
