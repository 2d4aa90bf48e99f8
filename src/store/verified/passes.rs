//! Which passes stand, which run, and who waits for them.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::tags::Tags;
use crate::{
    model::{Cancel, Digest},
    store::StoreError,
};

/// How often a waiting caller looks whether it was cancelled.
const GLANCE: Duration = Duration::from_millis(20);

/// What the system says of an object: as long as none of it moves, nobody wrote to it by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    device: u64,
    inode: u64,
    pub(super) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Facts {
    pub(super) fn of(file: &File) -> Result<Self, StoreError> {
        let stat = rustix::fs::fstat(file)
            .map_err(|errno| StoreError::from_io("examining an object", errno.into()))?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        })
    }
}

/// The type of the field varies with the target; what does not fit is no time.
fn nanos(field: impl TryInto<i64>) -> i64 {
    field.try_into().unwrap_or(-1)
}

/// Which content a pass is about: the digest is part of it, so that a pass for one digest never
/// stands for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) facts: Facts,
    pub(super) digest: Digest,
}

/// Tags by subject, and the passes that run.
#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: HashMap<Subject, Entry>,
    /// Subjects by when they were last wanted.
    pub(super) order: BTreeMap<u64, Subject>,
    turn: u64,
    pub(super) cost: usize,
    pub(super) flights: HashMap<Subject, Arc<Flight>>,
}

pub(super) struct Entry {
    pub(super) tags: Arc<Tags>,
    passed: Instant,
    pub(super) turn: u64,
}

/// What a caller has to do.
pub(super) enum Role {
    /// Nothing: a recent pass stands.
    Reuse(Arc<Tags>),
    /// Wait for the pass that runs.
    Wait(Arc<Flight>),
    /// Run the pass, against these tags when there are some.
    Run(Arc<Flight>, Option<Arc<Tags>>),
}

impl Table {
    pub(super) fn join(&mut self, subject: Subject, verified_for: Duration) -> Role {
        if let Some(entry) = self.entries.get(&subject) {
            // Strictly less, so that a reuse time of zero never reuses.
            if entry.passed.elapsed() < verified_for {
                let tags = Arc::clone(&entry.tags);
                self.touch(subject);
                return Role::Reuse(tags);
            }
        }
        if let Some(flight) = self.flights.get(&subject) {
            return Role::Wait(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::default());
        self.flights.insert(subject, Arc::clone(&flight));
        let known = self.entries.get(&subject).map(|e| Arc::clone(&e.tags));
        Role::Run(flight, known)
    }

    fn touch(&mut self, subject: Subject) {
        if let Some(entry) = self.entries.get_mut(&subject) {
            self.order.remove(&entry.turn);
            self.turn += 1;
            entry.turn = self.turn;
            self.order.insert(self.turn, subject);
        }
    }

    pub(super) fn land(&mut self, subject: Subject, landing: &Landing, budget: usize) {
        self.flights.remove(&subject);
        match landing {
            Landing::Passed(tags) => {
                self.forget(subject);
                self.cost += tags.cost();
                self.turn += 1;
                self.order.insert(self.turn, subject);
                let entry = Entry {
                    tags: Arc::clone(tags),
                    passed: Instant::now(),
                    turn: self.turn,
                };
                self.entries.insert(subject, entry);
                while self.cost > budget {
                    let Some((_, oldest)) = self.order.first_key_value() else {
                        break;
                    };
                    self.forget(*oldest);
                }
            }
            Landing::Mismatch => self.forget(subject),
            Landing::Abandoned => {}
        }
    }

    fn forget(&mut self, subject: Subject) {
        if let Some(entry) = self.entries.remove(&subject) {
            self.order.remove(&entry.turn);
            self.cost = self.cost.saturating_sub(entry.tags.cost());
        }
    }
}

/// A pass that runs, for those who wait for it.
#[derive(Default)]
pub(super) struct Flight {
    pub(super) landing: Mutex<Option<Landing>>,
    pub(super) landed: Condvar,
}

/// How a pass ended.
#[derive(Clone)]
pub(super) enum Landing {
    Passed(Arc<Tags>),
    Mismatch,
    /// It was given up, or could not read: the next caller runs its own.
    Abandoned,
}

impl Flight {
    pub(super) fn wait(
        &self,
        digest: Digest,
        deadline: Instant,
        cancel: &Cancel,
    ) -> Result<Landing, StoreError> {
        let mut landing = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(landing) = &*landing {
                return Ok(landing.clone());
            }
            if cancel.is_fired() {
                return Err(StoreError::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(StoreError::Busy(digest));
            }
            landing = self
                .landed
                .wait_timeout(landing, GLANCE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
