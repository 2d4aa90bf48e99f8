#![forbid(unsafe_code)]

use std::io;

use rustix::fd::{AsFd, BorrowedFd};

use super::PinnedError;
use crate::sys;

/// A read lease on a file: while it is whole, nobody has the file open or mapped for writing.
#[derive(Debug)]
pub(super) struct Lease<'file>(BorrowedFd<'file>);

/// What came of asking for a lease.
#[derive(Debug)]
pub(super) enum Taken<'file> {
    /// It is held.
    Held(Lease<'file>),
    /// Somebody has the file open or mapped for writing at this moment.
    Writers,
    /// Not for this process, or not on this filesystem.
    Impossible,
}

impl<'file> Lease<'file> {
    pub(super) fn take(file: &'file impl AsFd) -> Taken<'file> {
        let file = file.as_fd();
        match sys::take_read_lease(file) {
            Ok(()) => Taken::Held(Self(file)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Taken::Writers,
            Err(_) => Taken::Impossible,
        }
    }

    /// # Errors
    /// [`PinnedError::Changed`] once somebody waits to write.
    pub(super) fn check(&self) -> Result<(), PinnedError> {
        match sys::holds_read_lease(self.0) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PinnedError::Changed("somebody opened it for writing")),
            Err(source) => Err(PinnedError::Io {
                action: "asking for a lease",
                source,
            }),
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // Whoever waits goes on at once; closing the file would do it too.
        drop(sys::give_lease_up(self.0));
    }
}
