//! The one writer: many waiting operations, one transaction, one flush.

use std::{
    fmt, io,
    ops::Deref,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc::SyncSender},
};

use rusqlite::Connection;
use rustix::fs::AtFlags;

use super::{
    ControlError, Standing,
    heads::{HeadsLog, Position, as_integer},
    open::WAL_NAME,
    seam::{Seam, Step},
};
use crate::model::{Clock, Digest, Digester, Timestamp};

/// Says what a digest over commits is about, so that it cannot be taken for another.
const CHAIN_DOMAIN: &[u8] = b"holdfast commit chain 1\0";

/// The write-ahead log is folded into the database once it is this long, in bytes.
const WAL_BOUND: u64 = 4 << 20;
/// How much it may grow further when readers stood in the way.
const WAL_STEP: u64 = 1 << 20;

/// A write in progress: the connection inside its transaction, for one operation.
///
/// What the operation does is undone when it returns an error or panics, and nothing else is.
pub struct Tx<'c> {
    conn: &'c Connection,
    now: Timestamp,
    events: u64,
    witness: Digester,
    folds: bool,
}

impl Tx<'_> {
    /// The moment, for the rows written now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Counts `events` more events, the last of which has the hash `head`: both go into the
    /// database's position and with it into the heads log.
    pub fn witness(&mut self, events: u64, head: &Digest) {
        self.events = self.events.saturating_add(events);
        self.witness.update(head.as_bytes());
    }

    /// What was deleted here or before should not stay readable in the write-ahead log: it is folded into
    /// the database after the commit, or, where a reader stands in the way, once it has grown or at the
    /// end.
    pub fn fold(&mut self) {
        self.folds = true;
    }
}

impl Deref for Tx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.conn
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

/// What became of the batch an operation was in.
pub(super) enum Batch {
    /// It is durable.
    Durable,
    /// It is not, and this operation is why: SQLite gave the transaction up in the middle of it.
    Broken,
    /// It is not.
    Failed(ControlError),
}

/// An operation that waits for its commit.
pub(super) trait Op: Send {
    /// Does the work and keeps its result; whether its changes are to stay.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;

    /// Hands the result to the one who waits, in the light of what became of the batch.
    fn settle(self: Box<Self>, batch: Batch);
}

/// The operation of one caller.
pub(super) struct Waiting<F, T, E> {
    work: Option<F>,
    result: Option<Result<T, E>>,
    answer: SyncSender<Result<T, E>>,
}

impl<F, T, E> Waiting<F, T, E> {
    pub(super) fn new(work: F, answer: SyncSender<Result<T, E>>) -> Self {
        Self {
            work: Some(work),
            result: None,
            answer,
        }
    }
}

impl<F, T, E> Op for Waiting<F, T, E>
where
    F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<ControlError> + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        let Some(work) = self.work.take() else {
            return false;
        };
        // A panic unwinds out of statements that rusqlite finalizes on the way; the savepoint is
        // rolled back and `tx` is not used again, so nothing half done is seen.
        let result = catch_unwind(AssertUnwindSafe(|| work(tx)))
            .unwrap_or_else(|_panic| Err(ControlError::Panicked.into()));
        let stays = result.is_ok();
        self.result = Some(result);
        stays
    }

    fn settle(self: Box<Self>, batch: Batch) {
        let result = match (batch, self.result) {
            (Batch::Durable, Some(result)) => result,
            (Batch::Broken, Some(Err(error))) => Err(error),
            (Batch::Durable | Batch::Broken, _) => Err(ControlError::Undone.into()),
            // An operation's own error may speak of a state that never came to be.
            (Batch::Failed(error), _) => Err(error.into()),
        };
        // The one who waited may have gone; the commit stands all the same.
        drop(self.answer.send(result));
    }
}

/// The connection that writes, with its heads log.
pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) dir: OwnedFd,
    pub(super) heads: HeadsLog,
    pub(super) position: Position,
    pub(super) standing: Arc<Standing>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) seam: Seam,
    pub(super) fold_at: u64,
}

impl Writer {
    /// Runs the operations in one transaction, each in its own savepoint, commits, flushes the heads
    /// log, and only then answers them.
    pub(super) fn batch(&mut self, ops: Vec<Box<dyn Op>>) {
        let mut ops = ops;
        let mut broken = None;
        let outcome = self
            .standing
            .writable()
            .and_then(|()| self.commit(&mut ops, &mut broken));
        for (index, op) in ops.into_iter().enumerate() {
            op.settle(match &outcome {
                Ok(()) => Batch::Durable,
                Err(_) if broken == Some(index) => Batch::Broken,
                Err(error) => Batch::Failed(error.clone()),
            });
        }
        if outcome.is_ok() {
            self.fold();
        }
    }

    fn commit(
        &mut self,
        ops: &mut [Box<dyn Op>],
        broken: &mut Option<usize>,
    ) -> Result<(), ControlError> {
        let outcome = self.transact(ops, broken);
        if outcome.is_err() && !self.conn.is_autocommit() {
            // Without a clean roll-back the connection's state is unknown.
            if let Err(error) = self.conn.execute_batch("ROLLBACK") {
                self.standing.close(format!("rolling back failed: {error}"));
            }
        }
        match outcome? {
            Some(position) => self.log(position),
            None => Ok(()),
        }
    }

