//! Can an attacker who writes beneath a root make a read of it give out what is not inside, hang,
//! or mix two contents?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests build their own directories, attack them by name, and stop at what is wrong"
)]

mod arena;
mod child;
mod deterministic;
mod environment;
mod filter;
mod long;
mod mapping;
mod path_cases;
mod probe;
mod reports;
mod stability;
