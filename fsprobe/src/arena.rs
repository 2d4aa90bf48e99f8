//! A private directory in which everything happens, and the small trees that are attacked in it.
//!
//! Promises: only names below the arena's own directory are created, changed or removed, all of
//! them through descriptors and without following links. The arena is removed when it is dropped;
//! one left behind by a killed probe is recognised by its name and its owner file, proven dead by
//! its free lock, and removed by the next probe in the same place.

#![forbid(unsafe_code)]

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::FileExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, inotify},
    io::Errno,
};

use crate::{
    attack::Attack,
    content::{Contents, LINE, Mark},
    error::{InArena as _, ProbeError},
    host::Host,
    sys::SharedMapping,
};

/// Every arena's directory name starts like this.
pub const PREFIX: &str = "fsprobe-arena-";
/// The path a subject is asked for, relative to a cell's root.
pub const TARGET: &str = "top/mid/file.txt";

const OWNER: &str = "owner";
const MAGIC: &str = "fsprobe arena 1\n";
const GRANDPARENT: &str = "top";
const PARENT: &str = "mid";
const LEAF: &str = "file.txt";
/// Deeper than anything we make; a tree this deep in a dead arena is not ours to remove.
const MAX_DEPTH: u32 = 16;

/// Who may look into the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Only our own user.
    #[default]
    Private,
    /// Everybody may read: a file server that runs as another user has to.
    Readable,
}

impl Access {
    fn dir(self) -> Mode {
        match self {
            Self::Private => Mode::RWXU,
            Self::Readable => Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH,
        }
    }

    fn file(self) -> Mode {
        match self {
            Self::Private => Mode::RUSR | Mode::WUSR,
            Self::Readable => Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH,
        }
    }
}

/// A directory of our own, locked while it lives and removed when it is dropped.
#[derive(Debug)]
pub struct Arena {
    base: OwnedFd,
    name: OsString,
    dir: OwnedFd,
    path: PathBuf,
    access: Access,
    next_cell: AtomicU32,
    /// Held for its lock: a later probe may remove this arena only once the lock is free.
    _owner: File,
}

impl Arena {
    /// Makes an arena below the existing directory `base`, after removing dead ones found there.
    ///
    /// # Errors
    /// [`ProbeError::Arena`] where `base` cannot be opened or written.
    pub fn new_in(base: &Path) -> Result<Self, ProbeError> {
        Self::with_access(base, Access::Private)
    }

