//! J2 and J3: from a path to the exact bytes somebody may have.
//!
//! The order is pin, hash, ask, release: what was decided on is what arrives, even when the workspace
//! has changed since. Content is claimed before it is committed, so that whatever ends the work leaves
//! either a kept release or nothing.

use std::time::{Duration, Instant};

use super::{OpenRoot, Parts, Place, TransferError, deliverable::Located};
use crate::{
    access::{Grant, Principal},
    journal::Once,
    model::{
        AttachmentId, ByteCount, Cancel, FileName, LogGeneration, MediaType, PrincipalId, SaveName,
        Seq, SessionHandle,
    },
    pinned::{Bounds, Grade, Kind, PinnedError, Resolver},
    policy::{Decision, NameClass, Preset},
    receipt::{self, Draft, Loose, Released, Wanted},
    spool::Spool,
};

/// The longest a release waits for a file to stand still.
pub const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// How long the first pause between two tries is; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The most content that is cleared away in one go.
const SWEEP: u32 = 256;

/// How a release is asked for.
#[derive(Debug, Default)]
pub struct Terms {
    /// How long to go on trying while the file changes: none when absent, [`LONGEST_WAIT`] at most.
    pub wait: Duration,
    /// Marks the request and its repeats.
    pub once: Option<Once>,
}

/// A private copy of a file that may leave, at once or after somebody said so.
#[derive(Debug)]
pub(super) struct Copied {
    place: Place,
    spool: Spool,
    resolver: Resolver,
    grade: Grade,
    /// What is put after the file's name: an archive is called after its directory.
    suffix: &'static str,
    asks: bool,
}

/// Where a copied file stands in a log, and who wants it.
#[derive(Clone, Copy, Debug)]
pub(super) struct For {
    pub(super) session: SessionHandle,
    pub(super) log_generation: LogGeneration,
    pub(super) seq: Seq,
    pub(super) index: u32,
    pub(super) who: PrincipalId,
}

/// Copies the declared file into the store and releases it, or asks somebody about exactly these
/// bytes (I1 to I5, I7). Returns nothing unless every step held.
///
/// # Errors
/// [`TransferError::Gate`] while nothing proves that reads of the root are pinned; nothing is opened
/// then. [`TransferError::NameDenied`] and [`TransferError::NobodyAsked`] by policy;
/// [`TransferError::Pinned`] when the file cannot be read so, also after waiting for it;
/// [`TransferError::Store`]; [`TransferError::Ledger`].
pub async fn release(
    parts: &Parts,
    caller: &Principal,
    located: Located,
    terms: Terms,
) -> Result<Released, TransferError> {
    let Located {
        grant,
        place,
        preset,
    } = located;
    if let Some(known) = recalled(parts, terms.once.as_ref()).await? {
        return one(known);
    }
    let until = Instant::now().checked_add(terms.wait.min(LONGEST_WAIT));
    let copied = copy(parts, &grant, place, preset, until).await?;
    let at = For {
        session: grant.session(),
        log_generation: grant.log_generation(),
        seq: grant.seq(),
        index: grant.index(),
        who: caller.id,
    };
    one(keep(parts, vec![(copied, at)], terms.once).await?)
}

fn one(mut all: Vec<Released>) -> Result<Released, TransferError> {
    let one = all.pop().filter(|_| all.is_empty());
    one.ok_or_else(|| receipt::LedgerError::Corrupt("an answer about one file".to_owned()).into())
}

/// What a request got when it came before.
pub(super) async fn recalled(
    parts: &Parts,
    once: Option<&Once>,
) -> Result<Option<Vec<Released>>, TransferError> {
    let Some(once) = once.cloned() else {
        return Ok(None);
    };
    let ledger = parts.ledger.clone();
    let looking = move || Ok(ledger.recalled(&once)?);
    parts.pools.control.run(looking).await?
}

/// Copies one file, and again while it changes until `until`.
pub(super) async fn copy<T>(
    parts: &Parts,
    grant: &Grant<T>,
    place: Place,
    preset: Preset,
    until: Option<Instant>,
) -> Result<Copied, TransferError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = attempt(parts, grant, &place, preset).await;
        let Err(TransferError::Pinned(PinnedError::Changed(_) | PinnedError::Busy(_))) = &outcome
        else {
            return outcome;
        };
        let again = Instant::now().checked_add(pause);
        if again.is_none_or(|again| until.is_none_or(|until| again >= until)) {
            return outcome;
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

async fn attempt<T>(
    parts: &Parts,
    grant: &Grant<T>,
    place: &Place,
    preset: Preset,
) -> Result<Copied, TransferError> {
    let closed = |closed| TransferError::Gate {
        closed,
        root: place.root.clone(),
    };
    let proof = parts.gate.proof(&place.root).map_err(closed)?;
    let root = parts.roots.of(grant, &proof).ok_or(TransferError::NoRoot)?;
    // By the name alone first: what would be refused anyway is not opened.
    asks(preset, &root.rules().names.judge(&place.path, None))?;
    let limit = root.rules().max_file.min(parts.limits.file);
    let store = parts.store.clone();
    let spooling = move || store.spool(None, limit);
    let spool = parts.pools.files.run(spooling).await??;
    let bounds = Bounds::new(limit, Cancel::new());
    let copied = root
        .snapshot(&parts.gate, place.path.clone(), spool, bounds)
        .await;
    if let Err(TransferError::Pinned(PinnedError::NotRegular(Kind::Directory))) = &copied {
        return archive(parts, &root, place, preset, limit).await;
    }
    let (spool, evidence) = copied?.into_parts();
    let class = root.rules().names.judge(&place.path, Some(spool.len()));
    Ok(Copied {
        asks: asks(preset, &class)?,
        place: place.clone(),
        spool,
        resolver: evidence.resolver,
        grade: evidence.grade,
        suffix: "",
    })
}

/// A directory as one archive of its files.
async fn archive(
    parts: &Parts,
    root: &OpenRoot,
    place: &Place,
    preset: Preset,
    limit: ByteCount,
) -> Result<Copied, TransferError> {
    let asked = asks(preset, &root.rules().names.judge(&place.path, None))?;
    let judge = move |class: &NameClass<'_>| match asks(preset, class) {
        Ok(asks) => Ok(asks),
        Err(TransferError::NobodyAsked) => Err("policy-never"),
        Err(_denied) => Err("denied_name"),
    };
    let (gathered, resolver) = root
        .gather(
            &parts.gate,
            parts.store.clone(),
            place.path.clone(),
            Bounds::new(limit, Cancel::new()),
            parts.limits.file,
            judge,
        )
        .await?;
    Ok(Copied {
        place: place.clone(),
        spool: gathered.spool,
        resolver,
        grade: gathered.grade,
        suffix: ".zip",
        asks: asked || gathered.asks,
    })
}

