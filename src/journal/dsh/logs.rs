//! The logs of a home, found by folder, with the indexes of those in use.
//!
//! What is on disk is asked at every use, so nothing here can be older than the file. An index is
//! kept while memory allows and followed up when its log has grown.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    limits::DshLimits,
    lines::LogFile,
    log::{Log, LogFault, LogIndex},
    names::{Encoding, LogName, project_folder, session_id},
    row::Header,
    shelf::Shelf,
};
use crate::{
    beneath::{BeneathError, ForeignDir, Stamp},
    home::DshHome,
    journal::{Event, JournalError},
    model::{ByteCount, SessionHandle},
};

/// How often a log that moves under the reader is read again.
const ATTEMPTS: u32 = 12;
/// The most indexes kept, however small.
const MAX_KEPT: usize = 4_096;
/// The last format written by packages that were run against this reader.
const LAST_VERIFIED: u32 = 3;

/// Where a session's folder may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FolderPlace {
    /// The project folders that have a folder of this name; one, in an honest home.
    pub(crate) projects: Vec<Box<[u8]>>,
    /// The session folder.
    pub(crate) folder: Box<[u8]>,
}

/// Finds, indexes and reads logs.
#[derive(Debug)]
pub(crate) struct Logs {
    home: Arc<DshHome>,
    limits: DshLimits,
    kept: Mutex<Kept>,
    shelf: Shelf,
    seen: Seen,
}

/// What kinds of log were met, for the operator.
#[derive(Debug, Default)]
struct Seen {
    plain: AtomicBool,
    zstd: AtomicBool,
    unverified: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    slots: HashMap<SessionHandle, Slot>,
    uses: u64,
    weight: ByteCount,
}

#[derive(Debug, Default)]
struct Slot {
    index: Arc<Mutex<Option<Indexed>>>,
    used: u64,
    weight: ByteCount,
}

/// What a pass over a log came to, and of which file.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    pub(super) found: Found,
    pub(super) stamp: Stamp,
    /// Whether the stamp is sure to move with the next change.
    pub(super) settled: bool,
    pub(super) outcome: Result<Arc<LogIndex>, Arc<str>>,
}

/// A log by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) project: Box<[u8]>,
    pub(super) name: LogName,
}

/// A log, open, with its index.
#[derive(Debug)]
pub(crate) struct OpenLog {
    file: LogFile,
    name: LogName,
    pub(crate) index: Arc<LogIndex>,
}

impl OpenLog {
    /// Whether the next change is sure to be seen.
    pub(crate) fn is_settled(&self) -> bool {
        self.file.stamp.is_settled()
    }
}

impl Logs {
    pub(crate) fn new(home: Arc<DshHome>, limits: DshLimits, shelf: Shelf) -> Self {
        Self {
            home,
            limits,
            shelf,
            kept: Mutex::default(),
            seen: Seen::default(),
        }
    }

    pub(crate) fn limits(&self) -> &DshLimits {
        &self.limits
    }