    /// The transaction itself: the new position, or none when nothing was written. `broken` is set
    /// to the operation in which SQLite gave the transaction up, if it did.
    fn transact(
        &mut self,
        ops: &mut [Box<dyn Op>],
        broken: &mut Option<usize>,
    ) -> Result<Option<Position>, ControlError> {
        let fail = |action| move |error| ControlError::from_sql(action, error);
        self.conn
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(fail("beginning a transaction"))?;
        let before = self.conn.total_changes();
        let mut events = 0_u64;
        let mut witness = Digester::default();
        for (index, op) in ops.iter_mut().enumerate() {
            self.conn
                .execute_batch("SAVEPOINT op")
                .map_err(fail("setting a savepoint"))?;
            let mut tx = Tx {
                conn: &self.conn,
                now: self.clock.now(),
                events: 0,
                witness: Digester::default(),
                folds: false,
            };
            let stays = op.run(&mut tx);
            let (own_events, folds) = (tx.events, tx.folds);
            let own_witness = tx.witness.finish();
            if self.conn.is_autocommit() {
                // For want of space or memory, or after a failed read.
                *broken = Some(index);
                return Err(ControlError::Undone);
            }
            if stays {
                events = events.saturating_add(own_events);
                witness.update(own_witness.as_bytes());
                if folds {
                    self.fold_at = 0;
                }
                self.conn.execute_batch("RELEASE op")
            } else {
                self.conn.execute_batch("ROLLBACK TO op; RELEASE op")
            }
            .map_err(fail("ending a savepoint"))?;
        }
        if self.conn.total_changes() == before {
            self.conn
                .execute_batch("ROLLBACK")
                .map_err(fail("ending a transaction"))?;
            return Ok(None);
        }
        let position = self.next(events, &witness.finish())?;
        self.store(position).map_err(fail("writing the position"))?;
        let committed = self.seam.at(Step::Commit).and_then(|()| {
            self.conn
                .execute_batch("COMMIT")
                .map_err(fail("committing"))
        });
        if let Err(error) = committed {
            if !matches!(error, ControlError::Full) {
                // Part of it may be on the medium: what is there is decided at the next start.
                self.standing.close(format!("a commit failed: {error}"));
                return Err(ControlError::NotDurable);
            }
            return Err(error);
        }
        Ok(Some(position))
    }

    fn next(&self, events: u64, witness: &Digest) -> Result<Position, ControlError> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| {
            ControlError::from_io("drawing random bits", io::Error::other(error))
        })?;
        let commits = self.position.commits.saturating_add(1);
        let events = self.position.events.saturating_add(events);
        let mut chain = Digester::default();
        chain.update(CHAIN_DOMAIN);
        chain.update(self.position.chain.as_bytes());
        chain.update(&commits.to_be_bytes());
        chain.update(&events.to_be_bytes());
        chain.update(witness.as_bytes());
        // Two histories that write the same still differ.
        chain.update(&nonce);
        Ok(Position {
            commits,
            events,
            chain: chain.finish(),
        })
    }

    fn store(&self, position: Position) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE heads SET commits = ?1, events = ?2, chain = ?3, previous = chain",
            )?
            .execute((
                as_integer(position.commits),
                as_integer(position.events),
                position.chain.as_bytes(),
            ))?;
        Ok(())
    }

    /// Writes and flushes the position of the commit just made. A failure here leaves the commit in
    /// place, unacknowledged: the next start finds the database one ahead and goes on from there.
    fn log(&mut self, position: Position) -> Result<(), ControlError> {
        self.position = position;
        let outcome = self
            .seam
            .at(Step::HeadsWrite)
            .and_then(|()| self.heads.append(position).map_err(ControlError::from))
            .and_then(|()| self.seam.at(Step::HeadsFlush))
            .and_then(|()| self.heads.flush().map_err(ControlError::from));
        outcome.map_err(|error| {
            self.standing
                .close(format!("the heads log could not be flushed: {error}"));
            ControlError::NotDurable
        })
    }

    /// Folds the write-ahead log into the database when it has grown long, or was asked to be.
    fn fold(&mut self) {
        let Ok(stat) = rustix::fs::statat(&self.dir, WAL_NAME, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        if len >= self.fold_at {
            let folded = self.checkpoint();
            self.fold_at = if folded {
                WAL_BOUND
            } else {
                len.saturating_add(WAL_STEP)
            };
        }
    }

    /// Whether all of the write-ahead log is in the database now. A failure other than readers in
    /// the way closes for writing; the log itself stays, so nothing is lost.
    fn checkpoint(&self) -> bool {
        let busy = self
            .conn
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, i64>(0)
            })
            .map_err(|error| ControlError::from_sql("folding the write-ahead log", error));
        match busy {
            Ok(busy) => busy == 0,
            // No room to grow the database into: the log holds everything; later there may be.
            Err(ControlError::Busy | ControlError::Full) => false,
            Err(error) => {
                self.standing
                    .close(format!("the write-ahead log could not be folded: {error}"));
                false
            }
        }
    }
}

impl Drop for Writer {
    /// A clean end leaves an empty write-ahead log; an unclean one leaves it as it is.
    fn drop(&mut self) {
        if self.standing.writable().is_ok() {
            self.checkpoint();
        }
    }
}

pub(super) const FIRST_FOLD: u64 = WAL_BOUND;
