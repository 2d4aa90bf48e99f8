//! What goes on the record.

use holdfast::{
    journal::{
        EventType, NewEvent,
        record::{Link, RecordError, admit, contents, depth, head},
    },
    model::{ByteCount, Digest, JournalLimits, Seq, Timestamp},
};
use serde_json::{Value, value::RawValue};

/// An event is admitted within its bounds or refused by one of them, and its hash is its own.
///
/// The input is the event's type, a line feed, and its data.
pub fn check(data: &[u8]) {
    let Some(event) = event(data) else { return };
    let text = event.data.get();
    let limits = JournalLimits::default();
    let value: Result<Value, _> = serde_json::from_str(text);
    if let Ok(value) = &value {
        assert_eq!(depth(text), nesting(value), "{text}");
    }
    match admit(&event, &limits) {
        Ok(admitted) => {
            assert!(ByteCount::from(text.len()) <= limits.event);
            assert!(depth(text) <= limits.depth);
            assert!(admitted.references.len() <= limits.references_per_event);
            assert!(admitted.presented.len() <= limits.references_per_event);
            let again = contents(event.kind.as_str(), text, usize::MAX);
            assert_eq!(again.as_ref(), Ok(&admitted));
        }
        Err(RecordError::TooLarge { found, limit }) => assert!(found > limit),
        Err(RecordError::TooDeep(limit)) => assert!(depth(text) > limit),
        Err(RecordError::Unreadable(_)) => assert!(value.is_err(), "{text}"),
        Err(RecordError::Reference(_) | RecordError::TooMany(_)) => {
            assert!(text.contains("content") || text.contains("block") || text.contains("files"));
        }
    }
    chained(&event);
}

/// The event of an input, where it is one.
pub fn event(data: &[u8]) -> Option<NewEvent> {
    let (kind, data) = std::str::from_utf8(data).ok()?.split_once('\n')?;
    Some(NewEvent {
        kind: EventType::parse(kind).ok()?,
        time: Timestamp::from_millis(1),
        data: RawValue::from_string(data.to_owned()).ok()?,
        ignorable: false,
    })
}

fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(nesting).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn chained(event: &NewEvent) {
    let previous = Digest::of(b"before");
    let link = Link {
        seq: Seq::new(1),
        time: event.time,
        kind: event.kind.as_str(),
        ignorable: event.ignorable,
        data: event.data.get(),
    };
    let own = head(&previous, link);
    assert_eq!(own, head(&previous, link));
    let other_place = Link {
        seq: Seq::new(2),
        ..link
    };
    assert_ne!(own, head(&previous, other_place));
    assert_ne!(own, head(&own, link));
}
