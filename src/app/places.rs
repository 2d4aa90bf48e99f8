//! The directories a configuration names, opened and kept apart.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::fs::{Mode, OFlags};

use super::{
    AppError,
    arena::{self, Arena},
    failed, overlap,
};
use crate::{
    config::{Config, HomeConfig, RootConfig},
    home::DshHome,
    transfer::{HeldRoot, Rules},
};

/// Roots and arenas, open, with nothing of ours within reach of a root's writer.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) roots: Vec<HeldRoot>,
    /// One an entry of `roots`, where the configuration names one.
    pub(super) arenas: Vec<Option<Arena>>,
}

impl Places {
    /// Opens every root and every arena that is named.
    ///
    /// # Errors
    /// [`AppError::Root`], [`AppError::Arena`], [`AppError::Overlap`].
    pub(super) fn open(config: &Config) -> Result<Self, AppError> {
        let roots = config
            .roots
            .iter()
            .map(hold)
            .collect::<Result<Vec<_>, _>>()?;
        // Before the data directory is touched: a directory in a root gets no lock from us.
        if let Ok(data) = open_directory(&config.data) {
            roots_apart(&roots, &data)?;
        }
        let file_dir = config
            .source
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty());
        let file_dir = open_directory(file_dir.unwrap_or(Path::new(".")))
            .map_err(failed("opening the configuration's directory"))?;
        for held in &roots {
            outside(&file_dir, "the configuration", held)?;
        }
        let arenas = config
            .roots
            .iter()
            .map(|root| named_arena(root, &roots))
            .collect::<Result<_, _>>()?;
        Ok(Self { roots, arenas })
    }

    /// Refuses a data directory in a root or an arena, and the other way round.
    pub(super) fn apart_from(&self, data: impl AsFd) -> Result<(), AppError> {
        roots_apart(&self.roots, &data)?;
        for (held, arena) in self.roots.iter().zip(&self.arenas) {
            if let Some(arena) = arena {
                let called = called(held);
                refuse(&arena.directory, &called, &data, DATA)?;
                refuse(&data, DATA, &arena.directory, &called)?;
            }
        }
        Ok(())
    }

    /// Opens the DSH homes and keeps them and what is ours apart.
    pub(super) fn homes(
        &self,
        config: &Config,
        data: impl AsFd,
    ) -> Result<Vec<(HomeConfig, DshHome)>, AppError> {
        let mut homes = Vec::with_capacity(config.homes.len());
        for home in &config.homes {
            let opened = open_home(home, &data)?;
            for (held, arena) in self.roots.iter().zip(&self.arenas) {
                let Some(arena) = arena else { continue };
                for directory in opened.directories() {
                    let theirs = format!("DSH home `{}`", home.name.as_str());
                    refuse(&arena.directory, &called(held), directory, &theirs)?;
                }
            }
            homes.push((home.clone(), opened));
        }
        Ok(homes)
    }
}

const DATA: &str = "the data directory";

/// Refuses a data directory in a root, and a root in the data directory.
fn roots_apart(roots: &[HeldRoot], data: impl AsFd) -> Result<(), AppError> {
    for held in roots {
        outside(&data, DATA, held)?;
        refuse(held, &format!("root `{}`", held.name()), &data, DATA)?;
    }
    Ok(())
}

fn called(root: &HeldRoot) -> String {
    format!("the arena of root `{}`", root.name())
}

fn hold(root: &RootConfig) -> Result<HeldRoot, AppError> {
    let name = root.name.as_str();
    let rules = Rules {
        names: root.names.clone(),
        max_file: root.max_file,
    };
    let held = HeldRoot::open(name, &root.path, root.policy.clone(), rules);
    held.map_err(|source| AppError::Root {
        name: name.to_owned(),
        source,
    })
}

/// Opens the arena a root names and keeps it and every root apart.
fn named_arena(root: &RootConfig, roots: &[HeldRoot]) -> Result<Option<Arena>, AppError> {
    let Some(path) = &root.arena else {
        return Ok(None);
    };
    let name = root.name.as_str();
    let unfit = |why: &str| AppError::Arena {
        root: name.to_owned(),
        why: why.to_owned(),
    };
    let arena = match arena::configured(path) {
        Ok(Ok(arena)) => arena,
        Ok(Err(why)) => return Err(unfit(why)),
        Err(error) => return Err(unfit(&format!("cannot be opened: {error}"))),
    };
    let ours = format!("the arena of root `{name}`");
    for held in roots {
        outside(&arena.directory, &ours, held)?;
        let theirs = format!("root `{}`", held.name());
        refuse(held, &theirs, &arena.directory, &ours)?;
    }
    Ok(Some(arena))
}

/// Opens a DSH home and keeps it and the data directory apart.
pub(super) fn open_home(home: &HomeConfig, data: impl AsFd) -> Result<DshHome, AppError> {
    let opened = (|| -> io::Result<DshHome> {
        let mut opened = DshHome::open(&home.path)?;
        if let Some(sessions) = &home.sessions {
            opened = opened.with_sessions(sessions)?;
        }
        if let Some(attachments) = &home.attachments {
            opened = opened.with_attachments(attachments)?;
        }
        Ok(opened)
    })();
    let opened = opened.map_err(|error| no_home(home, error))?;
    let called = format!("DSH home `{}`", home.name.as_str());
    for directory in opened.directories() {
        refuse(&data, DATA, directory, &called)?;
        refuse(directory, &called, &data, DATA)?;
    }
    Ok(opened)
}

pub(super) fn no_home(
    home: &HomeConfig,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> AppError {
    AppError::Home {
        name: home.name.as_str().to_owned(),
        source: source.into(),
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)
}

/// Refuses something of ours in a root.
fn outside(ours: impl AsFd, called: &str, held: &HeldRoot) -> Result<(), AppError> {
    refuse(ours, called, held, &format!("root `{}`", held.name()))
}

/// Refuses `inner` in `outer`.
fn refuse(
    inner: impl AsFd,
    inner_called: &str,
    outer: impl AsFd,
    outer_called: &str,
) -> Result<(), AppError> {
    if overlap::is_within(inner, outer).map_err(failed("comparing directories"))? {
        return Err(AppError::Overlap {
            inner: inner_called.to_owned(),
            outer: outer_called.to_owned(),
        });
    }
    Ok(())
}
