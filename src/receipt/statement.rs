use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    model::{
        AttachmentId, ByteCount, FileName, LogGeneration, MediaType, PrincipalId, ReceiptHandle,
        Seq, SessionHandle, Timestamp,
    },
    seal::SealKey,
};

/// What seals of receipts are for.
pub const KIND: &str = "holdfast-receipt/1";
const VERSION: u32 = 1;

/// One declared file, by its place in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The position in the event.
    pub index: u32,
    /// The path beneath the root, escaped so that it is safe to show.
    pub path: String,
}

/// How files of a workspace were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The name of the root they were read beneath.
    pub root: String,
    /// The resolver that led to them.
    pub resolver: String,
    /// How sure it is that the bytes were a file's content at one moment; the weakest of several.
    pub grade: String,
}

/// What is to be released: an exact copy of one declared file, or of everything in a session, and how it
/// came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The session.
    pub session: SessionHandle,
    /// The numbering of `seq`.
    pub log_generation: LogGeneration,
    /// The event that declares the file. Of everything in a session: the seq its next event would have
    /// had.
    pub seq: Seq,
    /// The declared file; none for everything in the session.
    pub item: Option<Item>,
    /// How files were read; none where there was none to read.
    pub reading: Option<Reading>,
    /// The name it is handed out under.
    pub name: FileName,
    /// The content.
    pub id: AttachmentId,
    /// Its length.
    pub bytes: ByteCount,
    /// The inert type it is labelled with.
    pub media_type: MediaType,
    /// When it was copied.
    pub pinned_at: Timestamp,
    /// Who asked for it.
    pub asked_by: PrincipalId,
}

impl Draft {
    /// The declared path beneath the root; none of everything in a session.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.item.as_ref().map(|item| item.path.as_str())
    }
}

/// What a receipt says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The receipt's name.
    pub receipt: ReceiptHandle,
    /// The installation that issued it.
    pub host: String,
    /// What was released.
    pub released: Draft,
    /// Who said yes to exactly these bytes; nobody where the session's permission did.
    pub decided_by: Option<PrincipalId>,
    /// When.
    pub issued_at: Timestamp,
}

/// A text that is no statement in its one spelling.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("not a statement of a receipt in its canonical form")]
pub struct ParseStatementError;

/// The one spelling: a JSON object without white space, members in the order of their names, whole
/// numbers below 2^53. It is what RFC 8785 makes of it too.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    asked_by: PrincipalId,
    attachment_id: AttachmentId,
    bytes: u64,
    decided_by: Option<PrincipalId>,
    grade: Option<String>,
    host: String,
    index: Option<u32>,
    issued_at: i64,
    log_generation: u32,
    media_type: MediaType,
    name: FileName,
    path: Option<String>,
    pinned_at: i64,
    receipt: ReceiptHandle,
    receipt_version: u32,
    resolver: Option<String>,
    root: Option<String>,
    seq: u64,
    session: SessionHandle,
}

impl Wire {
    fn spelled(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers have a JSON form")
    }
}

impl Statement {
    /// The statement in its one spelling: what its seal is over.
    #[must_use]
    pub fn canonical(&self) -> String {
        let of = &self.released;
        let (item, reading) = (of.item.as_ref(), of.reading.as_ref());
        let wire = Wire {
            asked_by: of.asked_by,
            attachment_id: of.id,
            bytes: of.bytes.get(),
            decided_by: self.decided_by,
            grade: reading.map(|reading| reading.grade.clone()),
            host: self.host.clone(),
            index: item.map(|item| item.index),
            issued_at: self.issued_at.as_millis(),
            log_generation: of.log_generation.get(),
            media_type: of.media_type,
            name: of.name.clone(),
            path: item.map(|item| item.path.clone()),
            pinned_at: of.pinned_at.as_millis(),
            receipt: self.receipt,
            receipt_version: VERSION,
            resolver: reading.map(|reading| reading.resolver.clone()),
            root: reading.map(|reading| reading.root.clone()),
            seq: of.seq.get(),
            session: of.session,
        };
        wire.spelled()
    }

    /// Reads a statement in its one spelling; any other spelling of the same is refused.
    ///
    /// # Errors
    /// [`ParseStatementError`].
    pub fn parse(text: &str) -> Result<Self, ParseStatementError> {
        let wire: Wire = serde_json::from_str(text).map_err(|_other| ParseStatementError)?;
        if wire.receipt_version != VERSION {
            return Err(ParseStatementError);
        }
        let item = match (wire.index, wire.path) {
            (Some(index), Some(path)) => Some(Item { index, path }),
            (None, None) => None,
            _ => return Err(ParseStatementError),
        };
        let reading = match (wire.root, wire.resolver, wire.grade) {
            (Some(root), Some(resolver), Some(grade)) => Some(Reading {
                root,
                resolver,
                grade,
            }),
            (None, None, None) if item.is_none() => None,
            _ => return Err(ParseStatementError),
        };
        let statement = Self {
            receipt: wire.receipt,
            host: wire.host,
            released: Draft {
                session: wire.session,
                log_generation: LogGeneration::new(wire.log_generation),
                seq: Seq::new(wire.seq),
                item,
                reading,
                name: wire.name,
                id: wire.attachment_id,
                bytes: ByteCount::new(wire.bytes),
                media_type: wire.media_type,
                pinned_at: Timestamp::from_millis(wire.pinned_at),
                asked_by: wire.asked_by,
            },
            decided_by: wire.decided_by,
            issued_at: Timestamp::from_millis(wire.issued_at),
        };
        (statement.canonical() == text)
            .then_some(statement)
            .ok_or(ParseStatementError)
    }
}

