use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{Parts, TransferError, gather::Gathering, progress::Progress, release::may_leave};
use crate::{
    access::Grant,
    gate::{Gate, PinningProof, RootFacts},
    model::{ByteCount, RelPath},
    pinned::{Bounds, Listing, PinnedError, Policy, Resolver, Root, Snapshot},
    policy::{NameClass, NameRules, Preset},
    pool::{Pool, PoolError},
    spool::SpoolWriter,
};

/// Threads of one root: a disk that hangs holds up its own files alone.
const THREADS: usize = 4;
/// Reads of one root that wait for a thread; one more is refused as busy.
const QUEUE: usize = 32;

/// How long a root may take to say where it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// A root that was opened at start and can be asked about, not read.
#[derive(Debug)]
pub struct HeldRoot {
    name: String,
    root: Root,
    is_our_own: bool,
    rules: Rules,
    /// What the directory is called: as configured, and as the kernel knows it.
    paths: [PathBuf; 2],
}

/// What a root lets out beyond what its reader refuses.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Names that never leave, and names that ask.
    pub names: NameRules,
    /// The largest file.
    pub max_file: ByteCount,
}

/// Where a declared path lies, by the letters of its session's directory: in which root, and where
/// beneath it. Nothing was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The root's name.
    pub root: String,
    /// The path beneath it.
    pub path: RelPath,
}

impl HeldRoot {
    /// Opens the directory at `path`, following links once, here.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn open(
        name: &str,
        path: &Path,
        policy: Policy,
        rules: Rules,
    ) -> Result<Self, PinnedError> {
        let root = Root::open(path, policy)?;
        let failed = |source: io::Error| PinnedError::Io {
            action: "asking a root",
            source,
        };
        let facts = rustix::fs::fstat(&root).map_err(|errno| failed(errno.into()))?;
        let link = format!("/proc/self/fd/{}", root.as_fd().as_raw_fd());
        let known = rustix::fs::readlink(link, Vec::new()).map_err(|errno| failed(errno.into()))?;
        let known = PathBuf::from(OsString::from_vec(known.into_bytes()));
        Ok(Self {
            name: name.to_owned(),
            is_our_own: facts.st_uid == rustix::process::geteuid().as_raw(),
            rules,
            paths: [std::path::absolute(path).map_err(failed)?, known],
            root,
        })
    }

    /// What messages, reports and logs call it; never a path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it lets out.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How many bytes a file says it has, where it may be read at all; opens nothing. For what runs on
    /// the root's threads against a proof.
    pub(super) fn look(
        &self,
        path: &RelPath,
        resolver: Resolver,
        limit: ByteCount,
    ) -> Result<ByteCount, PinnedError> {
        let pinned = self.root.pin(path, resolver, &mut ())?;
        Ok(pinned.examine(limit, &mut ())?.facts().size)
    }

    /// Lists a directory. For what runs on the root's threads against a proof.
    pub(super) fn list(
        &self,
        path: &RelPath,
        resolver: Resolver,
        most: usize,
    ) -> Result<Listing, PinnedError> {
        self.root.pin(path, resolver, &mut ())?.list(most)
    }

    /// Copies one file. For what runs on the root's threads against a proof.
    pub(super) fn copy(
        &self,
        path: &RelPath,
        resolver: Resolver,
        spool: SpoolWriter,
        bounds: &Bounds,
    ) -> Result<Snapshot, PinnedError> {
        self.root.snapshot(path, resolver, spool, bounds, &mut ())
    }

    /// Whether it belongs to the uid we run as: then there is no boundary to who writes there.
    #[must_use]
    pub fn is_our_own(&self) -> bool {
        self.is_our_own
    }

    /// Whether the configured path still leads to the directory held.
    #[must_use]
    pub fn is_still_at_its_name(&self) -> bool {
        self.root.is_still_at_its_name()
    }

    /// What it and its host are now.
    ///
    /// # Errors
    /// Where the directory cannot be asked.
    pub fn facts(&self) -> io::Result<RootFacts> {
        RootFacts::of(&self.name, &self.root)
    }

    /// `path` of `directory`, as it is called beneath this root.
    fn beneath(&self, directory: &Path, path: &RelPath) -> Option<RelPath> {
        let mut ours = self.paths.iter();
        let below = ours.find_map(|root| directory.strip_prefix(root).ok())?;
        let mut whole = below.as_os_str().as_encoded_bytes().to_vec();
        if !whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend(path.as_bytes());
        RelPath::parse(&whole).ok()
    }

    /// How many components of `directory` lead to this root, when it is the root or lies below it by
    /// its letters.
    fn holds(&self, directory: &Path) -> Option<usize> {
        let ours = self.paths.iter();
        ours.filter(|path| directory.starts_with(path))
            .map(|path| path.components().count())
            .max()
    }
}

