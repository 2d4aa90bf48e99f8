#![forbid(unsafe_code)]

use rustix::fd::{AsFd, OwnedFd};

use super::{Facts, HardLinks, Identity, PinnedError, Root, fresh_name, resolve};

/// Where a file was found: its name in a directory that is held.
#[derive(Debug)]
pub(super) struct Place<'root> {
    root: &'root Root,
    /// None for the root itself.
    directory: Option<OwnedFd>,
    name: Box<[u8]>,
}

impl<'root> Place<'root> {
    pub(super) fn new(root: &'root Root, directory: Option<OwnedFd>, name: Box<[u8]>) -> Self {
        Self {
            root,
            directory,
            name,
        }
    }

    pub(super) fn root(&self) -> &'root Root {
        self.root
    }

    /// Shows that a file whose count of names is one has its one name here, where the root's policy
    /// asks for that. Called between two looks at the count and times, which must agree.
    ///
    /// An unlink lowers the count and moves the times before the directory forgets the name, so for
    /// a moment a foreign file still stands here with a count of one. Whatever takes the directory's
    /// lock waits that moment out; a lookup of a name that is in nobody's cache does.
    ///
    /// # Errors
    /// [`PinnedError::Changed`] when the name leads elsewhere by now.
    pub(super) fn confirm(&self, file: Identity) -> Result<(), PinnedError> {
        match (self.root.policy().hard_links, &self.directory) {
            (HardLinks::Allow, _) => Ok(()),
            (HardLinks::Deny, None) => confirm(self.root, &self.name, file),
            (HardLinks::Deny, Some(directory)) => confirm(directory, &self.name, file),
        }
    }
}

fn confirm(directory: impl AsFd, name: &[u8], file: Identity) -> Result<(), PinnedError> {
    match resolve::open_component(&directory, fresh_name(".holdfast-absent")?.as_bytes()) {
        Err(PinnedError::NotFound) => {}
        Ok(_) => return Err(PinnedError::Changed("a name drawn at random exists")),
        Err(error) => return Err(error),
    }
    match resolve::open_component(&directory, name) {
        Ok(handle) if Facts::of(&handle)?.identity == file => Ok(()),
        Ok(_) | Err(PinnedError::NotFound) => {
            Err(PinnedError::Changed("its name leads to something else"))
        }
        Err(error) => Err(error),
    }
}