    /// As [`Arena::new_in`], choosing who may look inside.
    ///
    /// # Errors
    /// As [`Arena::new_in`].
    pub fn with_access(base: &Path, access: Access) -> Result<Self, ProbeError> {
        let base = open_base(base).arena("open the directory to work in")?;
        sweep(&base)?;
        let base_path = path_of(&base).arena("name the directory to work in")?;
        let boot: String = crate::host::boot_id()
            .chars()
            .filter(|c| *c != '-')
            .take(8)
            .collect();
        let boot = if boot.is_empty() {
            "unknown".to_owned()
        } else {
            boot
        };
        let name = OsString::from(format!(
            "{PREFIX}{boot}-{}-{:016x}",
            std::process::id(),
            crate::rng::fresh_seed()
        ));
        rustix::fs::mkdirat(&base, &name, Mode::RWXU).arena("make a directory")?;
        let dir = open_dir(&base, &name).arena("open the new directory")?;
        rustix::fs::fchmod(&dir, access.dir()).arena("open the new directory to readers")?;
        let mut owner =
            File::from(create(&dir, OsStr::new(OWNER), Access::Private).arena("write the owner")?);
        // Locked before it says whose it is: a file without the magic is nobody's to remove.
        rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive)
            .arena("lock the owner file")?;
        write!(
            owner,
            "{MAGIC}pid {}\nboot {}\n",
            std::process::id(),
            crate::host::boot_id()
        )
        .arena("write the owner")?;
        let path = base_path.join(&name);
        Ok(Self {
            base,
            name,
            dir,
            path,
            access,
            next_cell: AtomicU32::new(0),
            _owner: owner,
        })
    }

    /// The arena's absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The absolute path of the directory the arena is in, without links.
    #[must_use]
    pub fn base_path(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Facts about this machine and the filesystem the arena is on.
    ///
    /// # Errors
    /// Where the arena's directory cannot be asked.
    pub fn host(&self) -> io::Result<Host> {
        Host::of(&self.dir)
    }

    /// Refuses an arena that lies beneath `root`: what is outside it would be inside.
    pub(crate) fn must_be_outside(&self, root: &Path) -> Result<(), ProbeError> {
        let root = open_base(root)
            .and_then(|dir| path_of(&dir))
            .arena("open the served root")?;
        if self.path.starts_with(&root) {
            return Err(ProbeError::Usage(format!(
                "the outside part must not lie beneath {}",
                root.display()
            )));
        }
        Ok(())
    }

    /// Builds the tree for one run of `attack`.
    ///
    /// # Errors
    /// [`ProbeError::Arena`]: out of space, inodes or descriptors, for example.
    pub fn cell(&self, attack: Attack, setup: Setup) -> Result<Cell, ProbeError> {
        Cell::build(Place::of(self, self)?, attack, setup)
    }

    /// Builds a tree below this arena whose outside part lies in `hold`, which may be elsewhere.
    ///
    /// # Errors
    /// As [`Arena::cell`].
    pub fn cell_with_hold(
        &self,
        hold: &Self,
        attack: Attack,
        setup: Setup,
    ) -> Result<Cell, ProbeError> {
        Cell::build(Place::of(self, hold)?, attack, setup)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Another thread may be removing a cell at the same time. After a few tries nobody is left to
        // tell: what could not be removed stays recognisable for the next probe.
        for _ in 0..5 {
            if remove_tree(&self.base, &self.name, MAX_DEPTH).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Sizes and contents of one cell.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Length of every fixture in bytes, a whole number of [`LINE`]s.
    pub len: usize,
    /// The ceiling the subject is given, in bytes, a whole number of lines, at least `len`.
    pub ceiling: u64,
    /// Makes the contents recognisable.
    pub nonce: u64,
}

/// Where a cell is built: its own fresh directory below an arena, and one for the outside part.
struct Place {
    base_path: PathBuf,
    dir: OwnedFd,
    path: PathBuf,
    parent: OwnedFd,
    name: OsString,
    hold: OwnedFd,
    hold_path: PathBuf,
    hold_parent: OwnedFd,
    hold_name: OsString,
    access: Access,
}

impl Place {
    fn of(arena: &Arena, hold: &Arena) -> Result<Self, ProbeError> {
        let make = |arena: &Arena, letter: char| -> Result<_, ProbeError> {
            let index = arena.next_cell.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!("{letter}{index:06}"));
            let dir = make_dir(&arena.dir, &name, arena.access).arena("make a cell")?;
            let parent = arena.dir.try_clone().arena("hold the arena")?;
            Ok((dir, arena.path.join(&name), parent, name))
        };
        let (dir, path, parent, name) = make(arena, 'c')?;
        let (hold, hold_path, hold_parent, hold_name) = make(hold, 'h')?;
        let access = arena.access;
        Ok(Self {
            base_path: arena.base_path().to_owned(),
            dir,
            path,
            parent,
            name,
            hold,
            hold_path,
            hold_parent,
            hold_name,
            access,
        })
    }
}

/// One tree, prepared for one attack.
///
/// ```text
/// cNNNNNN/root/top/mid/file.txt      what the subject is given and asked for
/// hNNNNNN/…                          outside: link targets, and what is swapped in
/// ```
#[derive(Debug)]
pub struct Cell {
    attack: Attack,
    setup: Setup,
    contents: Contents,
    base_path: PathBuf,
    root_path: PathBuf,
    dir: OwnedFd,
    root: OwnedFd,
    grandparent: OwnedFd,
    parent: OwnedFd,
    hold: OwnedFd,
    fifo: Option<Fifo>,
    mapping: Option<Mutex<SharedMapping>>,
    cleanup: [(OwnedFd, OsString); 2],
}

/// Whether an attack could be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Struck {
    /// The tree is changed.
    Yes,
    /// The subject holds the file in a way that keeps others from changing it (a lease).
    Prevented,
}

