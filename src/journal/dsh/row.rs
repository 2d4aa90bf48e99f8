//! The header and the rows of a log: one line, one meaning, or what is wrong with it.
//!
//! # Source
//! spec `DSH`, section 3, "Header", "Event rows".

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::limits::DshLimits;
use crate::{
    journal::Event,
    model::{Seq, SessionId, Timestamp},
};

/// The newest format that is understood.
pub(crate) const NEWEST: u32 = 4;
/// The last format in which runs of chunks are packed into one row.
const LAST_PACKED: u32 = 1;
/// The most events one packed row may stand for.
const MAX_RUN: usize = 100_000;
/// The largest number a double holds exactly; DSH's numbers stay below.
const SAFE: i64 = (1 << 53) - 1;

/// Event types and the first format that has them. An older log that carries one, and does not mark
/// it as one to pass over, was not written by what its header says.
const SINCE: [(&str, u32); 5] = [
    ("assistant/attempt", 2),
    ("deliverables/presented", 3),
    ("system/message", 3),
    ("tool/ptc-dispatch", 3),
    ("developer/message", 4),
];

/// A log's first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) id: SessionId,
    pub(crate) created_at: Timestamp,
    pub(crate) cwd: Option<String>,
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RowFault {
    /// It is no row. After the last turn it ends the log; before, it is damage.
    Bad(String),
    /// It may be a row, but is not one that is read here: the log is refused.
    Refused(String),
}

/// A line that is a row.
#[derive(Debug)]
pub(crate) enum Row<'a> {
    /// One event.
    One(One<'a>),
    /// A run of chunk events.
    Run(Run<'a>),
}

/// A row of one event.
#[derive(Debug)]
pub(crate) struct One<'a> {
    pub(crate) seq: u64,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) data: &'a RawValue,
    time: i64,
    ignorable: bool,
}

/// A row that stands for several chunk events.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    seq: u64,
    time: i64,
    kind: RunKind<'a>,
    data: RunData<'a>,
}

#[derive(Debug)]
enum RunKind<'a> {
    Text,
    Reasoning,
    ToolCall {
        id: &'a RawValue,
        name: Option<&'a RawValue>,
    },
}

#[derive(Debug, Deserialize)]
struct RunData<'a> {
    #[serde(borrow)]
    turn: &'a RawValue,
    #[serde(borrow)]
    step: &'a RawValue,
    #[serde(borrow)]
    index: &'a RawValue,
    dt: Bounded<i64>,
    #[serde(borrow)]
    texts: Option<Bounded<&'a RawValue>>,
    #[serde(borrow)]
    args: Option<Bounded<&'a RawValue>>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawHeader<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    version: u32,
    id: String,
    #[serde(rename = "createdAt")]
    created_at: i64,
    cwd: Option<String>,
}

#[derive(Deserialize)]
struct RawRow<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    seq: Option<u64>,
    time: Option<i64>,
    seq0: Option<u64>,
    time0: Option<i64>,
    // `Option` would take a `null` for an absence.
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(default)]
    ignorable: bool,
}

impl Header {
    /// Reads the first line of a log whose name says `version`.
    pub(crate) fn parse(line: &[u8], version: u32, limits: &DshLimits) -> Result<Self, String> {
        check_depth(line, limits)?;
        let raw: RawHeader<'_> =
            serde_json::from_slice(line).map_err(|error| format!("it is no header: {error}"))?;
        if raw.kind != "session" {
            return Err(format!(
                "its type is {:?}, not \"session\"",
                shorten(&raw.kind)
            ));
        }
        if raw.version != version {
            return Err(format!(
                "it says format {}, the name of the file {version}",
                raw.version
            ));
        }
        if version > NEWEST {
            return Err(format!("format {version} is newer than {NEWEST}"));
        }
        Ok(Self {
            version,
            id: SessionId::parse(&raw.id).map_err(|error| format!("its id: {error}"))?,
            created_at: Timestamp::from_millis(raw.created_at),
            cwd: raw.cwd,
        })
    }
}

