use std::{sync::Arc, time::Duration};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    DecideError, Draft, KIND, LedgerError, Statement,
    again::{recall, remember},
    claims::{self, Claims, Late},
};
use crate::{
    control::{Control, ControlError, Tx},
    journal::Once,
    model::{
        AttachmentId, ByteCount, InteractionHandle, PrincipalId, ReceiptHandle, SessionHandle,
        Timestamp,
    },
    seal::{Seal, SealKey},
};

/// What one session may hold of releases.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How long an ask waits for a decision.
    pub life: Duration,
    /// The most asks that wait at once.
    pub asks: usize,
    /// The most bytes of receipts and waiting asks together.
    pub bytes: ByteCount,
}

/// How somebody decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// These bytes may leave.
    AllowedOnce,
    /// They may not.
    Rejected,
}

impl Decision {
    /// The decision as it stands in requests and rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllowedOnce => "allowed-once",
            Self::Rejected => "rejected",
        }
    }

    /// Takes a decision as requests spell it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::AllowedOnce, Self::Rejected]
            .into_iter()
            .find(|one| one.as_str() == text)
    }
}

/// A release that waits for somebody to decide. It survives restarts; its bytes are kept, and nobody
/// can download them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its id.
    pub handle: InteractionHandle,
    /// The exact copy it is about.
    pub draft: Draft,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it ends without a decision.
    pub expires_at: Timestamp,
}

impl Ask {
    /// From when on somebody should be reminded: four fifths of its time are over.
    #[must_use]
    pub fn remind_at(&self) -> Timestamp {
        let (from, to) = (self.asked_at.as_millis(), self.expires_at.as_millis());
        Timestamp::from_millis(to.saturating_sub(to.saturating_sub(from) / 5))
    }
}

/// An answer to an ask: to one id, about exactly these bytes (I7).
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The ask's session.
    pub session: SessionHandle,
    /// The ask.
    pub handle: InteractionHandle,
    /// The content the one who decides was shown.
    pub id: AttachmentId,
    /// Its length.
    pub bytes: ByteCount,
    /// What is decided.
    pub decision: Decision,
    /// Who decides.
    pub who: PrincipalId,
}

/// Evidence that content was released, with its seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What it says.
    pub statement: Statement,
    /// The seal over the statement in its one spelling.
    pub seal: Seal,
}

/// Content to be released, or to be asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The exact copy.
    pub draft: Draft,
    /// Whether somebody has to decide first.
    pub asks: bool,
}

/// What became of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The content can be downloaded by this receipt.
    Now(Receipt),
    /// Somebody has to decide first.
    Asked(Ask),
}

/// An ask that ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its session.
    pub session: SessionHandle,
    /// The ask.
    pub handle: InteractionHandle,
    /// `withdrawn` or `expired`.
    pub outcome: &'static str,
}

/// What releases came to, and the asks that ended by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    /// What became of each, in their order.
    pub released: Vec<Released>,
    /// Asks that are over.
    pub ended: Vec<Ended>,
}

/// What became of an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The content can be downloaded by this receipt.
    Allowed(Box<Receipt>),
    /// It stays; its copy is no longer kept for this ask.
    Rejected,
}

/// Asks and receipts, in the one database.
///
/// Every call blocks; the service makes them from a bounded pool.
#[derive(Debug)]
pub struct Ledger {
    pub(super) control: Arc<Control>,
    pub(super) late: Late,
    key: Arc<SealKey>,
    host: String,
}

impl Ledger {
    /// The ledger of the installation called `host`.
    #[must_use]
    pub fn new(control: Arc<Control>, key: Arc<SealKey>, host: String) -> Self {
        Self {
            control,
            late: Late::default(),
            key,
            host,
        }
    }

