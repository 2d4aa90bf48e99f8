//! Tickets: addresses that are a right by themselves, for as long as their maker has that right.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Access, AccessError, Grant, Principal, ReadSession, TicketSecret, TokenNumber, damaged,
    enabled, parsed, principal, random_bits, standing, token::Fingerprint,
};
use crate::{
    control::ControlError,
    model::{
        AttachmentId, AttachmentRef, ByteCount, Digest, FileName, ReceiptHandle, SessionHandle,
        TicketHandle, Timestamp,
    },
};

/// The most uses a ticket can have.
pub const MOST_USES: u32 = 100;

/// How long past its grace a ticket is kept by which a download may be under way: no total time limits
/// a transfer, but what was cut looks the same.
const LONGEST_TRANSFER: Duration = Duration::from_hours(7 * 24);

/// What a new ticket is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long it lasts; never longer than the token it is made with.
    pub life: Duration,
    /// How often its content may be fetched: 1 to [`MOST_USES`].
    pub uses: u32,
    /// The most tickets its maker may have.
    pub most: usize,
    /// How long past its end a ticket is kept for resumes.
    pub grace: Duration,
}

/// A ticket as its maker sees it: everything but the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketInfo {
    /// Its public id.
    pub handle: TicketHandle,
    /// The session whose content it is for.
    pub session: SessionHandle,
    /// The content.
    pub attachment: AttachmentId,
    /// The name under which the session refers to it.
    pub name: Option<FileName>,
    /// The receipt that released the content, where no event refers to it.
    pub receipt: Option<ReceiptHandle>,
    /// The content's length.
    pub bytes: ByteCount,
    /// How often the content may be fetched.
    pub uses: u32,
    /// How often it has been.
    pub opened: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// What a request wants of a ticket, before anything else is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The fields alone: HEAD.
    Fields,
    /// The whole content.
    Whole,
    /// Some of it: GET with a range.
    Ranges,
}

/// What an answer is about to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The whole content, unasked for a part.
    Whole,
    /// So many bytes of it, the first of them at `start`.
    Ranges {
        /// The first byte's offset.
        start: u64,
        /// How many bytes altogether.
        bytes: u64,
    },
}

/// A living ticket somebody showed: what it is for, and in whose right.
#[derive(Debug)]
pub struct Ticket {
    /// Which one it is. Its row's number may be another's once it is gone.
    secret: Fingerprint,
    handle: TicketHandle,
    maker: Principal,
    session: SessionHandle,
    attachment: AttachmentId,
    name: Option<FileName>,
    receipt: Option<ReceiptHandle>,
    time: Time,
}

impl Ticket {
    /// Who made it: its holder may do what they may, with this content alone.
    #[must_use]
    pub const fn maker(&self) -> &Principal {
        &self.maker
    }

    /// Its public id.
    #[must_use]
    pub const fn handle(&self) -> TicketHandle {
        self.handle
    }

    /// The session whose content it is for.
    #[must_use]
    pub const fn session(&self) -> SessionHandle {
        self.session
    }

    /// The content.
    #[must_use]
    pub const fn attachment(&self) -> AttachmentId {
        self.attachment
    }

    /// The name under which the session refers to it.
    #[must_use]
    pub const fn name(&self) -> Option<&FileName> {
        self.name.as_ref()
    }

    /// The receipt that released the content, where no event refers to it.
    #[must_use]
    pub const fn receipt(&self) -> Option<ReceiptHandle> {
        self.receipt
    }

    /// Whether it has ended and is honoured for resumes alone.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.time != Time::Within
    }
}

/// An answer's share in an opened use.
#[derive(Debug)]
pub struct TicketUse {
    ticket: Fingerprint,
    number: u32,
}

/// Where a moment lies in a ticket's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Within,
    Grace,
    Over,
}

impl Time {
    fn at(now: Timestamp, end: Timestamp, grace: Duration) -> Self {
        if now < end {
            Self::Within
        } else if now < end.after(grace) {
            Self::Grace
        } else {
            Self::Over
        }
    }
}

