//! Opening the database: what is there, whether it agrees with the heads log, what to do about it.

use std::{
    ffi::OsString,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, config::DbConfig};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    ControlError,
    heads::{HeadsError, HeadsLog, Position, Reading, as_integer},
    schema,
};
use crate::model::Digest;

pub(super) const NAME: &str = "db";
pub(super) const WAL_NAME: &str = "db-wal";

/// How long a connection waits for another; readers and the one writer hardly ever collide.
const WAIT: Duration = Duration::from_millis(500);
const STATEMENTS: usize = 64;

impl From<HeadsError> for ControlError {
    fn from(error: HeadsError) -> Self {
        match error {
            HeadsError::Damaged(_) => Self::Damaged(error.to_string().into()),
            HeadsError::Io { action, source } => Self::from_io(action, source),
        }
    }
}

/// A database that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// Its path, for readers; of no link.
    pub(super) path: PathBuf,
    pub(super) position: Position,
    /// What writes, or why nothing may.
    pub(super) write: Result<(Connection, HeadsLog), String>,
}

/// Opens, or makes, the database in `dir`. Nothing on the medium changes before the database and
/// the heads log were compared; when they disagree, nothing changes at all.
pub(super) fn open(dir: &OwnedFd) -> Result<Opened, ControlError> {
    let path = path_of(dir)?.join(NAME);
    let heads = match HeadsLog::read(dir) {
        Err(HeadsError::Damaged(what)) => Err(format!("the heads log is damaged: {what}")),
        other => Ok(other?),
    };
    let here = if exists(dir)? { stored(&path)? } else { None };
    let verdict = match (here, heads) {
        (_, Ok(heads)) => judge(here, &heads)?,
        (Some(_), Err(damage)) => Verdict::ReadOnly(damage),
        (None, Err(damage)) => return Err(ControlError::Damaged(damage.into())),
    };
    let write = match verdict {
        Verdict::Fresh => {
            make(dir)?;
            let conn = writer(dir, &path)?;
            Ok((conn, HeadsLog::start(own(dir)?, GENESIS, false)?))
        }
        Verdict::Good { len } => {
            let conn = writer(dir, &path)?;
            Ok((conn, HeadsLog::resume(own(dir)?, len)?))
        }
        Verdict::Repair { torn } => {
            let conn = writer(dir, &path)?;
            let position = here.map_or(GENESIS, |stored| stored.position);
            Ok((conn, HeadsLog::start(own(dir)?, position, torn)?))
        }
        Verdict::ReadOnly(damage) => Err(damage),
    };
    Ok(Opened {
        path,
        position: here.map_or(GENESIS, |stored| stored.position),
        write,
    })
}

const GENESIS: Position = Position {
    commits: 0,
    events: 0,
    chain: Digest::from_bytes([0; 32]),
};

fn own(dir: &OwnedFd) -> Result<OwnedFd, ControlError> {
    dir.try_clone()
        .map_err(|error| ControlError::from_io("duplicating a descriptor", error))
}

/// The path of the open directory, checked to lead back to it. SQLite opens by name; this name is
/// one that nobody else may change (the data directory is ours alone).
fn path_of(dir: &OwnedFd) -> Result<PathBuf, ControlError> {
    let fail = |action| move |errno: Errno| ControlError::from_io(action, errno.into());
    let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let target = rustix::fs::readlink(link, Vec::new())
        .map_err(fail("finding the journal directory's path"))?;
    let path = PathBuf::from(OsString::from_vec(target.into_bytes()));
    let by_name = rustix::fs::lstat(&path).map_err(fail("examining the journal directory"))?;
    let by_descriptor =
        rustix::fs::fstat(dir.as_fd()).map_err(fail("examining the journal directory"))?;
    if (by_name.st_dev, by_name.st_ino) == (by_descriptor.st_dev, by_descriptor.st_ino) {
        Ok(path)
    } else {
        Err(ControlError::Damaged(
            "the journal directory has been moved".into(),
        ))
    }
}

/// Whether there is a database file with anything in it. Anything but a file of ours is refused.
fn exists(dir: &OwnedFd) -> Result<bool, ControlError> {
    // Asked by name on purpose: closing a descriptor of the file would drop SQLite's locks.
    let stat = match rustix::fs::statat(dir, NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => {
            return Err(ControlError::from_io(
                "examining the database",
                errno.into(),
            ));
        }
    };
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode).is_file() && ours && stat.st_nlink == 1 {
        Ok(stat.st_size > 0)
    } else {
        Err(ControlError::Damaged(
            "what stands in its place is not a file of ours of one name".into(),
        ))
    }
}

