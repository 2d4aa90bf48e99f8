//! Which session folders a home has, learnt from directory listings alone.
//!
//! A directory is listed again when its stamp has moved, or may not show a change yet; so looking
//! again costs one question per project, however many sessions there are.

use std::collections::{BTreeMap, HashMap};

use rustix::fs::FileType;

use super::{limits::DshLimits, logs::FolderPlace, names::session_id};
use crate::{
    beneath::{BeneathError, ForeignDir, Stamp},
    home::DshHome,
};

/// What is known of the folders of a home.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    root: Option<Listed>,
    projects: HashMap<Box<[u8]>, Listed>,
}

/// A directory as it was when it was listed.
#[derive(Debug)]
struct Listed {
    stamp: Stamp,
    settled: bool,
    names: Vec<Box<[u8]>>,
    /// Why it could not be listed, if so.
    trouble: Option<String>,
}

impl Catalog {
    /// Looks again; says whether anything may be different from the last time.
    ///
    /// # Errors
    /// When the directory of the project folders cannot be listed, or is none.
    pub(crate) fn look(
        &mut self,
        home: &DshHome,
        limits: &DshLimits,
    ) -> Result<bool, BeneathError> {
        let sessions = match home.sessions() {
            Ok(sessions) => sessions,
            Err(BeneathError::Missing) => {
                let had = self.root.take().is_some();
                self.projects.clear();
                return Ok(had);
            }
            Err(error) => return Err(error),
        };
        let mut changed = false;
        if !self
            .root
            .as_ref()
            .is_some_and(|root| root.is_current(&sessions))
        {
            let root = Listed::new(&sessions, limits, false);
            if let Some(trouble) = root.trouble {
                return Err(BeneathError::Io(std::io::Error::other(trouble)));
            }
            self.root = Some(root);
            changed = true;
        }
        let root = self.root.as_ref().map_or(&[][..], |root| &root.names);
        self.projects.retain(|project, _| root.contains(project));
        for project in root {
            let Ok(dir) = sessions.dir(project) else {
                // A link, or gone since.
                changed |= self.projects.remove(project).is_some();
                continue;
            };
            if !self
                .projects
                .get(project)
                .is_some_and(|known| known.is_current(&dir))
            {
                let listed = Listed::new(&dir, limits, true);
                let same = self
                    .projects
                    .get(project)
                    .is_some_and(|known| known.names == listed.names);
                self.projects.insert(project.clone(), listed);
                changed |= !same;
            }
        }
        Ok(changed)
    }

    /// Every session folder, by its name, with the projects it lies in.
    pub(crate) fn places(&self) -> BTreeMap<Box<[u8]>, FolderPlace> {
        let mut places: BTreeMap<Box<[u8]>, FolderPlace> = BTreeMap::new();
        for (project, listed) in &self.projects {
            for folder in &listed.names {
                let place = places.entry(folder.clone()).or_insert_with(|| FolderPlace {
                    projects: Vec::new(),
                    folder: folder.clone(),
                });
                place.projects.push(project.clone());
            }
        }
        for place in places.values_mut() {
            place.projects.sort_unstable();
        }
        places
    }

    /// Which directories could not be listed.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let troubles = self
            .projects
            .values()
            .filter_map(|listed| listed.trouble.clone());
        troubles.collect()
    }
}

impl Listed {
    /// Lists a directory: of project folders, or of session folders.
    fn new(dir: &ForeignDir, limits: &DshLimits, sessions: bool) -> Self {
        // Stamped before it is listed: what comes between shows as a change later.
        let stamp = dir.stamp();
        let (names, trouble, again) = match dir.names(limits.folders) {
            Ok(names) => (names, None, false),
            Err(error) => {
                // Too many stay too many until one goes; what the system said may pass.
                let again = matches!(error, BeneathError::Io(_));
                (
                    Vec::new(),
                    Some(format!("a project folder: {error}")),
                    again,
                )
            }
        };
        let mut names: Vec<Box<[u8]>> = names
            .into_iter()
            .filter(|(name, kind)| {
                let directory = matches!(kind, FileType::Directory | FileType::Unknown);
                if sessions {
                    // A link is named too, so that it can be refused with a reason.
                    (directory || *kind == FileType::Symlink) && session_id(name).is_some()
                } else {
                    directory
                }
            })
            .map(|(name, _)| name.into())
            .collect();
        names.sort_unstable();
        let (stamp, settled) = match stamp {
            Ok(stamp) => (stamp, stamp.is_settled() && !again),
            Err(_) => (Stamp::NONE, false),
        };
        Self {
            stamp,
            settled,
            names,
            trouble,
        }
    }

    fn is_current(&self, dir: &ForeignDir) -> bool {
        self.settled && dir.stamp().is_ok_and(|stamp| stamp == self.stamp)
    }
}
