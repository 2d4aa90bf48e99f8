//! A file beside the database for what can be lost and made again.
//!
//! Promises: a file that is missing, damaged, foreign or of another version is replaced by an empty
//! one, and nobody fails for it; nothing of the exact database waits for it. Leaves to others: whether
//! what is in it is true.

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Mode, OFlags};

use super::{Control, open};

/// What the file says it is: `HfCa`.
const APPLICATION_ID: i32 = 0x4866_4361;

/// A database that may be dropped at any time.
pub(crate) struct Cache {
    path: PathBuf,
    schema: &'static str,
    version: i32,
    conn: Mutex<Option<Connection>>,
}

impl Control {
    /// The cache in the file `name` beside the database, with tables as `schema` makes them. Nothing
    /// is opened yet.
    pub(crate) fn cache(&self, name: &str, schema: &'static str, version: i32) -> Cache {
        Cache {
            path: self.readers.path().with_file_name(name),
            schema,
            version,
            conn: Mutex::default(),
        }
    }
}

impl Cache {
    /// Runs `work` on the cache; `None` when it could not be done, after which it is empty. Blocks.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        let mut slot = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = match slot.take().map_or_else(|| self.open(), Ok) {
            Ok(conn) => conn,
            Err(error) => {
                self.remove();
                tracing::warn!(%error, "a cache cannot be used and is made anew");
                self.open().ok()?
            }
        };
        match work(&conn) {
            Ok(done) => {
                *slot = Some(conn);
                Some(done)
            }
            Err(error) => {
                drop(conn);
                self.remove();
                tracing::warn!(%error, "a cache is damaged and is made anew");
                None
            }
        }
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Made here for its mode; what stands in its place and is no file of ours fails to open.
        drop(rustix::fs::open(&self.path, flags, Mode::RUSR | Mode::WUSR));
        let conn = open::connect(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.pragma_update(None, "journal_mode", "wal")?;
        // A power cut may take the last entries, never the file.
        conn.pragma_update(None, "synchronous", "NORMAL")?;
        let found: (i32, i32) = (
            conn.pragma_query_value(None, "application_id", |row| row.get(0))?,
            conn.pragma_query_value(None, "user_version", |row| row.get(0))?,
        );
        match found {
            (APPLICATION_ID, version) if version == self.version => Ok(conn),
            (0, 0) => {
                conn.execute_batch(self.schema)?;
                conn.pragma_update(None, "application_id", APPLICATION_ID)?;
                conn.pragma_update(None, "user_version", self.version)?;
                Ok(conn)
            }
            _ => Err(rusqlite::Error::InvalidQuery),
        }
    }

    fn remove(&self) {
        for end in ["", "-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(end);
            rustix::fs::unlink(path).ok();
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}
