//! What the files of an arena contain: every 32 bytes say which file and which state of it they
//! come from, and all states of all files have equal lengths, so that only content can tell.

#![forbid(unsafe_code)]

/// Bytes in one line; every content is a whole number of lines.
pub const LINE: usize = 32;

/// Which file, or which state of a file, some bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The file the subject is asked for.
    Inside,
    /// The same file after somebody rewrote it.
    Rewritten,
    /// A file that is never linked beneath the root.
    Outside,
    /// A file from outside that was renamed over the inside name: inside from then on.
    Moved,
    /// A file from outside that got a second name inside.
    Linked,
    /// The file of the same name in a tree that took the root's name.
    OtherRoot,
}

impl Mark {
    const ALL: [Self; 6] = [
        Self::Inside,
        Self::Rewritten,
        Self::Outside,
        Self::Moved,
        Self::Linked,
        Self::OtherRoot,
    ];

    fn tag(self) -> &'static str {
        match self {
            Self::Inside => "IN_",
            Self::Rewritten => "NEW",
            Self::Outside => "OUT",
            Self::Moved => "MOV",
            Self::Linked => "LNK",
            Self::OtherRoot => "ROT",
        }
    }
}

/// One run's contents: the nonce keeps answers from an earlier run from counting in this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    nonce: u64,
}

impl Contents {
    /// Contents recognisable by `nonce` (its low 48 bits).
    #[must_use]
    pub fn new(nonce: u64) -> Self {
        Self {
            nonce: nonce & 0xFFFF_FFFF_FFFF,
        }
    }

    /// `len` bytes of `mark` at its first state; `len` is rounded up to whole lines.
    #[must_use]
    pub fn bytes(self, mark: Mark, len: usize) -> Vec<u8> {
        self.generation(mark, 0, 0, len.div_ceil(LINE))
    }

    /// Lines `from..from + lines` of `mark` as written in its `generation`th pass.
    #[must_use]
    pub fn generation(self, mark: Mark, generation: u32, from: usize, lines: usize) -> Vec<u8> {
        let mut line = [b' '; LINE];
        let (tag, rest) = line.split_at_mut(4);
        let (nonce, rest) = rest.split_at_mut(13);
        let (number, rest) = rest.split_at_mut(7);
        tag[..3].copy_from_slice(mark.tag().as_bytes());
        write_hex(&mut nonce[..12], self.nonce);
        write_hex(&mut rest[..7], u64::from(generation));
        rest[7] = b'\n';
        write_hex(&mut number[..6], from as u64);
        let mut bytes = Vec::with_capacity(lines.saturating_mul(LINE));
        for _ in 0..lines {
            bytes.extend_from_slice(&line);
            increment_hex(&mut line[NUMBER]);
        }
        bytes
    }

    /// The marks of this run that occur anywhere in `answer`, in no order.
    #[must_use]
    pub fn marks_in(self, answer: &[u8]) -> Vec<Mark> {
        let mut nonce = [b' '; 13];
        write_hex(&mut nonce[1..], self.nonce);
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(next) = find(answer, &nonce, at) {
            let tag = next
                .checked_sub(3)
                .and_then(|start| answer.get(start..next));
            let mark = Mark::ALL
                .into_iter()
                .find(|mark| tag == Some(mark.tag().as_bytes()));
            if let Some(mark) = mark
                && !found.contains(&mark)
            {
                found.push(mark);
            }
            // In a whole line the next nonce is exactly one line on; `find` looks there first.
            at = next + nonce.len();
        }
        found
    }

    /// The `(line, generation)` of each whole line of `mark` in `answer`, or `None` where the
    /// answer is not made of whole lines of it.
    #[must_use]
    pub fn parse(self, mark: Mark, answer: &[u8]) -> Option<Vec<(usize, u32)>> {
        let token = self.token(mark);
        let (lines, rest) = answer.as_chunks::<LINE>();
        if !rest.is_empty() {
            return None;
        }
        lines
            .iter()
            .map(|line| {
                let fields = line.strip_prefix(token.as_slice())?.strip_suffix(b"\n")?;
                let text = std::str::from_utf8(fields).ok()?;
                let (number, generation) = text.trim_start().split_once(' ')?;
                Some((
                    usize::from_str_radix(number, 16).ok()?,
                    u32::from_str_radix(generation, 16).ok()?,
                ))
            })
            .collect()
    }

