//! The closed list of places where an event refers to an attachment, and what an event presents.
//!
//! Promises: only the positions of `spec/dsh.md` section 3 count, and there only exactly shaped
//! references; look-alikes in text, tool arguments, `meta`, `replayState`, unknown events and extra
//! fields of `deliverables/presented` are nothing. Pure, and bounded in depth and number. Leaves to
//! others: whether the session may refer to that content (`native`), what its bytes are (`store`).

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use super::Presented;
use crate::model::{AttachmentId, AttachmentKind, AttachmentRef, ByteCount, FileName, MediaType};

/// The type of the events that declare paths.
pub const PRESENTED: &str = "deliverables/presented";

/// How deep `tool-result` blocks may nest before the rest is reported instead of read.
const MAX_NESTING: u32 = 32;

/// The largest integer a writer in JavaScript can mean exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// A reference and where in the event it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The reference.
    pub reference: AttachmentRef,
    /// The position, such as `data.content[1]`.
    pub position: String,
}

/// Something at a reference's place that is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{position}: {defect}")]
pub struct Finding {
    /// The position, such as `data.content[1]`.
    pub position: String,
    /// What is wrong there.
    pub defect: Defect,
}

/// Why a `file` or `image` block has no reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Defect {
    /// The block has no `attachment` object.
    #[error("the block has no attachment")]
    NoAttachment,
    /// The attachment has a field that its shape does not know.
    #[error("the attachment has a field that does not belong there")]
    ExtraField,
    /// `attachmentId` is not `sha256:` and 64 lower-case hexadecimal digits.
    #[error("the attachment id is malformed")]
    Id,
    /// `name` is not a plain file name.
    #[error("the attachment's name is malformed")]
    Name,
    /// `bytes` is not a whole number of bytes.
    #[error("the attachment's length is malformed")]
    Bytes,
    /// `mediaType` is not one of the four image types.
    #[error("the image's media type is not one of the four known")]
    MediaType,
    /// `width`, `height` or `originalDimensions` is malformed.
    #[error("the image's dimensions are malformed")]
    Dimensions,
    /// Blocks nest deeper than is read.
    #[error("the blocks nest too deep")]
    TooDeep,
}

/// More references in one event than the caller allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the event has more than {limit} references")]
pub struct TooMany {
    /// The bound.
    pub limit: usize,
}

/// What stands at the reference positions of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The references, in order of position; the same content may occur more than once.
    pub references: Vec<Located>,
    /// What looks like a reference by its place and is none.
    pub findings: Vec<Finding>,
}

/// Whether an event of this type can refer to attachments at all in logs of this format.
///
/// Saves parsing the data of the many events that cannot.
#[must_use]
pub fn has_positions(kind: &str, format: u32) -> bool {
    Positions::of(kind, format).is_some()
}

/// Every reference of an event's `data`, with what is malformed beside it.
///
/// `format` is the version of the log (0 to 4; later ones are read as 4); `limit` bounds references
/// and findings together.
///
/// # Errors
/// [`TooMany`] when the event has more than `limit` of them.
///
/// # Source
/// `spec/dsh.md` section 3, "Public content references".
pub fn extract(kind: &str, data: &Value, format: u32, limit: usize) -> Result<Found, TooMany> {
    let mut walk = Walk {
        found: Found::default(),
        nested_results: format <= 3,
        limit,
    };
    let Some(positions) = Positions::of(kind, format) else {
        return Ok(walk.found);
    };
    let root = Place::ROOT;
    match positions {
        Positions::Content => walk.field(data, "content", &root)?,
        Positions::Message => walk.message(data, &root)?,
        Positions::MessageAndStream => {
            walk.message(data, &root)?;
            walk.stream(data, &root)?;
        }
        Positions::Stream => walk.stream(data, &root)?,
        Positions::Chunk => walk.chunk(data, &root)?,
        Positions::Inserted => walk.inserted(data, &root)?,
        Positions::Compaction => {
            walk.field(data, "summary", &root)?;
            walk.field(data, "rawOutput", &root)?;
        }
    }
    Ok(walk.found)
}

/// The references alone, for a caller that takes no event with a malformed one.
///
/// # Errors
/// The first [`Finding`], if there is one.
pub fn references(kind: &str, data: &Value, format: u32) -> Result<Vec<AttachmentRef>, Finding> {
    let found = extract(kind, data, format, usize::MAX).unwrap_or_default();
    match found.findings.into_iter().next() {
        Some(finding) => Err(finding),
        None => Ok(found
            .references
            .into_iter()
            .map(|at| at.reference)
            .collect()),
    }
}

