//! Collection: takes objects that nothing refers to out of sight, restorable for a while.
//!
//! Promises: an object that an upload still holds, or that is referred to at the very moment it
//! would be taken, stays (I12); what is taken lies in trash until it is purged. Leaves to others:
//! what refers to objects, and how long the graces are.

use std::fs::File;

use cap_std::fs::Dir;
use rustix::{
    fs::{Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::{StoreError, layout, local::LocalStore};
use crate::model::{Digest, Timestamp};

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doom {
    /// It is in trash now.
    Taken,
    /// An upload holds it; its reference may become durable at any moment.
    Pinned,
    /// Something refers to it by now.
    Referenced,
    /// It was not there.
    Absent,
}

/// One run of collection.
#[derive(Debug)]
pub struct Sweep<'a> {
    store: &'a LocalStore,
    epoch: Dir,
    /// Shards with names to flush.
    touched: [bool; 256],
}

impl LocalStore {
    /// Begins a sweep; what it takes goes to `trash/<started>`.
    ///
    /// # Errors
    /// [`StoreError::Degraded`] after a flush failed: on doubt nothing is taken.
    pub fn sweep(&self, started: Timestamp) -> Result<Sweep<'_>, StoreError> {
        self.ensure_writable()?;
        let io = |errno: Errno| StoreError::from_io("making a trash epoch", errno.into());
        let name = format!("{:013}", started.as_millis());
        match rustix::fs::mkdirat(self.trash(), &name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(io(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let epoch = rustix::fs::openat(self.trash(), &name, flags, Mode::empty()).map_err(io)?;
        self.flush_dir(self.trash())?;
        Ok(Sweep {
            store: self,
            epoch: Dir::from_std_file(File::from(epoch)),
            touched: [false; 256],
        })
    }
}

impl Sweep<'_> {
    /// Takes `digest` out of the store unless an upload holds it or `referenced` says yes, asked
    /// while nobody can publish the object.
    ///
    /// # Errors
    /// As the system says; the object is then where it was.
    pub fn doom(
        &mut self,
        digest: Digest,
        referenced: impl FnOnce() -> bool,
    ) -> Result<Doom, StoreError> {
        let first = digest.as_bytes()[0];
        let shard = layout::open_shard(self.store.objects(), first)
            .map_err(|e| StoreError::from_layout("opening a shard", e))?;
        let guard = self.store.hold_shard(&digest);
        if guard.is_pinned(&digest) {
            return Ok(Doom::Pinned);
        }
        if referenced() {
            return Ok(Doom::Referenced);
        }
        let name = digest.to_string();
        match rustix::fs::renameat_with(&shard, &name, &self.epoch, &name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.touched[usize::from(first)] = true;
                Ok(Doom::Taken)
            }
            Err(Errno::NOENT) => Ok(Doom::Absent),
            Err(errno) => Err(StoreError::from_io("moving to trash", errno.into())),
        }
    }

    /// Makes durable what was taken.
    ///
    /// # Errors
    /// When a flush fails; the store is degraded then.
    pub fn finish(self) -> Result<(), StoreError> {
        self.store.flush_dir(&self.epoch)?;
        for first in 0..=u8::MAX {
            if self.touched[usize::from(first)] {
                let shard = layout::open_shard(self.store.objects(), first)
                    .map_err(|e| StoreError::from_layout("opening a shard", e))?;
                self.store.flush_dir(&shard)?;
            }
        }
        Ok(())
    }
}
