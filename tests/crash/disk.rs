//! A filesystem of our own in a file, whose power can be cut.
//!
//! Cutting is the filesystem's own shutdown call without flushing its log (`spec/store.md` 2.2 A):
//! what was not flushed to media is gone, as after a real power cut.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The filesystems whose shutdown works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
}

impl Kind {
    fn mkfs(self) -> (&'static str, &'static [&'static str], u64) {
        match self {
            Self::Ext4 => ("mkfs.ext4", &["-q", "-F"], 64 << 20),
            // The smallest that mkfs.xfs makes; the file is sparse.
            Self::Xfs => ("mkfs.xfs", &["-q", "-f"], 300 << 20),
        }
    }
}

impl Kind {
    /// The size of the smallest such filesystem, in bytes.
    pub(crate) fn smallest(self) -> u64 {
        self.mkfs().2
    }
}

/// A mounted filesystem in a file; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    image: PathBuf,
    mount: PathBuf,
    mounted: bool,
}

impl Disk {
    /// A fresh filesystem of the smallest size, mounted at `dir/NAME`, its image beside it.
    pub(crate) fn new(kind: Kind, dir: &Path, name: &str) -> Self {
        let (_, _, size) = kind.mkfs();
        Self::of_size(kind, dir, name, size)
    }

    /// A fresh filesystem of `size` bytes.
    pub(crate) fn of_size(kind: Kind, dir: &Path, name: &str, size: u64) -> Self {
        Self::at(kind, dir.join(format!("{name}.img")), dir.join(name), size)
    }

    /// A fresh filesystem of `size` bytes in the file `image`, mounted at `mount`.
    pub(crate) fn at(kind: Kind, image: PathBuf, mount: PathBuf, size: u64) -> Self {
        fs::File::create(&image).unwrap().set_len(size).unwrap();
        fs::create_dir_all(&mount).unwrap();
        let (program, args, _) = kind.mkfs();
        assert!(
            runs(Command::new(program).args(args).arg(&image)),
            "{program}"
        );
        let mut disk = Self {
            image,
            mount,
            mounted: false,
        };
        disk.plug_in();
        disk
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }

    /// Flips a bit of the medium wherever it holds `bytes`, behind the back of the filesystem and of
    /// everything that is in memory. How often that was.
    pub(crate) fn corrupt(&self, bytes: &[u8]) -> usize {
        use std::os::unix::fs::FileExt as _;
        let image = fs::File::options()
            .read(true)
            .write(true)
            .open(&self.image)
            .unwrap();
        let content = fs::read(&self.image).unwrap();
        let mut places = 0;
        // Files start at sectors.
        for (n, block) in content.chunks(512).enumerate() {
            if block.starts_with(bytes) {
                let at = u64::try_from(n * 512).unwrap();
                image.write_all_at(&[block[0] ^ 1], at).unwrap();
                places += 1;
            }
        }
        places
    }

    /// Cuts its power: nothing reaches the medium from here on.
    pub(crate) fn cut(&self) {
        let shutdown = ["-x", "-c", "shutdown"];
        let done = runs(Command::new("xfs_io").args(shutdown).arg(&self.mount));
        assert!(done, "the filesystem can be shut down");
    }

    /// Takes it out.
    pub(crate) fn pull_out(&mut self) {
        assert!(runs(Command::new("umount").arg(&self.mount)), "umount");
        self.mounted = false;
    }

    /// Mounts it again; the filesystem recovers by itself.
    pub(crate) fn plug_in(&mut self) {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&self.image).arg(&self.mount);
        assert!(runs(&mut mount), "mount");
        self.mounted = true;
    }
}

impl Disk {
    /// Unmounts it whatever still uses it, so that a failed test leaves nothing behind.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.mounted) {
            runs(Command::new("umount").arg("-l").arg(&self.mount));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn runs(command: &mut Command) -> bool {
    // Where system administration programs are, whatever the caller's PATH.
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let output = command.env("PATH", path).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            println!("{command:?}: {error}");
            false
        }
    }
}

/// Why no filesystem of this kind can be made and cut here; `None` when one can.
pub(crate) fn unavailable(kind: Kind) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount".into());
    }
    let (program, ..) = kind.mkfs();
    for (program, package) in [(program, "e2fsprogs or xfsprogs"), ("xfs_io", "xfsprogs")] {
        if !runs(Command::new(program).arg("-V")) {
            return Some(format!("{program} is not installed (package {package})"));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (_, _, size) = kind.mkfs();
    let image = dir.path().join("try.img");
    fs::File::create(&image).unwrap().set_len(size).unwrap();
    let (program, args, _) = kind.mkfs();
    let mount = dir.path().join("try");
    fs::create_dir(&mount).unwrap();
    if !runs(Command::new(program).args(args).arg(&image)) {
        return Some(format!("{program} fails"));
    }
    let mounted = runs(
        Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&mount),
    );
    if !mounted {
        return Some("loop devices cannot be mounted here".into());
    }
    let cut = runs(
        Command::new("xfs_io")
            .args(["-x", "-c", "shutdown"])
            .arg(&mount),
    );
    runs(Command::new("umount").arg("-l").arg(&mount));
    if cut {
        None
    } else {
        Some("the filesystem cannot be shut down here".into())
    }
}
