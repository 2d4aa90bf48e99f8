//! What a pinned open costs: to the descriptor that may be read, all checks passed.

use std::{
    error::Error,
    fs::{File, create_dir_all, write},
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::Path,
};

use holdfast::{
    model::{ByteCount, RelPath},
    pinned::{HardLinks, Policy, Resolver, Root},
};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, open, openat, openat2, statx};

use crate::{rounds::compare, say};

const LIMIT: ByteCount = ByteCount::kib(64);

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let uname = rustix::system::uname();
    say(&format!(
        "open, check and close one file; Linux {}\n",
        uname.release().to_string_lossy()
    ));
    for depth in [1, 8] {
        at_depth(depth)?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a tree of our own, and the racy way to open a file of it"
)]
fn at_depth(depth: usize) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let way: Vec<String> = (1..depth).map(|n| format!("d{n}")).collect();
    let relative = [way, vec!["f".to_owned()]].concat().join("/");
    let absolute = dir.path().join(&relative);
    create_dir_all(absolute.parent().unwrap_or(dir.path()))?;
    write(&absolute, b"content")?;

    let kept = open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let proc = open(
        "/proc/self/fd",
        OFlags::PATH | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    let path = RelPath::parse(relative.as_bytes())?;
    let root = Root::open(dir.path(), Policy::default())?;
    let links_allowed = Root::open(
        dir.path(),
        Policy {
            hard_links: HardLinks::Allow,
            ..Policy::default()
        },
    )?;
    let pinned = |root: &Root, resolver| -> Result<(), Box<dyn Error>> {
        root.pin(&path, resolver, &mut ())?
            .examine(LIMIT, &mut ())?
            .reopen(&mut ())?;
        Ok(())
    };
    let lines = compare(&[
        ("the calls of a pinned open by openat2", &|| {
            calls(&kept, &proc, &relative)
        }),
        ("pinned, openat2", &|| pinned(&root, Resolver::Openat2)),
        ("pinned, walk", &|| pinned(&root, Resolver::Walk)),
        ("pinned, openat2, hard links allowed", &|| {
            pinned(&links_allowed, Resolver::Openat2)
        }),
        ("openat2 strict, fstat", &|| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = openat2(&kept, &*relative, flags, Mode::empty(), strict())?;
            rustix::fs::fstat(&file)?;
            Ok(())
        }),
        ("open(2) by absolute path, fstat", &|| {
            File::open(&absolute)?.metadata()?;
            Ok(())
        }),
        ("canonicalize, prefix, open (racy)", &|| {
            let real = absolute.canonicalize()?;
            if !real.starts_with(dir.path()) {
                return Err("outside".into());
            }
            File::open(real)?.metadata()?;
            Ok(())
        }),
    ])?;
    say(&format!("depth {depth}:\n{lines}"));
    Ok(())
}

fn strict() -> ResolveFlags {
    ResolveFlags::BENEATH
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_XDEV
}

/// The system calls of a pinned open where links, hard links and mounts are refused, and nothing else.
fn calls(root: &OwnedFd, proc: &OwnedFd, path: &str) -> Result<(), Box<dyn Error>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let beneath = |dir: &OwnedFd, path: &str| openat2(dir, path, flags, Mode::empty(), strict());
    let ask = |fd: &OwnedFd| {
        let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        statx(fd.as_fd(), "", AtFlags::EMPTY_PATH, mask)
    };
    let handle = beneath(root, path)?;
    ask(&handle)?;
    let parent = match Path::new(path).parent().and_then(Path::to_str) {
        None | Some("") => None,
        Some(parent) => {
            let parent = beneath(root, parent)?;
            let name = path.rsplit('/').next().unwrap_or(path);
            ask(&beneath(&parent, name)?)?;
            Some(parent)
        }
    };
    ask(&handle)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let number = handle.as_raw_fd().to_string();
    let file = openat(proc, &*number, flags, Mode::empty())?;
    ask(&file)?;
    drop((file, parent));
    Ok(())
}
