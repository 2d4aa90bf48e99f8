//! Open by name with `O_NOFOLLOW`, which speaks of the last component only.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{admit, read_bounded, refusal};
use crate::subject::{Reader, Refusal, Seam, Subject};

/// The flag most fixes reach for first.
#[derive(Debug, Clone, Copy, Default)]
pub struct NofollowFinal;

impl Subject for NofollowFinal {
    fn name(&self) -> &'static str {
        "nofollow-final"
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
        seam("started");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.root.join(path);
        let file = rustix::fs::open(&name, flags, Mode::empty()).map_err(refusal)?;
        seam("opened");
        admit(&rustix::fs::fstat(&file).map_err(refusal)?, ceiling)?;
        read_bounded(&mut File::from(file), ceiling, seam)
    }
}
