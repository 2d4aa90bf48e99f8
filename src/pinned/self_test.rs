#![forbid(unsafe_code)]

use std::path::Path;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, mknodat, openat, symlinkat, unlinkat},
    io::Errno,
};

use super::{Links, PinnedError, Policy, Resolver, Root, fresh_name};
use crate::model::RelPath;

/// What a fixture's name starts with.
const PREFIX: &str = ".self-test";

/// What the kernel's primitives did on a fixture of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTest {
    outcomes: Vec<(Resolver, Outcome)>,
}

/// What one resolver did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It found what is there and refused what it must.
    Sound,
    /// The kernel, or a filter, does not have it; the text says which.
    Absent(&'static str),
    /// It answered a question wrongly; the text names the question. It must not be used.
    Broken(&'static str),
}

impl SelfTest {
    /// Asks both resolvers about a directory, links to it and to a file, a FIFO and a name that is
    /// not there, all made in `directory` and removed again. Some kernels accept flags they do not
    /// act on: only asking shows it. What a run that was killed left there is removed first, so one
    /// process at a time may do this in one directory.
    ///
    /// # Errors
    /// What the system says when the fixture cannot be made: as [`PinnedError::Io`],
    /// [`PinnedError::PermissionDenied`] or [`PinnedError::Resource`].
    pub fn run(directory: impl AsFd) -> Result<Self, PinnedError> {
        sweep(&directory).map_err(failed)?;
        let name = fresh_name(PREFIX)?;
        mkdirat(&directory, &name, Mode::RWXU).map_err(failed)?;
        let outcomes = Self::ask(directory.as_fd(), &name);
        clear(&directory, &name);
        Ok(Self {
            outcomes: outcomes?,
        })
    }

    /// The resolvers that may be used, the stronger first. None: this host cannot pin reads.
    pub fn sound(&self) -> impl Iterator<Item = Resolver> {
        self.outcomes
            .iter()
            .filter(|(_, outcome)| *outcome == Outcome::Sound)
            .map(|(resolver, _)| *resolver)
    }

    /// What each resolver did.
    #[must_use]
    pub fn outcomes(&self) -> &[(Resolver, Outcome)] {
        &self.outcomes
    }

    fn ask(directory: impl AsFd, name: &str) -> Result<Vec<(Resolver, Outcome)>, PinnedError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fixture =
            openat(&directory, name, flags | OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        make(&fixture).map_err(failed)?;
        let mut outcomes = Vec::new();
        for resolver in Resolver::ALL {
            let outcome = ask(&fixture, resolver)?;
            outcomes.push((resolver, outcome));
        }
        Ok(outcomes)
    }
}

fn failed(errno: Errno) -> PinnedError {
    PinnedError::from_errno("making a fixture", errno)
}

fn make(fixture: &OwnedFd) -> Result<(), Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    mkdirat(fixture, "real", Mode::RWXU)?;
    mknodat(fixture, "real/leaf", FileType::RegularFile, mode, 0)?;
    mknodat(fixture, "fifo", FileType::Fifo, mode, 0)?;
    symlinkat("real", fixture, "link")?;
    symlinkat("real/leaf", fixture, "leaf")?;
    symlinkat("../..", fixture, "out")
}

/// Removes every fixture there is.
fn sweep(directory: impl AsFd) -> Result<(), Errno> {
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && name.starts_with(PREFIX)
        {
            clear(&directory, name);
        }
    }
    Ok(())
}

/// Removes what [`make`] made; what is left over does no harm and is swept with the rest of the
/// directory.
fn clear(directory: impl AsFd, name: &str) {
    for entry in ["real/leaf", "fifo", "link", "leaf", "out"] {
        forget(unlinkat(
            &directory,
            format!("{name}/{entry}"),
            AtFlags::empty(),
        ));
    }
    for entry in [&format!("{name}/real"), name] {
        forget(unlinkat(&directory, entry, AtFlags::REMOVEDIR));
    }
}

fn forget(result: Result<(), Errno>) {
    match result {
        Ok(()) | Err(_) => {}
    }
}

fn ask(fixture: &OwnedFd, resolver: Resolver) -> Result<Outcome, PinnedError> {
    let strict = Policy::default();
    let beneath = Policy {
        links: Links::Beneath,
        ..Policy::default()
    };
    // The question, the policy, the path, and the class of the right answer; none: it is found.
    let questions = [
        ("a plain file is found", &strict, "real/leaf", None),
        (
            "a name that is absent is not",
            &strict,
            "real/none",
            Some("not_found"),
        ),
        (
            "a file is no directory",
            &strict,
            "real/leaf/x",
            Some("not_found"),
        ),
        (
            "a link on the way is refused",
            &strict,
            "link/leaf",
            Some("denied_symlink"),
        ),
        (
            "a link at the end is refused",
            &strict,
            "leaf",
            Some("denied_symlink"),
        ),
        ("a FIFO is held without being opened", &strict, "fifo", None),
        ("a link beneath is followed", &beneath, "link/leaf", None),
        (
            "a link out of the root is refused",
            &beneath,
            "out/x",
            Some("denied_escape"),
        ),
    ];
    for (question, policy, path, right) in questions {
        let held = rustix::io::fcntl_dupfd_cloexec(fixture, 0).map_err(failed)?;
        let root = Root::holding(held, Path::new(""), policy.clone())?;
        let path = RelPath::parse(path.as_bytes())?;
        let answer = root.pin(&path, resolver, &mut ()).map(drop);
        match answer {
            Err(PinnedError::Unsupported(why)) => return Ok(Outcome::Absent(why)),
            Err(error @ (PinnedError::Resource(_) | PinnedError::Io { .. })) => return Err(error),
            answer if answer.as_ref().err().map(PinnedError::class) == right => {}
            Ok(()) | Err(_) => return Ok(Outcome::Broken(question)),
        }
    }
    Ok(Outcome::Sound)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{Outcome, SelfTest};
    use crate::pinned::Resolver;

    /// Keeps I2: what this host's primitives refuse was seen, not assumed; nothing is left behind.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test directory")]
    fn both_resolvers_pass_the_self_test_and_it_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let killed = dir.path().join(".self-test-0000000000000000");
        std::fs::create_dir_all(killed.join("real")).unwrap();
        std::os::unix::fs::symlink("real", killed.join("link")).unwrap();
        let report = SelfTest::run(File::open(dir.path()).unwrap()).unwrap();
        let sound = Resolver::ALL.map(|resolver| (resolver, Outcome::Sound));
        assert_eq!(report.outcomes(), sound);
        assert_eq!(report.sound().collect::<Vec<_>>(), Resolver::ALL);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
