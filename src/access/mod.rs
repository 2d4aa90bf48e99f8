//! Who is asking, which sessions are theirs, and what they may do with them.
//!
//! Promises: [`Grant`] is the only way on, and only this module makes one; ownership is by exact id;
//! absent and foreign are one answer, reached by the same questions (I9); secrets are kept as
//! digests and never shown (I14). Leaves to others: what a grant is used for (`transfer`).

#![forbid(unsafe_code)]

mod error;
mod grant;
mod principal;
mod ticket;
mod token;

use std::{sync::Arc, time::Duration};

pub use error::AccessError;
pub use grant::{
    AppendToSession, AskInSession, DecideInSession, DeliverableRef, Grant, ReadSession,
    ReleaseFromSession, RemoveSession, SubmitToSession, UploadToSession,
};
pub use principal::{ParsePrincipalNameError, Principal, PrincipalKind, PrincipalName};
use rusqlite::{Connection, OptionalExtension, Row, params};
pub use ticket::{Asked, MOST_USES, Terms, Ticket, TicketInfo, TicketUse, Wanted};
pub(crate) use token::random_bits;
pub use token::{Issued, LoginCode, TicketSecret, Token, TokenInfo, TokenNumber};

use crate::{
    control::{Control, ControlError},
    journal::{Source, native::SOURCE as NATIVE},
    model::{
        AttachmentId, AttachmentKind, AttachmentRef, Clock, FileName, LogGeneration, PrincipalId,
        Seq, SessionHandle, Timestamp,
    },
    receipt::Receipt,
};

/// How long a token that ended or was revoked stays in the list, in milliseconds: 30 days.
const ENDED_FOR: i64 = 30 * 24 * 60 * 60 * 1000;

/// Principals, their secrets, and the rules over sessions.
///
/// Every call blocks; the service makes them from a bounded pool.
#[derive(Debug)]
pub struct Access {
    control: Arc<Control>,
    sessions: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
}

/// What one principal is to one session, as one query says it.
struct Standing {
    native: bool,
    host: bool,
    owner: bool,
}

/// Which roots' probe reports a caller may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeView {
    /// All of them.
    Every,
    /// Those in which a session of the caller lies.
    Own,
}

impl Access {
    /// Access by what `control` records, to the sessions of `sessions`.
    #[must_use]
    pub fn new(control: Arc<Control>, sessions: Arc<dyn Source>, clock: Arc<dyn Clock>) -> Self {
        Self {
            control,
            sessions,
            clock,
        }
    }

    /// Who holds this bearer token, and its number.
    ///
    /// # Errors
    /// [`AccessError::Unauthenticated`] when nobody does, or the token has ended or been revoked, or
    /// its principal is disabled.
    pub fn authenticate(&self, bearer: &str) -> Result<(Principal, TokenNumber), AccessError> {
        let token = Token::parse(bearer).ok_or(AccessError::Unauthenticated)?;
        let (fingerprint, now) = (token.fingerprint(), self.clock.now());
        let found = self.control.read(|conn| {
            conn.prepare_cached(
                "SELECT t.hash, t.expires_at, t.id, p.id, p.kind, p.name
                 FROM tokens t JOIN principals p ON p.id = t.principal
                 WHERE t.hash = ?1 AND t.revoked_at IS NULL AND p.disabled_at IS NULL",
            )?
            .query_row([fingerprint.as_bytes().as_slice()], |row| {
                let hash: Vec<u8> = row.get(0)?;
                let ends: Option<i64> = row.get(1)?;
                let number = TokenNumber::new(row.get(2)?);
                Ok((hash, ends, (principal(row, 3)?, number)))
            })
            .optional()
            .map_err(ControlError::from)
        })?;
        match found {
            Some((hash, ends, holder))
                if fingerprint.is(&hash) && ends.is_none_or(|end| now.as_millis() < end) =>
            {
                Ok(holder)
            }
            _ => Err(AccessError::Unauthenticated),
        }
    }

