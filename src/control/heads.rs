//! The heads log: one flushed line per commit, so that a database that went back in time is noticed.
//!
//! SQLite's write-ahead log ends at the first frame that does not check: a flipped bit there takes
//! acknowledged commits away without a word. So does an older file put back. The heads log is
//! written after each commit and flushed before anything is acknowledged; at start the two must
//! agree, give or take the one commit whose line a crash cut off.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use rustix::{
    fs::{AtFlags, FallocateFlags, Mode, OFlags},
    io::Errno,
};
use serde::Deserialize;
use thiserror::Error;

use crate::model::Digest;

const NAME: &str = "heads.log";
const NEW: &str = "heads.new";
/// Where the previous file stays when its tail had to be cut.
const TORN: &str = "heads.torn";

/// The log is rewritten with its last line when it would grow past this.
const MAX_LEN: u64 = 1 << 20;
/// A longer file is none of ours.
const MAX_READ: u64 = 4 * MAX_LEN;

/// Where the database stands: how many commits, how many events in them, and a digest over all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Commits so far.
    pub commits: u64,
    /// Events in them, over all sessions.
    pub events: u64,
    /// The chain over all commits up to this one.
    pub chain: Digest,
}

/// What the heads log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// There is no log.
    Absent,
    /// The position of its last whole line, the bytes up to its end, and whether more follow.
    Last {
        position: Position,
        len: u64,
        torn: bool,
    },
}

/// Why a heads log says nothing.
#[derive(Debug, Error)]
pub(super) enum HeadsError {
    /// It cannot be what was written; the text says where.
    #[error("the heads log is damaged: {0}")]
    Damaged(String),
    #[error("{action} failed")]
    Io {
        action: &'static str,
        #[source]
        source: io::Error,
    },
}

fn failed(action: &'static str) -> impl FnOnce(Errno) -> HeadsError {
    move |errno| HeadsError::Io {
        action,
        source: errno.into(),
    }
}

/// The log, open for appending.
#[derive(Debug)]
pub(super) struct HeadsLog {
    dir: OwnedFd,
    file: File,
    len: u64,
}

impl HeadsLog {
    /// Reads the log in `dir` without changing anything.
    pub(super) fn read(dir: impl AsFd) -> Result<Reading, HeadsError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(dir, NAME, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(Reading::Absent),
            Err(errno) => return Err(failed("opening the heads log")(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(failed("examining the heads log"))?;
        let len = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() || len > MAX_READ {
            return Err(HeadsError::Damaged("it is not a file of ours".to_owned()));
        }
        let mut content = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut content, 0)
            .map_err(|source| HeadsError::Io {
                action: "reading the heads log",
                source,
            })?;
        scan(&content)
    }

    /// Makes a log of one line, in place of any other, and flushes it and its name. The file it
    /// takes the place of is kept as `heads.torn` when `keep` says so.
    pub(super) fn start(dir: OwnedFd, position: Position, keep: bool) -> Result<Self, HeadsError> {
        if keep {
            remove(&dir, TORN)?;
            rustix::fs::linkat(&dir, NAME, &dir, TORN, AtFlags::empty())
                .map_err(failed("keeping the old heads log"))?;
        }
        let (file, len) = replace(&dir, position)?;
        Ok(Self { dir, file, len })
    }

    /// Opens the log whose last whole line ends at `len`, which must be its end.
    pub(super) fn resume(dir: OwnedFd, len: u64) -> Result<Self, HeadsError> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, NAME, flags, Mode::empty())
            .map_err(failed("opening the heads log"))?;
        Ok(Self {
            dir,
            file: File::from(file),
            len,
        })
    }

    /// Adds a line; not durable before [`HeadsLog::flush`].
    pub(super) fn append(&mut self, position: Position) -> Result<(), HeadsError> {
        let line = line_of(position);
        if self.len + len_of(&line) > MAX_LEN {
            let (file, len) = replace(&self.dir, position)?;
            (self.file, self.len) = (file, len);
            return Ok(());
        }
        self.file
            .write_all_at(line.as_bytes(), self.len)
            .map_err(|source| HeadsError::Io {
                action: "writing the heads log",
                source,
            })?;
        self.len += len_of(&line);
        Ok(())
    }

    /// Forces what was appended to the medium. A failure is final: a second attempt may succeed
    /// without having written anything.
    pub(super) fn flush(&self) -> Result<(), HeadsError> {
        rustix::fs::fdatasync(&self.file).map_err(failed("flushing the heads log"))
    }
}

