//! Look at the last component, open it, and see that both were the same inode.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{admit, read_bounded, refusal};
use crate::subject::{Reader, Refusal, Seam, Subject};

/// Safe against a swap of the last component and blind to one above it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LstatFinal;

impl Subject for LstatFinal {
    fn name(&self) -> &'static str {
        "lstat-final"
    }

    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        Ok(Box::new(Opened {
            root: root.to_owned(),
        }))
    }
}

struct Opened {
    root: PathBuf,
}

impl Reader for Opened {
    fn read(&mut self, path: &Path, ceiling: u64, seam: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
        let name = self.root.join(path);
        seam("started");
        let looked_at = rustix::fs::lstat(&name).map_err(refusal)?;
        admit(&looked_at, ceiling)?;
        seam("checked");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&name, flags, Mode::empty()).map_err(refusal)?;
        let opened = rustix::fs::fstat(&file).map_err(refusal)?;
        if (opened.st_dev, opened.st_ino) != (looked_at.st_dev, looked_at.st_ino) {
            return Err(Refusal::new("changed"));
        }
        seam("opened");
        read_bounded(&mut File::from(file), ceiling, seam)
    }
}
