//! Does anything but a report that speaks of this very host, program and root open the gate?

#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "../support/proven.rs"]
mod proven;
mod reasons;
