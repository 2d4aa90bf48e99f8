//! A log in the layout of a DSH home as a native session: read strictly, from its first line to its
//! last.
//!
//! Promises: what a native session cannot hold is refused with its row, never left out; a torn tail
//! is refused, not cut; memory does not grow with the log. Leaves to others: the attachments' bytes
//! (`store`), whose session it becomes (`access`).

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

use std::{borrow::Cow, collections::HashSet, fs::File, io};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    EventType, JournalError, NewEvent,
    dsh::{
        DshLimits, LogName,
        lines::{End, LineFault, Lines, LogFile, Place},
        row::{Header, Row, RowFault},
    },
    record,
};
use crate::{
    beneath::Stamp,
    model::{AttachmentKind, AttachmentRef, ByteCount, LogGeneration, SessionId, Timestamp},
};

/// An open log that is to become a session.
#[derive(Debug)]
pub struct SessionLog {
    file: LogFile,
    name: LogName,
    limits: DshLimits,
}

/// What the first line of a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The session's own id.
    pub id: SessionId,
    /// When it was created.
    pub created_at: Timestamp,
    /// The directory its declared paths are relative to.
    pub cwd: Option<String>,
}

/// What a whole log comes to.
#[derive(Clone, Debug)]
pub struct LogContents {
    /// Its first line.
    pub header: LogHeader,
    /// How many events it has.
    pub events: u64,
    /// What they refer to, once per content, name and length, in order of first reference.
    pub references: Vec<AttachmentRef>,
    /// The length of its lines, newlines included.
    pub bytes: ByteCount,
}

/// The members a header may have here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HeaderMembers {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    #[serde(rename = "version")]
    _version: IgnoredAny,
    #[serde(rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "createdAt")]
    _created_at: IgnoredAny,
    #[serde(default, rename = "cwd")]
    _cwd: IgnoredAny,
    is_seeded: bool,
    #[serde(default)]
    delegation_depth: u64,
}

/// The members a row may have here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RowMembers<'a> {
    #[serde(rename = "type")]
    _kind: IgnoredAny,
    #[serde(rename = "seq")]
    _seq: IgnoredAny,
    #[serde(rename = "time")]
    _time: IgnoredAny,
    #[serde(rename = "data")]
    _data: IgnoredAny,
    #[serde(default, rename = "ignorable")]
    _ignorable: bool,
    #[serde(borrow, default)]
    surface_op: Option<Cow<'a, str>>,
}

impl SessionLog {
    /// The log in `file`, whose name is `name`.
    ///
    /// # Errors
    /// When the file cannot be examined.
    pub fn open(file: File, name: LogName) -> io::Result<Self> {
        let stamp = Stamp::of(&file)?;
        Ok(Self {
            file: LogFile { file, stamp },
            name,
            limits: DshLimits::default(),
        })
    }

    /// Reads the whole log and hands over each event, in order.
    ///
    /// # Errors
    /// [`JournalError::Refused`] with the row when it is damaged, torn, of another format, or has what
    /// a native session cannot hold; what `take` says.
    pub fn read(
        &self,
        mut take: impl FnMut(NewEvent) -> Result<(), JournalError>,
    ) -> Result<LogHeader, JournalError> {
        let mut seq = 0_u64;
        let mut header = None;
        self.lines(|line| {
            if header.is_none() {
                header = Some(self.header(line)?);
                return Ok(());
            }
            take(self.event(line, seq)?)?;
            seq = seq.saturating_add(1);
            Ok(())
        })?;
        header.ok_or_else(|| refused("the log is empty"))
    }