    /// Redeems a one-time sign-in code for a token that lives for `life`. A second call of the same
    /// code gets nothing.
    ///
    /// # Errors
    /// [`AccessError::Unauthenticated`] when the code was redeemed, has ended, or never was.
    pub fn redeem(&self, code: &str, life: Duration) -> Result<(Principal, Issued), AccessError> {
        let code = LoginCode::parse(code).ok_or(AccessError::Unauthenticated)?;
        let (fingerprint, now) = (code.fingerprint(), self.clock.now());
        let token = Token::draw()?;
        let new = token.fingerprint();
        let expires_at = now.after(life);
        let (who, number) = self.control.write(move |tx| {
            // Redeeming and finding are one statement: two redeemers cannot both get a row.
            let principal_id: Option<String> = tx
                .query_row(
                    "UPDATE login_codes SET redeemed_at = ?2
                     WHERE hash = ?1 AND redeemed_at IS NULL AND expires_at > ?2
                     RETURNING principal",
                    params![fingerprint.as_bytes().as_slice(), now.as_millis()],
                    |row| row.get(0),
                )
                .optional()
                .map_err(ControlError::from)?;
            let principal_id = principal_id.ok_or(AccessError::Unauthenticated)?;
            let who = enabled(tx, &principal_id)?.ok_or(AccessError::Unauthenticated)?;
            let number = insert_token(tx, &new, who.id, "signed in", now, Some(expires_at))?;
            Ok::<_, AccessError>((who, number))
        })?;
        Ok((
            who,
            Issued {
                token,
                number,
                expires_at: Some(expires_at),
            },
        ))
    }

    /// A grant to read the session: for its owners and for the host that created it.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] for everybody else, whether the session exists or not.
    pub fn read_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<ReadSession>, AccessError> {
        self.standing(who, session)?;
        Ok(Grant::passed(ReadSession::new(session)))
    }

    /// A grant to upload to the session: for those who may read it, where the session is ours to
    /// write.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] as [`Access::read_session`]; [`AccessError::Denied`] for a session of a
    /// read-only source.
    pub fn upload_to_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<UploadToSession>, AccessError> {
        if !self.standing(who, session)?.native {
            return Err(AccessError::Denied);
        }
        Ok(Grant::passed(UploadToSession::new(session)))
    }

    /// A grant to append to the session's log: for the host that created it alone.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] as [`Access::read_session`]; [`AccessError::Denied`] for an owner who
    /// is not the host, and for a session of a read-only source.
    pub fn append_to_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<AppendToSession>, AccessError> {
        let standing = self.standing(who, session)?;
        if !(standing.native && standing.host) {
            return Err(AccessError::Denied);
        }
        Ok(Grant::passed(AppendToSession::new(session)))
    }

    /// A grant to remove the session: for the host that created it alone.
    ///
    /// # Errors
    /// As [`Access::append_to_session`].
    pub fn remove_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<RemoveSession>, AccessError> {
        self.append_to_session(who, session)?;
        Ok(Grant::passed(RemoveSession::new(session)))
    }

    /// A grant to submit a message to the session: for those who may upload to it.
    ///
    /// # Errors
    /// As [`Access::upload_to_session`].
    pub fn submit_to_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<SubmitToSession>, AccessError> {
        self.upload_to_session(who, session)?;
        Ok(Grant::passed(SubmitToSession::new(session)))
    }

    /// A grant to put something to the session's people: for the host that created it alone.
    ///
    /// # Errors
    /// As [`Access::append_to_session`].
    pub fn ask_in_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<AskInSession>, AccessError> {
        self.append_to_session(who, session)?;
        Ok(Grant::passed(AskInSession::new(session)))
    }

    /// A grant to answer for the session: for its owners alone. A host does not answer itself.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] as [`Access::read_session`]; [`AccessError::Denied`] for a host, and for
    /// a session of a read-only source.
    pub fn decide_in_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<DecideInSession>, AccessError> {
        let standing = self.standing(who, session)?;
        if !(standing.native && standing.owner) {
            return Err(AccessError::Denied);
        }
        Ok(Grant::passed(DecideInSession::new(session)))
    }

