use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rusqlite::params;

use super::{
    catalog::Catalog,
    limits::DshLimits,
    logs::{FolderPlace, Logs, OpenLog, refused},
    names::session_id,
    shelf::{Shelf, agrees},
    watch::{Watch, Watched},
};
use crate::{
    beneath::ForeignDir,
    control::{Control, ControlError},
    home::DshHome,
    journal::{
        Declared, JournalError, Page, Referenced, Session, Source, Window, page::is_message,
    },
    model::{
        AttachmentId, AttachmentRef, FileName, LogGeneration, PrincipalId, Seq, SessionHandle,
    },
};

/// How often a page is read again of a log that moves under the reader.
const ATTEMPTS: u32 = 8;
/// How many sessions are recorded in one write.
const BATCH: usize = 1_000;

/// Whose a home is. One home is one trust domain: its agents can write its logs.
#[derive(Clone, Debug)]
pub struct DshOwners {
    /// Everybody who may read every session of the home.
    pub owners: Vec<PrincipalId>,
    /// The one host that may act for its sessions, but never append to them.
    pub host: Option<PrincipalId>,
}

/// The sessions of a DSH home, as a source beside the native one.
///
/// Its handles are kept in the database and stay the same for good; all else is learnt from the home,
/// which is never written to. What a log says is asked of the log at every call, so an append shows
/// at once; a new session shows after the next [`DshSource::look`].
pub struct DshSource {
    control: Arc<Control>,
    home: Arc<DshHome>,
    logs: Logs,
    /// The name of the home among the sources of the database.
    source: String,
    owners: DshOwners,
    known: Mutex<Known>,
    /// Whether there are more folders than could be watched.
    beyond_watches: AtomicBool,
    /// Where the folders of the sessions that are there lie.
    places: RwLock<HashMap<SessionHandle, Arc<FolderPlace>>>,
}

/// What is in the database, and what of it is recorded as being there.
#[derive(Debug, Default)]
struct Known {
    catalog: Catalog,
    /// The handle of each own id that ever was.
    handles: HashMap<String, SessionHandle>,
    /// Whether the catalog has something the database does not.
    pending: bool,
}

/// A session folder seen for the first time.
struct New {
    handle: SessionHandle,
    own_id: String,
    /// When its folder last changed, in milliseconds: the order of sessions nobody has dated yet.
    at: i64,
}

impl DshSource {
    /// The sessions of `home`, recorded in `control` under the name `name` of the home. Lists its
    /// folders, and opens no log. Blocks.
    ///
    /// # Errors
    /// [`JournalError::Corrupt`] when something else than a directory stands where its sessions
    /// should be; otherwise as the database and the system fail.
    pub fn open(
        control: Arc<Control>,
        home: Arc<DshHome>,
        name: &str,
        owners: DshOwners,
        limits: DshLimits,
    ) -> Result<Self, JournalError> {
        let source = Self {
            logs: Logs::new(
                Arc::clone(&home),
                limits,
                Shelf::open(&control, &format!("dsh:{name}"))?,
            ),
            control,
            home,
            source: format!("dsh:{name}"),
            owners,
            known: Mutex::default(),
            beyond_watches: AtomicBool::new(false),
            places: RwLock::default(),
        };
        let mut known = source.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.handles = source.recorded()?;
        known.pending = true;
        drop(known);
        source.claim()?;
        source.look()?;
        Ok(source)
    }