impl AsFd for HeldRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// The service's only holder of roots. It gives one out against a grant and a proof, and what it gives
/// reads with the proven resolvers alone, on the root's own threads.
#[derive(Debug, Default)]
pub struct Roots(Vec<Served>);

#[derive(Debug)]
struct Served {
    held: Arc<HeldRoot>,
    pool: Pool,
}

/// A root that may be read: somebody was granted something, and reads of it are proven pinned.
#[derive(Debug)]
pub struct OpenRoot {
    held: Arc<HeldRoot>,
    pool: Pool,
}

impl Roots {
    /// Starts each root's threads.
    ///
    /// # Errors
    /// What the system says when it gives no thread.
    pub fn serve(held: Vec<HeldRoot>) -> io::Result<Self> {
        let served = held.into_iter().map(|held| {
            let pool = Pool::new("hf-root", THREADS, QUEUE)?;
            let held = Arc::new(held);
            Ok(Served { held, pool })
        });
        served.collect::<io::Result<_>>().map(Self)
    }

    /// As [`Roots::serve`], reading on the caller's thread.
    #[cfg(feature = "_seams")]
    #[must_use]
    pub fn serve_inline(held: Vec<HeldRoot>) -> Self {
        let served = held.into_iter().map(|held| Served {
            held: Arc::new(held),
            pool: Pool::inline(),
        });
        Self(served.collect())
    }

    /// The root the proof speaks of. The grant says that somebody may ask at all (I10), the proof that
    /// reading it is safe (I3); without both there is no root.
    #[must_use]
    pub fn of<T>(&self, _grant: &Grant<T>, proof: &PinningProof) -> Option<OpenRoot> {
        let served = self.0.iter().find(|one| one.held.name == proof.root())?;
        Some(OpenRoot {
            held: Arc::clone(&served.held),
            pool: served.pool.clone(),
        })
    }

    /// Every root, to be asked about.
    pub fn held(&self) -> impl Iterator<Item = &HeldRoot> {
        self.0.iter().map(|served| &*served.held)
    }

    /// Whether the root's configured path still leads to it; none when it does not answer in time.
    pub async fn is_at_its_name(&self, name: &str) -> Option<bool> {
        let served = self.0.iter().find(|one| one.held.name == name)?;
        let held = Arc::clone(&served.held);
        let asked = served.pool.run(move || held.is_still_at_its_name());
        tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()
    }

    /// The root of this name, to be asked about.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&HeldRoot> {
        self.held().find(|held| held.name == name)
    }

    /// Where `path` of a session whose directory is `directory` lies, by its letters alone.
    #[must_use]
    pub fn place(&self, directory: &str, path: &RelPath) -> Option<Place> {
        let root = self.around(directory)?;
        // Slashes at the end, or two in a row, are none of the letters.
        let directory: PathBuf = Path::new(directory).components().collect();
        Some(Place {
            root: root.to_owned(),
            path: self.named(root)?.beneath(&directory, path)?,
        })
    }

    /// The name of the root in which a session's directory lies, by its letters alone: the innermost,
    /// where one lies in another. Nothing is looked up.
    #[must_use]
    pub fn around(&self, directory: &str) -> Option<&str> {
        let directory = Path::new(directory);
        let is_plain = directory.is_absolute()
            && directory.components().all(|part| {
                use std::path::Component::{Normal, RootDir};
                matches!(part, RootDir | Normal(_))
            });
        let depth = |held: &&HeldRoot| held.holds(directory);
        self.held()
            .filter(|held| is_plain && depth(held).is_some())
            .max_by_key(depth)
            .map(HeldRoot::name)
    }
}

