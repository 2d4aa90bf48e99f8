//! What an event is on the record: the bounds it must keep and the hash that chains it to the one
//! before.
//!
//! Promises: an event that passed [`admit`] can be stored, hashed and read back whatever its text
//! says; two different events, or one event in two places, never share a hash. Leaves to others:
//! where records are kept (`native`).

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

use thiserror::Error;

use super::{NewEvent, NewSession, Presented, references};
use crate::model::{
    AttachmentKind, AttachmentRef, ByteCount, Digest, Digester, FileName, JournalLimits,
    LogGeneration, Seq, Timestamp,
};

/// Say what a digest is about, so that none can be taken for another.
const SESSION_DOMAIN: &[u8] = b"holdfast session 1\0";
const EVENT_DOMAIN: &[u8] = b"holdfast event 1\0";
const REFERENCE_DOMAIN: &[u8] = b"holdfast reference 1\0";
const DECLARED_DOMAIN: &[u8] = b"holdfast declared 1\0";

/// Why an event cannot go on the record.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// Its text is longer than allowed.
    #[error("an event has {found}, {limit} are allowed")]
    TooLarge {
        /// Its length.
        found: ByteCount,
        /// The bound.
        limit: ByteCount,
    },
    /// Its JSON nests deeper than allowed.
    #[error("an event nests deeper than {0}")]
    TooDeep(usize),
    /// Its data refers to attachments by its type, but cannot be read as JSON values.
    #[error("an event's data cannot be read: {0}")]
    Unreadable(String),
    /// Something at a reference's place is not a reference.
    #[error("an event has a malformed reference: {0}")]
    Reference(#[from] references::Finding),
    /// It has too many references.
    #[error(transparent)]
    TooMany(#[from] references::TooMany),
}

/// What an event refers to and declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The attachments, in order of position.
    pub references: Vec<AttachmentRef>,
    /// The presented entries, each with its position in the event's `files`.
    pub presented: Vec<(u32, Presented)>,
}

/// Checks an event against the bounds and reads what it refers to.
///
/// # Errors
/// The first bound it breaks.
pub fn admit(event: &NewEvent, limits: &JournalLimits) -> Result<Contents, RecordError> {
    let data = event.data.get();
    let found = ByteCount::from(data.len());
    if found > limits.event {
        return Err(RecordError::TooLarge {
            found,
            limit: limits.event,
        });
    }
    if depth(data) > limits.depth {
        return Err(RecordError::TooDeep(limits.depth));
    }
    contents(event.kind.as_str(), data, limits.references_per_event)
}

/// Reads what the `data` of an event of type `kind` refers to and declares.
///
/// # Errors
/// [`RecordError::Unreadable`], [`RecordError::Reference`] or [`RecordError::TooMany`].
pub fn contents(kind: &str, data: &str, limit: usize) -> Result<Contents, RecordError> {
    let format = LogGeneration::NATIVE.get();
    if kind != references::PRESENTED && !references::has_positions(kind, format) {
        return Ok(Contents::default());
    }
    let data =
        serde_json::from_str(data).map_err(|error| RecordError::Unreadable(error.to_string()))?;
    let found = references::extract(kind, &data, format, limit)?;
    if let Some(finding) = found.findings.into_iter().next() {
        return Err(finding.into());
    }
    let presented = references::presented(kind, &data);
    if presented.len() > limit {
        return Err(references::TooMany { limit }.into());
    }
    Ok(Contents {
        references: found
            .references
            .into_iter()
            .map(|at| at.reference)
            .collect(),
        presented,
    })
}

