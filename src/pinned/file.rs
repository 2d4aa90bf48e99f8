#![forbid(unsafe_code)]

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::FileType,
    io::Errno,
};

use super::{Facts, Kind, PinnedError, Resolver, Seam, Step, filesystem::Filesystem, place::Place};
use crate::model::ByteCount;

/// An object held by descriptor, so that renames no longer matter. It can be asked, not read.
#[derive(Debug)]
pub struct PinnedFile<'root> {
    pub(super) handle: OwnedFd,
    pub(super) place: Place<'root>,
    resolver: Resolver,
}

/// A pinned object that is a plain file within the ceiling and the root's policy.
#[derive(Debug)]
pub struct Examined<'root> {
    pinned: PinnedFile<'root>,
    facts: Facts,
}

/// A pinned plain file, open for reading.
#[derive(Debug)]
pub struct OpenFile<'root> {
    pub(super) file: OwnedFd,
    pub(super) place: Place<'root>,
    pub(super) resolver: Resolver,
}

impl<'root> PinnedFile<'root> {
    pub(super) fn new(handle: OwnedFd, place: Place<'root>, resolver: Resolver) -> Self {
        Self {
            handle,
            place,
            resolver,
        }
    }

    /// Asks the descriptor what it holds, before anything is opened, flushed or read.
    ///
    /// `limit` is in bytes; a file that claims more is refused here.
    ///
    /// # Errors
    /// [`PinnedError::NotRegular`] for a directory, FIFO, socket, device or synthetic file;
    /// [`PinnedError::DeniedHardlink`] and [`PinnedError::DeniedOwner`] by policy;
    /// [`PinnedError::OverLimit`].
    pub fn examine<S: Seam>(
        self,
        limit: ByteCount,
        seam: &mut S,
    ) -> Result<Examined<'root>, PinnedError> {
        let facts = Facts::of(&self.handle)?;
        if facts.kind != FileType::RegularFile {
            return Err(PinnedError::NotRegular(facts.kind.into()));
        }
        // Its length says nothing of its content, and reading some has effects.
        if self.place.root().filesystem_of(&self.handle)? == Filesystem::Proc {
            return Err(PinnedError::NotRegular(Kind::Synthetic));
        }
        self.place.root().policy().admit(&facts)?;
        if facts.size > limit {
            return Err(PinnedError::OverLimit {
                limit,
                size: Some(facts.size),
            });
        }
        seam.at(Step::Examined);
        Ok(Examined {
            pinned: self,
            facts,
        })
    }
}

impl AsFd for PinnedFile<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl<'root> Examined<'root> {
    /// What the descriptor said.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Opens the very object that was examined for reading.
    ///
    /// # Errors
    /// [`PinnedError::PermissionDenied`] when mode or owner forbid reading; [`PinnedError::Changed`]
    /// when they allow it and the open was refused all the same (the file was moved out from under
    /// what this process may touch), or when another object came back; [`PinnedError::Busy`] while
    /// somebody holds a write lease.
    ///
    /// # Source
    /// `open(2)` of `/proc/self/fd/N`, `statx(2)`. Keeps I2.
    pub fn reopen<S: Seam>(self, seam: &mut S) -> Result<OpenFile<'root>, PinnedError> {
        let PinnedFile {
            handle,
            place,
            resolver,
        } = self.pinned;
        let proc_fd = place.root().proc_fd();
        let file = proc_fd.reopen(&handle).map_err(|errno| match errno {
            Errno::ACCESS if proc_fd.may_read(&handle) => {
                PinnedError::Changed("it was moved to where this process may not read")
            }
            Errno::AGAIN => PinnedError::Busy("somebody holds a write lease on the file"),
            // The handle is open, so its entry exists unless `/proc` is not what it was.
            Errno::NOENT => PinnedError::Unsupported("no trustworthy /proc/self/fd"),
            errno => PinnedError::from_errno("opening a pinned file for reading", errno),
        })?;
        let facts = Facts::of(&file)?;
        if facts.identity != self.facts.identity {
            return Err(PinnedError::Changed("another file was opened"));
        }
        seam.at(Step::Reopened);
        Ok(OpenFile {
            file,
            place,
            resolver,
        })
    }
}
