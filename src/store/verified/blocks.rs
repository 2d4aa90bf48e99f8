//! Verified content on its way out.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use highway::Key;

use super::tags::{Tags, read_block, tag_of};
use crate::{
    model::{ByteCount, Digest},
    store::{Blob, StoreError},
};

/// Content that passed [`Verifier::verify`](super::Verifier::verify); the only way to its bytes.
pub struct Verified<T> {
    pub(super) content: Arc<T>,
    pub(super) tags: Arc<Tags>,
    pub(super) key: Key,
}

impl<T: fmt::Debug> fmt::Debug for Verified<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verified").field(&self.content).finish()
    }
}

impl Verified<Blob> {
    /// SHA-256 of the content.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.content.digest
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> ByteCount {
        self.content.len
    }

    /// Whether the content is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.len == ByteCount::ZERO
    }

    /// The bytes from `range.start` up to `range.end`, which is cut to the length, block by block.
    #[must_use]
    pub fn blocks(&self, range: Range<u64>) -> Blocks {
        Blocks {
            content: Arc::clone(&self.content),
            tags: Arc::clone(&self.tags),
            key: self.key,
            at: range.start,
            end: range.end.min(self.content.len.get()),
            failed: false,
        }
    }
}

/// A range of verified content on its way out.
pub struct Blocks {
    content: Arc<Blob>,
    tags: Arc<Tags>,
    key: Key,
    at: u64,
    end: u64,
    failed: bool,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks")
            .field("digest", &self.content.digest)
            .field("at", &self.at)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Blocks {
    /// The next bytes, at most a block of 256 KiB (4 MiB in objects past 16 GiB); `None` at the end.
    ///
    /// The whole block is read and compared with its tag before any byte of it is returned. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when the block is not the verified one any more, now and at every
    /// later call: the transfer must be cut. [`StoreError::Io`] when it cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would go on after an error; this one ends for good"
    )]
    pub fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let digest = self.content.digest;
        if self.failed {
            return Err(StoreError::Changed(digest));
        }
        if self.at >= self.end {
            return Ok(None);
        }
        // Taken back only by a block that passes.
        self.failed = true;
        let block = self.tags.block;
        let index = self.at / block;
        let start = index * block;
        let want = block.min(self.content.len.get() - start);
        let mut buffer = Vec::new();
        read_block(&self.content.file, digest, start, want, &mut buffer)?;
        let expected = usize::try_from(index)
            .ok()
            .and_then(|index| self.tags.tags.get(index));
        if expected != Some(&tag_of(&self.key, &buffer)) {
            return Err(StoreError::Changed(digest));
        }
        let from = usize::try_from(self.at - start).unwrap_or(usize::MAX);
        let to = usize::try_from((self.end - start).min(want)).unwrap_or_default();
        let bytes = Bytes::from(buffer).slice(from..to);
        self.at = start + want;
        self.failed = false;
        Ok(Some(bytes))
    }
}
