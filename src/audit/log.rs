use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt as _},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{fs::OFlags, io::Errno};
use thiserror::Error;

use super::{
    files::{AuditError, Lines, Trail, failed},
    line::{Event, Head, Record, follows, spell, split},
};
use crate::{
    model::{Clock, Timestamp},
    seal::SealKey,
};

/// The most records that wait to be written.
const QUEUE: usize = 8192;
/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_millis(100);
/// A batch that has been on its way to the disk for longer shows that the disk does not answer.
const PATIENCE: Duration = if cfg!(test) {
    Duration::from_millis(300)
} else {
    Duration::from_secs(5)
};
/// How long after a write that found no room the next is tried.
const AGAIN: Duration = Duration::from_secs(1);
/// How often refusals of nobody known are counted in a line.
const COUNT: Duration = Duration::from_mins(1);
/// A file that is longer gets no more lines; tests do not write as many.
const FILE: u64 = if cfg!(test) { 32 << 10 } else { 16 << 20 };

/// No line can be written, so nothing may be given out.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the audit trail takes no records: {0}")]
pub struct Unavailable(&'static str);

/// Whether lines can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// They can.
    Open = 0,
    /// There was no room for the last ones; it is tried again each second.
    Full = 1,
    /// A flush failed, or the trail is damaged: what is on disk is not known.
    Closed = 2,
}

/// The trail of a data directory, open for records. The last one dropped writes what waits.
#[derive(Debug)]
pub struct Audit {
    shared: Arc<Shared>,
    writer: Mutex<Option<thread::JoinHandle<()>>>,
    trouble: Option<String>,
    /// Where records go that nobody writes, in tests.
    #[cfg(feature = "_seams")]
    is_nowhere: bool,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    standing: AtomicU8,
    unknown: AtomicU64,
    /// When the batch that is being written was taken.
    taken: Mutex<Option<Instant>>,
    head: Mutex<Head>,
    clock: Arc<dyn Clock>,
    #[cfg(feature = "_seams")]
    fault: std::sync::atomic::AtomicI32,
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<(Timestamp, Record)>,
    /// Records that found no place.
    lost: u64,
    ended: bool,
}

impl Audit {
    /// Opens the trail in `data` and cuts half a line off its end. `kept` is where it stood by what was kept
    /// elsewhere. A trail whose end is not what was written, or lies before `kept`, is left as it is and
    /// takes no records; [`Audit::trouble`] says why. Blocks.
    ///
    /// # Errors
    /// [`AuditError::Io`].
    pub fn open(
        data: impl AsFd,
        key: Arc<SealKey>,
        clock: Arc<dyn Clock>,
        kept: Option<Head>,
    ) -> Result<Self, AuditError> {
        let trail = Trail::make(data)?;
        let (writer, cut) = match Writer::open(trail, key, kept) {
            Ok(opened) => opened,
            Err(AuditError::Damaged(why)) => return Ok(Self::closed(clock, why)),
            Err(error) => return Err(error),
        };
        let mut records = VecDeque::new();
        if cut > 0 {
            let record = Record {
                bytes: Some(cut),
                ..Record::of(Event::CutOff)
            };
            records.push_back((clock.now(), record));
        }
        let shared = Arc::new(Shared::new(clock, Standing::Open, writer.head, records));
        let own = Arc::clone(&shared);
        let writer = thread::Builder::new()
            .name("hf-audit".to_owned())
            .spawn(move || writer.run(&own))
            .map_err(failed("starting the audit's thread"))?;
        Ok(Self {
            shared,
            writer: Mutex::new(Some(writer)),
            trouble: None,
            #[cfg(feature = "_seams")]
            is_nowhere: false,
        })
    }

    fn closed(clock: Arc<dyn Clock>, why: String) -> Self {
        let shared = Shared::new(clock, Standing::Closed, Head::NONE, VecDeque::new());
        Self {
            shared: Arc::new(shared),
            writer: Mutex::new(None),
            trouble: Some(why),
            #[cfg(feature = "_seams")]
            is_nowhere: false,
        }
    }

    /// One that forgets its records, for a tool whose every system call counts.
    #[cfg(feature = "_seams")]
    #[must_use]
    pub fn nowhere(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared::new(clock, Standing::Open, Head::NONE, VecDeque::new());
        Self {
            shared: Arc::new(shared),
            writer: Mutex::new(None),
            trouble: None,
            is_nowhere: true,
        }
    }

