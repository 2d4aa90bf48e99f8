//! Native sessions: rows of the control database, chained per session.
//!
//! Promises: what [`Journal::append`] answered is durable, dense and all there (I5, I6, I12); an
//! event refers only to content its own session has (knowing a digest is no right to the bytes);
//! a row that is not what was written is never returned, and spoils no other session. Leaves to
//! others: transactions and flushes (`control`), who may ask (`access`).

#![forbid(unsafe_code)]

use std::{collections::HashSet, sync::Arc, vec};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    Appended, Audited, Declared, Event, Imported, Journal, JournalError, NewEvent, NewSession,
    Once, Page, Presented, Referenced, Session, Source, Window,
    export::on_one_line,
    import::SessionLog,
    page::{PAGE_BYTES, is_message},
    record::{self, Contents, Link},
};
use crate::{
    control::{Control, ControlError, Recalled, Tx, rusqlite},
    model::{
        AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest, FileName, JournalLimits,
        LogGeneration, MediaType, PrincipalId, Seq, SessionHandle, SessionId, Timestamp,
    },
};

/// The name of this source in the table of sessions.
pub const SOURCE: &str = "native";

/// How many events a verification looks at under one state of the database.
const VERIFY_STEP: u64 = 256;

impl From<ControlError> for JournalError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Busy | ControlError::Undone => Self::Busy,
            ControlError::Full => Self::Full,
            ControlError::NotDurable | ControlError::ReadOnly(_) => Self::NotDurable,
            ControlError::Corrupt(what) => Self::Corrupt(what.to_string()),
            ControlError::Damaged(_)
            | ControlError::Newer { .. }
            | ControlError::Panicked
            | ControlError::Sql { .. }
            | ControlError::Io { .. } => Self::Io {
                action: "using the database",
                source: error.into(),
            },
        }
    }
}

/// Lets `?` sort what SQLite says.
impl From<rusqlite::Error> for JournalError {
    fn from(error: rusqlite::Error) -> Self {
        ControlError::from(error).into()
    }
}

/// The sessions in the control database.
#[derive(Debug)]
pub struct NativeJournal {
    control: Arc<Control>,
    limits: JournalLimits,
    quota: ByteCount,
}

impl NativeJournal {
    /// The journal in `control`; `quota` is what the attachments of one session may sum up to.
    #[must_use]
    pub fn new(control: Arc<Control>, limits: JournalLimits, quota: ByteCount) -> Self {
        Self {
            control,
            limits,
            quota,
        }
    }

    /// Everything about an append that needs no database, before the one writer is asked.
    fn admit(&self, events: Vec<NewEvent>) -> Result<Vec<(NewEvent, Contents)>, JournalError> {
        let most = self.limits.events_per_append;
        if events.is_empty() || events.len() > most {
            return Err(JournalError::Refused(format!(
                "an append has {} events, 1 to {most} are allowed",
                events.len()
            )));
        }
        events
            .into_iter()
            .map(|event| {
                let contents = record::admit(&event, &self.limits)
                    .map_err(|error| JournalError::Refused(error.to_string()))?;
                Ok((event, contents))
            })
            .collect()
    }

    fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        self.control.read(query)
    }
}

impl Source for NativeJournal {
    fn session(&self, session: SessionHandle) -> Result<Session, JournalError> {
        self.read(|conn| Ok(header(conn, session)?.session))
    }

