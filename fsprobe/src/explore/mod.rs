//! Three ways of choosing the moment: at a subject's own steps, at every system call boundary, and
//! at random.

#![forbid(unsafe_code)]

pub mod seams;
pub(crate) mod storm;
pub(crate) mod syscalls;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    arena::{Arena, Cell, Setup, Struck},
    attack::Attack,
    error::ProbeError,
    oracle::{self, Answer, Ending, Verdict},
    report::{Counts, Coverage, LostAt, MAX_PLACES, Mode, ModeRun, Refused, Row},
    rng::Rng,
    subject::Claims,
};

/// Told how far a probe is; the default says nothing.
pub trait Progress: Sync {
    /// `who` is being looked at by `what`, of which `done` of `of` steps are finished.
    fn at(&self, who: &str, what: &str, done: u64, of: u64) {
        let _ = (who, what, done, of);
    }
}

/// Nobody looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}

/// What an explorer works with.
pub(crate) struct Plan<'a> {
    pub(crate) arena: &'a Arena,
    /// Where the outside part lies, if not beside the root.
    pub(crate) hold: Option<&'a Arena>,
    pub(crate) attacks: &'a [Attack],
    pub(crate) len: usize,
    pub(crate) ceiling: u64,
    /// How long a read may take before it counts as hung.
    pub(crate) patience: Duration,
    /// When the budget ends.
    pub(crate) until: Instant,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) progress: &'a dyn Progress,
}

impl Plan<'_> {
    pub(crate) fn cell(&self, attack: Attack, rng: &mut Rng) -> Result<Cell, ProbeError> {
        self.cell_of_len(attack, self.len, rng)
    }

    pub(crate) fn cell_of_len(
        &self,
        attack: Attack,
        len: usize,
        rng: &mut Rng,
    ) -> Result<Cell, ProbeError> {
        let setup = Setup {
            len,
            ceiling: self.ceiling,
            nonce: rng.next(),
        };
        match self.hold {
            Some(hold) => self.arena.cell_with_hold(hold, attack, setup),
            None => self.arena.cell(attack, setup),
        }
    }

    /// Fails when asked to stop; says whether there is budget left.
    pub(crate) fn goes_on(&self) -> Result<bool, ProbeError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ProbeError::Stopped);
        }
        Ok(Instant::now() < self.until)
    }
}

/// What a mode found out about one reader.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) run: ModeRun,
    pub(crate) rows: Vec<Row>,
}

impl Found {
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in &self.rows {
            counts.merge(&row.counts);
        }
        counts
    }
}

/// Collects verdicts while a mode runs.
pub(crate) struct Tally {
    mode: Mode,
    claims: Claims,
    started: Instant,
    rows: BTreeMap<Attack, (Row, BTreeMap<String, u64>)>,
    pub(crate) coverage: Coverage,
    pub(crate) depth: u32,
    pub(crate) boundaries: u64,
    pub(crate) notes: Vec<String>,
}

/// One judged read.
pub(crate) struct Judged<'a> {
    pub(crate) attack: Attack,
    pub(crate) verdict: Verdict,
    pub(crate) answer: &'a Answer,
    pub(crate) struck: Option<Struck>,
    pub(crate) sightings: u64,
}

impl Tally {
    pub(crate) fn new(mode: Mode, claims: Claims, coverage: Coverage) -> Self {
        Self {
            mode,
            claims,
            started: Instant::now(),
            rows: BTreeMap::new(),
            coverage,
            depth: 1,
            boundaries: 0,
            notes: Vec::new(),
        }
    }

    /// Lowers the coverage; never raises it.
    pub(crate) fn lower(&mut self, to: Coverage, note: impl Into<String>) {
        let rank = |coverage| match coverage {
            Coverage::Exhaustive | Coverage::Random => 0,
            Coverage::Sampled => 1,
            Coverage::CutShort => 2,
            Coverage::Inconclusive => 3,
        };
        if rank(to) > rank(self.coverage) {
            self.coverage = to;
        }
        self.note(note);
    }