impl Cell {
    fn build(place: Place, attack: Attack, setup: Setup) -> Result<Self, ProbeError> {
        let Place {
            base_path,
            dir,
            path,
            parent: above,
            name,
            hold,
            access,
            ..
        } = place;
        let cleanup = [(above, name), (place.hold_parent, place.hold_name)];
        let contents = Contents::new(setup.nonce);
        let root = make_dir(&dir, OsStr::new("root"), access).arena("make the root")?;
        let grandparent =
            make_dir(&root, OsStr::new(GRANDPARENT), access).arena("make a directory")?;
        let parent =
            make_dir(&grandparent, OsStr::new(PARENT), access).arena("make a directory")?;
        let len = if attack == Attack::TooLarge {
            over(setup.ceiling)
        } else {
            setup.len
        };
        let file = fill(&parent, LEAF, &contents.bytes(Mark::Inside, len), access)?;
        let mut cell = Self {
            attack,
            setup,
            contents,
            base_path,
            root_path: path.join("root"),
            dir,
            root,
            grandparent,
            parent,
            hold,
            fifo: None,
            mapping: None,
            cleanup,
        };
        cell.prepare(&file, &place.hold_path, access)?;
        Ok(cell)
    }

    /// Puts what the attack needs into the outside part; a standing attack is put in place.
    fn prepare(&mut self, file: &File, hold_path: &Path, access: Access) -> Result<(), ProbeError> {
        let hold = &self.hold;
        let bytes = |mark| self.contents.bytes(mark, self.setup.len);
        let link = |target: &str| {
            rustix::fs::symlinkat(hold_path.join(target), hold, "link").arena("make a link")
        };
        let tree = |name: &str, mark| -> Result<OwnedFd, ProbeError> {
            let top = make_dir(hold, OsStr::new(name), access).arena("make an outside tree")?;
            let mid = make_dir(&top, OsStr::new(PARENT), access).arena("make an outside tree")?;
            fill(&mid, LEAF, &bytes(mark), access)?;
            Ok(mid)
        };
        match self.attack {
            Attack::Plain
            | Attack::TooLarge
            | Attack::AncestorOut
            | Attack::Grow
            | Attack::Truncate
            | Attack::RewriteByWrite => {}
            Attack::FinalLink | Attack::FinalLinkThere => {
                fill(hold, "secret", &bytes(Mark::Outside), access)?;
                link("secret")?;
            }
            Attack::ParentLink | Attack::ParentLinkThere => {
                tree("away", Mark::Outside)?;
                link("away/mid")?;
            }
            Attack::GrandparentLink => {
                tree("away", Mark::Outside)?;
                link("away")?;
            }
            Attack::OutsideOver => {
                fill(hold, "moved", &bytes(Mark::Moved), access)?;
            }
            Attack::HardLink => {
                fill(hold, "linked", &bytes(Mark::Linked), access)?;
                rustix::fs::linkat(hold, "linked", hold, "second", AtFlags::empty())
                    .arena("make a hard link")?;
            }
            Attack::Fifo => self.fifo = Some(Fifo::make(hold, access).arena("make a FIFO")?),
            Attack::RewriteByMapping => {
                let mut mapping =
                    SharedMapping::new(file, self.setup.len).arena("map the inside file")?;
                // Dirty from the start: only then does a later store leave the times alone.
                mapping.store(0, &bytes(Mark::Inside));
                self.mapping = Some(Mutex::new(mapping));
            }
            Attack::RootReplaced => {
                let evil = make_dir(hold, OsStr::new("evil"), access).arena("make another root")?;
                let top =
                    make_dir(&evil, OsStr::new(GRANDPARENT), access).arena("make another root")?;
                let mid = make_dir(&top, OsStr::new(PARENT), access).arena("make another root")?;
                fill(&mid, LEAF, &bytes(Mark::OtherRoot), access)?;
            }
        }
        if matches!(
            self.attack,
            Attack::FinalLinkThere | Attack::ParentLinkThere
        ) {
            self.flip()?;
        }
        Ok(())
    }

    /// The directory the subject is given, absolute and without links.
    #[must_use]
    pub fn root_path(&self) -> &Path {
        &self.root_path
    }

    /// The directory the arena was made in: what a file server serves.
    pub(crate) fn served_root(&self) -> &Path {
        &self.base_path
    }

    /// The attack this cell was built for.
    #[must_use]
    pub fn attack(&self) -> Attack {
        self.attack
    }

