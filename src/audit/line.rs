use serde::Serialize;

use crate::{
    model::{
        AttachmentId, FileName, PrincipalId, ReceiptHandle, SessionHandle, TicketHandle, Timestamp,
    },
    seal::{Seal, SealKey},
};

/// What seals of lines are for.
pub const KIND: &str = "holdfast-audit/1";
/// What stands between what a line says and its seal.
const SEALED: &str = ",\"mac\":\"";
const HEX: usize = 64;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The first line of a file: `prev` is the seal before it.
    Begins,
    /// A service started on the data directory.
    Started,
    /// It stopped in order.
    Stopped,
    /// The start before this line cut `bytes` off the end of the trail: half a line.
    CutOff,
    /// Lines could be written again; `times` records found no room meanwhile and are lost.
    Resumed,
    /// Content is about to be sent: `bytes` of `of`.
    Sending,
    /// All of it was handed to the connection.
    Sent,
    /// The connection ended before: so many bytes had been handed to it.
    Aborted,
    /// Somebody known was refused; `code` says why.
    Refused,
    /// So many requests of nobody known were refused in the last minute.
    RefusedUnknown,
    /// A receipt was issued.
    Released,
    /// Somebody was asked about exactly this content.
    Asked,
    /// Somebody said no.
    Rejected,
    /// A question ended without an answer.
    Lapsed,
    /// Content was taken.
    Uploaded,
    /// A ticket was made.
    TicketMade,
    /// A ticket was revoked.
    TicketRevoked,
    /// A session's log was handed out whole.
    Exported,
    /// A session was removed by its host with everything in it.
    SessionRemoved,
}

/// One thing that happened. It has no text of anybody's but a name, and never a secret or a path of the
/// host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What.
    pub event: Event,
    /// By whom, or in whose right.
    pub who: Option<PrincipalId>,
    /// In which session.
    pub session: Option<SessionHandle>,
    /// Which content.
    pub id: Option<AttachmentId>,
    /// Under which name; untrusted text.
    pub name: Option<FileName>,
    /// How many bytes it is about.
    pub bytes: Option<u64>,
    /// Of how many.
    pub of: Option<u64>,
    /// By which receipt.
    pub receipt: Option<ReceiptHandle>,
    /// By which ticket: its public id.
    pub ticket: Option<TicketHandle>,
    /// The code of a refusal, or how a question ended.
    pub code: Option<String>,
    /// How often.
    pub times: Option<u64>,
}

impl Record {
    /// One that says nothing but what happened.
    #[must_use]
    pub const fn of(event: Event) -> Self {
        Self {
            event,
            who: None,
            session: None,
            id: None,
            name: None,
            bytes: None,
            of: None,
            receipt: None,
            ticket: None,
            code: None,
            times: None,
        }
    }
}

/// Where a trail stands: its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The line's number, from 1; 0 before the first.
    pub seq: u64,
    /// Its seal.
    pub mac: Seal,
}

impl Head {
    /// Before the first line.
    pub const NONE: Self = Self {
        seq: 0,
        mac: [0; 32],
    };

    /// `SEQ:MAC`, as it is logged and kept elsewhere.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}:{}", self.seq, data_encoding::HEXLOWER.encode(&self.mac))
    }

    /// Reads what [`Head::text`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (seq, mac) = text.split_once(':')?;
        Some(Self {
            seq: seq.parse().ok()?,
            mac: mac_of(mac)?,
        })
    }
}

pub(super) fn mac_of(hex: &str) -> Option<Seal> {
    let octets = data_encoding::HEXLOWER.decode(hex.as_bytes()).ok()?;
    octets.try_into().ok()
}

/// The one spelling of a line, up to its seal.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    seq: u64,
    time: i64,
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<PrincipalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionHandle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attachment_id: Option<AttachmentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a FileName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptHandle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<TicketHandle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
}

/// Spells the next line after `head`, its line end included, and says where the trail then stands.
pub(super) fn spell(key: &SealKey, head: Head, time: Timestamp, record: &Record) -> (String, Head) {
    let seq = head.seq.saturating_add(1);
    let begins = record.event == Event::Begins;
    let wire = Wire {
        seq,
        time: time.as_millis(),
        event: record.event,
        prev: begins.then(|| data_encoding::HEXLOWER.encode(&head.mac)),
        who: record.who,
        session: record.session,
        attachment_id: record.id,
        name: record.name.as_ref(),
        bytes: record.bytes,
        of: record.of,
        receipt: record.receipt,
        ticket: record.ticket,
        code: record.code.as_deref(),
        times: record.times,
    };
    let mut text = serde_json::to_string(&wire).expect("texts and numbers have a JSON form");
    // The brace comes back after the seal.
    text.pop();
    let mac = seal(key, &head.mac, &text);
    text.push_str(SEALED);
    text.push_str(&data_encoding::HEXLOWER.encode(&mac));
    text.push_str("\"}\n");
    (text, Head { seq, mac })
}

fn seal(key: &SealKey, before: &Seal, text: &str) -> Seal {
    key.seal(KIND, &[before, text.as_bytes()].concat())
}

/// A line taken apart: what it says up to its seal, and the seal it has.
pub(super) fn split(line: &str) -> Option<(&str, Seal)> {
    let rest = line.strip_suffix("\"}")?;
    let cut = rest.len().checked_sub(HEX)?;
    let (text, mac) = rest.split_at_checked(cut)?;
    Some((text.strip_suffix(SEALED)?, mac_of(mac)?))
}

/// Whether the line follows one of this seal.
pub(super) fn follows(key: &SealKey, before: &Seal, text: &str, mac: &Seal) -> bool {
    key.fits(KIND, &[before, text.as_bytes()].concat(), mac)
}