/// Where a database says it stands.
#[derive(Clone, Copy, Debug)]
struct Stored {
    position: Position,
    previous: Digest,
}

/// Reads the position without changing a byte; `None` when the database was never finished.
fn stored(path: &Path) -> Result<Option<Stored>, ControlError> {
    let conn = reader(path)?;
    let found = match schema::version(&conn) {
        // Cut short before write-ahead logging began: what must be rolled back was never in use.
        Err(ControlError::Sql { source, .. }) if rolls_back(&source) => return Ok(None),
        other => other.map_err(unreadable)?,
    };
    if found > schema::latest() {
        return Err(ControlError::Newer {
            found,
            known: schema::latest(),
        });
    }
    if found == 0 {
        return Ok(None);
    }
    let row = conn
        .query_row(
            "SELECT commits, events, chain, previous FROM heads",
            [],
            |row| {
                Ok(Stored {
                    position: Position {
                        commits: row.get(0).map(as_count)?,
                        events: row.get(1).map(as_count)?,
                        chain: Digest::from_bytes(row.get(2)?),
                    },
                    previous: Digest::from_bytes(row.get(3)?),
                })
            },
        )
        .optional()
        .map_err(|error| unreadable(ControlError::from_sql("reading the position", error)))?;
    row.map_or_else(
        || Err(ControlError::Damaged("it has no position".into())),
        |row| Ok(Some(row)),
    )
}

fn rolls_back(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ReadOnly)
}

fn unreadable(error: ControlError) -> ControlError {
    if let ControlError::Corrupt(what) = error {
        ControlError::Damaged(what)
    } else {
        error
    }
}

fn as_count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// There is nothing yet.
    Fresh,
    /// They agree; the log ends at `len`.
    Good { len: u64 },
    /// The log lacks the line of the last commit, or has the start of a line too many.
    Repair { torn: bool },
    /// They disagree; the text says how.
    ReadOnly(String),
}

/// Compares the database with the heads log.
fn judge(here: Option<Stored>, heads: &Reading) -> Result<Verdict, ControlError> {
    let (here, last, len, torn) = match (here, heads) {
        (None, Reading::Absent) => return Ok(Verdict::Fresh),
        (None, Reading::Last { position, .. }) => {
            return Err(ControlError::Damaged(
                format!(
                    "the database is missing or empty, but the heads log is at commit {}: put the \
                     database and its write-ahead log back, or restore a backup",
                    position.commits
                )
                .into(),
            ));
        }
        // Made, and interrupted before the log was.
        (Some(here), Reading::Absent) if here.position.commits == 0 => {
            return Ok(Verdict::Repair { torn: false });
        }
        (Some(here), Reading::Absent) => {
            return Ok(Verdict::ReadOnly(format!(
                "the database is at commit {}, but there is no heads log to compare it with",
                here.position.commits
            )));
        }
        (
            Some(here),
            Reading::Last {
                position,
                len,
                torn,
            },
        ) => (here, *position, *len, *torn),
    };
    let Stored { position, previous } = here;
    Ok(if position == last {
        if torn {
            Verdict::Repair { torn }
        } else {
            Verdict::Good { len }
        }
    } else if Some(position.commits) == last.commits.checked_add(1) && previous == last.chain {
        Verdict::Repair { torn }
    } else if position.commits < last.commits {
        Verdict::ReadOnly(format!(
            "the database is at commit {} with {} events, but commit {} with {} events was \
             acknowledged: its write-ahead log lost commits, or an older file was put back",
            position.commits, position.events, last.commits, last.events
        ))
    } else if position.commits > last.commits.saturating_add(1) {
        Verdict::ReadOnly(format!(
            "the database is at commit {}, but the heads log ends at commit {}: lines of the log \
             were lost, or an older log was put back",
            position.commits, last.commits
        ))
    } else {
        Verdict::ReadOnly(format!(
            "the database and the heads log tell different histories up to commit {}",
            position.commits.min(last.commits)
        ))
    })
}

/// Makes an empty file for the database. The heads log is made after the database is: a crash between
/// them leaves a database without a commit.
fn make(dir: &OwnedFd) -> Result<(), ControlError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, NAME, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(ControlError::from_io("creating the database", errno.into())),
    }
}

