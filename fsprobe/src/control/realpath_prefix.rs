//! Resolve the whole path, see that it lies below the root, and open what was resolved.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{admit, read_bounded, refusal};
use crate::subject::{Reader, Refusal, Seam, Subject};

/// The most common way of "making sure": a canonical path that starts with the canonical root.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealpathPrefix;

impl Subject for RealpathPrefix {
    fn name(&self) -> &'static str {
        "realpath-prefix"
    }

    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        Ok(Box::new(Opened {
            root: resolve(root)?,
        }))
    }
}

struct Opened {
    root: PathBuf,
}

impl Reader for Opened {
    fn read(&mut self, path: &Path, ceiling: u64, seam: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
        let resolved = resolve(&self.root.join(path))?;
        if !resolved.starts_with(&self.root) {
            return Err(Refusal::new("outside"));
        }
        seam("resolved");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&resolved, flags, Mode::empty()).map_err(refusal)?;
        seam("opened");
        admit(&rustix::fs::fstat(&file).map_err(refusal)?, ceiling)?;
        read_bounded(&mut File::from(file), ceiling, seam)
    }
}

fn resolve(path: &Path) -> Result<PathBuf, Refusal> {
    #[expect(
        clippy::disallowed_methods,
        reason = "resolving by name is the weakness shown here"
    )]
    let resolved = path.canonicalize();
    resolved.map_err(|error| {
        rustix::io::Errno::from_io_error(&error).map_or_else(|| Refusal::new("io"), refusal)
    })
}