    /// Whether the session is ours to write, and so to choose for.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] when the database cannot be asked.
    pub fn is_native(&self, session: &Grant<ReadSession>) -> Result<bool, AccessError> {
        let handle = session.session().to_string();
        let source: Option<String> = self.control.read(|conn| {
            conn.prepare_cached("SELECT source FROM sessions WHERE handle = ?1")?
                .query_row([handle], |row| row.get(0))
                .optional()
                .map_err(ControlError::from)
        })?;
        Ok(source.as_deref() == Some(NATIVE))
    }

    /// A grant to say what leaves the session: for its owners alone, whatever source it is of. The host
    /// that runs it writes what would be decided about, so it does not decide.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] as [`Access::read_session`]; [`AccessError::Denied`] for the host.
    pub fn release_from_session(
        &self,
        who: &Principal,
        session: SessionHandle,
    ) -> Result<Grant<ReleaseFromSession>, AccessError> {
        if !self.standing(who, session)?.owner {
            return Err(AccessError::Denied);
        }
        Ok(Grant::passed(ReleaseFromSession::new(session)))
    }

    /// The session's owners, and its host where it has one.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] when the database cannot be asked.
    pub fn people(
        &self,
        session: SessionHandle,
    ) -> Result<(Vec<PrincipalId>, Option<PrincipalId>), AccessError> {
        let session = session.to_string();
        let found = self.control.read(|conn| {
            let owners = conn
                .prepare_cached(
                    "SELECT o.principal FROM session_owners o JOIN sessions s ON s.id = o.session
                     WHERE s.handle = ?1",
                )?
                .query_map([&session], |row| parsed(row, 0, PrincipalId::parse))?
                .collect::<Result<_, _>>()?;
            let host = conn
                .prepare_cached("SELECT host FROM sessions WHERE handle = ?1 AND host <> ''")?
                .query_row([&session], |row| parsed(row, 0, PrincipalId::parse))
                .optional()?;
            Ok::<_, ControlError>((owners, host))
        })?;
        Ok(found)
    }

    /// A grant on an attachment: on the session's own reference to it, under `name` where one is
    /// given. Knowing a digest is not a right to the bytes (I1).
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when the session's log has no such reference.
    pub fn attachment(
        &self,
        session: &Grant<ReadSession>,
        id: AttachmentId,
        name: Option<&FileName>,
    ) -> Result<Grant<AttachmentRef>, AccessError> {
        let reference = self.sessions.reference(session.session(), id, name)?;
        Ok(Grant::passed(reference))
    }

    /// A grant on a file the session declares, named by its place in the log alone (I1).
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when nothing is declared there; [`AccessError::Journal`] with
    /// `StaleGeneration` when the log was renumbered.
    pub fn deliverable(
        &self,
        session: &Grant<ReadSession>,
        generation: LogGeneration,
        seq: Seq,
        index: u32,
    ) -> Result<Grant<DeliverableRef>, AccessError> {
        let handle = session.session();
        let cwd = self.sessions.session(handle)?.cwd;
        let declared = self.sessions.declared_at(handle, generation, seq, index)?;
        Ok(Grant::passed(DeliverableRef::new(handle, cwd, declared)))
    }

    /// A grant on what a receipt of the session's says was released.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when the receipt is of another session.
    pub fn released(
        &self,
        session: &Grant<ReadSession>,
        receipt: &Receipt,
    ) -> Result<Grant<AttachmentRef>, AccessError> {
        let released = &receipt.statement.released;
        if released.session != session.session() {
            return Err(AccessError::Hidden);
        }
        Ok(Grant::passed(AttachmentRef {
            id: released.id,
            name: Some(released.name.clone()),
            bytes: released.bytes,
            kind: AttachmentKind::File,
        }))
    }

