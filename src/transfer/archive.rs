//! J2 for everything in a session: one archive of what its log refers to and what it declares.
//!
//! Attachments come from the store, verified as for a download; declared files from their root, pinned and
//! copied as for a release of each. What cannot be in it is named in its manifest and keeps nothing else out.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{
    Parts, TransferError,
    deliverable::preset,
    gather::{Archive, Gathering, MOST_ENTRIES, Wanted},
    live::Live,
    progress::{About, Progress},
    release::{Copied, For, called, keep, one, reading, recalled},
};
use crate::{
    access::{Access, DeliverableRef, Grant, Principal, ReadSession},
    deliverable::Target,
    gate::GateClosed,
    journal::{Journal, JournalError, Once, Session, Window},
    model::{AttachmentRef, ByteCount, Cancel, FileName, RelPath, SessionHandle, Shown},
    pinned::{Bounds, PinnedError},
    policy::Preset,
    receipt::{Reading, Released},
    store::StoreError,
};

/// Where attachments are in an archive.
const ATTACHMENTS: &str = "attachments";
/// Where declared files are in an archive.
const FILES: &str = "files";
/// How many rows of a listing are read at once.
const ROWS: u32 = 1000;

/// Everything in a session that the caller may have.
struct Holdings {
    session: Session,
    preset: Preset,
    attachments: Vec<Grant<AttachmentRef>>,
    /// The last declaration of each path.
    declared: Vec<Grant<DeliverableRef>>,
}

/// Makes one archive of everything in a session and releases it, or asks somebody about it where one
/// of its files would be asked about. Closed gates leave declared files out, unopened.
///
/// # Errors
/// [`TransferError::Access`] for everybody but the session's owners; [`TransferError::TooManyEntries`] and
/// [`TransferError::TooLarge`] before anything is copied when there is more than one archive may hold;
/// [`TransferError::Store`]; [`TransferError::Ledger`].
pub async fn archive(
    live: &Arc<Live>,
    parts: &Parts,
    caller: &Principal,
    session: SessionHandle,
    once: Option<Once>,
) -> Result<Released, TransferError> {
    let (own, who) = (parts.clone(), caller.clone());
    let asking = move || {
        let grant = own.access.read_session(&who, session)?;
        own.access.release_from_session(&who, session)?;
        Ok::<_, TransferError>(grant)
    };
    let grant = parts.pools.control.run(asking).await??;
    if let Some(known) = recalled(parts, once.as_ref()).await? {
        return one(known);
    }
    parts.audit.ready()?;
    let own = parts.clone();
    let looking = move || holdings(&own, &grant);
    let holdings = parts.pools.store.run(looking).await??;
    let at = For {
        session,
        log_generation: holdings.session.generation,
        seq: holdings.session.next_seq,
        index: 0,
        who: caller.id,
    };
    let about = About {
        session,
        log_generation: at.log_generation,
        seq: at.seq,
        index: None,
    };
    let progress = Progress::default();
    let copying = copy(parts, holdings, &progress);
    let copied = progress.told(live, caller.id, about, copying).await?;
    one(keep(live, parts, vec![(copied, at)], once).await?)
}

fn holdings(parts: &Parts, grant: &Grant<ReadSession>) -> Result<Holdings, TransferError> {
    let (access, journal) = (&*parts.access, &*parts.journal);
    let session = journal.session(grant.session())?;
    let attachments = attachments(access, journal, grant)?;
    let declared = declared(access, journal, grant, MOST_ENTRIES - attachments.len())?;
    Ok(Holdings {
        session,
        preset: preset(parts, grant)?,
        attachments,
        declared,
    })
}

/// Every page of a listing, with at most `most` rows.
fn all<T>(
    most: usize,
    page: impl Fn(Window) -> Result<Vec<T>, JournalError>,
) -> Result<Vec<T>, TransferError> {
    let mut all = Vec::new();
    loop {
        let offset = u64::try_from(all.len()).unwrap_or(u64::MAX);
        let rows = page(Window {
            offset,
            limit: ROWS,
        })?;
        let is_last = rows.is_empty();
        all.extend(rows);
        if all.len() > most {
            return Err(TransferError::TooManyEntries { most: MOST_ENTRIES });
        }
        if is_last {
            return Ok(all);
        }
    }
}

/// What the log refers to: each content once under each name.
fn attachments(
    access: &Access,
    journal: &dyn Journal,
    grant: &Grant<ReadSession>,
) -> Result<Vec<Grant<AttachmentRef>>, TransferError> {
    let rows = all(MOST_ENTRIES, |window| {
        journal.references(grant.session(), window)
    })?;
    let mut seen: HashSet<(_, Option<FileName>)> = HashSet::new();
    let mut granted = Vec::new();
    for row in rows {
        let (id, name) = (row.reference.id, row.reference.name);
        let found = access.attachment(grant, id, name.as_ref())?;
        if seen.insert((id, name)) {
            granted.push(found);
        }
    }
    Ok(granted)
}

/// What the log declares: of each path the last declaration.
fn declared(
    access: &Access,
    journal: &dyn Journal,
    grant: &Grant<ReadSession>,
    most: usize,
) -> Result<Vec<Grant<DeliverableRef>>, TransferError> {
    let rows = all(most, |window| journal.declared(grant.session(), window))?;
    let mut last = BTreeMap::new();
    for row in rows {
        let place = (row.generation, row.seq, row.index);
        last.insert(row.presented.path, place);
    }
    last.into_values()
        .map(|(generation, seq, index)| Ok(access.deliverable(grant, generation, seq, index)?))
        .collect()
}

