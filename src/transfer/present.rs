//! J3: a host presents files, and has them captured in the same call.
//!
//! Each file is copied before the log says that it was presented, and the log says so before anything
//! is released: where a file cannot be captured, nothing is presented, and where there is no room for what
//! was captured, the files stand presented and nothing is released.

use std::{sync::Arc, time::Instant};

use serde_json::{json, value::to_raw_value};

use super::{
    Parts, Place, TransferError,
    deliverable::preset,
    live::Live,
    progress::Progress,
    release::{For, LONGEST_WAIT, Terms, copy, keep, recalled},
};
use crate::{
    access::{AppendToSession, Grant, Principal},
    deliverable::Target,
    journal::{EventType, JournalError, NewEvent, references::PRESENTED},
    model::{LogGeneration, Seq, SessionHandle},
    policy::Preset,
    receipt::Released,
};

/// The most files one call presents.
pub const MOST_FILES: usize = 16;
/// The longest description of a file, in bytes.
const LONGEST_DESCRIPTION: usize = 4096;

/// What a host presents.
#[derive(Clone, Debug)]
pub struct Presentation {
    /// The turn the files were made in.
    pub turn: u64,
    /// The tool call that made them.
    pub call_id: String,
    /// The files, in order.
    pub files: Vec<File>,
    /// Whether they are captured now.
    pub capture: bool,
}

/// One file as it is presented.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path, in the session's directory.
    pub path: String,
    /// What the agent says of it; untrusted.
    pub description: Option<String>,
}

/// Files that stand in the log now.
#[derive(Debug)]
pub struct Presented {
    /// The numbering of `seq`.
    pub log_generation: LogGeneration,
    /// The event that declares them.
    pub seq: Seq,
    /// What became of each, where they were captured; in their order.
    pub captured: Vec<Released>,
}

/// Declares files in the session's log, and captures them first where that is asked for.
///
/// # Errors
/// [`TransferError::Access`] for everybody but the session's host; [`TransferError::File`] with the
/// first file that cannot be presented or captured, and why: nothing is declared then.
/// [`TransferError::Ledger`] and [`TransferError::Store`] without room for what was captured: it is
/// declared then, and not kept.
pub async fn present(
    live: &Arc<Live>,
    parts: &Parts,
    caller: &Principal,
    session: SessionHandle,
    presentation: Presentation,
    terms: Terms,
) -> Result<Presented, TransferError> {
    let (own, who) = (parts.clone(), caller.clone());
    let asking = move || {
        let grant = own.access.append_to_session(&who, session)?;
        let reading = own.access.read_session(&who, session)?;
        let preset = preset(&own, &reading)?;
        let cwd = own.journal.session(session)?.cwd;
        Ok::<_, TransferError>((grant, preset, cwd))
    };
    let (grant, preset, cwd) = parts.pools.control.run(asking).await??;
    let event = event(parts, &presentation)?;
    let targets = targets(&presentation.files, cwd.as_deref())?;
    if !presentation.capture {
        let (log_generation, seq) = declare(live, session, event, &terms).await?;
        return Ok(Presented {
            log_generation,
            seq,
            captured: Vec::new(),
        });
    }
    if let Some(known) = recalled(parts, terms.once.as_ref()).await?
        && let Some(first) = known.first()
    {
        let draft = match first {
            Released::Now(receipt) => &receipt.statement.released,
            Released::Asked(ask) => &ask.draft,
        };
        return Ok(Presented {
            log_generation: draft.log_generation,
            seq: draft.seq,
            captured: known,
        });
    }
    parts.audit.ready()?;
    let copies = capture(parts, &grant, targets, cwd.as_deref(), preset, &terms).await?;
    let (log_generation, seq) = declare(live, session, event, &terms).await?;
    let at = |index| For {
        session,
        log_generation,
        seq,
        index,
        who: caller.id,
    };
    let copies = copies.into_iter().zip((0..).map(at)).collect();
    Ok(Presented {
        log_generation,
        seq,
        captured: keep(live, parts, copies, terms.once).await?,
    })
}

async fn capture(
    parts: &Parts,
    grant: &Grant<AppendToSession>,
    targets: Vec<Target>,
    cwd: Option<&str>,
    preset: Preset,
    terms: &Terms,
) -> Result<Vec<super::release::Copied>, TransferError> {
    let until = Instant::now().checked_add(terms.wait.min(LONGEST_WAIT));
    let mut all = Vec::new();
    for (index, target) in targets.into_iter().enumerate() {
        let place: Option<Place> = cwd.and_then(|cwd| parts.roots.place(cwd, target.path()));
        let copied = match place {
            Some(place) => copy(parts, grant, place, preset, until, &Progress::default()).await,
            None => Err(TransferError::NoRoot),
        };
        all.push(copied.map_err(of_file(index))?);
    }
    Ok(all)
}

/// Where the files lie, by their letters.
fn targets(files: &[File], cwd: Option<&str>) -> Result<Vec<Target>, TransferError> {
    let parsed = files.iter().enumerate().map(|(index, file)| {
        Target::parse(&file.path, cwd)
            .map_err(TransferError::Outside)
            .map_err(of_file(index))
    });
    parsed.collect()
}

fn of_file(index: usize) -> impl FnOnce(TransferError) -> TransferError {
    move |error| TransferError::File {
        index,
        source: Box::new(error),
    }
}

fn event(parts: &Parts, presentation: &Presentation) -> Result<NewEvent, TransferError> {
    let refused = |why: &str| TransferError::Journal(JournalError::Refused(why.to_owned()));
    let long = |file: &File| {
        let description = file.description.as_ref();
        description.is_some_and(|text| text.len() > LONGEST_DESCRIPTION)
    };
    if presentation.files.is_empty() || presentation.files.len() > MOST_FILES {
        return Err(refused("a presentation has 1 to 16 files"));
    }
    if presentation.files.iter().any(long) || presentation.call_id.is_empty() {
        return Err(refused(
            "a description has 4096 bytes at most, and a call an id",
        ));
    }
    let files: Vec<_> = presentation
        .files
        .iter()
        .map(|file| match &file.description {
            Some(description) => json!({"path": file.path, "description": description}),
            None => json!({"path": file.path}),
        })
        .collect();
    let data = json!({
        "turn": presentation.turn, "callId": presentation.call_id, "files": files,
    });
    Ok(NewEvent {
        kind: EventType::parse(PRESENTED).map_err(|_ours| refused("the type of an event"))?,
        time: parts.clock.now(),
        data: to_raw_value(&data).map_err(|_ours| refused("the form of an event"))?,
        ignorable: false,
    })
}

async fn declare(
    live: &Arc<Live>,
    session: SessionHandle,
    event: NewEvent,
    terms: &Terms,
) -> Result<(LogGeneration, Seq), TransferError> {
    let once = terms.once.clone();
    let appended = live.append(session, vec![event], None, once).await?;
    Ok((appended.generation, appended.first))
}