    /// Whether the caller may create sessions.
    ///
    /// # Errors
    /// [`AccessError::Denied`] for everybody but a host.
    pub fn may_create_sessions(&self, who: &Principal) -> Result<(), AccessError> {
        match who.kind {
            PrincipalKind::Host => Ok(()),
            PrincipalKind::Operator | PrincipalKind::User => Err(AccessError::Denied),
        }
    }

    /// Which roots' probe reports the caller may see.
    ///
    /// # Errors
    /// [`AccessError::Denied`] for a host.
    pub fn probe_view(&self, who: &Principal) -> Result<ProbeView, AccessError> {
        match who.kind {
            PrincipalKind::Operator => Ok(ProbeView::Every),
            PrincipalKind::User => Ok(ProbeView::Own),
            PrincipalKind::Host => Err(AccessError::Denied),
        }
    }

    /// Checks that every one of `owners` is a user of this service.
    ///
    /// # Errors
    /// [`AccessError::UnknownOwner`] when one is not.
    pub fn known_owners(&self, owners: &[PrincipalId]) -> Result<(), AccessError> {
        self.control.read(|conn| {
            for owner in owners {
                match enabled(conn, &owner.to_string())? {
                    Some(principal) if principal.kind == PrincipalKind::User => {}
                    _ => return Err(AccessError::UnknownOwner),
                }
            }
            Ok(())
        })
    }

    /// The caller's own sessions, newest first: at most `limit`, after the one named `after`.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when `after` is not one of them.
    pub fn sessions(
        &self,
        who: &Principal,
        after: Option<SessionHandle>,
        limit: u32,
    ) -> Result<Vec<SessionHandle>, AccessError> {
        // What the caller may see, from the two indexes that know it. The row number is unique and
        // grows with time, so it is the order and the place to go on from.
        const OWN: &str = "
            WITH own (id) AS (
                SELECT session FROM session_owners WHERE principal = ?1
                UNION SELECT id FROM sessions WHERE source = 'native' AND host = ?1)
            SELECT s.id, s.handle FROM own JOIN sessions s ON s.id = own.id";
        let id = who.id.to_string();
        self.control.read(|conn| {
            let mut before = i64::MAX;
            if let Some(after) = after {
                let at: Option<i64> = conn
                    .prepare_cached(&format!("{OWN} WHERE s.handle = ?2"))
                    .and_then(|mut query| {
                        query
                            .query_row(params![id, after.to_string()], |row| row.get(0))
                            .optional()
                    })
                    .map_err(ControlError::from)?;
                before = at.ok_or(AccessError::Hidden)?;
            }
            conn.prepare_cached(&format!(
                "{OWN} WHERE s.id < ?2 ORDER BY s.id DESC LIMIT ?3"
            ))
            .and_then(|mut query| {
                query
                    .query_map(params![id, before, limit], |row| handle(row, 1))?
                    .collect()
            })
            .map_err(|e| ControlError::from(e).into())
        })
    }

    /// What the caller is to the session; one question, whatever the answer.
    fn standing(&self, who: &Principal, session: SessionHandle) -> Result<Standing, AccessError> {
        let (id, session) = (who.id.to_string(), session.to_string());
        self.control
            .read(|conn| standing(conn, &id, &session))?
            .ok_or(AccessError::Hidden)
    }
}

/// Keeping principals and their secrets: for the operator's own commands.
impl Access {
    /// Makes a principal.
    ///
    /// # Errors
    /// [`AccessError::Refused`] when the name is taken.
    pub fn create_principal(
        &self,
        kind: PrincipalKind,
        name: PrincipalName,
    ) -> Result<Principal, AccessError> {
        let id = PrincipalId::from_random(random_bits()?);
        let now = self.clock.now();
        self.control.write(move |tx| {
            let new = tx
                .execute(
                    "INSERT INTO principals (id, kind, name, created_at) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (name) DO NOTHING",
                    params![
                        id.to_string(),
                        kind.as_str(),
                        name.as_str(),
                        now.as_millis()
                    ],
                )
                .map_err(ControlError::from)?;
            if new == 0 {
                return Err(AccessError::Refused("a principal of this name exists"));
            }
            Ok(Principal { id, kind, name })
        })
    }

