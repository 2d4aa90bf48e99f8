//! One log file: an index of it, kept up as it grows, and pages of its events.
//!
//! The index is what a pass over the log leaves behind: where every few events begin, what the log
//! refers to and declares, and its length. A page is read from the nearest place before it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
};

use serde_json::value::RawValue;

use super::{
    limits::DshLimits,
    lines::{End, LineFault, Lines, Place, ReadAt},
    names::LogName,
    row::{Header, Row, RowFault, ends_turn},
};
use crate::{
    journal::{Declared, Event, Referenced, references},
    model::{AttachmentId, AttachmentRef, ByteCount, FileName, LogGeneration, Seq},
};

/// How far apart the places are that an index keeps, in decoded bytes; and those a frame begins at.
const SPACING: u64 = 64 << 10;
const FRAME_SPACING: u64 = 4 << 10;
/// How many bytes before a place are looked at again before the log is read on from there.
const GUARD: u64 = 4 << 10;

/// Why a log gave nothing.
#[derive(Debug)]
pub(crate) enum LogFault {
    /// It is damaged or refused; the text names the row.
    Damaged(String),
    /// It moved under the reader; trying again helps.
    Moved,
    /// The system refused.
    Io(io::Error),
}

/// What a pass over a log found.
#[derive(Clone, Debug)]
pub(crate) struct LogIndex {
    pub(crate) header: Header,
    name: LogName,
    pub(super) next: u64,
    pub(super) references: Vec<Referenced>,
    pub(super) declared: Vec<Declared>,
    /// Why the log ends before its last line, if it does.
    pub(super) ended: Option<String>,
    pub(super) marks: Vec<Mark>,
    /// Whether it came, in part at least, from elsewhere than the log.
    pub(super) restored: bool,
    /// The position in `references` of each content and name.
    known: BTreeMap<(AttachmentId, Option<FileName>), usize>,
}

/// Where a row begins, and what came before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) place: Place,
    pub(super) seq: u64,
    pub(super) row: u64,
    pub(super) references: usize,
    pub(super) declared: usize,
    /// A checksum of the file's bytes right before the place.
    pub(super) before: u32,
}

/// A log file as it is now.
#[derive(Clone, Copy)]
pub(crate) struct Log<'a> {
    pub(crate) file: &'a dyn ReadAt,
    pub(crate) name: LogName,
    /// How much of the file counts.
    pub(crate) len: u64,
    pub(crate) limits: &'a DshLimits,
}