/// Puts a log of one line in place: written beside, flushed, renamed, the name flushed.
fn replace(dir: &OwnedFd, position: Position) -> Result<(File, u64), HeadsError> {
    remove(dir, NEW)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, NEW, flags, Mode::RUSR | Mode::WUSR)
        .map_err(failed("creating the heads log"))?;
    // Reserve the room the log may grow into, so that a full disk refuses the commit before it and
    // not the line after it. Where the filesystem cannot, a full disk closes for writing instead.
    match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, MAX_LEN) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC | Errno::DQUOT) => {}
        Err(errno) => return Err(failed("reserving room for the heads log")(errno)),
    }
    let file = File::from(file);
    let line = line_of(position);
    file.write_all_at(line.as_bytes(), 0)
        .map_err(|source| HeadsError::Io {
            action: "writing the heads log",
            source,
        })?;
    rustix::fs::fsync(&file).map_err(failed("flushing the heads log"))?;
    rustix::fs::renameat(dir, NEW, dir, NAME).map_err(failed("publishing the heads log"))?;
    rustix::fs::fsync(dir).map_err(failed("flushing the journal directory"))?;
    Ok((file, len_of(&line)))
}

fn remove(dir: &OwnedFd, name: &str) -> Result<(), HeadsError> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("removing a leftover heads log")(errno)),
    }
}

fn len_of(line: &str) -> u64 {
    u64::try_from(line.len()).unwrap_or(u64::MAX)
}

const CRC_FIELD: &str = ",\"crc\":\"";

/// `{"commit":1,"events":2,"chain":"…64 hex…","crc":"…8 hex…"}` and a newline. The CRC-32 is of
/// everything before its own field.
fn line_of(position: Position) -> String {
    let Position {
        commits,
        events,
        chain,
    } = position;
    let body = format!("{{\"commit\":{commits},\"events\":{events},\"chain\":\"{chain}\"");
    let crc = crc32fast::hash(body.as_bytes());
    format!("{body}{CRC_FIELD}{crc:08x}\"}}\n")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    commit: u64,
    events: u64,
    chain: Digest,
    crc: String,
}

fn parse(line: &[u8]) -> Option<Position> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let position = Position {
        commits: line.commit,
        events: line.events,
        chain: line.chain,
    };
    // One spelling only: what we would have written is what must stand there.
    line_of(position)
        .ends_with(&format!("{CRC_FIELD}{}\"}}\n", line.crc))
        .then_some(position)
}

/// Finds the last whole line. What follows it is a torn tail, unless a whole line follows that: then
/// the log was damaged after it was written.
fn scan(content: &[u8]) -> Result<Reading, HeadsError> {
    let mut last: Option<(Position, u64)> = None;
    let mut offset = 0_u64;
    let mut bad_line = None;
    for (line, number) in content.split_inclusive(|&b| b == b'\n').zip(1_u64..) {
        offset += u64::try_from(line.len()).unwrap_or(u64::MAX);
        let position = line.strip_suffix(b"\n").and_then(parse);
        match (position, bad_line, last) {
            (None, _, _) => bad_line = bad_line.or(Some(number)),
            (Some(_), Some(bad), _) => {
                return Err(HeadsError::Damaged(format!("line {bad} does not check")));
            }
            (Some(position), None, Some((before, _)))
                if position.commits != before.commits.saturating_add(1) =>
            {
                return Err(HeadsError::Damaged(format!(
                    "line {number} holds commit {} after commit {}",
                    position.commits, before.commits
                )));
            }
            (Some(position), None, _) => last = Some((position, offset)),
        }
    }
    match last {
        Some((position, len)) => Ok(Reading::Last {
            position,
            len,
            torn: bad_line.is_some(),
        }),
        // It is only ever published with a whole line in it.
        None => Err(HeadsError::Damaged("it has no whole line".to_owned())),
    }
}

