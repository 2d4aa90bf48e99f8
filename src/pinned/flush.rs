#![forbid(unsafe_code)]

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    fs::{fdatasync, ioctl_ficlone},
    io::Errno,
};

use super::{Bounds, PinnedError};

/// Threads per root that may be stuck in a flush.
const WORKERS: usize = 4;
/// Flushes that may wait for one of them.
const QUEUE: usize = 32;
/// The longest a read waits for a flush: the other side chooses how much is dirty.
const BUDGET: Duration = Duration::from_secs(10);
/// How often a waiting read looks whether it was cancelled.
const TICK: Duration = Duration::from_millis(20);

/// What may take as long as the other side likes.
#[derive(Debug)]
pub(super) enum Work {
    /// Writes the file's dirty pages.
    Flush(OwnedFd),
    /// Makes `target` a clone of `source`, which writes the source's dirty pages first.
    Clone { source: OwnedFd, target: OwnedFd },
}

impl Work {
    fn run(&self) -> Result<(), Errno> {
        match self {
            Self::Flush(file) => fdatasync(file),
            Self::Clone { source, target } => ioctl_ficlone(target, source),
        }
    }
}

#[derive(Debug)]
struct Job {
    work: Work,
    done: SyncSender<Result<(), Errno>>,
}

/// Does a root's flushes on threads of their own, so that a read can stop waiting for one.
///
/// The threads start with the first flush and end with the root; one that is stuck ends when the
/// system lets it.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    queue: OnceLock<SyncSender<Job>>,
    inline: bool,
}

impl Flusher {
    /// Does the work on the caller's thread, without a bound in time.
    pub(super) fn inline() -> Self {
        Self {
            queue: OnceLock::new(),
            inline: true,
        }
    }

    /// What the system answered, once it did.
    ///
    /// # Errors
    /// [`PinnedError::Busy`] when too many flushes wait or this one took too long;
    /// [`PinnedError::Cancelled`]; [`PinnedError::Deadline`]; [`PinnedError::Resource`] when no
    /// thread could be started. The work may still be under way then.
    pub(super) fn run(
        &self,
        work: Work,
        bounds: &Bounds,
    ) -> Result<Result<(), Errno>, PinnedError> {
        if self.inline {
            return Ok(work.run());
        }
        let (done, answer) = sync_channel(1);
        self.queue()?
            .try_send(Job { work, done })
            .map_err(|error| match error {
                TrySendError::Full(_) => PinnedError::Busy("too many flushes wait"),
                TrySendError::Disconnected(_) => PinnedError::Busy("the flush threads ended"),
            })?;
        let started = Instant::now();
        loop {
            bounds.check()?;
            match answer.recv_timeout(TICK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) if started.elapsed() < BUDGET => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(PinnedError::Busy("flushing the file took too long"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PinnedError::Busy("the flush threads ended"));
                }
            }
        }
    }

    fn queue(&self) -> Result<&SyncSender<Job>, PinnedError> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue);
        }
        let (queue, jobs) = sync_channel::<Job>(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..WORKERS {
            let jobs = Arc::clone(&jobs);
            thread::Builder::new()
                .name("flush".into())
                .spawn(move || work_off(&jobs))
                .map_err(resource)?;
        }
        // Another read may have been first; then these threads end at once.
        Ok(self.queue.get_or_init(|| queue))
    }
}

fn work_off(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { work, done }) = job else { return };
        let answer = work.run();
        // Closed before anybody hears of it, so that a read leaves no descriptor behind.
        drop(work);
        match done.try_send(answer) {
            // An error says that nobody waits any more.
            Ok(()) | Err(_) => {}
        }
    }
}

fn resource(error: io::Error) -> PinnedError {
    PinnedError::Resource(error)
}