    /// Reads the whole log and says what it comes to.
    ///
    /// # Errors
    /// As [`SessionLog::read`].
    pub fn contents(&self) -> Result<LogContents, JournalError> {
        let mut known = HashSet::new();
        let mut references = Vec::new();
        let mut events = 0_u64;
        let most = self.limits.references;
        let header = self.read(|event| {
            let row = events.saturating_add(1);
            let contents = record::contents(event.kind.as_str(), event.data.get(), most)
                .map_err(|error| refused(format!("row {row}: {error}")))?;
            for reference in contents.references {
                let key = (reference.id, reference.name.clone(), reference.bytes);
                if known.insert((key, reference.kind == AttachmentKind::File)) {
                    references.push(reference);
                }
            }
            if references.len() > most {
                return Err(refused(format!("the log has more than {most} references")));
            }
            events = row;
            Ok(())
        })?;
        let mut bytes = ByteCount::ZERO;
        self.lines(|line| {
            let whole = ByteCount::from(line.len()).saturating_add(ByteCount::new(1));
            bytes = bytes.saturating_add(whole);
            Ok(())
        })?;
        Ok(LogContents {
            header,
            events,
            references,
            bytes,
        })
    }

    /// Hands over each line without its newline, whatever the file's encoding.
    ///
    /// # Errors
    /// [`JournalError::Refused`] when the log is damaged or torn, or moved meanwhile; what `take` says.
    pub fn lines(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let mut row = 0_u64;
        let mut lines = Lines::new(
            &self.file,
            self.name.encoding,
            Place::default(),
            self.file.stamp.len,
            &self.limits,
        )
        .map_err(|error| fault(0, error))?;
        while let Some((_, line)) = lines.next().map_err(|error| fault(row, error))? {
            take(line)?;
            row = row.saturating_add(1);
        }
        if lines.end() != Some(End::Clean) {
            return Err(refused(format!("row {row}: the log ends within it")));
        }
        let now = Stamp::of(&self.file.file).map_err(|error| fault(row, error.into()))?;
        if now != self.file.stamp {
            return Err(fault(row, LineFault::Moved));
        }
        Ok(())
    }

    fn header(&self, line: &[u8]) -> Result<LogHeader, JournalError> {
        let refuse = |why: &dyn std::fmt::Display| refused(format!("the header: {why}"));
        let native = LogGeneration::NATIVE.get();
        if self.name.version != native {
            let why = format!(
                "a log of format {} is not taken in, only {native}",
                self.name.version
            );
            return Err(refused(why));
        }
        let header =
            Header::parse(line, self.name.version, &self.limits).map_err(|why| refuse(&why))?;
        let members: HeaderMembers =
            serde_json::from_slice(line).map_err(|error| refuse(&error))?;
        if members.is_seeded || members.delegation_depth != 0 {
            return Err(refuse(&"a fork or a subagent is not taken in"));
        }
        Ok(LogHeader {
            id: header.id,
            created_at: header.created_at,
            cwd: header.cwd,
        })
    }

    fn event(&self, line: &[u8], seq: u64) -> Result<NewEvent, JournalError> {
        let row = seq.saturating_add(1);
        let refuse = |why: &dyn std::fmt::Display| refused(format!("row {row}: {why}"));
        let parsed =
            Row::parse(line, self.name.version, &self.limits).map_err(|why| match why {
                RowFault::Bad(why) | RowFault::Refused(why) => refuse(&why),
            })?;
        let members: RowMembers<'_> =
            serde_json::from_slice(line).map_err(|error| refuse(&error))?;
        if members.surface_op.is_some_and(|op| op != "append") {
            return Err(refuse(&"only surface operations that append are taken in"));
        }
        if parsed.first() != seq {
            return Err(refuse(&format!("its seq is {}, not {seq}", parsed.first())));
        }
        let event = parsed
            .events(seq, row)
            .ok()
            .and_then(|events| events.into_iter().next())
            .ok_or_else(|| refuse(&"it is no event"))?;
        Ok(NewEvent {
            kind: EventType::parse(&event.kind).map_err(|error| refuse(&error))?,
            time: event.time,
            data: event.data,
            ignorable: event.ignorable,
        })
    }
}

fn refused(why: impl Into<String>) -> JournalError {
    JournalError::Refused(why.into())
}

fn fault(row: u64, fault: LineFault) -> JournalError {
    match fault {
        LineFault::Damaged(why) => refused(format!("row {row}: {why}")),
        LineFault::Moved => refused("the log changed while it was read"),
        LineFault::Io(source) => JournalError::Io {
            action: "reading a log",
            source: Box::new(source),
        },
    }
}
