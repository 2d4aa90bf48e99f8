//! J4: content on its way into a session.

use std::error::Error;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use super::{Parts, TransferError};
use crate::{
    access::{Grant, UploadToSession},
    journal::JournalError,
    model::{AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest, FileName},
    spool::SpoolWriter,
};

/// How much is gathered before it is written: enough to make the hand-over to a thread cheap.
const GATHER: usize = 256 * 1024;

/// What the sender says of its content. All of it is checked, none of it is believed.
#[derive(Clone, Debug)]
pub struct Announced {
    /// The name its references will carry.
    pub name: FileName,
    /// Its length, where the sender knows it beforehand.
    pub bytes: Option<ByteCount>,
    /// Its digest, where the sender knows it beforehand.
    pub digest: Option<Digest>,
}

/// Takes content into the store and records that it was uploaded to the session.
///
/// Streams into an unnamed spool, so that a cut upload leaves nothing (U01). Returns after content
/// and record are durable (I5); the same content again gives the same answer (U05), whoever else has
/// stored it before: what is in the store is nobody's to learn (I14).
///
/// # Errors
/// [`TransferError::Spool`] with `OverLimit` for more than one file may have, before the body is read
/// when that was announced, and with `Full` when the filesystem's reserve would be touched;
/// [`TransferError::Journal`] with `OverQuota` likewise;
/// [`TransferError::Cut`], [`TransferError::WrongLength`], [`TransferError::WrongDigest`] when the
/// content is not what was announced. After any of them nothing of it is kept.
pub async fn receive<E: Into<Box<dyn Error + Send + Sync>>>(
    parts: &Parts,
    grant: Grant<UploadToSession>,
    announced: Announced,
    body: impl Stream<Item = Result<Bytes, E>> + Send,
) -> Result<AttachmentRef, TransferError> {
    let session = grant.session();
    let expected = announced.bytes.unwrap_or(ByteCount::ZERO);
    let (journal, name) = (parts.journal.clone(), announced.name.clone());
    parts
        .pools
        .control
        .run(move || journal.admit_upload(session, &name, expected))
        .await??;

    let spool = fill(parts, announced.bytes, body).await?;
    if let Some(bytes) = announced.bytes.filter(|bytes| *bytes != spool.len()) {
        return Err(TransferError::WrongLength {
            announced: bytes,
            arrived: spool.len(),
        });
    }

    let own = parts.clone();
    // One piece of work: a sender that leaves now leaves either nothing or a recorded upload.
    parts
        .pools
        .store
        .run_in_turn(move || {
            let spool = spool.finish();
            let id = AttachmentId::new(spool.digest());
            if let Some(claimed) = announced.digest.map(AttachmentId::new).filter(|c| *c != id) {
                return Err(TransferError::WrongDigest { claimed, found: id });
            }
            let stored = own.store.commit(spool)?;
            let reference = AttachmentRef {
                id,
                name: Some(announced.name),
                bytes: stored.len(),
                kind: AttachmentKind::File,
            };
            if let Err(error) = own
                .journal
                .record_upload(session, &reference, own.clock.now())
            {
                drop(stored);
                let unowned = matches!(
                    error,
                    JournalError::NotFound | JournalError::OverQuota { .. }
                );
                // Its session was removed, or filled, meanwhile: nothing was recorded of it.
                if unowned && let Err(error) = own.forget(id.digest()) {
                    tracing::warn!(%error, %id, "content of an upload that was refused is kept");
                }
                return Err(error.into());
            }
            // Until the record was durable the pin kept collection away.
            drop(stored);
            Ok(reference)
        })
        .await?
}

/// Streams the body into a spool: a few blocks in memory at most, whatever its length (I11).
pub(super) async fn fill<E: Into<Box<dyn Error + Send + Sync>>>(
    parts: &Parts,
    announced: Option<ByteCount>,
    body: impl Stream<Item = Result<Bytes, E>> + Send,
) -> Result<SpoolWriter, TransferError> {
    let (store, limits) = (parts.store.clone(), parts.limits.clone());
    let mut spool = parts
        .pools
        .files
        .run(move || store.spool(announced, limits.file))
        .await??;
    let mut body = std::pin::pin!(body);
    let mut ended = false;
    while !ended {
        let (mut gathered, mut size) = (Vec::new(), 0_usize);
        while size < GATHER {
            match body.next().await {
                Some(Ok(bytes)) => {
                    size = size.saturating_add(bytes.len());
                    gathered.push(bytes);
                }
                Some(Err(error)) => {
                    let error: Box<dyn Error + Send + Sync> = error.into();
                    tracing::info!(%error, arrived = spool.len().get(), "an upload was cut off");
                    return Err(TransferError::Cut {
                        arrived: spool.len().saturating_add(size.into()),
                    });
                }
                None => {
                    ended = true;
                    break;
                }
            }
        }
        spool = parts
            .pools
            .files
            .run_in_turn(move || {
                gathered
                    .iter()
                    .try_for_each(|bytes| spool.write(bytes))
                    .map(|()| spool)
                    .map_err(TransferError::from)
            })
            .await??;
    }
    Ok(spool)
}
