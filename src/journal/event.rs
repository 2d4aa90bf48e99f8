use serde_json::value::RawValue;
use thiserror::Error;

use crate::model::{Seq, Timestamp};

/// The type of an event, such as `user/message`.
///
/// Invariant: 1..=128 bytes of `a-z`, `A-Z`, `0-9`, `_`, `.`, `-` and `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Box<str>);

/// Text that is not an [`EventType`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("an event type is 1 to 128 letters, digits, `_`, `.`, `-` and `/`")]
pub struct ParseEventTypeError;

impl EventType {
    /// Takes a type as it stands.
    ///
    /// # Errors
    /// [`ParseEventTypeError`] for an empty or long text, or one with other characters.
    pub fn parse(text: &str) -> Result<Self, ParseEventTypeError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/');
        if text.is_empty() || text.len() > 128 || !text.bytes().all(plain) {
            return Err(ParseEventTypeError);
        }
        Ok(Self(text.into()))
    }

    /// The type's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An event a host hands over, before it has a seq.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its type.
    pub kind: EventType,
    /// When it happened, by the host's clock.
    pub time: Timestamp,
    /// Its payload, kept to the byte.
    pub data: Box<RawValue>,
    /// Whether a reader that does not know the type may pass over it.
    pub ignorable: bool,
}

/// An event of a log.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its position.
    pub seq: Seq,
    /// Its type; unknown ones are kept as they are.
    pub kind: String,
    /// When it happened, by its writer's clock.
    pub time: Timestamp,
    /// Its payload, as written.
    pub data: Box<RawValue>,
    /// Whether a reader that does not know the type may pass over it.
    pub ignorable: bool,
}

/// One entry of a `deliverables/presented` event: what the event says, nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    /// The path as the event has it; it may be absolute, climb, or not be a path at all.
    pub path: String,
    /// What the presenter says of it; untrusted.
    pub description: Option<String>,
}
