//! A race of one tree: somebody who changes it as fast as it goes, a naive reader that must lose, and
//! the reader under test.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use holdfast::pinned::Resolver;

use super::{CANARY, ENOUGH, say};
use crate::arena::open_descriptors;

/// What a read gave: bytes, or the word it was refused with.
pub(super) type Answer = Result<Vec<u8>, String>;

/// One race.
pub(super) struct Race<'a> {
    pub(super) name: &'a str,
    /// One change. It is called with 0, 1, 2 and so on, and an even number of times in all.
    pub(super) change: &'a (dyn Fn(u64) + Sync),
    /// A reader that must be caught giving out what is outside; none where the race can only delay.
    pub(super) canary: Option<(&'a str, &'a dyn Fn() -> Answer)>,
    /// The words a good reader may refuse with.
    pub(super) allowed: &'a [&'a str],
    /// Whether reads must both succeed and be refused, [`ENOUGH`] times each.
    pub(super) is_two_sided: bool,
}

/// What a reader that was asked again and again gave out.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) inside: u64,
    pub(super) outside: u64,
    pub(super) neither: u64,
    pub(super) refused: BTreeMap<String, u64>,
    changes: u64,
}

impl Taken {
    fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// Ends the one who changes the tree also when the reader panics.
pub(super) struct Over<'a>(pub(super) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks `read` again and again while `change` goes on, until `enough` says so.
pub(super) fn storm(
    change: &(dyn Fn(u64) + Sync),
    read: &dyn Fn() -> Answer,
    enough: impl Fn(&Taken, Duration) -> bool,
) -> Taken {
    let (is_over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut taken = Taken::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) || n % 2 == 1 {
                change(n);
                n += 1;
            }
            changes.store(n, Ordering::Relaxed);
        });
        let _over = Over(&is_over);
        let start = Instant::now();
        while !enough(&taken, start.elapsed()) {
            match read() {
                Ok(bytes) if bytes.starts_with(b"IN:") => taken.inside += 1,
                Ok(bytes) if bytes.starts_with(b"OUT") => taken.outside += 1,
                Ok(_) => taken.neither += 1,
                Err(class) => *taken.refused.entry(class).or_default() += 1,
            }
        }
    });
    taken.changes = changes.into_inner();
    taken
}

impl Race<'_> {
    /// Runs the canary and then each resolver for `time`, ten times that where both outcomes were not
    /// seen often enough. What is wrong is said in words.
    pub(super) fn run(&self, time: Duration, read: &dyn Fn(Resolver) -> Answer) -> Vec<String> {
        let mut bad = Vec::new();
        if let Some((naive, canary)) = self.canary {
            let caught = storm(self.change, canary, |taken, elapsed| {
                taken.outside > 0 || elapsed >= CANARY * 10
            });
            say(&format!("{}, {naive}: {caught:?}", self.name));
            if caught.outside == 0 {
                bad.push(format!(
                    "{}: INCONCLUSIVE: {naive} was not caught",
                    self.name
                ));
            }
        }
        for resolver in Resolver::ALL {
            let before = open_descriptors();
            let taken = storm(self.change, &|| read(resolver), |taken, elapsed| {
                let is_shown = !self.is_two_sided || taken.inside.min(taken.refusals()) >= ENOUGH;
                elapsed >= time * if is_shown { 1 } else { 10 }
            });
            say(&format!("{}, {resolver}: {taken:?}", self.name));
            let at = format!("{}, {resolver}", self.name);
            if taken.outside + taken.neither > 0 {
                bad.push(format!("{at}: FAILED: {taken:?}"));
            }
            for class in taken.refused.keys() {
                if !self.allowed.contains(&class.as_str()) {
                    bad.push(format!("{at}: FAILED: refused with `{class}`"));
                }
            }
            if self.is_two_sided && taken.inside.min(taken.refusals()) < ENOUGH {
                bad.push(format!("{at}: INCONCLUSIVE: one-sided: {taken:?}"));
            }
            if open_descriptors() != before {
                bad.push(format!("{at}: FAILED: a descriptor stayed open"));
            }
        }
        bad
    }
}