    /// Says something once.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Judges and counts a read struck at `index`, described by `moment`.
    pub(crate) fn judge(
        &mut self,
        cell: &Cell,
        answer: &Answer,
        struck: Option<Struck>,
        sightings: u64,
        at: Option<(u64, &dyn Fn() -> String)>,
    ) -> Verdict {
        let verdict = oracle::judge(cell, answer, self.claims);
        let judged = Judged {
            attack: cell.attack(),
            verdict,
            answer,
            struck,
            sightings,
        };
        self.count(&judged, at);
        if struck == Some(Struck::Yes) && !cell.attack().is_standing() {
            self.row(cell.attack()).0.flips += 1;
        }
        verdict
    }

    /// Counts a read that is judged already.
    pub(crate) fn count(&mut self, judged: &Judged<'_>, at: Option<(u64, &dyn Fn() -> String)>) {
        let claims = self.claims;
        let (row, refusals) = self.row(judged.attack);
        row.counts.add(judged.verdict);
        row.counts.sightings += judged.sightings;
        if judged.struck == Some(Struck::Prevented) {
            row.prevented += 1;
        }
        if let Ending::Refused(refusal) = &judged.answer.ending {
            // A subject that invents a word per refusal must not fill the report.
            if refusals.len() < 64 || refusals.contains_key(&refusal.class) {
                *refusals.entry(refusal.class.clone()).or_default() += 1;
            }
        }
        let mut this = Counts::default();
        this.add(judged.verdict);
        this.sightings = judged.sightings;
        if let (true, Some((index, moment))) = (this.is_lost(claims), at)
            && row.places.len() < MAX_PLACES
        {
            row.places.push(LostAt {
                index,
                moment: moment(),
                verdict: judged.verdict,
            });
        }
    }

    pub(crate) fn add_flips(&mut self, attack: Attack, flips: u64) {
        self.row(attack).0.flips += flips;
    }

    pub(crate) fn claims(&self) -> Claims {
        self.claims
    }

    /// Reads counted for `attack`.
    pub(crate) fn reads_of(&self, attack: Attack) -> u64 {
        self.rows
            .get(&attack)
            .map_or(0, |(row, _)| row.counts.total())
    }

    /// Reads that succeeded and that were refused while names were changing.
    pub(crate) fn outcomes_of_names(&self) -> (u64, u64) {
        let names = self
            .rows
            .iter()
            .filter(|(attack, _)| !attack.is_content() && **attack != Attack::Plain);
        names.fold((0, 0), |(inside, refused), (_, (row, _))| {
            (inside + row.counts.inside, refused + row.counts.refused)
        })
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (row, _) in self.rows.values() {
            counts.merge(&row.counts);
        }
        counts
    }

    fn row(&mut self, attack: Attack) -> &mut (Row, BTreeMap<String, u64>) {
        let mode = self.mode;
        self.rows.entry(attack).or_insert_with(|| {
            let row = Row {
                mode,
                attack,
                counts: Counts::default(),
                flips: 0,
                prevented: 0,
                refusals: Vec::new(),
                places: Vec::new(),
            };
            (row, BTreeMap::new())
        })
    }

    pub(crate) fn finish(self) -> Found {
        let mut rows = Vec::with_capacity(self.rows.len());
        for (_, (mut row, refusals)) in self.rows {
            let mut refusals: Vec<_> = refusals
                .into_iter()
                .map(|(class, count)| Refused { class, count })
                .collect();
            refusals.sort_by_key(|refused| std::cmp::Reverse(refused.count));
            refusals.truncate(8);
            row.refusals = refusals;
            rows.push(row);
        }
        let run = ModeRun {
            mode: self.mode,
            coverage: self.coverage,
            depth: self.depth,
            boundaries: self.boundaries,
            runs: rows.iter().map(|row| row.counts.total()).sum(),
            flips: rows.iter().map(|row| row.flips).sum(),
            elapsed_ms: millis(self.started.elapsed()),
            notes: self.notes,
        };
        Found { run, rows }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