/// A count as SQLite holds integers; no count of ours comes near the end of the range.
pub(super) fn as_integer(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::{fd::OwnedFd, unix::fs::FileExt},
    };

    use super::{HeadsError, HeadsLog, MAX_LEN, NAME, Position, Reading, line_of, scan};
    use crate::model::Digest;

    fn position(commits: u64) -> Position {
        Position {
            commits,
            events: 2 * commits,
            chain: Digest::of(&commits.to_be_bytes()),
        }
    }

    fn log_of(commits: std::ops::Range<u64>) -> String {
        commits.map(|n| line_of(position(n))).collect()
    }

    #[expect(clippy::disallowed_methods, reason = "a test directory")]
    fn dir() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        (dir, handle.into())
    }

    /// Row 39 of `spec/store.md` section 7.
    #[test]
    fn a_log_cut_at_any_byte_of_its_last_line_ends_with_the_line_before() {
        let log = log_of(1..4);
        let start = log_of(1..3).len();
        for cut in start..log.len() {
            let reading = scan(&log.as_bytes()[..cut]).unwrap();
            let expected = Reading::Last {
                position: position(2),
                len: u64::try_from(start).unwrap(),
                torn: cut > start,
            };
            assert_eq!(reading, expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_bit_flipped_anywhere_in_a_line_is_never_read_as_another_position() {
        let log = log_of(1..4);
        let last = log_of(1..3).len();
        for at in 0..log.len() {
            for bit in 0..8 {
                let mut bytes = log.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                match scan(&bytes) {
                    Err(HeadsError::Damaged(_)) => assert!(at < last, "byte {at} bit {bit}"),
                    // The newline before the last line: two lines are gone, which is one more than
                    // a crash explains, and the comparison with the database says so.
                    Ok(Reading::Last { position: got, .. }) if at + 1 == last => {
                        assert_eq!(got, position(1));
                    }
                    Ok(Reading::Last {
                        position: got,
                        torn,
                        ..
                    }) => {
                        // Only the last line may be taken for a torn tail.
                        assert!(at >= last && torn, "byte {at} bit {bit}");
                        assert_eq!(got, position(2), "byte {at} bit {bit}");
                    }
                    other => unreachable!("byte {at} bit {bit}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_missing_in_the_middle_is_damage() {
        let log = log_of(1..2) + &log_of(3..4);
        assert!(matches!(scan(log.as_bytes()), Err(HeadsError::Damaged(_))));
        assert!(matches!(scan(b""), Err(HeadsError::Damaged(_))));
    }

    #[test]
    fn a_log_is_read_back_and_stays_bounded() {
        let (_keep, dir) = dir();
        assert_eq!(HeadsLog::read(&dir).unwrap(), Reading::Absent);
        let mut log = HeadsLog::start(dir.try_clone().unwrap(), position(0), false).unwrap();
        let commits = 3 * MAX_LEN / u64::try_from(line_of(position(0)).len()).unwrap();
        for n in 1..=commits {
            log.append(position(n)).unwrap();
        }
        log.flush().unwrap();
        match HeadsLog::read(&dir).unwrap() {
            Reading::Last {
                position: last,
                len,
                torn,
            } => {
                assert_eq!((last, torn), (position(commits), false));
                assert!(len <= MAX_LEN, "{len}");
            }
            Reading::Absent => unreachable!(),
        }
    }

    #[test]
    fn a_log_goes_on_after_it_was_reopened_and_its_torn_tail_is_kept() {
        let (_keep, dir) = dir();
        let mut log = HeadsLog::start(dir.try_clone().unwrap(), position(0), false).unwrap();
        log.append(position(1)).unwrap();
        log.file.write_all_at(b"{\"commit\":2,", log.len).unwrap();
        let Reading::Last {
            position: whole,
            torn: true,
            ..
        } = HeadsLog::read(&dir).unwrap()
        else {
            unreachable!("the tail is torn")
        };
        let mut log = HeadsLog::start(dir.try_clone().unwrap(), whole, true).unwrap();
        log.append(position(2)).unwrap();
        let Reading::Last {
            position: last,
            len,
            torn: false,
        } = HeadsLog::read(&dir).unwrap()
        else {
            unreachable!()
        };
        assert_eq!(last, position(2));
        let mut log = HeadsLog::resume(dir.try_clone().unwrap(), len).unwrap();
        log.append(position(3)).unwrap();
        assert!(matches!(
            HeadsLog::read(&dir).unwrap(),
            Reading::Last { torn: false, position: last, .. } if last == position(3)
        ));
        assert!(rustix::fs::statat(&dir, "heads.torn", rustix::fs::AtFlags::empty()).is_ok());
        assert!(rustix::fs::statat(&dir, NAME, rustix::fs::AtFlags::empty()).is_ok());
    }
}