    fn token(self, mark: Mark) -> Vec<u8> {
        format!("{} {:012x}", mark.tag(), self.nonce).into_bytes()
    }
}

/// Where the line number stands in a line.
const NUMBER: std::ops::Range<usize> = 17..23;

/// Writes the low digits of `value`.
fn write_hex(digits: &mut [u8], mut value: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 0xF) as usize];
        value >>= 4;
    }
}

/// Adds one.
fn increment_hex(digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        match *digit {
            b'9' => *digit = b'a',
            b'f' => {
                *digit = b'0';
                continue;
            }
            _ => *digit += 1,
        }
        return;
    }
}

/// The first occurrence of `needle` at or after `from`; quick where it recurs once a line.
fn find(haystack: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let likely = from + LINE - needle.len();
    if haystack
        .get(likely..)
        .is_some_and(|rest| rest.starts_with(needle))
        && !contains(haystack.get(from..likely + needle.len() - 1)?, needle)
    {
        return Some(likely);
    }
    position(haystack.get(from..)?, needle).map(|at| from + at)
}

/// Whether `needle` occurs in `haystack`.
pub(crate) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    position(haystack, needle).is_some()
}

/// Where `needle` first occurs in `haystack`.
fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle.first()?;
    let mut at = 0;
    loop {
        let rest = haystack.get(at..)?;
        at += rest.iter().position(|byte| byte == first)?;
        if haystack.get(at..)?.starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_marks_have_equal_lengths_and_are_told_apart() {
        let contents = Contents::new(7);
        for mark in Mark::ALL {
            let bytes = contents.bytes(mark, 100);
            assert_eq!(bytes.len(), 128, "{mark:?}");
            assert_eq!(contents.marks_in(&bytes), [mark]);
            assert!(
                Contents::new(8).marks_in(&bytes).is_empty(),
                "another run's {mark:?}"
            );
        }
    }

    #[test]
    fn marks_are_found_anywhere_and_none_is_missed() {
        let contents = Contents::new(0xABCD);
        let inside = contents.bytes(Mark::Inside, 200 * LINE);
        let outside = contents.bytes(Mark::Outside, LINE);
        for at in [0, 1, 31, 32, 33, 3200, 6399, 6400] {
            let mut mixed = inside.clone();
            mixed.splice(at..at, outside.iter().copied());
            assert!(
                contents.marks_in(&mixed).contains(&Mark::Outside),
                "at {at}"
            );
            // Half a line is enough to know where it comes from.
            let mut mixed = inside.clone();
            mixed.splice(at..at, outside[..16].iter().copied());
            assert!(
                contents.marks_in(&mixed).contains(&Mark::Outside),
                "half at {at}"
            );
        }
        assert_eq!(contents.marks_in(b"nothing of ours"), []);
    }

    #[test]
    fn lines_are_numbered_in_hexadecimal() {
        let contents = Contents::new(1);
        let bytes = contents.generation(Mark::Inside, 0, 0, 300);
        let numbers: Vec<usize> = contents
            .parse(Mark::Inside, &bytes)
            .unwrap()
            .iter()
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn lines_are_read_back_with_their_pass() {
        let contents = Contents::new(7);
        let bytes = contents.generation(Mark::Inside, 9, 3, 2);
        assert_eq!(
            contents.parse(Mark::Inside, &bytes),
            Some(vec![(3, 9), (4, 9)])
        );
        assert_eq!(contents.parse(Mark::Outside, &bytes), None);
        assert_eq!(
            contents.parse(Mark::Inside, &bytes[..40]),
            None,
            "not whole lines"
        );
    }
}
