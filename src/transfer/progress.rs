//! How far a release has come, told to whoever asked for it while it takes its time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval_at};

use super::live::Live;
use crate::model::{LogGeneration, PrincipalId, Seq, SessionHandle};

/// How often progress is told.
const EACH: Duration = Duration::from_millis(500);

/// Counts that grow while files are copied.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    files: Arc<AtomicU64>,
    of_files: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

/// What a release is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) session: SessionHandle,
    pub(super) log_generation: LogGeneration,
    pub(super) seq: Seq,
    /// None for everything in the session.
    pub(super) index: Option<u32>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    /// Files that are copied.
    pub(super) files: u64,
    /// Files there are to copy; 0 before they are counted.
    pub(super) of_files: u64,
    /// Bytes copied, those of tries that failed among them.
    pub(super) bytes: u64,
}

impl Progress {
    /// For spools to count the bytes they take.
    pub(super) fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    pub(super) fn read_bytes(&self, more: u64) {
        self.bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// So many more files are to be copied.
    pub(super) fn expect(&self, files: usize) {
        let files = u64::try_from(files).unwrap_or(u64::MAX);
        self.of_files.fetch_add(files, Ordering::Relaxed);
    }

    pub(super) fn file_done(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    fn reached(&self) -> Reached {
        Reached {
            files: self.files.load(Ordering::Relaxed),
            of_files: self.of_files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Does `work`, and tells `who` now and then how far it is, as long as it moves.
    pub(super) async fn told<T>(
        &self,
        live: &Live,
        who: PrincipalId,
        about: About,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        let mut due = interval_at(tokio::time::Instant::now() + EACH, EACH);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = due.tick() => {
                    let reached = self.reached();
                    if last != Some(reached) {
                        live.tell_progress(who, about, reached);
                        last = Some(reached);
                    }
                }
            }
        }
    }
}