/// An opened use, as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opened {
    number: u32,
    /// What its answers promised, less what those that were cut kept back.
    sent: u64,
    /// Answers that were not seen to end well: under way, or cut.
    running: u32,
    /// Where the furthest of its answers began.
    start: u64,
}

impl Opened {
    /// Whether an answer of so many bytes fits beside what was sent.
    const fn fits(&self, bound: u64, bytes: u64) -> bool {
        self.sent.saturating_add(bytes) <= bound
    }

    /// Whether an answer may have been cut that another can go on with.
    const fn is_resumable(&self, bound: u64) -> bool {
        self.running > 0 && self.sent <= bound
    }

    /// Whether an answer from `start` on goes on with one that was cut, or may have been. It is let
    /// in whole as long as what was sent before is within the bound: how much of that arrived, only
    /// the one who asks can know.
    const fn resumes(&self, bound: u64, start: u64) -> bool {
        self.is_resumable(bound) && start > self.start
    }
}

/// What may still be done by a ticket.
#[derive(Debug)]
struct State {
    time: Time,
    bytes: u64,
    uses: u32,
    /// Latest first.
    opened: Vec<Opened>,
}

/// Where an answer is booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Join(u32),
    Next(u32),
}

impl State {
    /// What one use may send: the content, and a tenth for what resumes send twice.
    const fn bound(&self) -> u64 {
        self.bytes.saturating_add(self.bytes / 10)
    }

    fn next(&self) -> Option<u32> {
        let opened = self.opened.first().map_or(0, |latest| latest.number);
        (opened < self.uses).then(|| opened.saturating_add(1))
    }

    /// Whether there may be something to answer such a request with.
    fn admits(&self, asked: Asked) -> bool {
        let left = self.next().is_some();
        let any =
            |is: fn(&Opened, u64) -> bool| self.opened.iter().any(|one| is(one, self.bound()));
        let resumable = any(Opened::is_resumable);
        let room = resumable || any(|one, bound| one.sent < bound);
        match (self.time, asked) {
            (Time::Within, Asked::Whole) => left,
            (Time::Within, Asked::Fields) => left || resumable,
            (Time::Within, Asked::Ranges) => left || room,
            (Time::Grace, Asked::Ranges) => room,
            (Time::Grace | Time::Over, _) => false,
        }
    }

    /// The use an answer belongs to.
    fn place(&self, wanted: Wanted) -> Option<Place> {
        let bound = self.bound();
        let join = match wanted {
            Wanted::Whole => None,
            Wanted::Ranges { start: 0, .. } if self.time != Time::Within => None,
            Wanted::Ranges { start, bytes } => {
                let mut latest = self.opened.iter();
                latest
                    .find(|one| one.fits(bound, bytes))
                    .or_else(|| self.opened.iter().find(|one| one.resumes(bound, start)))
            }
        };
        match (self.time, join) {
            (Time::Over, _) | (Time::Grace, None) => None,
            (_, Some(one)) => Some(Place::Join(one.number)),
            (Time::Within, None) => self.next().map(Place::Next),
        }
    }
}

