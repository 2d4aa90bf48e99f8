//! Can an attacker who writes beneath a root make a read of it give out what is not inside, hang,
//! or mix two contents?
#![expect(
    clippy::disallowed_methods,
    reason = "tests build their own directories and attack them by name"
)]

mod arena;
mod deterministic;
