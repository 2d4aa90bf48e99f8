//! Sets up a directory: configuration, data, a demo workspace, principals.
//!
//! Every step is one that a second run finds done or does again, so that a run cut short anywhere is
//! finished by the next.

use std::{
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags},
    io::Errno,
};

use super::{
    beside::CONFIG_FILE,
    exit::{Exit, Failure},
};
use crate::{
    access::{Access, AccessError, Principal, PrincipalKind, PrincipalName},
    gate::Mode as Opening,
    store::layout::{DataDir, LayoutError},
};

/// The data directory's name in the directory.
const DATA: &str = "data";
/// The demo root's name in the directory.
const WORKSPACE: &str = "workspace";

/// A directory that is set up, and where things are in it.
#[derive(Debug)]
pub(super) struct Place {
    /// The configuration.
    pub(super) config: PathBuf,
    /// Whether this run wrote it.
    pub(super) is_new: bool,
}

/// Which root a new configuration names.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstRoot<'a> {
    /// A workspace that is made beside the data, with a file in it.
    Demo,
    /// A directory that is there.
    Directory(&'a Path),
    /// None yet.
    None,
}

/// Makes what is missing of the directory at `path`.
pub(super) fn directory(path: &Path, root: FirstRoot<'_>) -> Result<Place, Failure> {
    let failed = |errno: Errno| refused(format!("{}: {}", path.display(), io::Error::from(errno)));
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    examine(path, &dir)?;
    if let FirstRoot::Demo = root {
        workspace(&dir).map_err(failed)?;
    }
    match DataDir::init(&path.join(DATA)) {
        Ok(_) | Err(LayoutError::AlreadyInitialised) => {}
        Err(error) => {
            let exit = if matches!(error, LayoutError::Locked { .. }) {
                Exit::TryAgain
            } else {
                Exit::Configuration
            };
            return Err(Failure::of(exit, &error));
        }
    }
    // Last of all: with a configuration the directory counts as set up.
    let is_new = write_new(&dir, CONFIG_FILE, &configuration(root)?).map_err(failed)?;
    Ok(Place {
        config: path.join(CONFIG_FILE),
        is_new,
    })
}

fn refused(message: String) -> Failure {
    Failure::new(Exit::Configuration, message)
}

/// Refuses a directory that is not ours alone, or that holds something else.
fn examine(path: &Path, dir: &OwnedFd) -> Result<(), Failure> {
    let failed = |errno: Errno| refused(format!("{}: {}", path.display(), io::Error::from(errno)));
    let facts = rustix::fs::fstat(dir).map_err(failed)?;
    if facts.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refused(format!(
            "{} belongs to another user",
            path.display()
        )));
    }
    if facts.st_mode & 0o022 != 0 {
        let message = format!("{} may be written by others (chmod go-w)", path.display());
        return Err(refused(message));
    }
    let mut is_ours = true;
    for entry in Dir::read_from(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name == CONFIG_FILE.as_bytes() {
            return Ok(());
        }
        is_ours &= [".", "..", DATA, WORKSPACE]
            .iter()
            .any(|ours| name == ours.as_bytes())
            || name.starts_with(b".holdfast-");
    }
    if is_ours {
        return Ok(());
    }
    Err(refused(format!(
        "{} is not empty and was not set up by Holdfast; name an empty directory with --data",
        path.display()
    )))
}

/// Makes the demo workspace with one file worth presenting.
fn workspace(dir: &OwnedFd) -> Result<(), Errno> {
    let made = |at: &OwnedFd, name: &str| -> Result<OwnedFd, Errno> {
        match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(at, name, flags, Mode::empty())
    };
    let workspace = made(dir, WORKSPACE)?;
    let notes = made(&workspace, "notes")?;
    write_new(&notes, "plan.md", PLAN)?;
    Ok(())
}

const PLAN: &str = "\
# Plan

This file lies in a workspace that something untrusted may write to. Holdfast lists it, and gives
its content to nobody until a probe has proven that reads here cannot be raced.
";

/// Writes a file that is not there yet, whole and flushed, or leaves the one that is.
fn write_new(dir: &OwnedFd, name: &str, content: &str) -> Result<bool, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => return Ok(false),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let temporary = format!(".holdfast-{}", std::process::id());
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = std::fs::File::from(fd);
    let written = file
        .write_all(content.as_bytes())
        .and_then(|()| file.sync_all());
    if let Err(error) = written {
        rustix::fs::unlinkat(dir, &temporary, AtFlags::empty()).ok();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    rustix::fs::renameat(dir, &temporary, dir, name)?;
    rustix::fs::fsync(dir)?;
    Ok(true)
}

/// The first configuration: what there is to set, and where to read on.
fn configuration(root: FirstRoot<'_>) -> Result<String, Failure> {
    // The demo shows the whole way; elsewhere opening the gate is the operator's decision.
    let mode = match root {
        FirstRoot::Demo => Opening::WhenProven,
        FirstRoot::Directory(_) | FirstRoot::None => Opening::MetadataOnly,
    };
    let root = match root {
        FirstRoot::Demo => "[[root]]\nname = \"workspace\"\npath = \"workspace\"\n".to_owned(),
        FirstRoot::Directory(path) => {
            let path = std::path::absolute(path)
                .map_err(|error| Failure::io("the root's path", &error))?;
            let path = path.to_str().ok_or_else(|| {
                refused("the root's path is not UTF-8, which the configuration cannot hold".into())
            })?;
            let path = toml::Value::String(path.to_owned());
            format!("[[root]]\nname = \"workspace\"\npath = {path}\n")
        }
        FirstRoot::None => {
            "# [[root]]\n# name = \"workspace\"\n# path = \"/srv/workspace\"\n".to_owned()
        }
    };
    let asking = matches!(mode, Opening::WhenProven);
    Ok(format!(
        "\
# Holdfast: every setting is described in docs/configuration.md.
# Check this file with `holdfast check-config`.

# The data directory: store, journal, keys. Ours alone, outside every root.
data = \"data\"

# The address of the public listener. Put a proxy that speaks TLS in front before leaving loopback.
listen = \"{listen}\"

[deliverables]
# \"metadata-only\": presented workspace files are listed, their content is not released.
# \"when-proven\": released as well, while a current report of `holdfast prove` shows that this is safe.
mode = \"{mode}\"

[interactions]
# true: approvals and questions of hosts are put to people (docs/interactions.md).
enabled = {asking}

[limits]
file = \"1GiB\"

# Directories whose files sessions may present.
{root}",
        listen = crate::config::DEFAULT_LISTEN,
        mode = mode.name(),
    ))
}

/// The principal of this name, made when it is not there. Blocks.
pub(super) fn principal(
    access: &Access,
    kind: PrincipalKind,
    name: &str,
) -> Result<Principal, Failure> {
    let failed = |error: &AccessError| Failure::of(Exit::Failed, error);
    let name =
        PrincipalName::parse(name).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    match access.principal_named(&name) {
        Ok(principal) => Ok(principal),
        Err(AccessError::Hidden) => access
            .create_principal(kind, name)
            .map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}
