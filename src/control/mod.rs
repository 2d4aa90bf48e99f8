//! The SQLite database: sessions, principals, references, uploads and everything else that must be
//! exact.
//!
//! Promises: a write is answered after its commit and its line in the heads log were flushed (I5);
//! it is there whole or not at all (I12); a database that went back in time is noticed at start and
//! never written to; after a failed flush nothing more is taken. Many waiting writes share one
//! commit, and one that fails or panics spoils no other. Leaves to others: what the tables mean.
//!
//! The files are `db`, `db-wal`, `db-shm` and `heads.log` in the journal directory;
//! docs/journal-format.md describes them.

#![forbid(unsafe_code)]

mod cache;
mod error;
mod heads;
mod once;
mod open;
mod readers;
mod schema;
mod seam;
mod writer;

use std::{
    fmt,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

pub(crate) use cache::Cache;
pub use error::ControlError;
pub use heads::Position;
pub use once::Recalled;
pub use rusqlite;
use rusqlite::Connection;
use seam::Seam;
#[cfg(feature = "_seams")]
pub use seam::Step;
pub use writer::Tx;
use writer::{FIRST_FOLD, Op, Waiting, Writer};

use crate::model::{Clock, Timestamp};

/// The most writes that wait; one more is refused.
const QUEUE: usize = 1024;
/// The most writes that share a commit.
const BATCH: usize = 256;

/// The open database.
///
/// Dropping it waits for the writes already taken and leaves an empty write-ahead log behind.
pub struct Control {
    writer: Way,
    readers: readers::Readers,
    standing: Arc<Standing>,
    clock: Arc<dyn Clock>,
}

/// How writes reach the writer.
enum Way {
    /// Opened for reading only.
    None,
    /// On the caller's thread.
    Inline(Box<Mutex<Writer>>),
    /// To its own thread.
    Thread {
        queue: Option<SyncSender<Box<dyn Op>>>,
        thread: Option<JoinHandle<()>>,
    },
}

impl Control {
    /// Opens the database in `journal_dir`, making it when there is none.
    ///
    /// A database that disagrees with its heads log is opened for reading only:
    /// [`Control::standing`] says what was found, and every write answers
    /// [`ControlError::ReadOnly`]. Blocks. The caller holds the data directory's lock, so that no
    /// other process has it open.
    ///
    /// # Errors
    /// [`ControlError::Damaged`] when there is nothing to read: the database is missing, empty or no
    /// database while the heads log knows of one; [`ControlError::Newer`] when a later version wrote
    /// it; otherwise as SQLite and the system fail.
    pub fn open(journal_dir: impl AsFd, clock: Arc<dyn Clock>) -> Result<Self, ControlError> {
        Self::open_threaded(journal_dir, clock, Seam::default(), QUEUE)
    }

    /// As [`Control::open`], but writes run on the thread that asks, one batch each: the same code
    /// without a second thread, for tools that are killed at every system call.
    ///
    /// # Errors
    /// As [`Control::open`].
    pub fn open_inline(
        journal_dir: impl AsFd,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ControlError> {
        Self::open_with(journal_dir, clock, Seam::default(), |writer| {
            Ok(Way::Inline(Box::new(Mutex::new(writer))))
        })
    }

    /// As [`Control::open`], calling `seam` at each [`Step`] of every commit; an error it returns
    /// takes the place of the step.
    ///
    /// # Errors
    /// As [`Control::open`].
    #[cfg(feature = "_seams")]
    pub fn open_with_seam(
        journal_dir: impl AsFd,
        clock: Arc<dyn Clock>,
        seam: impl Fn(Step) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self, ControlError> {
        Self::open_threaded(journal_dir, clock, Seam::new(seam), QUEUE)
    }

    fn open_threaded(
        journal_dir: impl AsFd,
        clock: Arc<dyn Clock>,
        seam: Seam,
        queue: usize,
    ) -> Result<Self, ControlError> {
        Self::open_with(journal_dir, clock, seam, |writer| {
            let (queue, ops) = sync_channel(queue);
            let thread = std::thread::Builder::new()
                .name("control-writer".to_owned())
                .spawn(move || serve(writer, &ops))
                .map_err(|error| ControlError::from_io("starting the writer thread", error))?;
            Ok(Way::Thread {
                queue: Some(queue),
                thread: Some(thread),
            })
        })
    }

    fn open_with(
        journal_dir: impl AsFd,
        clock: Arc<dyn Clock>,
        seam: Seam,
        way: impl FnOnce(Writer) -> Result<Way, ControlError>,
    ) -> Result<Self, ControlError> {
        let dir = open::own_dir(journal_dir)?;
        let opened = open::open(&dir)?;
        let standing = Arc::new(Standing::default());
        let writer = match opened.write {
            Ok((conn, heads)) => way(Writer {
                conn,
                dir,
                heads,
                position: opened.position,
                standing: Arc::clone(&standing),
                clock: Arc::clone(&clock),
                seam,
                fold_at: FIRST_FOLD,
            })?,
            Err(damage) => {
                standing.set(State::ReadOnly(damage.into()));
                Way::None
            }
        };
        Ok(Self {
            writer,
            readers: readers::Readers::new(opened.path),
            standing,
            clock,
        })
    }

    /// Runs `work` in a transaction and returns its value after the commit is durable. Blocks.
    ///
    /// `work` runs once, on the writer's thread, in a savepoint of its own: an error or a panic
    /// undoes it and nothing else. It sees what earlier writes of the same commit did. It must not
    /// call [`Control::write`] again.
    ///
    /// # Errors
    /// Whatever `work` returns; [`ControlError::Busy`] when too many writes wait;
    /// [`ControlError::Full`] when there was no room, nothing of the write remains and later ones
    /// are taken; [`ControlError::NotDurable`] when the commit or a flush failed now or earlier: the
    /// write may show up after the database is reopened; [`ControlError::ReadOnly`] as described at
    /// [`Control::open`]; [`ControlError::Panicked`].
    pub fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<ControlError> + Send + 'static,
    {
        self.standing.writable()?;
        let (answer, answered) = sync_channel(1);
        let op: Box<dyn Op> = Box::new(Waiting::new(work, answer));
        match &self.writer {
            Way::None => return Err(ControlError::NotDurable.into()),
            Way::Inline(writer) => writer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .batch(vec![op]),
            Way::Thread { queue, .. } => match queue.as_ref().map(|queue| queue.try_send(op)) {
                Some(Ok(())) => {}
                Some(Err(TrySendError::Full(_))) => return Err(ControlError::Busy.into()),
                Some(Err(TrySendError::Disconnected(_))) | None => {
                    return Err(ControlError::NotDurable.into());
                }
            },
        }
        answered
            .recv()
            .unwrap_or_else(|_gone| Err(ControlError::NotDurable.into()))
    }

    /// Runs `query` on a read-only connection, which sees one state of the database throughout.
    /// Blocks.
    ///
    /// # Errors
    /// Whatever `query` returns; [`ControlError::Busy`] when no connection became free in time.
    pub fn read<T, E: From<ControlError>>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.readers.read(query)
    }

    /// Whether writes are taken now.
    ///
    /// # Errors
    /// Why not: [`ControlError::ReadOnly`] or [`ControlError::NotDurable`].
    pub fn standing(&self) -> Result<(), ControlError> {
        self.standing.writable()
    }

    /// What went wrong when writes are no longer taken, for the log and the operator.
    #[must_use]
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.standing.trouble()
    }

    /// The present moment, by the clock the database was opened with.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Way::Thread { queue, thread } = &mut self.writer {
            drop(queue.take());
            // A writer that panicked has nothing more to say: its callers were told.
            drop(thread.take().map(JoinHandle::join));
        }
    }
}

