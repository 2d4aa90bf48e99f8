use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::sync::Notify;

use crate::model::{Moment, PrincipalId, Seq, SessionHandle, StreamHandle};

/// How long the frames of a principal without a stream are kept for one that comes back.
const RETURN: Duration = Duration::from_mins(2);

/// The bounds of a hub.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most frames that wait for one reader, or are kept for one that comes back.
    pub frames: usize,
    /// The most bytes of them.
    pub bytes: usize,
    /// The most streams of one principal.
    pub streams: usize,
    /// The most principals frames are kept for.
    pub principals: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            frames: 2048,
            bytes: 8 << 20,
            streams: 16,
            principals: 4096,
        }
    }
}

/// One frame, written once and read by many.
#[derive(Debug)]
pub struct Frame {
    /// Its type.
    pub event: &'static str,
    /// Its JSON.
    pub data: String,
    /// The place in a log it shows, so that it is not shown twice.
    pub place: Option<(SessionHandle, Seq)>,
}

/// The last frame a reader says it has seen: the run, and the number in the principal's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastId {
    /// The run of the service.
    pub generation: u64,
    /// The number.
    pub number: u64,
}

impl LastId {
    /// Reads `generation.number`. The text is hostile: anything else is nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |part: &str| {
            let digits = (1..=20).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        let (generation, number) = text.split_once('.')?;
        Some(Self {
            generation: plain(generation)?,
            number: plain(number)?,
        })
    }
}

/// What an opened stream starts from.
#[derive(Debug)]
pub struct Opened {
    /// Wakes its reader.
    pub wake: Arc<Notify>,
    /// The number before its first live frame.
    pub number: u64,
    /// Whether it goes on exactly after the frame its reader has seen.
    pub resumed: bool,
}

/// What a reader finds.
#[derive(Clone, Debug)]
pub enum Next {
    /// A frame and its number.
    Frame(u64, Arc<Frame>),
    /// Nothing yet.
    Wait,
    /// It was too slow: its frames are gone, and so is the stream.
    Lost,
    /// The stream was ended.
    Ended,
}

/// A principal has as many streams as it may have, or the service has.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("no room for another stream")]
pub struct TooManyStreams;

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<(u64, Arc<Frame>)>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, number: u64, frame: Arc<Frame>) {
        self.bytes = self.bytes.saturating_add(frame.data.len());
        self.frames.push_back((number, frame));
    }

    fn pop(&mut self) -> Option<(u64, Arc<Frame>)> {
        let next = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(next.1.data.len());
        Some(next)
    }

    fn is_over(&self, bounds: &Bounds) -> bool {
        self.frames.len() > bounds.frames || self.bytes > bounds.bytes
    }
}

#[derive(Debug)]
struct Reader {
    queue: Queue,
    wake: Arc<Notify>,
    /// The last number it was handed.
    handed: u64,
    /// The number it began after.
    begun: u64,
    lost: bool,
}

#[derive(Debug)]
struct Row {
    number: u64,
    kept: Queue,
    readers: HashMap<StreamHandle, Reader>,
    left: Moment,
}

/// Every open stream and what waits for it.
#[derive(Debug)]
pub struct Hub {
    bounds: Bounds,
    generation: u64,
    rows: HashMap<PrincipalId, Row>,
    ended: bool,
}

impl Hub {
    /// A hub of this run.
    #[must_use]
    pub fn new(generation: u64, bounds: Bounds) -> Self {
        Self {
            bounds,
            generation,
            rows: HashMap::new(),
            ended: false,
        }
    }

    /// Whether anybody of `audience` would get a frame.
    #[must_use]
    pub fn has_any(&self, audience: &[PrincipalId]) -> bool {
        audience.iter().any(|who| self.rows.contains_key(who))
    }