impl Log<'_> {
    /// Passes over the whole log.
    ///
    /// # Errors
    /// [`LogFault::Damaged`] with the row when the log cannot be read up to its last whole turn, or
    /// breaks a bound.
    pub(crate) fn index(&self) -> Result<LogIndex, LogFault> {
        let mut lines = self.lines(Place::default())?;
        let header = self.read_header(&mut lines)?;
        let mut index = LogIndex::new(header, self.name);
        self.follow(&mut index, &mut lines, 0)?;
        Ok(index)
    }

    /// Passes over what came after `index` was made of the same file: from its last place on, so that
    /// a tail that was there already is read once more.
    ///
    /// # Errors
    /// As [`Log::index`]; [`LogFault::Moved`] when the file is not what it was before that place.
    pub(crate) fn catch_up(&self, mut index: LogIndex) -> Result<LogIndex, LogFault> {
        // Within a frame only its own bytes could tell whether it is the same.
        let whole = |mark: &&Mark| mark.place.skip == 0;
        let Some(mark) = index.marks.iter().rev().find(whole).copied() else {
            return self.index();
        };
        if mark.place.offset > self.len || index.name != self.name {
            return Err(LogFault::Moved);
        }
        if self.sum_before(mark.place)? != mark.before {
            return Err(LogFault::Moved);
        }
        index.forget_from(mark);
        let mut lines = self.lines(mark.place)?;
        self.follow(&mut index, &mut lines, mark.row)?;
        Ok(index)
    }

    /// The events with a seq in `from..to`, oldest first. When they sum up to more than a page may
    /// hold, the oldest are left out.
    ///
    /// # Errors
    /// [`LogFault::Moved`] when the log is not what `index` says.
    pub(crate) fn events(
        &self,
        index: &LogIndex,
        from: u64,
        to: u64,
    ) -> Result<Vec<Event>, LogFault> {
        let mut page: Vec<Event> = Vec::new();
        let mut bytes = 0_u64;
        if from >= to {
            return Ok(page);
        }
        let after = index.marks.partition_point(|mark| mark.seq <= from);
        let mark = after.checked_sub(1).and_then(|at| index.marks.get(at));
        let mark = mark.ok_or(LogFault::Moved)?;
        let mut lines = self.lines(mark.place)?;
        let mut next = mark.seq;
        while next < to {
            let (_, line) = lines.next().map_err(moved)?.ok_or(LogFault::Moved)?;
            let row = Row::parse(line, self.name.version, self.limits)
                .map_err(|_other_bytes_than_indexed| LogFault::Moved)?;
            if row.first() != next {
                return Err(LogFault::Moved);
            }
            next = next.saturating_add(row.count());
            let events = row
                .events(from, to)
                .map_err(|_other_bytes_than_indexed| LogFault::Moved)?;
            bytes = events
                .iter()
                .fold(bytes, |sum, event| sum.saturating_add(size(event)));
            page.extend(events);
            let over = |bytes| ByteCount::new(bytes) > self.limits.page;
            let mut excess = 0_usize;
            for event in &page {
                if !over(bytes) || excess.saturating_add(1) == page.len() {
                    break;
                }
                bytes = bytes.saturating_sub(size(event));
                excess = excess.saturating_add(1);
            }
            page.drain(..excess);
        }
        self.confirm(&lines)?;
        Ok(page)
    }

    /// Makes sure that what `lines` gave is what the file held at one moment.
    fn confirm(&self, lines: &Lines<'_>) -> Result<(), LogFault> {
        if self.file.moved().map_err(LogFault::Io)? {
            lines.confirm().map_err(moved)?;
        }
        Ok(())
    }

    fn sum_before(&self, place: Place) -> Result<u32, LogFault> {
        let from = place.offset.saturating_sub(GUARD);
        let len = usize::try_from(place.offset.saturating_sub(from)).unwrap_or(0);
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = from.saturating_add(ByteCount::from(filled).get());
            match self.file.read_at(rest, at).map_err(LogFault::Io)? {
                0 => return Err(LogFault::Moved),
                n => filled = filled.saturating_add(n),
            }
        }
        Ok(crc32fast::hash(&bytes))
    }

    fn lines(&self, place: Place) -> Result<Lines<'_>, LogFault> {
        Lines::new(self.file, self.name.encoding, place, self.len, self.limits).map_err(damaged)
    }

    fn read_header(&self, lines: &mut Lines<'_>) -> Result<Header, LogFault> {
        let refused = |why: &str| LogFault::Damaged(format!("the header: {why}"));
        match lines.next() {
            Ok(Some((_, line))) => {
                Header::parse(line, self.name.version, self.limits).map_err(|why| refused(&why))
            }
            Ok(None) if self.len == 0 => Err(refused("the log is empty")),
            Ok(None) => Err(refused("the log ends within it")),
            Err(LineFault::Damaged(why)) => Err(refused(&why)),
            Err(other) => Err(damaged(other)),
        }
    }

    /// Adds the rows that `lines` gives to `index`; `row` rows come before them.
    fn follow(
        &self,
        index: &mut LogIndex,
        lines: &mut Lines<'_>,
        row: u64,
    ) -> Result<(), LogFault> {
        let mut row = row;
        let mut since = SPACING;
        let stopped = loop {
            let Some((place, line)) = lines
                .next()
                .map_err(|fault| at_row(row.saturating_add(1), fault))?
            else {
                break None;
            };
            // Rows are counted from 1; the header is row 0.
            row = row.saturating_add(1);
            let refused = |why: String| LogFault::Damaged(format!("row {row}: {why}"));
            let parsed = match Row::parse(line, self.name.version, self.limits) {
                Ok(parsed) => parsed,
                Err(RowFault::Bad(why)) => break Some(why),
                Err(RowFault::Refused(why)) => return Err(refused(why)),
            };
            if parsed.first() != index.next {
                break Some(format!("its seq is {}, not {}", parsed.first(), index.next));
            }
            if since >= SPACING || (place.skip == 0 && since >= FRAME_SPACING) {
                since = 0;
                index.marks.push(Mark {
                    place,
                    seq: index.next,
                    row: row.saturating_sub(1),
                    references: index.references.len(),
                    declared: index.declared.len(),
                    before: self.sum_before(place)?,
                });
            }
            since = since.saturating_add(ByteCount::from(line.len()).get());
            index.take(&parsed, self.limits).map_err(refused)?;
        };
        if let Some(why) = stopped {
            // A bad row ends the log, unless a turn that ended later shows that it was whole once.
            while let Some((_, line)) = lines.next().map_err(|fault| at_row(row, fault))? {
                if ends_turn(line) {
                    return Err(LogFault::Damaged(format!("row {row}: {why}")));
                }
            }
            index.ended = Some(format!("row {row}: {why}"));
        }
        if lines.end() == Some(End::InFrame(0)) {
            let text = "the header: the log ends within its frame".to_owned();
            return Err(LogFault::Damaged(text));
        }
        self.confirm(lines)
    }
}

