//! Looks at a home while it is served: sessions that come and go, and logs that move.
//!
//! Promises: bounded watches; where there are none left, what is not watched is looked at in turn and
//! the log of the service says so; a change missed here is seen all the same by whoever asks for the
//! session. Leaves to others: what is done about a change (`source`).
//!
//! # Source
//! `inotify(7)`: a watch is put on an open directory by `/proc/self/fd`, so no link leads it astray.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};

use super::source::DshSource;
use crate::model::SessionHandle;

/// How often changes are taken up. A log that moved is read when it has stood still that long.
const EVERY: Duration = Duration::from_millis(150);
/// After how many rounds the project folders are looked at although nothing was heard.
const LOOK: u32 = 2;
/// How many sessions without a watch are looked at in a round.
const IN_TURN: usize = 128;
/// The most watches added in a round, so that a large home does not hold up the rest.
const STEP: usize = 2_048;

/// Watches a home while it lives.
#[derive(Debug)]
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(source: Arc<DshSource>) -> io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("dsh-watch".to_owned())
            .spawn(move || {
                let mut watcher = Watcher::new(source);
                while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    watcher.round();
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has looked its last; the sessions known are served on.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A directory that can be watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    /// That of the project folders.
    Sessions,
    /// A project folder.
    Project(Box<[u8]>),
    /// A session's folder.
    Session(SessionHandle),
}

/// Whether further watches can be had.
#[derive(Default)]
struct Room {
    /// No further one is tried.
    full: bool,
    /// The service's log has said so.
    told: bool,
}

struct Watcher {
    source: Arc<DshSource>,
    inotify: Option<OwnedFd>,
    by_number: HashMap<i32, Watched>,
    watched: HashSet<Watched>,
    /// Sessions whose log moved and was not read since.
    moved: HashSet<SessionHandle>,
    /// Sessions without a watch, in the order they are looked at.
    in_turn: VecDeque<SessionHandle>,
    /// Whether sessions may have come or gone since the watches were last gone through.
    changed: bool,
    room: Room,
    rounds: u32,
    troubled: bool,
}

impl Watcher {
    fn new(source: Arc<DshSource>) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        if let Err(error) = &inotify {
            tracing::warn!(%error, "no changes are heard of: a DSH home is looked at in turn");
        }
        Self {
            source,
            inotify: inotify.ok(),
            by_number: HashMap::new(),
            watched: HashSet::new(),
            moved: HashSet::new(),
            in_turn: VecDeque::new(),
            changed: true,
            room: Room::default(),
            rounds: 0,
            troubled: false,
        }
    }

    fn round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let heard = self.hear();
        // Directory changes are also looked for without being heard of: one question a project.
        if heard || self.rounds.is_multiple_of(LOOK) {
            let looked = self.source.look();
            if let Err(error) = &looked
                && !self.troubled
            {
                tracing::warn!(%error, "a DSH home cannot be looked at");
            }
            self.troubled = looked.is_err();
        }
        if heard || self.changed || self.rounds.is_multiple_of(LOOK.saturating_mul(8)) {
            self.spread();
        }
        let source = &self.source;
        self.moved.retain(|session| !source.refresh(*session));
        for _ in 0..IN_TURN.min(self.in_turn.len()) {
            if let Some(session) = self.in_turn.pop_front() {
                self.source.refresh(session);
                self.in_turn.push_back(session);
            }
        }
    }

    /// Takes in what was heard; says whether sessions may have come or gone.
    fn hear(&mut self) -> bool {
        let Some(inotify) = &self.inotify else {
            return true;
        };
        let mut buffer = [MaybeUninit::uninit(); 8 << 10];
        let mut events = Reader::new(inotify, &mut buffer);
        let mut heard = false;
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                let sessions = self.watched.iter().filter_map(|watched| match watched {
                    Watched::Session(session) => Some(*session),
                    Watched::Sessions | Watched::Project(_) => None,
                });
                self.moved.extend(sessions);
                heard = true;
                continue;
            }
            match self.by_number.get(&event.wd()) {
                Some(Watched::Session(session)) => {
                    self.moved.insert(*session);
                }
                Some(Watched::Sessions | Watched::Project(_)) => heard = true,
                None => {}
            }
            if event.events().contains(ReadFlags::IGNORED)
                && let Some(gone) = self.by_number.remove(&event.wd())
            {
                self.watched.remove(&gone);
                self.room.full = false;
                heard = true;
            }
        }
        heard
    }

    /// Puts watches on what is there and has none.
    fn spread(&mut self) {
        self.changed = false;
        let mut wanted = vec![Watched::Sessions];
        wanted.extend(self.source.projects().into_iter().map(Watched::Project));
        let sessions = self.source.sessions();
        wanted.extend(sessions.iter().copied().map(Watched::Session));
        let mut left = STEP;
        for one in wanted {
            if self.watched.contains(&one) {
                continue;
            }
            if self.room.full || left == 0 {
                self.changed |= !self.room.full;
                break;
            }
            left = left.saturating_sub(1);
            self.add(one);
        }
        self.in_turn.clear();
        let watched = &self.watched;
        let without = sessions
            .into_iter()
            .filter(|session| !watched.contains(&Watched::Session(*session)));
        self.in_turn.extend(without);
        self.source.is_beyond_watches(self.room.full);
        let source = &self.source;
        self.moved.retain(|session| source.has(*session));
    }

    fn add(&mut self, one: Watched) {
        let Some(inotify) = &self.inotify else {
            self.room.full = true;
            return;
        };
        let most = self.source.most_watches();
        if self.watched.len() >= most {
            self.room.full = true;
            if !std::mem::replace(&mut self.room.told, true) {
                tracing::warn!(
                    watches = most,
                    "a DSH home has more folders than are watched: the others are looked at in turn"
                );
            }
            return;
        }
        let Some(folder) = self.source.folder(&one) else {
            return;
        };
        let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
        let comes_and_goes = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        let what = match one {
            Watched::Sessions | Watched::Project(_) => comes_and_goes,
            Watched::Session(_) => comes_and_goes | WatchFlags::MODIFY,
        };
        match inotify::add_watch(inotify, path, what) {
            Ok(number) => {
                if let Some(other) = self.by_number.insert(number, one.clone()) {
                    self.watched.remove(&other);
                }
                self.watched.insert(one);
            }
            Err(error @ (Errno::NOSPC | Errno::NOMEM)) => {
                self.room.full = true;
                if !std::mem::replace(&mut self.room.told, true) {
                    tracing::warn!(
                        %error,
                        watches = self.watched.len(),
                        "the system gives no more watches (fs.inotify.max_user_watches): other \
                         folders of the DSH home are looked at in turn"
                    );
                }
            }
            Err(_gone_or_forbidden) => {}
        }
    }
}