    /// All principals, by name.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] when the database cannot be asked.
    pub fn principals(&self) -> Result<Vec<Principal>, AccessError> {
        let all = self.control.read(|conn| {
            conn.prepare_cached("SELECT id, kind, name FROM principals ORDER BY name")
                .and_then(|mut query| query.query_map([], |row| principal(row, 0))?.collect())
                .map_err(ControlError::from)
        })?;
        Ok(all)
    }

    /// The principal of this name.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when there is none.
    pub fn principal_named(&self, name: &PrincipalName) -> Result<Principal, AccessError> {
        self.control
            .read(|conn| {
                conn.prepare_cached("SELECT id, kind, name FROM principals WHERE name = ?1")
                    .and_then(|mut query| {
                        query
                            .query_row([name.as_str()], |row| principal(row, 0))
                            .optional()
                    })
                    .map_err(ControlError::from)
            })?
            .ok_or(AccessError::Hidden)
    }

    /// Makes a token for a principal, valid for `life` or until it is revoked.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when there is no such principal, or it is disabled.
    pub fn issue_token(
        &self,
        principal: PrincipalId,
        label: &str,
        life: Option<Duration>,
    ) -> Result<Issued, AccessError> {
        let token = Token::draw()?;
        let (fingerprint, now) = (token.fingerprint(), self.clock.now());
        let expires_at = life.map(|life| now.after(life));
        let label = label.to_owned();
        let number = self.control.write(move |tx| {
            enabled(tx, &principal.to_string())?.ok_or(AccessError::Hidden)?;
            insert_token(tx, &fingerprint, principal, &label, now, expires_at)
        })?;
        Ok(Issued {
            token,
            number,
            expires_at,
        })
    }

    /// Every token, newest first; without its secret, which nobody has.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] when the database cannot be asked.
    pub fn tokens(&self) -> Result<Vec<TokenInfo>, AccessError> {
        let all = self.control.read(|conn| {
            conn.prepare_cached(
                "SELECT id, principal, label, created_at, expires_at, revoked_at
                 FROM tokens ORDER BY id DESC",
            )
            .and_then(|mut query| {
                query
                    .query_map([], |row| {
                        Ok(TokenInfo {
                            number: TokenNumber::new(row.get(0)?),
                            principal: parsed(row, 1, PrincipalId::parse)?,
                            label: row.get(2)?,
                            created_at: Timestamp::from_millis(row.get(3)?),
                            expires_at: row.get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
                            revoked_at: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
                        })
                    })?
                    .collect()
            })
            .map_err(ControlError::from)
        })?;
        Ok(all)
    }

    /// Ends a token now; ending it twice is one ending.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when there is no such token.
    pub fn revoke_token(&self, number: TokenNumber) -> Result<(), AccessError> {
        let now = self.clock.now();
        self.control.write(move |tx| {
            let found = tx
                .execute(
                    "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1",
                    params![number.get(), now.as_millis()],
                )
                .map_err(ControlError::from)?;
            if found == 0 {
                return Err(AccessError::Hidden);
            }
            Ok(())
        })
    }