impl Access {
    /// Makes a ticket for an attachment the caller may have, in the caller's right: with the token
    /// of this request, where there is one, the ticket ends too.
    ///
    /// # Errors
    /// [`AccessError::TooManyTickets`] when the caller has as many as may be;
    /// [`AccessError::Unauthenticated`] when its right ended meanwhile.
    pub fn issue_ticket(
        &self,
        who: &Principal,
        token: Option<TokenNumber>,
        session: &Grant<ReadSession>,
        reference: &Grant<AttachmentRef>,
        receipt: Option<ReceiptHandle>,
        terms: Terms,
    ) -> Result<(TicketSecret, TicketInfo), AccessError> {
        let secret = TicketSecret::draw()?;
        let fingerprint = secret.fingerprint();
        let handle = TicketHandle::from_random(random_bits()?);
        let (who, session) = (who.id.to_string(), session.session());
        let reference = AttachmentRef::clone(reference);
        let info = self.control.write(move |tx| {
            let now = tx.now();
            enabled(tx, &who)?.ok_or(AccessError::Unauthenticated)?;
            let mut expires_at = now.after(terms.life);
            if let Some(token) = token {
                let end: Option<i64> = tx
                    .prepare_cached(
                        "SELECT expires_at FROM tokens WHERE id = ?1 AND revoked_at IS NULL",
                    )
                    .and_then(|mut query| {
                        query.query_row([token.get()], |row| row.get(0)).optional()
                    })
                    .map_err(ControlError::from)?
                    .ok_or(AccessError::Unauthenticated)?;
                expires_at = end.map_or(expires_at, |end| {
                    expires_at.min(Timestamp::from_millis(end))
                });
            }
            let kept = sweep(tx, &who, now, terms.grace)?;
            if kept >= terms.most {
                return Err(AccessError::TooManyTickets { most: terms.most });
            }
            let name = reference.name.as_ref().map_or("", FileName::as_str);
            tx.prepare_cached(
                "INSERT INTO tickets (handle, hash, principal, token, session, digest, name, bytes,
                     uses, created_at, expires_at, receipt)
                 SELECT ?1, ?2, ?3, ?4, id, ?6, ?7, ?8, ?9, ?10, ?11, ?12
                 FROM sessions WHERE handle = ?5",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    handle.to_string(),
                    fingerprint.as_bytes().as_slice(),
                    who,
                    token.map(TokenNumber::get),
                    session.to_string(),
                    reference.id.digest().as_bytes().as_slice(),
                    name,
                    integer(reference.bytes.get()),
                    terms.uses,
                    now.as_millis(),
                    expires_at.as_millis(),
                    receipt.map(|receipt| receipt.to_string()),
                ])
            })
            .map_err(ControlError::from)?;
            Ok(TicketInfo {
                handle,
                session,
                attachment: reference.id,
                name: reference.name,
                receipt,
                bytes: reference.bytes,
                uses: terms.uses,
                opened: 0,
                created_at: now,
                expires_at,
            })
        })?;
        Ok((secret, info))
    }

    /// The caller's tickets that have not ended, newest first. Those by which nobody could get
    /// anything, because the maker's right has gone, are none.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] when the database cannot be asked.
    pub fn tickets(&self, who: &Principal) -> Result<Vec<TicketInfo>, AccessError> {
        let (id, now) = (who.id.to_string(), self.clock.now());
        self.control.read(|conn| {
            let rows: Vec<Listed> = conn
                .prepare_cached(&format!(
                    "{LIVING} AND t.principal = ?1 AND t.expires_at > ?2 ORDER BY t.id DESC"
                ))
                .and_then(|mut query| {
                    query
                        .query_map(params![id, now.as_millis()], Listed::read)?
                        .collect()
                })
                .map_err(ControlError::from)?;
            let mut living = Vec::with_capacity(rows.len());
            for row in rows {
                if standing(conn, &id, &row.info.session.to_string())?.is_some() {
                    let opened = opened(conn, row.ticket)?;
                    living.push(TicketInfo {
                        opened: opened.first().map_or(0, |latest| latest.number),
                        ..row.info
                    });
                }
            }
            Ok(living)
        })
    }

    /// Ends a ticket of the caller's now. It is gone, as if it had never been.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when the caller has no such ticket.
    pub fn revoke_ticket(&self, who: &Principal, handle: TicketHandle) -> Result<(), AccessError> {
        let (who, handle) = (who.id.to_string(), handle.to_string());
        self.control.write(move |tx| {
            let gone = tx
                .prepare_cached("DELETE FROM tickets WHERE handle = ?1 AND principal = ?2")
                .and_then(|mut delete| delete.execute(params![handle, who]))
                .map_err(ControlError::from)?;
            if gone == 0 {
                return Err(AccessError::Hidden);
            }
            Ok(())
        })
    }

    /// The living ticket of this secret, if it can still serve such a request.
    ///
    /// It says what the ticket is for. Whether its maker may have that is asked next, as for anybody.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when there is none: never made, revoked, ended, used up, or made by a
    /// token that was revoked or a principal that is disabled (I9).
    pub fn ticket(
        &self,
        secret: &str,
        asked: Asked,
        grace: Duration,
    ) -> Result<Grant<Ticket>, AccessError> {
        let secret = TicketSecret::parse(secret).ok_or(AccessError::Hidden)?;
        let (fingerprint, now) = (secret.fingerprint(), self.clock.now());
        self.control.read(|conn| {
            let living = living(conn, fingerprint)?.ok_or(AccessError::Hidden)?;
            let state = living.state(conn, now, grace)?;
            if !state.admits(asked) {
                return Err(AccessError::Hidden);
            }
            Ok(Grant::passed(Ticket {
                secret: fingerprint,
                handle: living.handle,
                maker: living.maker,
                session: living.session,
                attachment: living.attachment,
                name: living.name,
                receipt: living.receipt,
                time: state.time,
            }))
        })
    }

    /// Books what an answer is about to send: opens the ticket's next use, or joins an opened one.
    /// Everything about the ticket is asked again in the same step, and the booking is durable when
    /// this returns.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when nothing may be sent by it any more.
    pub fn open_use(
        &self,
        ticket: &Grant<Ticket>,
        wanted: Wanted,
        grace: Duration,
    ) -> Result<Grant<TicketUse>, AccessError> {
        let secret = ticket.secret;
        self.control.write(move |tx| {
            let living = rightful(tx, secret)?;
            let state = living.state(tx, tx.now(), grace)?;
            let (start, bytes) = match wanted {
                Wanted::Whole => (0, state.bytes),
                Wanted::Ranges { start, bytes } => (start, bytes),
            };
            let (sql, number) = match state.place(wanted).ok_or(AccessError::Hidden)? {
                Place::Join(number) => (
                    "UPDATE ticket_uses SET sent = sent + ?3, running = running + 1,
                         start = max(start, ?4)
                     WHERE ticket = ?1 AND number = ?2",
                    number,
                ),
                Place::Next(number) => (
                    "INSERT INTO ticket_uses (ticket, number, sent, running, start)
                     VALUES (?1, ?2, ?3, 1, ?4)",
                    number,
                ),
            };
            tx.prepare_cached(sql)
                .and_then(|mut book| {
                    book.execute(params![living.row, number, integer(bytes), integer(start)])
                })
                .map_err(ControlError::from)?;
            Ok(Grant::passed(TicketUse {
                ticket: secret,
                number,
            }))
        })
    }

    /// Whether an answer that is under way may go on: the ticket was not revoked and its maker's right stands.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when it may not.
    pub fn use_stands(&self, used: &Grant<TicketUse>) -> Result<(), AccessError> {
        self.control
            .read(|conn| rightful(conn, used.ticket).map(|_living| ()))
    }

    /// Notes that an answer is about to hand over its last byte. A ticket that ended by revocation
    /// meanwhile does not let it.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] when the ticket, or its maker's right, has gone.
    pub fn end_use(&self, used: &Grant<TicketUse>) -> Result<(), AccessError> {
        let (secret, number) = (used.ticket, used.number);
        self.control.write(move |tx| {
            let living = rightful(tx, secret)?;
            tx.prepare_cached(
                "UPDATE ticket_uses SET running = max(running - 1, 0)
                 WHERE ticket = ?1 AND number = ?2",
            )
            .and_then(|mut note| note.execute(params![living.row, number]))
            .map_err(ControlError::from)?;
            Ok(())
        })
    }

    /// Gives back the bytes an answer did not send because it was cut.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] when the database takes nothing; then they count as sent.
    pub fn give_back(&self, used: &Grant<TicketUse>, unsent: u64) -> Result<(), AccessError> {
        let (secret, number) = (used.ticket, used.number);
        self.control.write(move |tx| {
            tx.prepare_cached(
                "UPDATE ticket_uses SET sent = max(sent - ?3, 0)
                 WHERE ticket = (SELECT id FROM tickets WHERE hash = ?1) AND number = ?2",
            )
            .and_then(|mut book| {
                let secret = secret.as_bytes().as_slice();
                book.execute(params![secret, number, integer(unsent)])
            })
            .map_err(|error| AccessError::from(ControlError::from(error)))?;
            Ok(())
        })
    }
}