    /// Opens a session's log and brings its index up to date.
    ///
    /// # Errors
    /// [`JournalError::NotFound`] when there is no log; [`JournalError::Corrupt`] when it is refused,
    /// with the reason; [`JournalError::Busy`] when it never stood still.
    pub(crate) fn open(
        &self,
        session: SessionHandle,
        place: &FolderPlace,
    ) -> Result<OpenLog, JournalError> {
        let slot = self.slot(session);
        // One pass at a time over one log: the second finds what the first made.
        let mut kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 1..=ATTEMPTS {
            let (found, file) = self.find(place)?;
            if kept.is_none() && attempt == 1 {
                *kept = self.shelf.load(session, &found, &file);
            }
            if let Some(known) = &*kept
                && known.settled
                && (&known.found, known.stamp) == (&found, file.stamp)
            {
                return open_log(file, &found, &known.outcome);
            }
            let log = Log {
                file: &file,
                name: found.name,
                len: file.stamp.len,
                limits: &self.limits,
            };
            let made = match kept.take() {
                Some(Indexed {
                    found: before,
                    stamp,
                    outcome: Ok(index),
                    ..
                }) if before == found && stamp.same_file(&file.stamp) => {
                    match log.catch_up(Arc::unwrap_or_clone(index)) {
                        Err(LogFault::Moved) => log.index(),
                        other => other,
                    }
                }
                _ => log.index(),
            };
            let moved = Stamp::of(&file.file).map_err(io("examining a log"))? != file.stamp;
            let outcome = match made {
                Ok(index) => leads_here(&index.header, &found, place).map(|()| Arc::new(index)),
                // What looks damaged while it moves may only be half written.
                Err(LogFault::Damaged(_)) if moved && attempt < ATTEMPTS => {
                    wait(attempt);
                    continue;
                }
                Err(LogFault::Damaged(why)) => Err(why.into()),
                Err(LogFault::Moved) => {
                    wait(attempt);
                    continue;
                }
                Err(LogFault::Io(error)) => return Err(io("reading a log")(error)),
            };
            self.note(found.name);
            let weight = outcome
                .as_ref()
                .map_or(ByteCount::kib(1), |index| index.weight());
            let indexed = Indexed {
                found,
                stamp: file.stamp,
                settled: file.stamp.is_settled(),
                outcome,
            };
            // One that may change under the same stamp is no good to a later start.
            if indexed.settled {
                self.shelf.save(session, &indexed, &file);
            }
            let opened = open_log(file, &indexed.found, &indexed.outcome);
            *kept = Some(indexed);
            drop(kept);
            self.keep(session, weight);
            return opened;
        }
        Err(JournalError::Busy)
    }

    /// Reads events of an open log; `None` when it is not what its index says any more.
    pub(crate) fn events(
        &self,
        session: SessionHandle,
        log: &OpenLog,
        from: u64,
        to: u64,
    ) -> Result<Option<Vec<Event>>, JournalError> {
        let read = Log {
            file: &log.file,
            name: log.name,
            len: log.file.stamp.len,
            limits: &self.limits,
        };
        match read.events(&log.index, from, to) {
            Ok(events) => Ok(Some(events)),
            Err(LogFault::Moved) => {
                self.distrust(session);
                Ok(None)
            }
            Err(LogFault::Damaged(why)) => Err(JournalError::Corrupt(why)),
            Err(LogFault::Io(error)) => Err(io("reading a log")(error)),
        }
    }

    /// Forgets what is known of a session's log: it is not what the log says.
    pub(crate) fn distrust(&self, session: SessionHandle) {
        let slot = self.slot(session);
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.shelf.forget(&[session]);
    }

    /// Forgets sessions that went.
    pub(crate) fn forget(&self, sessions: &[SessionHandle]) {
        self.shelf.forget(sessions);
    }

