//! Whole sessions on their way out and in: a log in the layout of a DSH home, and the content it
//! refers to.
//!
//! Promises: a session comes in whole or not at all (I12), with content that was sent along and
//! matches its digest: knowing one is no right to the bytes. Leaves to others: the files of a home
//! (`cli`).

use std::{collections::HashSet, error::Error};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};

use super::{Parts, TransferError, upload::fill};
use crate::{
    access::{Grant, Principal, ReadSession, random_bits},
    journal::{
        Imported, JournalError, NewSession, Session, export,
        import::{LogContents, SessionLog},
    },
    model::{AttachmentId, ByteCount, PrincipalId, Seq, SessionHandle},
    spool::Spool,
};

/// How many events are read at a time on the way out.
const STEP: usize = 200;
/// The longest first line of what comes in, in bytes.
const MANIFEST: usize = 4 << 20;
/// The longest working directory a session may state, in bytes.
const MAX_CWD: usize = 4095;

/// The log of a session on its way out, a piece at a time.
#[derive(Debug)]
pub struct Log {
    grant: Grant<ReadSession>,
    session: Session,
    next: Seq,
    begun: bool,
}

impl Log {
    /// The session's log as it stands now.
    ///
    /// # Errors
    /// [`TransferError::Access`] when the caller may not read it; [`TransferError::Journal`] when it
    /// is not native, or cannot be read.
    pub async fn open(
        parts: &Parts,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Self, TransferError> {
        let (access, journal, who) = (parts.access.clone(), parts.journal.clone(), who.clone());
        let opening = move || {
            let grant = access.read_session(&who, session)?;
            // Whether it can be exported at all is known before the first byte.
            journal.events_from(grant.session(), Seq::FIRST, 1)?;
            let session = journal.session(grant.session())?;
            export::place(session.id.as_str(), session.cwd.as_deref())?;
            Ok(Self {
                grant,
                session,
                next: Seq::FIRST,
                begun: false,
            })
        };
        parts.pools.control.run(opening).await?
    }

    /// The next lines, or `None` after the last.
    ///
    /// # Errors
    /// [`TransferError::Journal`] when the log is damaged: what came is no whole log.
    pub async fn next(mut self, parts: &Parts) -> Result<Option<(Bytes, Self)>, TransferError> {
        if self.begun && self.next >= self.session.next_seq {
            return Ok(None);
        }
        let journal = parts.journal.clone();
        let reading = move || {
            let mut out = Vec::new();
            if !self.begun {
                export::write(&mut out, &self.session);
                self.begun = true;
            }
            let end = self.session.next_seq;
            if self.next < end {
                let events = journal.events_from(self.grant.session(), self.next, STEP)?;
                for event in events.iter().take_while(|event| event.seq < end) {
                    export::append(&mut out, event);
                    self.next = event.seq.next().unwrap_or(end);
                }
            }
            Ok(Some((Bytes::from(out), self)))
        };
        parts.pools.control.run_in_turn(reading).await?
    }
}

/// The first line of what comes in: how long the log after it is, and what content follows that.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The length of the log.
    pub log: u64,
    /// The content after it, in order, each once.
    pub content: Vec<Content>,
    /// Who may read the session, besides its host.
    pub owners: Vec<PrincipalId>,
}

/// Content that comes in with a session.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// Its id.
    pub id: AttachmentId,
    /// Its length.
    pub bytes: u64,
}

/// Takes in a session: the line of a [`Manifest`], the log, the content.
///
/// Everything is checked before anything is recorded. What is there already is answered with what is
/// there. After an error no session is there; content that had come whole lies in the store with
/// nothing that refers to it, where collection finds it.
///
/// # Errors
/// [`TransferError::Access`] when the caller may not create sessions; [`TransferError::Cut`],
/// [`TransferError::WrongDigest`]; [`TransferError::Journal`] with what is wrong with the log.
pub async fn import<E: Into<Box<dyn Error + Send + Sync>>>(
    parts: &Parts,
    who: &Principal,
    body: impl Stream<Item = Result<Bytes, E>> + Send + Unpin,
) -> Result<(Imported, LogContents), TransferError> {
    parts.access.may_create_sessions(who)?;
    let mut body = Portions {
        body,
        rest: Bytes::new(),
    };
    let manifest = body.manifest().await?;
    let total = manifest
        .content
        .iter()
        .fold(manifest.log, |sum, one| sum.saturating_add(one.bytes));
    let mut left = total;
    let done = take(parts, who, manifest, &mut body, &mut left).await;
    if done.is_err() {
        // Whoever is still sending reads the reason only after the last byte.
        let mut rest = std::pin::pin!(body.portion(left));
        while rest.next().await.is_some_and(|piece| piece.is_ok()) {}
    }
    done
}