    /// Looks for sessions that came or went. Blocks.
    ///
    /// # Errors
    /// As [`DshSource::open`]; what was there before is still served.
    pub fn look(&self) -> Result<(), JournalError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = known
            .catalog
            .look(&self.home, self.logs.limits())
            .map_err(refused("the sessions directory"))?;
        if !changed && !known.pending {
            return Ok(());
        }
        known.pending = true;
        let found = known.catalog.places();
        let fresh = self.fresh(&found, &known.handles)?;
        self.record(&found, &mut known, fresh)?;
        known.pending = false;
        Ok(())
    }

    /// Watches the home on a thread of its own, until the returned value is dropped: sessions that come
    /// and go, and logs that move and were asked for before, whose index is kept up.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn watch(self: &Arc<Self>) -> io::Result<Watch> {
        Watch::start(Arc::clone(self))
    }

    /// Brings the index of a session up to date, if the session was ever asked for; says whether its
    /// log stands still.
    pub(super) fn refresh(&self, session: SessionHandle) -> bool {
        if !self.logs.is_known(session) {
            return true;
        }
        // Why it cannot be read is told to whoever asks for it.
        self.log(session).map_or(true, |log| log.is_settled())
    }

    /// The directory of the sessions, a project folder of it, or the folder of a session.
    pub(super) fn folder(&self, place: &Watched) -> Option<ForeignDir> {
        let sessions = self.home.sessions().ok()?;
        match place {
            Watched::Sessions => Some(sessions),
            Watched::Project(project) => sessions.dir(project).ok(),
            Watched::Session(session) => {
                let place = {
                    let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
                    places.get(session).map(Arc::clone)?
                };
                sessions
                    .dir(place.projects.first()?)
                    .ok()?
                    .dir(&place.folder)
                    .ok()
            }
        }
    }

    /// The project folders that are there now.
    pub(super) fn projects(&self) -> HashSet<Box<[u8]>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let all = places.values().flat_map(|place| &place.projects);
        all.cloned().collect()
    }

    pub(super) fn is_beyond_watches(&self, is: bool) {
        self.beyond_watches.store(is, Ordering::Relaxed);
    }

    pub(super) fn most_watches(&self) -> usize {
        self.logs.limits().watches
    }

    /// Whether the session is one of this home.
    #[must_use]
    pub fn has(&self, session: SessionHandle) -> bool {
        self.places
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&session)
    }

    /// The sessions that are there now, in no order.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionHandle> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        places.keys().copied().collect()
    }

    /// The session whose own id is this, whether it is there now or was once.
    #[must_use]
    pub fn handle_of(&self, own_id: &str) -> Option<SessionHandle> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.handles.get(own_id).copied()
    }

    /// What the operator should know of the home: what could not be listed, and what is read on less
    /// than full evidence.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = known.catalog.troubles();
        notes.extend(self.logs.notes().into_iter().map(str::to_owned));
        if self.beyond_watches.load(Ordering::Relaxed) {
            notes.push(
                "it has more folders than are watched: the others are looked at in turn".to_owned(),
            );
        }
        notes
    }

    /// Why the session's log ends before its last line, if it does.
    ///
    /// # Errors
    /// As [`Source::session`].
    pub fn ended_early(&self, session: SessionHandle) -> Result<Option<String>, JournalError> {
        let log = self.log(session)?;
        Ok(log.index.ended().map(str::to_owned))
    }

    fn log(&self, session: SessionHandle) -> Result<OpenLog, JournalError> {
        let place = {
            let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
            places.get(&session).map(Arc::clone)
        };
        let place = place.ok_or(JournalError::NotFound)?;
        self.logs.open(session, &place)
    }

    /// The handles given to sessions of this home so far.
    fn recorded(&self) -> Result<HashMap<String, SessionHandle>, JournalError> {
        let source = self.source.clone();
        let rows = self.control.read(|conn| {
            let mut query =
                conn.prepare("SELECT own_id, handle FROM sessions WHERE source = ?1")?;
            let rows = query.query_map([source], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            rows.collect::<Result<Vec<_>, _>>()
                .map_err(ControlError::from)
        });
        let mut handles = HashMap::new();
        for (own_id, handle) in rows.map_err(of_control)? {
            let handle = SessionHandle::parse(&handle)
                .map_err(|error| JournalError::Corrupt(format!("a recorded handle: {error}")))?;
            handles.insert(own_id, handle);
        }
        Ok(handles)
    }

    /// Makes the configured owners and host the only ones; nobody keeps what the configuration took.
    fn claim(&self) -> Result<(), JournalError> {
        let source = self.source.clone();
        let host = self
            .owners
            .host
            .map_or_else(String::new, |host| host.to_string());
        self.control
            .write(move |tx| -> Result<(), ControlError> {
                tx.execute(
                    "DELETE FROM session_owners
                     WHERE session IN (SELECT id FROM sessions WHERE source = ?1)",
                    [&source],
                )?;
                tx.execute(
                    "UPDATE sessions SET host = ?2 WHERE source = ?1 AND host <> ?2",
                    params![source, host],
                )?;
                Ok(())
            })
            .map_err(of_control)
    }

    /// Draws handles for folders that have none, those changed last coming last.
    fn fresh(
        &self,
        found: &BTreeMap<Box<[u8]>, FolderPlace>,
        handles: &HashMap<String, SessionHandle>,
    ) -> Result<Vec<New>, JournalError> {
        let mut fresh = Vec::new();
        for place in found.values() {
            let own_id = session_id(&place.folder).filter(|id| !handles.contains_key(id));
            if let Some(own_id) = own_id {
                fresh.push(New {
                    handle: SessionHandle::from_random(random()?),
                    own_id,
                    at: self.changed_at(place),
                });
            }
        }
        fresh.sort_by(|a, b| (a.at, &a.own_id).cmp(&(b.at, &b.own_id)));
        Ok(fresh)
    }

    fn changed_at(&self, place: &FolderPlace) -> i64 {
        let stamp = || {
            let project = self
                .home
                .sessions()
                .ok()?
                .dir(place.projects.first()?)
                .ok()?;
            project.dir(&place.folder).ok()?.stamp().ok()
        };
        stamp().map_or(0, |stamp| stamp.modified.0.saturating_mul(1_000))
    }

    /// Records new sessions, and who owns what is there; then serves it.
    fn record(
        &self,
        found: &BTreeMap<Box<[u8]>, FolderPlace>,
        known: &mut Known,
        fresh: Vec<New>,
    ) -> Result<(), JournalError> {
        let mut fresh = fresh;
        while !fresh.is_empty() {
            let rest = fresh.split_off(fresh.len().min(BATCH));
            let batch = std::mem::replace(&mut fresh, rest);
            for new in &batch {
                known.handles.insert(new.own_id.clone(), new.handle);
            }
            let undo: Vec<String> = batch.iter().map(|new| new.own_id.clone()).collect();
            if let Err(error) = self.insert(batch) {
                for own_id in undo {
                    known.handles.remove(&own_id);
                }
                return Err(of_control(error));
            }
        }
        let places: HashMap<SessionHandle, Arc<FolderPlace>> = found
            .values()
            .filter_map(|place| {
                let handle = known.handles.get(&session_id(&place.folder)?)?;
                Some((*handle, Arc::new(place.clone())))
            })
            .collect();
        let before: HashSet<SessionHandle> = self.sessions().into_iter().collect();
        let came = places.keys().filter(|handle| !before.contains(handle));
        let went = before.iter().filter(|handle| !places.contains_key(handle));
        let went: Vec<SessionHandle> = went.copied().collect();
        self.logs.forget(&went);
        self.own(came.copied().collect(), went)?;
        *self.places.write().unwrap_or_else(PoisonError::into_inner) = places;
        Ok(())
    }

    fn insert(&self, batch: Vec<New>) -> Result<(), ControlError> {
        let source = self.source.clone();
        let host = self
            .owners
            .host
            .map_or_else(String::new, |host| host.to_string());
        self.control.write(move |tx| {
            let mut insert = tx.prepare_cached(
                "INSERT INTO sessions (handle, source, own_id, host, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for New { handle, own_id, at } in batch {
                insert.execute(params![handle.to_string(), source, own_id, host, at])?;
            }
            Ok(())
        })
    }

    /// Gives the owners what came, and takes from them what went, so that a listing shows neither too
    /// much nor too little.
    fn own(&self, came: Vec<SessionHandle>, went: Vec<SessionHandle>) -> Result<(), JournalError> {
        if came.is_empty() && went.is_empty() {
            return Ok(());
        }
        let owners: Vec<String> = self.owners.owners.iter().map(ToString::to_string).collect();
        self.control
            .write(move |tx| -> Result<(), ControlError> {
                let mut give = tx.prepare_cached(
                    "INSERT OR IGNORE INTO session_owners (session, principal)
                     SELECT id, ?2 FROM sessions WHERE handle = ?1",
                )?;
                for (handle, owner) in came.iter().flat_map(|h| owners.iter().map(move |o| (h, o)))
                {
                    give.execute(params![handle.to_string(), owner])?;
                }
                let mut take = tx.prepare_cached(
                    "DELETE FROM session_owners
                     WHERE session = (SELECT id FROM sessions WHERE handle = ?1)",
                )?;
                for handle in &went {
                    take.execute([handle.to_string()])?;
                }
                Ok(())
            })
            .map_err(of_control)
    }
}

