//! Bytes by digest: commits spools, opens objects, and verifies the very copy that will be sent.
//!
//! Promises: an object's name never changes its bytes; a committed object is durable (I5); nothing
//! that fails verification yields a byte (I4). Leaves to others: who may have an object (`access`),
//! what refers to it (`journal`).

#![forbid(unsafe_code)]

pub mod collect;
#[cfg(any(test, feature = "_seams"))]
pub mod conformance;
pub mod dsh;
mod error;
mod files;
pub mod layout;
pub mod local;
pub mod scrub;
pub mod verified;

use std::{fmt, fs::File};

pub use error::StoreError;

use crate::{
    model::{AttachmentRef, ByteCount, Digest},
    spool::{Spool, SpoolWriter},
};

/// Where objects can be opened from. A DSH home is one; the local store is another.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Opens the object a reference names, once, and examines the descriptor: a regular file of the
    /// referenced length, reached without following a link. Its content is not verified yet.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when nothing is there; [`StoreError::LengthMismatch`] when the length
    /// is not the referenced one; [`StoreError::NotAnObject`] for a link, FIFO, directory, or a file
    /// with names of its own.
    fn open(&self, reference: &AttachmentRef) -> Result<Blob, StoreError>;
}

/// Where content is kept.
pub trait Store: Objects {
    /// An empty spool for content that is to be committed here; it refuses the first byte past
    /// `limit`. Room for a `declared` length is found before the first byte.
    ///
    /// # Errors
    /// [`StoreError::OverLimit`] when `declared` passes `limit`; [`StoreError::Full`] when the
    /// filesystem has no room beside its reserve; [`StoreError::Degraded`] after a flush failed.
    fn spool(
        &self,
        declared: Option<ByteCount>,
        limit: ByteCount,
    ) -> Result<SpoolWriter, StoreError>;

    /// Makes a spool's content durable under its digest.
    ///
    /// When the object is there already it is verified, and replaced when bad. The returned pin keeps
    /// collection away until what refers to the object is durable too. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Full`] when the filesystem has no room; [`StoreError::Degraded`] after a flush
    /// failed; [`StoreError::Io`] otherwise. After an error nothing is visible under the digest that
    /// was not there before.
    fn commit(&self, spool: Spool) -> Result<Stored, StoreError>;

    /// Takes content out for good, unless somebody is about to refer to it or `referenced` says that
    /// something does, asked while nobody can publish the object. Whether it is gone now. Blocks.
    ///
    /// # Errors
    /// As the system says; the object is then where it was, or gone.
    fn forget(
        &self,
        digest: Digest,
        referenced: &mut dyn FnMut() -> bool,
    ) -> Result<bool, StoreError>;

    /// Whether content is taken now.
    ///
    /// # Errors
    /// [`StoreError::Degraded`] after a flush failed.
    fn standing(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// An object's open descriptor, examined but not verified.
#[derive(Debug)]
pub struct Blob {
    pub(crate) file: File,
    pub(crate) digest: Digest,
    pub(crate) len: ByteCount,
}

/// How a commit found the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// It was not there.
    Created,
    /// A good copy was there.
    Deduplicated,
    /// A bad copy was there; it is in quarantine and the fresh one stands in its place.
    Healed,
}

/// A durable object, kept from collection while this value lives.
#[derive(Debug)]
pub struct Stored {
    digest: Digest,
    len: ByteCount,
    outcome: CommitOutcome,
    /// Dropped once the reference is durable.
    _pin: Option<Box<dyn fmt::Debug + Send + Sync>>,
}

impl Stored {
    /// For backends: the object of this digest and length, pinned until `pin` is dropped.
    pub(crate) fn new(
        digest: Digest,
        len: ByteCount,
        outcome: CommitOutcome,
        pin: Option<Box<dyn fmt::Debug + Send + Sync>>,
    ) -> Self {
        Self {
            digest,
            len,
            outcome,
            _pin: pin,
        }
    }

    /// SHA-256 of the content.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> ByteCount {
        self.len
    }

    /// Whether the content is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == ByteCount::ZERO
    }

    /// How the commit found the object.
    #[must_use]
    pub fn outcome(&self) -> CommitOutcome {
        self.outcome
    }
}
