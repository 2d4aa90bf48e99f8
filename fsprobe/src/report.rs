//! What a probe says: a plain value, written as JSON and read back by whoever acts on it.
//!
//! The schema is published as `docs/fsprobe-report.schema.json`. A reader should judge by the
//! counts and the controls; [`Report::conclusion`] is what they amount to by this crate's rules.

#![forbid(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{attack::Attack, host::Host, oracle::Verdict, subject::Claims};

/// The report's format name.
pub const FORMAT: &str = "fsprobe-report/1";

/// One probe of one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Always [`FORMAT`].
    pub format: String,
    /// Version of the prober.
    pub probe: String,
    /// What the caller says was probed: a build id, a version. Empty where it said nothing.
    pub build: String,
    /// When the probe began, in seconds since 1970 by the host's clock.
    pub made_at: u64,
    /// How long it took.
    pub elapsed_ms: u64,
    /// Repeats the order and the contents of the run.
    pub seed: u64,
    /// Where it was made.
    pub host: Host,
    /// Who was probed.
    pub subject: SubjectFacts,
    /// Which ways of looking were used, and how far each got.
    pub modes: Vec<ModeRun>,
    /// What each attack came to, per mode.
    pub matrix: Vec<Row>,
    /// All of the matrix together.
    pub counts: Counts,
    /// Readers of known worth that ran beside the subject.
    pub controls: Vec<ControlRun>,
    /// What it amounts to.
    pub conclusion: Conclusion,
    /// Why, one sentence each; empty for [`Conclusion::Proven`].
    pub reasons: Vec<String>,
}

/// Who was probed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectFacts {
    /// Its name.
    pub name: String,
    /// How it was reached.
    pub kind: Kind,
    /// The command line or address template, as given.
    pub invocation: Vec<String>,
    /// What it undertakes.
    pub claims: Claims,
}

/// How a subject is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Called in the prober's process.
    InProcess,
    /// Started as a program, once per read.
    Command,
    /// Asked over HTTP on this host.
    Http,
}

/// A way of choosing the moment of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// At every step the subject names.
    Seams,
    /// At every system call boundary.
    Syscalls,
    /// At random, at full speed.
    Storm,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Seams, Self::Syscalls, Self::Storm];

    /// The name used in reports and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seams => "seams",
            Self::Syscalls => "syscalls",
            Self::Storm => "storm",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much of what there is was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coverage {
    /// Every moment there is, once per attack.
    Exhaustive,
    /// Every moment of one run, but runs differ: some moment may never have been struck at.
    Sampled,
    /// Random moments, as many as are counted.
    Random,
    /// The budget ended first.
    CutShort,
    /// Nothing can be concluded; the notes say why.
    Inconclusive,
}

impl Coverage {
    /// The name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exhaustive => "exhaustive",
            Self::Sampled => "sampled",
            Self::Random => "random",
            Self::CutShort => "cut-short",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// One way of looking, as it was carried out on the subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeRun {
    /// Which one.
    pub mode: Mode,
    /// How far it got.
    pub coverage: Coverage,
    /// Strikes per run: 1, or 2 for a swap and its undoing.
    pub depth: u32,
    /// Moments there are to strike at; 0 where they cannot be counted.
    pub boundaries: u64,
    /// Reads observed.
    pub runs: u64,
    /// Changes made to the tree.
    pub flips: u64,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}

/// What one attack came to in one mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The mode.
    pub mode: Mode,
    /// The attack.
    pub attack: Attack,
    /// Verdicts.
    pub counts: Counts,
    /// Changes made to the tree.
    pub flips: u64,
    /// Strikes the subject itself prevented, by holding a lease.
    pub prevented: u64,
    /// Refusals by the subject's own word, most frequent first, at most 8.
    pub refusals: Vec<Refused>,
    /// Where the subject lost, at most [`MAX_PLACES`] of them.
    pub places: Vec<LostAt>,
}

/// How many places a row lists.
pub const MAX_PLACES: usize = 32;

/// One kind of refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The subject's word.
    pub class: String,
    /// How often.
    pub count: u64,
}

/// One moment at which a strike succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostAt {
    /// The moment, counted from 0 over the moments of the mode.
    pub index: u64,
    /// The moment in words.
    pub moment: String,
    /// What it led to.
    pub verdict: Verdict,
}

/// How often each verdict was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// One content the file had, whole.
    pub inside: u64,
    /// Nothing, and the caller could tell.
    pub refused: u64,
    /// Bytes from outside.
    pub escaped: u64,
    /// Bytes the file never had.
    pub torn: u64,
    /// No answer in time.
    pub hung: u64,
    /// More than the ceiling.
    pub over_limit: u64,
    /// Times a FIFO was opened; not a verdict, and in addition to one.
    pub sightings: u64,
}