/// Tickets whose token, if any, was not revoked and whose maker is enabled.
const LIVING: &str = "
    SELECT t.id, t.hash, t.digest, t.name, t.bytes, t.uses, t.expires_at, s.handle,
        p.id, p.kind, p.name, t.handle, t.created_at, t.receipt
    FROM tickets t
    JOIN principals p ON p.id = t.principal
    JOIN sessions s ON s.id = t.session
    LEFT JOIN tokens k ON k.id = t.token
    WHERE p.disabled_at IS NULL AND k.revoked_at IS NULL";

/// A row of [`LIVING`].
struct Living {
    row: i64,
    handle: TicketHandle,
    hash: Vec<u8>,
    maker: Principal,
    session: SessionHandle,
    attachment: AttachmentId,
    name: Option<FileName>,
    receipt: Option<ReceiptHandle>,
    bytes: u64,
    uses: u32,
    expires_at: Timestamp,
}

impl Living {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            row: row.get(0)?,
            handle: parsed(row, 11, TicketHandle::parse)?,
            hash: row.get(1)?,
            attachment: AttachmentId::new(Digest::from_bytes(row.get(2)?)),
            name: name(row, 3)?,
            receipt: if row.get_ref(13)?.as_str_or_null()?.is_some() {
                Some(parsed(row, 13, ReceiptHandle::parse)?)
            } else {
                None
            },
            bytes: count(row, 4)?,
            uses: row.get(5)?,
            expires_at: Timestamp::from_millis(row.get(6)?),
            session: parsed(row, 7, SessionHandle::parse)?,
            maker: principal(row, 8)?,
        })
    }

    fn state(
        &self,
        conn: &Connection,
        now: Timestamp,
        grace: Duration,
    ) -> Result<State, ControlError> {
        Ok(State {
            time: Time::at(now, self.expires_at, grace),
            bytes: self.bytes,
            uses: self.uses,
            opened: opened(conn, self.row)?,
        })
    }
}