/// The well-formed entries an event presents, each with its position in `files`.
///
/// An entry whose `path` is not a text or is blank, or whose `description` is neither a text nor
/// absent, is left out; the positions of the others do not change. Any other field of an entry is
/// passed over: it says nothing.
#[must_use]
pub fn presented(kind: &str, data: &Value) -> Vec<(u32, Presented)> {
    let files = match data.get("files") {
        Some(Value::Array(files)) if kind == PRESENTED => files,
        _ => return Vec::new(),
    };
    (0..)
        .zip(files)
        .filter_map(|(index, entry)| Some((index, entry_of(entry)?)))
        .collect()
}

fn entry_of(entry: &Value) -> Option<Presented> {
    let path = entry.get("path")?.as_str()?;
    let description = match entry.get("description") {
        None => None,
        Some(text) => Some(text.as_str()?.to_owned()),
    };
    (!path.trim().is_empty()).then(|| Presented {
        path: path.to_owned(),
        description,
    })
}

/// Where the blocks of an event type stand.
#[derive(Clone, Copy)]
enum Positions {
    /// `data.content`
    Content,
    /// `data.message.content`
    Message,
    /// `data.message.content` and the block ends of `data.stream`
    MessageAndStream,
    /// The block ends of `data.stream`
    Stream,
    /// A block end in `data.chunk`
    Chunk,
    /// `data.inserted[].content`
    Inserted,
    /// `data.summary` and `data.rawOutput`
    Compaction,
}

impl Positions {
    fn of(kind: &str, format: u32) -> Option<Self> {
        match (kind, format) {
            ("user/message", _) | ("tool/code-dispatch", 0..=2) | ("tool/ptc-dispatch", 3..) => {
                Some(Self::Content)
            }
            ("tool/result" | "team/message/queued", _)
            | ("assistant/message", 0 | 1)
            | ("system/message", 3..)
            | ("developer/message", 4..) => Some(Self::Message),
            ("assistant/message", _) => Some(Self::MessageAndStream),
            ("assistant/attempt", 2..) => Some(Self::Stream),
            ("assistant/chunk", 0 | 1) => Some(Self::Chunk),
            ("agent/inbox/spliced", _) => Some(Self::Inserted),
            ("compaction/summary", _) => Some(Self::Compaction),
            _ => None,
        }
    }
}

/// A position in an event, as a chain of borrowed steps up to its root: costs nothing until a
/// reference or a finding is written down.
struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

impl Place<'_> {
    const ROOT: Place<'static> = Place {
        parent: None,
        step: Step::Field("data"),
    };
}

impl<'a> Place<'a> {
    fn field(&'a self, name: &'a str) -> Self {
        Self {
            parent: Some(self),
            step: Step::Field(name),
        }
    }