    /// Whether the session was asked for before, in this run or an earlier one.
    pub(crate) fn is_known(&self, session: SessionHandle) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.slots.contains_key(&session) || {
            drop(kept);
            self.shelf.has(session)
        }
    }

    /// What the operator should know of the logs met so far.
    pub(crate) fn notes(&self) -> Vec<&'static str> {
        let Seen {
            plain,
            zstd,
            unverified,
        } = &self.seen;
        let mut notes = Vec::new();
        if plain.load(Ordering::Relaxed) && zstd.load(Ordering::Relaxed) {
            notes
                .push("plain and compressed logs lie side by side; DSH itself refuses such a root");
        }
        if unverified.load(Ordering::Relaxed) {
            notes.push("a log is of format 4, which is read from its description alone");
        }
        notes
    }

    fn note(&self, name: LogName) {
        let seen = match name.encoding {
            Encoding::Plain => &self.seen.plain,
            Encoding::Zstd => &self.seen.zstd,
        };
        seen.store(true, Ordering::Relaxed);
        if name.version > LAST_VERIFIED {
            self.seen.unverified.store(true, Ordering::Relaxed);
        }
    }

    /// Finds the one log that is the session now, and opens it.
    fn find(&self, place: &FolderPlace) -> Result<(Found, LogFile), JournalError> {
        let sessions = self
            .home
            .sessions()
            .map_err(refused("the sessions directory"))?;
        let mut found = None;
        for project in &place.projects {
            let dir = sessions.dir(project);
            let folder = match dir.and_then(|dir| dir.dir(&place.folder)) {
                Ok(folder) => folder,
                Err(BeneathError::Missing) => continue,
                Err(error) => return Err(refused("the session's folder")(error)),
            };
            let Some(name) = self.newest(&folder)? else {
                continue;
            };
            let this = Found {
                project: project.clone(),
                name,
            };
            if found.replace((this, folder)).is_some() {
                let text = "two project folders have a session of this id".to_owned();
                return Err(JournalError::Corrupt(text));
            }
        }
        let (found, folder) = found.ok_or(JournalError::NotFound)?;
        let name = found.name.file_name();
        let (file, stamp) = folder.file(name.as_bytes()).map_err(refused(&name))?;
        Ok((found, LogFile { file, stamp }))
    }

    /// The newest generation of the log in a session's folder.
    fn newest(&self, folder: &ForeignDir) -> Result<Option<LogName>, JournalError> {
        let names = folder
            .names(self.limits.folder_entries)
            .map_err(refused("the session's folder"))?;
        let logs: Vec<LogName> = names
            .iter()
            .filter_map(|(name, _)| LogName::parse(name))
            .collect();
        let Some(newest) = logs.iter().max_by_key(|log| log.version) else {
            return Ok(None);
        };
        if logs
            .iter()
            .filter(|log| log.version == newest.version)
            .count()
            > 1
        {
            let text = format!(
                "format {} lies there both plain and compressed",
                newest.version
            );
            return Err(JournalError::Corrupt(text));
        }
        Ok(Some(*newest))
    }

    fn slot(&self, session: SessionHandle) -> Arc<Mutex<Option<Indexed>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses = kept.uses.saturating_add(1);
        let uses = kept.uses;
        let slot = kept.slots.entry(session).or_default();
        slot.used = uses;
        Arc::clone(&slot.index)
    }

    /// Records what an index weighs, and drops those used longest ago when all weigh too much.
    fn keep(&self, session: SessionHandle, weight: ByteCount) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = kept.slots.get_mut(&session) {
            let before = std::mem::replace(&mut slot.weight, weight);
            kept.weight = kept.weight.saturating_sub(before).saturating_add(weight);
        }
        while kept.weight > self.limits.cache || kept.slots.len() > MAX_KEPT {
            let oldest = kept.slots.iter().min_by_key(|(_, slot)| slot.used);
            let Some(oldest) = oldest.map(|(session, _)| *session) else {
                break;
            };
            if let Some(slot) = kept.slots.remove(&oldest) {
                kept.weight = kept.weight.saturating_sub(slot.weight);
            }
        }
    }
}

fn open_log(
    file: LogFile,
    found: &Found,
    outcome: &Result<Arc<LogIndex>, Arc<str>>,
) -> Result<OpenLog, JournalError> {
    match outcome {
        Ok(index) => Ok(OpenLog {
            file,
            name: found.name,
            index: Arc::clone(index),
        }),
        Err(why) => Err(JournalError::Corrupt(why.to_string())),
    }
}

/// A header's id and directory must lead to the very folder the log lies in.
fn leads_here(header: &Header, found: &Found, place: &FolderPlace) -> Result<(), Arc<str>> {
    if session_id(&place.folder).as_deref() != Some(header.id.as_str()) {
        return Err("the header: its id is another folder's".into());
    }
    let project = project_folder(header.cwd.as_deref());
    if project.as_ref().map(String::as_bytes) != Some(&found.project) {
        return Err("the header: its directory is another folder's".into());
    }
    Ok(())
}

fn wait(attempt: u32) {
    std::thread::sleep(Duration::from_millis(u64::from(attempt)));
}

fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> JournalError {
    move |source| JournalError::Io {
        action,
        source: Box::new(source),
    }
}

/// What stands in a log's way, in words; never a path of the host.
pub(crate) fn refused(what: &str) -> impl FnOnce(BeneathError) -> JournalError + use<'_> {
    move |error| match error {
        BeneathError::Missing => JournalError::NotFound,
        BeneathError::Io(source) => io("opening a log")(source),
        wrong @ (BeneathError::Wrong(_) | BeneathError::TooMany(_)) => {
            JournalError::Corrupt(format!("{what}: {wrong}"))
        }
    }
}
