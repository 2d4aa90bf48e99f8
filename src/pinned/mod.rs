//! Reads one file beneath an open root while others may rename, link, truncate and rewrite
//! everything under it.
//!
//! Promises: a path is resolved once, beneath the root, to a descriptor, following no link on the
//! way unless the root's policy follows those that stay beneath, and every later fact is asked of that descriptor; nothing but a plain file is ever opened
//! (I2). A copy is whole, private, hashed and within its ceiling, or there is none (I4, I11). Both
//! resolvers refuse with the same classes. Leaves to others: who may ask (`access`), whether paths
//! are served at all (`gate`), which names are never given out (`policy`). Knows nothing of
//! sessions or HTTP, so that the prober can attack it directly.
//!
//! ```text
//! Root ─pin─► PinnedFile ─examine─► Examined ─reopen─► OpenFile ─copy_to─► Snapshot
//! ```

#![forbid(unsafe_code)]

mod directory;
mod error;
mod facts;
mod file;
mod filesystem;
mod flush;
mod lease;
mod place;
mod policy;
mod proc_fd;
mod resolve;
mod root;
mod seam;
mod self_test;
mod snapshot;
mod stability;

pub use directory::Listing;
pub use error::{Kind, PinnedError};
pub use facts::{Facts, Identity, Moment};
pub use file::{Examined, OpenFile, PinnedFile};
pub use policy::{Grade, HardLinks, Leases, Links, Mounts, Owner, Policy};
pub use resolve::Resolver;
pub use root::{Counters, Root};
pub use seam::{Seam, Step};
pub use self_test::{Outcome, SelfTest};
pub use snapshot::{Bounds, Evidence, Snapshot};

/// A name nobody has looked up before: `prefix` and a random number.
fn fresh_name(prefix: &str) -> Result<String, PinnedError> {
    let number = getrandom::u64().map_err(|error| PinnedError::Io {
        action: "drawing a random name",
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(format!("{prefix}-{number:016x}"))
}