/// Takes whatever waits, up to a bound, as one batch; ends when the last sender has gone.
fn serve(mut writer: Writer, ops: &Receiver<Box<dyn Op>>) {
    while let Ok(first) = ops.recv() {
        let mut batch = vec![first];
        batch.extend(ops.try_iter().take(BATCH - 1));
        writer.batch(batch);
    }
}

/// Whether writes are taken, shared by those who ask and the one who writes.
#[derive(Debug, Default)]
struct Standing(Mutex<State>);

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Open,
    /// Found so at start.
    ReadOnly(Arc<str>),
    /// A flush failed since.
    Closed(Arc<str>),
}

impl Standing {
    fn get(&self) -> State {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn close(&self, why: String) {
        self.set(State::Closed(why.into()));
    }

    fn writable(&self) -> Result<(), ControlError> {
        match self.get() {
            State::Open => Ok(()),
            State::ReadOnly(damage) => Err(ControlError::ReadOnly(damage)),
            State::Closed(_) => Err(ControlError::NotDurable),
        }
    }

    fn trouble(&self) -> Option<Arc<str>> {
        match self.get() {
            State::Open => None,
            State::ReadOnly(why) | State::Closed(why) => Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd, sync::Arc};

    use super::{Control, ControlError, Position, Seam, sync_channel};
    use crate::model::{Digest, SystemClock};

    #[expect(clippy::disallowed_methods, reason = "a test directory")]
    fn dir() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        (dir, handle.into())
    }

    fn open(dir: &OwnedFd) -> Control {
        Control::open(dir, Arc::new(SystemClock)).unwrap()
    }

    fn put(control: &Control, key: &str) -> Result<(), ControlError> {
        let key = key.to_owned();
        control.write(move |tx| {
            tx.execute("INSERT INTO meta (key, value) VALUES (?1, '')", [key])?;
            tx.witness(1, &Digest::of(b""));
            Ok(())
        })
    }

    fn keys(control: &Control) -> Vec<String> {
        let query = |conn: &rusqlite::Connection| {
            let mut all = conn.prepare("SELECT key FROM meta ORDER BY key")?;
            let rows = all.query_map([], |row| row.get(0))?;
            rows.collect::<Result<_, _>>()
        };
        control
            .read(|conn| query(conn).map_err(ControlError::from))
            .unwrap()
    }

    #[test]
    fn a_write_is_there_after_reopening() {
        let (_keep, dir) = dir();
        for round in 0..4 {
            let clock = Arc::new(SystemClock);
            let control = if round % 2 == 0 {
                Control::open(&dir, clock).unwrap()
            } else {
                Control::open_inline(&dir, clock).unwrap()
            };
            control.standing().unwrap();
            put(&control, &round.to_string()).unwrap();
            assert_eq!(keys(&control).len(), round + 1);
        }
    }

    #[test]
    fn a_write_that_fails_or_panics_spoils_no_other_and_leaves_nothing() {
        let (_keep, dir) = dir();
        let control = open(&dir);
        let failed: Result<(), ControlError> = control.write(|tx| {
            tx.execute("INSERT INTO meta VALUES ('failed', '')", [])?;
            Err(ControlError::Busy)
        });
        assert!(matches!(failed, Err(ControlError::Busy)));
        let panicked: Result<(), ControlError> = control.write(|tx| {
            tx.execute("INSERT INTO meta VALUES ('panicked', '')", [])?;
            panic!("on purpose")
        });
        assert!(matches!(panicked, Err(ControlError::Panicked)));
        put(&control, "good").unwrap();
        assert_eq!(keys(&control), ["good"]);
    }

    #[test]
    fn writes_past_the_queue_are_refused_and_those_taken_are_done() {
        let (_keep, dir) = dir();
        let clock = Arc::new(SystemClock);
        let control = Control::open_threaded(&dir, clock, Seam::default(), 4).unwrap();
        let (started, running) = sync_channel::<()>(1);
        let (go, gate) = sync_channel::<()>(1);
        let refused = std::thread::scope(|scope| {
            let control = &control;
            let held = scope.spawn(move || {
                control.write(move |_tx| {
                    started.send(()).map_err(|_gone| ControlError::Busy)?;
                    gate.recv().map_err(|_gone| ControlError::Busy)
                })
            });
            // The writer is held from here on, so that the queue fills.
            running.recv().unwrap();
            let writes: Vec<_> = (0..7)
                .map(|n| scope.spawn(move || put(control, &n.to_string())))
                .collect();
            while writes.iter().filter(|w| w.is_finished()).count() < 3 {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            held.join().unwrap().unwrap();
            let outcomes = writes.into_iter().map(|w| w.join().unwrap());
            outcomes.filter_map(Result::err).collect::<Vec<_>>()
        });
        let busy = |e: &ControlError| matches!(e, ControlError::Busy);
        assert!(
            refused.len() == 3 && refused.iter().all(busy),
            "{refused:?}"
        );
        assert_eq!(keys(&control).len(), 4);
    }

    #[test]
    fn a_write_that_changes_nothing_makes_no_commit() {
        let (_keep, dir) = dir();
        let control = open(&dir);
        put(&control, "a").unwrap();
        let looked: Result<i64, ControlError> =
            control.write(|tx| Ok(tx.query_row("SELECT count(*) FROM meta", [], |r| r.get(0))?));
        assert_eq!(looked.unwrap(), 1);
        drop(control);
        let last = super::heads::HeadsLog::read(&dir).unwrap();
        assert!(matches!(
            last,
            super::heads::Reading::Last {
                position: Position {
                    commits: 1,
                    events: 1,
                    ..
                },
                ..
            }
        ));
    }

    #[test]
    fn a_reader_cannot_write() {
        let (_keep, dir) = dir();
        let control = open(&dir);
        let refused: Result<usize, ControlError> =
            control.read(|conn| Ok(conn.execute("DELETE FROM meta", [])?));
        assert!(refused.is_err());
    }
}
