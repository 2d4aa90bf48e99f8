//! J1: an attachment of a session, on its way to someone who may have it.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::{Parts, TransferError, ticket::Use};
use crate::{
    access::{Grant, Principal},
    model::{AttachmentId, AttachmentRef, ByteCount, Cancel, FileName, SessionHandle},
    pool::Pool,
    store::{
        Blob, Objects, StoreError,
        verified::{Blocks, Verified},
    },
};

/// An attachment the caller may have, opened and examined; not verified yet.
#[derive(Debug)]
pub struct Opened {
    reference: Grant<AttachmentRef>,
    blob: Blob,
}

/// Finds the session's own reference to `id` and opens the object it names.
///
/// The digest alone is no right: it must be referenced in the log of a session the caller may read,
/// under `name` where one is given (I1).
///
/// # Errors
/// [`TransferError::Access`] when there is no such reference for this caller: absent, foreign and
/// never referenced are one (I9). [`TransferError::Store`] when the object is lost or not what the
/// reference says.
pub async fn open(
    parts: &Parts,
    caller: &Principal,
    session: SessionHandle,
    id: AttachmentId,
    name: Option<FileName>,
) -> Result<Opened, TransferError> {
    let (access, caller) = (parts.access.clone(), caller.clone());
    let reference = parts
        .pools
        .control
        .run(move || {
            let session = access.read_session(&caller, session)?;
            access.attachment(&session, id, name.as_ref())
        })
        .await??;
    let objects = parts.attachments.of(session);
    let opening = move || Opened::of(reference, objects.as_ref());
    parts.pools.files.run(opening).await?
}

impl Opened {
    /// Opens the object a granted reference names.
    pub(super) fn of(
        reference: Grant<AttachmentRef>,
        objects: &dyn Objects,
    ) -> Result<Self, TransferError> {
        let blob = objects.open(&reference)?;
        Ok(Self { reference, blob })
    }

    /// The reference the object was opened for.
    #[must_use]
    pub fn reference(&self) -> &AttachmentRef {
        &self.reference
    }

    /// Reads the whole content once and checks that it is what the reference says (I4). Dropping the
    /// future stops the reading.
    ///
    /// # Errors
    /// [`TransferError::Store`] when it is not, or cannot be read.
    pub async fn verify(self, parts: &Parts) -> Result<Verified<Blob>, TransferError> {
        let (checker, cancel) = (parts.verifier.clone(), Cancel::new());
        let _stop_when_dropped = cancel.fire_on_drop();
        let checking = move || checker.verify(self.blob, &cancel);
        Ok(parts.pools.store.run(checking).await??)
    }
}

/// A piece of what is sent: framing of our own, or a range of the content.
#[derive(Debug)]
pub enum Piece {
    /// Bytes as they are.
    Framing(Bytes),
    /// These bytes of the verified content.
    Content(Range<u64>),
}

/// Verified content on its way out, one block at a time.
///
/// Holds at most two blocks: the one handed over and the one being read (I11). A thread is used while
/// a block is read, never while the receiver takes its time.
#[derive(Debug)]
pub struct Sending {
    content: Verified<Blob>,
    pieces: VecDeque<Piece>,
    pool: Pool,
    current: Option<Blocks>,
    used: Option<Use>,
}

impl Sending {
    /// Sends `pieces` of `content`, in order; by a ticket, on account of that use of it.
    #[must_use]
    pub fn new(
        parts: &Parts,
        content: Verified<Blob>,
        pieces: impl IntoIterator<Item = Piece>,
        used: Option<Use>,
    ) -> Self {
        Self {
            content,
            pieces: pieces.into_iter().collect(),
            pool: parts.pools.files.clone(),
            current: None,
            used,
        }
    }

    /// The next bytes, or `None` after the last. Each block is checked once more before it is
    /// returned (I4); after an error nothing follows.
    ///
    /// # Errors
    /// [`TransferError::Store`] when the medium changed under the transfer;
    /// [`TransferError::Withdrawn`] when the ticket ended under it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, TransferError> {
        loop {
            let mut blocks = match self.current.take() {
                Some(blocks) => blocks,
                None => match self.pieces.pop_front() {
                    None => return Ok(None),
                    Some(Piece::Framing(bytes)) => return Ok(Some(bytes)),
                    Some(Piece::Content(range)) => self.content.blocks(range),
                },
            };
            // Already admitted: a full pool makes it wait its turn, not fail.
            let (blocks, bytes): (Blocks, Result<Option<Bytes>, StoreError>) = self
                .pool
                .run_in_turn(move || {
                    let bytes = blocks.next();
                    (blocks, bytes)
                })
                .await
                .inspect_err(|_gone| self.pieces.clear())?;
            match bytes {
                Ok(Some(bytes)) => {
                    if let Some(used) = &mut self.used {
                        let spent = used.spend(ByteCount::from(bytes.len()).get()).await;
                        spent.inspect_err(|_withdrawn| self.pieces.clear())?;
                    }
                    self.current = Some(blocks);
                    return Ok(Some(bytes));
                }
                Ok(None) => {}
                Err(error) => {
                    self.pieces.clear();
                    return Err(error.into());
                }
            }
        }
    }
}