/// Opens the connection that writes and brings the schema up to date.
fn writer(dir: &OwnedFd, path: &Path) -> Result<Connection, ControlError> {
    let fail = |error| ControlError::from_sql("opening the database", error);
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(fail)?;
    let mode: String = conn
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(fail)?;
    if mode != "wal" {
        return Err(ControlError::Damaged(
            format!("the filesystem does not do write-ahead logging (`{mode}` instead)").into(),
        ));
    }
    conn.pragma_update(None, "synchronous", "FULL")
        .map_err(fail)?;
    // What is deleted is overwritten: a free page is no place to keep what somebody wanted gone.
    conn.pragma_update(None, "secure_delete", true)
        .map_err(fail)?;
    // Folding is ours to do, so that its failures are seen.
    conn.pragma_update(None, "wal_autocheckpoint", 0)
        .map_err(fail)?;
    schema::migrate(&mut conn, |tx| {
        tx.execute(
            "INSERT INTO heads (one, commits, events, chain, previous) VALUES (1, ?1, ?2, ?3, ?3)",
            (
                as_integer(GENESIS.commits),
                as_integer(GENESIS.events),
                GENESIS.chain.as_bytes(),
            ),
        )
        .map(|_one| ())
    })?;
    // The name of the write-ahead log must last; SQLite does not mind when its own flush of the
    // directory fails.
    rustix::fs::fsync(dir)
        .map_err(|errno| ControlError::from_io("flushing the journal directory", errno.into()))?;
    Ok(conn)
}

/// Opens a connection that can only read.
pub(super) fn reader(path: &Path) -> Result<Connection, ControlError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| ControlError::from_sql("opening the database for reading", error))
}

pub(super) fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(WAIT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // The last connection to close would fold and delete the write-ahead log, which may be the only
    // evidence of what went wrong.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

/// A descriptor of our own for `dir`, one that can be flushed.
pub(super) fn own_dir(dir: impl AsFd) -> Result<OwnedFd, ControlError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::empty())
        .map_err(|errno| ControlError::from_io("opening the journal directory", errno.into()))
}

#[cfg(test)]
mod tests {
    use super::{GENESIS, Position, Reading, Stored, Verdict, judge};
    use crate::model::Digest;

    fn at(commits: u64, history: &str) -> Position {
        Position {
            commits,
            events: commits,
            chain: Digest::of(format!("{history}{commits}").as_bytes()),
        }
    }

    fn db(commits: u64, history: &str) -> Stored {
        Stored {
            position: at(commits, history),
            previous: at(commits.saturating_sub(1), history).chain,
        }
    }

    fn log(commits: u64, history: &str, torn: bool) -> Reading {
        Reading::Last {
            position: at(commits, history),
            len: 7,
            torn,
        }
    }

    #[test]
    fn only_agreement_give_or_take_the_last_commit_may_be_written_to() {
        for (here, heads, expected) in [
            (db(3, "a"), log(3, "a", false), Verdict::Good { len: 7 }),
            (
                db(3, "a"),
                log(3, "a", true),
                Verdict::Repair { torn: true },
            ),
            (
                db(4, "a"),
                log(3, "a", true),
                Verdict::Repair { torn: true },
            ),
            (
                db(4, "a"),
                log(3, "a", false),
                Verdict::Repair { torn: false },
            ),
        ] {
            assert_eq!(
                judge(Some(here), &heads).unwrap(),
                expected,
                "{here:?} {heads:?}"
            );
        }
        let made = Stored {
            position: GENESIS,
            previous: GENESIS.chain,
        };
        let repaired = judge(Some(made), &Reading::Absent).unwrap();
        assert_eq!(repaired, Verdict::Repair { torn: false });
        assert_eq!(judge(None, &Reading::Absent).unwrap(), Verdict::Fresh);
    }

    #[test]
    fn every_other_difference_is_named_and_read_only() {
        for (here, heads, says) in [
            (db(2, "a"), log(3, "a", false), "an older file was put back"),
            (db(5, "a"), log(3, "a", false), "an older log was put back"),
            (db(3, "a"), log(3, "b", false), "different histories"),
            (db(4, "a"), log(3, "b", false), "different histories"),
            (db(1, "a"), Reading::Absent, "no heads log"),
        ] {
            let verdict = judge(Some(here), &heads).unwrap();
            let Verdict::ReadOnly(text) = verdict else {
                unreachable!("{here:?} {heads:?}: {verdict:?}")
            };
            assert!(text.contains(says), "{text}");
        }
        assert!(judge(None, &log(1, "a", false)).is_err());
    }
}