/// A receipt as clients are given it; what else is in it is not looked at.
#[derive(Deserialize)]
struct Shown {
    statement: serde_json::Map<String, serde_json::Value>,
    seal: String,
}

/// Reads a receipt as clients are given it, however it is spaced, and checks its seal.
///
/// # Errors
/// [`ParseStatementError`] when it is none, or `key` did not seal it.
pub fn check(text: &str, key: &SealKey) -> Result<Statement, ParseStatementError> {
    let shown: Shown = serde_json::from_str(text).map_err(|_other| ParseStatementError)?;
    // Members of a map come in the order of their names.
    let statement: std::collections::BTreeMap<_, _> = shown.statement.into_iter().collect();
    let statement = serde_json::to_string(&statement).map_err(|_other| ParseStatementError)?;
    let seal = shown
        .seal
        .strip_prefix("hmac-sha256:")
        .and_then(|digits| data_encoding::HEXLOWER.decode(digits.as_bytes()).ok())
        .ok_or(ParseStatementError)?;
    if !key.fits(KIND, statement.as_bytes(), &seal) {
        return Err(ParseStatementError);
    }
    Statement::parse(&statement)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Draft, Item, KIND, ParseStatementError, Reading, Statement, check};
    use crate::{
        model::{
            AttachmentId, ByteCount, Digest, FileName, LogGeneration, MediaType, PrincipalId,
            ReceiptHandle, Seq, SessionHandle, Timestamp,
        },
        seal::SealKey,
    };

    pub(in crate::receipt) fn draft(content: &[u8]) -> Draft {
        Draft {
            session: SessionHandle::from_random([1; 16]),
            log_generation: LogGeneration::NATIVE,
            seq: Seq::new(7),
            item: Some(Item {
                index: 0,
                path: "out/a\"b.txt".to_owned(),
            }),
            reading: Some(Reading {
                root: "work".to_owned(),
                resolver: "openat2".to_owned(),
                grade: "stamped".to_owned(),
            }),
            name: FileName::parse("a\"b.txt").unwrap(),
            id: AttachmentId::new(Digest::of(content)),
            bytes: ByteCount::from(content.len()),
            media_type: MediaType::Octets,
            pinned_at: Timestamp::from_millis(5),
            asked_by: PrincipalId::from_random([2; 16]),
        }
    }

    fn statement() -> Statement {
        Statement {
            receipt: ReceiptHandle::from_random([3; 16]),
            host: "h_0".to_owned(),
            released: draft(b"abc"),
            decided_by: None,
            issued_at: Timestamp::from_millis(6),
        }
    }

    #[test]
    fn a_statement_about_a_session_names_no_file_and_one_about_a_file_names_all_of_it() {
        let mut statement = statement();
        statement.released.item = None;
        assert_eq!(
            Statement::parse(&statement.canonical()).as_ref(),
            Ok(&statement)
        );
        statement.released.reading = None;
        let text = statement.canonical();
        assert_eq!(Statement::parse(&text).as_ref(), Ok(&statement));
        for (part, half) in [
            ("\"index\":null", "\"index\":0"),
            ("\"root\":null", "\"root\":\"work\""),
        ] {
            let half = text.replace(part, half);
            assert_eq!(Statement::parse(&half), Err(ParseStatementError), "{half}");
        }
    }

    #[test]
    fn a_statement_has_one_spelling() {
        let text = statement().canonical();
        assert_eq!(Statement::parse(&text), Ok(statement()));
        let spaced = text.replace(",\"grade\"", ", \"grade\"");
        let escaped = text.replace("out/a", "out\\/a");
        let moved = format!(
            "{{\"askedBy2\":1,{}",
            text.strip_prefix('{').unwrap_or_default()
        );
        for other in [spaced, escaped, moved, String::new()] {
            assert_eq!(
                Statement::parse(&other),
                Err(ParseStatementError),
                "{other}"
            );
        }
    }

    #[test]
    fn a_receipt_is_checked_however_it_is_spaced_and_not_when_it_was_edited() {
        let key = SealKey::new([1; 32]);
        let text = statement().canonical();
        let seal = data_encoding::HEXLOWER.encode(&key.seal(KIND, text.as_bytes()));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let receipt = serde_json::json!({
            "receipt": "any", "statement": value, "seal": format!("hmac-sha256:{seal}"),
        });
        for shown in [receipt.to_string(), format!("{receipt:#}")] {
            assert_eq!(check(&shown, &key), Ok(statement()));
            let edited = shown.replace("out/a", "out/c");
            assert_eq!(check(&edited, &key), Err(ParseStatementError));
            let other = SealKey::new([2; 32]);
            assert_eq!(check(&shown, &other), Err(ParseStatementError));
        }
    }

    #[test]
    fn members_stand_in_the_order_of_their_names() {
        let text = statement().canonical();
        let value: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text).unwrap();
        let mut names: Vec<_> = value.keys().cloned().collect();
        let mut at = 0;
        names.sort();
        for name in names {
            let member = format!("\"{name}\":");
            let found = text.find(&member).unwrap();
            assert!(found >= at, "{name}");
            at = found;
        }
    }
}
