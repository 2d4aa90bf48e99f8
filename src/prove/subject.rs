#![forbid(unsafe_code)]

use std::{
    ffi::OsString,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, fs::FileExt as _},
    },
    path::Path,
    sync::Arc,
};

use fsprobe::{Claims, Reader, Refusal, Relaunch, Seam, Subject};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{
    gate::{claims_of, subject_name},
    model::{ByteCount, Cancel, RelPath},
    pinned::{Bounds, PinnedError, Policy, Resolver, Root, Step},
    spool::{SpoolDir, SpoolError},
};

/// The word that makes this program one reader for one read; see [`answer_if_asked`].
pub const READ_WORD: &str = "probe-read";

/// `pinned` with one resolver and one root's policy, as the prober attacks it: the reads it makes
/// are those of the service, spool included.
#[derive(Debug)]
pub struct PinnedSubject {
    resolver: Resolver,
    policy: Policy,
    spools: Arc<SpoolDir>,
    flushes: Flushes,
}

/// Where a subject flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushes {
    /// On the root's own threads, as the service does.
    Apart,
    /// On the reading thread, for a process that is stopped at its system calls.
    Inline,
}

impl PinnedSubject {
    /// The reader a root with `policy` is read by, with copies in `spools`.
    #[must_use]
    pub fn new(
        resolver: Resolver,
        policy: Policy,
        spools: Arc<SpoolDir>,
        flushes: Flushes,
    ) -> Self {
        Self {
            resolver,
            policy,
            spools,
            flushes,
        }
    }
}

impl Subject for PinnedSubject {
    fn name(&self) -> &str {
        subject_name(self.resolver)
    }

    fn claims(&self) -> Claims {
        claims_of(&self.policy)
    }

    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        let mut root =
            Root::open(root, self.policy.clone()).map_err(|error| Refusal::new(error.class()))?;
        if self.flushes == Flushes::Inline {
            root = root.flushing_inline();
        }
        Ok(Box::new(Opened {
            root,
            resolver: self.resolver,
            spools: Arc::clone(&self.spools),
        }))
    }
}

struct Opened {
    root: Root,
    resolver: Resolver,
    spools: Arc<SpoolDir>,
}

impl Reader for Opened {
    fn read(&mut self, path: &Path, ceiling: u64, seam: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
        self.snapshot(path, ByteCount::new(ceiling), seam)
            .map_err(|error| Refusal::new(error.class()))
    }
}

impl Opened {
    fn snapshot(
        &self,
        path: &Path,
        limit: ByteCount,
        seam: &mut Seam<'_>,
    ) -> Result<Vec<u8>, PinnedError> {
        let path = RelPath::parse(path.as_os_str().as_bytes())?;
        let spool = self.spools.create(limit).map_err(PinnedError::Spool)?;
        let bounds = Bounds::new(limit, Cancel::new());
        let mut at = |step: Step| seam(step.name());
        let snapshot = self
            .root
            .snapshot(&path, self.resolver, spool, &bounds, &mut at)?;
        let spool = snapshot.spool();
        // As long as was copied, which the ceiling bounds.
        let len = usize::try_from(spool.len().get()).unwrap_or_default();
        let mut bytes = vec![0; len];
        spool
            .file()
            .read_exact_at(&mut bytes, 0)
            .map_err(|error| PinnedError::Spool(SpoolError::from(error)))?;
        Ok(bytes)
    }
}

/// How the prober starts this very program as the reader of a root with `policy`, with copies in the
/// directory `spools`, so that it can be stopped at every system call.
#[must_use]
pub fn relaunch(policy: &Policy, spools: &Path) -> Relaunch {
    Relaunch {
        // The bytes that run now, whatever the name they were started by leads to by then.
        program: "/proc/self/exe".into(),
        arguments: vec![
            READ_WORD.into(),
            OsString::from(spools),
            policy.to_string().into(),
        ],
    }
}

/// Returns at once unless `arguments` (the program's name left out) are those of [`relaunch`]: then
/// reads the one file the prober asks for and ends the process.
///
/// It answers on a descriptor the prober gives it and nowhere else; nothing is served.
pub fn answer_if_asked(mut arguments: impl Iterator<Item = OsString>) {
    if arguments.next().is_none_or(|word| word != READ_WORD) {
        return;
    }
    let spools = arguments.next().unwrap_or_default();
    let policy = arguments.next().unwrap_or_default();
    let policy = policy.to_str().and_then(Policy::from_text);
    if let (Some(policy), Ok(spools)) = (policy, open_spools(Path::new(&spools))) {
        let spools = Arc::new(SpoolDir::new(spools));
        let subjects = Resolver::ALL.map(|resolver| {
            let (policy, spools) = (policy.clone(), Arc::clone(&spools));
            let subject = PinnedSubject::new(resolver, policy, spools, Flushes::Inline);
            Arc::new(subject) as Arc<dyn Subject>
        });
        fsprobe::answer_if_asked(&subjects);
    }
    // Nobody asked, or the question makes no sense.
    std::process::exit(2);
}

fn open_spools(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}