    /// Releases content that is durable by now, or asks about it: all of it or none, in one
    /// transaction, which takes the `claims` back. Returns after it is durable too (I5).
    ///
    /// The same item with the same bytes that waits already is the same ask; one with other bytes is
    /// withdrawn, because the file is another by now. A repeat under the same key gets what the first
    /// got, and its claims end.
    ///
    /// # Errors
    /// [`LedgerError::OverQuota`], [`LedgerError::TooManyAsks`], [`LedgerError::KeyReused`],
    /// [`LedgerError::NotFound`] without the session, [`LedgerError::Control`]. The claims stand then.
    pub fn release(
        &self,
        wanted: Vec<Wanted>,
        claims: &Claims,
        bounds: Bounds,
        once: Option<Once>,
    ) -> Result<Booked, LedgerError> {
        let drawn = wanted
            .iter()
            .map(|_| Ok((draw()?, draw()?)))
            .collect::<Result<Vec<_>, LedgerError>>()?;
        let (key, host, claims) = (Arc::clone(&self.key), self.host.clone(), claims.clone());
        self.control.write(move |tx| {
            let known = once.as_ref().map(|once| recall(tx, once)).transpose()?;
            if let Some(known) = known.flatten() {
                claims.end(tx)?;
                let known = known.into_iter().map(|one| one.read(tx, &key));
                return Ok(Booked {
                    released: known.collect::<Result<_, _>>()?,
                    ended: Vec::new(),
                });
            }
            let mut ended = expire(tx)?;
            let mut all = Vec::new();
            for (wanted, (handle, receipt)) in wanted.into_iter().zip(drawn) {
                let receipt = ReceiptHandle::from_random(receipt);
                let host = host.clone();
                let draft = wanted.draft;
                all.push(if wanted.asks {
                    let handle = InteractionHandle::from_random(handle);
                    let (asked, withdrawn) = ask(tx, draft, handle, receipt, host, bounds)?;
                    ended.extend(withdrawn);
                    Released::Asked(asked)
                } else {
                    Released::Now(issue(tx, draft, receipt, host, bounds, &key)?)
                });
            }
            claims.take_back(tx)?;
            if let Some(once) = &once {
                remember(tx, once, &all)?;
            }
            Ok(Booked {
                released: all,
                ended,
            })
        })
    }

    /// What the request of this key got, when it was done before.
    ///
    /// # Errors
    /// [`LedgerError::KeyReused`], [`LedgerError::Control`], [`LedgerError::Corrupt`].
    pub fn recalled(&self, once: &Once) -> Result<Option<Vec<Released>>, LedgerError> {
        let (once, key) = (once.clone(), Arc::clone(&self.key));
        self.control.write(move |tx| {
            recall(tx, &once)?
                .map(|known| known.into_iter().map(|one| one.read(tx, &key)).collect())
                .transpose()
        })
    }

