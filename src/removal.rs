//! A session on its way out: nobody's in one commit, then gone in steps.
//!
//! Promises: after the commit no handle leads to the session or to anything of it, and its host may
//! give the id again; content that may have lost its last owner is noted to be cleared away, in the
//! step that takes the owner; what a crash leaves is found again by its source. Leaves to others: who
//! may remove (`access`), telling of it and clearing the bytes (`transfer`).

#![forbid(unsafe_code)]

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    control::{Control, ControlError, Tx, rusqlite},
    journal::native::SOURCE,
    model::{Digest, InteractionHandle, SessionHandle},
    receipt,
};

/// The source of what is left of those that were.
const REMOVED: &str = "removed";
/// The most rows that go in one commit, so that other writes wait for no more than that.
const STEP: usize = 1000;

/// What gives somebody a right to anything of a session: it goes at once, as the open asks do. Uses of
/// tickets go with them.
const RIGHTS: [&str; 3] = [
    "DELETE FROM session_owners WHERE session = ?1",
    "DELETE FROM tickets WHERE session = ?1",
    "DELETE FROM permissions WHERE session = ?1",
];

/// What else a session has, with the content a row is about where it is about any: it goes in steps.
const ROWS: [&str; 6] = [
    "DELETE FROM receipts WHERE id IN (SELECT id FROM receipts WHERE session = ?1 LIMIT ?2)
     RETURNING digest",
    "DELETE FROM asks WHERE id IN (SELECT id FROM asks WHERE session = ?1 LIMIT ?2)
     RETURNING digest",
    "DELETE FROM refs WHERE id IN (SELECT id FROM refs WHERE session = ?1 LIMIT ?2)
     RETURNING digest",
    "DELETE FROM uploads WHERE session = ?1 AND (digest, name) IN
         (SELECT digest, name FROM uploads WHERE session = ?1 LIMIT ?2)
     RETURNING digest",
    "DELETE FROM declared WHERE session = ?1 AND (seq, idx) IN
         (SELECT seq, idx FROM declared WHERE session = ?1 LIMIT ?2)
     RETURNING NULL",
    "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE session = ?1 LIMIT ?2)
     RETURNING NULL",
];

/// Makes a session nobody's, whatever state its log is in. Returns after that is durable, with the asks
/// that can no longer be answered, or none when there is no such session to remove.
///
/// # Errors
/// [`ControlError`]; then nothing has changed.
pub fn remove(
    control: &Control,
    session: SessionHandle,
) -> Result<Option<Vec<InteractionHandle>>, ControlError> {
    control.write(move |tx| {
        let row: Option<i64> = tx
            .prepare_cached("SELECT id FROM sessions WHERE handle = ?1 AND source = ?2")?
            .query_row((session.to_string(), SOURCE), |row| row.get(0))
            .optional()?;
        row.map(|row| withdraw(tx, row)).transpose()
    })
}

fn withdraw(tx: &Tx<'_>, row: i64) -> Result<Vec<InteractionHandle>, ControlError> {
    let waiting: Vec<(String, [u8; 32])> = tx
        .prepare_cached(
            "DELETE FROM asks WHERE session = ?1 AND outcome IS NULL RETURNING handle, digest",
        )?
        .query_map([row], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (_, digest) in &waiting {
        receipt::ended(tx, Digest::from_bytes(*digest))?;
    }
    for sql in RIGHTS {
        tx.prepare_cached(sql)?.execute([row])?;
    }
    // Whoever looks a session up does so by its handle, and a host finds its own by source and id.
    let name = format!("{REMOVED}-{row}");
    tx.prepare_cached(
        "UPDATE sessions SET handle = ?2, source = ?3, own_id = ?2, host = '', cwd = NULL
         WHERE id = ?1",
    )?
    .execute(params![row, name, REMOVED])?;
    // One that cannot be read was never shown to anybody.
    Ok(waiting
        .iter()
        .filter_map(|(handle, _)| InteractionHandle::parse(handle).ok())
        .collect())
}

/// Whether anything is left of removed sessions.
///
/// # Errors
/// [`ControlError`].
pub fn is_left(control: &Control) -> Result<bool, ControlError> {
    control.read(|conn| Ok(next(conn)?.is_some()))
}

/// Takes away the next rows of a removed session, and its own row after the last of them. Whether there
/// was anything to do. The last step also has the database let go of what its log still holds of them.
///
/// # Errors
/// [`ControlError`]; then nothing has changed.
pub fn step(control: &Control) -> Result<bool, ControlError> {
    if !is_left(control)? {
        return Ok(false);
    }
    control.write(|tx| {
        let Some(row) = next(tx)? else {
            return Ok(false);
        };
        let mut room = STEP;
        for sql in ROWS {
            let limit = i64::try_from(room).unwrap_or(i64::MAX);
            let digests = tx
                .prepare_cached(sql)?
                .query_map(params![row, limit], |row| row.get::<_, Option<[u8; 32]>>(0))?
                .collect::<Result<Vec<_>, _>>()?;
            room = room.saturating_sub(digests.len());
            for digest in digests.into_iter().flatten() {
                receipt::ended(tx, Digest::from_bytes(digest))?;
            }
            if room == 0 {
                return Ok(true);
            }
        }
        tx.prepare_cached("DELETE FROM sessions WHERE id = ?1")?
            .execute([row])?;
        tx.fold();
        Ok(true)
    })
}

/// A session that was removed and is still there in part.
fn next(conn: &Connection) -> Result<Option<i64>, ControlError> {
    let row = conn
        .prepare_cached("SELECT id FROM sessions WHERE source = ?1 LIMIT 1")?
        .query_row([REMOVED], |row| row.get(0))
        .optional()?;
    Ok(row)
}
