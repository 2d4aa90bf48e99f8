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
        let mut bytes = Vec::with_capacity(lines.saturating_mul(LINE));
        for line in from..from.saturating_add(lines) {
            let text = format!(
                "{} {:012x} {:06x} {:07x}",
                mark.tag(),
                self.nonce,
                line & 0xFF_FFFF,
                generation & 0xFFF_FFFF
            );
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b'\n');
        }
        bytes
    }

    /// The marks of this run that occur anywhere in `answer`, in no order.
    #[must_use]
    pub fn marks_in(self, answer: &[u8]) -> Vec<Mark> {
        Mark::ALL
            .into_iter()
            .filter(|mark| contains(answer, &self.token(*mark)))
            .collect()
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

/// Whether `needle` occurs in `haystack`.
pub(crate) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else {
        return true;
    };
    let mut rest = haystack;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = rest.get(at..).unwrap_or_default();
        if rest.starts_with(needle) {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
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
