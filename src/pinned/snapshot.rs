#![forbid(unsafe_code)]

use std::time::Instant;

use rustix::{
    fd::{AsFd, OwnedFd},
    io::{Errno, pread},
};

use super::{Facts, OpenFile, PinnedError, Resolver, Root, Seam, Step};
use crate::{
    model::{ByteCount, Cancel, RelPath},
    spool::{Spool, SpoolWriter},
};

/// Bytes per read. A constant: nothing is sized from what a file claims.
const CHUNK: usize = 256 * 1024;

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
    /// [`OpenFile::copy_to`]. An error comes with no byte.
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

impl OpenFile<'_> {
    /// Copies the file into an unlinked spool and hashes it on the way.
    ///
    /// The spool comes back with its length in bytes and its SHA-256. Blocks; call it from the file
    /// pool.
    ///
    /// # Errors
    /// [`PinnedError::OverLimit`] past the limit; [`PinnedError::Changed`] if length, times or
    /// number of names moved between the first and the last read (a rename moves the times too:
    /// refusing is intended); [`PinnedError::Cancelled`] and [`PinnedError::Deadline`] between
    /// reads; [`PinnedError::Spool`] when the copy could not be written.
    ///
    /// # Source
    /// `statx(2)`, `pread(2)`. Keeps I4 and I11.
    pub fn copy_to<S: Seam>(
        self,
        mut spool: SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<Snapshot, PinnedError> {
        let before = Facts::of(&self.file)?;
        self.place.root().policy().admit(&before)?;
        seam.at(Step::Stamped);
        self.place.confirm(before.identity)?;
        seam.at(Step::Confirmed);
        copy(&self.file, &mut spool, bounds, seam)?;
        seam.at(Step::Copied);
        bounds.check()?;
        let after = Facts::of(&self.file)?;
        if spool.len() != before.size {
            return Err(PinnedError::Changed("its length is not what it was"));
        }
        if after != before {
            return Err(PinnedError::Changed("its length, times or names moved"));
        }
        Ok(Snapshot {
            spool: spool.finish(),
            evidence: Evidence {
                resolver: self.resolver,
                facts: after,
            },
        })
    }
}

/// Reads to the end, at most one byte past the limit.
fn copy<S: Seam>(
    file: &OwnedFd,
    spool: &mut SpoolWriter,
    bounds: &Bounds,
    seam: &mut S,
) -> Result<(), PinnedError> {
    let mut buffer = vec![0; CHUNK];
    loop {
        bounds.check()?;
        let offset = spool.len();
        seam.at(Step::Read {
            offset: offset.get(),
        });
        let left = bounds
            .limit
            .saturating_sub(offset)
            .saturating_add(ByteCount::new(1));
        let want = usize::try_from(left.get()).map_or(CHUNK, |left| left.min(CHUNK));
        let read = read_at(file, &mut buffer[..want], offset)?;
        if read.is_empty() {
            return Ok(());
        }
        if ByteCount::from(read.len()) == left {
            return Err(PinnedError::OverLimit {
                limit: bounds.limit,
            });
        }
        spool.write(read)?;
    }
}

fn read_at(file: impl AsFd, buffer: &mut [u8], offset: ByteCount) -> Result<&[u8], PinnedError> {
    let read = loop {
        match pread(&file, &mut *buffer, offset.get()) {
            Err(Errno::INTR) => {}
            result => break result,
        }
    }
    .map_err(|errno| PinnedError::from_errno("reading a pinned file", errno))?;
    Ok(&buffer[..read])
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

    fn check(&self) -> Result<(), PinnedError> {
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
