//! The founding probe: six assertions that say what a check-then-open reader is worth.
//!
//! The two swaps are *counterexamples*: the control has to lose them, which is why the report always
//! says that such a reader is not safe. A counterexample that stops failing is no good news to be
//! passed over in silence but a reason for a review, because either the reader or the probe changed.

#![forbid(unsafe_code)]

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    arena::{Arena, Setup},
    attack::Attack,
    content::LINE,
    control::{OpenatWalk, StatThenOpen},
    error::ProbeError,
    explore::seams::{self, When},
    oracle::{self, Verdict},
    rng::Rng,
    subject::Subject,
};

/// The report's format name.
pub const FORMAT: &str = "fsprobe-baseline/1";

const PATIENCE: Duration = Duration::from_secs(10);
const LEN: usize = 128 * LINE;
const CEILING: u64 = 256 * LINE as u64;

/// What the six assertions came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BaselineReport {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always false: reproducing a defect is not an acceptance of anything.
    pub safe_for_path_deliverable_download: bool,
    /// Always `blocked`, for the same reason.
    pub path_deliverable_download: String,
    /// Whether the documented behaviour was seen.
    pub outcome: Outcome,
    /// Names of the two readers.
    pub control: String,
    /// The reader that must not lose.
    pub reference: String,
    /// Repeats the run.
    pub seed: u64,
    /// The six, in order.
    pub assertions: Vec<Assertion>,
}

/// Whether the baseline still behaves as documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All six hold: the control loses both swaps, the reference none.
    Reproduced,
    /// Something changed; somebody has to look before anything is concluded.
    Review,
}

/// One of the six.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assertion {
    /// What it is about.
    pub name: String,
    /// What the control did.
    pub control: Finding,
    /// What the reference did.
    pub reference: Finding,
}

/// What one reader did in one assertion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What holds the assertion.
    pub expected: Vec<Verdict>,
    /// What was seen, one per moment struck at.
    pub observed: Vec<Verdict>,
    /// Whether the answer was as long as the inside file, wherever bytes came back.
    pub same_length: bool,
    /// Whether everything observed was expected.
    pub holds: bool,
}

/// One row of the plan: what is done and what each reader has to make of it.
struct Row {
    name: &'static str,
    attack: Attack,
    control: Verdict,
    reference: &'static [Verdict],
}

const ROWS: [Row; 6] = [
    Row {
        name: "normal-file",
        attack: Attack::Plain,
        control: Verdict::Inside,
        reference: &[Verdict::Inside],
    },
    Row {
        name: "existing-symlink-refused",
        attack: Attack::FinalLinkThere,
        control: Verdict::Refused,
        reference: &[Verdict::Refused],
    },
    Row {
        name: "final-path-swapped-after-check",
        attack: Attack::FinalLink,
        control: Verdict::Escaped,
        reference: &[Verdict::Inside, Verdict::Refused],
    },
    Row {
        name: "ancestor-swapped-after-check",
        attack: Attack::ParentLink,
        control: Verdict::Escaped,
        reference: &[Verdict::Inside, Verdict::Refused],
    },
    Row {
        name: "over-limit-refused",
        attack: Attack::TooLarge,
        control: Verdict::Refused,
        reference: &[Verdict::Refused],
    },
    Row {
        name: "growth-after-check-refused",
        attack: Attack::Grow,
        control: Verdict::Refused,
        reference: &[Verdict::Refused],
    },
];

/// Runs the six assertions on the built-in control and reference.
///
/// # Errors
/// [`ProbeError`] where the arena failed: nothing is known then.
pub fn run(arena: &Arena, seed: u64) -> Result<BaselineReport, ProbeError> {
    let control: Arc<dyn Subject> = Arc::new(StatThenOpen);
    let reference: Arc<dyn Subject> = Arc::new(OpenatWalk);
    run_with(arena, seed, &control, &reference)
}

/// Runs the six assertions on a control of the caller's, which calls out at `checked`, and a
/// reference, which is struck at each of its steps.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    arena: &Arena,
    seed: u64,
    control: &Arc<dyn Subject>,
    reference: &Arc<dyn Subject>,
) -> Result<BaselineReport, ProbeError> {
    let mut rng = Rng::new(seed);
    let mut assertions = Vec::with_capacity(ROWS.len());
    for row in &ROWS {
        let moments = if row.attack.is_standing() {
            vec![When::Never]
        } else {
            vec![When::Named("checked")]
        };
        let on_control = find(
            arena,
            &mut rng,
            control,
            row.attack,
            &moments,
            &[row.control],
        )?;
        let moments = reference_moments(arena, &mut rng, reference, row.attack)?;
        let on_reference = find(
            arena,
            &mut rng,
            reference,
            row.attack,
            &moments,
            row.reference,
        )?;
        assertions.push(Assertion {
            name: row.name.to_owned(),
            control: on_control,
            reference: on_reference,
        });
    }
    let all_hold = assertions
        .iter()
        .all(|one| one.control.holds && one.reference.holds);
    Ok(BaselineReport {
        format: FORMAT.to_owned(),
        safe_for_path_deliverable_download: false,
        path_deliverable_download: "blocked".to_owned(),
        outcome: if all_hold {
            Outcome::Reproduced
        } else {
            Outcome::Review
        },
        control: control.name().to_owned(),
        reference: reference.name().to_owned(),
        seed,
        assertions,
    })
}

/// Every step of the reference for the swaps; the one after its check for growth, because a file
/// that grows after its last byte was read has done no harm.
fn reference_moments(
    arena: &Arena,
    rng: &mut Rng,
    reference: &Arc<dyn Subject>,
    attack: Attack,
) -> Result<Vec<When>, ProbeError> {
    if attack.is_standing() {
        return Ok(vec![When::Never]);
    }
    if attack.is_content() {
        return Ok(vec![When::Named("examined")]);
    }
    let cell = arena.cell(Attack::Plain, setup(rng))?;
    let (observed, _) = seams::observe(reference, cell, When::Never, PATIENCE)?;
    Ok(std::iter::once(When::Before)
        .chain((0..observed.steps.len()).map(When::Step))
        .collect())
}

fn find(
    arena: &Arena,
    rng: &mut Rng,
    subject: &Arc<dyn Subject>,
    attack: Attack,
    moments: &[When],
    expected: &[Verdict],
) -> Result<Finding, ProbeError> {
    let mut observed = Vec::with_capacity(moments.len());
    let mut same_length = true;
    let mut all_struck = true;
    for when in moments {
        let cell = arena.cell(attack, setup(rng))?;
        let (seen, cell) = seams::observe(subject, cell, *when, PATIENCE)?;
        observed.push(oracle::judge(&cell, &seen.answer, subject.claims()));
        same_length &= seen.answer.bytes.is_empty() || seen.answer.bytes.len() == LEN;
        all_struck &= *when == When::Never || seen.struck.is_some();
    }
    let as_expected = observed.iter().all(|verdict| expected.contains(verdict));
    Ok(Finding {
        expected: expected.to_vec(),
        observed,
        same_length,
        // A strike that never came proves nothing.
        holds: as_expected && same_length && all_struck,
    })
}

fn setup(rng: &mut Rng) -> Setup {
    Setup {
        len: LEN,
        ceiling: CEILING,
        nonce: rng.next(),
    }
}