    /// Makes a one-time sign-in code for a principal, valid for `life`.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when there is no such principal, or it is disabled.
    pub fn issue_login_code(
        &self,
        principal: PrincipalId,
        life: Duration,
    ) -> Result<LoginCode, AccessError> {
        let code = LoginCode::draw()?;
        let (fingerprint, now) = (code.fingerprint(), self.clock.now());
        self.control.write(move |tx| {
            enabled(tx, &principal.to_string())?.ok_or(AccessError::Hidden)?;
            // Codes that ended are of no use to anybody; the table holds the living ones.
            tx.execute(
                "DELETE FROM login_codes WHERE expires_at <= ?1",
                [now.as_millis()],
            )
            .and_then(|_| {
                tx.execute(
                    "INSERT INTO login_codes (hash, principal, created_at, expires_at)
                         VALUES (?1, ?2, ?3, ?4)",
                    params![
                        fingerprint.as_bytes().as_slice(),
                        principal.to_string(),
                        now.as_millis(),
                        now.after(life).as_millis(),
                    ],
                )
            })
            .map_err(|e| AccessError::from(ControlError::from(e)))
        })?;
        Ok(code)
    }
}

/// What the principal of this id is to the session of this handle: nothing, unless it is its host or
/// an owner.
fn standing(conn: &Connection, id: &str, session: &str) -> Result<Option<Standing>, AccessError> {
    let standing = conn
        .prepare_cached(
            "SELECT s.source, s.host = ?2, EXISTS (
                 SELECT 1 FROM session_owners o WHERE o.session = s.id AND o.principal = ?2)
             FROM sessions s WHERE s.handle = ?1",
        )
        .and_then(|mut query| {
            query
                .query_row(params![session, id], |row| {
                    let source: String = row.get(0)?;
                    Ok(Standing {
                        native: source == NATIVE,
                        host: row.get(1)?,
                        owner: row.get(2)?,
                    })
                })
                .optional()
        })
        .map_err(ControlError::from)?;
    // A host's or owner's kind is not asked again: the row says what this exact id may do.
    Ok(standing.filter(|standing| standing.host || standing.owner))
}

fn insert_token(
    conn: &Connection,
    fingerprint: &token::Fingerprint,
    principal: PrincipalId,
    label: &str,
    now: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<TokenNumber, AccessError> {
    conn.execute(
        "INSERT INTO tokens (hash, principal, label, created_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            fingerprint.as_bytes().as_slice(),
            principal.to_string(),
            label,
            now.as_millis(),
            expires_at.map(Timestamp::as_millis),
        ],
    )
    .map_err(ControlError::from)?;
    let number = TokenNumber::new(conn.last_insert_rowid());
    // After the new one is in, so that no number is given twice. A ticket names the token it came from.
    conn.execute(
        "DELETE FROM tokens
         WHERE min(coalesce(expires_at, revoked_at), coalesce(revoked_at, expires_at)) <= ?1
           AND NOT EXISTS (SELECT 1 FROM tickets WHERE token = tokens.id)",
        [now.as_millis().saturating_sub(ENDED_FOR)],
    )
    .map_err(ControlError::from)?;
    Ok(number)
}

/// The principal of this id, unless it is disabled.
fn enabled(conn: &Connection, id: &str) -> Result<Option<Principal>, AccessError> {
    conn.prepare_cached(
        "SELECT id, kind, name FROM principals WHERE id = ?1 AND disabled_at IS NULL",
    )
    .and_then(|mut query| query.query_row([id], |row| principal(row, 0)).optional())
    .map_err(|e| ControlError::from(e).into())
}

/// A principal from three columns starting at `first`.
fn principal(row: &Row<'_>, first: usize) -> rusqlite::Result<Principal> {
    let kind: String = row.get(first + 1)?;
    Ok(Principal {
        id: parsed(row, first, PrincipalId::parse)?,
        kind: PrincipalKind::parse(&kind)
            .ok_or_else(|| damaged(first + 1, "a principal's kind"))?,
        name: parsed(row, first + 2, PrincipalName::parse)?,
    })
}

fn handle(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionHandle> {
    parsed(row, column, SessionHandle::parse)
}

fn parsed<T, E>(
    row: &Row<'_>,
    column: usize,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    parse(text).map_err(|_not_ours| damaged(column, "a value we wrote"))
}

/// A column that does not hold what was written there.
fn damaged(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        column,
        rusqlite::types::Type::Text,
        format!("{what} cannot be read back").into(),
    )
}