/// How deep JSON text nests: 0 for a plain value, 1 for `[]`. The text has been checked to be JSON.
#[must_use]
pub fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth = depth.saturating_add(1);
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The head of a session's chain before its first event: binds the chain to the session's header.
#[must_use]
pub fn genesis(header: &NewSession) -> Digest {
    let mut digester = Digester::default();
    digester.update(SESSION_DOMAIN);
    text(&mut digester, &header.handle.to_string());
    text(&mut digester, header.id.as_str());
    text(&mut digester, &header.host.to_string());
    optional(&mut digester, header.cwd.as_deref());
    digester.update(&header.created_at.as_millis().to_be_bytes());
    digester.finish()
}

/// An event as the chain sees it.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// Its position.
    pub seq: Seq,
    /// When it happened, by its writer's clock.
    pub time: Timestamp,
    /// Its type.
    pub kind: &'a str,
    /// Whether a reader that does not know the type may pass over it.
    pub ignorable: bool,
    /// Its payload, as written.
    pub data: &'a str,
}

/// The head of the chain after `event`, which follows the head `previous`.
///
/// SHA-256 over a domain, `previous`, seq, time, ignorable, and the lengths and bytes of type and
/// data; integers are big-endian. docs/journal-format.md writes it out.
#[must_use]
pub fn head(previous: &Digest, event: Link<'_>) -> Digest {
    let mut digester = Digester::default();
    digester.update(EVENT_DOMAIN);
    digester.update(previous.as_bytes());
    digester.update(&event.seq.get().to_be_bytes());
    digester.update(&event.time.as_millis().to_be_bytes());
    digester.update(&[u8::from(event.ignorable)]);
    text(&mut digester, event.kind);
    text(&mut digester, event.data);
    digester.finish()
}

/// Binds a listed reference to the event, of hash `event`, that it was read from.
#[must_use]
pub fn reference_seal(event: &Digest, reference: &AttachmentRef) -> Digest {
    let mut digester = Digester::default();
    digester.update(REFERENCE_DOMAIN);
    digester.update(event.as_bytes());
    digester.update(reference.id.digest().as_bytes());
    digester.update(&reference.bytes.get().to_be_bytes());
    text(
        &mut digester,
        reference.name.as_ref().map_or("", FileName::as_str),
    );
    match reference.kind {
        AttachmentKind::File => digester.update(b"f"),
        AttachmentKind::Image {
            media_type,
            width,
            height,
        } => {
            digester.update(b"i");
            digester.update(&width.to_be_bytes());
            digester.update(&height.to_be_bytes());
            text(&mut digester, media_type.as_str());
        }
    }
    digester.finish()
}

/// Binds a listed path to the event, of hash `event`, that declares it at `index`.
#[must_use]
pub fn declared_seal(event: &Digest, index: u32, presented: &Presented) -> Digest {
    let mut digester = Digester::default();
    digester.update(DECLARED_DOMAIN);
    digester.update(event.as_bytes());
    digester.update(&index.to_be_bytes());
    text(&mut digester, &presented.path);
    optional(&mut digester, presented.description.as_deref());
    digester.finish()
}

fn optional(digester: &mut Digester, value: Option<&str>) {
    match value {
        None => digester.update(&[0]),
        Some(value) => {
            digester.update(&[1]);
            text(digester, value);
        }
    }
}

