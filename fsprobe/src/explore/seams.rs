//! Strikes at the named steps of a subject that cooperates: every attack at every step, one run
//! each.

#![forbid(unsafe_code)]

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{Found, Plan, Tally};
use crate::{
    arena::{Cell, Struck, TARGET},
    attack::Attack,
    error::ProbeError,
    oracle::{Answer, Verdict},
    report::{Coverage, Mode},
    rng::Rng,
    subject::Subject,
};

/// How long a reader may be silent before it is checked whether a FIFO holds it.
pub(crate) const FIFO_PATIENCE: Duration = Duration::from_millis(150);
/// Hung readers that do not even end when released, after which a subject is given up on.
const MAX_LEFT_BEHIND: u32 = 4;

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
    /// How often the cell's FIFO was opened by the subject.
    pub sightings: u64,
    /// Whether the subject's thread had to be left behind.
    pub left_behind: bool,
}

/// What the subject's thread says when it is done.
type Told = (Answer, Vec<String>, Option<Result<Struck, ProbeError>>);

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
    let before = if when == When::Before {
        Some(cell.strike()?)
    } else {
        None
    };
    let (told, hears) = mpsc::channel::<Told>();
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
    let observed = listen(&hears, &cell, before, patience)?;
    Ok((observed, cell))
}

fn listen(
    hears: &mpsc::Receiver<Told>,
    cell: &Cell,
    before: Option<Struck>,
    patience: Duration,
) -> Result<Observed, ProbeError> {
    let finished = |(answer, steps, at_step): Told, sightings| {
        let struck = at_step.transpose()?.or(before);
        Ok(Observed {
            answer,
            steps,
            struck,
            sightings,
            left_behind: false,
        })
    };
    let deadline = Instant::now() + patience;
    let mut sightings = 0;
    if cell.attack() == Attack::Fifo {
        match hears.recv_timeout(FIFO_PATIENCE.min(patience)) {
            Ok(told) => return finished(told, cell.sightings()),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(vanished(before)),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        sightings = cell.sightings();
        if cell.release_waiting() {
            // It waited in `open` or in `read`, and would still.
            let told = hears.recv_timeout(patience);
            let left_behind = told.is_err();
            let steps = told.map(|(_, steps, _)| steps).unwrap_or_default();
            let sightings = sightings + 1;
            let (answer, struck) = (Answer::hung(), Some(Struck::Yes));
            return Ok(Observed {
                answer,
                steps,
                struck,
                sightings,
                left_behind,
            });
        }
    }
    match hears.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(told) => finished(told, sightings + cell.sightings()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Ok(vanished(before)),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let (answer, struck) = (Answer::hung(), Some(Struck::Yes));
            Ok(Observed {
                answer,
                steps: Vec::new(),
                struck,
                sightings,
                left_behind: true,
            })
        }
    }
}

/// A subject whose thread ended without a word: it panicked, which is a refusal of a kind.
fn vanished(before: Option<Struck>) -> Observed {
    let answer = Answer::of(Err(crate::Refusal::new("panicked")));
    Observed {
        answer,
        steps: Vec::new(),
        struck: before,
        sightings: 0,
        left_behind: false,
    }
}

/// Strikes every attack of the plan at every step of `subject`.
pub(crate) fn explore(
    plan: &Plan<'_>,
    subject: &Arc<dyn Subject>,
    rng: &mut Rng,
) -> Result<Found, ProbeError> {
    let mut tally = Tally::new(Mode::Seams, subject.claims(), Coverage::Exhaustive);
    let (undisturbed, _) = observe(
        subject,
        plan.cell(Attack::Plain, rng)?,
        When::Never,
        plan.patience,
    )?;
    let steps = undisturbed.steps;
    // One more than there are steps: the moment before the first.
    tally.boundaries = steps.len() as u64 + 1;
    let total = plan.attacks.len() as u64;
    let mut left_behind = 0;
    'attacks: for (done, attack) in plan.attacks.iter().enumerate() {
        plan.progress
            .at(subject.name(), Mode::Seams.name(), done as u64, total);
        let moments: Vec<When> = if attack.is_standing() {
            vec![When::Never]
        } else {
            std::iter::once(When::Before)
                .chain((0..steps.len()).map(When::Step))
                .collect()
        };
        for (index, when) in moments.into_iter().enumerate() {
            if !plan.goes_on()? {
                tally.lower(
                    Coverage::CutShort,
                    "the budget ended before every step was struck at",
                );
                break 'attacks;
            }
            let (seen, cell) = observe(subject, plan.cell(*attack, rng)?, when, plan.patience)?;
            let moment = || match when {
                When::Step(step) => {
                    format!(
                        "at step {step} `{}`",
                        steps.get(step).map_or("", String::as_str)
                    )
                }
                When::Before | When::Never | When::Named(_) => "before the first step".to_owned(),
            };
            let verdict = tally.judge(
                &cell,
                &seen.answer,
                seen.struck,
                seen.sightings,
                Some((index as u64, &moment)),
            );
            if !has_same_start(&steps, &seen.steps, when) && verdict != Verdict::Hung {
                tally.lower(
                    Coverage::Sampled,
                    "the steps differ from one run to the next",
                );
            }
            left_behind += u32::from(seen.left_behind);
            if left_behind >= MAX_LEFT_BEHIND {
                tally.lower(
                    Coverage::CutShort,
                    "too many readers hung for good; the rest was not tried",
                );
                break 'attacks;
            }
        }
    }
    Ok(tally.finish())
}

/// Whether a run went like the undisturbed one up to its strike.
fn has_same_start(undisturbed: &[String], seen: &[String], when: When) -> bool {
    match when {
        When::Step(step) => undisturbed.get(..=step) == seen.get(..=step),
        When::Never | When::Before | When::Named(_) => true,
    }
}