    /// Sizes and nonce.
    #[must_use]
    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// How the fixtures' contents are recognised.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// Carries out the attack, once.
    ///
    /// # Errors
    /// [`ProbeError::Arena`] if the tree could not be changed.
    pub fn strike(&self) -> Result<Struck, ProbeError> {
        match self.attack {
            Attack::Plain | Attack::TooLarge | Attack::FinalLinkThere | Attack::ParentLinkThere => {
                Ok(Struck::Yes)
            }
            Attack::FinalLink
            | Attack::ParentLink
            | Attack::GrandparentLink
            | Attack::OutsideOver
            | Attack::HardLink
            | Attack::Fifo
            | Attack::RootReplaced => self.flip().map(|()| Struck::Yes),
            Attack::AncestorOut => {
                rustix::fs::renameat(&self.root, GRANDPARENT, &self.hold, "gone")
                    .arena("move a directory out")?;
                Ok(Struck::Yes)
            }
            Attack::Grow => self.with_file(|file| {
                let len = over(self.setup.ceiling);
                let more = self.contents.bytes(Mark::Inside, len);
                let from = self.setup.len;
                file.write_all_at(more.get(from..).unwrap_or_default(), from as u64)
            }),
            Attack::Truncate => self.with_file(|file| file.set_len(self.half() as u64)),
            Attack::RewriteByWrite => self.with_file(|file| {
                file.write_all_at(&self.contents.bytes(Mark::Rewritten, self.setup.len), 0)
            }),
            Attack::RewriteByMapping => {
                self.map_in(Mark::Rewritten);
                Ok(Struck::Yes)
            }
        }
    }

    /// Undoes [`Cell::strike`], so that the subject may find everything as it was.
    ///
    /// # Errors
    /// As [`Cell::strike`].
    pub fn restore(&self) -> Result<Struck, ProbeError> {
        match self.attack {
            Attack::Plain | Attack::TooLarge | Attack::FinalLinkThere | Attack::ParentLinkThere => {
                Ok(Struck::Yes)
            }
            Attack::FinalLink
            | Attack::ParentLink
            | Attack::GrandparentLink
            | Attack::OutsideOver
            | Attack::HardLink
            | Attack::Fifo
            | Attack::RootReplaced => self.flip().map(|()| Struck::Yes),
            Attack::AncestorOut => {
                rustix::fs::renameat(&self.hold, "gone", &self.root, GRANDPARENT)
                    .arena("move a directory back")?;
                Ok(Struck::Yes)
            }
            Attack::Grow => self.with_file(|file| file.set_len(self.setup.len as u64)),
            Attack::Truncate | Attack::RewriteByWrite => self.with_file(|file| {
                file.write_all_at(&self.contents.bytes(Mark::Inside, self.setup.len), 0)
            }),
            Attack::RewriteByMapping => {
                self.map_in(Mark::Inside);
                Ok(Struck::Yes)
            }
        }
    }

    /// One round of a storm, counted from 1; says how many changes it made.
    pub(crate) fn disturb(&self, round: u64) -> Result<u64, ProbeError> {
        if matches!(
            self.attack,
            Attack::RewriteByWrite | Attack::RewriteByMapping
        ) {
            return self.rewrite(round);
        }
        let struck = if round % 2 == 1 {
            self.strike()?
        } else {
            self.restore()?
        };
        Ok(u64::from(struck == Struck::Yes))
    }

    /// Rewrites the file block by block, so that readers may find it half done.
    fn rewrite(&self, round: u64) -> Result<u64, ProbeError> {
        const LINES: usize = 128;
        let generation = u32::try_from(round & 0xFFF_FFFF).unwrap_or_default();
        let mut flips = 0;
        for from in (0..self.setup.len / LINE).step_by(LINES) {
            let lines = LINES.min(self.setup.len / LINE - from);
            let block = self
                .contents
                .generation(Mark::Inside, generation, from, lines);
            if let Some(mapping) = &self.mapping {
                mapping
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .store(from * LINE, &block);
            } else if self.with_file(|file| file.write_all_at(&block, (from * LINE) as u64))?
                == Struck::Prevented
            {
                continue;
            }
            flips += 1;
        }
        Ok(flips)
    }

    /// Lets go of a subject that waits on the cell's FIFO.
    pub fn rescue(&self) {
        if let Some(fifo) = &self.fifo {
            fifo.release();
        }
    }

    /// How often the cell's FIFO was opened since the last call, at least: opens in quick succession
    /// count as one, and one that waits is not seen until it succeeds.
    pub fn sightings(&self) -> u64 {
        self.fifo.as_ref().map_or(0, Fifo::opened)
    }

