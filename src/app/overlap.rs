//! Whether one directory lies in another, asked of open directories.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags, fstat, openat};

/// The most steps up that are taken; a path has at most 4,096 bytes.
const MAX_STEPS: usize = 4096;

/// Whether `inner` is `outer` or lies somewhere in it.
///
/// Goes up by `..` from the descriptor, so links and other names of the way down play no part. A
/// bind mount of `outer` itself is found; one of a directory above it is not.
///
/// # Errors
/// As `openat(2)` and `fstat(2)` fail.
pub(super) fn is_within(inner: impl AsFd, outer: impl AsFd) -> io::Result<bool> {
    let wanted = name_of(outer.as_fd())?;
    let mut here = parent(inner.as_fd(), c".")?;
    let mut name = name_of(here.as_fd())?;
    for _ in 0..MAX_STEPS {
        if name == wanted {
            return Ok(true);
        }
        here = parent(here.as_fd(), c"..")?;
        let above = name_of(here.as_fd())?;
        if above == name {
            return Ok(false);
        }
        name = above;
    }
    Err(io::Error::other("the directory has too many parents"))
}

fn parent(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).map_err(io::Error::from)
}

/// What tells one directory from another.
fn name_of(dir: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let facts = fstat(dir).map_err(io::Error::from)?;
    Ok((facts.st_dev, facts.st_ino))
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests build their own directories"
)]
mod tests {
    use std::{
        fs::{File, create_dir_all},
        os::unix::fs::symlink,
    };

    use super::is_within;

    #[test]
    fn a_directory_is_within_itself_and_whatever_holds_it_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        create_dir_all(home.path().join("a/b/c")).unwrap();
        create_dir_all(home.path().join("ab")).unwrap();
        symlink(home.path().join("a/b"), home.path().join("ab/link")).unwrap();
        let open = |path: &str| File::open(home.path().join(path)).unwrap();
        for (inner, outer, expected) in [
            ("a/b/c", "a", true),
            ("a", "a", true),
            ("a", "a/b/c", false),
            ("ab", "a", false),
            ("a/../a/b", "a", true),
            ("ab/link/c", "a/b", true), // by where it is, not by what it is called
            ("ab/link/c", "ab", false),
        ] {
            let found = is_within(open(inner), open(outer)).unwrap();
            assert_eq!(found, expected, "{inner} in {outer}");
        }
    }
}
