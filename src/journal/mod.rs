//! Sessions and their append-only logs: what happened, in which order, and which attachments and
//! paths it refers to.
//!
//! Promises: seq is dense from 0 within a generation (I6); an append is acknowledged after it is
//! durable (I5); only the closed list of positions makes a reference. Leaves to others: who may
//! read a session (`access`), the bytes a reference names (`store`).

#[cfg(any(test, feature = "_seams"))]
pub mod conformance;
pub mod dsh;
mod error;
mod event;
pub mod export;
pub mod import;
pub mod native;
mod once;
mod page;
pub mod record;
pub mod references;
mod sources;

use std::fmt;

pub use error::JournalError;
pub use event::{Event, EventType, NewEvent, ParseEventTypeError, Presented};
pub use once::{Once, ParseRetryKeyError, RetryKey};
pub use sources::Sources;

use crate::model::{
    AttachmentId, AttachmentRef, ByteCount, Digest, FileName, LogGeneration, PrincipalId, Seq,
    SessionHandle, SessionId, Timestamp,
};
use import::SessionLog;

/// A session's header and where its log stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The server's name for it, the only one that stands in addresses.
    pub handle: SessionHandle,
    /// Its own id, as its source wrote it.
    pub id: SessionId,
    /// When it was created.
    pub created_at: Timestamp,
    /// The absolute directory its declared paths are relative to, as its header has it.
    pub cwd: Option<String>,
    /// The numbering its seqs belong to.
    pub generation: LogGeneration,
    /// The next seq: the number of events so far.
    pub next_seq: Seq,
}

/// What a host states when it creates a session.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The server's name for it, drawn at random by the caller.
    pub handle: SessionHandle,
    /// Its own id; unique per host.
    pub id: SessionId,
    /// The directory its declared paths are relative to.
    pub cwd: Option<String>,
    /// The host that creates it and alone may write to it.
    pub host: PrincipalId,
    /// Who may read it, besides its host.
    pub owners: Vec<PrincipalId>,
    /// When.
    pub created_at: Timestamp,
}

/// What an append made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The numbering of `first` and `last`.
    pub generation: LogGeneration,
    /// The seq of the first event appended.
    pub first: Seq,
    /// The seq of the last event appended.
    pub last: Seq,
    /// The head of the session's hash chain after the last event.
    pub head: Digest,
}

/// What an import came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The session.
    pub session: Session,
    /// Whether it was not there before.
    pub is_new: bool,
}

/// A contiguous run of events.
#[derive(Clone, Debug)]
pub struct Page {
    /// The numbering of the events.
    pub generation: LogGeneration,
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Whether older events exist before the first of these.
    pub has_more: bool,
}

/// A file attachment a session's log refers to, for listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referenced {
    /// The reference.
    pub reference: AttachmentRef,
    /// The first event that refers to it.
    pub seq: Seq,
}

/// A path an event declares, with its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The numbering of `seq`.
    pub generation: LogGeneration,
    /// The `deliverables/presented` event.
    pub seq: Seq,
    /// The position in the event's `files`, from 0.
    pub index: u32,
    /// What the entry says; a claim, not a permission.
    pub presented: Presented,
}

/// Where a page of a listing starts and how many rows it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rows to pass over.
    pub offset: u64,
    /// The most rows to return.
    pub limit: u32,
}

/// A source of sessions. The database of native sessions is one; a DSH home is another.
///
/// Every call blocks; the service makes them from a bounded pool. A session is addressed by its
/// handle; whether the caller may see it was decided before (`access`).
pub trait Source: fmt::Debug + Send + Sync {
    /// The session's header and present length.
    ///
    /// # Errors
    /// [`JournalError::NotFound`] when there is none; [`JournalError::Corrupt`] when its log cannot
    /// be read.
    fn session(&self, session: SessionHandle) -> Result<Session, JournalError>;