/// A text with its length before it, so that neighbours cannot trade bytes.
fn text(digester: &mut Digester, text: &str) {
    digester.update(&ByteCount::from(text.len()).get().to_be_bytes());
    digester.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{Link, RecordError, admit, depth, genesis, head};
    use crate::{
        journal::{EventType, NewEvent, NewSession},
        model::{
            ByteCount, Digest, JournalLimits, PrincipalId, Seq, SessionHandle, SessionId, Timestamp,
        },
    };

    fn event(kind: &str, data: &str) -> NewEvent {
        NewEvent {
            kind: EventType::parse(kind).unwrap(),
            time: Timestamp::from_millis(1),
            data: RawValue::from_string(data.to_owned()).unwrap(),
            ignorable: false,
        }
    }

    #[test]
    fn depth_counts_brackets_outside_texts() {
        for (json, expected) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{"b":1}],"c":[]}"#, 3),
            (r#"["[[[["]"#, 1),
            (r#"["\"[[[", [2]]"#, 2),
            (r#"{"\\":{"[":"]"}}"#, 2),
        ] {
            assert_eq!(depth(json), expected, "{json}");
        }
    }

    /// Keeps I11.
    #[test]
    fn an_event_past_a_bound_is_refused() {
        let limits = JournalLimits {
            event: ByteCount::new(40),
            depth: 3,
            references_per_event: 1,
            ..JournalLimits::default()
        };
        let long = format!("\"{}\"", "x".repeat(39));
        let two = r#"{"files":[{"path":"a"},{"path":"b"}]}"#;
        for (kind, data, refused) in [
            ("a/b", "[[[1]]]", false),
            ("a/b", "[[[[1]]]]", true),
            ("a/b", &long, true),
            (
                "deliverables/presented",
                r#"{"files":[{"path":"a"}]}"#,
                false,
            ),
            ("deliverables/presented", two, true),
            ("user/message", r#"{"content":[{"type":"file"}]}"#, true),
            // An unknown type may say what it likes: nothing in it is a reference.
            ("plugin/x", r#"{"content":[{"type":"file"}]}"#, false),
            // Not a text in any encoding; whoever refers to files must be readable.
            ("user/message", r#"{"content":["\ud800"]}"#, true),
        ] {
            assert_eq!(
                admit(&event(kind, data), &limits).is_err(),
                refused,
                "{kind} {data}"
            );
        }
        // Deeper than a recursive reader survives.
        let deep = "[".repeat(15_000) + &"]".repeat(15_000);
        let limits = JournalLimits::default();
        let refused = admit(&event("user/message", &deep), &limits);
        assert_eq!(refused, Err(RecordError::TooDeep(64)));
    }

    #[test]
    fn every_field_of_an_event_is_in_its_hash() {
        let previous = Digest::of(b"before");
        let link = Link {
            seq: Seq::new(1),
            time: Timestamp::from_millis(2),
            kind: "a/b",
            ignorable: false,
            data: "{}",
        };
        let base = head(&previous, link);
        let before = Digest::of(b"other");
        let moved = [
            head(&before, link),
            head(
                &previous,
                Link {
                    seq: Seq::new(2),
                    ..link
                },
            ),
            head(
                &previous,
                Link {
                    time: Timestamp::from_millis(3),
                    ..link
                },
            ),
            head(
                &previous,
                Link {
                    kind: "a/c",
                    ..link
                },
            ),
            head(
                &previous,
                Link {
                    ignorable: true,
                    ..link
                },
            ),
            head(&previous, Link { data: "[]", ..link }),
            // The border between type and data.
            head(
                &previous,
                Link {
                    kind: "a/b{",
                    data: "}",
                    ..link
                },
            ),
        ];
        for (field, other) in moved.iter().enumerate() {
            assert_ne!(*other, base, "field {field}");
        }
    }

    #[test]
    fn every_field_of_a_header_is_in_its_first_hash() {
        let header = |bits: u8, id: &str, host: u8, cwd: Option<&str>, at| NewSession {
            handle: SessionHandle::from_random([bits; 16]),
            id: SessionId::parse(id).unwrap(),
            cwd: cwd.map(str::to_owned),
            host: PrincipalId::from_random([host; 16]),
            owners: Vec::new(),
            created_at: Timestamp::from_millis(at),
        };
        let base = genesis(&header(1, "a", 1, None, 1));
        for (field, other) in [
            header(2, "a", 1, None, 1),
            header(1, "b", 1, None, 1),
            header(1, "a", 2, None, 1),
            header(1, "a", 1, Some(""), 1),
            header(1, "a", 1, None, 2),
        ]
        .iter()
        .enumerate()
        {
            assert_ne!(genesis(other), base, "field {field}");
        }
    }
}
