//! Readers of known worth that run beside every subject: *controls*, which must lose, and
//! *references*, which must not. A report in which no control lost says nothing about anybody.

#![forbid(unsafe_code)]

#[cfg(feature = "cap-std")]
mod cap_std;
mod lstat_final;
mod nofollow_final;
mod openat_walk;
mod realpath_prefix;
mod stat_then_open;

use std::{io::Read, sync::Arc};

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

#[cfg(feature = "cap-std")]
pub use self::cap_std::CapStd;
pub use lstat_final::LstatFinal;
pub use nofollow_final::NofollowFinal;
pub use openat_walk::OpenatWalk;
pub use realpath_prefix::RealpathPrefix;
pub use stat_then_open::StatThenOpen;

use crate::{
    report::Role,
    subject::{Refusal, Seam, Subject},
};

/// The built-in readers with what is expected of each, controls first.
#[must_use]
pub fn all() -> Vec<(Role, Arc<dyn Subject>)> {
    vec![
        (Role::Control, Arc::new(StatThenOpen)),
        (Role::Control, Arc::new(RealpathPrefix)),
        (Role::Control, Arc::new(LstatFinal)),
        (Role::Control, Arc::new(NofollowFinal)),
        (Role::Reference, Arc::new(OpenatWalk)),
        #[cfg(feature = "cap-std")]
        (Role::Reference, Arc::new(CapStd)),
    ]
}

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
