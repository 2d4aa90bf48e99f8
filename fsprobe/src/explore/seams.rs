//! Strikes at the named steps of a subject that cooperates.

#![forbid(unsafe_code)]

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use crate::{
    arena::{Cell, Struck, TARGET},
    error::ProbeError,
    oracle::Answer,
    subject::Subject,
};

/// When to strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Not at all.
    Never,
    /// After the root is opened, before the read begins.
    Before,
    /// At the subject's `n`th step, counted from 0 over all its steps.
    Step(usize),
    /// At the first step of this name.
    Named(&'static str),
}

/// One observed read.
#[derive(Debug)]
pub struct Observed {
    /// What came back.
    pub answer: Answer,
    /// The steps the subject called out, in order.
    pub steps: Vec<String>,
    /// Whether the strike came to pass, and how; `None` where its moment never came.
    pub struck: Option<Struck>,
    /// How often the cell's FIFO was opened.
    pub sightings: u64,
}

/// Has `subject` read the cell's file once, striking at `when`.
///
/// A subject that gives no answer within `patience` is released where the cell's FIFO holds it, and
/// otherwise left behind on its thread.
///
/// # Errors
/// [`ProbeError`] where the arena failed, or the subject refused to open an untouched root.
pub fn observe(
    subject: &Arc<dyn Subject>,
    cell: Cell,
    when: When,
    patience: Duration,
) -> Result<(Observed, Arc<Cell>), ProbeError> {
    let cell = Arc::new(cell);
    let mut reader = subject.open(cell.root_path()).map_err(|refusal| {
        ProbeError::Usage(format!(
            "{} cannot open an untouched root: {refusal}",
            subject.name()
        ))
    })?;
    let mut struck = None;
    if when == When::Before {
        struck = Some(cell.strike()?);
    }
    let (told, hears) = mpsc::channel();
    let theirs = Arc::clone(&cell);
    thread::Builder::new()
        .name("fsprobe-subject".to_owned())
        .spawn(move || {
            let mut steps = Vec::new();
            let mut struck = None;
            let ceiling = theirs.setup().ceiling;
            let mut seam = |step: &str| {
                let is_now = match when {
                    When::Never | When::Before => false,
                    When::Step(index) => index == steps.len(),
                    When::Named(name) => name == step,
                };
                steps.push(step.to_owned());
                if is_now && struck.is_none() {
                    struck = Some(theirs.strike());
                }
            };
            let result = reader.read(Path::new(TARGET), ceiling, &mut seam);
            drop(reader);
            // Nobody listens any more once patience ran out.
            drop(told.send((Answer::of(result), steps, struck)));
        })
        .map_err(|source| ProbeError::Host {
            what: "start a thread for the subject",
            source,
        })?;
    if let Ok((answer, steps, at_step)) = hears.recv_timeout(patience) {
        let struck = at_step.transpose()?.or(struck);
        let sightings = cell.sightings();
        return Ok((
            Observed {
                answer,
                steps,
                struck,
                sightings,
            },
            cell,
        ));
    }
    let sightings = cell.sightings();
    cell.rescue();
    // Released, it ends soon; if it does not, its thread ends with the process.
    let steps = hears
        .recv_timeout(patience)
        .map(|(_, steps, _)| steps)
        .unwrap_or_default();
    let observed = Observed {
        answer: Answer::hung(),
        steps,
        struck: Some(Struck::Yes),
        sightings,
    };
    Ok((observed, cell))
}