impl LogIndex {
    /// The index of a log without events.
    pub(super) fn new(header: Header, name: LogName) -> Self {
        Self {
            header,
            name,
            next: 0,
            references: Vec::new(),
            declared: Vec::new(),
            ended: None,
            marks: Vec::new(),
            restored: false,
            known: BTreeMap::new(),
        }
    }

    /// The format of the log.
    pub(super) fn format(&self) -> u32 {
        self.name.version
    }

    /// The numbering of the log.
    pub(crate) fn generation(&self) -> LogGeneration {
        LogGeneration::new(self.name.version)
    }

    /// The number of events.
    pub(crate) fn next_seq(&self) -> Seq {
        Seq::new(self.next)
    }

    /// What the log refers to, once per content and name, in order of first reference.
    pub(crate) fn references(&self) -> &[Referenced] {
        &self.references
    }

    /// What the log declares, in order.
    pub(crate) fn declared(&self) -> &[Declared] {
        &self.declared
    }

    /// Why the log ends before its last line, if it does.
    pub(crate) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// The first reference to this content, under `name` when one is given.
    pub(crate) fn reference(
        &self,
        id: AttachmentId,
        name: Option<&FileName>,
    ) -> Option<&Referenced> {
        let first = if let Some(name) = name {
            self.known.get(&(id, Some(name.clone())))
        } else {
            let from = self.known.range((id, None)..);
            let of_id = from.take_while(|((other, _), _)| *other == id);
            of_id.map(|(_, at)| at).min()
        };
        self.references.get(*first?)
    }

    /// Roughly what the index takes in memory.
    pub(crate) fn weight(&self) -> ByteCount {
        let marks = self.marks.capacity().saturating_mul(size_of::<Mark>());
        let references = self.references.len().saturating_mul(320);
        let declared = self.declared.iter().map(|declared| {
            let text = declared
                .presented
                .description
                .as_ref()
                .map_or(0, String::len);
            text.saturating_add(declared.presented.path.len())
                .saturating_add(128)
        });
        let parts = [1024, marks, references].into_iter().chain(declared);
        ByteCount::from(parts.fold(0, usize::saturating_add))
    }

    fn take(&mut self, row: &Row<'_>, limits: &DshLimits) -> Result<(), String> {
        let seq = Seq::new(self.next);
        let count = row.count();
        // A run of chunks refers to nothing: block ends are never packed.
        if let Row::One(one) = row {
            let too_many = || format!("the log has more than {} references", limits.references);
            if references::has_positions(&one.kind, self.name.version) && may_refer(one.data) {
                let data = serde_json::from_str(one.data.get()).map_err(|e| e.to_string())?;
                // A malformed reference is none; it takes nothing else down.
                let found =
                    references::extract(&one.kind, &data, self.name.version, limits.references)
                        .map_err(|references::TooMany { .. }| too_many())?;
                for located in found.references {
                    self.refer(located.reference, seq);
                }
            }
            if one.kind == references::PRESENTED {
                let data = serde_json::from_str(one.data.get()).map_err(|e| e.to_string())?;
                let generation = self.generation();
                let presented = references::presented(&one.kind, &data);
                self.declared
                    .extend(presented.into_iter().map(|(index, presented)| Declared {
                        generation,
                        seq,
                        index,
                        presented,
                    }));
            }
            if self.references.len().max(self.declared.len()) > limits.references {
                return Err(too_many());
            }
        }
        self.next = self
            .next
            .checked_add(count)
            .ok_or("the seq is out of range")?;
        Ok(())
    }