impl<'a> Row<'a> {
    /// Reads a line of a log of this format.
    pub(crate) fn parse(line: &'a [u8], format: u32, limits: &DshLimits) -> Result<Self, RowFault> {
        check_depth(line, limits).map_err(RowFault::Refused)?;
        let raw: RawRow<'a> = serde_json::from_slice(line).map_err(|e| bad(&e))?;
        let data = raw.data.ok_or_else(|| bad(&"it has no data"))?;
        let run = match &*raw.kind {
            kind @ ("text-chunks" | "reasoning-chunks" | "tool-call-chunks")
                if format <= LAST_PACKED =>
            {
                Some(kind)
            }
            _ => None,
        };
        if let Some(kind) = run {
            let seq = raw.seq0.ok_or_else(|| bad(&"it has no seq0"))?;
            let time = raw.time0.ok_or_else(|| bad(&"it has no time0"))?;
            return Run::parse(seq, time, kind, data).map(Self::Run);
        }
        let seq = raw.seq.ok_or_else(|| bad(&"it has no seq"))?;
        let time = raw.time.ok_or_else(|| bad(&"it has no time"))?;
        if !is_safe(time) {
            return Err(bad(&"its time is out of range"));
        }
        if raw.kind.is_empty() || raw.kind.len() > 256 {
            return Err(bad(&"its type is empty or long"));
        }
        let since = SINCE.iter().find(|(kind, _)| *kind == raw.kind);
        if let Some((kind, since)) = since
            && *since > format
            && !raw.ignorable
        {
            return Err(RowFault::Refused(format!(
                "format {format} has no {kind}, and it is not ignorable"
            )));
        }
        Ok(Self::One(One {
            seq,
            kind: raw.kind,
            data,
            time,
            ignorable: raw.ignorable,
        }))
    }

    /// The seq of its first event.
    pub(crate) fn first(&self) -> u64 {
        match self {
            Self::One(one) => one.seq,
            Self::Run(run) => run.seq,
        }
    }

    /// How many events it stands for, at least one.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Run(run) => u64::try_from(run.members().len()).unwrap_or(u64::MAX),
        }
    }

    /// Its events with a seq in `from..to`, in order.
    pub(crate) fn events(&self, from: u64, to: u64) -> Result<Vec<Event>, RowFault> {
        match self {
            Self::One(one) if (from..to).contains(&one.seq) => Ok(vec![Event {
                seq: Seq::new(one.seq),
                kind: one.kind.clone().into_owned(),
                time: Timestamp::from_millis(one.time),
                data: one.data.to_owned(),
                ignorable: one.ignorable,
            }]),
            Self::One(_) => Ok(Vec::new()),
            Self::Run(run) => run.events(from, to),
        }
    }
}

impl<'a> Run<'a> {
    fn parse(seq: u64, time: i64, kind: &str, data: &'a RawValue) -> Result<Self, RowFault> {
        let data: RunData<'a> = serde_json::from_str(data.get()).map_err(|e| bad(&e))?;
        let kind = match kind {
            "text-chunks" => RunKind::Text,
            "reasoning-chunks" => RunKind::Reasoning,
            _ => RunKind::ToolCall {
                id: data.id.ok_or_else(|| bad(&"it has no id"))?,
                name: data.name,
            },
        };
        let run = Self {
            seq,
            time,
            kind,
            data,
        };
        let numbers = [run.data.turn, run.data.step, run.data.index];
        let mut texts: Vec<&RawValue> = run.members().to_vec();
        if let RunKind::ToolCall { id, name } = run.kind {
            texts.push(id);
            texts.extend(name);
        }
        if !numbers.iter().all(|value| is_number(value)) || !texts.iter().all(|v| is_text(v)) {
            return Err(bad(&"a member is of the wrong kind"));
        }
        let gaps = run.data.dt.0.len();
        if gaps.checked_add(1) != Some(run.members().len()) {
            return Err(bad(&format!(
                "{gaps} gaps do not fit {} chunks",
                run.members().len()
            )));
        }
        let mut time = run.time;
        let mut times = run.data.dt.0.iter();
        while is_safe(time) {
            match times.next() {
                Some(gap) => time = time.saturating_add(*gap),
                None => return Ok(run),
            }
        }
        Err(bad(&"a time is out of range"))
    }

    fn members(&self) -> &[&'a RawValue] {
        let members = match self.kind {
            RunKind::Text | RunKind::Reasoning => &self.data.texts,
            RunKind::ToolCall { .. } => &self.data.args,
        };
        members.as_ref().map_or(&[], |members| &members.0)
    }

    fn events(&self, from: u64, to: u64) -> Result<Vec<Event>, RowFault> {
        let mut events = Vec::new();
        let mut seq = self.seq;
        let mut time = self.time;
        let gaps = self.data.dt.0.iter().copied().chain([0]);
        for (member, gap) in self.members().iter().zip(gaps) {
            if (from..to).contains(&seq) {
                let data = RawValue::from_string(self.data_of(member)).map_err(|e| bad(&e))?;
                events.push(Event {
                    seq: Seq::new(seq),
                    kind: "assistant/chunk".to_owned(),
                    time: Timestamp::from_millis(time),
                    data,
                    ignorable: false,
                });
            }
            seq = seq.saturating_add(1);
            time = time.saturating_add(gap);
        }
        Ok(events)
    }