impl Source for DshSource {
    fn session(&self, session: SessionHandle) -> Result<Session, JournalError> {
        let index = self.log(session)?.index;
        Ok(Session {
            handle: session,
            id: index.header.id.clone(),
            created_at: index.header.created_at,
            cwd: index.header.cwd.clone(),
            generation: index.generation(),
            next_seq: index.next_seq(),
        })
    }

    /// The page starts where one of a native session of the same events would.
    fn page(
        &self,
        session: SessionHandle,
        generation: Option<LogGeneration>,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, JournalError> {
        let limit = limit.clamp(1, self.logs.limits().page_events.max(1));
        for _ in 0..ATTEMPTS {
            let log = self.log(session)?;
            let present = log.index.generation();
            if let Some(asked) = generation.filter(|asked| *asked != present) {
                return Err(JournalError::StaleGeneration { asked, present });
            }
            let end = log.index.next_seq();
            let to = before.map_or(end, |before| before.min(end)).get();
            let from = to.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX));
            if let Some(mut events) = self.logs.events(session, &log, from, to)? {
                // The log's start needs no message.
                if events.first().is_some_and(|event| event.seq > Seq::FIRST)
                    && let Some(cut) = events.iter().position(|event| is_message(&event.kind))
                {
                    events.drain(..cut);
                }
                let first = events.first().map_or(to, |event| event.seq.get());
                return Ok(Page {
                    generation: present,
                    has_more: first > 0,
                    events,
                });
            }
        }
        Err(JournalError::Busy)
    }

    fn references(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Referenced>, JournalError> {
        self.confirmed(session, |log| {
            let some = part(log.index.references(), window);
            let each = some.iter().map(|at| (at.seq, Some(at), None));
            Ok(self.agree(session, log, each)?.then_some(some.clone()))
        })
    }

    /// What the log itself says now, whatever its index says.
    fn reference(
        &self,
        session: SessionHandle,
        id: AttachmentId,
        name: Option<&FileName>,
    ) -> Result<AttachmentRef, JournalError> {
        self.confirmed(session, |log| {
            let found = log.index.reference(id, name);
            let found = found.ok_or(JournalError::NotFound)?;
            let each = [(found.seq, Some(found), None)];
            let agrees = self.says(session, log, each)?;
            Ok(agrees.then(|| found.reference.clone()))
        })
    }

    fn declared(
        &self,
        session: SessionHandle,
        window: Window,
    ) -> Result<Vec<Declared>, JournalError> {
        self.confirmed(session, |log| {
            let some = part(log.index.declared(), window);
            let each = some.iter().map(|at| (at.seq, None, Some(at)));
            Ok(self.agree(session, log, each)?.then_some(some.clone()))
        })
    }
}

