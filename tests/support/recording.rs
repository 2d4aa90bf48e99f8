//! Journal and store that write down every call they pass on, so that tests can compare what a
//! refusal asked for.

use std::sync::{Arc, Mutex, MutexGuard};

use holdfast::{
    journal::{
        Appended, Audited, Declared, Event, Imported, Journal, JournalError, NewEvent, NewSession,
        Once, Page, Referenced, Session, Source, Window, import::SessionLog,
    },
    model::{
        AttachmentId, AttachmentRef, ByteCount, FileName, LogGeneration, Seq, SessionHandle,
        Timestamp,
    },
    spool::{Spool, SpoolWriter},
    store::{Blob, Objects, Store, StoreError, Stored},
};

/// The calls so far, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<&'static str>>>, Arc<Between>);

/// What stands between an append and the journal.
#[derive(Debug, Default)]
struct Between {
    /// Held by a test, appends wait.
    gate: Mutex<()>,
    /// Held by a test, commits of content wait.
    commits: Mutex<()>,
    /// The appends let through before the others fail; all of them when absent.
    let_through: Mutex<Option<usize>>,
}

impl Calls {
    /// The calls since the last time, in order.
    pub(crate) fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn note(&self, call: &'static str) {
        self.0.lock().unwrap().push(call);
    }

    /// Whether this call was made since the last time.
    pub(crate) fn has(&self, call: &'static str) -> bool {
        self.0.lock().unwrap().contains(&call)
    }

    /// Appends wait for as long as what this returns is held.
    pub(crate) fn hold_appends(&self) -> MutexGuard<'_, ()> {
        self.1.gate.lock().unwrap()
    }

    /// Commits of content wait for as long as what this returns is held.
    pub(crate) fn hold_commits(&self) -> MutexGuard<'_, ()> {
        self.1.commits.lock().unwrap()
    }

    /// Lets so many appends through, and fails the others; `None` lets all through.
    pub(crate) fn let_appends_through(&self, count: Option<usize>) {
        *self.1.let_through.lock().unwrap() = count;
    }

    fn append(&self) -> Result<(), JournalError> {
        drop(self.1.gate.lock().unwrap());
        match self.1.let_through.lock().unwrap().as_mut() {
            Some(0) => Err(JournalError::NotDurable),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RecordingJournal {
    pub(crate) inner: Arc<dyn Journal>,
    pub(crate) calls: Calls,
}

impl Source for RecordingJournal {
    fn session(&self, session: SessionHandle) -> Result<Session, JournalError> {
        self.calls.note("journal.session");
        self.inner.session(session)
    }

    fn page(
        &self,
        session: SessionHandle,
        generation: Option<LogGeneration>,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, JournalError> {
        self.calls.note("journal.page");
        self.inner.page(session, generation, before, limit)
    }

    fn references(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Referenced>, JournalError> {
        self.calls.note("journal.references");
        self.inner.references(session, window)
    }

    fn reference(
        &self,
        session: SessionHandle,
        id: AttachmentId,
        name: Option<&FileName>,
    ) -> Result<AttachmentRef, JournalError> {
        self.calls.note("journal.reference");
        self.inner.reference(session, id, name)
    }

    fn declared(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Declared>, JournalError> {
        self.calls.note("journal.declared");
        self.inner.declared(session, window)
    }

    fn latest(
        &self,
        session: SessionHandle,
        kinds: &[&str],
    ) -> Result<Option<Event>, JournalError> {
        self.calls.note("journal.latest");
        self.inner.latest(session, kinds)
    }
}

impl Journal for RecordingJournal {
    fn verify(&self, session: SessionHandle) -> Result<Audited, JournalError> {
        self.calls.note("journal.verify");
        self.inner.verify(session)
    }

    fn create(&self, new: NewSession) -> Result<Session, JournalError> {
        self.calls.note("journal.create");
        self.inner.create(new)
    }

    fn append(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
    ) -> Result<Appended, JournalError> {
        self.calls.note("journal.append");
        self.calls.append()?;
        self.inner.append(session, events, expected)
    }

    fn append_once(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
        once: Once,
    ) -> Result<Appended, JournalError> {
        self.calls.note("journal.append_once");
        self.calls.append()?;
        self.inner.append_once(session, events, expected, once)
    }

    fn record_upload(
        &self,
        session: SessionHandle,
        reference: &AttachmentRef,
        at: Timestamp,
    ) -> Result<(), JournalError> {
        self.calls.note("journal.record_upload");
        self.inner.record_upload(session, reference, at)
    }

    fn import(
        &self,
        new: NewSession,
        uploaded: Vec<AttachmentRef>,
        log: SessionLog,
    ) -> Result<Imported, JournalError> {
        self.calls.note("journal.import");
        self.inner.import(new, uploaded, log)
    }

    fn events_from(
        &self,
        session: SessionHandle,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError> {
        self.calls.note("journal.events_from");
        self.inner.events_from(session, from, limit)
    }

    fn admit_upload(
        &self,
        session: SessionHandle,
        name: &FileName,
        bytes: ByteCount,
    ) -> Result<(), JournalError> {
        self.calls.note("journal.admit_upload");
        self.inner.admit_upload(session, name, bytes)
    }
}

#[derive(Debug)]
pub(crate) struct RecordingStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) calls: Calls,
}

impl Objects for RecordingStore {
    fn open(&self, reference: &AttachmentRef) -> Result<Blob, StoreError> {
        self.calls.note("store.open");
        self.inner.open(reference)
    }
}

impl Store for RecordingStore {
    fn forget(
        &self,
        digest: holdfast::model::Digest,
        referenced: &mut dyn FnMut() -> bool,
    ) -> Result<bool, StoreError> {
        self.calls.note("store.forget");
        self.inner.forget(digest, referenced)
    }

    fn spool(
        &self,
        declared: Option<ByteCount>,
        limit: ByteCount,
    ) -> Result<SpoolWriter, StoreError> {
        self.calls.note("store.spool");
        self.inner.spool(declared, limit)
    }

    fn commit(&self, spool: Spool) -> Result<Stored, StoreError> {
        self.calls.note("store.commit");
        drop(self.calls.1.commits.lock().unwrap());
        self.inner.commit(spool)
    }

    fn standing(&self) -> Result<(), StoreError> {
        self.inner.standing()
    }
}