    pub(super) fn refer(&mut self, reference: AttachmentRef, seq: Seq) {
        let key = (reference.id, reference.name.clone());
        if let Entry::Vacant(vacant) = self.known.entry(key) {
            vacant.insert(self.references.len());
            self.references.push(Referenced { reference, seq });
        }
    }

    /// Forgets what came at and after `mark`.
    fn forget_from(&mut self, mark: Mark) {
        self.next = mark.seq;
        self.ended = None;
        self.marks.retain(|other| other.seq < mark.seq);
        self.references.truncate(mark.references);
        self.known.retain(|_, at| *at < mark.references);
        self.declared.truncate(mark.declared);
    }
}

/// Whether the data can hold a reference at all: saves parsing the many that cannot. A key may be
/// written with escapes.
fn may_refer(data: &RawValue) -> bool {
    data.get().contains("attachmentId") || data.get().contains("\\u")
}

fn size(event: &Event) -> u64 {
    ByteCount::from(event.data.get().len()).get()
}

fn damaged(fault: LineFault) -> LogFault {
    match fault {
        LineFault::Damaged(text) => LogFault::Damaged(text),
        LineFault::Moved => LogFault::Moved,
        LineFault::Io(error) => LogFault::Io(error),
    }
}

fn at_row(row: u64, fault: LineFault) -> LogFault {
    match fault {
        LineFault::Damaged(text) => LogFault::Damaged(format!("row {row}: {text}")),
        LineFault::Moved | LineFault::Io(_) => damaged(fault),
    }
}

/// What was indexed without a fault and has one now is not what was indexed.
fn moved(fault: LineFault) -> LogFault {
    match fault {
        LineFault::Damaged(_) | LineFault::Moved => LogFault::Moved,
        LineFault::Io(error) => LogFault::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io};

    use super::{Log, LogFault};
    use crate::journal::dsh::{
        limits::DshLimits,
        lines::ReadAt,
        names::{Encoding, LogName},
    };

    /// A file that becomes another, of the same length, after some reads.
    struct Rolled<'a> {
        before: &'a [u8],
        after: &'a [u8],
        left: Cell<u32>,
    }

    impl ReadAt for Rolled<'_> {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            let left = self.left.get();
            self.left.set(left.saturating_sub(1));
            let now = if left > 0 { self.before } else { self.after };
            now.read_at(buf, offset)
        }

        fn moved(&self) -> io::Result<bool> {
            Ok(self.left.get() == 0)
        }
    }

    fn log(attempt: u32) -> Vec<u8> {
        let rows = (0..4000).map(|seq| {
            format!(
                "{{\"type\":\"e\",\"seq\":{seq},\"time\":1,\"data\":{{\"attempt\":{attempt}}}}}\n"
            )
        });
        let header =
            "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"createdAt\":1}\n".to_owned();
        std::iter::once(header)
            .chain(rows)
            .collect::<String>()
            .into_bytes()
    }

    #[test]
    fn an_append_rolled_back_and_written_anew_between_two_reads_gives_no_mixture() {
        let (first, second) = (log(1), log(2));
        let limits = DshLimits::default();
        let name = LogName {
            version: 3,
            encoding: Encoding::Plain,
        };
        let len = first.len().try_into().unwrap();
        let whole: &[u8] = &first;
        let still = Log {
            file: &whole,
            name,
            len,
            limits: &limits,
        };
        let index = still.index().unwrap();
        let mut mixtures = 0;
        for reads in 1..12 {
            let file = Rolled {
                before: &first,
                after: &second,
                left: Cell::new(reads),
            };
            let moving = Log {
                file: &file,
                ..still
            };
            match moving.index() {
                Err(LogFault::Moved) => mixtures += 1,
                // It changed only after it was read.
                Ok(_) => assert!(file.left.get() > 0, "changed after {reads} reads"),
                Err(other) => panic!("{other:?}"),
            }
            file.left.set(reads);
            match moving.events(&index, 0, 4000) {
                Err(LogFault::Moved) => mixtures += 1,
                Ok(events) => {
                    let one = events
                        .iter()
                        .all(|event| event.data.get() == events[0].data.get());
                    assert!(one, "a mixture after {reads} reads");
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(mixtures > 2, "{mixtures}");
    }
}
