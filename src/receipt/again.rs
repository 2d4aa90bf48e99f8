//! A release that is asked for again under the same key gets what it got.

use serde::{Deserialize, Serialize};

use super::{LedgerError, Released, ledger};
use crate::{
    control::{Recalled, Tx},
    journal::Once,
    model::{InteractionHandle, ReceiptHandle},
    seal::SealKey,
};

/// One file of an answer, as it is kept: the rest is read where it stands.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kept {
    Receipt(String),
    Ask(String),
}

impl Kept {
    pub(super) fn read(self, tx: &Tx<'_>, key: &SealKey) -> Result<Released, LedgerError> {
        let damaged = |what: &str| LedgerError::Corrupt(format!("a kept answer names `{what}`"));
        match self {
            Self::Receipt(text) => {
                let handle = ReceiptHandle::parse(&text).map_err(|_not_ours| damaged(&text))?;
                ledger::receipt(tx, handle, key).map(Released::Now)
            }
            Self::Ask(text) => {
                let handle = InteractionHandle::parse(&text).map_err(|_not_ours| damaged(&text))?;
                ledger::asked(tx, handle).map(Released::Asked)
            }
        }
    }
}

fn scope(once: &Once) -> String {
    format!("{} release", once.who)
}

/// What the request of this key got.
pub(super) fn recall(tx: &Tx<'_>, once: &Once) -> Result<Option<Vec<Kept>>, LedgerError> {
    match tx.recall(&scope(once), once.key.as_str(), &once.asked)? {
        Recalled::New => Ok(None),
        Recalled::Other => Err(LedgerError::KeyReused),
        Recalled::Same(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| LedgerError::Corrupt(format!("a kept answer: {error}"))),
    }
}

/// Keeps what a request got, in the transaction that gives it.
pub(super) fn remember(tx: &Tx<'_>, once: &Once, all: &[Released]) -> Result<(), LedgerError> {
    let kept: Vec<Kept> = all
        .iter()
        .map(|one| match one {
            Released::Now(receipt) => Kept::Receipt(receipt.statement.receipt.to_string()),
            Released::Asked(ask) => Kept::Ask(ask.handle.to_string()),
        })
        .collect();
    let text = serde_json::to_string(&kept)
        .map_err(|error| LedgerError::Corrupt(format!("an answer: {error}")))?;
    tx.keep(&scope(once), once.key.as_str(), &once.asked, &text)?;
    Ok(())
}
