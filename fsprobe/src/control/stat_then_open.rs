//! The founding baseline: look at the name, and if it is fine, open the name.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{admit, read_bounded, refusal};
use crate::subject::{Reader, Refusal, Seam, Subject};

/// Checks with `lstat`, then opens by name: a link that is there already is refused, one that
/// arrives in between is followed.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatThenOpen;

impl Subject for StatThenOpen {
    fn name(&self) -> &'static str {
        "stat-then-open"
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
        let stat = rustix::fs::lstat(&name).map_err(refusal)?;
        admit(&stat, ceiling)?;
        // The gap the founding probe strikes in.
        seam("checked");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&name, flags, Mode::empty()).map_err(refusal)?;
        seam("opened");
        read_bounded(&mut File::from(file), ceiling, seam)
    }
}