    /// The page starts at a `user/message` or `assistant/message`, at the log's start, or, in a
    /// stretch of `limit` events without one, at whatever event is `limit` before the end. It is
    /// shorter than `limit` when its texts sum up to more than 4 MiB.
    fn page(
        &self,
        session: SessionHandle,
        generation: Option<LogGeneration>,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, JournalError> {
        current(generation)?;
        let limit = limit.clamp(1, self.limits.events_per_page);
        self.read(|conn| {
            let header = header(conn, session)?;
            let end = before
                .unwrap_or(header.session.next_seq)
                .min(header.session.next_seq)
                .get();
            let start = header.page_start(conn, end, limit)?;
            Ok(Page {
                generation: LogGeneration::NATIVE,
                events: header.events(conn, start..end)?,
                has_more: start > 0,
            })
        })
    }

    fn references(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Referenced>, JournalError> {
        self.read(|conn| {
            let header = header(conn, session)?;
            let mut all = conn.prepare_cached(
                "SELECT digest, name, bytes, kind, media_type, width, height, first_seq, seal, hash
                 FROM refs LEFT JOIN events ON events.session = ?1 AND seq = first_seq
                 WHERE refs.session = ?1 ORDER BY refs.id LIMIT ?2 OFFSET ?3",
            )?;
            let mut rows = all.query((header.row, window.limit, integer(window.offset)?))?;
            let mut references = Vec::new();
            while let Some(row) = rows.next()? {
                references.push(referenced(row)?);
            }
            Ok(references)
        })
    }

    fn reference(
        &self,
        session: SessionHandle,
        id: AttachmentId,
        name: Option<&FileName>,
    ) -> Result<AttachmentRef, JournalError> {
        self.read(|conn| {
            let header = header(conn, session)?;
            let mut first = conn.prepare_cached(
                "SELECT digest, name, bytes, kind, media_type, width, height, first_seq, seal, hash
                 FROM refs LEFT JOIN events ON events.session = ?1 AND seq = first_seq
                 WHERE refs.session = ?1 AND digest = ?2 AND (?3 IS NULL OR name = ?3)
                 ORDER BY refs.id LIMIT 1",
            )?;
            let digest = id.digest();
            let name = name.map(FileName::as_str);
            let mut rows = first.query((header.row, digest.as_bytes(), name))?;
            match rows.next()? {
                Some(row) => Ok(referenced(row)?.reference),
                None => Err(JournalError::NotFound),
            }
        })
    }

    fn declared(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Declared>, JournalError> {
        self.read(|conn| {
            let header = header(conn, session)?;
            let mut all = conn.prepare_cached(
                "SELECT declared.seq, idx, path, description, seal, hash
                 FROM declared LEFT JOIN events
                     ON events.session = ?1 AND events.seq = declared.seq
                 WHERE declared.session = ?1 ORDER BY declared.seq, idx LIMIT ?2 OFFSET ?3",
            )?;
            let mut rows = all.query((header.row, window.limit, integer(window.offset)?))?;
            let mut declared = Vec::new();
            while let Some(row) = rows.next()? {
                declared.push(declared_of(row)?);
            }
            Ok(declared)
        })
    }

    fn latest(
        &self,
        session: SessionHandle,
        kinds: &[&str],
    ) -> Result<Option<Event>, JournalError> {
        self.read(|conn| {
            let header = header(conn, session)?;
            let mut newest = None;
            for kind in kinds {
                let seq: Option<i64> = conn
                    .prepare_cached(LATEST)?
                    .query_row((header.row, kind), |row| row.get(0))?;
                newest = newest.max(seq);
            }
            let Some(seq) = newest.map(count_of).transpose()? else {
                return Ok(None);
            };
            Ok(header.events(conn, seq..seq.saturating_add(1))?.pop())
        })
    }

    fn declared_at(
        &self,
        session: SessionHandle,
        generation: LogGeneration,
        seq: Seq,
        index: u32,
    ) -> Result<Declared, JournalError> {
        current(Some(generation))?;
        self.read(|conn| {
            let header = header(conn, session)?;
            let mut one = conn.prepare_cached(
                "SELECT declared.seq, idx, path, description, seal, hash
                 FROM declared LEFT JOIN events
                     ON events.session = ?1 AND events.seq = declared.seq
                 WHERE declared.session = ?1 AND declared.seq = ?2 AND idx = ?3",
            )?;
            let mut rows = one.query((header.row, integer(seq.get())?, index))?;
            match rows.next()? {
                Some(row) => declared_of(row),
                None => Err(JournalError::NotFound),
            }
        })
    }
}

/// The newest seq of one type. The last condition is the index's own, to the letter.
const LATEST: &str = "
    SELECT max(seq) FROM events WHERE session = ?1 AND type = ?2 AND type IN
    ('turn/start', 'turn/end', 'permission/preset', 'sandbox/mode', 'approval/policy')";

impl Journal for NativeJournal {
    fn verify(&self, session: SessionHandle) -> Result<Audited, JournalError> {
        let header = self.read(|conn| header(conn, session))?;
        let end = header.session.next_seq.get();
        let mut audit = Audited {
            events: 0,
            head: header.genesis,
            references: 0,
        };
        while audit.events < end {
            let range = audit.events..end.min(audit.events.saturating_add(VERIFY_STEP));
            self.read(|conn| header.audit_step(conn, range, &mut audit))?;
        }
        if audit.head != header.head {
            return Err(header.corrupt("its log ends with another hash than its header has"));
        }
        self.read(|conn| {
            let (rows, charged) = conn
                .prepare_cached(
                    "SELECT (SELECT count(*) FROM refs WHERE session = ?1 AND first_seq < ?2)
                         + (SELECT count(*) FROM declared WHERE session = ?1 AND seq < ?2),
                         (SELECT total(bytes) FROM uploads WHERE session = ?1)
                         = (SELECT quota_used FROM sessions WHERE id = ?1)",
                )?
                .query_row((header.row, integer(end)?), |row| {
                    Ok((row.get(0)?, row.get::<_, bool>(1)?))
                })?;
            let rows = count_of(rows)?;
            if rows != audit.references {
                return Err(header.corrupt(&format!(
                    "{rows} references and paths are listed, its events have {}",
                    audit.references
                )));
            }
            if !charged {
                return Err(header.corrupt("its quota is not what its uploads sum up to"));
            }
            Ok(audit)
        })
    }

    fn create(&self, new: NewSession) -> Result<Session, JournalError> {
        self.control.write(move |tx| {
            create(tx, &new)?;
            Ok(Session {
                handle: new.handle,
                id: new.id,
                created_at: new.created_at,
                cwd: new.cwd,
                generation: LogGeneration::NATIVE,
                next_seq: Seq::FIRST,
            })
        })
    }

    fn append(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
    ) -> Result<Appended, JournalError> {
        let events = self.admit(events)?;
        self.control
            .write(move |tx| Append::new(tx, session, expected)?.run(events.into_iter()))
    }

    fn append_once(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
        once: Once,
    ) -> Result<Appended, JournalError> {
        let events = self.admit(events)?;
        let scope = format!("{} append {session}", once.who);
        self.control.write(move |tx| {
            let key = once.key.as_str();
            match tx.recall(&scope, key, &once.asked)? {
                Recalled::Same(answer) => Answer::read(&answer),
                Recalled::Other => Err(JournalError::KeyReused),
                Recalled::New => {
                    let appended = Append::new(tx, session, expected)?.run(events.into_iter())?;
                    tx.keep(&scope, key, &once.asked, &Answer::text(&appended))?;
                    Ok(appended)
                }
            }
        })
    }

    fn record_upload(
        &self,
        session: SessionHandle,
        reference: &AttachmentRef,
        at: Timestamp,
    ) -> Result<(), JournalError> {
        let (reference, limit) = (reference.clone(), self.quota);
        self.control
            .write(move |tx| upload(tx, session, &reference, at, limit))
    }

    fn import(
        &self,
        new: NewSession,
        uploaded: Vec<AttachmentRef>,
        log: SessionLog,
    ) -> Result<Imported, JournalError> {
        let (limits, quota) = (self.limits.clone(), self.quota);
        self.control.write(move |tx| {
            if let Some(present) = present(tx, &new)? {
                return Ok(Imported {
                    session: same(tx, present, &new, &log)?,
                    is_new: false,
                });
            }
            let (handle, at) = (new.handle, new.created_at);
            create(tx, &new)?;
            for reference in &uploaded {
                upload(tx, handle, reference, at, quota)?;
            }
            let mut append = Append::new(tx, handle, None)?;
            log.read(|event| {
                let contents = record::admit(&event, &limits).map_err(|error| {
                    JournalError::Refused(format!("event {}: {error}", append.seq))
                })?;
                append.one(&event, &contents)
            })?;
            append.finish()?;
            Ok(Imported {
                session: header(tx, handle)?.session,
                is_new: true,
            })
        })
    }

    fn events_from(
        &self,
        session: SessionHandle,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError> {
        let limit = limit.clamp(1, self.limits.events_per_page);
        self.read(|conn| {
            let header = header(conn, session)?;
            let end = header.run_end(conn, from.get(), limit)?;
            header.events(conn, from.get()..end)
        })
    }

    fn admit_upload(
        &self,
        session: SessionHandle,
        name: &FileName,
        bytes: ByteCount,
    ) -> Result<(), JournalError> {
        self.read(|conn| {
            let header = header(conn, session)?;
            let over = match within(header.quota_used, self.quota, bytes) {
                Ok(()) => return Ok(()),
                Err(over) => over,
            };
            // Longer than any row can state is no repeat of one.
            let repeats = match i64::try_from(bytes.get()) {
                Err(_) => false,
                Ok(bytes) => conn
                    .prepare_cached(
                        "SELECT 1 FROM uploads WHERE session = ?1 AND name = ?2 AND bytes = ?3",
                    )?
                    .exists(params![header.row, name.as_str(), bytes])?,
            };
            if repeats { Ok(()) } else { Err(over) }
        })
    }
}

/// Writes the row of a session and its owners.
fn create(tx: &Tx<'_>, new: &NewSession) -> Result<(), JournalError> {
    let added = tx
        .prepare_cached(
            "INSERT INTO sessions
                 (handle, source, own_id, host, cwd, created_at, genesis, head)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            new.handle.to_string(),
            SOURCE,
            new.id.as_str(),
            new.host.to_string(),
            new.cwd,
            new.created_at.as_millis(),
            record::genesis(new).as_bytes(),
        ])?;
    if added == 0 {
        return Err(JournalError::Exists);
    }
    let row = tx.last_insert_rowid();
    for owner in &new.owners {
        tx.prepare_cached(
            "INSERT INTO session_owners (session, principal) VALUES (?1, ?2)
             ON CONFLICT DO NOTHING",
        )?
        .execute((row, owner.to_string()))?;
    }
    Ok(())
}

/// The session its host already has under this id.
fn present(conn: &Connection, new: &NewSession) -> Result<Option<SessionHandle>, JournalError> {
    let handle: Option<String> = conn
        .prepare_cached(
            "SELECT handle FROM sessions WHERE source = ?1 AND host = ?2 AND own_id = ?3",
        )?
        .query_row((SOURCE, new.host.to_string(), new.id.as_str()), |row| {
            row.get(0)
        })
        .optional()?;
    handle
        .map(|text| {
            SessionHandle::parse(&text)
                .map_err(|_form| JournalError::Corrupt("a session's handle".to_owned()))
        })
        .transpose()
}

/// The session that is there, when it is what would be imported: it may have gone on since.
fn same(
    conn: &Connection,
    session: SessionHandle,
    new: &NewSession,
    log: &SessionLog,
) -> Result<Session, JournalError> {
    let header = header(conn, session)?;
    if (header.session.created_at, &header.session.cwd) != (new.created_at, &new.cwd) {
        return Err(JournalError::Exists);
    }
    let mut all = conn.prepare_cached(
        "SELECT seq, time, type, ignorable, data, hash FROM events WHERE session = ?1 ORDER BY seq",
    )?;
    let mut rows = all.query([header.row])?;
    let mut head = header.genesis;
    log.read(|event| {
        let (kept, stored) = match rows.next()? {
            Some(row) => event_of(row)?,
            None => return Err(JournalError::Exists),
        };
        head = record::head(&head, link(&kept));
        if head != stored {
            return Err(header.damaged(kept.seq, "is not what was written"));
        }
        let is_same = (&*kept.kind, kept.time, kept.ignorable)
            == (event.kind.as_str(), event.time, event.ignorable)
            && on_one_line(&kept.data).get() == on_one_line(&event.data).get();
        if is_same {
            Ok(())
        } else {
            Err(JournalError::Exists)
        }
    })?;
    Ok(header.session)
}

/// Whether `asked` more bytes fit.
fn within(used: ByteCount, limit: ByteCount, asked: ByteCount) -> Result<(), JournalError> {
    if used.saturating_add(asked) <= limit {
        Ok(())
    } else {
        Err(JournalError::OverQuota { used, limit, asked })
    }
}

fn upload(
    tx: &Tx<'_>,
    session: SessionHandle,
    reference: &AttachmentRef,
    at: Timestamp,
    limit: ByteCount,
) -> Result<(), JournalError> {
    let header = header(tx, session)?;
    let digest = reference.id.digest();
    let bytes = integer(reference.bytes.get())?;
    let known = tx
        .prepare_cached("SELECT bytes FROM objects WHERE digest = ?1")?
        .query_row([digest.as_bytes()], |row| row.get::<_, i64>(0))
        .optional()?;
    if known.is_some_and(|known| known != bytes) {
        return Err(JournalError::Refused(
            "one content cannot have two lengths".to_owned(),
        ));
    }
    let added = tx
        .prepare_cached(
            "INSERT INTO uploads (session, digest, name, bytes, at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO NOTHING",
        )?
        .execute((
            header.row,
            digest.as_bytes(),
            name_of(reference),
            bytes,
            at.as_millis(),
        ))?;
    if added == 0 {
        return Ok(());
    }
    within(header.quota_used, limit, reference.bytes)?;
    tx.prepare_cached("UPDATE sessions SET quota_used = quota_used + ?2 WHERE id = ?1")?
        .execute((header.row, bytes))?;
    tx.prepare_cached(
        "INSERT INTO objects (digest, bytes, created_at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO NOTHING",
    )?
    .execute((digest.as_bytes(), bytes, at.as_millis()))?;
    Ok(())
}

/// One append inside its transaction.
struct Append<'t, 'c> {
    tx: &'t mut Tx<'c>,
    header: Header,
    first: Seq,
    seq: Seq,
    head: Digest,
}

impl<'t, 'c> Append<'t, 'c> {
    fn new(
        tx: &'t mut Tx<'c>,
        session: SessionHandle,
        expected: Option<Seq>,
    ) -> Result<Self, JournalError> {
        let header = header(tx, session)?;
        let present = header.session.next_seq;
        match expected {
            Some(expected) if expected != present => {
                Err(JournalError::SeqMismatch { expected, present })
            }
            _ => Ok(Self {
                tx,
                first: present,
                seq: present,
                head: header.head,
                header,
            }),
        }
    }

    fn run(
        mut self,
        events: vec::IntoIter<(NewEvent, Contents)>,
    ) -> Result<Appended, JournalError> {
        for (event, contents) in events {
            self.one(&event, &contents)?;
        }
        self.finish()
    }

    /// Appends one event with what it refers to and declares.
    fn one(&mut self, event: &NewEvent, contents: &Contents) -> Result<(), JournalError> {
        self.event(event)?;
        for reference in &contents.references {
            self.reference(reference)?;
        }
        for (index, presented) in &contents.presented {
            self.declared(*index, presented)?;
        }
        self.seq = self.seq.next().ok_or_else(full_log)?;
        Ok(())
    }

    /// Records where the log stands now.
    fn finish(self) -> Result<Appended, JournalError> {
        self.tx
            .prepare_cached("UPDATE sessions SET next_seq = ?2, head = ?3 WHERE id = ?1")?
            .execute((
                self.header.row,
                integer(self.seq.get())?,
                self.head.as_bytes(),
            ))?;
        let (first, next) = (self.first.get(), self.seq.get());
        let count = next.saturating_sub(first);
        if count > 0 {
            self.tx.witness(count, &self.head);
        }
        Ok(Appended {
            generation: LogGeneration::NATIVE,
            first: self.first,
            last: Seq::new(next.saturating_sub(1).max(first)),
            head: self.head,
        })
    }

    fn event(&mut self, event: &NewEvent) -> Result<(), JournalError> {
        let link = Link {
            seq: self.seq,
            time: event.time,
            kind: event.kind.as_str(),
            ignorable: event.ignorable,
            data: event.data.get(),
        };
        self.head = record::head(&self.head, link);
        self.tx
            .prepare_cached(
                "INSERT INTO events (session, seq, time, type, ignorable, data, hash)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute((
                self.header.row,
                integer(link.seq.get())?,
                link.time.as_millis(),
                link.kind,
                link.ignorable,
                link.data,
                self.head.as_bytes(),
            ))?;
        Ok(())
    }

    /// Takes a reference to content the session has; any other could be a guessed digest.
    fn reference(&self, reference: &AttachmentRef) -> Result<(), JournalError> {
        let digest = reference.id.digest();
        let bytes = integer(reference.bytes.get())?;
        // The name belongs to a file reference; an image is known by its content.
        let name = match reference.kind {
            AttachmentKind::File => reference.name.as_ref().map(FileName::as_str),
            AttachmentKind::Image { .. } => None,
        };
        let owned: bool = self
            .tx
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM uploads WHERE session = ?1 AND digest = ?2
                     AND bytes = ?3 AND (?4 IS NULL OR name = ?4))
                 OR EXISTS (SELECT 1 FROM refs WHERE session = ?1 AND digest = ?2
                     AND bytes = ?3 AND (?4 IS NULL OR name = ?4))",
            )?
            .query_row((self.header.row, digest.as_bytes(), bytes, name), |row| {
                row.get(0)
            })?;
        if !owned {
            return Err(JournalError::UnknownReference(reference.id));
        }
        let (kind, media_type, width, height) = columns_of(reference.kind);
        self.tx
            .prepare_cached(
                "INSERT INTO refs (session, digest, name, bytes, kind, media_type, width, height,
                     first_seq, seal)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                self.header.row,
                digest.as_bytes(),
                name_of(reference),
                bytes,
                kind,
                media_type,
                width,
                height,
                integer(self.seq.get())?,
                record::reference_seal(&self.head, reference).as_bytes(),
            ])?;
        Ok(())
    }

    fn declared(&self, index: u32, presented: &Presented) -> Result<(), JournalError> {
        self.tx
            .prepare_cached(
                "INSERT INTO declared (session, seq, idx, path, description, seal)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                self.header.row,
                integer(self.seq.get())?,
                index,
                &presented.path,
                presented.description.as_deref(),
                record::declared_seal(&self.head, index, presented).as_bytes(),
            ))?;
        Ok(())
    }
}

