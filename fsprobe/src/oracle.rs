//! Judges one answer by what it contains.
//!
//! Every byte of a fixture says which file it comes from, so the judgement needs no second look at
//! the tree: it is the same whenever it is made, though it is only made with the attacker stopped.

#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    arena::Cell,
    attack::Attack,
    content::{LINE, Mark, contains},
    subject::{Claims, Refusal},
};

/// What one read amounted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// One content the file had, whole.
    Inside,
    /// Nothing, and the caller could tell.
    Refused,
    /// Bytes of a file that was never linked beneath the root.
    Escaped,
    /// Bytes the file never had, or part of them passed off as the whole.
    Torn,
    /// No answer in time.
    Hung,
    /// More bytes than the ceiling.
    OverLimit,
}

impl Verdict {
    /// All of them, in the order reports list them.
    pub const ALL: [Self; 6] = [
        Self::Inside,
        Self::Refused,
        Self::Escaped,
        Self::Torn,
        Self::Hung,
        Self::OverLimit,
    ];

    /// The word used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Refused => "refused",
            Self::Escaped => "escaped",
            Self::Torn => "torn",
            Self::Hung => "hung",
            Self::OverLimit => "over-limit",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a read ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The reader says this is the whole content.
    Whole,
    /// The reader says it is not.
    Refused(Refusal),
    /// The reader said nothing in time.
    Hung,
}

/// How the content is expected to sit in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// The answer is the content.
    #[default]
    Exact,
    /// The content lies somewhere in the answer, as in an archive.
    Within,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Every byte handed out, also before a refusal.
    pub bytes: Vec<u8>,
    /// How it ended.
    pub ending: Ending,
    /// Where to look for the content.
    pub shape: Shape,
}

impl Answer {
    /// The answer of a reader that returns bytes or a refusal.
    #[must_use]
    pub fn of(result: Result<Vec<u8>, Refusal>) -> Self {
        let (bytes, ending) = match result {
            Ok(bytes) => (bytes, Ending::Whole),
            Err(refusal) => (Vec::new(), Ending::Refused(refusal)),
        };
        Self {
            bytes,
            ending,
            shape: Shape::Exact,
        }
    }

    /// No answer.
    #[must_use]
    pub fn hung() -> Self {
        Self {
            bytes: Vec::new(),
            ending: Ending::Hung,
            shape: Shape::Exact,
        }
    }
}

/// Judges `answer`, given in `cell` by a subject that makes `claims`.
///
/// Claims matter for three files whose standing is a matter of policy: one with a second name
/// outside, one in a tree that took the root's name, and one longer than the ceiling.
#[must_use]
pub fn judge(cell: &Cell, answer: &Answer, claims: Claims) -> Verdict {
    judge_by(cell, answer, claims, |answer| {
        legal(cell).into_iter().any(|content| match answer.shape {
            Shape::Exact => content == answer.bytes,
            Shape::Within => contains(&answer.bytes, &content),
        })
    })
}

/// As [`judge`], for a file that was changed over and over: any content it had at some instant is
/// whole. A rewriting attacker counts its passes, so an instant is a run of lines of one pass
/// followed by lines of the pass before.
pub(crate) fn judge_stormed(cell: &Cell, answer: &Answer, claims: Claims) -> Verdict {
    let attack = cell.attack();
    if !attack.is_content() {
        return judge(cell, answer, claims);
    }
    let full = cell.setup().len;
    let least = if attack == Attack::Truncate {
        cell.half()
    } else {
        full
    };
    let ceiling = usize::try_from(cell.setup().ceiling).unwrap_or(usize::MAX);
    let most = if attack == Attack::Grow {
        ceiling
    } else {
        full
    };
    judge_by(cell, answer, claims, |answer| {
        let content = match answer.shape {
            Shape::Exact => answer.bytes.as_slice(),
            Shape::Within => lines_of(&answer.bytes, &cell.contents().bytes(Mark::Inside, 1)[..16]),
        };
        let Some(lines) = cell.contents().parse(Mark::Inside, content) else {
            return false;
        };
        let in_order = lines
            .iter()
            .enumerate()
            .all(|(index, (line, _))| index == *line);
        let falls = lines.windows(2).all(|pair| match pair {
            [(_, before), (_, after)] => before >= after,
            _ => true,
        });
        let newest = lines.first().map_or(0, |(_, generation)| *generation);
        let oldest = lines.last().map_or(0, |(_, generation)| *generation);
        let len = content.len();
        in_order && falls && newest.saturating_sub(oldest) <= 1 && (least..=most).contains(&len)
    })
}