    /// A page of events that ends before `before` (or at the end), oldest first, at most `limit`.
    ///
    /// # Errors
    /// As [`Source::session`]; [`JournalError::StaleGeneration`] when `generation` is not the
    /// present one.
    fn page(
        &self,
        session: SessionHandle,
        generation: Option<LogGeneration>,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, JournalError>;

    /// The attachments the session's log refers to, in order of first reference.
    ///
    /// # Errors
    /// As [`Source::session`].
    fn references(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Referenced>, JournalError>;

    /// The session's own reference to this content, under `name` when one is given, else its first.
    ///
    /// # Errors
    /// As [`Source::session`]; [`JournalError::NotFound`] when the log has no such reference.
    fn reference(
        &self,
        session: SessionHandle,
        id: AttachmentId,
        name: Option<&FileName>,
    ) -> Result<AttachmentRef, JournalError>;

    /// The paths the session's log declares, in order.
    ///
    /// # Errors
    /// As [`Source::session`].
    fn declared(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Declared>, JournalError>;

    /// The newest event of any of these types, which are some of [`STANDING`].
    ///
    /// # Errors
    /// As [`Source::session`].
    fn latest(
        &self,
        session: SessionHandle,
        kinds: &[&str],
    ) -> Result<Option<Event>, JournalError> {
        let mut before = None;
        loop {
            let page = self.page(session, None, before, 200)?;
            before = page.events.first().map(|event| event.seq);
            let mut newest = page.events.into_iter().rev();
            if let Some(found) = newest.find(|event| kinds.contains(&event.kind.as_str())) {
                return Ok(Some(found));
            }
            if !page.has_more || before.is_none() {
                return Ok(None);
            }
        }
    }

    /// The path declared at one place of the session's log.
    ///
    /// # Errors
    /// As [`Source::session`]; [`JournalError::StaleGeneration`] when `generation` is not the present
    /// one; [`JournalError::NotFound`] when nothing is declared there.
    fn declared_at(
        &self,
        session: SessionHandle,
        generation: LogGeneration,
        seq: Seq,
        index: u32,
    ) -> Result<Declared, JournalError> {
        const STEP: u32 = 1024;
        let present = self.session(session)?.generation;
        if generation != present {
            return Err(JournalError::StaleGeneration {
                asked: generation,
                present,
            });
        }
        let mut window = Window {
            offset: 0,
            limit: STEP,
        };
        loop {
            let step = self.declared(session, window)?;
            let found = step.iter().find(|one| (one.seq, one.index) == (seq, index));
            if let Some(found) = found {
                return Ok(found.clone());
            }
            let is_last = step.len() < usize::try_from(STEP).unwrap_or(usize::MAX);
            if is_last || step.last().is_none_or(|last| last.seq > seq) {
                return Err(JournalError::NotFound);
            }
            window.offset = window.offset.saturating_add(STEP.into());
        }
    }
}

/// The types of the events that say how a session stands: its turn, and what it runs under.
pub const STANDING: [&str; 5] = [
    "turn/start",
    "turn/end",
    "permission/preset",
    "sandbox/mode",
    "approval/policy",
];

/// What a verification of a whole session found in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// The events, each of which matched its hash.
    pub events: u64,
    /// The head of the chain.
    pub head: Digest,
    /// The references and declared paths, which are what the events say.
    pub references: u64,
}

/// A journal that can be written to: the native one.
pub trait Journal: Source {
    /// Reads the whole session: every hash of its chain, and that references and declared paths are
    /// exactly what its events say. Memory does not grow with the log.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`] with the first row that is wrong; [`JournalError::NotFound`].
    fn verify(&self, session: SessionHandle) -> Result<Audited, JournalError>;

    /// Creates a session; returns after it is durable.
    ///
    /// # Errors
    /// [`JournalError::Exists`] when the host has a session of this id; [`JournalError::NotDurable`]
    /// when the flush failed.
    fn create(&self, new: NewSession) -> Result<Session, JournalError>;

    /// Appends events; returns after they are durable. All of them or none.
    ///
    /// # Errors
    /// [`JournalError::UnknownReference`] when an event refers to content that was neither uploaded
    /// to nor referenced by this session; [`JournalError::SeqMismatch`] when `expected` is not the
    /// next seq; [`JournalError::Refused`] when an event breaks a bound;
    /// [`JournalError::NotDurable`] when the flush failed: nothing more is taken until restart.
    fn append(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
    ) -> Result<Appended, JournalError>;

    /// As [`Journal::append`], for a request that may come again: a repeat is answered as the first
    /// was, and nothing is appended. The answer is kept for a day, in the same commit as the events.
    ///
    /// # Errors
    /// As [`Journal::append`]; such an outcome is not kept. [`JournalError::KeyReused`] when the key
    /// came with something else before.
    fn append_once(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
        once: Once,
    ) -> Result<Appended, JournalError>;

    /// Records that this content was uploaded to the session, so that its events may refer to it;
    /// charges the session's quota by `reference.bytes`, once per (content, name). Returns after it
    /// is durable.
    ///
    /// # Errors
    /// [`JournalError::OverQuota`] when the session's quota does not allow it;
    /// [`JournalError::NotDurable`] when the flush failed.
    fn record_upload(
        &self,
        session: SessionHandle,
        reference: &AttachmentRef,
        at: Timestamp,
    ) -> Result<(), JournalError>;

    /// Takes in a whole session in one commit: its header, what was `uploaded` for it, and every event
    /// of `log`. A repeat of what is there is answered with what is there.
    ///
    /// Other writes wait meanwhile, so the caller bounds the log.
    ///
    /// # Errors
    /// [`JournalError::Exists`] when the host has another session of this id;
    /// [`JournalError::UnknownReference`] when an event refers to what is not among `uploaded`;
    /// [`JournalError::Refused`] with the row; [`JournalError::OverQuota`];
    /// [`JournalError::NotDurable`]. After any of them nothing of it is there.
    fn import(
        &self,
        new: NewSession,
        uploaded: Vec<AttachmentRef>,
        log: SessionLog,
    ) -> Result<Imported, JournalError>;

    /// The events from `from` on, oldest first: at most `limit`, and fewer when their texts sum up to
    /// a page's.
    ///
    /// # Errors
    /// As [`Source::session`]; [`JournalError::Refused`] for a session that is not native.
    fn events_from(
        &self,
        session: SessionHandle,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError>;

    /// Refuses early: whether an upload of `bytes` under `name` could be charged to the session now.
    /// What has the name and length of a recorded upload passes: it may be a repeat, which is not
    /// charged again, and its content will tell.
    ///
    /// # Errors
    /// [`JournalError::OverQuota`] when it could not.
    fn admit_upload(
        &self,
        session: SessionHandle,
        name: &FileName,
        bytes: ByteCount,
    ) -> Result<(), JournalError>;
}
