//! A root and an outside next to each other, and the moves of whoever writes there.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use holdfast::{
    model::{ByteCount, Cancel, RelPath},
    pinned::{Bounds, PinnedError, Policy, Resolver, Root, Seam, Snapshot},
    spool::{SpoolDir, SpoolWriter},
};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};

pub(crate) struct Arena {
    dir: tempfile::TempDir,
}

impl Arena {
    /// On the filesystem of the build directory: `/tmp` may lie in memory.
    pub(crate) fn new() -> Self {
        let arena = Self::empty();
        arena.dir("root");
        arena
    }

    /// Without a root.
    pub(crate) fn empty() -> Self {
        Self::at(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    /// Elsewhere, without a root.
    pub(crate) fn at(dir: tempfile::TempDir) -> Self {
        fs::create_dir(dir.path().join("spool")).unwrap();
        Self { dir }
    }

    pub(crate) fn base(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) {
        self.parents(name);
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn dir(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap();
    }

    pub(crate) fn link(&self, name: &str, target: &str) {
        self.parents(name);
        symlink(target, self.path(name)).unwrap();
    }

    pub(crate) fn hard_link(&self, from: &str, name: &str) {
        self.parents(name);
        fs::hard_link(self.path(from), self.path(name)).unwrap();
    }

    pub(crate) fn fifo(&self, name: &str) {
        self.parents(name);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, self.path(name), FileType::Fifo, mode, 0).unwrap();
    }

    /// Swaps what two names lead to, with no moment between.
    pub(crate) fn exchange(&self, one: &str, other: &str) {
        let (one, other) = (self.path(one), self.path(other));
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// Whether somebody has the FIFO open for reading at this moment.
    pub(crate) fn fifo_has_a_reader(&self, name: &str) -> bool {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, self.path(name), flags, Mode::empty()).is_ok()
    }

    pub(crate) fn root(&self, policy: Policy) -> Root {
        Root::open(&self.path("root"), policy).unwrap()
    }

    pub(crate) fn spools(&self) -> SpoolDir {
        SpoolDir::new(fs::File::open(self.path("spool")).unwrap().into())
    }

    /// Reads `path` beneath `root` in full, calling out at every step.
    pub(crate) fn read<S: Seam>(
        &self,
        root: &Root,
        path: &RelPath,
        resolver: Resolver,
        limit: u64,
        seam: &mut S,
    ) -> Result<Snapshot, PinnedError> {
        let limit = ByteCount::new(limit);
        let spool = self.spools().create(limit).unwrap();
        root.snapshot(
            path,
            resolver,
            spool,
            &Bounds::new(limit, Cancel::new()),
            seam,
        )
    }

    fn parents(&self, name: &str) {
        if let Some(parent) = self.path(name).parent() {
            fs::create_dir_all(parent).unwrap();
        }
    }
}

/// Reads `path` beneath `root` into `spool`, at most 1 KiB.
pub(crate) fn read_into(
    root: &Root,
    path: &RelPath,
    resolver: Resolver,
    spool: SpoolWriter,
) -> Result<Snapshot, PinnedError> {
    let bounds = Bounds::new(ByteCount::kib(1), Cancel::new());
    root.snapshot(path, resolver, spool, &bounds, &mut ())
}

/// What the snapshot holds.
pub(crate) fn bytes(snapshot: &Snapshot) -> Vec<u8> {
    let mut content = Vec::new();
    rustix::fs::seek(snapshot.spool(), rustix::fs::SeekFrom::Start(0)).unwrap();
    snapshot.spool().file().read_to_end(&mut content).unwrap();
    content
}

pub(crate) fn rel_path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// The number of descriptors this process has open.
pub(crate) fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs on a thread of its own that has given its rights up for good.
pub(crate) fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use rustix::{
        fs::{Gid, Uid},
        thread as t,
    };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
            t::set_thread_groups(&[]).unwrap();
            t::set_thread_res_gid(gid, gid, gid).unwrap();
            t::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        worker.join().unwrap()
    })
}
