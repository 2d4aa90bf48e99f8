//! The native journal and the homes read in place, as one.
//!
//! A session belongs to the source that gave it its handle. Only the native journal is written to.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    Appended, Audited, Declared, Event, Imported, Journal, JournalError, NewEvent, NewSession,
    Once, Page, Referenced, Session, Source, Window, dsh::DshSource, import::SessionLog,
};
use crate::model::{
    AttachmentId, AttachmentRef, ByteCount, FileName, LogGeneration, Seq, SessionHandle, Timestamp,
};

/// Several sources behind one journal.
#[derive(Debug)]
pub struct Sources {
    native: Arc<dyn Journal>,
    homes: RwLock<Vec<Arc<DshSource>>>,
}

impl Sources {
    /// The native journal, with no home beside it yet.
    #[must_use]
    pub fn new(native: Arc<dyn Journal>) -> Self {
        Self {
            native,
            homes: RwLock::default(),
        }
    }

    /// Serves the sessions of a home as well.
    pub fn add(&self, home: Arc<DshSource>) {
        let mut homes = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        homes.push(home);
    }

    fn with<T>(
        &self,
        session: SessionHandle,
        ask: impl FnOnce(&dyn Source) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let home = {
            let homes = self.homes.read().unwrap_or_else(PoisonError::into_inner);
            homes.iter().find(|home| home.has(session)).cloned()
        };
        match home {
            Some(home) => ask(home.as_ref()),
            None => ask(self.native.as_ref()),
        }
    }
}

impl Source for Sources {
    fn session(&self, session: SessionHandle) -> Result<Session, JournalError> {
        self.with(session, |source| source.session(session))
    }

    fn page(
        &self,
        session: SessionHandle,
        generation: Option<LogGeneration>,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, JournalError> {
        self.with(session, |source| {
            source.page(session, generation, before, limit)
        })
    }

    fn references(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Referenced>, JournalError> {
        self.with(session, |source| source.references(session, window))
    }

    fn reference(
        &self,
        session: SessionHandle,
        id: AttachmentId,
        name: Option<&FileName>,
    ) -> Result<AttachmentRef, JournalError> {
        self.with(session, |source| source.reference(session, id, name))
    }

    fn declared(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Declared>, JournalError> {
        self.with(session, |source| source.declared(session, window))
    }

    fn latest(
        &self,
        session: SessionHandle,
        kinds: &[&str],
    ) -> Result<Option<Event>, JournalError> {
        self.with(session, |source| source.latest(session, kinds))
    }

    fn declared_at(
        &self,
        session: SessionHandle,
        generation: LogGeneration,
        seq: Seq,
        index: u32,
    ) -> Result<Declared, JournalError> {
        self.with(session, |source| {
            source.declared_at(session, generation, seq, index)
        })
    }
}

impl Journal for Sources {
    fn verify(&self, session: SessionHandle) -> Result<Audited, JournalError> {
        self.native.verify(session)
    }

    fn create(&self, new: NewSession) -> Result<Session, JournalError> {
        self.native.create(new)
    }

    fn append(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
    ) -> Result<Appended, JournalError> {
        self.native.append(session, events, expected)
    }

    fn append_once(
        &self,
        session: SessionHandle,
        events: Vec<NewEvent>,
        expected: Option<Seq>,
        once: Once,
    ) -> Result<Appended, JournalError> {
        self.native.append_once(session, events, expected, once)
    }

    fn record_upload(
        &self,
        session: SessionHandle,
        reference: &AttachmentRef,
        at: Timestamp,
    ) -> Result<(), JournalError> {
        self.native.record_upload(session, reference, at)
    }

    fn import(
        &self,
        new: NewSession,
        uploaded: Vec<AttachmentRef>,
        log: SessionLog,
    ) -> Result<Imported, JournalError> {
        self.native.import(new, uploaded, log)
    }

    fn events_from(
        &self,
        session: SessionHandle,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError> {
        let homes = self.homes.read().unwrap_or_else(PoisonError::into_inner);
        if homes.iter().any(|home| home.has(session)) {
            let why = "the session lies in a DSH home already: copy it from there";
            return Err(JournalError::Refused(why.to_owned()));
        }
        drop(homes);
        self.native.events_from(session, from, limit)
    }

    fn admit_upload(
        &self,
        session: SessionHandle,
        name: &FileName,
        bytes: ByteCount,
    ) -> Result<(), JournalError> {
        self.native.admit_upload(session, name, bytes)
    }
}