    #[cfg(feature = "_seams")]
    fn forgets(&self) -> bool {
        self.is_nowhere
    }

    #[cfg(not(feature = "_seams"))]
    #[expect(clippy::unused_self, reason = "a seam that is not there")]
    fn forgets(&self) -> bool {
        false
    }

    /// Why the trail takes no records since it was opened.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Whether lines can be written.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.shared.standing()
    }

    /// Whether something may be given out now.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn ready(&self) -> Result<(), Unavailable> {
        match self.standing() {
            Standing::Open if self.shared.is_stuck() => {
                Err(Unavailable("its disk does not answer"))
            }
            Standing::Open => Ok(()),
            Standing::Full => Err(Unavailable("its disk is full")),
            Standing::Closed => Err(Unavailable("what is on its disk is not known")),
        }
    }

    /// Takes the record without which something may not be given out. It is durable within a second.
    ///
    /// # Errors
    /// [`Unavailable`]: then nothing may be given out.
    pub fn admit(&self, record: Record) -> Result<(), Unavailable> {
        self.ready()?;
        if self.forgets() {
            return Ok(());
        }
        let mut queue = self.shared.queue();
        if queue.records.len() >= QUEUE {
            return Err(Unavailable("too many records wait"));
        }
        queue.records.push_back((self.shared.clock.now(), record));
        drop(queue);
        self.shared.ready.notify_one();
        Ok(())
    }

    /// Takes the record of something that has happened. Where there is no place for it, that it is lost is
    /// recorded later.
    pub fn note(&self, record: Record) {
        if self.forgets() {
            return;
        }
        let mut queue = self.shared.queue();
        if queue.records.len() >= QUEUE || self.standing() == Standing::Closed {
            queue.lost = queue.lost.saturating_add(1);
            return;
        }
        queue.records.push_back((self.shared.clock.now(), record));
        drop(queue);
        self.shared.ready.notify_one();
    }

    /// Counts a refusal of nobody known: a line of each would let anybody fill the disk.
    pub fn count_unknown(&self) {
        self.shared.unknown.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes what waits, and takes no more. Blocks.
    pub fn finish(&self) {
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(writer) = writer else {
            return;
        };
        self.shared.queue().ended = true;
        self.shared.ready.notify_one();
        drop(writer.join());
        self.shared.stand(Standing::Closed);
    }

    /// Where the trail stands, as far as it is durable.
    #[must_use]
    pub fn head(&self) -> Head {
        *self.shared.head()
    }

    /// Makes every write fail with this error number; none for 0, and for -1 each waits until that changes.
    #[cfg(feature = "_seams")]
    pub fn fail_with(&self, errno: i32) {
        self.shared.fault.store(errno, Ordering::Relaxed);
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn new(
        clock: Arc<dyn Clock>,
        standing: Standing,
        head: Head,
        records: VecDeque<(Timestamp, Record)>,
    ) -> Self {
        Self {
            queue: Mutex::new(Queue {
                records,
                ..Queue::default()
            }),
            ready: Condvar::new(),
            standing: AtomicU8::new(standing as u8),
            unknown: AtomicU64::new(0),
            taken: Mutex::new(None),
            head: Mutex::new(head),
            clock,
            #[cfg(feature = "_seams")]
            fault: std::sync::atomic::AtomicI32::new(0),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Acquire) {
            0 => Standing::Open,
            1 => Standing::Full,
            _ => Standing::Closed,
        }
    }

    fn is_stuck(&self) -> bool {
        self.taken().is_some_and(|since| since.elapsed() > PATIENCE)
    }

    fn taken(&self) -> MutexGuard<'_, Option<Instant>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stand(&self, standing: Standing) {
        self.standing.store(standing as u8, Ordering::Release);
    }

    /// What is to be written next, and whether anything may follow; waits for it.
    fn batch(&self, due: Instant) -> (Vec<(Timestamp, Record)>, bool) {
        let mut queue = self.queue();
        while queue.records.is_empty() && !queue.ended {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue = self
                .ready
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if !queue.ended {
            // Others that come meanwhile are written in the same go.
            drop(queue);
            thread::sleep(GATHER);
            queue = self.queue();
        }
        let more = !queue.ended;
        (queue.records.drain(..).collect(), more)
    }

    #[cfg(feature = "_seams")]
    fn seam(&self) -> io::Result<()> {
        // A disk that does not answer.
        while self.fault.load(Ordering::Relaxed) == -1 {
            thread::sleep(Duration::from_millis(1));
        }
        match self.fault.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    #[cfg(not(feature = "_seams"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "a seam that is not there"
    )]
    fn seam(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines, one batch and one flush at a time.
#[derive(Debug)]
struct Writer {
    trail: Trail,
    key: Arc<SealKey>,
    number: u32,
    file: File,
    len: u64,
    head: Head,
}

/// Why a batch was not written.
enum Failure {
    /// Nothing of it is in the file; it can be tried again.
    Full,
    /// What is in the file is not known.
    Lost(io::Error),
}

impl Writer {
    /// Opens the end of the trail; and how many bytes of half a line were cut off.
    fn open(
        trail: Trail,
        key: Arc<SealKey>,
        kept: Option<Head>,
    ) -> Result<(Self, u64), AuditError> {
        let Some(number) = trail.numbers()?.last().copied() else {
            at_least(Head::NONE, kept)?;
            let file = trail.begin(1)?;
            let writer = Self {
                trail,
                key,
                number: 1,
                file,
                len: 0,
                head: Head::NONE,
            };
            return Ok((writer, 0));
        };
        let file = trail.open(number, OFlags::RDWR)?;
        let reading = file
            .try_clone()
            .map_err(failed("opening the audit trail"))?;
        let mut lines = Lines::from(reading, 0)?;
        let damaged = |at: u64| AuditError::Damaged(format!("line {at} of file {number}"));
        let mut head = None;
        let mut at = 0;
        while let Some(line) = lines.next(number)? {
            at += 1;
            let (text, mac) = split(&line).ok_or_else(|| damaged(at))?;
            let placed: serde_json::Value =
                serde_json::from_str(&line).map_err(|_other| damaged(at))?;
            let seq = placed.get("seq").and_then(serde_json::Value::as_u64);
            let seq = seq.ok_or_else(|| damaged(at))?;
            let before = match head {
                Some(before) => before,
                None => first(&placed, seq).ok_or_else(|| damaged(at))?,
            };
            if before.seq.checked_add(1) != Some(seq) || !follows(&key, &before.mac, text, &mac) {
                return Err(damaged(at));
            }
            if kept.is_some_and(|kept| kept.seq == seq && kept.mac != mac) {
                return Err(damaged(at));
            }
            head = Some(Head { seq, mac });
        }
        let (len, torn) = (lines.at, lines.rest);
        let head = match head {
            Some(head) => head,
            // A crash came before its first line: the file before it has the head.
            None if number > 1 => {
                drop(lines);
                trail.remove(number);
                return Self::open(trail, key, kept);
            }
            None => Head::NONE,
        };
        at_least(head, kept)?;
        if torn > 0 {
            rustix::fs::ftruncate(&file, len).map_err(failed("cutting half a line off"))?;
            rustix::fs::fsync(&file).map_err(failed("flushing the audit trail"))?;
        }
        let writer = Self {
            trail,
            key,
            number,
            file,
            len,
            head,
        };
        Ok((writer, torn))
    }

    fn run(mut self, shared: &Shared) {
        let mut waiting: Vec<(Timestamp, Record)> = Vec::new();
        let mut counted = Instant::now();
        loop {
            let due = if waiting.is_empty() { COUNT } else { AGAIN };
            let (batch, more) = shared.batch(Instant::now() + due);
            waiting.extend(batch);
            let is_due = counted.elapsed() >= COUNT || !more;
            if is_due {
                counted = Instant::now();
                let times = shared.unknown.swap(0, Ordering::Relaxed);
                if times > 0 {
                    let record = Record {
                        times: Some(times),
                        ..Record::of(Event::RefusedUnknown)
                    };
                    waiting.push((shared.clock.now(), record));
                }
            }
            if waiting.is_empty() {
                if more {
                    continue;
                }
                return;
            }
            *shared.taken() = Some(Instant::now());
            let written = self.write(shared, &waiting);
            *shared.taken() = None;
            match written {
                Ok(()) => {
                    waiting.clear();
                    *shared.head() = self.head;
                    if shared.standing() == Standing::Full {
                        shared.stand(Standing::Open);
                        tracing::info!("the audit trail takes records again");
                    }
                    let lost = std::mem::take(&mut shared.queue().lost);
                    if lost > 0 {
                        let record = Record {
                            times: Some(lost),
                            ..Record::of(Event::Resumed)
                        };
                        waiting.push((shared.clock.now(), record));
                    }
                }
                Err(Failure::Full) => {
                    if shared.standing() == Standing::Open {
                        shared.stand(Standing::Full);
                        tracing::error!(
                            "there is no room for the audit trail: nothing is given out until there is"
                        );
                    }
                    self.keep_within(shared, &mut waiting);
                    if more {
                        thread::sleep(AGAIN);
                    }
                }
                Err(Failure::Lost(error)) => {
                    shared.stand(Standing::Closed);
                    tracing::error!(
                        %error,
                        "the audit trail could not be flushed: nothing is given out until the next start"
                    );
                    return;
                }
            }
            if !more && waiting.is_empty() {
                return;
            }
            if !more && shared.standing() == Standing::Full {
                tracing::error!(lost = waiting.len(), "records of the audit trail are lost");
                return;
            }
        }
    }

    /// What waits for room is bounded like what waits to be written.
    #[expect(clippy::unused_self, reason = "a step of the writer")]
    fn keep_within(&self, shared: &Shared, waiting: &mut Vec<(Timestamp, Record)>) {
        let over = waiting.len().saturating_sub(QUEUE);
        if over > 0 {
            waiting.truncate(QUEUE);
            let over = u64::try_from(over).unwrap_or(u64::MAX);
            let mut queue = shared.queue();
            queue.lost = queue.lost.saturating_add(over);
        }
    }

    /// Writes a batch and flushes it; all of it or nothing.
    fn write(&mut self, shared: &Shared, batch: &[(Timestamp, Record)]) -> Result<(), Failure> {
        if self.len >= FILE {
            self.next_file()?;
        }
        let (mut text, mut head) = (String::new(), self.head);
        if self.len == 0
            && let Some((time, _)) = batch.first()
        {
            let (line, next) = spell(&self.key, head, *time, &Record::of(Event::Begins));
            text.push_str(&line);
            head = next;
        }
        for (time, record) in batch {
            let (line, next) = spell(&self.key, head, *time, record);
            text.push_str(&line);
            head = next;
        }
        let written = shared
            .seam()
            .and_then(|()| self.file.write_all_at(text.as_bytes(), self.len));
        if let Err(error) = written {
            // What is half there goes, or the file is not known any more.
            rustix::fs::ftruncate(&self.file, self.len)
                .map_err(|errno| Failure::Lost(errno.into()))?;
            return Err(match Errno::from_io_error(&error) {
                Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Failure::Full,
                _ => Failure::Lost(error),
            });
        }
        rustix::fs::fdatasync(&self.file).map_err(|errno| Failure::Lost(errno.into()))?;
        self.len = self
            .len
            .saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        self.head = head;
        Ok(())
    }

    fn next_file(&mut self) -> Result<(), Failure> {
        let number = self.number.saturating_add(1);
        let file = self.trail.begin(number).map_err(|error| match error {
            AuditError::Io { source, .. }
                if matches!(
                    Errno::from_io_error(&source),
                    Some(Errno::NOSPC | Errno::DQUOT)
                ) =>
            {
                self.trail.remove(number);
                Failure::Full
            }
            AuditError::Io { source, .. } => Failure::Lost(source),
            AuditError::Damaged(why) => Failure::Lost(io::Error::other(why)),
        })?;
        (self.number, self.file, self.len) = (number, file, 0);
        Ok(())
    }
}

/// Where the trail stood before the first line of a file.
fn first(placed: &serde_json::Value, seq: u64) -> Option<Head> {
    let prev = placed.get("prev").and_then(serde_json::Value::as_str)?;
    Some(Head {
        seq: seq.checked_sub(1)?,
        mac: super::line::mac_of(prev)?,
    })
}

fn at_least(head: Head, kept: Option<Head>) -> Result<(), AuditError> {
    match kept {
        Some(kept) if kept.seq > head.seq => Err(AuditError::Damaged(format!(
            "it ends at line {} and was at {} before",
            head.seq, kept.seq
        ))),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, path::PathBuf, sync::Arc};

    use super::{Audit, Standing};
    use crate::{
        audit::{Event, Found, Head, Record, Trail, verify},
        model::{ManualClock, Timestamp},
        seal::SealKey,
    };

    struct Place(tempfile::TempDir);

    #[expect(clippy::disallowed_methods, reason = "a test directory")]
    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn dir(&self) -> File {
            File::open(self.0.path()).unwrap()
        }

        fn open(&self, kept: Option<Head>) -> Audit {
            let key = Arc::new(SealKey::new([1; 32]));
            let clock = Arc::new(ManualClock::new(Timestamp::from_millis(5)));
            Audit::open(self.dir(), key, clock, kept).unwrap()
        }

        /// A trail of so many records.
        fn with(records: u64) -> (Self, Head) {
            let place = Self::new();
            let head = place.record(records);
            (place, head)
        }

        fn record(&self, records: u64) -> Head {
            let audit = self.open(None);
            for n in 0..records {
                let record = Record {
                    bytes: Some(n),
                    ..Record::of(Event::Sent)
                };
                audit.admit(record).unwrap();
            }
            drop(audit);
            self.found(None).head
        }

        fn found(&self, expected: Option<Head>) -> Found {
            let trail = Trail::read(self.dir()).unwrap().unwrap();
            verify(&trail, &SealKey::new([1; 32]), expected).unwrap()
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("audit/000001.jsonl")
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.file()).unwrap()
        }

        fn write(&self, text: &str) {
            std::fs::write(self.file(), text).unwrap();
        }
    }

    #[test]
    fn a_trail_goes_on_over_restarts_and_is_whole() {
        let (place, head) = Place::with(3);
        assert_eq!(head.seq, 4, "a file begins with a line of its own");
        let later = place.record(2);
        let found = place.found(Some(head));
        assert_eq!((later.seq, found.lines, found.fault), (6, 6, None));
        assert!(Head::parse(&head.text()) == Some(head));
    }

    #[test]
    fn a_line_edited_left_out_moved_or_added_is_found() {
        let (place, head) = Place::with(5);
        let whole = place.text();
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        let joined = |order: &[usize]| -> String { order.iter().map(|n| lines[*n]).collect() };
        for (what, text, at) in [
            ("edited", whole.replace("\"bytes\":2", "\"bytes\":7"), 4),
            ("left out", joined(&[0, 1, 3, 4, 5]), 3),
            ("moved", joined(&[0, 2, 1, 3, 4, 5]), 2),
            ("added", joined(&[0, 1, 1, 2, 3, 4, 5]), 3),
            ("its start gone", joined(&[1, 2, 3, 4, 5]), 1),
            (
                "sealed by another",
                whole.replace("\"mac\":\"", "\"mac\":\"0"),
                1,
            ),
        ] {
            place.write(&text);
            let fault = place.found(None).fault;
            assert_eq!(fault.map(|fault| fault.line), Some(at), "{what}");
            let audit = place.open(None);
            assert_eq!(audit.standing(), Standing::Closed, "{what}");
            assert!(
                audit.trouble().is_some() && audit.ready().is_err(),
                "{what}"
            );
            drop(audit);
            assert_eq!(place.text(), text, "{what}: it is left as it is");
        }
        // A cut end looks whole, but for what was kept elsewhere.
        place.write(&joined(&[0, 1, 2]));
        assert_eq!(place.found(None).fault, None);
        assert!(place.found(Some(head)).fault.is_some());
        assert_eq!(place.open(Some(head)).standing(), Standing::Closed);
    }

    #[test]
    fn half_a_line_is_cut_off_at_the_next_start_which_says_so() {
        for half in [&b"{\"seq\":9,\"ti"[..], &[0; 9000], b"\0\0\n{}\n"] {
            let (place, head) = Place::with(2);
            #[expect(clippy::disallowed_methods, reason = "a test directory")]
            let mut file = File::options().append(true).open(place.file()).unwrap();
            file.write_all(half).unwrap();
            let found = place.found(None);
            assert_eq!(found.fault, None);
            assert_eq!(found.torn, u64::try_from(half.len()).unwrap());
            drop(place.open(Some(head)));
            let found = place.found(Some(head));
            assert_eq!((found.torn, found.head.seq), (0, head.seq + 1));
            let said = format!("\"event\":\"cut-off\",\"bytes\":{}", half.len());
            assert!(place.text().contains(&said), "{}", place.text());
        }
    }

    #[cfg(feature = "_seams")]
    #[test]
    fn without_room_nothing_is_admitted_until_there_is_some() {
        use std::time::{Duration, Instant};

        let (place, _) = Place::with(1);
        let audit = place.open(None);
        let until = |standing| {
            let begun = Instant::now();
            while audit.standing() != standing {
                assert!(begun.elapsed() < Duration::from_secs(20), "{standing:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        audit.fail_with(rustix::io::Errno::NOSPC.raw_os_error());
        audit.admit(Record::of(Event::Sending)).unwrap();
        until(Standing::Full);
        assert!(audit.admit(Record::of(Event::Sending)).is_err());
        audit.note(Record::of(Event::Aborted));
        audit.fail_with(0);
        until(Standing::Open);
        audit.admit(Record::of(Event::Sent)).unwrap();
        drop(audit);
        let text = place.text();
        for event in ["sending", "aborted", "sent"] {
            assert!(text.contains(&format!("\"event\":\"{event}\"")), "{text}");
        }
        assert_eq!(place.found(None).fault, None);
    }

    #[cfg(feature = "_seams")]
    #[test]
    fn while_its_disk_does_not_answer_nothing_is_admitted() {
        let (place, _) = Place::with(1);
        let audit = place.open(None);
        audit.fail_with(-1);
        audit.admit(Record::of(Event::Sending)).unwrap();
        let begun = std::time::Instant::now();
        while audit.admit(Record::of(Event::Sending)).is_ok() {
            let elapsed = begun.elapsed();
            assert!(elapsed < std::time::Duration::from_secs(20), "{elapsed:?}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        audit.fail_with(0);
        while audit.ready().is_err() {
            std::thread::yield_now();
        }
        audit.admit(Record::of(Event::Sent)).unwrap();
        drop(audit);
        assert_eq!(place.found(None).fault, None);
    }

    #[cfg(feature = "_seams")]
    #[test]
    fn after_a_write_that_failed_nothing_is_admitted_until_the_next_start() {
        let (place, head) = Place::with(1);
        let audit = place.open(None);
        audit.fail_with(rustix::io::Errno::IO.raw_os_error());
        audit.admit(Record::of(Event::Sending)).unwrap();
        while audit.standing() == Standing::Open {
            std::thread::yield_now();
        }
        audit.fail_with(0);
        assert_eq!(audit.standing(), Standing::Closed);
        assert!(audit.admit(Record::of(Event::Sending)).is_err());
        drop(audit);
        assert_eq!(place.found(None).head, head);
        assert_eq!(place.open(Some(head)).standing(), Standing::Open);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test directory")]
    fn a_long_trail_goes_on_in_another_file_that_names_the_seal_before_it() {
        let (place, _) = Place::with(300);
        let head = place.record(300);
        let found = place.found(Some(head));
        assert_eq!((found.lines, found.fault), (602, None));
        let trail = Trail::read(place.dir()).unwrap().unwrap();
        let (last, end) = trail.last(400).unwrap();
        assert_eq!((last.len(), end.unwrap().0), (400, 2));
        let mut all = 0;
        trail
            .lines(None, |_| {
                all += 1;
                true
            })
            .unwrap();
        assert_eq!(all, found.lines);
        // Where the first file was taken away the rest is known to begin later.
        std::fs::remove_file(place.file()).unwrap();
        let rest = place.found(Some(head));
        assert!(rest.first > 300 && rest.fault.is_none(), "{rest:?}");
        let second = place.0.path().join("audit/000002.jsonl");
        std::fs::rename(&second, place.file()).unwrap();
        std::fs::write(&second, "").unwrap();
        let audit = place.open(Some(head));
        assert_eq!(
            audit.standing(),
            Standing::Open,
            "an empty last file is one a crash left"
        );
    }
}
