use std::{cmp::Ordering, fmt, ops::Range};

use super::trim_blanks;

/// The most ranges one answer is made of, after merging.
pub const MAX_RANGES: usize = 16;

/// Elements of a range set looked at before it counts as an attack and is ignored. A request head
/// of 32 KiB could carry some ten thousand.
const MAX_SPECS: usize = 256;

/// A range of bytes that lies within a representation.
///
/// Invariant: `first <= last`, and `last` is below the complete length it was selected from, so that
/// neither the length nor the end can overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// The first byte's offset.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The last byte's offset, inclusive as on the wire.
    #[must_use]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// How many bytes it spans, at least one.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// Never: an empty range is unsatisfiable, and so is not a value.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }

    /// The half-open form that readers take.
    #[must_use]
    pub const fn span(self) -> Range<u64> {
        self.first..self.last.saturating_add(1)
    }
}

/// Which bytes a `Range` field asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them, as if no range had been asked for: 200.
    Whole,
    /// One range: 206. It may span the whole representation.
    One(ByteRange),
    /// Two to [`MAX_RANGES`] ranges, ascending, apart from each other: 206 in several parts.
    Many(Vec<ByteRange>),
    /// A sound request for bytes that are not there: 416.
    Unsatisfiable,
}

/// Reads the `Range` field lines of a request against a representation of `complete` bytes.
///
/// Anything that is not a sound set of byte ranges is ignored, which gives [`Selection::Whole`]:
/// another unit, two field lines, a sign, a last position before the first, too many elements. An
/// empty representation is always given whole. Positions past 64 bits count as past the end.
///
/// # Source
/// RFC 9110 sections 14.1 and 14.2; what other servers get wrong: `docs/decisions/ranges.md`.
#[must_use]
pub fn select<'a>(lines: impl IntoIterator<Item = &'a [u8]>, complete: u64) -> Selection {
    let mut lines = lines.into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Selection::Whole;
    };
    let Some(last) = complete.checked_sub(1) else {
        return Selection::Whole;
    };
    let Some(wanted) = parse(line).and_then(|specs| resolve(&specs, last)) else {
        return Selection::Whole;
    };
    let merged = merge(wanted);
    match merged.as_slice() {
        [] => Selection::Unsatisfiable,
        [one] => Selection::One(*one),
        many if many.len() > MAX_RANGES => Selection::Whole,
        _ => Selection::Many(merged),
    }
}

/// The value of `Content-Range` for a part of a representation of `complete` bytes.
#[must_use]
pub fn content_range(range: ByteRange, complete: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "bytes {}-{}/{complete}", range.first, range.last))
}

/// The value of `Content-Range` on a 416.
///
/// A client that asks for the rest of a file it has in full learns from it that nothing is missing.
#[must_use]
pub fn unsatisfied_range(complete: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "bytes */{complete}"))
}

/// One element of a range set, as asked.
enum Spec {
    From { first: u64, last: Option<u64> },
    Suffix(u64),
}

/// The elements of a `bytes=` set, or `None` where the field is to be ignored.
fn parse(line: &[u8]) -> Option<Vec<Spec>> {
    let mut halves = trim_blanks(line).splitn(2, |&b| b == b'=');
    let (unit, set) = (halves.next()?, halves.next()?);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for element in set.split(|&b| b == b',').map(trim_blanks) {
        if element.is_empty() {
            continue; // empty list elements are to be skipped: RFC 9110 section 5.6.1.2
        }
        if specs.len() >= MAX_SPECS {
            return None;
        }
        specs.push(parse_spec(element)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn parse_spec(element: &[u8]) -> Option<Spec> {
    let dash = element.iter().position(|&b| b == b'-')?;
    let (first, rest) = element.split_at_checked(dash)?;
    let last = rest.strip_prefix(b"-")?;
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => Some(Spec::Suffix(number(last)?)),
        (false, true) => Some(Spec::From {
            first: number(first)?,
            last: None,
        }),
        (false, false) => {
            let spec = Spec::From {
                first: number(first)?,
                last: Some(number(last)?),
            };
            (compare(first, last) != Ordering::Greater).then_some(spec)
        }
    }
}

/// Digits only; past 64 bits the largest value, which lies beyond every representation.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, &digit| {
        digit.is_ascii_digit().then(|| {
            value
                .saturating_mul(10)
                .saturating_add(u64::from(digit.wrapping_sub(b'0')))
        })
    })
}

/// Compares two runs of digits by value, also where the value has no 64-bit form.
fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let (left, right) = (significant(left), significant(right));
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

fn significant(mut digits: &[u8]) -> &[u8] {
    while let [b'0', rest @ ..] = digits {
        digits = rest;
    }
    digits
}

/// The satisfiable elements as ranges that end at `last` at the latest.
fn resolve(specs: &[Spec], last: u64) -> Option<Vec<ByteRange>> {
    let complete = last.checked_add(1)?;
    let ranges = specs.iter().filter_map(|spec| match *spec {
        Spec::Suffix(0) => None,
        Spec::Suffix(len) => Some(ByteRange {
            first: complete.saturating_sub(len),
            last,
        }),
        Spec::From { first, .. } if first > last => None,
        Spec::From {
            first,
            last: wanted,
        } => Some(ByteRange {
            first,
            last: wanted.map_or(last, |wanted| wanted.min(last)),
        }),
    });
    Some(ranges.collect())
}

