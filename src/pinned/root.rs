#![forbid(unsafe_code)]

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
};

use super::{
    Facts, Identity, Mounts, PinnedError, PinnedFile, Policy, Resolver, Seam, Step,
    filesystem::Filesystem, flush::Flusher, place::Place, proc_fd::ProcFd, resolve,
};
use crate::model::RelPath;

/// An open directory below which files are read, whatever becomes of its name.
///
/// Invariant: holds one directory for life; its identity was taken from the held descriptor.
pub struct Root {
    directory: OwnedFd,
    identity: Identity,
    filesystem: Filesystem,
    path: PathBuf,
    policy: Policy,
    proc_fd: ProcFd,
    coarse_times: bool,
    flusher: Flusher,
    pub(super) openat2: Openat2State,
}

/// How often the kernel would not resolve with `openat2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls answered by `ENOSYS`, or not made because one was.
    pub missing: u64,
    /// Calls answered by `EPERM`: a filter on this thread. Asked again every time.
    pub filtered: u64,
}

/// What is remembered of `openat2` on this kernel.
#[derive(Debug, Default)]
pub(super) struct Openat2State {
    /// `ENOSYS` was seen. Sticky: kernels do not grow system calls.
    pub(super) absent: AtomicBool,
    pub(super) missing: AtomicU64,
    pub(super) filtered: AtomicU64,
}

impl Root {
    /// Opens the directory at `path`, which may itself be or contain links: it is the operator's
    /// word, resolved once. Nothing is read.
    ///
    /// # Errors
    /// [`PinnedError::NotFound`], [`PinnedError::PermissionDenied`] or [`PinnedError::Resource`] as
    /// `open(2)` fails; [`PinnedError::Unsupported`] without a process filesystem at `/proc`.
    pub fn open(path: &Path, policy: Policy) -> Result<Self, PinnedError> {
        Self::holding(open_directory(path)?, path, policy)
    }

    /// A root that is open already.
    pub(super) fn holding(
        directory: OwnedFd,
        path: &Path,
        policy: Policy,
    ) -> Result<Self, PinnedError> {
        let identity = Facts::of(&directory)?.identity;
        let filesystem = Filesystem::of(&directory)?;
        Ok(Self {
            directory,
            identity,
            filesystem,
            path: path.to_owned(),
            policy,
            proc_fd: ProcFd::open()?,
            coarse_times: has_coarse_times(),
            flusher: Flusher::default(),
            openat2: Openat2State::default(),
        })
    }

    /// Flushes files on the reading thread, for a process that must have only one: then nothing
    /// bounds how long a flush takes.
    #[must_use]
    pub fn flushing_inline(mut self) -> Self {
        self.flusher = Flusher::inline();
        self
    }

    /// Resolves `path` once, beneath this root, to a descriptor that can be asked but not read.
    ///
    /// Only the resolver asked for is used: which ones may be is for the caller, who knows what was
    /// proven, to decide.
    ///
    /// # Errors
    /// [`PinnedError::DeniedSymlink`] or [`PinnedError::DeniedMagicLink`] for a link in any
    /// component, or where links are followed [`PinnedError::DeniedEscape`] and
    /// [`PinnedError::SymlinkLoop`]; [`PinnedError::DeniedMount`] by policy; [`PinnedError::NotFound`];
    /// [`PinnedError::PermissionDenied`]; [`PinnedError::Busy`] when 128 tries or 50 ms of renames
    /// and mounts were not enough; [`PinnedError::Unsupported`] when the kernel or a filter has no
    /// `openat2`, or the kernel no mount ids; [`PinnedError::Resource`].
    ///
    /// # Source
    /// `openat2(2)`, `openat(2)`, `statx(2)`. Keeps I2.
    pub fn pin<S: Seam>(
        &self,
        path: &RelPath,
        resolver: Resolver,
        seam: &mut S,
    ) -> Result<PinnedFile<'_>, PinnedError> {
        seam.at(Step::Begun);
        let found = resolve::resolve(self, path, resolver, seam)?;
        seam.at(Step::Resolved);
        let place = Place::new(self, found.parent, found.name);
        Ok(PinnedFile::new(found.handle, place, resolver))
    }

    /// Whether the configured path still leads to the directory held. Serving goes on either way.
    #[must_use]
    pub fn is_still_at_its_name(&self) -> bool {
        open_directory(&self.path)
            .and_then(|directory| Facts::of(&directory))
            .is_ok_and(|facts| facts.identity == self.identity)
    }

    /// Which directory is held.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The path the root was configured with. A host path: it goes into no answer and no log (I14).
    #[must_use]
    pub fn configured_path(&self) -> &Path {
        &self.path
    }

    /// What this root lets out.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How often `openat2` was not to be had.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            missing: self.openat2.missing.load(Ordering::Relaxed),
            filtered: self.openat2.filtered.load(Ordering::Relaxed),
        }
    }

    pub(super) fn proc_fd(&self) -> &ProcFd {
        &self.proc_fd
    }

    pub(super) fn flusher(&self) -> &Flusher {
        &self.flusher
    }

    /// Whether two changes in a row may leave the same times.
    pub(super) fn has_coarse_times(&self) -> bool {
        self.coarse_times
    }

    /// The filesystem of what lies beneath: the root's own, unless paths may cross into others.
    pub(super) fn filesystem_of(&self, fd: impl AsFd) -> Result<Filesystem, PinnedError> {
        match self.policy.mounts {
            Mounts::Deny => Ok(self.filesystem),
            Mounts::Allow => Filesystem::of(fd),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("identity", &self.identity)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Before Linux 6.13 a file's times move with the timer's tick, not with every change that was
/// looked for. What cannot be read is taken for old.
fn has_coarse_times() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 13)
}

fn open_directory(path: &Path) -> Result<OwnedFd, PinnedError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| PinnedError::from_errno("opening a root", errno))
}
