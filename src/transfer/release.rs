//! J2 and J3: from a path to the exact bytes somebody may have.
//!
//! The order is pin, hash, ask, release: what was decided on is what arrives, even when the workspace
//! has changed since. Content is claimed before it is committed, so that whatever ends the work leaves
//! either a kept release or nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    OpenRoot, Parts, Place, TransferError,
    deliverable::Located,
    gather::{Archive, Gathering, MOST_ENTRIES, Wanted},
    live::Live,
    progress::{About, Progress},
    recorded,
};
use crate::{
    access::{Grant, Principal},
    control::ControlError,
    journal::Once,
    model::{
        AttachmentId, ByteCount, Cancel, Digest, FileName, LogGeneration, MediaType, PrincipalId,
        SaveName, Seq, SessionHandle,
    },
    pinned::{Bounds, Grade, Kind, PinnedError, Resolver},
    policy::{Decision, NameClass, Preset},
    receipt::{self, Claims, Draft, Item, LedgerError, Loose, Reading, Released},
    removal,
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

/// A private copy of what may leave, at once or after somebody said so.
#[derive(Debug)]
pub(super) struct Copied {
    /// Where the declared file lies beneath its root; none for everything in a session.
    pub(super) path: Option<String>,
    /// How it was read, where anything was.
    pub(super) reading: Option<Reading>,
    pub(super) name: FileName,
    pub(super) spool: Spool,
    pub(super) asks: bool,
}

/// Where what was copied stands in a log, and who wants it.
#[derive(Clone, Copy, Debug)]
pub(super) struct For {
    pub(super) session: SessionHandle,
    pub(super) log_generation: LogGeneration,
    pub(super) seq: Seq,
    /// Of no meaning for everything in a session.
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
    live: &Arc<Live>,
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
    parts.audit.ready()?;
    let until = Instant::now().checked_add(terms.wait.min(LONGEST_WAIT));
    let at = For {
        session: grant.session(),
        log_generation: grant.log_generation(),
        seq: grant.seq(),
        index: grant.index(),
        who: caller.id,
    };
    let about = About {
        session: at.session,
        log_generation: at.log_generation,
        seq: at.seq,
        index: Some(at.index),
    };
    let progress = Progress::default();
    let copying = copy(parts, &grant, place, preset, until, &progress);
    let copied = progress.told(live, caller.id, about, copying).await?;
    one(keep(live, parts, vec![(copied, at)], terms.once).await?)
}

pub(super) fn one(mut all: Vec<Released>) -> Result<Released, TransferError> {
    let one = all.pop().filter(|_| all.is_empty());
    one.ok_or_else(|| LedgerError::Corrupt("an answer about one file".to_owned()).into())
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
    progress: &Progress,
) -> Result<Copied, TransferError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = attempt(parts, grant, &place, preset, progress).await;
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
    progress: &Progress,
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
    let spool = spool.counted(progress.bytes());
    let bounds = Bounds::new(limit, Cancel::new());
    let copied = root
        .snapshot(&parts.gate, place.path.clone(), spool, bounds)
        .await;
    if let Err(TransferError::Pinned(PinnedError::NotRegular(Kind::Directory))) = &copied {
        return archive(parts, &root, place, preset, progress).await;
    }
    // The smaller of two ceilings; the root's is what the error means by itself.
    if let Err(TransferError::Pinned(PinnedError::OverLimit { limit, size })) = &copied
        && *limit < root.rules().max_file
    {
        return Err(TransferError::TooLarge {
            size: *size,
            limit: *limit,
            setting: "limits.file",
        });
    }
    let (spool, evidence) = copied?.into_parts();
    let class = root.rules().names.judge(&place.path, Some(spool.len()));
    Ok(Copied {
        asks: asks(preset, &class)?,
        path: Some(place.path.to_string()),
        reading: Some(reading(&place.root, evidence.resolver, evidence.grade)),
        name: called(&[place.path.file_name()], &spool)?,
        spool,
    })
}

/// A directory as one archive of its files.
async fn archive(
    parts: &Parts,
    root: &OpenRoot,
    place: &Place,
    preset: Preset,
    progress: &Progress,
) -> Result<Copied, TransferError> {
    let limit = root.rules().max_file.min(parts.limits.file);
    let bounds = Bounds::new(limit, Cancel::new());
    let (top, ceiling) = (place.path.clone(), parts.limits.file);
    let gathering = move |gathering: &Gathering<'_>| {
        let mut archive = Archive::begin(gathering.store, ceiling)?;
        let wanted = Wanted {
            path: top.clone(),
            member: None,
        };
        gathering.run(vec![wanted], &mut archive, MOST_ENTRIES, ByteCount::ZERO)?;
        archive.finish(gathering.store, &gathering.bounds.cancel)
    };
    let progress = progress.clone();
    let (gathered, resolver) = root
        .gather(parts, bounds, preset, progress, gathering)
        .await?;
    let grade = gathered.grade.unwrap_or(Grade::Stamped);
    Ok(Copied {
        path: Some(place.path.to_string()),
        reading: Some(reading(&place.root, resolver, grade)),
        name: called(&[place.path.file_name(), b".zip"], &gathered.spool)?,
        spool: gathered.spool,
        asks: gathered.asks,
    })
}

pub(super) fn reading(root: &str, resolver: Resolver, grade: Grade) -> Reading {
    Reading {
        root: root.to_owned(),
        resolver: resolver.name().to_owned(),
        grade: grade.name().to_owned(),
    }
}

