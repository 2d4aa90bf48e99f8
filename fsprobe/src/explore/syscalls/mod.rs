//! Strikes at every system call boundary of a program, one run each.
//!
//! An undisturbed run says which boundaries there are, from the first call that reaches the root to
//! the last that has to do with it. Each attack is then run once per boundary. A run that did not go
//! like the undisturbed one up to its strike lowers the coverage to *sampled*.

#![forbid(unsafe_code)]

mod calls;
mod tracer;

use std::sync::atomic::Ordering;

use self::tracer::{Boundary, Observer, Trace};
use super::{Found, Plan, Tally};
use crate::{
    arena::{Cell, Struck},
    attack::Attack,
    error::ProbeError,
    oracle::{Answer, Ending},
    report::{Coverage, Mode},
    rng::Rng,
    subject::process::Command,
};

/// Undisturbed runs that have to agree before boundaries count as the program's own.
const REHEARSALS: usize = 3;
/// More boundaries than this are not a read any more; the rest is left out, and said so.
const MAX_BOUNDARIES: usize = 20_000;

/// Strikes every attack of the plan at every boundary of `command`; with a `depth` of 2, undoes it
/// at every later one as well.
pub(crate) fn explore(
    plan: &Plan<'_>,
    command: &Command,
    depth: u32,
    rng: &mut Rng,
) -> Result<Found, ProbeError> {
    let mut tally = Tally::new(Mode::Syscalls, command.claims, Coverage::Exhaustive);
    tally.depth = depth;
    let Some(rehearsed) = rehearse(plan, command, rng, &mut tally)? else {
        return Ok(tally.finish());
    };
    let count = rehearsed.relevant.min(MAX_BOUNDARIES);
    if count < rehearsed.relevant {
        tally.lower(
            Coverage::CutShort,
            "it makes too many calls; only the first were struck at",
        );
    }
    tally.boundaries = count as u64;
    let total = plan.attacks.len() as u64;
    'attacks: for (done, attack) in plan.attacks.iter().enumerate() {
        plan.progress
            .at(&command.name, Mode::Syscalls.name(), done as u64, total);
        if attack.is_standing() {
            run_one(
                plan, command, *attack, None, None, rng, &mut tally, &rehearsed,
            )?;
            continue;
        }
        for first in 0..count {
            if !plan.goes_on()? {
                let note = "the budget ended before every boundary was struck at";
                tally.lower(Coverage::CutShort, note);
                break 'attacks;
            }
            run_one(
                plan,
                command,
                *attack,
                Some(first),
                None,
                rng,
                &mut tally,
                &rehearsed,
            )?;
            // The second strike moves along the disturbed run until that has no more boundaries.
            let mut second = first + 1;
            while depth > 1 && plan.goes_on()? && second < MAX_BOUNDARIES {
                let undone = Some(second);
                let undone = run_one(
                    plan,
                    command,
                    *attack,
                    Some(first),
                    undone,
                    rng,
                    &mut tally,
                    &rehearsed,
                )?;
                if !undone {
                    break;
                }
                second += 1;
            }
        }
    }
    Ok(tally.finish())
}

