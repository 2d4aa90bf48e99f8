//! The words everyone shares: ids, sequence numbers, digests, paths, limits, the clock.
//!
//! Promises: every value here was parsed once, at the edge, and refused rather than repaired; none
//! of them does I/O. Leaves to others: what a value may be used for.

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

mod cancel;
mod clock;
mod digest;
mod file_name;
mod id;
mod limits;
mod media_type;
mod redact;
mod reference;
mod rel_path;
#[cfg(feature = "service")]
mod save_name;
mod seq;
mod size;

pub use cancel::{Cancel, FireOnDrop};
pub use clock::{Clock, ManualClock, Moment, SystemClock, Timestamp};
pub use digest::{Digest, Digester, ParseDigestError};
pub use file_name::{FileName, ParseFileNameError};
pub use id::{
    AttachmentId, InteractionHandle, ParseIdError, PrincipalId, ReceiptHandle, RequestId,
    SessionHandle, SessionId, StreamHandle, TicketHandle,
};
pub use limits::{JournalLimits, Limits};
pub use media_type::MediaType;
pub use redact::Redacted;
pub use reference::{AttachmentKind, AttachmentRef};
pub use rel_path::{MAX_COMPONENT, MAX_COMPONENTS, MAX_PATH, ParsePathError, RelPath, Shown};
#[cfg(feature = "service")]
pub use save_name::{SaveName, is_invisible};
pub use seq::{LogGeneration, Seq};
pub use size::ByteCount;
