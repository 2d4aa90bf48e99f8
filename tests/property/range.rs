//! Ranges: what is asked for is what is sent.

use holdfast::{
    http::semantics::{Cache, Content, Object, Verb, plan},
    model::{ByteCount, Digest, MediaType, SaveName},
};
use http::{HeaderMap, HeaderValue, header};
use proptest::prelude::*;

#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/range.rs"]
mod body;

#[test]
fn the_corpus_of_ranges_holds() {
    super::corpus::replay("range", body::check);
}

fn position() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0_u64..3000).prop_map(|n| n.to_string()),
        1 => Just(String::new()),
        1 => Just("0".into()),
        1 => "0{0,3}[0-9]{1,30}",
        1 => any::<u64>().prop_map(|n| n.to_string()),
    ]
}

fn element() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => (position(), position()).prop_map(|(first, last)| format!("{first}-{last}")),
        1 => "[ \t]{0,2}",
        1 => "[0-9+ -]{0,6}",
    ]
}

/// Mostly sound fields, so that the rules beyond the first are reached too.
fn field() -> impl Strategy<Value = String> {
    let unit = prop_oneof![9 => Just("bytes="), 1 => Just("Bytes="), 1 => Just("items="), 1 => Just("bytes")];
    let elements = prop_oneof![
        8 => proptest::collection::vec(element(), 0..6),
        1 => proptest::collection::vec(element(), 10..40),
    ];
    (unit, elements).prop_map(|(unit, elements)| format!("{unit}{}", elements.join(",")))
}

/// The ranges of a body in several parts, read as a client reads them.
fn parts(body: &[u8], boundary: &str) -> Vec<(usize, usize, Vec<u8>)> {
    let mut parts = Vec::new();
    let mut rest = body
        .strip_prefix(format!("--{boundary}").as_bytes())
        .unwrap();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = part.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&part[..end]).unwrap();
        let range = head.split("Content-Range: bytes ").nth(1).unwrap();
        let (range, _) = range.split_once('/').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        let content = &part[end + 4..];
        parts.push((first, last, content[..=last - first].to_vec()));
        let delimiter = format!("\r\n--{boundary}");
        rest = content[last - first + 1..]
            .strip_prefix(delimiter.as_bytes())
            .unwrap();
    }
    assert_eq!(rest, b"--\r\n");
    parts
}

proptest! {
    #[test]
    fn what_is_selected_is_what_was_asked_for(
        complete in prop_oneof![0_u64..3000, any::<u64>()],
        field in field(),
    ) {
        body::check(format!("{complete}\n{field}").as_bytes());
    }

    /// Keeps I4 for ranges: each one sent equals the slice it names, and the length announced is the
    /// length sent.
    #[test]
    fn a_served_range_equals_the_slice(len in 0_usize..3000, field in field()) {
        // Arrange
        let content: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        let digest = Digest::of(&content);
        let name = SaveName::new("a");
        let object = Object {
            digest,
            len: ByteCount::from(len),
            media_type: MediaType::Octets,
            name: &name,
            cache: Cache::NoStore,
        };
        let mut request = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(&field) {
            request.insert(header::RANGE, value);
        }
        // Act
        let plan = plan(Verb::Get, &request, &object);
        // Assert
        let slice = |span: std::ops::Range<u64>| {
            let [start, end] = [span.start, span.end].map(|at| usize::try_from(at).unwrap());
            &content[start..end]
        };
        let text = |name| plan.fields.get(name).map(|value: &HeaderValue| value.to_str().unwrap());
        let sent = match &plan.content {
            Content::Nothing => unreachable!("a GET without conditions"),
            Content::Problem => {
                prop_assert_eq!(plan.status.as_u16(), 416);
                let expected = format!("bytes */{len}");
                prop_assert_eq!(text(header::CONTENT_RANGE), Some(expected.as_str()));
                return Ok(());
            }
            Content::Whole => content.clone(),
            Content::One(range) => {
                let expected = format!("bytes {}-{}/{len}", range.first(), range.last());
                prop_assert_eq!(text(header::CONTENT_RANGE), Some(expected.as_str()));
                slice(range.span()).to_vec()
            }
            Content::Parts(framed) => {
                let mut body = Vec::new();
                for part in &framed.parts {
                    body.extend_from_slice(&part.head);
                    body.extend_from_slice(slice(part.range.span()));
                }
                body.extend_from_slice(&framed.tail);
                for (first, last, given) in parts(&body, &digest.to_string()) {
                    prop_assert_eq!(&given[..], &content[first..=last]);
                }
                prop_assert!(body.len() <= len, "no dearer than the file");
                body
            }
        };
        let announced = sent.len().to_string();
        prop_assert_eq!(text(header::CONTENT_LENGTH), Some(announced.as_str()));
    }
}
