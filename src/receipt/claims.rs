//! Content that may lie in the store with nobody who needs it: before it is committed for a release,
//! and once the ask about it ended.
//!
//! Whoever commits content for a release claims it first, durably, and takes the claim back in the
//! transaction that gives the content an owner. A claim that is left over after a crash says what to
//! look for; nothing is searched.

use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, params};

use super::{Ledger, LedgerError};
use crate::{
    control::{ControlError, Tx},
    model::Digest,
};

/// Claims of one release: its content is, or will be, in the store for it.
#[derive(Clone, Debug)]
pub struct Claims(Vec<i64>);

/// How many claims may have ended without a note of it; the rest are noted at the next start.
const MOST_LATE: usize = 1024;

/// Claims that have ended and could not be noted so, mostly for want of room.
#[derive(Debug, Default)]
pub(super) struct Late(Mutex<Vec<i64>>);

impl Late {
    fn add(&self, ids: &[i64]) {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_LATE.saturating_sub(late.len());
        late.extend(ids.iter().take(room));
    }

    fn take(&self) -> Vec<i64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Content that is to be cleared away unless something needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loose {
    id: i64,
    /// The content.
    pub digest: Digest,
}

impl Claims {
    /// Takes the claims back: the content has an owner by this transaction.
    pub(super) fn take_back(&self, tx: &Tx<'_>) -> Result<(), LedgerError> {
        self.each(tx, "DELETE FROM unclaimed WHERE id = ?1")
    }

    /// Nobody commits for them any more.
    pub(super) fn end(&self, tx: &Tx<'_>) -> Result<(), LedgerError> {
        self.each(tx, "UPDATE unclaimed SET ended = 1 WHERE id = ?1")
    }

    fn each(&self, tx: &Tx<'_>, sql: &str) -> Result<(), LedgerError> {
        let mut statement = tx.prepare_cached(sql).map_err(ControlError::from)?;
        for id in &self.0 {
            statement.execute([id]).map_err(ControlError::from)?;
        }
        Ok(())
    }
}

/// What this content was kept for ended, and with it a reason to keep it.
pub(crate) fn ended(tx: &Tx<'_>, digest: Digest) -> Result<(), ControlError> {
    tx.prepare_cached("INSERT INTO unclaimed (digest, ended) VALUES (?1, 1)")?
        .execute([digest.as_bytes()])?;
    Ok(())
}

impl Ledger {
    /// Notes that this content is about to be committed for a release. Returns after that is durable.
    ///
    /// # Errors
    /// [`LedgerError::Control`].
    pub fn claim(&self, digests: &[Digest]) -> Result<Claims, LedgerError> {
        let digests = digests.to_vec();
        self.control.write(move |tx| {
            let mut ids = Vec::new();
            for digest in &digests {
                tx.prepare_cached("INSERT INTO unclaimed (digest, ended) VALUES (?1, 0)")
                    .and_then(|mut insert| insert.insert([digest.as_bytes()]))
                    .map(|id| ids.push(id))
                    .map_err(ControlError::from)?;
            }
            Ok(Claims(ids))
        })
    }

    /// Notes that nothing comes of a release after all.
    ///
    /// # Errors
    /// [`LedgerError::Control`]; [`Ledger::catch_up`] or the next start notes it.
    pub fn give_up(&self, claims: Claims) -> Result<(), LedgerError> {
        let ids = claims.0.clone();
        let noted = self.control.write(move |tx| claims.end(tx));
        noted.inspect_err(|_unnoted| self.late.add(&ids))
    }

    /// Notes what could not be noted when it was given up.
    ///
    /// # Errors
    /// [`LedgerError::Control`]; then it is still to be noted.
    pub fn catch_up(&self) -> Result<(), LedgerError> {
        let late = self.late.take();
        if late.is_empty() {
            return Ok(());
        }
        self.give_up(Claims(late))
    }

    /// Every claim there is has ended: for a start, before anything is committed.
    ///
    /// # Errors
    /// [`LedgerError::Control`].
    pub fn end_all_claims(&self) -> Result<(), LedgerError> {
        self.control.write(|tx| {
            tx.execute("UPDATE unclaimed SET ended = 1 WHERE ended = 0", [])
                .map_err(ControlError::from)?;
            Ok(())
        })
    }

    /// Content to be cleared away, at most `most`.
    ///
    /// # Errors
    /// [`LedgerError::Control`].
    pub fn loose(&self, most: u32) -> Result<Vec<Loose>, LedgerError> {
        self.control.read(|conn| {
            let all = conn
                .prepare_cached(
                    "SELECT id, digest FROM unclaimed WHERE ended = 1 ORDER BY id LIMIT ?1",
                )
                .and_then(|mut all| {
                    all.query_map([most], |row| {
                        Ok(Loose {
                            id: row.get(0)?,
                            digest: Digest::from_bytes(row.get(1)?),
                        })
                    })?
                    .collect()
                })
                .map_err(ControlError::from)?;
            Ok(all)
        })
    }

    /// Content was cleared away, or is needed.
    ///
    /// # Errors
    /// [`LedgerError::Control`].
    pub fn cleared(&self, loose: Loose) -> Result<(), LedgerError> {
        self.control.write(move |tx| {
            if !needed(tx, loose.digest, tx.now().as_millis())? {
                tx.prepare_cached("DELETE FROM objects WHERE digest = ?1")
                    .and_then(|mut delete| delete.execute([loose.digest.as_bytes()]))
                    .map_err(ControlError::from)?;
            }
            tx.prepare_cached("DELETE FROM unclaimed WHERE id = ?1")
                .and_then(|mut delete| delete.execute([loose.id]))
                .map_err(ControlError::from)?;
            Ok(())
        })
    }

    /// Whether anything refers to this content.
    ///
    /// # Errors
    /// [`LedgerError::Control`]: in doubt something does.
    pub fn needs(&self, digest: Digest) -> Result<bool, LedgerError> {
        let now = self.control.now().as_millis();
        self.control.read(|conn| Ok(needed(conn, digest, now)?))
    }
}

fn needed(conn: &Connection, digest: Digest, now: i64) -> Result<bool, ControlError> {
    let needed = conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM uploads WHERE digest = ?1)
                 OR EXISTS (SELECT 1 FROM refs WHERE digest = ?1)
                 OR EXISTS (SELECT 1 FROM receipts WHERE digest = ?1)
                 OR EXISTS (SELECT 1 FROM asks
                     WHERE digest = ?1 AND outcome IS NULL AND expires_at > ?2)",
        )?
        .query_row(params![digest.as_bytes(), now], |row| row.get(0))?;
    Ok(needed)
}
