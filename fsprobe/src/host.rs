//! Facts about the machine a report was made on: a proof holds only where it was made.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, OwnedFd},
};

use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxFlags};
use serde::{Deserialize, Serialize};

/// What a report is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Kernel name and release, as `uname` says.
    pub kernel: String,
    /// Machine architecture.
    pub machine: String,
    /// The kernel's random name for this boot; empty where `/proc` does not tell.
    pub boot_id: String,
    /// The filesystem the arena was on.
    pub filesystem: Filesystem,
}

/// Facts about the filesystem and the mount something lies on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// Its type as the mount table names it, or the `statfs` magic in hexadecimal.
    pub kind: String,
    /// The mount's flags as `statvfs` tells them, sorted; unknown bits in hexadecimal.
    pub mount_flags: Vec<String>,
    /// `f_fsid` in hexadecimal.
    pub fsid: String,
}

impl Host {
    /// Facts about this machine and the filesystem `on` lies on.
    ///
    /// # Errors
    /// Where the descriptor cannot be asked.
    ///
    /// # Source
    /// `uname(2)`, `/proc/sys/kernel/random/boot_id`, `fstatvfs(3)`, `statx(2)`.
    pub fn of(on: impl AsFd) -> io::Result<Self> {
        let uname = rustix::system::uname();
        let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
        Ok(Self {
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
            machine: text(uname.machine()),
            boot_id: boot_id(),
            filesystem: Filesystem::of(on)?,
        })
    }
}

impl Filesystem {
    /// Facts about the filesystem `on` lies on.
    ///
    /// # Errors
    /// As [`Host::of`].
    pub fn of(on: impl AsFd) -> io::Result<Self> {
        let on = on.as_fd();
        let about = rustix::fs::fstatvfs(on)?;
        let magic = rustix::fs::fstatfs(on)?.f_type;
        let mut mount_flags: Vec<String> = about
            .f_flag
            .iter_names()
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect();
        // Bit 0x20 only says that the flags are valid; it is no property of the mount.
        let unknown = about.f_flag.bits() & !StatVfsMountFlags::all().bits() & !0x20;
        if unknown != 0 {
            mount_flags.push(format!("{unknown:#x}"));
        }
        mount_flags.sort_unstable();
        Ok(Self {
            kind: mounted_as(on).unwrap_or_else(|| format!("{magic:#x}")),
            mount_flags,
            fsid: format!("{:016x}", about.f_fsid),
        })
    }
}

/// The kernel's random name for this boot, or nothing where `/proc` does not tell.
#[must_use]
pub fn boot_id() -> String {
    let line = read_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    line.lines().next().unwrap_or_default().to_owned()
}

/// The type the mount table gives for the mount `on` lies on.
fn mounted_as(on: impl AsFd) -> Option<String> {
    let about = rustix::fs::statx(on, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    if about.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return None;
    }
    let wanted = about.stx_mnt_id.to_string();
    let table = read_text("/proc/self/mountinfo").ok()?;
    let line = table
        .lines()
        .find(|line| line.split(' ').next() == Some(wanted.as_str()))?;
    // The optional fields before " - " vary in number; the type is the first one after it.
    Some(line.split_once(" - ")?.1.split(' ').next()?.to_owned())
}

fn read_text(path: &str) -> io::Result<String> {
    let fd: OwnedFd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    // Mount tables are long on busy hosts; this bounds a `/proc` that is not one.
    File::from(fd).take(8 << 20).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_described() {
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        let host = Host::of(&fd).unwrap();
        assert!(host.kernel.starts_with("Linux "), "{host:?}");
        assert_eq!(host.boot_id.len(), 36, "{host:?}");
        assert!(!host.filesystem.kind.is_empty(), "{host:?}");
        assert_eq!(
            host,
            Host::of(&fd).unwrap(),
            "facts do not vary between two looks"
        );
    }
}