    /// The data of the event this member stands for.
    fn data_of(&self, member: &RawValue) -> String {
        let RunData {
            turn, step, index, ..
        } = &self.data;
        let chunk = match self.kind {
            RunKind::Text => format!(r#""text-delta","index":{index},"text":{member}"#),
            RunKind::Reasoning => format!(r#""reasoning-delta","index":{index},"text":{member}"#),
            RunKind::ToolCall { id, name } => {
                let name = name.map_or_else(String::new, |name| format!(r#""name":{name},"#));
                format!(
                    r#""tool-call-delta","index":{index},"id":{id},{name}"argumentsDelta":{member}"#
                )
            }
        };
        format!(r#"{{"turn":{turn},"step":{step},"chunk":{{"type":{chunk}}}}}"#)
    }
}

/// Whether a line that is read only for this is a row that ends a turn.
pub(crate) fn ends_turn(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    serde_json::from_slice::<Kind<'_>>(line).is_ok_and(|row| row.kind == "turn/end")
}

/// Refuses JSON that nests deeper than the bound, before anything recurses into it.
fn check_depth(line: &[u8], limits: &DshLimits) -> Result<(), String> {
    let mut depth = 0_usize;
    let mut in_text = false;
    let mut escaped = false;
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth = depth.saturating_add(1);
                if depth > limits.depth {
                    return Err(format!("it nests deeper than {}", limits.depth));
                }
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn bad(why: &dyn std::fmt::Display) -> RowFault {
    RowFault::Bad(why.to_string())
}

fn is_safe(number: i64) -> bool {
    (-SAFE..=SAFE).contains(&number)
}

fn is_number(value: &RawValue) -> bool {
    value
        .get()
        .starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

fn is_text(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

/// At most the first few characters of foreign text, for a message.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A list of at most [`MAX_RUN`] items: what is longer is refused while it is read.
#[derive(Debug)]
struct Bounded<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Bounded<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == MAX_RUN {
                        return Err(A::Error::custom("a row of too many chunks"));
                    }
                    items.push(item);
                }
                Ok(Bounded(items))
            }
        }
        deserializer.deserialize_seq(Items(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::{Header, Row, RowFault, ends_turn};
    use crate::{journal::dsh::limits::DshLimits, model::Seq};

    fn parse(line: &str, format: u32) -> Result<Row<'_>, RowFault> {
        Row::parse(line.as_bytes(), format, &DshLimits::default())
    }

    #[test]
    fn a_packed_row_stands_for_the_events_it_was_made_of() {
        let rows = [
            (
                r#"{"type":"text-chunks","seq0":17,"time0":100,"data":{"turn":1,"step":2,"index":3,"dt":[5,-7],"texts":["好","\"","x"]}}"#,
                [
                    r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":3,"text":"好"}}"#,
                    r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":3,"text":"\""}}"#,
                    r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":3,"text":"x"}}"#,
                ],
            ),
            (
                r#"{"type":"tool-call-chunks","seq0":17,"time0":100,"data":{"turn":1,"step":2,"index":3,"dt":[5,-7],"id":"c","name":"b","args":["{","a","}"]}}"#,
                [
                    r#"{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":3,"id":"c","name":"b","argumentsDelta":"{"}}"#,
                    r#"{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":3,"id":"c","name":"b","argumentsDelta":"a"}}"#,
                    r#"{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":3,"id":"c","name":"b","argumentsDelta":"}"}}"#,
                ],
            ),
        ];
        for (line, expected) in rows {
            let row = parse(line, 1).unwrap();
            assert_eq!((row.first(), row.count()), (17, 3));
            let events = row.events(0, 100).unwrap();
            let data: Vec<_> = events.iter().map(|event| event.data.get()).collect();
            assert_eq!(data, expected);
            let times: Vec<_> = events.iter().map(|event| event.time.as_millis()).collect();
            assert_eq!(times, [100, 105, 98]);
            let some = row.events(18, 19).unwrap();
            assert_eq!(some.len(), 1);
            assert_eq!(some[0].seq, Seq::new(18));
            // From format 2 on there are no such rows.
            assert!(matches!(parse(line, 2), Err(RowFault::Bad(_))));
        }
    }

    #[test]
    fn a_line_that_is_no_row_says_why() {
        for (line, why) in [
            ("", "EOF"),
            ("{oops}", "key must be a string"),
            ("[]", "invalid length"),
            (r#"{"type":"x","seq":1,"time":1}"#, "it has no data"),
            (r#"{"type":"x","time":1,"data":{}}"#, "it has no seq"),
            (
                r#"{"type":"x","seq":-1,"time":1,"data":{}}"#,
                "invalid value",
            ),
            (
                r#"{"type":"x","seq":1,"time":9007199254740992,"data":{}}"#,
                "out of range",
            ),
            (r#"{"type":"","seq":1,"time":1,"data":{}}"#, "empty or long"),
            (
                r#"{"type":"text-chunks","seq0":1,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["a","b"]}}"#,
                "0 gaps do not fit 2 chunks",
            ),
            (
                r#"{"type":"text-chunks","seq0":1,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"args":["a"]}}"#,
                "0 gaps do not fit 0 chunks",
            ),
            (
                r#"{"type":"text-chunks","seq0":1,"time0":1,"data":{"turn":"1","step":1,"index":0,"dt":[],"texts":["a"]}}"#,
                "wrong kind",
            ),
            (
                r#"{"type":"text-chunks","seq0":1,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[1],"texts":["a",2]}}"#,
                "wrong kind",
            ),
            (
                r#"{"type":"text-chunks","seq0":1,"time0":9007199254740991,"data":{"turn":1,"step":1,"index":0,"dt":[1],"texts":["a","b"]}}"#,
                "out of range",
            ),
        ] {
            let fault = parse(line, 0).unwrap_err();
            assert!(
                matches!(&fault, RowFault::Bad(text) if text.contains(why)),
                "{line}: {fault:?}"
            );
        }
        assert!(matches!(
            Row::parse(
                b"{\"type\":\"\xff\",\"seq\":1,\"time\":1,\"data\":{}}",
                0,
                &DshLimits::default()
            ),
            Err(RowFault::Bad(_))
        ));
        assert!(
            parse(
                r#"{"type":"x","seq":1,"time":-5,"data":null,"more":[1]}"#,
                0
            )
            .is_ok()
        );
    }

    #[test]
    fn an_event_of_a_later_format_is_refused_unless_it_may_be_passed_over() {
        let event = |ignorable| {
            format!(
                r#"{{"type":"deliverables/presented","seq":46,"time":1,"data":{{}},"ignorable":{ignorable}}}"#
            )
        };
        assert!(matches!(parse(&event(false), 0), Err(RowFault::Refused(_))));
        assert!(parse(&event(true), 0).is_ok());
        assert!(parse(&event(false), 3).is_ok());
    }

    /// Keeps I11.
    #[test]
    fn json_that_nests_too_deep_is_refused_not_recursed_into() {
        let deep = |n: usize| {
            let nest = format!("{}{}", "[".repeat(n), "]".repeat(n));
            format!(r#"{{"type":"x","seq":1,"time":1,"data":{nest}}}"#)
        };
        assert!(parse(&deep(99), 0).is_ok());
        assert!(matches!(parse(&deep(100), 0), Err(RowFault::Refused(_))));
        assert!(matches!(
            parse(&deep(1_000_000), 0),
            Err(RowFault::Refused(_))
        ));
        let brackets =
            r#"{"type":"x","seq":1,"time":1,"data":"[[\"[[["}"#.replace("[[", &"[".repeat(500));
        assert!(parse(&brackets, 0).is_ok(), "brackets in text do not nest");
    }

    #[test]
    fn a_header_is_of_the_format_its_file_is_named_for() {
        let limits = DshLimits::default();
        let line = br#"{"type":"session","version":3,"id":"a/b","createdAt":5,"cwd":"/w","isSeeded":false,"more":{}}"#;
        let header = Header::parse(line, 3, &limits).unwrap();
        assert_eq!(
            (header.id.as_str(), header.cwd.as_deref()),
            ("a/b", Some("/w"))
        );
        for (line, version, why) in [
            (&line[..], 2, "it says format 3"),
            (
                br#"{"type":"session","version":5,"id":"a","createdAt":5}"#,
                5,
                "newer than 4",
            ),
            (
                br#"{"type":"x","version":3,"id":"a","createdAt":5}"#,
                3,
                "its type is",
            ),
            (
                br#"{"type":"session","version":3,"id":"","createdAt":5}"#,
                3,
                "its id",
            ),
            (
                br#"{"type":"session","version":3,"id":"a\u0000","createdAt":5}"#,
                3,
                "its id",
            ),
            (
                br#"{"type":"session","version":3,"id":"\ud800","createdAt":5}"#,
                3,
                "no header",
            ),
            (br"", 3, "no header"),
        ] {
            let error = Header::parse(line, version, &limits).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_end_of_a_turn_is_found_in_any_row() {
        assert!(ends_turn(br#"{"seq":9,"type":"turn/end","data":{}}"#));
        assert!(!ends_turn(
            br#"{"type":"turn/start","data":{"type":"turn/end"}}"#
        ));
        assert!(!ends_turn(b"turn/end"));
    }
}