    /// Lets go of a subject that waits on the cell's FIFO; whether one did.
    pub(crate) fn release_waiting(&self) -> bool {
        let Some(fifo) = &self.fifo else { return false };
        let was_waiting = fifo.release_reader();
        if was_waiting {
            // Our own open, and the one that could go on because of it.
            fifo.opened();
        }
        was_waiting
    }

    /// Exchanges the inside name with what was prepared outside; its own inverse.
    fn flip(&self) -> Result<(), ProbeError> {
        let (dir, name, other) = match self.attack {
            Attack::FinalLink | Attack::FinalLinkThere => (&self.parent, LEAF, "link"),
            Attack::ParentLink | Attack::ParentLinkThere => (&self.grandparent, PARENT, "link"),
            Attack::GrandparentLink => (&self.root, GRANDPARENT, "link"),
            Attack::OutsideOver => (&self.parent, LEAF, "moved"),
            Attack::HardLink => (&self.parent, LEAF, "second"),
            Attack::Fifo => (&self.parent, LEAF, "fifo"),
            Attack::RootReplaced => (&self.dir, "root", "evil"),
            Attack::Plain
            | Attack::TooLarge
            | Attack::AncestorOut
            | Attack::Grow
            | Attack::Truncate
            | Attack::RewriteByWrite
            | Attack::RewriteByMapping => return Ok(()),
        };
        rustix::fs::renameat_with(dir, name, &self.hold, other, RenameFlags::EXCHANGE)
            .arena("exchange two names")
    }

    /// Opens the inside file for writing without waiting for anybody, and changes it.
    fn with_file(
        &self,
        change: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<Struck, ProbeError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.parent, LEAF, flags, Mode::empty()) {
            Ok(file) => {
                change(&File::from(file)).arena("change the inside file")?;
                Ok(Struck::Yes)
            }
            Err(Errno::WOULDBLOCK) => Ok(Struck::Prevented),
            Err(error) => Err(error).arena("open the inside file"),
        }
    }

    fn map_in(&self, mark: Mark) {
        if let Some(mapping) = &self.mapping {
            mapping
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .store(0, &self.contents.bytes(mark, self.setup.len));
        }
    }

    /// Length after [`Attack::Truncate`].
    pub(crate) fn half(&self) -> usize {
        self.setup.len / LINE / 2 * LINE
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.rescue();
        for (parent, name) in &self.cleanup {
            // The arena's own removal comes by once more; nothing to do about a failure here.
            drop(remove_tree(parent, name, MAX_DEPTH));
        }
    }
}

/// A FIFO in the outside part, and a witness that says when somebody opened it.
#[derive(Debug)]
struct Fifo {
    handle: OwnedFd,
    witness: OwnedFd,
}

impl Fifo {
    fn make(hold: &OwnedFd, access: Access) -> io::Result<Self> {
        rustix::fs::mknodat(hold, "fifo", FileType::Fifo, access.file(), 0)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(hold, "fifo", flags, Mode::empty())?;
        let witness =
            inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&witness, fd_path(&handle), inotify::WatchFlags::OPEN)?;
        Ok(Self { handle, witness })
    }

    fn opened(&self) -> u64 {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(self.witness.as_fd(), &mut buffer);
        let mut count = 0;
        while events.next().is_ok() {
            count += 1;
        }
        count
    }

    /// Opens the writing end, which succeeds only if somebody has the reading end or waits for it,
    /// and closes it again: an end of file for whoever that was.
    fn release_reader(&self) -> bool {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(fd_path(&self.handle), flags, Mode::empty()).is_ok()
    }

    /// Both ends at once, without waiting: whoever waits in `open` or `read` gets an end of file.
    fn release(&self) {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        drop(rustix::fs::open(
            fd_path(&self.handle),
            flags,
            Mode::empty(),
        ));
    }
}

/// Removes arenas in `base` whose owners are gone; everything else is left alone.
fn sweep(base: &OwnedFd) -> Result<(), ProbeError> {
    let entries = Dir::read_from(base).arena("list the directory to work in")?;
    for entry in entries {
        let entry = entry.arena("list the directory to work in")?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name.as_bytes().starts_with(PREFIX.as_bytes()) && is_dead(base, name) {
            // Somebody else may be removing it at this moment; either way it is gone afterwards.
            drop(remove_tree(base, name, MAX_DEPTH));
        }
    }
    Ok(())
}

