#![forbid(unsafe_code)]

use std::{
    fs::File,
    io::{self, Read as _},
};

use fsprobe::Host;
use rustix::fs::{Mode, OFlags};

use crate::{
    model::Digester,
    pinned::{Policy, Root},
};

/// What a root and its host are at this moment: what a report is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootFacts {
    /// Its name in the configuration.
    pub name: String,
    /// The device of the directory held.
    pub device: u64,
    /// The inode of the directory held.
    pub inode: u64,
    /// What it lets out.
    pub policy: Policy,
    /// The machine, its boot, and the filesystem and mount the directory lies on.
    pub host: Host,
}

impl RootFacts {
    /// Asks the held directory and the kernel.
    ///
    /// # Errors
    /// Where the directory cannot be asked.
    pub fn of(name: &str, root: &Root) -> io::Result<Self> {
        let identity = root.identity();
        Ok(Self {
            name: name.to_owned(),
            device: identity.device,
            inode: identity.inode,
            policy: root.policy().clone(),
            host: Host::of(root)?,
        })
    }
}

/// The program that runs: its version and the digest of the very bytes it was started from, whatever
/// its name leads to by now.
///
/// # Errors
/// Where `/proc/self/exe` cannot be read.
pub fn build_id() -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut program = File::from(rustix::fs::open("/proc/self/exe", flags, Mode::empty())?);
    let mut digester = Digester::default();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = program.read(&mut buffer)?;
        match buffer.get(..read) {
            None | Some([]) => break,
            Some(bytes) => digester.update(bytes),
        }
    }
    let digest = digester.finish();
    Ok(format!(
        "holdfast {} sha256:{digest}",
        env!("CARGO_PKG_VERSION")
    ))
}
