//! The reference: one `openat` per component, following nothing, everything asked of the handle.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Component, Path},
};

use rustix::fs::{FileType, Mode, OFlags};

use super::{admit, read_bounded, refusal};
use crate::subject::{Claims, Reader, Refusal, Seam, Subject};

/// Walks with `O_PATH | O_NOFOLLOW`, examines the handle, and only then opens that very inode for
/// reading, so that a FIFO is never opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenatWalk;

impl Subject for OpenatWalk {
    fn name(&self) -> &'static str {
        "openat-walk"
    }

    fn claims(&self) -> Claims {
        Claims {
            ceiling: true,
            special_files: true,
            root: true,
            ..Claims::default()
        }
    }

    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty()).map_err(refusal)?;
        Ok(Box::new(Opened { root }))
    }
}

struct Opened {
    root: OwnedFd,
}

impl Reader for Opened {
    fn read(&mut self, path: &Path, ceiling: u64, seam: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
        let handle = walk(&self.root, path, seam)?;
        let examined = rustix::fs::fstat(&handle).map_err(refusal)?;
        admit(&examined, ceiling)?;
        seam("examined");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let file = rustix::fs::open(name, flags, Mode::empty()).map_err(refusal)?;
        let reopened = rustix::fs::fstat(&file).map_err(refusal)?;
        if (reopened.st_dev, reopened.st_ino) != (examined.st_dev, examined.st_ino) {
            return Err(Refusal::new("changed"));
        }
        seam("opened");
        read_bounded(&mut File::from(file), ceiling, seam)
    }
}

/// A handle on the last component; links are refused wherever they stand.
fn walk(root: &OwnedFd, path: &Path, seam: &mut Seam<'_>) -> Result<OwnedFd, Refusal> {
    let mut held: Option<OwnedFd> = None;
    for component in path.components() {
        let Component::Normal(name) = component else {
            return Err(Refusal::new("invalid-path"));
        };
        let at = held.as_ref().unwrap_or(root);
        // A link opened like this is a handle on the link itself; used as a directory it fails.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = rustix::fs::openat(at, name, flags, Mode::empty()).map_err(refusal)?;
        let stat = rustix::fs::fstat(&next).map_err(refusal)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Err(Refusal::new("link"));
        }
        held = Some(next);
        seam("component");
    }
    held.ok_or_else(|| Refusal::new("invalid-path"))
}
