//! Bounded threads for blocking work: the one bridge from the asynchronous side to files and the
//! database.
//!
//! Promises: never more threads than stated, never more waiting work than stated (I11); work whose
//! caller has gone before it began does not begin. Leaves to others: stopping work that has begun
//! (`model::Cancel`).

#![forbid(unsafe_code)]

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

/// Why a pool did not give back a result.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PoolError {
    /// Every thread is at work and the queue is full.
    #[error("the pool's queue is full")]
    Busy,
    /// The pool has shut down, or the work panicked.
    #[error("the pool gave no result")]
    Gone,
}

/// A fixed number of threads with a bounded queue. Clones share it; the last one dropped ends it.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    queue: Arc<Queue>,
    /// One permit per unit of work waiting or running.
    places: Arc<Semaphore>,
    capacity: usize,
    /// Whether work runs where it is asked for.
    is_inline: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    closed: bool,
}

type Job = Box<dyn FnOnce() + Send>;

impl Pool {
    /// Starts `threads` threads called `name`; at most `queue` units of work wait for one.
    ///
    /// # Errors
    /// What the system says when it gives no thread.
    pub fn new(name: &str, threads: usize, queue: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let capacity = threads.saturating_add(queue).min(Semaphore::MAX_PERMITS);
        let pool = Self(Arc::new(Handle {
            queue: Arc::default(),
            places: Arc::new(Semaphore::new(capacity)),
            capacity,
            is_inline: false,
        }));
        for _ in 0..threads {
            let queue = Arc::clone(&pool.0.queue);
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || queue.serve())?;
        }
        Ok(pool)
    }

    /// A pool without threads, whose work runs where it is asked for: for programs of one thread, which
    /// make the same system calls each time.
    #[cfg(feature = "_seams")]
    #[must_use]
    pub fn inline() -> Self {
        Self(Arc::new(Handle {
            queue: Arc::default(),
            places: Arc::new(Semaphore::new(1)),
            capacity: 1,
            is_inline: true,
        }))
    }

    /// Runs `work` on one of the threads.
    ///
    /// # Errors
    /// [`PoolError::Busy`] at once when the queue is full; [`PoolError::Gone`] when the work panicked
    /// or the pool ended first.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let place = match Arc::clone(&self.0.places).try_acquire_owned() {
            Ok(place) => place,
            Err(TryAcquireError::NoPermits) => return Err(PoolError::Busy),
            Err(TryAcquireError::Closed) => return Err(PoolError::Gone),
        };
        self.submit(place, work).await
    }

    /// Runs `work`, first waiting for a place in the queue. For the next step of something already
    /// admitted, whose number is bounded elsewhere.
    ///
    /// # Errors
    /// [`PoolError::Gone`] as in [`Pool::run`].
    pub async fn run_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let Ok(place) = Arc::clone(&self.0.places).acquire_owned().await else {
            return Err(PoolError::Gone);
        };
        self.submit(place, work).await
    }

    /// Units of work waiting or running now.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.0
            .capacity
            .saturating_sub(self.0.places.available_permits())
    }

    async fn submit<T: Send + 'static>(
        &self,
        place: OwnedSemaphorePermit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (answer, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            if !answer.is_closed() {
                // A panic is the work's own failure: the thread goes on, the caller sees `Gone`.
                if let Ok(value) = catch_unwind(AssertUnwindSafe(work)) {
                    drop(place);
                    // A caller that has gone meanwhile drops the value here, on this thread.
                    drop(answer.send(value));
                }
            }
        });
        if self.0.is_inline {
            job();
        } else {
            self.0.queue.push(job);
        }
        result.await.map_err(|_dropped| PoolError::Gone)
    }
}

impl Queue {
    fn push(&self, job: Job) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.push_back(job);
        drop(state);
        self.ready.notify_one();
    }

    fn serve(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self
            .queue
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.queue.ready.notify_all();
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use super::{Pool, PoolError};

    #[tokio::test]
    async fn a_result_comes_back_from_another_thread() {
        let pool = Pool::new("test", 1, 1).unwrap();
        let name = pool
            .run(|| std::thread::current().name().map(ToOwned::to_owned))
            .await;
        assert_eq!(name, Ok(Some("test".to_owned())));
        assert_eq!(pool.in_use(), 0);
    }

    /// Keeps I11.
    #[tokio::test]
    async fn a_full_queue_refuses_at_once() {
        let pool = Pool::new("test", 1, 1).unwrap();
        let (release, held) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(move || held.recv()).await }
        });
        while pool.in_use() < 1 {
            tokio::task::yield_now().await;
        }
        let second = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(|| 2).await }
        });
        while pool.in_use() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(|| 3).await, Err(PoolError::Busy));
        release.send(()).unwrap();
        first.await.unwrap().unwrap().unwrap();
        assert_eq!(second.await.unwrap(), Ok(2));
    }

    #[tokio::test]
    async fn a_panic_costs_its_caller_only() {
        let pool = Pool::new("test", 1, 1).unwrap();
        let lost: Result<(), _> = pool.run(|| panic!("the work's own failure")).await;
        assert_eq!(lost, Err(PoolError::Gone));
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }

    /// Keeps I11: a caller that has gone costs nothing further (D02).
    #[tokio::test]
    async fn d02_work_whose_caller_has_gone_does_not_begin() {
        let pool = Pool::new("test", 1, 4).unwrap();
        let (release, held) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(move || held.recv()).await }
        });
        while pool.in_use() < 1 {
            tokio::task::yield_now().await;
        }
        let begun = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&begun);
        let abandoned = tokio::time::timeout(
            Duration::from_millis(20),
            pool.run(move || counter.fetch_add(1, Ordering::SeqCst)),
        );
        assert!(abandoned.await.is_err(), "it waits behind the first");
        release.send(()).unwrap();
        first.await.unwrap().unwrap().unwrap();
        assert_eq!(pool.run(|| 7).await, Ok(7));
        assert_eq!(begun.load(Ordering::SeqCst), 0);
        assert_eq!(pool.in_use(), 0);
    }
}
