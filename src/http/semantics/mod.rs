//! What HTTP header fields mean: one small type per field, and the plan of a download's answer.
//!
//! Promises: every function here is pure and total, allocates in proportion to a request head at
//! most, and never takes a malformed wish for a demand (a bad `Range` is ignored, as the standard
//! says). Leaves to others: who asks (`access`), which bytes (`store::verified`), the fields that
//! every answer carries whatever it says (`http`'s outer layer).

#![forbid(unsafe_code)]
#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing
)]

mod accept;
mod authority;
mod digest_field;
mod disposition;
mod framing;
mod head;
mod multipart;
mod plan;
mod precondition;
mod range;
mod structured;

pub use accept::{ProblemForm, problem_form};
pub use authority::{AuthorityError, Host, MAX_TARGET, check_target};
pub use digest_field::{
    DigestFieldError, Wish, claimed_digest, legacy_digest, repr_digest, wish, wish_legacy,
};
pub use disposition::attachment;
pub use framing::{Coding, HeadScan, Scanned, coding};
pub use head::{HeadError, check_head};
pub use multipart::{Multipart, Part};
pub use plan::{Cache, Content, Object, Plan, Verb, plan};
pub use precondition::{EntityTag, IfRange, Outcome, evaluate, if_range};
pub use range::{ByteRange, MAX_RANGES, Selection, content_range, select, unsatisfied_range};

/// Blanks around a list element: `OWS` of RFC 9110 section 5.6.3.
pub(crate) fn trim_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}