/// Copies everything into one archive.
async fn copy(
    parts: &Parts,
    holdings: Holdings,
    progress: &Progress,
) -> Result<Copied, TransferError> {
    let Holdings {
        session,
        preset,
        attachments,
        declared,
    } = holdings;
    let besides = attachments
        .iter()
        .fold(ByteCount::ZERO, |sum, one| sum.saturating_add(one.bytes));
    let limit = parts.limits.file;
    if besides > limit {
        return Err(TransferError::TooLarge {
            size: Some(besides),
            limit,
            setting: "limits.file",
        });
    }
    progress.expect(attachments.len());
    let most = MOST_ENTRIES - attachments.len();
    let (archive, reading) = files(parts, declared, preset, most, besides, progress).await?;
    let cancel = Cancel::new();
    let _stops = cancel.fire_on_drop();
    let (own, progress) = (parts.clone(), progress.clone());
    let adding = move || {
        let mut archive = archive;
        for reference in attachments {
            stored(&own, &session, &reference, &mut archive, &cancel, &progress)?;
            progress.file_done();
        }
        let gathered = archive.finish(&*own.store, &cancel)?;
        let id = session.id.to_string();
        Ok::<_, TransferError>(Copied {
            path: None,
            reading,
            name: called(&[id.as_bytes(), b".zip"], &gathered.spool)?,
            spool: gathered.spool,
            asks: gathered.asks,
        })
    };
    parts.pools.store.run(adding).await?
}

/// Begins the archive with the declared files, as far as the gate of their root lets any be opened.
async fn files(
    parts: &Parts,
    declared: Vec<Grant<DeliverableRef>>,
    preset: Preset,
    most: usize,
    besides: ByteCount,
    progress: &Progress,
) -> Result<(Archive, Option<Reading>), TransferError> {
    let mut left_out = Vec::new();
    let mut wanted = Vec::new();
    let mut of_root = None;
    for one in &declared {
        let shown = Shown(one.path().as_bytes()).to_string();
        let target = match Target::parse(one.path(), one.cwd()) {
            Ok(target) => target,
            Err(refused) => {
                left_out.push((shown, refused.code()));
                continue;
            }
        };
        let member = [FILES.as_bytes(), b"/", target.path().as_bytes()].concat();
        let place = one
            .cwd()
            .and_then(|cwd| parts.roots.place(cwd, target.path()));
        match (place, RelPath::parse(&member)) {
            (None, _) => left_out.push((shown, "no-root")),
            (Some(_), Err(_)) => left_out.push((shown, "name_too_long")),
            (Some(place), Ok(member)) => {
                // A session lies in one directory, and so in one root.
                of_root = Some((place.root, one));
                wanted.push((place.path, member));
            }
        }
    }
    let open = of_root
        .map(|(root, grant)| {
            let proof = parts.gate.proof(&root).map_err(GateClosed::code)?;
            let open = parts.roots.of(grant, &proof).ok_or("no-root")?;
            Ok::<_, &'static str>((root, open))
        })
        .transpose();
    let (root, open) = match open {
        Ok(Some(open)) => open,
        closed => {
            let class = closed.err().unwrap_or("no-root");
            let closed = wanted.iter().map(|(_, member)| (member.to_string(), class));
            left_out.extend(closed);
            let (store, ceiling) = (Arc::clone(&parts.store), parts.limits.file);
            let beginning = move || Archive::begin(&*store, ceiling);
            let mut archive = parts.pools.files.run(beginning).await??;
            for (path, class) in left_out {
                archive.leave_out(&path, class);
            }
            return Ok((archive, None));
        }
    };
    let limit = open.rules().max_file.min(parts.limits.file);
    let ceiling = parts.limits.file;
    let gathering = move |gathering: &Gathering<'_>| {
        let mut archive = Archive::begin(gathering.store, ceiling)?;
        for (path, class) in &left_out {
            archive.leave_out(path, class);
        }
        let wanted = wanted.iter().map(|(path, member)| Wanted {
            path: path.clone(),
            member: Some(member.clone()),
        });
        gathering.run(wanted.collect(), &mut archive, most, besides)?;
        Ok(archive)
    };
    let bounds = Bounds::new(limit, Cancel::new());
    let progress = progress.clone();
    let (archive, resolver) = open
        .gather(parts, bounds, preset, progress, gathering)
        .await?;
    let reading = archive.grade().map(|grade| reading(&root, resolver, grade));
    Ok((archive, reading))
}

/// Adds an attachment, verified whole first; one that is lost or damaged is left out.
fn stored(
    parts: &Parts,
    session: &Session,
    reference: &Grant<AttachmentRef>,
    archive: &mut Archive,
    cancel: &Cancel,
    progress: &Progress,
) -> Result<(), TransferError> {
    let digest = reference.id.digest();
    let called = match &reference.name {
        Some(name) => format!("{ATTACHMENTS}/{name}"),
        None => format!("{ATTACHMENTS}/image-{digest}"),
    };
    let path = RelPath::parse(called.as_bytes()).map_err(PinnedError::InvalidPath)?;
    let objects = parts.attachments.of(session.handle);
    let verified = objects
        .open(reference)
        .and_then(|blob| parts.verifier.verify(blob, cancel));
    let class = match verified {
        Ok(content) => return archive.add_stored(&path, &content, cancel, progress),
        Err(StoreError::NotFound(_)) => "lost",
        Err(
            StoreError::NotAnObject(_)
            | StoreError::LengthMismatch { .. }
            | StoreError::DigestMismatch(_)
            | StoreError::Changed(_),
        ) => "damaged",
        Err(error) => return Err(error.into()),
    };
    archive.leave_out(&path, class);
    Ok(())
}
