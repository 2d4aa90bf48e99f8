//! The reference other projects can take from a shelf: `cap-std`'s directory handle.

#![forbid(unsafe_code)]

use std::path::Path;

use ::cap_std::{ambient_authority, fs::Dir};
use rustix::io::Errno;

use super::{read_bounded, refusal};
use crate::subject::{Claims, Reader, Refusal, Seam, Subject};

/// Opens beneath a held directory; follows links that stay beneath, and opens FIFOs.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapStd;

impl Subject for CapStd {
    fn name(&self) -> &'static str {
        "cap-std"
    }

    fn claims(&self) -> Claims {
        Claims {
            ceiling: true,
            root: true,
            ..Claims::default()
        }
    }

    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        #[expect(clippy::disallowed_methods, reason = "a root is opened by name once")]
        let dir = Dir::open_ambient_dir(root, ambient_authority());
        Ok(Box::new(Opened {
            dir: dir.map_err(|error| classify(&error))?,
        }))
    }
}

struct Opened {
    dir: Dir,
}

impl Reader for Opened {
    fn read(&mut self, path: &Path, ceiling: u64, seam: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
        seam("started");
        let mut file = self.dir.open(path).map_err(|error| classify(&error))?;
        seam("opened");
        let about = file.metadata().map_err(|error| classify(&error))?;
        if !about.is_file() {
            return Err(Refusal::new("not-regular"));
        }
        if about.len() > ceiling {
            return Err(Refusal::new("over-limit"));
        }
        seam("examined");
        read_bounded(&mut file, ceiling, seam)
    }
}

fn classify(error: &std::io::Error) -> Refusal {
    match Errno::from_io_error(error) {
        Some(errno) => refusal(errno),
        // Its own word for a path that leads out has no number.
        None => Refusal::new("outside"),
    }
}