impl OpenRoot {
    /// What the root lets out.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.held.rules
    }

    /// Copies one file, whole and unchanged, on the root's threads. The strongest proven resolver the
    /// kernel has is used, and no other; the gate is asked on the very thread that reads, so that
    /// nothing lies between its answer and the first look at the path (I3).
    ///
    /// A caller that goes away stops the copy between two reads.
    ///
    /// # Errors
    /// [`TransferError::Gate`] when the gate closed meanwhile. [`TransferError::Pinned`] as
    /// [`Root::snapshot`]; [`PinnedError::Busy`] as well when too many reads of this root wait.
    pub async fn snapshot(
        &self,
        gate: &Arc<Gate>,
        path: RelPath,
        spool: SpoolWriter,
        bounds: Bounds,
    ) -> Result<Snapshot, TransferError> {
        let _stops = bounds.cancel.fire_on_drop();
        let (held, gate) = (Arc::clone(&self.held), Arc::clone(gate));
        let read = move || {
            let pin = |resolver| Ok(held.root.pin(&path, resolver, &mut ())?);
            Ok(proven(&held, &gate, pin)?
                .examine(bounds.limit, &mut ())?
                .reopen(&mut ())?
                .copy_to(spool, &bounds, &mut ())?)
        };
        self.on_its_threads(read).await
    }

    /// Looks at one file as a release of it would, and opens nothing: how many bytes it says it has. On the
    /// root's threads, against the gate's answer there.
    ///
    /// # Errors
    /// As [`OpenRoot::snapshot`], up to the examination.
    pub(super) async fn look(
        &self,
        gate: &Arc<Gate>,
        path: RelPath,
        limit: ByteCount,
    ) -> Result<ByteCount, TransferError> {
        let (held, gate) = (Arc::clone(&self.held), Arc::clone(gate));
        let looking = move || {
            let look = |resolver| Ok(held.look(&path, resolver, limit)?);
            proven(&held, &gate, look)
        };
        self.on_its_threads(looking).await
    }

    /// Gathers files on one of the root's threads, against the gate's answer there: `work` begins anew
    /// with each proven resolver the kernel turns out not to have.
    ///
    /// # Errors
    /// As [`OpenRoot::snapshot`], and what `work` says.
    pub(super) async fn gather<T: Send + 'static>(
        &self,
        parts: &Parts,
        bounds: Bounds,
        preset: Preset,
        progress: Progress,
        work: impl Fn(&Gathering<'_>) -> Result<T, TransferError> + Send + 'static,
    ) -> Result<(T, Resolver), TransferError> {
        let _stops = bounds.cancel.fire_on_drop();
        let (held, gate) = (Arc::clone(&self.held), Arc::clone(&parts.gate));
        let store = Arc::clone(&parts.store);
        let gathering = move || {
            let judge = |class: &NameClass<'_>| may_leave(preset, class);
            proven(&held, &gate, |resolver| {
                let gathering = Gathering {
                    root: &held,
                    resolver,
                    store: &*store,
                    bounds: &bounds,
                    judge: &judge,
                    progress: &progress,
                };
                work(&gathering).map(|gathered| (gathered, resolver))
            })
        };
        self.on_its_threads(gathering).await
    }

    async fn on_its_threads<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
    ) -> Result<T, TransferError> {
        match self.pool.run(work).await {
            Ok(answer) => answer,
            Err(PoolError::Busy) => {
                Err(PinnedError::Busy("too many reads of the root wait").into())
            }
            Err(error @ PoolError::Gone) => Err(PinnedError::Io {
                action: "reading on the root's threads",
                source: io::Error::other(error),
            }
            .into()),
        }
    }
}

