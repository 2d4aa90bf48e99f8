//! What an event refers to.

use holdfast::{
    journal::references::{Found, extract, has_positions, presented},
    model::{AttachmentKind, AttachmentRef, FileName},
};
use serde_json::{Value, json};

const MOST: usize = 1 << 20;

/// Whatever is found stands where it is said to, is all there, and is found nowhere else.
///
/// The input is the log's format in one digit, the event's type, a line feed, and its data.
pub fn check(data: &[u8]) {
    let Some((format, kind, data)) = parts(data) else {
        return;
    };
    let Ok(data) = serde_json::from_str::<Value>(data) else {
        return;
    };
    let found = extract(kind, &data, format, MOST).expect("no text has that many");
    for at in &found.references {
        let block = resolve(&data, &at.position).expect("it stands where it is said to");
        assert!(says(block, &at.reference), "{block} {:?}", at.reference);
    }
    for finding in &found.findings {
        let block = resolve(&data, &finding.position).expect("it stands where it is said to");
        assert!(block.get("type").is_some_and(Value::is_string), "{block}");
    }
    let count = found.references.len() + found.findings.len();
    assert_eq!(extract(kind, &data, format, count).as_ref(), Ok(&found));
    if count > 0 {
        assert!(has_positions(kind, format));
        assert!(extract(kind, &data, format, count - 1).is_err());
    }
    for (index, entry) in presented(kind, &data) {
        let written = &data["files"][usize::try_from(index).expect("an index")];
        assert_eq!(written["path"], entry.path.as_str());
        assert!(!entry.path.trim().is_empty());
    }
    let nothing = Ok(Found::default());
    let text = data.to_string();
    // The same content where nothing refers.
    for decoy in [
        json!({"meta": data}),
        json!({"content": [{"type": "text", "text": text}]}),
        json!({"message": {"content": [{"type": "tool-call", "arguments": text}]}}),
        json!({"files": [{"path": "a", "content": data}]}),
    ] {
        assert_eq!(
            extract(kind, &decoy, format, MOST),
            nothing,
            "{kind} {decoy}"
        );
    }
    let unknown = format!("plugin/{kind}");
    assert_eq!(extract(&unknown, &data, format, MOST), nothing);
}

/// Format, type and data of an input.
pub fn parts(data: &[u8]) -> Option<(u32, &str, &str)> {
    let (head, data) = std::str::from_utf8(data).ok()?.split_once('\n')?;
    let mut kind = head.chars();
    let format = kind.next()?.to_digit(10)?;
    Some((format, kind.as_str(), data))
}

/// The value at a position such as `data.content[1]`.
fn resolve<'a>(data: &'a Value, position: &str) -> Option<&'a Value> {
    let mut value = data;
    for step in position.strip_prefix("data")?.split(['.', '[']).skip(1) {
        value = match step.strip_suffix(']') {
            Some(index) => value.get(index.parse::<usize>().ok()?)?,
            None => value.get(step)?,
        };
    }
    Some(value)
}

/// Whether the block says what the reference does.
fn says(block: &Value, reference: &AttachmentRef) -> bool {
    let written = &block["attachment"];
    let kind = match reference.kind {
        AttachmentKind::File => "file",
        AttachmentKind::Image {
            media_type,
            width,
            height,
        } => {
            assert_eq!(written["mediaType"], media_type.as_str());
            assert_eq!(
                (&written["width"], &written["height"]),
                (&json!(width), &json!(height))
            );
            "image"
        }
    };
    block["type"] == kind
        && written["attachmentId"] == reference.id.to_string()
        && written["bytes"] == reference.bytes.get()
        && written.get("name").and_then(Value::as_str)
            == reference.name.as_ref().map(FileName::as_str)
}
