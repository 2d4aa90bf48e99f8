use rustix::fs::OFlags;
use serde::Deserialize;

use super::{
    files::{AuditError, Lines, Trail, name},
    line::{Head, follows, mac_of, split},
};
use crate::seal::SealKey;

/// What a trail was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whole lines.
    pub lines: u64,
    /// The number of the first; more than 1 where older files were taken away.
    pub first: u64,
    /// The last.
    pub head: Head,
    /// Bytes after it: half a line, that a crash left or somebody is writing.
    pub torn: u64,
    /// The first line that does not follow from the one before it.
    pub fault: Option<Fault>,
}

/// Where a trail is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file's name.
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

/// What of a line its place depends on.
#[derive(Deserialize)]
struct Placed {
    seq: u64,
    event: String,
    prev: Option<String>,
}

/// Reads the whole trail and checks each line against the one before it; with `expected`, that the line it
/// names is there and is that one. Stops at the first that is wrong. Blocks.
///
/// # Errors
/// [`AuditError::Io`] where it cannot be read; damage is a [`Fault`].
pub fn verify(trail: &Trail, key: &SealKey, expected: Option<Head>) -> Result<Found, AuditError> {
    let numbers = match trail.numbers() {
        Err(AuditError::Damaged(why)) => return Ok(Check::default().fault("audit", 0, why)),
        numbers => numbers?,
    };
    let mut check = Check {
        expected,
        ..Check::default()
    };
    let last = numbers.last().copied();
    for number in numbers {
        let mut lines = Lines::from(trail.open(number, OFlags::RDONLY)?, 0)?;
        let mut at = 0;
        loop {
            at += 1;
            let line = match lines.next(number) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(AuditError::Damaged(why)) => return Ok(check.fault(&name(number), at, why)),
                Err(error) => return Err(error),
            };
            if let Err(why) = check.take(key, &line, at == 1) {
                return Ok(check.fault(&name(number), at, why.to_owned()));
            }
        }
        check.found.torn = lines.rest;
        if lines.rest > 0 && Some(number) != last {
            return Ok(check.fault(&name(number), at, "half a line".to_owned()));
        }
    }
    Ok(check.end())
}

struct Check {
    found: Found,
    expected: Option<Head>,
}

impl Default for Check {
    fn default() -> Self {
        Self {
            found: Found {
                lines: 0,
                first: 0,
                head: Head::NONE,
                torn: 0,
                fault: None,
            },
            expected: None,
        }
    }
}

impl Check {
    fn take(&mut self, key: &SealKey, line: &str, is_first: bool) -> Result<(), &'static str> {
        let (text, mac) = split(line).ok_or("it has no seal")?;
        let placed: Placed = serde_json::from_str(line).map_err(|_other| "it is no record")?;
        let begins = placed.event == "begins";
        if begins != is_first {
            return Err("a file begins with `begins`, and nothing else does");
        }
        let mut before = self.found.head;
        if begins {
            let prev = placed.prev.as_deref().and_then(mac_of);
            let prev = prev.ok_or("it does not name the seal before it")?;
            if self.found.lines == 0 {
                // What was before may have been taken away.
                before = Head {
                    seq: placed.seq.saturating_sub(1),
                    mac: prev,
                };
                if before.seq == 0 && before != Head::NONE {
                    return Err("the first line follows nothing");
                }
                self.found.first = placed.seq;
            } else if prev != before.mac {
                return Err("it does not follow the file before it");
            }
        }
        if before.seq.checked_add(1) != Some(placed.seq) {
            return Err("a line before it is missing, or it does not belong here");
        }
        if !follows(key, &before.mac, text, &mac) {
            return Err("its seal does not fit: it was edited, or a line before it was");
        }
        if let Some(expected) = self.expected
            && expected.seq == placed.seq
            && expected.mac != mac
        {
            return Err("it is another line than the one whose seal was kept elsewhere");
        }
        self.found.lines += 1;
        self.found.head = Head {
            seq: placed.seq,
            mac,
        };
        Ok(())
    }

    fn fault(mut self, file: &str, line: u64, why: String) -> Found {
        self.found.fault = Some(Fault {
            file: file.to_owned(),
            line,
            why,
        });
        self.found
    }

    fn end(self) -> Found {
        let missing = self
            .expected
            .filter(|expected| expected.seq > self.found.head.seq);
        match missing {
            None => self.found,
            Some(expected) => {
                let why = format!(
                    "the trail ends at {} and was at {} before: its end is missing",
                    self.found.head.seq, expected.seq
                );
                self.fault("audit", 0, why)
            }
        }
    }
}
