//! Readers of known worth that run beside every subject: *controls*, which must lose, and
//! *references*, which must not. A report in which no control lost says nothing about anybody.

#![forbid(unsafe_code)]

mod openat_walk;
mod stat_then_open;

use std::io::Read;

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

pub use openat_walk::OpenatWalk;
pub use stat_then_open::StatThenOpen;

use crate::subject::{Refusal, Seam};

/// Reads to the end, calling out before every chunk; one byte past `ceiling` is a refusal.
pub(crate) fn read_bounded(
    file: &mut impl Read,
    ceiling: u64,
    seam: &mut Seam<'_>,
) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        seam("read");
        let count = file.read(&mut chunk).map_err(|_lost| Refusal::new("io"))?;
        if count == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if bytes.len() as u64 > ceiling {
            return Err(Refusal::new("over-limit"));
        }
    }
}

/// Refuses what is no regular file, or larger than `ceiling`.
fn admit(stat: &Stat, ceiling: u64) -> Result<(), Refusal> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink {
        Err(Refusal::new("link"))
    } else if kind != FileType::RegularFile {
        Err(Refusal::new("not-regular"))
    } else if u64::try_from(stat.st_size).is_ok_and(|size| size <= ceiling) {
        Ok(())
    } else {
        Err(Refusal::new("over-limit"))
    }
}

fn refusal(errno: Errno) -> Refusal {
    Refusal::new(match errno {
        Errno::NOENT | Errno::NOTDIR => "not-found",
        Errno::LOOP => "link",
        Errno::ACCESS | Errno::PERM => "permission",
        _ => "io",
    })
}