    fn index(&'a self, index: usize) -> Self {
        Self {
            parent: Some(self),
            step: Step::Index(index),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

struct Walk {
    found: Found,
    nested_results: bool,
    limit: usize,
}

impl Walk {
    /// The blocks in `value[name]`.
    fn field(&mut self, value: &Value, name: &str, at: &Place<'_>) -> Result<(), TooMany> {
        match value.get(name) {
            Some(blocks) => self.blocks(blocks, &at.field(name), 0),
            None => Ok(()),
        }
    }

    fn message(&mut self, data: &Value, at: &Place<'_>) -> Result<(), TooMany> {
        match data.get("message") {
            Some(message) => self.field(message, "content", &at.field("message")),
            None => Ok(()),
        }
    }

    fn inserted(&mut self, data: &Value, at: &Place<'_>) -> Result<(), TooMany> {
        let at = at.field("inserted");
        for (index, message) in items(data.get("inserted")) {
            self.field(message, "content", &at.index(index))?;
        }
        Ok(())
    }

    /// The whole blocks that end chunks of a stream carry; its packed rows hold only text.
    fn stream(&mut self, data: &Value, at: &Place<'_>) -> Result<(), TooMany> {
        let at = at.field("stream");
        for (index, row) in items(data.get("stream")) {
            if row.get("type").and_then(Value::as_str) == Some("chunk") {
                self.chunk(row, &at.index(index))?;
            }
        }
        Ok(())
    }

    fn chunk(&mut self, holder: &Value, at: &Place<'_>) -> Result<(), TooMany> {
        match holder.get("chunk") {
            Some(chunk) if chunk.get("type").and_then(Value::as_str) == Some("block-end") => {
                match chunk.get("block") {
                    Some(block) => self.block(block, &at.field("chunk").field("block"), 0),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn blocks(&mut self, blocks: &Value, at: &Place<'_>, depth: u32) -> Result<(), TooMany> {
        for (index, block) in items(Some(blocks)) {
            self.block(block, &at.index(index), depth)?;
        }
        Ok(())
    }

    fn block(&mut self, block: &Value, at: &Place<'_>, depth: u32) -> Result<(), TooMany> {
        match block.get("type").and_then(Value::as_str) {
            Some("file") => self.note(at, attachment(block).and_then(file)),
            Some("image") => self.note(at, attachment(block).and_then(image)),
            Some("tool-result") if self.nested_results => match block.get("content") {
                Some(_) if depth >= MAX_NESTING => self.note(at, Err(Defect::TooDeep)),
                Some(blocks) => self.blocks(blocks, &at.field("content"), depth.saturating_add(1)),
                None => Ok(()),
            },
            // Text, tool calls, reasoning and kinds nobody has told us of refer to nothing.
            _ => Ok(()),
        }
    }

    fn note(&mut self, at: &Place<'_>, read: Result<AttachmentRef, Defect>) -> Result<(), TooMany> {
        let noted = self
            .found
            .references
            .len()
            .saturating_add(self.found.findings.len());
        if noted >= self.limit {
            return Err(TooMany { limit: self.limit });
        }
        let position = at.to_string();
        match read {
            Ok(reference) => self.found.references.push(Located {
                reference,
                position,
            }),
            Err(defect) => self.found.findings.push(Finding { position, defect }),
        }
        Ok(())
    }
}

/// The items of an array with their positions; nothing for anything else.
fn items(value: Option<&Value>) -> impl Iterator<Item = (usize, &Value)> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
}

fn attachment(block: &Value) -> Result<&Map<String, Value>, Defect> {
    block
        .get("attachment")
        .and_then(Value::as_object)
        .ok_or(Defect::NoAttachment)
}

/// `attachmentId`, `bytes` and `name`, and nothing else. Every writer gives a name; a reader of the
/// founding documents may not rely on it.
fn file(fields: &Map<String, Value>) -> Result<AttachmentRef, Defect> {
    only(fields, &["attachmentId", "name", "bytes"])?;
    common(fields, AttachmentKind::File)
}

/// As a file, with `mediaType`, `width`, `height`, and perhaps `originalDimensions`.
fn image(fields: &Map<String, Value>) -> Result<AttachmentRef, Defect> {
    only(
        fields,
        &[
            "attachmentId",
            "name",
            "bytes",
            "mediaType",
            "width",
            "height",
            "originalDimensions",
        ],
    )?;
    let media_type = fields
        .get("mediaType")
        .and_then(Value::as_str)
        .and_then(MediaType::of_image)
        .ok_or(Defect::MediaType)?;
    if let Some(original) = fields.get("originalDimensions") {
        let original = original.as_object().ok_or(Defect::Dimensions)?;
        only(original, &["width", "height"]).map_err(|_extra| Defect::Dimensions)?;
        side(original, "width")?;
        side(original, "height")?;
    }
    common(
        fields,
        AttachmentKind::Image {
            media_type,
            width: side(fields, "width")?,
            height: side(fields, "height")?,
        },
    )
}

fn only(fields: &Map<String, Value>, known: &[&str]) -> Result<(), Defect> {
    if fields.keys().all(|key| known.contains(&key.as_str())) {
        Ok(())
    } else {
        Err(Defect::ExtraField)
    }
}

fn common(fields: &Map<String, Value>, kind: AttachmentKind) -> Result<AttachmentRef, Defect> {
    let id = fields
        .get("attachmentId")
        .and_then(Value::as_str)
        .and_then(|text| AttachmentId::parse(text).ok())
        .ok_or(Defect::Id)?;
    let name = match fields.get("name") {
        None => None,
        Some(name) => Some(
            name.as_str()
                .and_then(|text| FileName::parse(text).ok())
                .ok_or(Defect::Name)?,
        ),
    };
    let bytes = fields
        .get("bytes")
        .and_then(Value::as_u64)
        .filter(|&bytes| bytes <= MAX_SAFE_INTEGER)
        .map(ByteCount::new)
        .ok_or(Defect::Bytes)?;
    Ok(AttachmentRef {
        id,
        name,
        bytes,
        kind,
    })
}

fn side(fields: &Map<String, Value>, name: &str) -> Result<u32, Defect> {
    fields
        .get(name)
        .and_then(Value::as_u64)
        .and_then(|pixels| u32::try_from(pixels).ok())
        .filter(|&pixels| pixels > 0)
        .ok_or(Defect::Dimensions)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Defect, Finding, MAX_NESTING, TooMany, extract, presented, references};
    use crate::model::{AttachmentKind, Digest};

    fn file(content: &str, name: &str) -> Value {
        json!({"type": "file", "attachment": attachment(content, name)})
    }

    fn attachment(content: &str, name: &str) -> Value {
        json!({
            "attachmentId": format!("sha256:{}", Digest::of(content.as_bytes())),
            "name": name,
            "bytes": content.len(),
        })
    }

    fn positions(kind: &str, data: &Value, format: u32) -> Vec<String> {
        let found = extract(kind, data, format, 100).unwrap();
        assert_eq!(found.findings, [], "{kind} v{format}");
        found.references.into_iter().map(|at| at.position).collect()
    }

    #[test]
    fn each_position_of_the_closed_list_counts_in_its_formats() {
        let block = file("x", "x.txt");
        let message = json!({"message": {"content": [block]}});
        let content = json!({"content": [{"type": "text", "text": "t"}, block]});
        let end = json!({"type": "block-end", "index": 0, "block": block});
        let stream = json!({"stream": [{"type": "text-chunks", "texts": ["x"]},
            {"type": "chunk", "chunk": {"type": "block-start"}}, {"type": "chunk", "chunk": end}]});
        let in_message = "data.message.content[0]";
        for (kind, data, formats, position) in [
            ("user/message", &content, 0..=4, "data.content[1]"),
            ("system/message", &message, 3..=4, in_message),
            ("developer/message", &message, 4..=4, in_message),
            ("assistant/message", &message, 0..=4, in_message),
            ("tool/result", &message, 0..=4, in_message),
            ("team/message/queued", &message, 0..=4, in_message),
            ("tool/code-dispatch", &content, 0..=2, "data.content[1]"),
            ("tool/ptc-dispatch", &content, 3..=4, "data.content[1]"),
            (
                "agent/inbox/spliced",
                &json!({"inserted": [{}, {"content": [block]}]}),
                0..=4,
                "data.inserted[1].content[0]",
            ),
            (
                "compaction/summary",
                &json!({"summary": [block]}),
                0..=4,
                "data.summary[0]",
            ),
            (
                "compaction/summary",
                &json!({"summary": "text", "rawOutput": [block]}),
                0..=4,
                "data.rawOutput[0]",
            ),
            (
                "assistant/message",
                &stream,
                2..=4,
                "data.stream[2].chunk.block",
            ),
            (
                "assistant/attempt",
                &stream,
                2..=4,
                "data.stream[2].chunk.block",
            ),
            (
                "assistant/chunk",
                &json!({"chunk": end}),
                0..=1,
                "data.chunk.block",
            ),
        ] {
            for format in 0..=4 {
                let expected: &[&str] = if formats.contains(&format) {
                    &[position]
                } else {
                    &[]
                };
                assert_eq!(positions(kind, data, format), expected, "{kind} v{format}");
            }
        }
    }

    #[test]
    fn a_nested_tool_result_counts_up_to_format_3() {
        let nested = json!({"message": {"content": [
            {"type": "tool-result", "content": [{"type": "tool-result", "content": [file("x", "x")]}]},
        ]}});
        for format in 0..=4 {
            let expected = usize::from(format <= 3);
            assert_eq!(
                positions("tool/result", &nested, format).len(),
                expected,
                "v{format}"
            );
        }
    }

    #[test]
    fn a_look_alike_outside_the_list_is_no_reference() {
        let block = file("x", "x.txt");
        for (kind, data) in [
            (
                "plugin/thing",
                json!({"content": [block], "message": {"content": [block]}}),
            ),
            (
                "user/message",
                json!({"message": {"content": [block]}, "meta": [block]}),
            ),
            (
                "user/message",
                json!({"content": [{"type": "text", "text": block.to_string()}]}),
            ),
            ("user/message", json!({"content": block})),
            (
                "user/message",
                json!({"content": [{"type": "blob", "attachment": block}]}),
            ),
            (
                "tool/call",
                json!({"arguments": block.to_string(), "content": [block]}),
            ),
            (
                "tool/result",
                json!({"meta": {"content": [block]}, "message": {"content": []}}),
            ),
            (
                "assistant/message",
                json!({"message": {"content": [{"type": "reasoning", "replayState": [block]}]}}),
            ),
            (
                "deliverables/presented",
                json!({"files": [{"path": "a", "attachment": block}], "content": [block]}),
            ),
            ("user/message", json!(null)),
            ("user/message", json!([block])),
        ] {
            assert_eq!(positions(kind, &data, 3), [""; 0], "{kind} {data}");
        }
    }

    #[test]
    fn a_malformed_reference_is_a_finding_that_names_its_place() {
        let with = |key: &str, value: Value| {
            let mut fields = attachment("x", "x.txt");
            fields[key] = value;
            json!({"type": "file", "attachment": fields})
        };
        let image = |key: &str, value: Value| {
            let mut fields = attachment("x", "x.png");
            fields["mediaType"] = json!("image/png");
            fields["width"] = json!(1);
            fields["height"] = json!(2);
            fields[key] = value;
            json!({"type": "image", "attachment": fields})
        };
        for (block, defect) in [
            (json!({"type": "file"}), Defect::NoAttachment),
            (
                json!({"type": "file", "attachment": []}),
                Defect::NoAttachment,
            ),
            (with("mediaType", json!("image/png")), Defect::ExtraField),
            (with("attachmentId", json!("sha256:AA")), Defect::Id),
            (with("attachmentId", json!("../../../sessions")), Defect::Id),
            (with("attachmentId", json!(7)), Defect::Id),
            (with("name", json!("../../escape.txt")), Defect::Name),
            (with("name", json!(null)), Defect::Name),
            (with("bytes", json!(-1)), Defect::Bytes),
            (with("bytes", json!(1.5)), Defect::Bytes),
            (with("bytes", json!(1_u64 << 53)), Defect::Bytes),
            (with("bytes", json!("1")), Defect::Bytes),
            (
                image("mediaType", json!("image/svg+xml")),
                Defect::MediaType,
            ),
            (image("width", json!(0)), Defect::Dimensions),
            (image("height", json!(1_u64 << 32)), Defect::Dimensions),
            (
                image("originalDimensions", json!({"width": 1})),
                Defect::Dimensions,
            ),
        ] {
            let data = json!({"content": [block, file("good", "good")]});
            let found = extract("user/message", &data, 3, 100).unwrap();
            let expected = Finding {
                position: "data.content[0]".to_owned(),
                defect,
            };
            assert_eq!(found.findings, [expected], "{data}");
            assert_eq!(
                found.references.len(),
                1,
                "the good one beside it counts: {data}"
            );
            assert!(references("user/message", &data, 3).is_err());
        }
    }

    #[test]
    fn an_image_keeps_its_type_and_size() {
        let data = json!({"content": [{"type": "image", "attachment": {
            "attachmentId": format!("sha256:{}", Digest::of(b"x")), "mediaType": "image/webp",
            "width": 24, "height": 16, "bytes": 1, "originalDimensions": {"width": 48, "height": 32},
        }}]});
        let references = references("user/message", &data, 3).unwrap();
        assert_eq!(references[0].name, None);
        assert!(matches!(
            references[0].kind,
            AttachmentKind::Image {
                width: 24,
                height: 16,
                ..
            }
        ));
    }

    #[test]
    fn depth_and_number_are_bounded() {
        let mut block = file("x", "x");
        for _ in 0..=MAX_NESTING {
            block = json!({"type": "tool-result", "content": [block]});
        }
        let data = json!({"message": {"content": [block]}});
        let found = extract("tool/result", &data, 3, 100).unwrap();
        assert_eq!(found.references, []);
        assert_eq!(found.findings[0].defect, Defect::TooDeep);

        let data = json!({"content": [file("a", "a"), file("b", "b"), file("c", "c")]});
        assert!(extract("user/message", &data, 3, 3).is_ok());
        let over = extract("user/message", &data, 3, 2);
        assert_eq!(over, Err(TooMany { limit: 2 }));
    }

    #[test]
    fn a_malformed_entry_is_left_out_and_the_others_keep_their_position() {
        let data = json!({"files": [
            {"path": " "}, {"path": "../../etc/passwd", "description": "d"}, {"path": null},
            "plain", {"path": "a", "description": 7}, {"path": "/etc/hostname", "attachment": {}},
        ]});
        let entries = presented("deliverables/presented", &data);
        let shown: Vec<_> = entries
            .iter()
            .map(|(index, entry)| (*index, entry.path.as_str(), entry.description.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                (1, "../../etc/passwd", Some("d")),
                (5, "/etc/hostname", None)
            ]
        );
        assert_eq!(presented("user/message", &data), []);
    }
}
