//! Facts about the machine a report was made on: a proof holds only where it was made.

#![forbid(unsafe_code)]

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
};

use rustix::fs::{Mode, OFlags};

/// The kernel's random name for this boot, or nothing where `/proc` does not tell.
#[must_use]
pub fn boot_id() -> String {
    read_line("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

fn read_line(path: &str) -> io::Result<String> {
    let fd: OwnedFd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(fd).take(4096).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