/// What an index says of an event.
type Claim<'a> = (Seq, Option<&'a Referenced>, Option<&'a Declared>);

impl DshSource {
    /// Answers from a log's index, and once more from an index made anew when the log does not say the
    /// same: then `ask` gives `None`.
    fn confirmed<T>(
        &self,
        session: SessionHandle,
        ask: impl Fn(&OpenLog) -> Result<Option<T>, JournalError>,
    ) -> Result<T, JournalError> {
        for _ in 0..ATTEMPTS {
            if let Some(answer) = ask(&self.log(session)?)? {
                return Ok(answer);
            }
            self.logs.distrust(session);
        }
        Err(JournalError::Busy)
    }

    /// As [`DshSource::says`], for an index that was not made of the log in this run.
    fn agree<'a>(
        &self,
        session: SessionHandle,
        log: &OpenLog,
        claims: impl IntoIterator<Item = Claim<'a>>,
    ) -> Result<bool, JournalError> {
        Ok(!log.index.restored || self.says(session, log, claims)?)
    }

    /// Whether the log says all this.
    fn says<'a>(
        &self,
        session: SessionHandle,
        log: &OpenLog,
        claims: impl IntoIterator<Item = Claim<'a>>,
    ) -> Result<bool, JournalError> {
        for (seq, reference, declared) in claims {
            let next = seq.get().saturating_add(1);
            let events = self.logs.events(session, log, seq.get(), next)?;
            let Some(event) = events.and_then(|events| events.into_iter().next()) else {
                return Ok(false);
            };
            if !agrees(&event, log.index.format(), reference, declared)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl fmt::Debug for DshSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DshSource").finish_non_exhaustive()
    }
}

fn part<T: Clone>(all: &[T], window: Window) -> Vec<T> {
    let from = usize::try_from(window.offset).unwrap_or(usize::MAX);
    let limit = usize::try_from(window.limit).unwrap_or(usize::MAX);
    all.iter().skip(from).take(limit).cloned().collect()
}

fn random() -> Result<[u8; 16], JournalError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| JournalError::Io {
        action: "drawing a handle",
        source: Box::new(error),
    })?;
    Ok(bits)
}

fn of_control(error: ControlError) -> JournalError {
    if matches!(error, ControlError::Busy) {
        return JournalError::Busy;
    }
    JournalError::Io {
        action: "recording the sessions of a DSH home",
        source: Box::new(error),
    }
}
