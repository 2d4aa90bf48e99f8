//! A native session as a log in the layout of a DSH home: where it goes, its first line, and a line
//! for each event.
//!
//! Promises: what is written here is read back by `dsh` as the same session with the same events; a
//! payload that spans lines comes back on one, with the same meaning. Leaves to others: making the
//! file (`cli`), reading it back (`import`).
//!
//! # Source
//! spec `DSH`, section 3, "Where", "Header", "Event rows".

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Event, JournalError, Session,
    dsh::{Encoding, LogName, project_folder, session_folder},
};
use crate::model::LogGeneration;

/// The longest name a folder can have, in bytes.
const MAX_NAME: usize = 255;

/// The log file of an exported session.
pub const LOG: LogName = LogName {
    version: LogGeneration::NATIVE.get(),
    encoding: Encoding::Plain,
};

/// Where a session's log lies below the directory of the project folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The project folder.
    pub project: String,
    /// The session's folder in it.
    pub folder: String,
    /// The log file in that.
    pub file: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HeaderLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    version: u32,
    id: &'a str,
    created_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
    is_seeded: bool,
    delegation_depth: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    seq: u64,
    time: i64,
    data: Cow<'a, RawValue>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignorable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    surface_op: Option<&'a str>,
}

/// Where the log of a session with this own id and working directory lies.
///
/// # Errors
/// [`JournalError::Refused`] when no folder can be named for it.
pub fn place(id: &str, cwd: Option<&str>) -> Result<Place, JournalError> {
    let refused = |why: &str| JournalError::Refused(why.to_owned());
    let place = Place {
        project: project_folder(cwd)
            .ok_or_else(|| refused("no project folder can be named for its directory"))?,
        folder: session_folder(id),
        file: LOG.file_name(),
    };
    if place.folder.len() > MAX_NAME || place.project.len() > MAX_NAME {
        return Err(refused("its id is too long for the name of a folder"));
    }
    Ok(place)
}

/// Writes the first line of a session's log.
pub fn write(out: &mut Vec<u8>, session: &Session) {
    put(
        out,
        &HeaderLine {
            kind: "session",
            version: LOG.version,
            id: session.id.as_str(),
            created_at: session.created_at.as_millis(),
            cwd: session.cwd.as_deref(),
            is_seeded: false,
            delegation_depth: 0,
        },
    );
}

/// Writes the line of an event that follows those written before.
pub fn append(out: &mut Vec<u8>, event: &Event) {
    let surface = matches!(
        &*event.kind,
        "user/message" | "assistant/message" | "tool/result" | "system/message"
    );
    put(
        out,
        &EventLine {
            kind: &event.kind,
            seq: event.seq.get(),
            time: event.time.as_millis(),
            data: on_one_line(&event.data),
            ignorable: event.ignorable,
            surface_op: surface.then_some("append"),
        },
    );
}

/// The payload with its line breaks as blanks. They stand between tokens: within a text JSON writes
/// them as escapes.
pub(super) fn on_one_line(data: &RawValue) -> Cow<'_, RawValue> {
    let text = data.get();
    if !text.contains(['\n', '\r']) {
        return Cow::Borrowed(data);
    }
    let line = text.replace(['\n', '\r'], " ");
    RawValue::from_string(line).map_or(Cow::Borrowed(data), Cow::Owned)
}

fn put(out: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *out, line).expect("texts and numbers have a JSON form");
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{append, place, write};
    use crate::{
        journal::{Event, Session},
        model::{LogGeneration, Seq, SessionHandle, SessionId, Timestamp},
    };

    #[test]
    fn a_session_is_written_as_its_home_would_have_it() {
        let mut out = Vec::new();
        let session = Session {
            handle: SessionHandle::from_random([1; 16]),
            id: SessionId::parse("a/b").unwrap(),
            created_at: Timestamp::from_millis(5),
            cwd: Some("/w".to_owned()),
            generation: LogGeneration::NATIVE,
            next_seq: Seq::FIRST,
        };
        write(&mut out, &session);
        let event = |seq, kind: &str, data: &str, ignorable| Event {
            seq: Seq::new(seq),
            kind: kind.to_owned(),
            time: Timestamp::from_millis(-1),
            data: RawValue::from_string(data.to_owned()).unwrap(),
            ignorable,
        };
        append(
            &mut out,
            &event(0, "turn/start", "{\"a\":\r\n [1,\n2]}", true),
        );
        append(&mut out, &event(1, "user/message", r#"{"a":"\n"}"#, false));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r#"{"type":"session","version":3,"id":"a/b","createdAt":5,"cwd":"/w","isSeeded":false,"delegationDepth":0}"#,
                "\n",
                r#"{"type":"turn/start","seq":0,"time":-1,"data":{"a":   [1, 2]},"ignorable":true}"#,
                "\n",
                r#"{"type":"user/message","seq":1,"time":-1,"data":{"a":"\n"},"surfaceOp":"append"}"#,
                "\n",
            )
        );
        let there = place("a/b", Some("/w")).unwrap();
        assert_eq!(
            (&*there.project, &*there.folder, &*there.file),
            ("--w--", "a~002Fb", "session.v3.jsonl")
        );
        assert!(place(&"长".repeat(52), None).is_err(), "260 bytes");
    }
}
