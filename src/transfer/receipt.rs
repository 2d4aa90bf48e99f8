//! J1 for what was released: a receipt, and the content it vouches for.

use super::{Parts, TransferError, attachment::Opened};
use crate::{
    access::{Access, AccessError, Grant, Principal, ReadSession},
    model::{AttachmentRef, ReceiptHandle},
    receipt::{Ledger, LedgerError, Receipt},
};

/// Finds a receipt of a session the caller may read.
///
/// # Errors
/// [`TransferError::Access`] when there is none for this caller: absent and foreign are one (I9).
/// [`TransferError::Ledger`] when it is not what was written.
pub async fn find(
    parts: &Parts,
    caller: &Principal,
    handle: ReceiptHandle,
) -> Result<(Receipt, Grant<AttachmentRef>), TransferError> {
    let (access, ledger, caller) = (parts.access.clone(), parts.ledger.clone(), caller.clone());
    let looking = move || {
        let receipt = known(&ledger, handle)?;
        let session = access.read_session(&caller, receipt.statement.released.session)?;
        let granted = access.released(&session, &receipt)?;
        Ok((receipt, granted))
    };
    parts.pools.control.run(looking).await?
}

/// A receipt of a session the caller was granted, and what it vouches for. Blocks.
pub(super) fn granted(
    access: &Access,
    ledger: &Ledger,
    session: &Grant<ReadSession>,
    handle: ReceiptHandle,
) -> Result<(Receipt, Grant<AttachmentRef>), TransferError> {
    let receipt = known(ledger, handle)?;
    let granted = access.released(session, &receipt)?;
    Ok((receipt, granted))
}

fn known(ledger: &Ledger, handle: ReceiptHandle) -> Result<Receipt, TransferError> {
    match ledger.receipt(handle) {
        Err(LedgerError::NotFound) => Err(AccessError::Hidden.into()),
        found => Ok(found?),
    }
}

/// Opens what a receipt vouches for, to be verified and sent as any attachment is.
///
/// # Errors
/// As [`find`]; [`TransferError::Store`] when the content is lost or damaged.
pub async fn open(
    parts: &Parts,
    caller: &Principal,
    handle: ReceiptHandle,
) -> Result<Opened, TransferError> {
    let (_receipt, granted) = find(parts, caller, handle).await?;
    let store = parts.store.clone();
    let opening = move || Opened::of(granted, store.as_ref());
    parts.pools.files.run(opening).await?
}