/// The safe name nearest to these bytes.
pub(super) fn called(name: &[&[u8]], spool: &Spool) -> Result<FileName, TransferError> {
    let name = SaveName::of_bytes(&name.concat(), spool.digest());
    FileName::parse(name.as_str())
        .map_err(|_unfit| TransferError::Pinned(PinnedError::NotRegular(Kind::Unknown)))
}

/// Whether a file may leave in an archive, and whether somebody has to say yes first; or why not, as
/// one word.
pub(super) fn may_leave(preset: Preset, class: &NameClass<'_>) -> Result<bool, &'static str> {
    match asks(preset, class) {
        Ok(asks) => Ok(asks),
        Err(TransferError::NobodyAsked) => Err("policy-never"),
        Err(_denied) => Err("denied_name"),
    }
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

/// Commits copies and releases them, all or none, and tells of the questions. One piece of work, whoever
/// leaves meanwhile.
pub(super) async fn keep(
    live: &Arc<Live>,
    parts: &Parts,
    copies: Vec<(Copied, For)>,
    once: Option<Once>,
) -> Result<Vec<Released>, TransferError> {
    let Some(session) = copies.first().map(|(_, at)| at.session) else {
        return Ok(Vec::new());
    };
    let (own, live) = (parts.clone(), Arc::clone(live));
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
                let (asks, spool) = (copy.asks, copy.spool);
                let digest = spool.digest();
                let draft = Draft {
                    session: at.session,
                    log_generation: at.log_generation,
                    seq: at.seq,
                    item: copy.path.map(|path| Item {
                        index: at.index,
                        path,
                    }),
                    reading: copy.reading,
                    name: copy.name,
                    id: AttachmentId::new(digest),
                    bytes: spool.len(),
                    media_type: MediaType::Octets,
                    pinned_at: own.clock.now(),
                    asked_by: at.who,
                };
                pins.push(own.store.commit(spool)?);
                wanted.push(receipt::Wanted { draft, asks });
            }
            // Nothing lies between this and the rows but the flush of the rows.
            own.audit.ready()?;
            live.in_line(session, || {
                let booked = own.ledger.release(wanted, &claims, bounds, once)?;
                recorded::booked(&own.audit, &booked);
                live.tell_ended(&booked.ended);
                live.tell_asked(&booked.released);
                Ok(booked.released)
            })
        };
        let released: Result<Vec<Released>, TransferError> = commit();
        if released.is_err() {
            give_up(&own, claims, &digests);
        }
        clear(&own);
        released
    };
    parts.pools.store.run_in_turn(committing).await?
}

/// Nothing comes of a release after all. Where there is no room to note that, nothing of the release is
/// in the database, so what it committed goes at once: a full disk needs the room most.
fn give_up(parts: &Parts, claims: Claims, digests: &[Digest]) {
    let Err(error) = parts.ledger.give_up(claims) else {
        return;
    };
    tracing::warn!(%error, "that a release failed is noted later");
    if !matches!(error, LedgerError::Control(ControlError::Full)) {
        return;
    }
    for digest in digests {
        if let Err(error) = parts.forget(*digest) {
            tracing::warn!(%error, "the content of a failed release is kept for now");
        }
    }
}

/// Takes content whose release ended out of the store, unless something needs it. Blocks. What cannot
/// be taken out now is at the next call. Whether there may be more.
pub fn clear(parts: &Parts) -> bool {
    if let Err(error) = parts.ledger.catch_up() {
        tracing::warn!(%error, "what failed releases left is not noted yet");
    }
    let loose = match parts.ledger.loose(SWEEP) {
        Ok(loose) => loose,
        Err(error) => {
            tracing::warn!(%error, "what ended releases left is not known");
            return false;
        }
    };
    let is_full = loose.len() >= usize::try_from(SWEEP).unwrap_or(usize::MAX);
    for one in loose {
        if let Err(error) = clear_one(parts, one) {
            tracing::warn!(%error, "the content of an ended release is kept for now");
            return false;
        }
    }
    is_full
}

fn clear_one(parts: &Parts, loose: Loose) -> Result<(), TransferError> {
    parts.forget(loose.digest)?;
    Ok(parts.ledger.cleared(loose)?)
}

/// Takes away what removed sessions left, rows and content, a part at a time. What cannot be taken away
/// now is at the next call.
pub async fn sweep(parts: &Parts) {
    loop {
        let own = parts.clone();
        let clearing = move || {
            let stepped = removal::step(&own.control);
            let more = clear(&own);
            stepped.map(|stepped| stepped || more)
        };
        match parts.pools.store.run_in_turn(clearing).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return,
            Ok(Err(error)) => return tracing::warn!(%error, "a removed session goes later"),
            Err(error) => return tracing::warn!(%error, "a removed session goes later"),
        }
    }
}

/// Ends the asks whose time is over, tells of it, and clears away what ended. Blocks.
pub fn tidy(live: &Live, parts: &Parts) {
    match parts.ledger.expire() {
        Ok(ended) => {
            recorded::lapsed(&parts.audit, &ended);
            live.tell_ended(&ended);
        }
        Err(error) => tracing::warn!(%error, "asks whose time is over could not be ended"),
    }
    clear(parts);
}

/// What a start does before anything is released: what a crash left of releases goes. Blocks.
pub fn recover(parts: &Parts) {
    if let Err(error) = parts.ledger.end_all_claims() {
        tracing::warn!(%error, "what a crash left of releases is not known");
    }
    // Nobody listens yet.
    match parts.ledger.expire() {
        Ok(ended) => recorded::lapsed(&parts.audit, &ended),
        Err(error) => tracing::warn!(%error, "asks whose time is over could not be ended"),
    }
    clear(parts);
}
