#![forbid(unsafe_code)]

use std::time::Instant;

use super::{Facts, Grade, PinnedError, Resolver, Root, Seam};
use crate::{
    model::{ByteCount, Cancel, RelPath},
    spool::{Spool, SpoolWriter},
};

/// How far a read may go.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The largest content, in bytes. One byte more is a refusal, never a cut.
    pub limit: ByteCount,
    /// Fired when nobody waits for the bytes any more.
    pub cancel: Cancel,
    /// When the read must be over, if ever.
    pub deadline: Option<Instant>,
}

/// An unchanged, private, hashed copy of a file beneath a root.
#[derive(Debug)]
pub struct Snapshot {
    spool: Spool,
    evidence: Evidence,
}

/// How a snapshot came about; goes into its receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The resolver that led to the file.
    pub resolver: Resolver,
    /// How sure it is that the bytes are the file's content at one moment.
    pub grade: Grade,
    /// The file as it was when it was read.
    pub facts: Facts,
}

impl Root {
    /// The whole journey of one file: pin, examine, reopen, copy.
    ///
    /// Blocks; call it from the file pool.
    ///
    /// # Errors
    /// As [`Root::pin`], [`super::PinnedFile::examine`], [`super::Examined::reopen`] and
    /// [`super::OpenFile::copy_to`]. An error comes with no byte.
    pub fn snapshot<S: Seam>(
        &self,
        path: &RelPath,
        resolver: Resolver,
        spool: SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<Snapshot, PinnedError> {
        self.pin(path, resolver, seam)?
            .examine(bounds.limit, seam)?
            .reopen(seam)?
            .copy_to(spool, bounds, seam)
    }
}

impl Bounds {
    /// At most `limit` bytes, for as long as nobody fires `cancel`.
    #[must_use]
    pub fn new(limit: ByteCount, cancel: Cancel) -> Self {
        Self {
            limit,
            cancel,
            deadline: None,
        }
    }

    /// Whether the read may go on.
    pub(super) fn check(&self) -> Result<(), PinnedError> {
        if self.cancel.is_fired() {
            return Err(PinnedError::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(PinnedError::Deadline),
            _ => Ok(()),
        }
    }
}

impl Snapshot {
    pub(super) fn new(spool: Spool, evidence: Evidence) -> Self {
        Self { spool, evidence }
    }

    /// The copy: length, digest and bytes.
    #[must_use]
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// How it came about.
    #[must_use]
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The copy and how it came about, to be committed to a store.
    #[must_use]
    pub fn into_parts(self) -> (Spool, Evidence) {
        (self.spool, self.evidence)
    }
}