/// Whether somebody has to say yes first, where the file may leave at all.
fn asks(preset: Preset, class: &NameClass<'_>) -> Result<bool, TransferError> {
    match (preset.decide(class), class) {
        (Decision::Release, _) => Ok(false),
        (Decision::Ask, _) => Ok(true),
        (Decision::NobodyAsked, _) => Err(TransferError::NobodyAsked),
        (Decision::Denied, NameClass::Denied(pattern)) => Err(TransferError::NameDenied {
            pattern: (*pattern).to_owned(),
        }),
        (Decision::Denied, NameClass::Ordinary | NameClass::Sensitive(_)) => {
            Err(TransferError::NameDenied {
                pattern: String::new(),
            })
        }
    }
}

/// Commits copies and releases them: all or none. One piece of work, whoever leaves meanwhile.
pub(super) async fn keep(
    parts: &Parts,
    copies: Vec<(Copied, For)>,
    once: Option<Once>,
) -> Result<Vec<Released>, TransferError> {
    let own = parts.clone();
    let committing = move || {
        let digests: Vec<_> = copies.iter().map(|(copy, _)| copy.spool.digest()).collect();
        let claims = own.ledger.claim(&digests)?;
        let bounds = receipt::Bounds {
            life: own.limits.release_life,
            asks: own.limits.releases_waiting,
            bytes: own.limits.session_bytes,
        };
        let commit = || {
            let mut wanted = Vec::new();
            // Until the rows are durable the pins keep collection away.
            let mut pins = Vec::new();
            for (copy, at) in copies {
                let draft = draft(&own, &copy, at)?;
                pins.push(own.store.commit(copy.spool)?);
                wanted.push(Wanted {
                    draft,
                    asks: copy.asks,
                });
            }
            Ok(own.ledger.release(wanted, &claims, bounds, once)?)
        };
        let released: Result<Vec<Released>, TransferError> = commit();
        if released.is_err()
            && let Err(error) = own.ledger.give_up(claims.clone())
        {
            tracing::warn!(%error, "what a failed release left is cleared away at the next start");
        }
        clear(&own);
        released
    };
    parts.pools.store.run_in_turn(committing).await?
}

fn draft(parts: &Parts, copy: &Copied, at: For) -> Result<Draft, TransferError> {
    let digest = copy.spool.digest();
    let name = [copy.place.path.file_name(), copy.suffix.as_bytes()].concat();
    let name = SaveName::of_bytes(&name, digest);
    let name = FileName::parse(name.as_str())
        .map_err(|_unfit| TransferError::Pinned(PinnedError::NotRegular(Kind::Unknown)))?;
    Ok(Draft {
        session: at.session,
        log_generation: at.log_generation,
        seq: at.seq,
        index: at.index,
        path: copy.place.path.to_string(),
        name,
        id: AttachmentId::new(digest),
        bytes: copy.spool.len(),
        media_type: MediaType::Octets,
        root: copy.place.root.clone(),
        resolver: copy.resolver.name().to_owned(),
        grade: copy.grade.name().to_owned(),
        pinned_at: parts.clock.now(),
        asked_by: at.who,
    })
}

/// Takes content whose release ended out of the store, unless something needs it. Blocks. What cannot
/// be taken out now is at the next call.
pub fn clear(parts: &Parts) {
    let loose = match parts.ledger.loose(SWEEP) {
        Ok(loose) => loose,
        Err(error) => return tracing::warn!(%error, "what ended releases left is not known"),
    };
    for one in loose {
        if let Err(error) = clear_one(parts, one) {
            return tracing::warn!(%error, "the content of an ended release is kept for now");
        }
    }
}

fn clear_one(parts: &Parts, loose: Loose) -> Result<(), TransferError> {
    let digest = loose.digest;
    parts.store.forget(digest, &mut || parts.needs(digest))?;
    Ok(parts.ledger.cleared(loose)?)
}

/// Ends the asks whose time is over, and clears away what ended. Blocks.
pub fn tidy(parts: &Parts) {
    if let Err(error) = parts.ledger.expire() {
        tracing::warn!(%error, "asks whose time is over could not be ended");
    }
    clear(parts);
}

/// What a start does before anything is released: what a crash left of releases goes. Blocks.
pub fn recover(parts: &Parts) {
    if let Err(error) = parts.ledger.end_all_claims() {
        tracing::warn!(%error, "what a crash left of releases is not known");
    }
    tidy(parts);
}