impl Counts {
    /// Counts one verdict.
    pub fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Inside => &mut self.inside,
            Verdict::Refused => &mut self.refused,
            Verdict::Escaped => &mut self.escaped,
            Verdict::Torn => &mut self.torn,
            Verdict::Hung => &mut self.hung,
            Verdict::OverLimit => &mut self.over_limit,
        } += 1;
    }

    /// How often `verdict` was given.
    #[must_use]
    pub fn of(&self, verdict: Verdict) -> u64 {
        match verdict {
            Verdict::Inside => self.inside,
            Verdict::Refused => self.refused,
            Verdict::Escaped => self.escaped,
            Verdict::Torn => self.torn,
            Verdict::Hung => self.hung,
            Verdict::OverLimit => self.over_limit,
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.inside += other.inside;
        self.refused += other.refused;
        self.escaped += other.escaped;
        self.torn += other.torn;
        self.hung += other.hung;
        self.over_limit += other.over_limit;
        self.sightings += other.sightings;
    }

    /// All verdicts together.
    #[must_use]
    pub fn total(&self) -> u64 {
        Verdict::ALL
            .into_iter()
            .map(|verdict| self.of(verdict))
            .sum()
    }

    /// Whether a reader that makes `claims` lost anywhere here.
    #[must_use]
    pub fn is_lost(&self, claims: Claims) -> bool {
        self.escaped > 0
            || self.hung > 0
            || (claims.whole && self.torn > 0)
            || (claims.ceiling && self.over_limit > 0)
            || (claims.special_files && self.sightings > 0)
    }
}

/// A reader of known worth, as it fared beside the subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlRun {
    /// Its name.
    pub name: String,
    /// What is expected of it.
    pub role: Role,
    /// The mode it ran in.
    pub mode: Mode,
    /// Whether it lost: it should as a control and should not as a reference.
    pub beaten: bool,
    /// How far the mode got.
    pub coverage: Coverage,
    /// What each attack came to.
    pub matrix: Vec<Row>,
}

/// What is expected of a reader of known worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It has to lose, or the attacker was no good.
    Control,
    /// It must not lose, or the judge was no good.
    Reference,
}

/// What a report amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Nothing was lost, in full view, where weak readers lost.
    Proven,
    /// Something was lost.
    Broken,
    /// Neither: the reasons say what is missing.
    Inconclusive,
}

impl Conclusion {
    /// The name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Broken => "broken",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// The exit status that says it: 0, 1, 2.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Proven => 0,
            Self::Broken => 1,
            Self::Inconclusive => 2,
        }
    }
}

impl Report {
    /// What the counts, modes and controls amount to, with the reasons.
    ///
    /// A loss is a loss whatever else is missing. Otherwise every mode has to have looked at all
    /// there is, the subject has to have read the plain file, a control has to have lost in the
    /// same mode, and no reference may have.
    #[must_use]
    pub fn conclude(&self) -> (Conclusion, Vec<String>) {
        let claims = self.subject.claims;
        let mut lost: Vec<String> = Vec::new();
        for attack in Attack::ALL {
            let is_lost = |row: &&Row| row.attack == attack && row.counts.is_lost(claims);
            let modes: Vec<&str> = self
                .matrix
                .iter()
                .filter(is_lost)
                .map(|row| row.mode.name())
                .collect();
            if !modes.is_empty() {
                lost.push(format!(
                    "{} lost to {attack} in {}",
                    self.subject.name,
                    modes.join(", ")
                ));
            }
        }
        if !lost.is_empty() {
            return (Conclusion::Broken, lost);
        }
        let mut missing = Vec::new();
        if self.modes.is_empty() {
            missing.push("nothing was run".to_owned());
        }
        for run in &self.modes {
            self.lacks(run, &mut missing);
        }
        for control in &self.controls {
            if control.role == Role::Reference && control.beaten {
                missing.push(format!(
                    "the reference {} lost in {}, so this judge or this host is not to be trusted",
                    control.name, control.mode
                ));
            }
        }
        if missing.is_empty() {
            (Conclusion::Proven, missing)
        } else {
            (Conclusion::Inconclusive, missing)
        }
    }

