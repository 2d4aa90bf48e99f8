//! The only place that knows HTTP: turns requests into model values, calls a journey, renders.
//!
//! Promises: every route goes through the same access check (I10); what may not be seen answers like
//! what is not there (I9); every answer, errors included, carries the security fields (I13). Leaves
//! to others: deciding (`access`), moving bytes (`transfer`).

#![forbid(unsafe_code)]

mod attachments;
mod audited;
mod counters;
mod deliverables;
mod download;
mod dress;
mod events;
mod extract;
mod fence;
mod handoff;
mod host;
mod interactions;
pub mod local;
mod login;
mod messages;
pub mod openapi;
mod page;
mod permissions;
mod probe;
pub mod problem;
mod receipts;
mod releases;
pub mod router;
pub mod semantics;
pub mod server;
mod sessions;
mod snapshot;
mod streams;
mod tickets;
mod uploads;

use std::sync::Arc;

pub use counters::Counters;
pub use fence::AllowedHosts;

use problem::Problem;

use crate::{
    access::{Access, AccessError},
    transfer::{
        Parts,
        live::{Live, LiveOptions},
    },
};

/// What every handler can reach.
#[derive(Clone, Debug)]
pub struct App {
    parts: Arc<Parts>,
    hosts: Arc<AllowedHosts>,
    counters: Arc<Counters>,
    live: Arc<Live>,
    admission: Arc<extract::Admission>,
    /// Requests by ticket, by the ticket's maker: they do not crowd out the maker's own.
    holders: Arc<extract::Admission>,
}

impl App {
    /// An application over `parts` that answers to `hosts`.
    #[must_use]
    pub fn new(parts: Arc<Parts>, hosts: AllowedHosts, live: LiveOptions) -> Self {
        Self {
            live: Arc::new(Live::new(Arc::clone(&parts), live)),
            parts,
            hosts: Arc::new(hosts),
            counters: Arc::default(),
            admission: Arc::default(),
            holders: Arc::default(),
        }
    }

    /// What lives in memory alone.
    #[must_use]
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Asks `access` from the pool for blocking work.
    async fn granted<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Access) -> Result<T, AccessError> + Send + 'static,
    ) -> Result<T, Problem> {
        let access = self.parts.access.clone();
        let control = &self.parts.pools.control;
        Ok(control.run(move || question(&access)).await??)
    }

    /// What was served since start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
