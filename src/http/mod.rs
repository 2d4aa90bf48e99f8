//! The only place that knows HTTP: turns requests into model values, calls a journey, renders.
//!
//! Promises: every route goes through the same access check (I10); what may not be seen answers like
//! what is not there (I9); every answer, errors included, carries the security fields (I13). Leaves
//! to others: deciding (`access`), moving bytes (`transfer`).

#![forbid(unsafe_code)]

pub mod semantics;
pub mod server;