/// A row of [`LIVING`], for its maker.
struct Listed {
    ticket: i64,
    info: TicketInfo,
}

impl Listed {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let living = Living::read(row)?;
        Ok(Self {
            ticket: living.row,
            info: TicketInfo {
                handle: living.handle,
                session: living.session,
                attachment: living.attachment,
                name: living.name,
                receipt: living.receipt,
                bytes: ByteCount::new(living.bytes),
                uses: living.uses,
                opened: 0,
                created_at: Timestamp::from_millis(row.get(12)?),
                expires_at: living.expires_at,
            },
        })
    }
}

/// The living ticket of this secret.
fn living(conn: &Connection, secret: Fingerprint) -> Result<Option<Living>, ControlError> {
    let found = conn
        .prepare_cached(&format!("{LIVING} AND t.hash = ?1"))
        .and_then(|mut query| {
            let secret = secret.as_bytes().as_slice();
            query.query_row([secret], Living::read).optional()
        })?;
    Ok(found.filter(|living| secret.is(&living.hash)))
}

/// The ticket of this secret, if its maker may still read the session.
fn rightful(conn: &Connection, secret: Fingerprint) -> Result<Living, AccessError> {
    let living = living(conn, secret)?.ok_or(AccessError::Hidden)?;
    let (maker, session) = (living.maker.id.to_string(), living.session.to_string());
    standing(conn, &maker, &session)?.ok_or(AccessError::Hidden)?;
    Ok(living)
}

fn opened(conn: &Connection, ticket: i64) -> Result<Vec<Opened>, ControlError> {
    Ok(conn
        .prepare_cached(
            "SELECT number, sent, running, start FROM ticket_uses WHERE ticket = ?1
             ORDER BY number DESC",
        )
        .and_then(|mut query| {
            query
                .query_map([ticket], |row| {
                    Ok(Opened {
                        number: row.get(0)?,
                        sent: count(row, 1)?,
                        running: row.get(2)?,
                        start: count(row, 3)?,
                    })
                })?
                .collect()
        })?)
}

