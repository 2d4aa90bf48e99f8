use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A request to stop work, shared between the one who waits and the one who works.
///
/// Work asks between reads; a cancelled transfer yields no byte (I4). Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that nobody has fired.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop; firing twice is one firing.
    pub fn fire(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the work should stop.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// A guard that fires this token when it is dropped: held by the waiting side, so that a client
    /// that goes away stops the work done for it.
    #[must_use]
    pub fn fire_on_drop(&self) -> FireOnDrop {
        FireOnDrop(self.clone())
    }
}

/// Fires its [`Cancel`] when dropped.
#[derive(Debug)]
pub struct FireOnDrop(Cancel);

impl Drop for FireOnDrop {
    fn drop(&mut self) {
        self.0.fire();
    }
}
