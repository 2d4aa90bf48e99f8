//! The files of a trail: numbered, each begun by a line that names the seal before it.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};
use thiserror::Error;

/// The trail's directory in the data directory.
const DIRECTORY: &str = "audit";
/// The longest line there is, its end included.
pub(super) const LONGEST: u64 = 4096;

/// Why a trail cannot be opened or read.
#[derive(Debug, Error)]
pub enum AuditError {
    /// What stands in the directory is not what was written there; the text says where.
    #[error("the audit trail is damaged: {0}")]
    Damaged(String),
    /// The system said no.
    #[error("{action} failed")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

pub(super) fn failed<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> AuditError {
    move |error| AuditError::Io {
        action,
        source: error.into(),
    }
}

/// A place in a trail: the number of a file, and how far it was read.
pub type Place = (u32, u64);

/// The directory of a trail.
#[derive(Debug)]
pub struct Trail(OwnedFd);

impl Trail {
    /// The trail of a data directory, to be read; none before the first service has run.
    ///
    /// # Errors
    /// As the system says.
    pub fn read(data: impl AsFd) -> Result<Option<Self>, AuditError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(data, DIRECTORY, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("opening the audit trail")(errno)),
        }
    }

    /// The trail of a data directory, made where there is none.
    pub(super) fn make(data: impl AsFd) -> Result<Self, AuditError> {
        match rustix::fs::mkdirat(&data, DIRECTORY, Mode::RWXU) {
            Ok(()) => rustix::fs::fsync(&data).map_err(failed("keeping the audit trail's name"))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("making the audit trail")(errno)),
        }
        Self::read(&data)?.ok_or_else(|| failed("opening the audit trail")(Errno::NOENT))
    }

    /// The numbers of the files, in order. A gap is damage, and so is anything that is none of them.
    pub(super) fn numbers(&self) -> Result<Vec<u32>, AuditError> {
        let mut numbers = Vec::new();
        for entry in Dir::read_from(&self.0).map_err(failed("listing the audit trail"))? {
            let entry = entry.map_err(failed("listing the audit trail"))?;
            let name = entry.file_name().to_string_lossy();
            if name == "." || name == ".." {
                continue;
            }
            let number: u32 = name
                .strip_suffix(".jsonl")
                .filter(|digits| digits.len() == 6)
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| AuditError::Damaged(format!("`{}`", name.escape_default())))?;
            numbers.push(number);
        }
        numbers.sort_unstable();
        for pair in numbers.windows(2) {
            if let [before, after] = pair
                && before.checked_add(1) != Some(*after)
            {
                let missing = name(before.saturating_add(1));
                return Err(AuditError::Damaged(format!("{missing} is missing")));
            }
        }
        Ok(numbers)
    }

    /// Opens a file to be read.
    pub(super) fn open(&self, number: u32, flags: OFlags) -> Result<File, AuditError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.0, name(number), flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed("opening a file of the audit trail"))?;
        let stat = rustix::fs::fstat(&fd).map_err(failed("examining the audit trail"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(AuditError::Damaged(format!("{} is no file", name(number))));
        }
        Ok(fd.into())
    }

    /// Makes the next file, and its name durable.
    pub(super) fn begin(&self, number: u32) -> Result<File, AuditError> {
        let file = self.open(number, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        rustix::fs::fsync(&self.0).map_err(failed("keeping the name of an audit file"))?;
        Ok(file)
    }

    /// Takes a file away that nothing was written to.
    pub(super) fn remove(&self, number: u32) {
        rustix::fs::unlinkat(&self.0, name(number), AtFlags::empty()).ok();
    }

    /// The lines from `after` on, oldest first, while `each` wants more; the number of the last file and how
    /// far it was read. Half a line at the end is left for the next time.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn lines(
        &self,
        after: Option<Place>,
        mut each: impl FnMut(&str) -> bool,
    ) -> Result<Option<Place>, AuditError> {
        let mut at = after;
        for number in self.numbers()? {
            let offset = match at {
                Some((known, _)) if number < known => continue,
                Some((known, offset)) if number == known => offset,
                Some(_) | None => 0,
            };
            let file = self.open(number, OFlags::RDONLY)?;
            let mut lines = Lines::from(file, offset)?;
            at = Some((number, offset));
            while let Some(line) = lines.next(number)? {
                let more = each(&line);
                at = Some((number, lines.at));
                if !more {
                    return Ok(at);
                }
            }
        }
        Ok(at)
    }

    /// The last `most` lines, oldest first, and where they end.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn last(&self, most: usize) -> Result<(Vec<String>, Option<Place>), AuditError> {
        let mut found: Vec<String> = Vec::new();
        let mut end = None;
        for number in self.numbers()?.into_iter().rev() {
            let mut lines = Lines::from(self.open(number, OFlags::RDONLY)?, 0)?;
            let mut of_file = std::collections::VecDeque::new();
            while let Some(line) = lines.next(number)? {
                if of_file.len() >= most.saturating_sub(found.len()) {
                    of_file.pop_front();
                }
                of_file.push_back(line);
            }
            end = end.or(Some((number, lines.at)));
            of_file.extend(found);
            found = of_file.into();
            if found.len() >= most {
                break;
            }
        }
        Ok((found, end))
    }
}

pub(super) fn name(number: u32) -> String {
    format!("{number:06}.jsonl")
}

/// Whole lines of a file.
pub(super) struct Lines {
    reader: BufReader<File>,
    /// Up to where lines were read.
    pub(super) at: u64,
    /// How many bytes follow the last whole line.
    pub(super) rest: u64,
}

impl Lines {
    pub(super) fn from(mut file: File, offset: u64) -> Result<Self, AuditError> {
        use io::Seek as _;
        file.seek(io::SeekFrom::Start(offset))
            .map_err(failed("reading the audit trail"))?;
        Ok(Self {
            reader: BufReader::new(file),
            at: offset,
            rest: 0,
        })
    }

    /// The next whole line, without its end.
    pub(super) fn next(&mut self, number: u32) -> Result<Option<String>, AuditError> {
        use io::Read as _;
        let mut line = Vec::new();
        let read = self
            .reader
            .by_ref()
            .take(LONGEST)
            .read_until(b'\n', &mut line)
            .map_err(failed("reading the audit trail"))?;
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        // A power cut may leave a hole where a write was under way, and no line has one.
        let has_hole = line.contains(&0);
        if line.pop() != Some(b'\n') || has_hole {
            if read >= LONGEST && !has_hole {
                let place = format!("{} has a line that is none", name(number));
                return Err(AuditError::Damaged(place));
            }
            let file = self.reader.get_ref().metadata();
            let len = file.map_err(failed("examining the audit trail"))?.len();
            self.rest = len.saturating_sub(self.at);
            return Ok(None);
        }
        self.at = self.at.saturating_add(read);
        String::from_utf8(line)
            .map(Some)
            .map_err(|_octets| AuditError::Damaged(format!("{} is no text", name(number))))
    }
}
