//! Verified content: the whole object is checked on its own descriptor before the first byte, and
//! every block once more as it leaves.
//!
//! Promises: a [`Verified`] exists only after a pass over the whole content matched its digest, by
//! this caller or by another at most [`Limits::verified_for`] ago with the object's facts unmoved
//! since; [`Blocks::next`] never returns a byte of a block that fails (I4); memory does not grow with
//! the number of transfers times their size (I11). Leaves to others: who may have the bytes.
//!
//! The first pass hashes with SHA-256 and keeps a keyed tag of each block; later passes compare
//! tags, at memory speed. The key is drawn at random when the verifier is made and never leaves it,
//! so that nobody can craft another block of the same tag.

mod blocks;
mod passes;
mod tags;
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests build their own directories"
)]
mod tests;

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

pub use blocks::{Blocks, Verified};
use highway::Key;
use passes::{Facts, Flight, Landing, Role, Subject, Table};
use tags::{Tags, block_for, read_block, tag_of};

use super::{Blob, StoreError};
use crate::model::{ByteCount, Cancel, Digester, Limits};

/// What all kept tags may take together, in bytes.
const BUDGET: usize = 16 * 1024 * 1024;
/// How long one caller waits for the pass of another.
const PATIENCE: Duration = Duration::from_secs(30);

/// How passes went since the verifier was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Whole objects hashed.
    pub hashed: u64,
    /// Whole objects compared with their tags.
    pub tagged: u64,
    /// Passes of others that were recent enough.
    pub reused: u64,
    /// Passes that ran for another caller at the same time.
    pub joined: u64,
}

#[derive(Default)]
struct Counters {
    hashed: AtomicU64,
    tagged: AtomicU64,
    reused: AtomicU64,
    joined: AtomicU64,
}

