#![forbid(unsafe_code)]

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FileType, Mode, OFlags, openat},
    io::Errno,
};

use super::{Found, admit_mount, admit_no_link};
use crate::{
    model::RelPath,
    pinned::{Facts, PinnedError, Root, Seam, Step},
};

/// Opens one component after the other, each held and checked before the next is looked up in it.
/// At most two descriptors are open at a time.
pub(super) fn resolve<S: Seam>(
    root: &Root,
    path: &RelPath,
    seam: &mut S,
) -> Result<Found, PinnedError> {
    let mut parent: Option<OwnedFd> = None;
    let mut components = path.components().zip(0..).peekable();
    while let Some((name, index)) = components.next() {
        let handle = match &parent {
            None => open_component(root, name),
            Some(directory) => open_component(directory, name),
        }?;
        // The mount first, as the kernel does: what lies on a refused mount is not looked at.
        admit_mount(root, Facts::of(&handle)?.identity)?;
        let facts = admit_no_link(root, &handle)?;
        seam.at(Step::Component { index });
        if components.peek().is_none() {
            return Ok(Found { handle, parent });
        }
        if facts.kind != FileType::Directory {
            return Err(PinnedError::NotFound);
        }
        parent = Some(handle);
    }
    // Not reached: a `RelPath` has at least one component.
    Err(PinnedError::NotFound)
}

/// Without `O_DIRECTORY`, which would report a link and a file alike. `name` has no slash: one at
/// its end would defeat `O_NOFOLLOW`.
pub(in crate::pinned) fn open_component(
    directory: impl AsFd,
    name: &[u8],
) -> Result<OwnedFd, PinnedError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match openat(&directory, name, flags, Mode::empty()) {
            Ok(fd) => return Ok(fd),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(PinnedError::from_errno("opening a component", errno)),
        }
    }
}
