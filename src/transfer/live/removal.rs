//! The end of a session: what waits in it is withdrawn, nobody finds it any more, its bytes go.

use std::sync::Arc;

use super::{Live, Signal, frames};
use crate::{
    access::{AccessError, Grant, Principal, RemoveSession},
    journal::JournalError,
    model::{PrincipalId, SessionHandle},
    pool::PoolError,
    receipt::Ended,
    removal,
    transfer::{TransferError, recorded, release},
};

impl Live {
    /// Removes a session, and tells those who could read it. Goes on to its end even when the caller goes
    /// away. A decision about one of its releases comes wholly before this, or finds no session (I7).
    ///
    /// What could not be taken from the disk now is at a later call of [`release::sweep`].
    ///
    /// # Errors
    /// [`TransferError::Access`] with `Hidden` when it is gone already; [`TransferError::Journal`]. The
    /// session is as it was then, but for live questions, which have ended.
    pub async fn remove(
        self: &Arc<Self>,
        grant: Grant<RemoveSession>,
        caller: &Principal,
    ) -> Result<(), TransferError> {
        let (live, who) = (Arc::clone(self), caller.id);
        tokio::spawn(async move { live.remove_in_order(&grant, who).await })
            .await
            .unwrap_or(Err(TransferError::Pool(PoolError::Gone)))
    }

    async fn remove_in_order(
        self: Arc<Self>,
        grant: &Grant<RemoveSession>,
        who: PrincipalId,
    ) -> Result<(), TransferError> {
        let session = grant.session();
        let order = self.order(session).await;
        self.disconnect(session);
        self.audit_in_order(session).await;
        let live = Arc::clone(&self);
        let removing = move || live.in_line(session, || live.remove_now(session, who));
        self.blocking(removing).await?;
        self.desks.forget(session);
        drop(order);
        release::sweep(&self.parts).await;
        Ok(())
    }

    /// The removal itself, between any two other pieces of work about the session. Blocks.
    fn remove_now(&self, session: SessionHandle, who: PrincipalId) -> Result<(), TransferError> {
        let parts = &self.parts;
        // Afterwards nobody is known to ask.
        let (mut audience, host) = parts.access.people(session)?;
        audience.extend(host);
        let withdrawn = removal::remove(&parts.control, session).map_err(JournalError::from)?;
        let withdrawn = withdrawn.ok_or(AccessError::Hidden)?;
        // Where the trail has no room this goes on: it gives nothing out, and may make the room.
        recorded::removed(&parts.audit, who, session);
        let ended = withdrawn.into_iter().map(|handle| Ended {
            session,
            handle,
            outcome: "withdrawn",
        });
        let ended: Vec<_> = ended.collect();
        recorded::lapsed(&parts.audit, &ended);
        let told = ended.iter().map(Self::over);
        let told = told.chain([frames::signal(session, &Signal::Removed)]);
        for frame in told {
            self.state().hub.publish(&audience, frame);
        }
        Ok(())
    }
}