/// Makes [`Verified`] values, and remembers tags.
pub struct Verifier {
    key: Key,
    verified_for: Duration,
    budget: usize,
    patience: Duration,
    table: Mutex<Table>,
    counters: Counters,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("passes", &self.passes())
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// A verifier with a key of its own.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the system gives no random bytes.
    pub fn new(limits: &Limits) -> Result<Self, StoreError> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| StoreError::Io {
            action: "drawing a key",
            source: io::Error::other(error),
        })?;
        let mut key = [0; 4];
        for (word, bytes) in key.iter_mut().zip(bits.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(Self {
            key: Key(key),
            verified_for: limits.verified_for,
            budget: BUDGET,
            patience: PATIENCE,
            table: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// How passes went so far.
    #[must_use]
    pub fn passes(&self) -> Passes {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Passes {
            hashed: read(&self.counters.hashed),
            tagged: read(&self.counters.tagged),
            reused: read(&self.counters.reused),
            joined: read(&self.counters.joined),
        }
    }

    /// Checks the whole content of `blob` on its own descriptor.
    ///
    /// One pass per object runs at a time; a second caller waits for it, at most 30 s. Blocks;
    /// `cancel` is asked between blocks of 256 KiB and while waiting.
    ///
    /// # Errors
    /// [`StoreError::DigestMismatch`] and [`StoreError::LengthMismatch`] when the content is not the
    /// named one; [`StoreError::Changed`] when it moved meanwhile; [`StoreError::Busy`] when another
    /// pass did not end in time; [`StoreError::Cancelled`]; [`StoreError::Io`] when it cannot be
    /// read, which says nothing about its content.
    ///
    /// # Source
    /// DESIGN 10, "verified send". Keeps I4.
    pub fn verify(&self, blob: Blob, cancel: &Cancel) -> Result<Verified<Blob>, StoreError> {
        self.verify_with(blob, cancel, &mut |_| ())
    }

    /// `at_block` is called with each block's offset before the block is read.
    fn verify_with(
        &self,
        blob: Blob,
        cancel: &Cancel,
        at_block: &mut dyn FnMut(u64),
    ) -> Result<Verified<Blob>, StoreError> {
        let facts = Facts::of(&blob.file)?;
        if facts.size != blob.len.get() {
            return Err(StoreError::LengthMismatch {
                digest: blob.digest,
                expected: blob.len,
                found: ByteCount::new(facts.size),
            });
        }
        let subject = Subject {
            facts,
            digest: blob.digest,
        };
        let deadline = Instant::now() + self.patience;
        let tags = loop {
            if cancel.is_fired() {
                return Err(StoreError::Cancelled);
            }
            let role = self.table().join(subject, self.verified_for);
            match role {
                Role::Reuse(tags) => {
                    self.counters.reused.fetch_add(1, Ordering::Relaxed);
                    break tags;
                }
                Role::Wait(flight) => match flight.wait(subject.digest, deadline, cancel)? {
                    Landing::Passed(tags) => {
                        self.counters.joined.fetch_add(1, Ordering::Relaxed);
                        break tags;
                    }
                    Landing::Mismatch => return Err(StoreError::DigestMismatch(blob.digest)),
                    Landing::Abandoned => {}
                },
                Role::Run(flight, known) => {
                    let mut run = Run {
                        verifier: self,
                        subject,
                        flight,
                        landing: Landing::Abandoned,
                    };
                    let result = self.pass(&blob, facts, known, cancel, at_block);
                    run.landing = match &result {
                        Ok(tags) => Landing::Passed(Arc::clone(tags)),
                        Err(StoreError::DigestMismatch(_)) => Landing::Mismatch,
                        // Says something about the caller or the moment, not about the content.
                        Err(_) => Landing::Abandoned,
                    };
                    drop(run);
                    break result?;
                }
            }
        };
        Ok(Verified {
            content: Arc::new(blob),
            tags,
            key: self.key,
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One pass over the whole content: against `known` tags, or else against the digest.
    fn pass(
        &self,
        blob: &Blob,
        facts: Facts,
        known: Option<Arc<Tags>>,
        cancel: &Cancel,
        at_block: &mut dyn FnMut(u64),
    ) -> Result<Arc<Tags>, StoreError> {
        let len = blob.len.get();
        let block = known.as_ref().map_or_else(|| block_for(len), |t| t.block);
        let mut digester = known.is_none().then(Digester::default);
        let mut tags = Vec::new();
        let mut buffer = Vec::new();
        let mut index = 0;
        let mut offset = 0;
        let mut good = true;
        while offset < len && good {
            if cancel.is_fired() {
                return Err(StoreError::Cancelled);
            }
            at_block(offset);
            let want = block.min(len - offset);
            read_block(&blob.file, blob.digest, offset, want, &mut buffer)?;
            let tag = tag_of(&self.key, &buffer);
            match (&mut digester, &known) {
                (Some(digester), _) => {
                    digester.update(&buffer);
                    tags.push(tag);
                }
                (None, Some(known)) => good = known.tags.get(index) == Some(&tag),
                (None, None) => good = false,
            }
            index += 1;
            offset += want;
        }
        let good = good && digester.is_none_or(|d| d.finish() == blob.digest);
        // Facts first: a file somebody wrote to has changed, whatever it holds by now.
        if Facts::of(&blob.file)? != facts {
            return Err(StoreError::Changed(blob.digest));
        }
        if !good {
            return Err(StoreError::DigestMismatch(blob.digest));
        }
        if let Some(known) = known {
            self.counters.tagged.fetch_add(1, Ordering::Relaxed);
            return Ok(known);
        }
        self.counters.hashed.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Tags {
            block,
            tags: tags.into_boxed_slice(),
        }))
    }
}

/// Tells everybody how the pass ended, also when it ends by a panic.
struct Run<'a> {
    verifier: &'a Verifier,
    subject: Subject,
    flight: Arc<Flight>,
    landing: Landing,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.verifier
            .table()
            .land(self.subject, &self.landing, self.verifier.budget);
        let mut landing = self
            .flight
            .landing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *landing = Some(self.landing.clone());
        self.flight.landed.notify_all();
    }
}
