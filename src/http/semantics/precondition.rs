use http::{HeaderMap, header};

use super::trim_blanks;
use crate::model::Digest;

/// The strong validator of content: its SHA-256 in quotes.
///
/// It can never name other bytes, and no coding is applied on the way, so that equal tags mean equal
/// octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag(Digest);

impl EntityTag {
    /// The tag of the content with this digest.
    #[must_use]
    pub const fn of(digest: Digest) -> Self {
        Self(digest)
    }

    fn is(self, opaque: &[u8]) -> bool {
        opaque == self.0.to_string().as_bytes()
    }
}

impl std::fmt::Display for EntityTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// What the preconditions of a request say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Go on.
    Proceed,
    /// The client has it: 304 for GET and HEAD.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates `If-Match` and `If-None-Match` of a GET or HEAD against the content's tag.
///
/// Called after authorization and existence, never before. `If-Modified-Since` and
/// `If-Unmodified-Since` do not apply: our content has no modification date, and then both must be
/// ignored. A malformed `If-Match` matches nothing (412), a malformed `If-None-Match` neither (200):
/// a client never takes other bytes for its own.
///
/// # Source
/// RFC 9110 sections 13.1.1 to 13.1.4 and 13.2.2 (order).
#[must_use]
pub fn evaluate(headers: &HeaderMap, tag: EntityTag) -> Outcome {
    if headers.contains_key(header::IF_MATCH)
        && !lists(headers, &header::IF_MATCH, tag, Comparison::Strong)
    {
        return Outcome::Failed;
    }
    if lists(headers, &header::IF_NONE_MATCH, tag, Comparison::Weak) {
        return Outcome::NotModified;
    }
    Outcome::Proceed
}

/// Whether a request's `Range` may be honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfRange {
    /// No condition, or the client's part is of these very bytes.
    Honour,
    /// The client's part is of something else: it gets the whole.
    Ignore,
}

