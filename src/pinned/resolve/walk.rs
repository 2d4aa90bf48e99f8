#![forbid(unsafe_code)]

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, Mode, OFlags, fstatfs, openat, readlinkat},
    io::{Errno, fcntl_dupfd_cloexec},
};

use super::{Found, admit_mount, link_class};
use crate::{
    model::RelPath,
    pinned::{Facts, Links, PinnedError, Root, Seam, Step},
};

/// As many links as the kernel follows in one lookup.
const MAX_LINKS: u32 = 40;

/// Directories held at once where links are followed.
const MAX_HELD: usize = 128;

/// Opens one component after the other, each held and checked before the next is looked up in it.
///
/// At most two descriptors are open at a time, unless the root follows links: then every directory
/// from the root down is held, so that a `..` in a link's target leads back to where the walk came
/// from, not to where the directory has been moved.
pub(super) fn resolve<S: Seam>(
    root: &Root,
    path: &RelPath,
    seam: &mut S,
) -> Result<Found, PinnedError> {
    match root.policy().links {
        Links::Deny => strict(root, path, seam),
        Links::Beneath => beneath(root, path, seam),
    }
}

fn strict<S: Seam>(root: &Root, path: &RelPath, seam: &mut S) -> Result<Found, PinnedError> {
    let mut parent: Option<OwnedFd> = None;
    let mut components = path.components().zip(0..).peekable();
    while let Some((name, index)) = components.next() {
        let handle = open_component(above(root, parent.as_ref()), name)?;
        let facts = admit(root, &handle)?;
        if facts.kind.is_symlink() {
            return Err(link_class(root, handle));
        }
        seam.at(Step::Component { index });
        if components.peek().is_none() {
            let name = name.into();
            return Ok(Found {
                handle,
                parent,
                name,
            });
        }
        if facts.kind != FileType::Directory {
            return Err(PinnedError::NotFound);
        }
        parent = Some(handle);
    }
    // Not reached: a `RelPath` has at least one component.
    Err(PinnedError::NotFound)
}

fn beneath<S: Seam>(root: &Root, path: &RelPath, seam: &mut S) -> Result<Found, PinnedError> {
    let mut held: Vec<OwnedFd> = Vec::new();
    // What is left to look up, the next last.
    let mut left: Vec<Vec<u8>> = path.components().rev().map(<[u8]>::to_vec).collect();
    let mut links = 0_u32;
    let mut index = 0_u32;
    while let Some(name) = left.pop() {
        match name.as_slice() {
            // Only from a link's target. What is held is a directory, as these demand.
            b"" | b"." => {}
            b".." => {
                held.pop().ok_or(PinnedError::DeniedEscape)?;
            }
            name => {
                let handle = open_component(above(root, held.last()), name)?;
                let facts = admit(root, &handle)?;
                seam.at(Step::Component { index });
                index = index.saturating_add(1);
                if facts.kind.is_symlink() {
                    links = links.saturating_add(1);
                    if links > MAX_LINKS {
                        return Err(PinnedError::SymlinkLoop);
                    }
                    let target = follow(root, &handle, &facts, above(root, held.last()))?;
                    left.extend(target.rsplit(|&byte| byte == b'/').map(<[u8]>::to_vec));
                    continue;
                }
                if facts.kind == FileType::Directory {
                    if held.len() >= MAX_HELD {
                        return Err(PinnedError::Resource(Errno::MFILE.into()));
                    }
                    held.push(handle);
                    continue;
                }
                if !left.is_empty() {
                    return Err(PinnedError::NotFound);
                }
                return Ok(Found {
                    handle,
                    parent: held.pop(),
                    name: name.into(),
                });
            }
        }
    }
    // It ends at a directory, which is not a file to be read; the caller says so.
    let handle = fcntl_dupfd_cloexec(above(root, held.last()), 0)
        .map_err(|errno| PinnedError::from_errno("duplicating a descriptor", errno))?;
    Ok(Found {
        handle,
        parent: None,
        name: path.file_name().into(),
    })
}

/// The target of a link that may be followed.
fn follow(
    root: &Root,
    link: &OwnedFd,
    facts: &Facts,
    directory: BorrowedFd<'_>,
) -> Result<Vec<u8>, PinnedError> {
    /// `ST_NOSYMFOLLOW`
    const NO_FOLLOW: u64 = 0x2000;
    let class = link_class(root, link);
    if matches!(class, PinnedError::DeniedMagicLink) {
        return Err(class);
    }
    // As the kernel does with `fs.protected_symlinks`, whether or not it is set: in a directory like
    // `/tmp` a link is followed for its owner and the directory's alone.
    let above = Facts::of(directory)?;
    let anybody = Mode::SVTX | Mode::WOTH;
    if above.mode.contains(anybody)
        && facts.owner != above.owner
        && facts.owner != rustix::process::geteuid().as_raw()
    {
        return Err(PinnedError::PermissionDenied);
    }
    let mount = fstatfs(link)
        .map_err(|errno| PinnedError::from_errno("asking for the filesystem", errno))?;
    if u64::try_from(mount.f_flags).is_ok_and(|flags| flags & NO_FOLLOW != 0) {
        return Err(PinnedError::DeniedSymlink);
    }
    let target = readlinkat(link, "", Vec::new())
        .map_err(|errno| PinnedError::from_errno("reading a link", errno))?
        .into_bytes();
    if target.starts_with(b"/") {
        return Err(PinnedError::DeniedEscape);
    }
    Ok(target)
}

/// The directory a component is looked up in.
fn above<'a>(root: &'a Root, held: Option<&'a OwnedFd>) -> BorrowedFd<'a> {
    held.map_or(root.as_fd(), AsFd::as_fd)
}

/// The mount first, as the kernel does: what lies on a refused mount is not looked at.
fn admit(root: &Root, handle: &OwnedFd) -> Result<Facts, PinnedError> {
    let facts = Facts::of(handle)?;
    admit_mount(root, facts.identity)?;
    Ok(facts)
}

/// Without `O_DIRECTORY`, which would report a link and a file alike. `name` has no slash: one at
/// its end would defeat `O_NOFOLLOW`.
pub(in crate::pinned) fn open_component(
    directory: impl AsFd,
    name: &[u8],
) -> Result<OwnedFd, PinnedError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match openat(&directory, name, flags, Mode::empty()) {
            Ok(fd) => return Ok(fd),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(PinnedError::from_errno("opening a component", errno)),
        }
    }
}
