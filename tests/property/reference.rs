//! References: those planted in the right places are found, and no others.

use holdfast::{
    journal::references::extract,
    model::{AttachmentId, AttachmentKind, AttachmentRef, Digest, FileName},
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/reference.rs"]
mod body;

#[test]
fn the_corpus_of_references_holds() {
    super::corpus::replay("reference", body::check);
}

/// A block, with the references in it as a log of format 3 counts them.
type Block = (Value, Vec<AttachmentRef>);

fn file() -> impl Strategy<Value = Block> {
    ("[a-z\u{4e00}-\u{4e20} ]{1,12}", any::<u32>()).prop_map(|(name, n)| {
        let content = n.to_string();
        let reference = AttachmentRef {
            id: AttachmentId::new(Digest::of(content.as_bytes())),
            name: FileName::parse(&name).ok(),
            bytes: content.len().into(),
            kind: AttachmentKind::File,
        };
        let mut attachment = json!({"attachmentId": reference.id, "bytes": reference.bytes});
        if let Some(name) = &reference.name {
            attachment["name"] = json!(name);
        }
        (
            json!({"type": "file", "attachment": attachment}),
            vec![reference],
        )
    })
}

/// A file where nothing counts: inside text, arguments, opaque members, unknown kinds.
fn decoy() -> impl Strategy<Value = Block> {
    (file(), 0..6).prop_map(|((block, _), kind)| {
        let text = block.to_string();
        let decoy = match kind {
            0 => json!({"type": "text", "text": text}),
            1 => json!({"type": "tool-call", "arguments": text, "content": [block]}),
            2 => json!({"type": "reasoning", "replayState": [block], "content": [block]}),
            3 => json!({"type": "blob", "attachment": block["attachment"]}),
            4 => json!({"type": "FILE", "attachment": block["attachment"]}),
            _ => json!([block]),
        };
        (decoy, Vec::new())
    })
}

fn blocks() -> impl Strategy<Value = Block> {
    let leaf = prop_oneof![file(), decoy()];
    let block = leaf.prop_recursive(4, 24, 4, |inner| {
        proptest::collection::vec(inner, 0..4).prop_map(|blocks| {
            let (values, references) = all(blocks);
            (
                json!({"type": "tool-result", "content": values}),
                references,
            )
        })
    });
    proptest::collection::vec(block, 0..6).prop_map(|blocks| {
        let (values, references) = all(blocks);
        (Value::Array(values), references)
    })
}

fn all(blocks: Vec<Block>) -> (Vec<Value>, Vec<AttachmentRef>) {
    let (values, references): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
    (values, references.concat())
}

/// A type and what its data looks like around the blocks.
fn place() -> impl Strategy<Value = (&'static str, fn(Value) -> Value)> {
    let message: fn(Value) -> Value = |blocks| json!({"message": {"content": blocks}, "meta": 1});
    let content: fn(Value) -> Value = |blocks| json!({"content": blocks, "id": "m"});
    prop_oneof![
        Just(("user/message", content)),
        Just(("tool/ptc-dispatch", content)),
        Just(("system/message", message)),
        Just(("assistant/message", message)),
        Just(("tool/result", message)),
        Just(("team/message/queued", message)),
    ]
}

proptest! {
    /// Keeps I1: what is planted is found, whole and in order; a decoy never is.
    #[test]
    fn what_is_planted_is_found_and_nothing_else(
        (kind, around) in place(),
        (blocks, planted) in blocks(),
    ) {
        let data = around(blocks);
        let found = extract(kind, &data, 3, 1000).unwrap();
        let references: Vec<_> = found.references.into_iter().map(|at| at.reference).collect();
        prop_assert_eq!(references, planted);
        prop_assert_eq!(found.findings, []);
        body::check(format!("3{kind}\n{data}").as_bytes());
    }

    #[test]
    fn any_json_is_read_without_a_crash(
        format in 0..10_u32,
        kind in "(user/message|assistant/message|assistant/chunk|tool/result|agent/inbox/spliced|compaction/summary|deliverables/presented|[a-z/]{1,9})",
        data in ".{0,60}",
    ) {
        body::check(format!("{format}{kind}\n{data}").as_bytes());
    }
}
