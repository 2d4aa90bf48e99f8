//! The `Range` field.

use holdfast::http::semantics::{ByteRange, MAX_RANGES, Selection, select};

/// What is selected is what was asked for, read a second time in another way.
///
/// The input is the complete length in digits, a line feed, and the field's value.
pub fn check(data: &[u8]) {
    let (complete, field) = split(data);
    let selection = select([field], complete);
    let ranges = match &selection {
        Selection::Whole | Selection::Unsatisfiable => Vec::new(),
        Selection::One(range) => vec![*range],
        Selection::Many(ranges) => {
            assert!((2..=MAX_RANGES).contains(&ranges.len()));
            ranges.clone()
        }
    };
    assert_sound(&ranges, complete);
    let Some(asked) = Asked::read(field).filter(|_| complete > 0) else {
        return assert_eq!(selection, Selection::Whole);
    };
    if selection == Selection::Whole {
        // Only where honouring it would cost too much.
        return assert!(asked.0.len() > MAX_RANGES, "{field:?}");
    }
    let nothing = !asked
        .probes(complete)
        .iter()
        .any(|&at| asked.wants(at, complete));
    assert_eq!(nothing, selection == Selection::Unsatisfiable);
    for at in asked.probes(complete) {
        let given = ranges.iter().any(|range| range.span().contains(&at));
        assert_eq!(given, asked.wants(at, complete), "byte {at} of {complete}");
    }
}

/// The length and the field's value of an input.
pub fn split(data: &[u8]) -> (u64, &[u8]) {
    let end = data.iter().position(|&byte| byte == b'\n');
    let digits = &data[..end.unwrap_or(0)];
    let complete = digits.iter().fold(0_u64, |value, &byte| {
        value.wrapping_mul(10).wrapping_add(u64::from(byte & 0x0f))
    });
    (complete, &data[end.map_or(0, |end| end + 1)..])
}

fn assert_sound(ranges: &[ByteRange], complete: u64) {
    let mut free = 0;
    for range in ranges {
        assert!(range.first() <= range.last() && range.last() < complete);
        assert!(range.first() >= free, "apart and ascending");
        assert_eq!(range.len(), range.span().end - range.span().start);
        free = range.last().saturating_add(2);
    }
    assert!(ranges.iter().map(|range| range.len()).sum::<u64>() <= complete);
}

/// A range set as its text says, without regard to any length.
struct Asked(Vec<(Option<u128>, Option<u128>)>);

impl Asked {
    fn read(field: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\t']);
        let (unit, set) = text.split_at_checked(6)?;
        if !unit.eq_ignore_ascii_case("bytes=") {
            return None;
        }
        let mut specs = Vec::new();
        for element in set.split(',') {
            let element = element.trim_matches([' ', '\t']);
            if element.is_empty() {
                continue;
            }
            let (first, last) = element.split_once('-')?;
            let both = !first.is_empty() && !last.is_empty();
            let order = |text: &str| {
                let text = text.trim_start_matches('0');
                (text.len(), text.to_owned())
            };
            if element == "-" || (both && order(first) > order(last)) {
                return None;
            }
            let spec = (number(first), number(last));
            let unread = |text: &str, value: Option<u128>| !text.is_empty() && value.is_none();
            if unread(first, spec.0) || unread(last, spec.1) {
                return None;
            }
            specs.push(spec);
        }
        (!specs.is_empty()).then_some(Self(specs))
    }

    fn wants(&self, at: u64, complete: u64) -> bool {
        let (at, complete) = (u128::from(at), u128::from(complete));
        self.0.iter().any(|&spec| match spec {
            (Some(first), Some(last)) => first <= at && at <= last,
            (Some(first), None) => first <= at,
            (None, Some(suffix)) => at + suffix >= complete && suffix > 0,
            (None, None) => false,
        })
    }

    /// Offsets at which something may begin or end.
    fn probes(&self, complete: u64) -> Vec<u64> {
        let mut probes = vec![0, complete / 2, complete - 1];
        for &(first, last) in &self.0 {
            for edge in [first, last].into_iter().flatten() {
                for at in [edge.saturating_sub(1), edge, edge.saturating_add(1)] {
                    let from_end = u128::from(complete).saturating_sub(at);
                    probes.extend([at, from_end].map(|at| u64::try_from(at).unwrap_or(u64::MAX)));
                }
            }
        }
        probes.retain(|&at| at < complete);
        probes
    }
}

/// Digits as a number, up to a bound that lies beyond every length.
fn number(text: &str) -> Option<u128> {
    let far = u128::from(u64::MAX) * 4;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().map_or(far, |value: u128| value.min(far)))
}