/// The longest stretch of `answer` made of lines that start with `token`, from its first one on.
fn lines_of<'a>(answer: &'a [u8], token: &[u8]) -> &'a [u8] {
    let Some(start) = answer
        .windows(token.len())
        .position(|window| window == token)
    else {
        return &[];
    };
    let rest = answer.get(start..).unwrap_or_default();
    let lines = rest
        .chunks_exact(LINE)
        .take_while(|line| line.starts_with(token))
        .count();
    rest.get(..lines * LINE).unwrap_or_default()
}

fn judge_by(
    cell: &Cell,
    answer: &Answer,
    claims: Claims,
    is_whole: impl Fn(&Answer) -> bool,
) -> Verdict {
    let contents = cell.contents();
    let marks = contents.marks_in(&answer.bytes);
    let forbidden = |mark: &Mark| match mark {
        Mark::Outside => true,
        Mark::Linked => claims.hard_links,
        Mark::OtherRoot => claims.root,
        Mark::Inside | Mark::Rewritten | Mark::Moved => false,
    };
    if marks.iter().any(forbidden) {
        return Verdict::Escaped;
    }
    let given = match answer.shape {
        Shape::Exact => answer.bytes.len(),
        Shape::Within => {
            count(
                &answer.bytes,
                &contents.generation(Mark::Inside, 0, 0, 1)[..16],
            ) * LINE
        }
    };
    let is_over = given as u64 > cell.setup().ceiling;
    match &answer.ending {
        Ending::Hung => return Verdict::Hung,
        _ if is_over => return Verdict::OverLimit,
        Ending::Refused(_) => return Verdict::Refused,
        Ending::Whole => {}
    }
    match answer.shape {
        _ if is_whole(answer) => Verdict::Inside,
        Shape::Within if marks.is_empty() => Verdict::Refused,
        Shape::Within | Shape::Exact => Verdict::Torn,
    }
}

/// Every content the file of that name has at some instant of the run.
fn legal(cell: &Cell) -> Vec<Vec<u8>> {
    let len = cell.setup().len;
    let of = |mark| cell.contents().bytes(mark, len);
    let mut legal = vec![of(Mark::Inside)];
    match cell.attack() {
        Attack::OutsideOver => legal.push(of(Mark::Moved)),
        Attack::HardLink => legal.push(of(Mark::Linked)),
        Attack::RootReplaced => legal.push(of(Mark::OtherRoot)),
        Attack::RewriteByWrite | Attack::RewriteByMapping => legal.push(of(Mark::Rewritten)),
        Attack::Truncate => legal.push(cell.contents().bytes(Mark::Inside, cell.half())),
        Attack::Plain
        | Attack::FinalLinkThere
        | Attack::ParentLinkThere
        | Attack::TooLarge
        | Attack::FinalLink
        | Attack::ParentLink
        | Attack::GrandparentLink
        | Attack::AncestorOut
        | Attack::Fifo
        | Attack::Grow => {}
    }
    legal
}

/// How often `needle` occurs in `haystack`, without overlaps.
fn count(haystack: &[u8], needle: &[u8]) -> usize {
    let mut found = 0;
    let mut rest = haystack;
    while rest.len() >= needle.len() {
        if rest.starts_with(needle) {
            found += 1;
            rest = rest.get(needle.len()..).unwrap_or_default();
        } else {
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    found
}