/// Whether `name` is an arena of our own user that nobody holds any more.
fn is_dead(base: &OwnedFd, name: &OsStr) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    let Ok(dir) = open_dir(base, name) else {
        return false;
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(owner) = rustix::fs::openat(&dir, OWNER, flags, Mode::empty()) else {
        return false;
    };
    let is_ours = |fd: &OwnedFd, kind| {
        rustix::fs::fstat(fd)
            .is_ok_and(|stat| stat.st_uid == ours && FileType::from_raw_mode(stat.st_mode) == kind)
    };
    if !is_ours(&dir, FileType::Directory) || !is_ours(&owner, FileType::RegularFile) {
        return false;
    }
    let owner = File::from(owner);
    let mut text = String::new();
    let said = (&owner).take(4096).read_to_string(&mut text);
    said.is_ok()
        && text.starts_with(MAGIC)
        && rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Removes `name` below `parent` and everything in it, following no link and entering no other
/// filesystem.
fn remove_tree(parent: &OwnedFd, name: &OsStr, depth: u32) -> io::Result<()> {
    let device = rustix::fs::fstat(parent)?.st_dev;
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // EPERM is what some filesystems say instead of EISDIR.
        Err(Errno::ISDIR | Errno::PERM) if depth > 0 => {}
        Err(error) => return Err(error.into()),
    }
    let dir = match open_dir(parent, name) {
        // Somebody else removed it in between.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if rustix::fs::fstat(&dir)?.st_dev != device {
        return Err(Errno::XDEV.into());
    }
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            remove_tree(&dir, OsStr::from_bytes(name), depth - 1)?;
        }
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens the caller's choice of a directory, which may be reached through links.
fn open_base(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens one name below a directory of ours.
fn open_dir(at: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

fn make_dir(at: &OwnedFd, name: &OsStr, access: Access) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(at, name, Mode::RWXU)?;
    let dir = open_dir(at, name)?;
    // The caller's umask must not decide what a server may see.
    rustix::fs::fchmod(&dir, access.dir())?;
    Ok(dir)
}

fn create(at: &OwnedFd, name: &OsStr, access: Access) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at, name, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fchmod(&file, access.file())?;
    Ok(file)
}

fn fill(at: &OwnedFd, name: &str, bytes: &[u8], access: Access) -> Result<File, ProbeError> {
    let mut file = File::from(create(at, OsStr::new(name), access).arena("make a file")?);
    file.write_all(bytes).arena("fill a file")?;
    Ok(file)
}

/// One line more than `ceiling`.
fn over(ceiling: u64) -> usize {
    usize::try_from(ceiling)
        .unwrap_or(usize::MAX / 2)
        .saturating_add(LINE)
}

fn fd_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn path_of(fd: &OwnedFd) -> io::Result<PathBuf> {
    let path = rustix::fs::readlink(fd_path(fd), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests look at their own directories by name"
)]
mod tests {
    use super::*;

    const SETUP: Setup = Setup {
        len: 4 * LINE,
        ceiling: 8 * LINE as u64,
        nonce: 3,
    };

    fn names(dir: &Path) -> Vec<OsString> {
        std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    }

    #[test]
    fn each_attack_does_what_it_says_and_can_be_undone() {
        let base = tempfile::tempdir().unwrap();
        let arena = Arena::new_in(base.path()).unwrap();
        for attack in Attack::ALL {
            let cell = arena.cell(attack, SETUP).unwrap();
            let file = cell.root_path().join(TARGET);
            let of = |mark| cell.contents().bytes(mark, SETUP.len);
            let read = || std::fs::read(&file).unwrap_or_default();
            if !attack.is_standing() {
                assert_eq!(read(), of(Mark::Inside), "{attack} before");
            }
            if attack == Attack::Fifo {
                continue; // reading it would wait
            }
            assert_eq!(cell.strike().unwrap(), Struck::Yes, "{attack}");
            let expected = match attack {
                Attack::Plain => of(Mark::Inside),
                Attack::FinalLink
                | Attack::FinalLinkThere
                | Attack::ParentLink
                | Attack::ParentLinkThere
                | Attack::GrandparentLink => of(Mark::Outside),
                Attack::AncestorOut => Vec::new(),
                Attack::OutsideOver => of(Mark::Moved),
                Attack::HardLink => of(Mark::Linked),
                Attack::TooLarge | Attack::Grow => cell.contents().bytes(Mark::Inside, 9 * LINE),
                Attack::Truncate => cell.contents().bytes(Mark::Inside, 2 * LINE),
                Attack::RewriteByWrite | Attack::RewriteByMapping => of(Mark::Rewritten),
                Attack::RootReplaced => of(Mark::OtherRoot),
                Attack::Fifo => unreachable!(),
            };
            assert_eq!(read(), expected, "{attack} struck");
            if !attack.is_standing() {
                cell.restore().unwrap();
                assert_eq!(read(), of(Mark::Inside), "{attack} undone");
            }
        }
    }

