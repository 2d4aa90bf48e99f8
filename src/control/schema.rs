use rusqlite::{Connection, TransactionBehavior};

use super::ControlError;

/// What the file says it is: `HfDb`.
const APPLICATION_ID: i32 = 0x4866_4462;

/// The migrations in order. The schema of a database is the number of those applied.
///
/// Never edit one that was released: add another. All missing ones are applied in one transaction.
const MIGRATIONS: &[&str] = &[INITIAL, RIGHTS, CLAIMS];

/// Names and digests: a handle or principal id is stored as its text, a digest as its 32 bytes,
/// a time as milliseconds since the epoch, an absent name as the empty text.
const INITIAL: &str = "
-- The state of the commits, compared with the heads log at start. One row.
CREATE TABLE heads (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    commits INTEGER NOT NULL,
    events INTEGER NOT NULL,
    chain BLOB NOT NULL CHECK (length(chain) = 32),
    previous BLOB NOT NULL CHECK (length(previous) = 32)
) STRICT;

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE principals (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('operator', 'host', 'user')),
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    disabled_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX principals_name ON principals (name);

-- Bearer tokens, by the SHA-256 of the whole token.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    principal TEXT NOT NULL REFERENCES principals (id),
    label TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT;
CREATE INDEX tokens_principal ON tokens (principal);

-- One-time sign-in codes, by SHA-256.
CREATE TABLE login_codes (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    principal TEXT NOT NULL REFERENCES principals (id),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    redeemed_at INTEGER
) STRICT, WITHOUT ROWID;

-- Every session anybody may be granted: native ones, and those of a read-only source by the id
-- that source knows. The columns after created_at say something for native sessions only; genesis
-- is the digest of the ones before and head the hash of the last event (docs/journal-format.md).
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    handle TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    own_id TEXT NOT NULL,
    host TEXT NOT NULL DEFAULT '',
    cwd TEXT,
    created_at INTEGER NOT NULL,
    next_seq INTEGER NOT NULL DEFAULT 0,
    genesis BLOB CHECK (length(genesis) = 32),
    head BLOB CHECK (length(head) = 32),
    quota_used INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source, host, own_id)
) STRICT;

CREATE TABLE session_owners (
    session INTEGER NOT NULL REFERENCES sessions (id),
    principal TEXT NOT NULL,
    PRIMARY KEY (session, principal)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_owners_principal ON session_owners (principal, session);

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (id),
    seq INTEGER NOT NULL,
    time INTEGER NOT NULL,
    type TEXT NOT NULL,
    ignorable INTEGER NOT NULL,
    data TEXT NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE UNIQUE INDEX events_seq ON events (session, seq);

-- What a session's events refer to, once per content, name and kind; id order is log order. The
-- seal is a digest of the row and the hash of the event it was read from.
CREATE TABLE refs (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('file', 'image')),
    media_type TEXT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    seal BLOB NOT NULL CHECK (length(seal) = 32),
    UNIQUE (session, digest, name, kind)
) STRICT;
CREATE INDEX refs_digest ON refs (digest);

