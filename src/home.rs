//! A DSH home: the directory an agent host keeps its sessions and attachments in.
//!
//! Promises: held by descriptor from start to end, and read only; below a configured directory no
//! link is followed (I2). Leaves to others: the sessions (`journal::dsh`), the attachments
//! (`store::dsh`).

#![forbid(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use crate::beneath::{BeneathError, ForeignDir};

/// An open DSH home.
///
/// Its two parts are looked up beneath it at every use, so that a home may be filled after it was
/// opened. A part that is a link is refused; one that lies elsewhere on purpose is configured.
#[derive(Debug)]
pub struct DshHome {
    home: ForeignDir,
    sessions: Option<ForeignDir>,
    attachments: Option<ForeignDir>,
}

impl DshHome {
    /// Opens the home at a configured path; links in the path itself are followed, once.
    ///
    /// # Errors
    /// As `open(2)` fails.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            home: ForeignDir::open_configured(path)?,
            sessions: None,
            attachments: None,
        })
    }

    /// Takes the sessions from another configured directory than `sessions` in the home.
    ///
    /// # Errors
    /// As `open(2)` fails.
    pub fn with_sessions(mut self, path: &Path) -> io::Result<Self> {
        self.sessions = Some(ForeignDir::open_configured(path)?);
        Ok(self)
    }

    /// Takes the attachments from another configured directory than `attachments` in the home.
    ///
    /// # Errors
    /// As `open(2)` fails.
    pub fn with_attachments(mut self, path: &Path) -> io::Result<Self> {
        self.attachments = Some(ForeignDir::open_configured(path)?);
        Ok(self)
    }

    /// The configured directories, to be kept apart from ours.
    pub(crate) fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let configured = [
            Some(&self.home),
            self.sessions.as_ref(),
            self.attachments.as_ref(),
        ];
        configured.into_iter().flatten().map(AsFd::as_fd)
    }

    /// The directory of the project folders.
    pub(crate) fn sessions(&self) -> Result<ForeignDir, BeneathError> {
        match &self.sessions {
            Some(configured) => configured.again(),
            None => self.home.dir(b"sessions"),
        }
    }

    /// The directory of the three attachment trees.
    pub(crate) fn attachments(&self) -> Result<ForeignDir, BeneathError> {
        match &self.attachments {
            Some(configured) => configured.dir(b"v1"),
            None => self.home.dir(b"attachments")?.dir(b"v1"),
        }
    }
}