/// An answer to an append, as it is kept.
#[derive(Deserialize, Serialize)]
struct Answer {
    first: Seq,
    last: Seq,
    head: Digest,
}

impl Answer {
    fn text(appended: &Appended) -> String {
        let answer = Self {
            first: appended.first,
            last: appended.last,
            head: appended.head,
        };
        serde_json::to_string(&answer).expect("numbers and a digest have a JSON form")
    }

    fn read(text: &str) -> Result<Appended, JournalError> {
        let answer: Self = serde_json::from_str(text)
            .map_err(|error| JournalError::Corrupt(format!("a kept answer: {error}")))?;
        Ok(Appended {
            generation: LogGeneration::NATIVE,
            first: answer.first,
            last: answer.last,
            head: answer.head,
        })
    }
}

/// A native session's row.
struct Header {
    row: i64,
    session: Session,
    genesis: Digest,
    head: Digest,
    quota_used: ByteCount,
}

fn header(conn: &Connection, session: SessionHandle) -> Result<Header, JournalError> {
    let mut one = conn.prepare_cached(
        "SELECT id, own_id, host, cwd, created_at, next_seq, head, quota_used, genesis,
             (SELECT hash FROM events
              WHERE session = sessions.id AND seq = sessions.next_seq - 1)
         FROM sessions WHERE handle = ?1 AND source = ?2",
    )?;
    let mut rows = one.query((session.to_string(), SOURCE))?;
    let row = rows.next()?.ok_or(JournalError::NotFound)?;
    let damaged = |what: &str| JournalError::Corrupt(format!("session {session}: its {what}"));
    let own_id: String = row.get(1)?;
    let host: String = row.get(2)?;
    let header = NewSession {
        handle: session,
        id: SessionId::parse(&own_id).map_err(|_form| damaged("id"))?,
        host: PrincipalId::parse(&host).map_err(|_form| damaged("host"))?,
        cwd: row.get(3)?,
        owners: Vec::new(),
        created_at: Timestamp::from_millis(row.get(4)?),
    };
    let genesis = record::genesis(&header);
    let head: [u8; 32] = row.get(6)?;
    let last: Option<[u8; 32]> = row.get(9)?;
    if *genesis.as_bytes() != row.get::<_, [u8; 32]>(8)? {
        return Err(damaged("header is not what was written"));
    }
    if last.as_ref().unwrap_or(genesis.as_bytes()) != &head {
        return Err(damaged("header does not go with its last event"));
    }
    Ok(Header {
        row: row.get(0)?,
        session: Session {
            handle: session,
            id: header.id,
            created_at: header.created_at,
            cwd: header.cwd,
            generation: LogGeneration::NATIVE,
            next_seq: Seq::new(count_of(row.get(5)?)?),
        },
        genesis,
        head: Digest::from_bytes(head),
        quota_used: ByteCount::new(count_of(row.get(7)?)?),
    })
}