/// Evaluates `If-Range`.
///
/// One strong tag that equals ours, nothing else: a date cannot match without a modification date,
/// and a list is not what the field holds.
///
/// # Source
/// RFC 9110 section 13.1.5.
#[must_use]
pub fn if_range(headers: &HeaderMap, tag: EntityTag) -> IfRange {
    let mut lines = headers.get_all(header::IF_RANGE).iter();
    let (first, second) = (lines.next(), lines.next());
    let matches = match (first, second) {
        (None, _) => true,
        (Some(_), Some(_)) => false,
        (Some(line), None) => match next_tag(trim_blanks(line.as_bytes())) {
            Some((listed, rest)) => {
                rest.is_empty() && listed.strength == Strength::Strong && tag.is(listed.opaque)
            }
            None => false,
        },
    };
    if matches {
        IfRange::Honour
    } else {
        IfRange::Ignore
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Strength {
    Strong,
    Weak,
}

struct Listed<'a> {
    strength: Strength,
    opaque: &'a [u8],
}

/// Whether the field, over all its lines, is `*` or lists our tag.
fn lists(
    headers: &HeaderMap,
    name: &header::HeaderName,
    tag: EntityTag,
    comparison: Comparison,
) -> bool {
    let mut lines = headers.get_all(name).iter().peekable();
    let Some(first) = lines.next() else {
        return false;
    };
    if trim_blanks(first.as_bytes()) == b"*" {
        return lines.peek().is_none();
    }
    std::iter::once(first)
        .chain(lines)
        .any(|line| line_lists(line.as_bytes(), tag, comparison))
}

/// Whether one line lists our tag. What follows a malformed element is not looked at.
fn line_lists(line: &[u8], tag: EntityTag, comparison: Comparison) -> bool {
    let mut rest = line;
    loop {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let Some((listed, after)) = next_tag(rest) else {
            return false;
        };
        let after = trim_blanks(after);
        if !(after.is_empty() || after.starts_with(b",")) {
            return false;
        }
        let comparable = comparison == Comparison::Weak || listed.strength == Strength::Strong;
        if comparable && tag.is(listed.opaque) {
            return true;
        }
        rest = after;
    }
}

/// The entity tag at the start of `text`, and what follows it.
fn next_tag(text: &[u8]) -> Option<(Listed<'_>, &[u8])> {
    let (strength, quoted) = match text.strip_prefix(b"W/") {
        Some(quoted) => (Strength::Weak, quoted),
        None => (Strength::Strong, text),
    };
    let inner = quoted.strip_prefix(b"\"")?;
    let end = inner.iter().position(|&b| b == b'"')?;
    let (opaque, rest) = inner.split_at_checked(end)?;
    let sound = opaque
        .iter()
        .all(|&b| matches!(b, 0x21 | 0x23..=0x7e | 0x80..));
    sound.then_some((Listed { strength, opaque }, rest.strip_prefix(b"\"")?))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{EntityTag, IfRange, Outcome, evaluate, if_range};
    use crate::model::Digest;

    fn headers(lines: &[(&'static str, String)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn preconditions_are_evaluated_in_the_order_of_the_standard() {
        let tag = EntityTag::of(Digest::of(b"content"));
        let ours = tag.to_string();
        let weak = format!("W/{ours}");
        let date = "Sun, 06 Nov 1994 08:49:37 GMT".to_owned();
        let other = "\"other\"".to_owned();
        for (lines, expected) in [
            (vec![], Outcome::Proceed),
            (vec![("if-match", "*".to_owned())], Outcome::Proceed),
            (vec![("if-match", ours.clone())], Outcome::Proceed),
            (vec![("if-match", weak.clone())], Outcome::Failed),
            (vec![("if-match", other.clone())], Outcome::Failed),
            (vec![("if-match", String::new())], Outcome::Failed),
            (
                vec![("if-match", Digest::of(b"content").to_string())],
                Outcome::Failed,
            ),
            (
                vec![("if-match", format!("{other} , ,{ours}"))],
                Outcome::Proceed,
            ),
            (
                vec![("if-match", format!("{other}{ours}"))],
                Outcome::Failed,
            ),
            (vec![("if-match", format!("\"a,{ours}"))], Outcome::Failed),
            // A list over two lines is one list.
            (
                vec![("if-match", other.clone()), ("if-match", ours.clone())],
                Outcome::Proceed,
            ),
            (
                vec![("if-match", "*".to_owned()), ("if-match", ours.clone())],
                Outcome::Failed,
            ),
            (vec![("if-none-match", ours.clone())], Outcome::NotModified),
            (vec![("if-none-match", weak.clone())], Outcome::NotModified),
            (
                vec![("if-none-match", "*".to_owned())],
                Outcome::NotModified,
            ),
            (vec![("if-none-match", other.clone())], Outcome::Proceed),
            (
                vec![("if-none-match", "garbage".to_owned())],
                Outcome::Proceed,
            ),
            (
                vec![("if-none-match", other.clone()), ("if-none-match", weak)],
                Outcome::NotModified,
            ),
            // If-Match goes first, and dates never count.
            (
                vec![("if-match", other.clone()), ("if-none-match", ours.clone())],
                Outcome::Failed,
            ),
            (
                vec![("if-match", ours.clone()), ("if-none-match", ours)],
                Outcome::NotModified,
            ),
            (
                vec![("if-unmodified-since", date.clone())],
                Outcome::Proceed,
            ),
            (vec![("if-modified-since", date.clone())], Outcome::Proceed),
            (
                vec![("if-none-match", other), ("if-modified-since", date)],
                Outcome::Proceed,
            ),
        ] {
            assert_eq!(evaluate(&headers(&lines), tag), expected, "{lines:?}");
        }
    }

    #[test]
    fn only_our_strong_tag_lets_a_range_through() {
        let tag = EntityTag::of(Digest::of(b"content"));
        let ours = tag.to_string();
        for (lines, expected) in [
            (vec![], IfRange::Honour),
            (vec![ours.clone()], IfRange::Honour),
            (vec![format!(" {ours}\t")], IfRange::Honour),
            (vec![format!("W/{ours}")], IfRange::Ignore),
            (vec![format!("{ours}, \"x\"")], IfRange::Ignore),
            (vec!["\"x\"".to_owned()], IfRange::Ignore),
            (vec!["*".to_owned()], IfRange::Ignore),
            (vec![String::new()], IfRange::Ignore),
            (
                vec!["Sun, 06 Nov 1994 08:49:37 GMT".to_owned()],
                IfRange::Ignore,
            ),
            (vec![ours.clone(), ours.clone()], IfRange::Ignore),
        ] {
            let lines: Vec<_> = lines.into_iter().map(|line| ("if-range", line)).collect();
            assert_eq!(if_range(&headers(&lines), tag), expected, "{lines:?}");
        }
    }
}
