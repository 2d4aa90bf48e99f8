//! Records: what was appended is what is read, from whichever end and in whatever pieces.

use std::{fs::File, sync::Arc};

use holdfast::{
    control::Control,
    journal::{
        EventType, Journal as _, NewEvent, NewSession, Source as _, native::NativeJournal, record,
    },
    model::{
        ByteCount, JournalLimits, PrincipalId, Seq, SessionHandle, SessionId, SystemClock,
        Timestamp,
    },
};
use proptest::prelude::*;
use serde_json::{json, value::RawValue};

#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/record.rs"]
mod body;

#[test]
fn the_corpus_of_records_holds() {
    super::corpus::replay("record", body::check);
}

const SESSION: SessionHandle = SessionHandle::from_random([1; 16]);

fn header(owner: u8) -> NewSession {
    NewSession {
        handle: SESSION,
        id: SessionId::parse("any").unwrap(),
        cwd: None,
        host: PrincipalId::from_random([owner; 16]),
        owners: Vec::new(),
        created_at: Timestamp::from_millis(0),
    }
}

fn event() -> impl Strategy<Value = NewEvent> {
    let kind = prop_oneof![
        Just("user/message".to_owned()),
        Just("assistant/message".to_owned()),
        Just("deliverables/presented".to_owned()),
        "[A-Za-z0-9_./-]{1,20}",
    ];
    let data = prop_oneof![
        ".{0,40}".prop_map(|text| json!({"content": [{"type": "text", "text": text}]}).to_string()),
        ".{0,40}".prop_map(|path| json!({"files": [{"path": path}]}).to_string()),
        any::<i64>().prop_map(|n| format!(" {n}\n")),
        Just("null".to_owned()),
        Just("{ \"a\" : [ ] }".to_owned()),
    ];
    (kind, data, any::<i64>(), any::<bool>()).prop_map(|(kind, data, time, ignorable)| NewEvent {
        kind: EventType::parse(&kind).unwrap(),
        time: Timestamp::from_millis(time),
        data: RawValue::from_string(data).unwrap(),
        ignorable,
    })
}

/// What of an event can be compared.
fn shown(
    kind: &str,
    time: Timestamp,
    data: &RawValue,
    ignorable: bool,
) -> (String, Timestamp, String, bool) {
    (kind.to_owned(), time, data.get().to_owned(), ignorable)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Keeps I6: whatever is appended in whatever batches is read back equal, and a page is a slice
    /// of the whole that starts at a message or where it must.
    #[test]
    fn a_log_reads_back_equal_and_a_page_is_a_slice(
        batches in proptest::collection::vec(proptest::collection::vec(event(), 1..9), 0..7),
        before in any::<prop::sample::Index>(),
        limit in 1_usize..40,
    ) {
        // Arrange
        let dir = tempfile::tempdir().unwrap();
        let here = File::open(dir.path()).unwrap();
        let control = Arc::new(Control::open_inline(here, Arc::new(SystemClock)).unwrap());
        let limits = JournalLimits::default();
        let journal = NativeJournal::new(control, limits, ByteCount::ZERO);
        journal.create(header(1)).unwrap();
        // Act
        let mut written = Vec::new();
        for batch in batches {
            written.extend(
                batch.iter().map(|e| shown(e.kind.as_str(), e.time, &e.data, e.ignorable)),
            );
            let appended = journal.append(SESSION, batch, None).unwrap();
            prop_assert_eq!(appended.last.get() + 1, u64::try_from(written.len()).unwrap());
        }
        // Assert
        let end = before.index(written.len() + 1);
        let page = journal
            .page(SESSION, None, Some(Seq::new(u64::try_from(end).unwrap())), limit)
            .unwrap();
        let read: Vec<_> = page
            .events
            .iter()
            .map(|e| shown(&e.kind, e.time, &e.data, e.ignorable))
            .collect();
        let start = end - read.len();
        prop_assert!(read.len() <= limit);
        prop_assert_eq!(&read[..], &written[start..end]);
        prop_assert_eq!(page.has_more, start > 0);
        let is_message = |kind: &str| matches!(kind, "user/message" | "assistant/message");
        let at_a_message = read.first().is_some_and(|first| is_message(&first.0));
        let no_message = read.iter().all(|event| !is_message(&event.0));
        prop_assert!(start == 0 || at_a_message || (no_message && read.len() == limit));
        prop_assert!(end == 0 || !read.is_empty());
        // Nothing that might have been on the page, and starts at a message, was left out.
        let could = &written[end.saturating_sub(limit)..start];
        prop_assert!(start == 0 || no_message || could.iter().all(|event| !is_message(&event.0)));

        let audited = journal.verify(SESSION).unwrap();
        prop_assert_eq!(audited.events, u64::try_from(written.len()).unwrap());
        let mut head = record::genesis(&header(1));
        for (seq, (kind, time, data, ignorable)) in (0..).zip(&written) {
            let link = record::Link {
                seq: Seq::new(seq),
                time: *time,
                kind,
                ignorable: *ignorable,
                data,
            };
            head = record::head(&head, link);
        }
        prop_assert_eq!(audited.head, head, "the chain can be recomputed from what is exported");
    }

    #[test]
    fn any_text_is_admitted_or_refused_by_a_rule(kind in "[a-z/]{1,20}", data in ".{0,80}") {
        body::check(format!("{kind}\n{data}").as_bytes());
    }
}
