//! J1 for whoever holds a ticket: the way of [`attachment`], in the right of the ticket's maker.

use std::sync::Arc;

use super::{Parts, TransferError, attachment, receipt};
use crate::{
    access::{
        AccessError, Asked, Grant, Principal, ReadSession, Terms, Ticket, TicketInfo, TicketSecret,
        TicketUse, TokenNumber, Wanted,
    },
    model::{AttachmentId, FileName, ReceiptHandle, SessionHandle},
};

/// What a ticket is asked for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The session that refers to the content.
    pub session: SessionHandle,
    /// The content.
    pub id: AttachmentId,
    /// The name under which the session refers to it; the first one when absent.
    pub name: Option<FileName>,
    /// The receipt that released it, where no event refers to it.
    pub receipt: Option<ReceiptHandle>,
    /// What the ticket is to be like.
    pub terms: Terms,
}

/// Makes a ticket for an attachment the caller may have.
///
/// # Errors
/// [`TransferError::Access`] as for the attachment itself, and when the caller has too many tickets.
pub async fn make(
    parts: &Parts,
    caller: Principal,
    token: Option<TokenNumber>,
    wish: Wish,
) -> Result<(TicketSecret, TicketInfo), TransferError> {
    let (access, ledger) = (parts.access.clone(), parts.ledger.clone());
    let making = move || {
        let session: Grant<ReadSession> = access.read_session(&caller, wish.session)?;
        let reference = match wish.receipt {
            None => access.attachment(&session, wish.id, wish.name.as_ref())?,
            Some(receipt) => receipt::granted(&access, &ledger, &session, receipt)?.1,
        };
        if reference.id != wish.id {
            return Err(AccessError::Hidden.into());
        }
        let receipt = wish.receipt;
        let made =
            access.issue_ticket(&caller, token, &session, &reference, receipt, wish.terms)?;
        Ok(made)
    };
    parts.pools.control.run(making).await?
}

/// Finds the living ticket of this secret and opens what it is for, as its maker would.
///
/// # Errors
/// [`TransferError::Access`] when there is no such ticket, it can serve nothing like what is asked,
/// or its maker may not have the content any more: one answer (I9). [`TransferError::Store`] as for
/// the attachment itself.
pub async fn open(
    parts: &Parts,
    secret: String,
    asked: Asked,
) -> Result<(Grant<Ticket>, attachment::Opened), TransferError> {
    let (access, grace) = (parts.access.clone(), parts.limits.ticket_grace);
    let showing = move || access.ticket(&secret, asked, grace);
    let ticket = parts.pools.control.run(showing).await??;
    let opened = if let Some(receipt) = ticket.receipt() {
        receipt::open(parts, ticket.maker(), receipt).await?
    } else {
        let (id, name) = (ticket.attachment(), ticket.name().cloned());
        attachment::open(parts, ticket.maker(), ticket.session(), id, name).await?
    };
    Ok((ticket, opened))
}

/// A use of a ticket that an answer draws on, until its last byte is handed over.
///
/// Dropped before that, it gives back what was not sent, and the use can be gone on with.
#[derive(Debug)]
pub struct Use {
    parts: Parts,
    right: Option<Arc<Grant<TicketUse>>>,
    unsent: u64,
    /// Bytes that may leave before the ticket is asked for again.
    trusted: u64,
}

/// How many bytes leave between two looks at the ticket.
const LOOK: u64 = 4 << 20;

impl Use {
    /// Opens the ticket's next use for an answer of `bytes`, or joins an opened one; durable when it
    /// returns.
    ///
    /// # Errors
    /// [`TransferError::Access`] when nothing may be sent by it any more.
    pub async fn open(
        parts: &Parts,
        ticket: Grant<Ticket>,
        wanted: Wanted,
        bytes: u64,
    ) -> Result<Self, TransferError> {
        let own = parts.clone();
        let booking = move || {
            let right = own
                .access
                .open_use(&ticket, wanted, own.limits.ticket_grace)?;
            // Made here, so that an answer nobody waits for any more gives back what was booked.
            Ok::<_, TransferError>(Self {
                parts: own,
                right: Some(Arc::new(right)),
                unsent: bytes,
                trusted: LOOK,
            })
        };
        parts.pools.control.run(booking).await?
    }

    /// Notes that so many bytes are about to leave. Every few MiB the ticket is asked for again; before the
    /// last of them the use is ended, and that is durable.
    ///
    /// # Errors
    /// [`TransferError::Withdrawn`] when the ticket was revoked, or its maker's right ended, under
    /// the transfer.
    pub(super) async fn spend(&mut self, bytes: u64) -> Result<(), TransferError> {
        if bytes < self.unsent {
            if bytes >= self.trusted {
                self.look().await?;
            }
            self.trusted = self.trusted.saturating_sub(bytes);
            self.unsent = self.unsent.saturating_sub(bytes);
            return Ok(());
        }
        let Some(right) = self.right.take() else {
            return Ok(());
        };
        let access = self.parts.access.clone();
        let ending = move || access.end_use(&right);
        let ended = self.parts.pools.control.run_in_turn(ending).await?;
        ended.map_err(|_gone| TransferError::Withdrawn)
    }
}

impl Use {
    /// Asks whether the transfer may go on.
    async fn look(&mut self) -> Result<(), TransferError> {
        self.trusted = LOOK;
        let Some(right) = self.right.clone() else {
            return Ok(());
        };
        let access = self.parts.access.clone();
        let looking = move || access.use_stands(&right);
        let stands = self.parts.pools.control.run_in_turn(looking).await?;
        stands.map_err(|_gone| TransferError::Withdrawn)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let Some(right) = self.right.take() else {
            return;
        };
        let (access, unsent) = (self.parts.access.clone(), self.unsent);
        let giving = move || {
            if let Err(error) = access.give_back(&right, unsent) {
                tracing::warn!(%error, "what a cut transfer did not send counts as sent");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let pool = self.parts.pools.control.clone();
                runtime.spawn(async move { pool.run_in_turn(giving).await });
            }
            // On a thread of the pool, where it may wait.
            Err(_none) => giving(),
        }
    }
}