/// Removes tickets nobody can use any more, and says how many the principal has left. One by which a
/// download may still be under way is kept for its end.
fn sweep(
    conn: &Connection,
    who: &str,
    now: Timestamp,
    grace: Duration,
) -> Result<usize, ControlError> {
    let ago = |span: Duration| {
        let span = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        now.as_millis().saturating_sub(span)
    };
    conn.prepare_cached(
        "DELETE FROM tickets WHERE expires_at <= ?1 AND (expires_at <= ?2 OR NOT EXISTS (
             SELECT 1 FROM ticket_uses u WHERE u.ticket = tickets.id AND u.running > 0))",
    )?
    .execute([ago(grace), ago(grace.saturating_add(LONGEST_TRANSFER))])?;
    conn.prepare_cached(
        "DELETE FROM tickets WHERE principal = ?1
             AND token IN (SELECT id FROM tokens WHERE revoked_at IS NOT NULL)",
    )?
    .execute([who])?;
    let kept: u64 = conn
        .prepare_cached("SELECT count(*) FROM tickets WHERE principal = ?1 AND expires_at > ?2")?
        .query_row(params![who, ago(grace)], |row| count(row, 0))?;
    Ok(usize::try_from(kept).unwrap_or(usize::MAX))
}

fn name(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<FileName>> {
    if row.get_ref(column)?.as_str()?.is_empty() {
        return Ok(None);
    }
    parsed(row, column, FileName::parse).map(Some)
}

fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_negative| damaged(column, "a count"))
}

