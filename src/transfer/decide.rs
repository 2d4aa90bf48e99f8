//! J2's second half: somebody says yes or no to exactly the bytes they were shown.

use std::sync::Arc;

use super::{Parts, TransferError, live::Live, recorded, release};
use crate::{
    access::Principal,
    model::SessionHandle,
    receipt::{Answer, Ask, Decision, Outcome},
};

/// The releases of a session that wait for a decision, oldest first.
///
/// # Errors
/// [`TransferError::Access`] when the caller may not read the session; [`TransferError::Ledger`].
pub async fn waiting(
    parts: &Parts,
    caller: &Principal,
    session: SessionHandle,
) -> Result<Vec<Ask>, TransferError> {
    let (access, ledger, caller) = (parts.access.clone(), parts.ledger.clone(), caller.clone());
    let looking = move || {
        let session = access.read_session(&caller, session)?;
        Ok(ledger.asks(session.session())?)
    };
    parts.pools.control.run(looking).await?
}

/// Settles a release (I7), and tells of it. After a no its copy leaves the store, unless something else needs it.
///
/// # Errors
/// [`TransferError::Access`] when the caller may not decide for the session;
/// [`TransferError::Decide`] when the answer does not fit; nothing has changed then.
pub async fn settle(
    live: &Arc<Live>,
    parts: &Parts,
    caller: &Principal,
    answer: Answer,
) -> Result<Outcome, TransferError> {
    let (live, own, caller) = (Arc::clone(live), parts.clone(), caller.clone());
    let settling = move || {
        own.access.release_from_session(&caller, answer.session)?;
        let outcome = live.in_line(answer.session, || {
            if answer.decision == Decision::AllowedOnce {
                own.audit.ready()?;
            }
            let outcome = own.ledger.decide(answer)?;
            recorded::decided(&own.audit, &answer, &outcome);
            live.tell_decided(&answer, &outcome);
            Ok::<_, TransferError>(outcome)
        })?;
        release::clear(&own);
        Ok(outcome)
    };
    parts.pools.store.run_in_turn(settling).await?
}