/// Runs undisturbed a few times. `None` where no run reached the root, or none may be traced.
fn rehearse(
    plan: &Plan<'_>,
    command: &Command,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<Option<Trace>, ProbeError> {
    let mut first: Option<Trace> = None;
    for _ in 0..REHEARSALS {
        let cell = plan.cell(Attack::Plain, rng)?;
        let mut script = Script::new(&cell, None, None, plan);
        let (answer, trace, complaint) = match traced(plan, command, &cell, &mut script) {
            Err(error @ ProbeError::Host { .. }) => {
                tally.lower(Coverage::Inconclusive, describe(&error));
                return Ok(None);
            }
            other => other?,
        };
        if let Some(why) = trace.blind {
            tally.lower(Coverage::Inconclusive, why);
        }
        if trace.mapped {
            tally.note("it maps the file: boundaries cannot tell when its bytes are read");
        }
        if trace.overlapped {
            tally.lower(Coverage::Sampled, "its threads had to run at once");
        }
        if answer.ending != Ending::Whole && !complaint.is_empty() {
            tally.note(format!("on a plain file it says: {complaint}"));
        }
        match &first {
            None => first = Some(trace),
            Some(one)
                if one.boundaries.get(..one.relevant) != trace.boundaries.get(..trace.relevant) =>
            {
                tally.lower(
                    Coverage::Sampled,
                    "its calls differ from one run to the next",
                );
                // The longer one offers more moments.
                if trace.relevant > one.relevant {
                    first = Some(trace);
                }
            }
            Some(_) => {}
        }
    }
    if first.as_ref().is_none_or(|trace| trace.relevant == 0) {
        tally.lower(
            Coverage::Inconclusive,
            "no system call of it reached the arena",
        );
        return Ok(None);
    }
    Ok(first)
}

/// One struck run, judged; whether its second strike came to pass.
#[expect(clippy::too_many_arguments, reason = "one run is exactly these")]
fn run_one(
    plan: &Plan<'_>,
    command: &Command,
    attack: Attack,
    first: Option<usize>,
    second: Option<usize>,
    rng: &mut Rng,
    tally: &mut Tally,
    rehearsed: &Trace,
) -> Result<bool, ProbeError> {
    let cell = plan.cell(attack, rng)?;
    let mut script = Script::new(&cell, first, second, plan);
    let (mut answer, trace, _) = traced(plan, command, &cell, &mut script)?;
    if script.is_held {
        answer.ending = Ending::Hung;
    }
    let undone = script.undone;
    // Let go, it opens what it waited for; that is counted already.
    let late = if script.is_held { 0 } else { cell.sightings() };
    let sightings = script.sightings + late;
    let struck = script.struck;
    if let Some(first) = first {
        let as_rehearsed = trace
            .boundaries
            .get(..=first)
            .is_some_and(|start| Some(start) == rehearsed.boundaries.get(..=first));
        if !as_rehearsed {
            tally.lower(
                Coverage::Sampled,
                "its calls differ from one run to the next",
            );
        }
    }
    if let Some(why) = trace.blind {
        tally.lower(Coverage::Inconclusive, why);
    }
    // A second strike that never came leaves the same run as depth 1, which is counted already.
    if second.is_some() && !undone {
        return Ok(false);
    }
    let title = |at: Option<usize>| {
        at.and_then(|at| Some(trace.boundaries.get(at)?.title()))
            .unwrap_or_default()
    };
    let moment = || match second {
        Some(_) => format!("{}, undone {}", title(first), title(second)),
        None if first.is_none() => "from the start".to_owned(),
        None => title(first),
    };
    let index = first.unwrap_or_default() as u64;
    tally.judge(&cell, &answer, struck, sightings, Some((index, &moment)));
    Ok(undone)
}

fn traced(
    plan: &Plan<'_>,
    command: &Command,
    cell: &Cell,
    script: &mut Script<'_>,
) -> Result<(Answer, Trace, String), ProbeError> {
    let (process, mut output) = command.on(cell)?;
    let (ended, trace) = tracer::run(process, &output, cell.root_path(), plan.patience, script)?;
    let complaint = output.complaint();
    Ok((output.judge_ending(ended)?, trace, complaint))
}

/// What is done at which boundary of one run.
struct Script<'a> {
    cell: &'a Cell,
    plan: &'a Plan<'a>,
    first: Option<usize>,
    second: Option<usize>,
    struck: Option<Struck>,
    undone: bool,
    /// The program waited on the cell's FIFO.
    is_held: bool,
    sightings: u64,
}

impl<'a> Script<'a> {
    fn new(
        cell: &'a Cell,
        first: Option<usize>,
        second: Option<usize>,
        plan: &'a Plan<'a>,
    ) -> Self {
        Self {
            cell,
            plan,
            first,
            second,
            struck: None,
            undone: false,
            is_held: false,
            sightings: 0,
        }
    }
}

impl Observer for Script<'_> {
    fn at(&mut self, index: usize, _boundary: Boundary) -> Result<(), ProbeError> {
        if self.plan.stop.load(Ordering::Relaxed) {
            return Err(ProbeError::Stopped);
        }
        if Some(index) == self.first {
            self.struck = Some(self.cell.strike()?);
        }
        if Some(index) == self.second {
            self.cell.restore()?;
            self.undone = true;
        }
        Ok(())
    }

    fn idle(&mut self) -> bool {
        self.sightings += self.cell.sightings();
        if self.cell.release_waiting() {
            self.sightings += 1;
            self.is_held = true;
        }
        self.is_held
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