-- What was uploaded to a session, once per content and name; charged to its quota.
CREATE TABLE uploads (
    session INTEGER NOT NULL REFERENCES sessions (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (session, digest, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX uploads_digest ON uploads (digest);

CREATE TABLE declared (
    session INTEGER NOT NULL REFERENCES sessions (id),
    seq INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    path TEXT NOT NULL,
    description TEXT,
    seal BLOB NOT NULL CHECK (length(seal) = 32),
    PRIMARY KEY (session, seq, idx)
) STRICT, WITHOUT ROWID;

-- Answers to requests that may come again, by the principal and route they came from.
CREATE TABLE idem (
    id INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    body BLOB NOT NULL CHECK (length(body) = 32),
    answer TEXT NOT NULL,
    at INTEGER NOT NULL,
    UNIQUE (scope, key)
) STRICT;
CREATE INDEX idem_at ON idem (at);

CREATE TABLE objects (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Tickets with what has been had by them, releases with their receipts, and held permissions.
const RIGHTS: &str = "
-- Tickets, by the SHA-256 of the secret; the token is the one of the request that made it, where
-- that had one. A ticket that is revoked is gone.
CREATE TABLE tickets (
    id INTEGER PRIMARY KEY,
    handle TEXT NOT NULL UNIQUE,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    principal TEXT NOT NULL REFERENCES principals (id),
    token INTEGER REFERENCES tokens (id),
    session INTEGER NOT NULL REFERENCES sessions (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    receipt TEXT,
    uses INTEGER NOT NULL CHECK (uses > 0),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX tickets_principal ON tickets (principal, id);
CREATE INDEX tickets_expires ON tickets (expires_at);

-- The uses that were opened. sent is what the answers of a use promised, less what those that were
-- cut kept back; running counts the answers that were not seen to end well; start is where the
-- furthest of them began.
CREATE TABLE ticket_uses (
    ticket INTEGER NOT NULL REFERENCES tickets (id) ON DELETE CASCADE,
    number INTEGER NOT NULL CHECK (number > 0),
    sent INTEGER NOT NULL,
    running INTEGER NOT NULL,
    start INTEGER NOT NULL,
    PRIMARY KEY (ticket, number)
) STRICT, WITHOUT ROWID;

-- What was released: the statement in its one spelling, and its seal (docs/releases.md).
CREATE TABLE receipts (
    id INTEGER PRIMARY KEY,
    handle TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL REFERENCES sessions (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    bytes INTEGER NOT NULL,
    statement TEXT NOT NULL,
    seal BLOB NOT NULL CHECK (length(seal) = 32)
) STRICT;
CREATE INDEX receipts_session ON receipts (session, id);
CREATE INDEX receipts_digest ON receipts (digest);

-- Releases somebody has to decide, or had to; the statement is what the receipt would say.
CREATE TABLE asks (
    id INTEGER PRIMARY KEY,
    handle TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL REFERENCES sessions (id),
    generation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    bytes INTEGER NOT NULL,
    statement TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    outcome TEXT CHECK (outcome IN ('allowed-once', 'rejected', 'withdrawn', 'expired')),
    decided_by TEXT,
    decided_at INTEGER
) STRICT;
CREATE INDEX asks_session ON asks (session, id);
CREATE INDEX asks_digest ON asks (digest);
CREATE INDEX asks_open ON asks (expires_at) WHERE outcome IS NULL;

-- Where the events that say how a session stands are found.
CREATE INDEX events_standing ON events (session, type, seq) WHERE type IN
    ('turn/start', 'turn/end', 'permission/preset', 'sandbox/mode', 'approval/policy');

-- A permission chosen while no turn was open, until a prompted turn takes it; revision counts the
-- choices.
CREATE TABLE permissions (
    session INTEGER PRIMARY KEY REFERENCES sessions (id),
    held TEXT,
    revision INTEGER NOT NULL
) STRICT;
";

/// What may lie in the store without anybody who needs it.
const CLAIMS: &str = "
-- Content that is about to be committed for a release, and content of asks that ended: each row is
-- gone when something else needs the content or the store no longer has it. ended: nobody commits it
-- any more.
CREATE TABLE unclaimed (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    ended INTEGER NOT NULL
) STRICT;
CREATE INDEX unclaimed_ended ON unclaimed (ended, id);
";

/// Brings an open database to the latest schema, in one transaction. `fresh` is run in it when the
/// database had none.
pub(super) fn migrate(
    conn: &mut Connection,
    fresh: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), ControlError> {
    let found = version(conn)?;
    let known = latest();
    if found > known {
        return Err(ControlError::Newer { found, known });
    }
    if found == known {
        return Ok(());
    }
    apply(conn, found, fresh).map_err(|e| ControlError::from_sql("migrating the database", e))
}

fn apply(
    conn: &mut Connection,
    found: u32,
    fresh: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    for sql in MIGRATIONS.iter().skip(done) {
        tx.execute_batch(sql)?;
    }
    if found == 0 {
        fresh(&tx)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", latest())?;
    tx.commit()
}

/// The schema of an open database; 0 when it has none yet.
pub(super) fn version(conn: &Connection) -> Result<u32, ControlError> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|e| ControlError::from_sql("reading the schema version", e))
}

pub(super) fn latest() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::{latest, migrate, version};
    use crate::control::ControlError;

    #[test]
    fn a_later_schema_is_refused_and_left_alone() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.pragma_update(None, "user_version", latest() + 1)
            .unwrap();
        let refused = migrate(&mut conn, |_| Ok(()));
        assert!(
            matches!(refused, Err(ControlError::Newer { .. })),
            "{refused:?}"
        );
        assert_eq!(version(&conn).unwrap(), latest() + 1);
    }

    #[test]
    fn a_migration_that_fails_leaves_no_trace() {
        let mut conn = Connection::open_in_memory().unwrap();
        let failed = migrate(&mut conn, |tx| {
            tx.execute_batch("INSERT INTO nothing VALUES (1)")
        });
        assert!(failed.is_err());
        let tables: i64 = conn
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!((tables, version(&conn).unwrap()), (0, 0));
    }

    #[test]
    fn a_database_of_an_earlier_schema_is_brought_up_with_its_rows() {
        for from in 1..latest() {
            let mut conn = Connection::open_in_memory().unwrap();
            let done = usize::try_from(from).unwrap();
            conn.execute_batch(&super::MIGRATIONS[..done].concat())
                .unwrap();
            conn.execute_batch(
                "INSERT INTO principals (id, kind, name, created_at) VALUES ('p', 'user', 'n', 1)",
            )
            .unwrap();
            conn.pragma_update(None, "user_version", from).unwrap();
            migrate(&mut conn, |tx| tx.execute_batch("DROP TABLE events")).unwrap();
            let shape = |conn: &Connection| -> Vec<String> {
                conn.prepare("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name")
                    .and_then(|mut all| all.query_map([], |row| row.get(0))?.collect())
                    .unwrap()
            };
            let mut fresh = Connection::open_in_memory().unwrap();
            migrate(&mut fresh, |_| Ok(())).unwrap();
            assert_eq!(shape(&conn), shape(&fresh), "from {from}");
            assert_eq!(version(&conn).unwrap(), latest());
            let kept: i64 = conn
                .query_row("SELECT count(*) FROM principals", [], |row| row.get(0))
                .unwrap();
            assert_eq!(kept, 1, "from {from}");
        }
    }

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, |_| Ok(())).unwrap();
        migrate(&mut conn, |tx| tx.execute_batch("DROP TABLE events")).unwrap();
        assert_eq!(version(&conn).unwrap(), latest());
    }
}
