use std::sync::{Arc, PoisonError, RwLock};

use crate::{
    journal::dsh::{DshSource, Watch},
    model::SessionHandle,
    store::{Objects, Store, dsh::DshObjects},
};

/// Where the attachments of each session lie: in the store, or in the home the session is of.
///
/// A home is served until the service ends.
#[derive(Debug)]
pub struct Attachments {
    store: Arc<dyn Store>,
    homes: RwLock<Vec<Home>>,
}

/// A home that is served.
#[derive(Debug)]
struct Home {
    source: Arc<DshSource>,
    objects: Arc<DshObjects>,
    _watch: Watch,
}

impl Attachments {
    /// Those of native sessions, with no home beside them yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            homes: RwLock::default(),
        }
    }

    /// Serves the attachments of a home as well, and looks for new sessions of it from now on.
    pub fn add(&self, source: Arc<DshSource>, objects: DshObjects, watch: Watch) {
        let mut homes = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        homes.push(Home {
            source,
            objects: Arc::new(objects),
            _watch: watch,
        });
    }

    /// Where the session's attachments are opened from. A digest is no right across homes: the same
    /// bytes in another place are another's.
    #[must_use]
    pub fn of(&self, session: SessionHandle) -> Arc<dyn Objects> {
        let homes = self.homes.read().unwrap_or_else(PoisonError::into_inner);
        match homes.iter().find(|home| home.source.has(session)) {
            Some(home) => Arc::clone(&home.objects) as Arc<dyn Objects>,
            None => Arc::clone(&self.store) as Arc<dyn Objects>,
        }
    }
}
