//! A bounded set of read-only connections.

use std::{
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::Connection;

use super::{ControlError, open};

/// The most connections that read at once.
const CONNECTIONS: usize = 8;
/// How long a caller waits for one of them.
const WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    taken: usize,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// The database's file.
    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Runs `query` on a connection that sees one state of the database from start to end.
    pub(super) fn read<T, E: From<ControlError>>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut slot = self.take()?;
        let conn = match slot.conn.take() {
            Some(conn) => conn,
            None => open::reader(&self.path)?,
        };
        let result = snapshot(&conn, query);
        // A connection that did not end its transaction, or whose query panicked, is not kept.
        if conn.is_autocommit() {
            slot.conn = Some(conn);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Slot<'_>, ControlError> {
        let (mut state, _timeout) = self
            .freed
            .wait_timeout_while(self.lock(), WAIT, |state| state.taken >= CONNECTIONS)
            .unwrap_or_else(PoisonError::into_inner);
        if state.taken >= CONNECTIONS {
            return Err(ControlError::Busy);
        }
        state.taken += 1;
        let conn = state.idle.pop();
        Ok(Slot {
            readers: self,
            conn,
        })
    }
}

fn snapshot<T, E: From<ControlError>>(
    conn: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, E>,
) -> Result<T, E> {
    conn.execute_batch("BEGIN")
        .map_err(|error| ControlError::from_sql("beginning to read", error))?;
    let result = query(conn);
    conn.execute_batch("COMMIT")
        .map_err(|error| ControlError::from_sql("ending to read", error))?;
    result
}

/// The right to one connection, given back when dropped.
struct Slot<'a> {
    readers: &'a Readers,
    conn: Option<Connection>,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.readers.lock();
        state.taken -= 1;
        state.idle.extend(self.conn.take());
        self.readers.freed.notify_one();
    }
}