/// Ascending, with ranges that overlap or touch made one: no byte is sent twice.
fn merge(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable_by_key(|range| range.first);
    let mut merged: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(before) if range.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, MAX_RANGES, Selection, content_range, select, unsatisfied_range};

    const fn range(first: u64, last: u64) -> ByteRange {
        ByteRange { first, last }
    }

    fn one(first: u64, last: u64) -> Selection {
        Selection::One(range(first, last))
    }

    fn many(ranges: &[(u64, u64)]) -> Selection {
        Selection::Many(ranges.iter().map(|&(f, l)| range(f, l)).collect())
    }

    #[test]
    fn a_range_of_a_thousand_bytes_is_read_as_the_standard_says() {
        for (field, expected) in [
            ("bytes=0-0", one(0, 0)),
            ("bytes=0-499", one(0, 499)),
            ("bytes=500-", one(500, 999)),
            ("bytes=0-", one(0, 999)),
            ("bytes=-1", one(999, 999)),
            ("bytes=999-", one(999, 999)),
            ("bytes=0-99999", one(0, 999)),
            ("BYTES=1-2", one(1, 2)),
            ("bytes=0001-0002", one(1, 2)),
            ("bytes= 1-2 , ", one(1, 2)),
            ("bytes=,,1-2,,", one(1, 2)),
            // Beyond the end, or nothing asked for.
            ("bytes=1000-", Selection::Unsatisfiable),
            ("bytes=1000-2000", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=-0,1000-", Selection::Unsatisfiable),
            ("bytes=-0,0-0", one(0, 0)),
            // Several.
            ("bytes=0-0,-1", many(&[(0, 0), (999, 999)])),
            ("bytes=-1,0-0", many(&[(0, 0), (999, 999)])),
            ("bytes=0-1,2-3", one(0, 3)),
            ("bytes=0-5,3-9,20-", many(&[(0, 9), (20, 999)])),
            ("bytes=0-5,1000-", one(0, 5)),
            // Ignored.
            ("", Selection::Whole),
            ("bytes", Selection::Whole),
            ("bytes=", Selection::Whole),
            ("bytes=,", Selection::Whole),
            ("bytes=-", Selection::Whole),
            ("bytes=a-b", Selection::Whole),
            ("bytes=+1-5", Selection::Whole),
            ("bytes=1-+5", Selection::Whole),
            ("bytes=--5", Selection::Whole),
            ("bytes=5-1", Selection::Whole),
            ("bytes=0-1,5-1", Selection::Whole),
            ("bytes=1 -2", Selection::Whole),
            ("bytes=1- 2", Selection::Whole),
            ("bytes =1-2", Selection::Whole),
            ("bytes=0x1-2", Selection::Whole),
            ("bytes=1-2-3", Selection::Whole),
            ("bytes=1_0-20", Selection::Whole),
            ("bytes=\u{661}-\u{662}", Selection::Whole),
            ("items=0-1", Selection::Whole),
            ("none", Selection::Whole),
        ] {
            assert_eq!(select([field.as_bytes()], 1000), expected, "{field}");
        }
    }

    #[test]
    fn r04_positions_beyond_64_bits_neither_overflow_nor_wrap() {
        for (field, expected) in [
            ("bytes=-2000", one(0, 999)),
            ("bytes=-18446744073709551616", one(0, 999)),
            ("bytes=99999999999999999999-", Selection::Unsatisfiable),
            // Ten times a number that fits: wrapped, it would be byte 4.
            ("bytes=18446744073709551620-", Selection::Unsatisfiable),
            ("bytes=0-99999999999999999999", one(0, 999)),
            (
                "bytes=99999999999999999999-99999999999999999998",
                Selection::Whole, // the last position is before the first: not a range at all
            ),
        ] {
            assert_eq!(select([field.as_bytes()], 1000), expected, "{field}");
        }
        assert_eq!(
            select([&b"bytes=-1"[..]], u64::MAX),
            one(u64::MAX - 2 + 1, u64::MAX - 1)
        );
    }

    #[test]
    fn an_empty_file_is_given_whole_whatever_is_asked() {
        for field in ["bytes=0-", "bytes=-1", "bytes=-0", "bytes=5-6", "x"] {
            assert_eq!(select([field.as_bytes()], 0), Selection::Whole, "{field}");
        }
    }

    #[test]
    fn two_field_lines_or_too_many_ranges_give_the_whole() {
        assert_eq!(
            select([&b"bytes=0-1"[..], &b"bytes=2-3"[..]], 1000),
            Selection::Whole
        );
        assert_eq!(select([], 1000), Selection::Whole);
        let apart = |n: usize| {
            let specs: Vec<_> = (0..n).map(|i| format!("{}-{}", i * 10, i * 10)).collect();
            select([format!("bytes={}", specs.join(",")).as_bytes()], 1_000_000)
        };
        assert!(matches!(apart(MAX_RANGES), Selection::Many(ranges) if ranges.len() == MAX_RANGES));
        assert_eq!(apart(MAX_RANGES + 1), Selection::Whole);
        assert_eq!(apart(10_000), Selection::Whole);
    }

    #[test]
    fn overlapping_ranges_cost_no_byte_twice() {
        let field = format!("bytes={}", vec!["0-"; 100].join(","));
        assert_eq!(select([field.as_bytes()], 1000), one(0, 999));
    }

    #[test]
    fn r05_content_range_names_its_unit() {
        assert_eq!(content_range(range(0, 9), 100).to_string(), "bytes 0-9/100");
        assert_eq!(unsatisfied_range(100).to_string(), "bytes */100");
    }
}
