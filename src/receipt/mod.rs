//! What was released: asks that wait for a decision, and statements about finished work.
//!
//! Promises: a receipt stands only for content that is durable (I5), and for the exact bytes that
//! were decided on (I7); an ask is settled once, in the transaction that makes its receipt; a
//! statement has one spelling and a seal, so that it can be checked away from the server. Leaves to
//! others: reading files (`pinned`), keeping their bytes (`store`), who may ask and decide
//! (`access`).

#![forbid(unsafe_code)]

mod again;
mod claims;
mod error;
mod ledger;
mod statement;

pub(crate) use claims::ended;
pub use claims::{Claims, Loose};
pub use error::{DecideError, LedgerError};
pub use ledger::{
    Answer, Ask, Booked, Bounds, Decision, Ended, Ledger, Outcome, Receipt, Released, Wanted,
};
pub use statement::{Draft, Item, KIND, ParseStatementError, Reading, Statement, check};