async fn take<S, E>(
    parts: &Parts,
    who: &Principal,
    manifest: Manifest,
    body: &mut Portions<S>,
    left: &mut u64,
) -> Result<(Imported, LogContents), TransferError>
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let (access, owners) = (parts.access.clone(), manifest.owners.clone());
    parts
        .pools
        .control
        .run(move || access.known_owners(&owners))
        .await??;
    let log = body.spool(parts, manifest.log, left).await?;
    let content = manifest.content.clone();
    let (log, contents) = parts
        .pools
        .store
        .run_in_turn(move || checked(&log, &content))
        .await??;
    let mut pins = Vec::new();
    for one in &manifest.content {
        let spool = body.spool(parts, one.bytes, left).await?;
        let (store, claimed) = (parts.store.clone(), one.id);
        let stored = parts
            .pools
            .store
            .run_in_turn(move || {
                let found = AttachmentId::new(spool.digest());
                if found != claimed {
                    return Err(TransferError::WrongDigest { claimed, found });
                }
                Ok(store.commit(spool)?)
            })
            .await??;
        // Collection stays away until the record is durable.
        pins.push(stored);
    }
    let new = NewSession {
        handle: SessionHandle::from_random(random_bits()?),
        id: contents.header.id.clone(),
        cwd: contents.header.cwd.clone(),
        host: who.id,
        owners: manifest.owners,
        created_at: contents.header.created_at,
    };
    let (journal, references) = (parts.journal.clone(), contents.references.clone());
    let imported = parts
        .pools
        .store
        .run_in_turn(move || journal.import(new, references, log))
        .await??;
    drop(pins);
    Ok((imported, contents))
}

/// Reads the whole log, and makes sure that exactly what it refers to comes with it.
fn checked(spool: &Spool, content: &[Content]) -> Result<(SessionLog, LogContents), TransferError> {
    let refused = |why: String| TransferError::Journal(JournalError::Refused(why));
    let unreadable = |source: std::io::Error| {
        TransferError::Journal(JournalError::Io {
            action: "reading a log",
            source: Box::new(source),
        })
    };
    let file = spool.file().try_clone().map_err(unreadable)?;
    let log = SessionLog::open(file, export::LOG).map_err(unreadable)?;
    let contents = log.contents()?;
    if let Some(cwd) = &contents.header.cwd {
        let plain = cwd.starts_with('/') && cwd.len() <= MAX_CWD && !cwd.contains('\0');
        if !plain {
            return Err(refused(
                "the header: its directory is no absolute path".to_owned(),
            ));
        }
    }
    let mut sent = HashSet::new();
    for one in content {
        if !sent.insert((one.id, ByteCount::new(one.bytes))) {
            return Err(refused(format!("the content {} comes twice", one.id)));
        }
    }
    let wanted: HashSet<_> = contents
        .references
        .iter()
        .map(|reference| (reference.id, reference.bytes))
        .collect();
    if let Some((id, bytes)) = wanted.symmetric_difference(&sent).next() {
        return Err(refused(format!(
            "the content that comes with the log is not what it refers to: {bytes} of {id}"
        )));
    }
    Ok((log, contents))
}

/// A body taken apart by lengths.
struct Portions<S> {
    body: S,
    /// What arrived and is not used yet.
    rest: Bytes,
}

impl<S, E> Portions<S>
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    async fn more(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        match self.body.next().await {
            Some(Ok(bytes)) => {
                let mut joined = Vec::from(std::mem::take(&mut self.rest));
                joined.extend_from_slice(&bytes);
                self.rest = joined.into();
                Ok(true)
            }
            Some(Err(error)) => Err(error.into()),
            None => Ok(false),
        }
    }

    async fn manifest(&mut self) -> Result<Manifest, TransferError> {
        let malformed = |why: &str| {
            TransferError::Journal(JournalError::Refused(format!("the first line: {why}")))
        };
        let end = loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                break end;
            }
            if self.rest.len() > MANIFEST {
                return Err(malformed("it is too long"));
            }
            let more = self.more().await;
            if !more.unwrap_or(false) {
                return Err(TransferError::Cut {
                    arrived: self.rest.len().into(),
                });
            }
        };
        let line = self.rest.split_to(end);
        drop(self.rest.split_to(1));
        serde_json::from_slice(&line).map_err(|error| malformed(&error.to_string()))
    }

    /// The next `len` bytes, as they come.
    fn portion(
        &mut self,
        len: u64,
    ) -> impl Stream<Item = Result<Bytes, Box<dyn Error + Send + Sync>>> + Send + '_ {
        stream::try_unfold((self, len), |(portions, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            if portions.rest.is_empty() && !portions.more().await? {
                return Ok(None);
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let piece = portions.rest.split_to(portions.rest.len().min(most));
            let left = left.saturating_sub(ByteCount::from(piece.len()).get());
            Ok(Some((piece, (portions, left))))
        })
    }

    async fn spool(
        &mut self,
        parts: &Parts,
        len: u64,
        left: &mut u64,
    ) -> Result<Spool, TransferError> {
        let announced = ByteCount::new(len);
        let writer = fill(parts, Some(announced), self.portion(len)).await?;
        *left = left.saturating_sub(len);
        if writer.len() != announced {
            return Err(TransferError::Cut {
                arrived: writer.len(),
            });
        }
        Ok(writer.finish())
    }
}