/// Asks the gate, and reads with the strongest proven resolver the kernel has.
fn proven<T>(
    held: &HeldRoot,
    gate: &Gate,
    read: impl Fn(Resolver) -> Result<T, TransferError>,
) -> Result<T, TransferError> {
    let proof = gate
        .proof(&held.name)
        .map_err(|closed| TransferError::Gate {
            closed,
            root: held.name.clone(),
        })?;
    let mut answer = Err(PinnedError::Unsupported("no resolver was proven").into());
    for resolver in proof.resolvers() {
        answer = read(*resolver);
        let is_absent = matches!(
            answer,
            Err(TransferError::Pinned(PinnedError::Unsupported(_)))
        );
        if !is_absent {
            break;
        }
    }
    answer
}

/// The setting that governs why a file cannot be read, if one does.
#[must_use]
pub fn setting_of(error: &PinnedError) -> Option<&'static str> {
    match error {
        PinnedError::DeniedSymlink => Some("root.links"),
        PinnedError::DeniedMount => Some("root.mounts"),
        PinnedError::DeniedHardlink => Some("root.hardlinks"),
        PinnedError::DeniedOwner => Some("root.owner"),
        PinnedError::OverLimit { .. } => Some("root.max_file"),
        PinnedError::Unsupported(_) => Some("root.stability"),
        PinnedError::InvalidPath(_)
        | PinnedError::NameTooLong
        | PinnedError::NotFound
        | PinnedError::DeniedMagicLink
        | PinnedError::DeniedEscape
        | PinnedError::SymlinkLoop
        | PinnedError::NotRegular(_)
        | PinnedError::Changed(_)
        | PinnedError::Busy(_)
        | PinnedError::PermissionDenied
        | PinnedError::RootReplaced
        | PinnedError::Cancelled
        | PinnedError::Deadline
        | PinnedError::Resource(_)
        | PinnedError::Spool(_)
        | PinnedError::Io { .. } => None,
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test directory")]
mod tests {
    use super::{HeldRoot, Roots, Rules};
    use crate::{
        model::{ByteCount, RelPath},
        pinned::Policy,
        policy::NameRules,
    };

    #[test]
    fn a_session_s_directory_lies_in_the_innermost_root_by_its_letters() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("ws/inner")).unwrap();
        std::os::unix::fs::symlink("ws", home.path().join("link")).unwrap();
        let open = |name: &str, path: &str| {
            let rules = Rules {
                names: NameRules::new(&[], true, &[], ByteCount::ZERO).unwrap(),
                max_file: ByteCount::ZERO,
            };
            HeldRoot::open(name, &home.path().join(path), Policy::default(), rules).unwrap()
        };
        let roots = Roots::serve(vec![open("outer", "link"), open("inner", "ws/inner")]).unwrap();
        for (directory, expected) in [
            ("ws", Some("outer")), // as the kernel knows it
            ("link", Some("outer")),
            ("ws/deep/er", Some("outer")),
            ("ws/inner", Some("inner")),
            ("ws/inner/x", Some("inner")),
            ("wsx", None),
            ("ws/inner/../..", None),
            ("", None),
        ] {
            let directory = home.path().join(directory);
            let found = roots.around(directory.to_str().unwrap());
            assert_eq!(found, expected, "{}", directory.display());
        }
        assert_eq!(roots.around("ws"), None, "relative");
        let path = RelPath::parse(b"out/a").unwrap();
        for (directory, expected) in [
            ("ws", Some(("outer", "out/a"))),
            ("link/", Some(("outer", "out/a"))),
            ("link//s/", Some(("outer", "s/out/a"))),
            ("ws/inner", Some(("inner", "out/a"))),
            ("ws/inner/x", Some(("inner", "x/out/a"))),
            ("wsx", None),
        ] {
            let cwd = home.path().join("").to_str().unwrap().to_owned() + directory;
            let place = roots.place(&cwd, &path);
            let place = place.map(|place| (place.root, place.path.to_string()));
            let expected = expected.map(|(root, path)| (root.to_owned(), path.to_owned()));
            assert_eq!(place, expected, "{cwd}");
        }
    }
}