    /// Hands a frame to every stream of `audience`.
    pub fn publish(&mut self, audience: &[PrincipalId], frame: Frame) {
        let frame = Arc::new(frame);
        let bounds = self.bounds;
        for (at, who) in audience.iter().enumerate() {
            if audience.iter().take(at).any(|earlier| earlier == who) {
                continue;
            }
            let Some(row) = self.rows.get_mut(who) else {
                continue;
            };
            row.number = row.number.saturating_add(1);
            for reader in row.readers.values_mut() {
                if !reader.lost {
                    reader.queue.push(row.number, Arc::clone(&frame));
                    if reader.queue.is_over(&bounds) {
                        reader.lost = true;
                        reader.queue = Queue::default();
                    }
                    reader.wake.notify_one();
                }
            }
            row.kept.push(row.number, Arc::clone(&frame));
            while row.kept.is_over(&bounds) {
                row.kept.pop();
            }
        }
    }

    /// Opens a stream of `who`; with `last`, after that frame if everything since is still here. A row
    /// begins at `drawn`, a random number, so that an id of a row that is gone fits no later one.
    ///
    /// # Errors
    /// [`TooManyStreams`].
    pub fn open(
        &mut self,
        stream: StreamHandle,
        who: PrincipalId,
        last: Option<LastId>,
        drawn: u32,
        now: Moment,
    ) -> Result<Opened, TooManyStreams> {
        self.forget(now);
        let full = self.rows.len() >= self.bounds.principals && !self.rows.contains_key(&who);
        if self.ended || full {
            return Err(TooManyStreams);
        }
        let row = self.rows.entry(who).or_insert_with(|| Row {
            number: u64::from(drawn),
            kept: Queue::default(),
            readers: HashMap::new(),
            left: now,
        });
        if row.readers.len() >= self.bounds.streams {
            return Err(TooManyStreams);
        }
        let oldest = row
            .kept
            .frames
            .front()
            .map_or(row.number, |(first, _)| first.saturating_sub(1));
        let resumed = last.filter(|last| {
            last.generation == self.generation && (oldest..=row.number).contains(&last.number)
        });
        let begun = resumed.map_or(row.number, |last| last.number);
        let mut queue = Queue::default();
        for (number, frame) in row.kept.frames.iter().filter(|(number, _)| *number > begun) {
            queue.push(*number, Arc::clone(frame));
        }
        let wake = Arc::new(Notify::new());
        let reader = Reader {
            queue,
            wake: Arc::clone(&wake),
            handed: begun,
            begun,
            lost: false,
        };
        row.readers.insert(stream, reader);
        Ok(Opened {
            wake,
            number: begun,
            resumed: resumed.is_some(),
        })
    }

    /// What the stream's reader is to be sent next.
    pub fn next(&mut self, stream: StreamHandle, who: PrincipalId) -> Next {
        let row = self.rows.get_mut(&who);
        let Some(reader) = row.and_then(|row| row.readers.get_mut(&stream)) else {
            return Next::Ended;
        };
        if reader.lost {
            return Next::Lost;
        }
        match reader.queue.pop() {
            Some((number, frame)) => {
                reader.handed = number;
                Next::Frame(number, frame)
            }
            None if self.ended => Next::Ended,
            None => Next::Wait,
        }
    }

    /// Whether `last` is a frame this very stream was handed: what only somebody who reads it knows.
    #[must_use]
    pub fn was_handed(&self, stream: StreamHandle, who: PrincipalId, last: LastId) -> bool {
        let row = self.rows.get(&who);
        row.and_then(|row| row.readers.get(&stream))
            .is_some_and(|reader| {
                last.generation == self.generation
                    && (reader.begun..=reader.handed).contains(&last.number)
            })
    }

    /// Whether the stream is open and `who`'s.
    #[must_use]
    pub fn is_open(&self, stream: StreamHandle, who: PrincipalId) -> bool {
        let row = self.rows.get(&who);
        row.is_some_and(|row| row.readers.contains_key(&stream))
    }

    /// The number of the principal's last frame; 0 without a row.
    #[must_use]
    pub fn number(&self, who: PrincipalId) -> u64 {
        self.rows.get(&who).map_or(0, |row| row.number)
    }