    /// What `run` lacks to count as a proof.
    fn lacks(&self, run: &ModeRun, missing: &mut Vec<String>) {
        let mode = run.mode;
        match run.coverage {
            Coverage::Exhaustive => {}
            Coverage::Random if mode == Mode::Storm => {}
            coverage @ (Coverage::Random
            | Coverage::Sampled
            | Coverage::CutShort
            | Coverage::Inconclusive) => {
                missing.push(format!("{mode} was {}", coverage.name()));
            }
        }
        let rows = self.matrix.iter().filter(|row| row.mode == mode);
        let (mut inside, mut refused, mut plain) = (0, 0, None);
        for row in rows {
            if row.attack == Attack::Plain {
                plain = Some(row.counts);
            } else if !row.attack.is_content() {
                inside += row.counts.inside;
                refused += row.counts.refused;
            }
        }
        if !plain.is_some_and(|counts| counts.inside > 0 && counts.inside == counts.total()) {
            missing.push(format!("the plain file was not read in {mode}"));
        }
        if mode == Mode::Storm && (inside == 0 || refused == 0) {
            missing.push(format!(
                "{mode} was one-sided: {inside} reads succeeded and {refused} were refused"
            ));
        }
        let mut controls = self
            .controls
            .iter()
            .filter(|control| control.mode == mode && control.role == Role::Control);
        if !controls.any(|control| control.beaten) {
            missing.push(format!(
                "no control lost in {mode}, so the attacker was no good"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mode: Mode, attack: Attack, verdict: Verdict) -> Row {
        let mut counts = Counts::default();
        counts.add(verdict);
        Row {
            mode,
            attack,
            counts,
            flips: 1,
            prevented: 0,
            refusals: vec![],
            places: vec![],
        }
    }

    fn proven() -> Report {
        let control = ControlRun {
            name: "weak".to_owned(),
            role: Role::Control,
            mode: Mode::Seams,
            beaten: true,
            coverage: Coverage::Exhaustive,
            matrix: vec![row(Mode::Seams, Attack::FinalLink, Verdict::Escaped)],
        };
        let mut reference = control.clone();
        reference.role = Role::Reference;
        reference.beaten = false;
        Report {
            format: FORMAT.to_owned(),
            probe: "0".to_owned(),
            build: String::new(),
            made_at: 0,
            elapsed_ms: 0,
            seed: 0,
            host: Host::default(),
            subject: SubjectFacts {
                name: "it".to_owned(),
                kind: Kind::InProcess,
                invocation: vec![],
                claims: Claims::default(),
            },
            modes: vec![ModeRun {
                mode: Mode::Seams,
                coverage: Coverage::Exhaustive,
                depth: 1,
                boundaries: 1,
                runs: 2,
                flips: 1,
                elapsed_ms: 0,
                notes: vec![],
            }],
            matrix: vec![
                row(Mode::Seams, Attack::Plain, Verdict::Inside),
                row(Mode::Seams, Attack::FinalLink, Verdict::Refused),
            ],
            counts: Counts::default(),
            controls: vec![control, reference],
            conclusion: Conclusion::Proven,
            reasons: vec![],
        }
    }

    type Edit = fn(&mut Report);

    #[test]
    fn a_proof_needs_every_part() {
        assert_eq!(proven().conclude(), (Conclusion::Proven, vec![]));
        let edits: [(&str, Edit); 6] = [
            ("no mode", |report| report.modes.clear()),
            ("sampled", |report| {
                report.modes[0].coverage = Coverage::Sampled;
            }),
            ("cut short", |report| {
                report.modes[0].coverage = Coverage::CutShort;
            }),
            ("plain file refused", |report| {
                report.matrix[0] = row(Mode::Seams, Attack::Plain, Verdict::Refused);
            }),
            ("control not beaten", |report| {
                report.controls[0].beaten = false;
            }),
            ("reference beaten", |report| {
                report.controls[1].beaten = true;
            }),
        ];
        for (what, edit) in edits {
            let mut report = proven();
            edit(&mut report);
            let (conclusion, reasons) = report.conclude();
            assert_eq!(conclusion, Conclusion::Inconclusive, "{what}");
            assert!(!reasons.is_empty(), "{what}");
        }
    }

    #[test]
    fn a_loss_counts_by_what_was_claimed() {
        for (verdict, claims, lost) in [
            (Verdict::Escaped, Claims::default(), true),
            (Verdict::Hung, Claims::default(), true),
            (Verdict::Torn, Claims::default(), false),
            (Verdict::Torn, Claims::ALL, true),
            (Verdict::OverLimit, Claims::default(), false),
            (Verdict::OverLimit, Claims::ALL, true),
        ] {
            let mut report = proven();
            report.subject.claims = claims;
            report.matrix.push(row(Mode::Seams, Attack::Grow, verdict));
            let broken = report.conclude().0 == Conclusion::Broken;
            assert_eq!(broken, lost, "{verdict} with {claims:?}");
        }
    }

    #[test]
    fn a_report_survives_being_written_and_read() {
        let report = proven();
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