    #[test]
    fn a_mapped_store_leaves_the_times_alone() {
        let base = tempfile::tempdir().unwrap();
        let arena = Arena::new_in(base.path()).unwrap();
        let cell = arena.cell(Attack::RewriteByMapping, SETUP).unwrap();
        let stamp = || {
            let stat = rustix::fs::stat(cell.root_path().join(TARGET)).unwrap();
            (
                stat.st_mtime,
                stat.st_mtime_nsec,
                stat.st_ctime,
                stat.st_ctime_nsec,
            )
        };
        let before = stamp();
        cell.strike().unwrap();
        assert_eq!(
            stamp(),
            before,
            "otherwise the attack is no better than a write"
        );
    }

    #[test]
    fn the_witness_sees_an_open_that_does_not_wait_and_no_handle() {
        let base = tempfile::tempdir().unwrap();
        let arena = Arena::new_in(base.path()).unwrap();
        let cell = arena.cell(Attack::Fifo, SETUP).unwrap();
        cell.strike().unwrap();
        let file = cell.root_path().join(TARGET);
        drop(rustix::fs::open(&file, OFlags::PATH, Mode::empty()).unwrap());
        assert_eq!(cell.sightings(), 0, "a handle is not an open");
        drop(rustix::fs::open(&file, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
        assert_eq!(cell.sightings(), 1);
    }

    #[test]
    fn a_reader_that_waits_is_told_from_none_and_let_go() {
        let base = tempfile::tempdir().unwrap();
        let arena = Arena::new_in(base.path()).unwrap();
        let cell = arena.cell(Attack::Fifo, SETUP).unwrap();
        cell.strike().unwrap();
        assert!(!cell.release_waiting());
        let file = cell.root_path().join(TARGET);
        let waiting = std::thread::spawn(move || std::fs::read(file));
        while !cell.release_waiting() {
            std::thread::yield_now();
        }
        assert_eq!(waiting.join().unwrap().unwrap(), b"");
    }

    #[test]
    fn an_arena_is_removed_when_it_is_dropped() {
        let base = tempfile::tempdir().unwrap();
        let arena = Arena::new_in(base.path()).unwrap();
        let cell = arena.cell(Attack::RootReplaced, SETUP).unwrap();
        cell.strike().unwrap();
        std::mem::forget(cell);
        drop(arena);
        assert!(names(base.path()).is_empty());
    }

    #[test]
    fn a_dead_arena_is_swept_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let live = Arena::new_in(base.path()).unwrap();
        let dead = Arena::new_in(base.path()).unwrap();
        let dead_path = dead.path().to_owned();
        // As a kill leaves it: the directory stays, the lock goes.
        let Arena { _owner: owner, .. } = &dead;
        rustix::fs::flock(owner, FlockOperation::Unlock).unwrap();
        std::mem::forget(dead);
        std::os::unix::fs::symlink("/etc", dead_path.join("trap")).unwrap();
        // Looks like one of ours and is not: no owner file, or somebody's own directory.
        std::fs::create_dir(base.path().join("fsprobe-arena-mine")).unwrap();
        std::fs::create_dir(base.path().join("precious")).unwrap();
        std::fs::create_dir(base.path().join("fsprobe-arena-notes")).unwrap();
        std::fs::write(base.path().join("fsprobe-arena-notes/owner"), "mine").unwrap();

        let next = Arena::new_in(base.path()).unwrap();

        assert!(!dead_path.exists());
        assert!(live.path().exists() && next.path().exists());
        for kept in [
            "fsprobe-arena-mine",
            "precious",
            "fsprobe-arena-notes/owner",
        ] {
            assert!(base.path().join(kept).exists(), "{kept}");
        }
        assert!(Path::new("/etc/passwd").exists());
    }
}