    /// Settles an ask, once. The checks, the settlement and the receipt are one transaction: there is
    /// nothing between them for another answer, an expiry or a crash.
    ///
    /// # Errors
    /// [`DecideError`]; then nothing has changed.
    pub fn decide(&self, answer: Answer) -> Result<Outcome, DecideError> {
        let key = Arc::clone(&self.key);
        self.control.write(move |tx| {
            let found = tx
                .prepare_cached(
                    "SELECT a.statement, a.expires_at, a.outcome, a.session
                     FROM asks a JOIN sessions s ON s.id = a.session
                     WHERE a.handle = ?1 AND s.handle = ?2",
                )
                .and_then(|mut find| {
                    find.query_row(
                        params![answer.handle.to_string(), answer.session.to_string()],
                        Waiting::read,
                    )
                    .optional()
                })
                .map_err(ControlError::from)?
                .ok_or(DecideError::Unknown)?;
            let mut statement = parse(&found.statement)?;
            settle(&found, &statement.released, &answer, tx.now())?;
            let receipt = match answer.decision {
                Decision::Rejected => {
                    claims::ended(tx, statement.released.id.digest())?;
                    None
                }
                Decision::AllowedOnce => {
                    statement.decided_by = Some(answer.who);
                    statement.issued_at = tx.now();
                    Some(record(tx, found.session, statement, &key)?)
                }
            };
            tx.prepare_cached(
                "UPDATE asks SET outcome = ?2, decided_by = ?3, decided_at = ?4 WHERE handle = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![
                    answer.handle.to_string(),
                    answer.decision.as_str(),
                    answer.who.to_string(),
                    tx.now().as_millis(),
                ])
            })
            .map_err(ControlError::from)?;
            Ok(receipt.map_or(Outcome::Rejected, |receipt| {
                Outcome::Allowed(Box::new(receipt))
            }))
        })
    }

    /// The asks of a session that wait, oldest first.
    ///
    /// # Errors
    /// [`LedgerError::Control`], [`LedgerError::Corrupt`].
    pub fn asks(&self, session: SessionHandle) -> Result<Vec<Ask>, LedgerError> {
        let now = self.control.now().as_millis();
        self.control.read(|conn| {
            let mut all = conn
                .prepare_cached(
                    "SELECT a.handle, a.statement, a.asked_at, a.expires_at
                     FROM asks a JOIN sessions s ON s.id = a.session
                     WHERE s.handle = ?1 AND a.outcome IS NULL AND a.expires_at > ?2 ORDER BY a.id",
                )
                .map_err(ControlError::from)?;
            let rows = all
                .query_map(params![session.to_string(), now], ask_row)
                .map_err(ControlError::from)?;
            rows.map(|row| ask_of(row.map_err(ControlError::from)?))
                .collect()
        })
    }

    /// A receipt.
    ///
    /// # Errors
    /// [`LedgerError::NotFound`]; [`LedgerError::Corrupt`] when its seal no longer fits.
    pub fn receipt(&self, handle: ReceiptHandle) -> Result<Receipt, LedgerError> {
        self.control.read(|conn| receipt(conn, handle, &self.key))
    }

    /// Ends what has waited too long, and says what that was. Its content is to be cleared away.
    ///
    /// # Errors
    /// [`LedgerError::Control`], [`LedgerError::Corrupt`].
    pub fn expire(&self) -> Result<Vec<Ended>, LedgerError> {
        self.control.write(|tx| expire(tx))
    }

    /// Whether this installation sealed a statement spelled so.
    #[must_use]
    pub fn vouches(&self, statement: &str, seal: &[u8]) -> bool {
        self.key.fits(KIND, statement.as_bytes(), seal)
    }
}

/// An ask as it waits, or waited.
struct Waiting {
    statement: String,
    expires_at: i64,
    outcome: Option<String>,
    session: i64,
}

impl Waiting {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            statement: row.get(0)?,
            expires_at: row.get(1)?,
            outcome: row.get(2)?,
            session: row.get(3)?,
        })
    }
}

/// Whether this answer settles this ask at this moment. Plain and whole: nothing is waited for in it.
fn settle(
    waiting: &Waiting,
    draft: &Draft,
    answer: &Answer,
    now: Timestamp,
) -> Result<(), DecideError> {
    match waiting.outcome.as_deref() {
        None => {}
        Some("withdrawn") => return Err(DecideError::Withdrawn),
        Some("expired") => return Err(DecideError::Expired),
        Some(decided) => {
            let outcome = Decision::parse(decided)
                .ok_or_else(|| LedgerError::Corrupt(format!("an outcome `{decided}`")))?;
            return Err(DecideError::AlreadyDecided { outcome });
        }
    }
    if now.as_millis() >= waiting.expires_at {
        return Err(DecideError::Expired);
    }
    if draft.id != answer.id || draft.bytes != answer.bytes {
        return Err(DecideError::OtherBytes);
    }
    Ok(())
}

fn draw<const N: usize>() -> Result<[u8; N], LedgerError> {
    let mut bits = [0; N];
    getrandom::fill(&mut bits).map_err(LedgerError::NoEntropy)?;
    Ok(bits)
}

fn parse(text: &str) -> Result<Statement, LedgerError> {
    Statement::parse(text).map_err(|error| LedgerError::Corrupt(error.to_string()))
}

fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn row_of(conn: &Connection, session: SessionHandle) -> Result<i64, LedgerError> {
    conn.prepare_cached("SELECT id FROM sessions WHERE handle = ?1")
        .and_then(|mut find| {
            find.query_row([session.to_string()], |row| row.get(0))
                .optional()
        })
        .map_err(ControlError::from)?
        .ok_or(LedgerError::NotFound)
}

/// A receipt, whose seal fits.
pub(super) fn receipt(
    conn: &Connection,
    handle: ReceiptHandle,
    key: &SealKey,
) -> Result<Receipt, LedgerError> {
    let found: Option<(String, Seal)> = conn
        .prepare_cached("SELECT statement, seal FROM receipts WHERE handle = ?1")
        .and_then(|mut find| {
            find.query_row([handle.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })
        .map_err(ControlError::from)?;
    let (text, seal) = found.ok_or(LedgerError::NotFound)?;
    if !key.fits(KIND, text.as_bytes(), &seal) {
        return Err(LedgerError::Corrupt(format!("the seal of {handle}")));
    }
    let statement = parse(&text)?;
    if statement.receipt != handle {
        return Err(LedgerError::Corrupt(format!("the name of {handle}")));
    }
    Ok(Receipt { statement, seal })
}

/// An ask, however it ended.
pub(super) fn asked(conn: &Connection, handle: InteractionHandle) -> Result<Ask, LedgerError> {
    conn.prepare_cached(
        "SELECT handle, statement, asked_at, expires_at FROM asks WHERE handle = ?1",
    )
    .and_then(|mut find| find.query_row([handle.to_string()], ask_row).optional())
    .map_err(ControlError::from)?
    .map(ask_of)
    .ok_or(LedgerError::NotFound)?
}

fn issue(
    tx: &Tx<'_>,
    draft: Draft,
    receipt: ReceiptHandle,
    host: String,
    bounds: Bounds,
    key: &SealKey,
) -> Result<Receipt, LedgerError> {
    let session = row_of(tx, draft.session)?;
    room(tx, session, draft.bytes, bounds)?;
    let statement = Statement {
        receipt,
        host,
        released: draft,
        decided_by: None,
        issued_at: tx.now(),
    };
    record(tx, session, statement, key)
}

fn ask(
    tx: &Tx<'_>,
    draft: Draft,
    handle: InteractionHandle,
    receipt: ReceiptHandle,
    host: String,
    bounds: Bounds,
) -> Result<(Ask, Option<Ended>), LedgerError> {
    let session = row_of(tx, draft.session)?;
    let mut withdrawn = None;
    if let Some(open) = same_item(tx, session, &draft)? {
        if open.draft.id == draft.id && open.draft.bytes == draft.bytes {
            return Ok((open, None));
        }
        withdrawn = Some(Ended {
            session: draft.session,
            handle: open.handle,
            outcome: "withdrawn",
        });
        tx.prepare_cached(
            "UPDATE asks SET outcome = 'withdrawn', decided_at = ?2 WHERE handle = ?1",
        )
        .and_then(|mut update| {
            update.execute(params![open.handle.to_string(), tx.now().as_millis()])
        })
        .map_err(ControlError::from)?;
        claims::ended(tx, open.draft.id.digest())?;
    }
    room(tx, session, draft.bytes, bounds)?;
    let open: i64 = tx
        .prepare_cached("SELECT count(*) FROM asks WHERE session = ?1 AND outcome IS NULL")
        .and_then(|mut count| count.query_row([session], |row| row.get(0)))
        .map_err(ControlError::from)?;
    if usize::try_from(open).is_ok_and(|open| open >= bounds.asks) {
        return Err(LedgerError::TooManyAsks { most: bounds.asks });
    }
    let ask = Ask {
        handle,
        asked_at: tx.now(),
        expires_at: tx.now().after(bounds.life),
        draft,
    };
    keep(tx, session, &ask, receipt, host)?;
    Ok((ask, withdrawn))
}

/// Ends what has waited too long.
fn expire(tx: &Tx<'_>) -> Result<Vec<Ended>, LedgerError> {
    const OVER: &str = "outcome IS NULL AND expires_at <= ?1";
    let now = tx.now().as_millis();
    let over: Vec<(String, String)> = tx
        .prepare_cached(&format!(
            "SELECT s.handle, a.handle FROM asks a JOIN sessions s ON s.id = a.session
             WHERE {OVER} ORDER BY a.id"
        ))
        .and_then(|mut find| {
            find.query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
        .map_err(ControlError::from)?;
    if over.is_empty() {
        return Ok(Vec::new());
    }
    tx.prepare_cached(&format!(
        "INSERT INTO unclaimed (digest, ended) SELECT digest, 1 FROM asks WHERE {OVER}"
    ))
    .and_then(|mut insert| insert.execute([now]))
    .map_err(ControlError::from)?;
    tx.prepare_cached(&format!(
        "UPDATE asks SET outcome = 'expired', decided_at = ?1 WHERE {OVER}"
    ))
    .and_then(|mut update| update.execute([now]))
    .map_err(ControlError::from)?;
    let ended = over.into_iter().map(|(session, handle)| {
        Ok(Ended {
            session: SessionHandle::parse(&session)
                .map_err(|error| LedgerError::Corrupt(error.to_string()))?,
            handle: InteractionHandle::parse(&handle)
                .map_err(|error| LedgerError::Corrupt(error.to_string()))?,
            outcome: "expired",
        })
    });
    ended.collect()
}

/// Whether the session may hold so many bytes more.
fn room(tx: &Tx<'_>, session: i64, more: ByteCount, bounds: Bounds) -> Result<(), LedgerError> {
    let used: i64 = tx
        .prepare_cached(
            "SELECT (SELECT coalesce(sum(bytes), 0) FROM receipts WHERE session = ?1)
                 + (SELECT coalesce(sum(bytes), 0) FROM asks
                    WHERE session = ?1 AND outcome IS NULL)",
        )
        .and_then(|mut sum| sum.query_row([session], |row| row.get(0)))
        .map_err(ControlError::from)?;
    let used = u64::try_from(used)
        .map_err(|_negative| LedgerError::Corrupt("a sum of lengths".to_owned()))?;
    if ByteCount::new(used).saturating_add(more) > bounds.bytes {
        return Err(LedgerError::OverQuota {
            used,
            limit: bounds.bytes.get(),
        });
    }
    Ok(())
}

/// Where the row of an ask says that it is about everything in a session.
const EVERYTHING: i64 = -1;

fn position(draft: &Draft) -> i64 {
    draft
        .item
        .as_ref()
        .map_or(EVERYTHING, |item| item.index.into())
}

/// The waiting ask about the same item, or about everything in the session as it was then.
fn same_item(tx: &Tx<'_>, session: i64, draft: &Draft) -> Result<Option<Ask>, LedgerError> {
    let found = tx
        .prepare_cached(
            "SELECT handle, statement, asked_at, expires_at FROM asks
             WHERE session = ?1 AND idx = ?4 AND outcome IS NULL
                 AND ((generation = ?2 AND seq = ?3) OR idx = ?5)",
        )
        .and_then(|mut find| {
            find.query_row(
                params![
                    session,
                    draft.log_generation.get(),
                    integer(draft.seq.get()),
                    position(draft),
                    EVERYTHING,
                ],
                ask_row,
            )
            .optional()
        })
        .map_err(ControlError::from)?;
    found.map(ask_of).transpose()
}

fn keep(
    tx: &Tx<'_>,
    session: i64,
    ask: &Ask,
    receipt: ReceiptHandle,
    host: String,
) -> Result<(), LedgerError> {
    // What its receipt would say: the name of the receipt is drawn, and the rest is filled in when
    // somebody decides.
    let statement = Statement {
        receipt,
        host,
        released: ask.draft.clone(),
        decided_by: None,
        issued_at: ask.asked_at,
    };
    let draft = &ask.draft;
    object(tx, draft)?;
    tx.prepare_cached(
        "INSERT INTO asks (handle, session, generation, seq, idx, digest, bytes, statement,
             asked_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )
    .and_then(|mut insert| {
        insert.execute(params![
            ask.handle.to_string(),
            session,
            draft.log_generation.get(),
            integer(draft.seq.get()),
            position(draft),
            draft.id.digest().as_bytes(),
            integer(draft.bytes.get()),
            statement.canonical(),
            ask.asked_at.as_millis(),
            ask.expires_at.as_millis(),
        ])
    })
    .map_err(ControlError::from)?;
    Ok(())
}

/// Writes a receipt's row.
fn record(
    tx: &Tx<'_>,
    session: i64,
    statement: Statement,
    key: &SealKey,
) -> Result<Receipt, LedgerError> {
    object(tx, &statement.released)?;
    let text = statement.canonical();
    let seal = key.seal(KIND, text.as_bytes());
    tx.prepare_cached(
        "INSERT INTO receipts (handle, session, digest, bytes, statement, seal)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .and_then(|mut insert| {
        insert.execute(params![
            statement.receipt.to_string(),
            session,
            statement.released.id.digest().as_bytes(),
            integer(statement.released.bytes.get()),
            text,
            seal,
        ])
    })
    .map_err(ControlError::from)?;
    Ok(Receipt { statement, seal })
}

/// Notes that the store is to have this content.
fn object(tx: &Tx<'_>, draft: &Draft) -> Result<(), LedgerError> {
    tx.prepare_cached(
        "INSERT INTO objects (digest, bytes, created_at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO NOTHING",
    )
    .and_then(|mut insert| {
        insert.execute(params![
            draft.id.digest().as_bytes(),
            integer(draft.bytes.get()),
            tx.now().as_millis()
        ])
    })
    .map_err(ControlError::from)?;
    Ok(())
}

type AskRow = (String, String, i64, i64);

fn ask_row(row: &Row<'_>) -> rusqlite::Result<AskRow> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

fn ask_of((handle, statement, asked_at, expires_at): AskRow) -> Result<Ask, LedgerError> {
    Ok(Ask {
        handle: InteractionHandle::parse(&handle)
            .map_err(|error| LedgerError::Corrupt(error.to_string()))?,
        draft: parse(&statement)?.released,
        asked_at: Timestamp::from_millis(asked_at),
        expires_at: Timestamp::from_millis(expires_at),
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{Answer, Ask, Bounds, Decision, Ledger, Outcome, Receipt, Released, Wanted};
    use crate::{
        control::{Control, ControlError},
        model::{
            AttachmentId, ByteCount, Digest, ManualClock, PrincipalId, SessionHandle, Timestamp,
        },
        receipt::{DecideError, Draft, LedgerError, statement::tests::draft},
        seal::SealKey,
    };

    struct Bench {
        _dir: tempfile::TempDir,
        control: Arc<Control>,
        clock: ManualClock,
        ledger: Ledger,
    }

    const WHO: PrincipalId = PrincipalId::from_random([9; 16]);

    impl Bench {
        fn release(
            &self,
            draft: Draft,
            asks: bool,
            bounds: Bounds,
        ) -> Result<Released, LedgerError> {
            let claims = self.ledger.claim(&[draft.id.digest()]).unwrap();
            let wanted = vec![Wanted { draft, asks }];
            let mut booked = self.ledger.release(wanted, &claims, bounds, None)?;
            assert_eq!(booked.released.len(), 1);
            Ok(booked.released.remove(0))
        }

        fn ask(&self, draft: Draft, bounds: Bounds) -> Result<Ask, LedgerError> {
            match self.release(draft, true, bounds)? {
                Released::Asked(ask) => Ok(ask),
                Released::Now(receipt) => panic!("{receipt:?}"),
            }
        }

        fn issue(&self, draft: Draft, bounds: Bounds) -> Result<Receipt, LedgerError> {
            match self.release(draft, false, bounds)? {
                Released::Now(receipt) => Ok(receipt),
                Released::Asked(ask) => panic!("{ask:?}"),
            }
        }
    }

    fn bench() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let held = rustix::fs::open(dir.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let control = Arc::new(Control::open_inline(held, Arc::new(clock.clone())).unwrap());
        for (n, own) in [(1_u8, "one"), (4, "two")] {
            let handle = SessionHandle::from_random([n; 16]).to_string();
            control
                .write(move |tx| {
                    tx.execute(
                        "INSERT INTO sessions (handle, source, own_id, created_at)
                         VALUES (?1, 'native', ?2, 0)",
                        (handle, own),
                    )?;
                    Ok::<_, ControlError>(())
                })
                .unwrap();
        }
        let key = Arc::new(SealKey::new([7; 32]));
        let ledger = Ledger::new(Arc::clone(&control), key, "h_test".to_owned());
        Bench {
            _dir: dir,
            control,
            clock,
            ledger,
        }
    }

    fn bounds() -> Bounds {
        Bounds {
            life: Duration::from_hours(24),
            asks: 2,
            bytes: ByteCount::new(10),
        }
    }

    fn answer(ask: &Ask, decision: Decision) -> Answer {
        Answer {
            session: ask.draft.session,
            handle: ask.handle,
            id: ask.draft.id,
            bytes: ask.draft.bytes,
            decision,
            who: WHO,
        }
    }

    fn other(draft: Draft, seq: u64) -> Draft {
        Draft {
            seq: crate::model::Seq::new(seq),
            ..draft
        }
    }

    #[test]
    fn a_yes_makes_a_receipt_for_exactly_the_bytes_asked_about() {
        let bench = bench();
        let ask = bench.ask(draft(b"abc"), bounds()).unwrap();
        let waiting = bench.ledger.asks(ask.draft.session).unwrap();
        assert_eq!(waiting, std::slice::from_ref(&ask));
        let Outcome::Allowed(receipt) = bench
            .ledger
            .decide(answer(&ask, Decision::AllowedOnce))
            .unwrap()
        else {
            panic!("a yes is a yes");
        };
        assert_eq!(receipt.statement.released, ask.draft);
        assert_eq!(receipt.statement.decided_by, Some(WHO));
        let kept = bench.ledger.receipt(receipt.statement.receipt).unwrap();
        assert_eq!(kept, *receipt);
        assert!(
            bench
                .ledger
                .vouches(&kept.statement.canonical(), &kept.seal)
        );
        assert!(bench.ledger.asks(ask.draft.session).unwrap().is_empty());
    }

    /// Keeps I7: an ask is settled once; answers that are late, foreign, doubled or about other bytes
    /// change nothing.
    #[test]
    fn an_answer_that_does_not_fit_changes_nothing() {
        let bench = bench();
        let ask = bench.ask(draft(b"abc"), bounds()).unwrap();
        let yes = answer(&ask, Decision::AllowedOnce);
        let foreign = Answer {
            session: SessionHandle::from_random([4; 16]),
            ..yes
        };
        let refused = bench.ledger.decide(foreign);
        assert!(matches!(refused, Err(DecideError::Unknown)), "{refused:?}");
        let bytes = Answer {
            bytes: ByteCount::new(4),
            ..yes
        };
        let content = Answer {
            id: AttachmentId::new(Digest::of(b"abd")),
            ..yes
        };
        for other in [bytes, content] {
            let refused = bench.ledger.decide(other);
            assert!(
                matches!(refused, Err(DecideError::OtherBytes)),
                "{refused:?}"
            );
        }
        assert_eq!(bench.ledger.asks(ask.draft.session).unwrap().len(), 1);
        let no = answer(&ask, Decision::Rejected);
        assert_eq!(bench.ledger.decide(no).unwrap(), Outcome::Rejected);
        for again in [yes, no] {
            let refused = bench.ledger.decide(again);
            let first = Decision::Rejected;
            assert!(
                matches!(refused, Err(DecideError::AlreadyDecided { outcome }) if outcome == first),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn of_many_answers_at_once_one_settles() {
        let bench = bench();
        let ask = bench.ask(draft(b"abc"), bounds()).unwrap();
        let settled = std::thread::scope(|scope| {
            let all: Vec<_> = (0..16)
                .map(|n| {
                    let decision = if n % 2 == 0 {
                        Decision::AllowedOnce
                    } else {
                        Decision::Rejected
                    };
                    let answer = answer(&ask, decision);
                    let ledger = &bench.ledger;
                    scope.spawn(move || ledger.decide(answer).is_ok())
                })
                .collect();
            let settled = all.into_iter().map(|one| one.join().unwrap());
            settled.filter(|settled| *settled).count()
        });
        assert_eq!(settled, 1);
    }

    #[test]
    fn an_ask_ends_with_its_time() {
        let bench = bench();
        let ask = bench.ask(draft(b"abc"), bounds()).unwrap();
        bench.clock.advance(Duration::from_hours(24));
        let refused = bench.ledger.decide(answer(&ask, Decision::AllowedOnce));
        assert!(matches!(refused, Err(DecideError::Expired)), "{refused:?}");
        assert!(bench.ledger.asks(ask.draft.session).unwrap().is_empty());
    }

    #[test]
    fn the_same_file_is_the_same_ask_and_a_changed_one_withdraws_it() {
        let bench = bench();
        let first = bench.ask(draft(b"abc"), bounds()).unwrap();
        let again = bench.ask(draft(b"abc"), bounds()).unwrap();
        assert_eq!(first, again);
        let changed = bench.ask(draft(b"abd"), bounds()).unwrap();
        assert_ne!(first.handle, changed.handle);
        let refused = bench.ledger.decide(answer(&first, Decision::AllowedOnce));
        assert!(
            matches!(refused, Err(DecideError::Withdrawn)),
            "{refused:?}"
        );
        assert_eq!(bench.ledger.asks(first.draft.session).unwrap(), [changed]);
    }

    /// FR-08: the same path in two events is two asks.
    #[test]
    fn fr_08_two_events_do_not_share_a_decision() {
        let bench = bench();
        let one = bench.ask(draft(b"abc"), bounds()).unwrap();
        let two = bench.ask(other(draft(b"abc"), 8), bounds()).unwrap();
        assert_ne!(one.handle, two.handle);
        let yes = answer(&one, Decision::AllowedOnce);
        bench.ledger.decide(yes).unwrap();
        assert_eq!(bench.ledger.asks(one.draft.session).unwrap(), [two]);
    }

    /// Keeps I11.
    #[test]
    fn a_session_has_so_many_asks_and_bytes() {
        let bench = bench();
        for seq in [1, 2] {
            bench.ask(other(draft(b"abc"), seq), bounds()).unwrap();
        }
        let third = bench.ask(other(draft(b"a"), 3), bounds());
        assert!(matches!(third, Err(LedgerError::TooManyAsks { most: 2 })));
        let large = bench.issue(draft(b"12345"), bounds());
        assert!(matches!(
            large,
            Err(LedgerError::OverQuota { used: 6, limit: 10 })
        ));
        bench.issue(draft(b"1234"), bounds()).unwrap();
    }

    #[test]
    fn a_receipt_that_was_edited_is_none() {
        let bench = bench();
        let receipt = bench.issue(draft(b"abc"), bounds()).unwrap();
        bench
            .control
            .write(|tx| {
                tx.execute(
                    "UPDATE receipts SET statement = replace(statement, 'out/a', 'out/c')",
                    [],
                )?;
                Ok::<_, ControlError>(())
            })
            .unwrap();
        let refused = bench.ledger.receipt(receipt.statement.receipt);
        assert!(
            matches!(refused, Err(LedgerError::Corrupt(_))),
            "{refused:?}"
        );
    }
}