    /// Ends a stream.
    pub fn close(&mut self, stream: StreamHandle, who: PrincipalId, now: Moment) {
        if let Some(row) = self.rows.get_mut(&who) {
            if let Some(reader) = row.readers.remove(&stream) {
                reader.wake.notify_one();
            }
            row.left = now;
        }
    }

    /// Opens no more streams, and ends each once its reader has what waits for it.
    pub fn end(&mut self) {
        self.ended = true;
        for reader in self.rows.values().flat_map(|row| row.readers.values()) {
            reader.wake.notify_one();
        }
    }

    /// Drops the rows nobody came back for.
    fn forget(&mut self, now: Moment) {
        self.rows
            .retain(|_, row| !row.readers.is_empty() || now < row.left.after(RETURN));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Bounds, Frame, Hub, LastId, Next, TooManyStreams};
    use crate::model::{Moment, PrincipalId, StreamHandle};

    const ALICE: PrincipalId = PrincipalId::from_random([1; 16]);
    const BOB: PrincipalId = PrincipalId::from_random([2; 16]);
    const BEGIN: Moment = Moment::new(Duration::ZERO);

    fn stream(n: u8) -> StreamHandle {
        StreamHandle::from_random([n; 16])
    }

    fn frame(data: &str) -> Frame {
        Frame {
            event: "session/event",
            data: data.to_owned(),
            place: None,
        }
    }

    fn hub() -> Hub {
        Hub::new(
            7,
            Bounds {
                frames: 4,
                bytes: 1000,
                streams: 2,
                principals: 2,
            },
        )
    }

    fn drain(hub: &mut Hub, n: u8, who: PrincipalId) -> Vec<(u64, String)> {
        let mut all = Vec::new();
        while let Next::Frame(number, frame) = hub.next(stream(n), who) {
            all.push((number, frame.data.clone()));
        }
        all
    }

    /// Keeps I11.
    #[test]
    fn mx_08_a_reader_that_stops_loses_its_stream_and_costs_nobody_else() {
        let mut hub = hub();
        hub.open(stream(1), ALICE, None, 100_000, BEGIN).unwrap();
        hub.open(stream(2), ALICE, None, 100_000, BEGIN).unwrap();
        let mut read = 0;
        for n in 0..1_000_000 {
            hub.publish(&[ALICE], frame(&n.to_string()));
            read += drain(&mut hub, 2, ALICE).len();
        }
        assert_eq!(read, 1_000_000);
        assert!(matches!(hub.next(stream(1), ALICE), Next::Lost));
        let row = &hub.rows[&ALICE];
        assert!(row.kept.frames.len() <= 4);
        assert!(row.readers[&stream(1)].queue.frames.is_empty());
    }

    #[test]
    fn bytes_are_bounded_like_frames() {
        let mut hub = hub();
        hub.open(stream(1), ALICE, None, 100_000, BEGIN).unwrap();
        hub.publish(&[ALICE], frame(&"x".repeat(600)));
        hub.publish(&[ALICE], frame(&"x".repeat(600)));
        assert!(matches!(hub.next(stream(1), ALICE), Next::Lost));
    }

    #[test]
    fn a_reader_that_comes_back_goes_on_where_it_was() {
        let mut hub = hub();
        hub.open(stream(1), ALICE, None, 100_000, BEGIN).unwrap();
        for n in 0..3 {
            hub.publish(&[ALICE], frame(&n.to_string()));
        }
        let seen = drain(&mut hub, 1, ALICE);
        hub.close(stream(1), ALICE, BEGIN);
        hub.publish(&[ALICE], frame("3"));
        let number = seen[1].0;
        let last = Some(LastId {
            generation: 7,
            number,
        });
        let opened = hub.open(stream(2), ALICE, last, 100_000, BEGIN).unwrap();
        assert!(opened.resumed);
        let texts: Vec<String> = drain(&mut hub, 2, ALICE)
            .into_iter()
            .map(|(_, data)| data)
            .collect();
        assert_eq!(texts, ["2", "3"]);
    }