impl Header {
    /// The first seq of the page that ends before `end`.
    fn page_start(&self, conn: &Connection, end: u64, limit: usize) -> Result<u64, JournalError> {
        let mut newest = conn.prepare_cached(
            "SELECT seq, octet_length(data), type
             FROM events WHERE session = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = newest.query((self.row, integer(end)?, limit))?;
        let mut bytes = 0_u64;
        let mut floor = end;
        let mut message = None;
        while let Some(row) = rows.next()? {
            bytes = bytes.saturating_add(count_of(row.get(1)?)?);
            if bytes > PAGE_BYTES && floor < end {
                break;
            }
            floor = count_of(row.get(0)?)?;
            if row.get_ref(2)?.as_str().is_ok_and(is_message) {
                message = Some(floor);
            }
        }
        if floor == end && end > 0 {
            return Err(self.damaged(Seq::new(end.saturating_sub(1)), "is missing or unreadable"));
        }
        // The log's start needs no message.
        Ok(if floor == 0 {
            0
        } else {
            message.unwrap_or(floor)
        })
    }

    /// The seq after the last event of the run that starts at `from`.
    fn run_end(&self, conn: &Connection, from: u64, limit: usize) -> Result<u64, JournalError> {
        let mut next = conn.prepare_cached(
            "SELECT octet_length(data) FROM events
             WHERE session = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = next.query((self.row, integer(from)?, limit))?;
        let (mut bytes, mut end) = (0_u64, from);
        while let Some(row) = rows.next()? {
            bytes = bytes.saturating_add(count_of(row.get(0)?)?);
            if bytes > PAGE_BYTES && end > from {
                break;
            }
            end = end.saturating_add(1);
        }
        if end < self.session.next_seq.get() && end == from {
            return Err(self.damaged(Seq::new(from), "is missing or unreadable"));
        }
        Ok(end)
    }

    /// The events of `range`, each checked against the chain.
    fn events(
        &self,
        conn: &Connection,
        range: std::ops::Range<u64>,
    ) -> Result<Vec<Event>, JournalError> {
        let mut events = Vec::new();
        self.chain(conn, range, |event, _hash| {
            events.push(event);
            Ok(())
        })?;
        Ok(events)
    }

    /// Hands over the events of `range` in order, each after it was checked; the head after them.
    fn chain(
        &self,
        conn: &Connection,
        range: std::ops::Range<u64>,
        mut take: impl FnMut(Event, &Digest) -> Result<(), JournalError>,
    ) -> Result<Digest, JournalError> {
        let mut head = match range.start.checked_sub(1) {
            None => self.genesis,
            Some(before) => self.stored_head(conn, before)?,
        };
        let mut wanted = conn.prepare_cached(
            "SELECT seq, time, type, ignorable, data, hash
             FROM events WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq",
        )?;
        let (start, end) = (integer(range.start)?, integer(range.end)?);
        let mut rows = wanted.query((self.row, start, end))?;
        for seq in range {
            let seq = Seq::new(seq);
            let row = rows.next()?;
            let (event, stored) = row
                .and_then(|row| event_of(row).ok())
                .filter(|(event, _stored)| event.seq == seq)
                .ok_or_else(|| self.damaged(seq, "is missing or unreadable"))?;
            head = record::head(&head, link(&event));
            if head != stored {
                return Err(self.damaged(seq, "is not what was written"));
            }
            take(event, &head)?;
        }
        Ok(head)
    }

    fn stored_head(&self, conn: &Connection, seq: u64) -> Result<Digest, JournalError> {
        conn.prepare_cached("SELECT hash FROM events WHERE session = ?1 AND seq = ?2")?
            .query_row((self.row, integer(seq)?), |row| row.get(0))
            .optional()?
            .map(Digest::from_bytes)
            .ok_or_else(|| self.damaged(Seq::new(seq), "is missing or unreadable"))
    }

    fn damaged(&self, seq: Seq, what: &str) -> JournalError {
        self.corrupt(&format!("event {seq} {what}"))
    }

    fn corrupt(&self, what: &str) -> JournalError {
        JournalError::Corrupt(format!("session {}: {what}", self.session.handle))
    }

    /// Verifies the events of `range` and that the tables derived from them say the same.
    fn audit_step(
        &self,
        conn: &Connection,
        range: std::ops::Range<u64>,
        audit: &mut Audited,
    ) -> Result<(), JournalError> {
        let end = range.end;
        let mut references = audit.references;
        audit.head = self.chain(conn, range, |event, hash| {
            let contents = record::contents(&event.kind, event.data.get(), usize::MAX)
                .map_err(|_error| self.damaged(event.seq, "cannot be read"))?;
            references += self.audit_listings(conn, &event, hash, &contents)?;
            Ok(())
        })?;
        audit.events = end;
        audit.references = references;
        Ok(())
    }

    /// How many rows of the listings belong to `event`, all of which were found right.
    fn audit_listings(
        &self,
        conn: &Connection,
        event: &Event,
        hash: &Digest,
        contents: &Contents,
    ) -> Result<u64, JournalError> {
        let seq = integer(event.seq.get())?;
        // The same reference twice in one event is one row.
        let mut first_here = HashSet::new();
        for reference in &contents.references {
            let (kind, ..) = columns_of(reference.kind);
            let key = (reference.id, name_of(reference), kind);
            let (first_seq, seal) = conn
                .prepare_cached(
                    "SELECT first_seq, seal FROM refs
                     WHERE session = ?1 AND digest = ?2 AND name = ?3 AND kind = ?4",
                )?
                .query_row((self.row, key.0.digest().as_bytes(), key.1, key.2), |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?
                .unwrap_or((i64::MAX, [0; 32]));
            let new = first_seq == seq && first_here.insert(key);
            let wrong = new && seal != *record::reference_seal(hash, reference).as_bytes();
            if first_seq > seq || wrong {
                return Err(self.damaged(event.seq, "has a reference that is not listed"));
            }
        }
        for (index, presented) in &contents.presented {
            let seal: Option<[u8; 32]> = conn
                .prepare_cached(
                    "SELECT seal FROM declared WHERE session = ?1 AND seq = ?2 AND idx = ?3",
                )?
                .query_row((self.row, seq, index), |row| row.get(0))
                .optional()?;
            if seal != Some(*record::declared_seal(hash, *index, presented).as_bytes()) {
                return Err(self.damaged(event.seq, "declares a path that is not listed"));
            }
        }
        let own = first_here.len().saturating_add(contents.presented.len());
        Ok(u64::try_from(own).unwrap_or(u64::MAX))
    }
}

fn link(event: &Event) -> Link<'_> {
    Link {
        seq: event.seq,
        time: event.time,
        kind: &event.kind,
        ignorable: event.ignorable,
        data: event.data.get(),
    }
}

/// The event of a row with the hash stored beside it.
fn event_of(row: &Row<'_>) -> Result<(Event, Digest), JournalError> {
    let data: String = row.get(4)?;
    let data = RawValue::from_string(data)
        .map_err(|error| JournalError::Corrupt(format!("an event is not JSON: {error}")))?;
    let event = Event {
        seq: Seq::new(count_of(row.get(0)?)?),
        time: Timestamp::from_millis(row.get(1)?),
        kind: row.get(2)?,
        ignorable: row.get(3)?,
        data,
    };
    Ok((event, Digest::from_bytes(row.get(5)?)))
}

fn referenced(row: &Row<'_>) -> Result<Referenced, JournalError> {
    let damaged = |what: &str| JournalError::Corrupt(format!("a reference's {what}"));
    let name: String = row.get(1)?;
    let name = match name.as_str() {
        "" => None,
        name => Some(FileName::parse(name).map_err(|_form| damaged("name"))?),
    };
    let kind: String = row.get(3)?;
    let media_type: String = row.get(4)?;
    let kind = match kind.as_str() {
        "file" => AttachmentKind::File,
        _ => AttachmentKind::Image {
            media_type: MediaType::of_image(&media_type).ok_or_else(|| damaged("media type"))?,
            width: row.get(5)?,
            height: row.get(6)?,
        },
    };
    let reference = AttachmentRef {
        id: AttachmentId::new(Digest::from_bytes(row.get(0)?)),
        name,
        bytes: ByteCount::new(count_of(row.get(2)?)?),
        kind,
    };
    let seq = Seq::new(count_of(row.get(7)?)?);
    sealed(row, 8, seq, |event| {
        record::reference_seal(event, &reference)
    })?;
    Ok(Referenced { reference, seq })
}

fn declared_of(row: &Row<'_>) -> Result<Declared, JournalError> {
    let seq = Seq::new(count_of(row.get(0)?)?);
    let index = row.get(1)?;
    let presented = Presented {
        path: row.get(2)?,
        description: row.get(3)?,
    };
    sealed(row, 4, seq, |event| {
        record::declared_seal(event, index, &presented)
    })?;
    Ok(Declared {
        generation: LogGeneration::NATIVE,
        seq,
        index,
        presented,
    })
}

/// Checks the seal in `column` against the event's hash in the column after it.
fn sealed(
    row: &Row<'_>,
    column: usize,
    seq: Seq,
    seal: impl FnOnce(&Digest) -> Digest,
) -> Result<(), JournalError> {
    let stored = Digest::from_bytes(row.get(column)?);
    let event: Option<[u8; 32]> = row.get(column + 1)?;
    match event.map(|event| seal(&Digest::from_bytes(event))) {
        Some(seal) if seal == stored => Ok(()),
        _ => Err(JournalError::Corrupt(format!(
            "what is listed of event {seq} is not what was written"
        ))),
    }
}

/// The columns `kind`, `media_type`, `width` and `height`.
fn columns_of(kind: AttachmentKind) -> (&'static str, &'static str, u32, u32) {
    match kind {
        AttachmentKind::File => ("file", kind.media_type().as_str(), 0, 0),
        AttachmentKind::Image {
            media_type,
            width,
            height,
        } => ("image", media_type.as_str(), width, height),
    }
}

/// The column `name`: empty where there is none, which no name is.
fn name_of(reference: &AttachmentRef) -> &str {
    reference.name.as_ref().map_or("", FileName::as_str)
}

fn current(asked: Option<LogGeneration>) -> Result<(), JournalError> {
    match asked {
        Some(asked) if asked != LogGeneration::NATIVE => Err(JournalError::StaleGeneration {
            asked,
            present: LogGeneration::NATIVE,
        }),
        _ => Ok(()),
    }
}

/// A count as SQLite holds integers.
fn integer(n: u64) -> Result<i64, JournalError> {
    i64::try_from(n).map_err(|_range| JournalError::Refused("a number is too large".to_owned()))
}

fn count_of(n: i64) -> Result<u64, JournalError> {
    u64::try_from(n).map_err(|_sign| JournalError::Corrupt("a count is negative".to_owned()))
}

fn full_log() -> JournalError {
    JournalError::Refused("the log has no more numbers".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd, sync::Arc};

    use super::NativeJournal;
    use crate::{
        control::Control,
        journal::{
            Journal,
            conformance::{self, QUOTA, Rig, limits},
        },
        model::SystemClock,
    };

    #[derive(Debug)]
    struct Native {
        _keep: tempfile::TempDir,
        dir: OwnedFd,
        journal: Option<Arc<NativeJournal>>,
        inline: bool,
    }

    impl Native {
        #[expect(clippy::disallowed_methods, reason = "a test directory")]
        fn new(inline: bool) -> Self {
            let keep = tempfile::tempdir().unwrap();
            let dir = File::open(keep.path()).unwrap().into();
            let mut rig = Self {
                _keep: keep,
                dir,
                journal: None,
                inline,
            };
            rig.reopen();
            rig
        }
    }

    impl Rig for Native {
        fn journal(&self) -> Arc<dyn Journal> {
            self.journal.clone().unwrap()
        }

        fn reopen(&mut self) {
            self.journal = None;
            let clock = Arc::new(SystemClock);
            let control = if self.inline {
                Control::open_inline(&self.dir, clock)
            } else {
                Control::open(&self.dir, clock)
            };
            let control = Arc::new(control.unwrap());
            self.journal = Some(Arc::new(NativeJournal::new(control, limits(), QUOTA)));
        }
    }

    #[test]
    fn the_native_journal_keeps_what_every_journal_promises() {
        conformance::journal(|| Native::new(false));
    }

    #[test]
    fn the_inline_form_keeps_it_too() {
        conformance::journal(|| Native::new(true));
    }
}