/// A count as SQLite holds integers; no content is longer than it can say.
fn integer(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{Asked, Opened, Place, State, Time, Wanted};

    fn opened(number: u32, sent: u64, running: u32, start: u64) -> Opened {
        Opened {
            number,
            sent,
            running,
            start,
        }
    }

    /// A ticket for 1000 bytes; `opened` is latest first.
    fn state(time: Time, uses: u32, opened: &[Opened]) -> State {
        State {
            time,
            bytes: 1000,
            uses,
            opened: opened.to_vec(),
        }
    }

    const fn part(start: u64, bytes: u64) -> Wanted {
        Wanted::Ranges { start, bytes }
    }

    #[test]
    fn an_answer_joins_a_use_opens_the_next_or_is_refused() {
        use Place::{Join, Next};
        let done = opened(1, 1000, 0, 0);
        let cut = opened(1, 700, 1, 0);
        let full = opened(1, 1100, 0, 0);
        for (uses, before, wanted, place) in [
            (1, &[][..], Wanted::Whole, Some(Next(1))),
            (1, &[], part(1, 999), Some(Next(1))),
            (1, &[done], Wanted::Whole, None),
            (2, &[done], Wanted::Whole, Some(Next(2))),
            // Up to a tenth more, and not a byte further.
            (1, &[done], part(0, 100), Some(Join(1))),
            (1, &[done], part(0, 101), None),
            (1, &[done], part(1, 999), None),
            (2, &[done], part(0, 101), Some(Next(2))),
            (1, &[full], part(0, 1), None),
            // What may have been cut is gone on with, from further on.
            (1, &[cut], part(500, 500), Some(Join(1))),
            (1, &[opened(1, 1000, 1, 0)], part(1, 999), Some(Join(1))),
            (1, &[opened(1, 1000, 1, 0)], part(0, 1000), None),
            (1, &[opened(1, 1000, 1, 500)], part(500, 500), None),
            (1, &[opened(1, 1101, 1, 0)], part(999, 1), None),
            // Somebody else's use is joined only where there is room.
            (
                2,
                &[opened(2, 1000, 0, 0), cut],
                part(600, 400),
                Some(Join(1)),
            ),
        ] {
            let state = state(Time::Within, uses, before);
            assert_eq!(state.place(wanted), place, "{uses} {before:?} {wanted:?}");
        }
    }

    #[test]
    fn past_its_end_a_ticket_serves_resumes_of_an_opened_use_alone() {
        let cut = [opened(1, 700, 1, 0)];
        for (time, before, wanted, place) in [
            (Time::Grace, &cut[..], part(600, 400), Some(Place::Join(1))),
            (Time::Grace, &cut, part(0, 400), None),
            (Time::Grace, &cut, Wanted::Whole, None),
            (Time::Grace, &[], part(600, 400), None),
            (Time::Over, &cut, part(600, 400), None),
        ] {
            let state = state(time, 9, before);
            assert_eq!(state.place(wanted), place, "{time:?} {before:?} {wanted:?}");
        }
    }

    #[test]
    fn what_can_serve_nothing_is_not_shown() {
        let (done, cut, full) = (
            [opened(1, 1000, 0, 0)],
            [opened(1, 700, 1, 0)],
            [opened(1, 1100, 0, 0)],
        );
        let all = [Asked::Fields, Asked::Whole, Asked::Ranges];
        for (time, uses, before, admitted) in [
            (Time::Within, 1, &[][..], [true, true, true]),
            (Time::Within, 1, &cut, [true, false, true]),
            (Time::Within, 1, &done, [false, false, true]),
            (Time::Within, 1, &full, [false, false, false]),
            (Time::Within, 2, &full, [true, true, true]),
            (Time::Grace, 2, &cut, [false, false, true]),
            (Time::Grace, 2, &[], [false, false, false]),
            (Time::Over, 2, &cut, [false, false, false]),
        ] {
            let state = state(time, uses, before);
            assert_eq!(
                all.map(|asked| state.admits(asked)),
                admitted,
                "{time:?} {uses} {before:?}"
            );
        }
    }
    /// What happens to a ticket: a request, and what becomes of its answer.
    #[derive(Clone, Copy, Debug)]
    struct Event {
        whole: bool,
        start: u64,
        bytes: u64,
        /// Where the answer is cut; past its end it is not.
        cut: u64,
    }

    fn event() -> impl Strategy<Value = Event> {
        (any::<bool>(), 0..1000_u64, 1..=1000_u64, 0..2000_u64).prop_map(
            |(whole, start, bytes, cut)| Event {
                whole,
                start,
                bytes: bytes.min(1000 - start),
                cut,
            },
        )
    }

    /// Plays the events; what each use sent in truth, and whether an answer of it was cut.
    fn play(uses: u32, events: &[Event]) -> Vec<(u64, bool)> {
        let mut state = state(Time::Within, uses, &[]);
        let mut truth: Vec<(u64, bool)> = Vec::new();
        for event in events {
            let (wanted, start, bytes) = if event.whole {
                (Wanted::Whole, 0, 1000)
            } else {
                (part(event.start, event.bytes), event.start, event.bytes)
            };
            let number = match state.place(wanted) {
                None => continue,
                Some(Place::Next(number)) => {
                    state.opened.insert(0, opened(number, 0, 0, start));
                    truth.push((0, false));
                    number
                }
                Some(Place::Join(number)) => number,
            };
            let sent = bytes.min(event.cut);
            let row = state.opened.iter_mut().find(|one| one.number == number);
            let row = row.unwrap();
            row.sent += sent;
            row.start = row.start.max(start);
            row.running += u32::from(sent < bytes);
            let index = usize::try_from(number - 1).unwrap();
            truth[index].0 += sent;
            truth[index].1 |= sent < bytes;
        }
        truth
    }

    proptest! {
        /// Whatever is asked in whatever order, there are no more uses than were given, none sends
        /// more than the content and a tenth unless an answer was cut, and then no more than one
        /// answer beyond that.
        #[test]
        fn no_order_of_requests_gets_more_than_the_uses_give(
            uses in 1..4_u32,
            events in vec(event(), 0..40),
        ) {
            let truth = play(uses, &events);
            prop_assert!(truth.len() <= usize::try_from(uses).unwrap());
            for (sent, was_cut) in truth {
                let bound = if was_cut { 1100 + 1000 } else { 1100 };
                prop_assert!(sent <= bound, "{sent}");
            }
        }
    }
}