    /// Keeps I14: what another saw, and what an earlier row counted, fits nothing.
    #[test]
    fn mx_10_a_last_id_that_is_not_ours_starts_anew() {
        let mut hub = hub();
        let opened = hub.open(stream(1), ALICE, None, 100_000, BEGIN).unwrap();
        hub.open(stream(3), BOB, None, 500_000, BEGIN).unwrap();
        for n in 0..9 {
            hub.publish(&[ALICE], frame(&n.to_string()));
        }
        let number = opened.number;
        for last in [
            LastId {
                generation: 6,
                number: number + 9,
            },
            LastId {
                generation: 7,
                number: number + 10,
            },
            LastId {
                generation: 7,
                number,
            },
            LastId {
                generation: 7,
                number: 0,
            },
            LastId {
                generation: 7,
                number: u64::MAX,
            },
        ] {
            hub.close(stream(2), ALICE, BEGIN);
            let opened = hub
                .open(stream(2), ALICE, Some(last), 100_000, BEGIN)
                .unwrap();
            assert!(!opened.resumed, "{last:?}");
        }
        let last = Some(LastId {
            generation: 7,
            number: number + 9,
        });
        assert!(
            !hub.open(stream(4), BOB, last, 100_000, BEGIN)
                .unwrap()
                .resumed
        );
        // Gone and made anew: old numbers are of no row.
        hub.close(stream(1), ALICE, BEGIN);
        hub.close(stream(2), ALICE, BEGIN);
        let later = BEGIN.after(Duration::from_hours(1));
        assert!(
            !hub.open(stream(5), ALICE, last, 900_000, later)
                .unwrap()
                .resumed
        );
        for text in [
            "",
            ".",
            "7",
            "7.-1",
            "-7.1",
            "7.1.1",
            "7. 1",
            "+7.1",
            &"9".repeat(1 << 20),
        ] {
            assert_eq!(LastId::parse(text), None);
        }
        assert_eq!(
            LastId::parse("7.12"),
            Some(LastId {
                generation: 7,
                number: 12
            })
        );
    }

    #[test]
    fn streams_and_principals_are_bounded_and_an_ended_hub_opens_none() {
        let mut hub = hub();
        hub.open(stream(1), ALICE, None, 100_000, BEGIN).unwrap();
        hub.open(stream(2), ALICE, None, 100_000, BEGIN).unwrap();
        assert_eq!(
            hub.open(stream(3), ALICE, None, 100_000, BEGIN)
                .unwrap_err(),
            TooManyStreams
        );
        hub.open(stream(4), BOB, None, 100_000, BEGIN).unwrap();
        let third = PrincipalId::from_random([3; 16]);
        assert_eq!(
            hub.open(stream(5), third, None, 100_000, BEGIN)
                .unwrap_err(),
            TooManyStreams
        );
        hub.end();
        assert!(matches!(hub.next(stream(1), ALICE), Next::Ended));
        assert!(hub.open(stream(6), BOB, None, 100_000, BEGIN).is_err());
    }

    /// Only somebody who reads knows what was handed over.
    #[test]
    fn an_acknowledgement_names_a_frame_of_this_stream() {
        let mut hub = hub();
        let number = hub
            .open(stream(1), ALICE, None, 100_000, BEGIN)
            .unwrap()
            .number;
        let at = |number| LastId {
            generation: 7,
            number,
        };
        assert!(hub.was_handed(stream(1), ALICE, at(number)));
        hub.publish(&[ALICE], frame("x"));
        assert!(
            !hub.was_handed(stream(1), ALICE, at(number + 1)),
            "not handed over yet"
        );
        drain(&mut hub, 1, ALICE);
        assert!(hub.was_handed(stream(1), ALICE, at(number + 1)));
        assert!(!hub.was_handed(stream(1), BOB, at(number + 1)));
        assert!(!hub.was_handed(stream(2), ALICE, at(number + 1)));
        assert!(!hub.was_handed(
            stream(1),
            ALICE,
            LastId {
                generation: 6,
                number
            }
        ));
    }
}
