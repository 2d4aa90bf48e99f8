use std::sync::Arc;

use super::{Attachments, Roots};
use crate::{
    access::Access,
    audit::Audit,
    control::{Control, ControlError},
    gate::Gate,
    journal::Journal,
    model::{Clock, Digest, Limits},
    pool::Pool,
    receipt::Ledger,
    store::{Store, StoreError, verified::Verifier},
};

/// Everything a journey needs, built once by the composition root.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The database of everything that must be exact.
    pub control: Arc<Control>,
    /// Who may do what.
    pub access: Arc<Access>,
    /// The sessions and their logs.
    pub journal: Arc<dyn Journal>,
    /// The bytes.
    pub store: Arc<dyn Store>,
    /// Where the attachments of each session are opened from.
    pub attachments: Arc<Attachments>,
    /// Checks content before it is sent.
    pub verifier: Arc<Verifier>,
    /// What was given out, refused and promised.
    pub audit: Arc<Audit>,
    /// Releases that wait, and receipts.
    pub ledger: Arc<Ledger>,
    /// Whether declared paths may be read.
    pub gate: Arc<Gate>,
    /// Where they are read, against a proof.
    pub roots: Arc<Roots>,
    /// Where blocking work runs.
    pub pools: Pools,
    /// Every bound.
    pub limits: Arc<Limits>,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Which host this is.
    pub identity: HostIdentity,
}

impl Parts {
    /// Whether anything refers to this content. In doubt something does.
    #[must_use]
    pub fn needs(&self, digest: Digest) -> bool {
        self.ledger.needs(digest).unwrap_or(true)
    }

    /// Takes content out of the store unless something needs it. Blocks.
    ///
    /// # Errors
    /// [`StoreError`]; it may still be there then.
    pub(super) fn forget(&self, digest: Digest) -> Result<(), StoreError> {
        self.store.forget(digest, &mut || self.needs(digest))?;
        Ok(())
    }
}

/// The bounded pools, apart so that long work of one kind does not starve another.
#[derive(Clone, Debug)]
pub struct Pools {
    /// Short questions to the database.
    pub control: Pool,
    /// One block read or written, one object opened.
    pub files: Pool,
    /// Whole contents: verified, or flushed and committed.
    pub store: Pool,
}

impl Pools {
    /// Pools for a machine with `cpus` processors.
    ///
    /// # Errors
    /// What the system says when it gives no thread.
    pub fn new(cpus: usize) -> std::io::Result<Self> {
        let cpus = cpus.clamp(2, 64);
        Ok(Self {
            control: Pool::new("hf-control", cpus.saturating_mul(2), 1024)?,
            files: Pool::new("hf-files", cpus.saturating_mul(2), 1024)?,
            store: Pool::new("hf-store", cpus.saturating_mul(2), 256)?,
        })
    }
}

/// Which host this is, and which of its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// This installation: drawn once, the same after every start.
    pub instance: String,
    /// This run: grows by one with every start, so that nothing of an earlier run is taken for live.
    pub bridge_generation: u64,
}

impl HostIdentity {
    /// Counts one more start. Blocks until that is durable.
    ///
    /// # Errors
    /// What the database says; [`ControlError::Corrupt`] when what it kept cannot be read back.
    pub fn start(control: &Control, drawn: [u8; 16]) -> Result<Self, ControlError> {
        use rusqlite::OptionalExtension as _;
        let fresh = format!("h_{:032x}", u128::from_be_bytes(drawn));
        control.write(move |tx| {
            let kept = |key: &str| {
                tx.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
                    row.get::<_, String>(0)
                })
                .optional()
            };
            let instance = kept("host_instance")?.unwrap_or(fresh);
            let runs = match kept("bridge_generation")? {
                None => 0,
                Some(text) => text
                    .parse::<u64>()
                    .map_err(|_not_ours| ControlError::Corrupt("meta.bridge_generation".into()))?,
            };
            let identity = Self {
                instance,
                bridge_generation: runs.saturating_add(1),
            };
            let put = "INSERT INTO meta (key, value) VALUES (?1, ?2)
                       ON CONFLICT (key) DO UPDATE SET value = excluded.value";
            tx.execute(put, ["host_instance", &identity.instance])?;
            tx.execute(
                put,
                ["bridge_generation", &identity.bridge_generation.to_string()],
            )?;
            Ok(identity)
        })
    }
}
