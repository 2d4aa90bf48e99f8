//! A whole log read again, for whoever wants to know that it is what was written.

use super::{Parts, TransferError};
use crate::{access::Principal, journal::Audited, model::SessionHandle};

/// Reads the session's log against its hash chain. `None` for a session of a home, whose log has none.
///
/// # Errors
/// [`TransferError::Access`] when the caller may not read it; [`TransferError::Journal`] with the first
/// row that is wrong.
pub async fn verify(
    parts: &Parts,
    who: &Principal,
    session: SessionHandle,
) -> Result<Option<Audited>, TransferError> {
    let (access, journal, who) = (parts.access.clone(), parts.journal.clone(), who.clone());
    let reading = move || {
        let grant = access.read_session(&who, session)?;
        if !access.is_native(&grant)? {
            return Ok(None);
        }
        Ok(Some(journal.verify(grant.session())?))
    };
    parts.pools.store.run_in_turn(reading).await?
}
