//! The whole question: attack one subject in every way asked for, beside readers of known worth,
//! and say what it amounts to.

#![forbid(unsafe_code)]

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant, SystemTime},
};

use crate::{
    arena::{Access, Arena},
    attack::Attack,
    child::Relaunch,
    content::LINE,
    control,
    error::ProbeError,
    explore::{Found, Plan, Progress, Silent, Tally, millis, seams, storm, syscalls},
    report::{
        Conclusion, ControlRun, Counts, Coverage, FORMAT, Kind, Mode, Report, Role, SubjectFacts,
    },
    rng::Rng,
    subject::{Claims, Subject, http::Http, process::Command},
};

/// Who is attacked.
#[derive(Clone)]
pub enum Target {
    /// A reader in this process: seams, storm, and system calls where [`Options::relaunch`] says
    /// how to start it as a program.
    InProcess(Arc<dyn Subject>),
    /// A program: system calls and storm.
    Command(Command),
    /// A file server on this host: storm.
    Http(Http),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Target").field(&self.facts().name).finish()
    }
}

impl Target {
    /// The ways in which this kind of subject can be looked at.
    #[must_use]
    pub fn modes(&self, options: &Options) -> Vec<Mode> {
        match self {
            Self::InProcess(_) if options.relaunch.is_some() => Mode::ALL.to_vec(),
            Self::InProcess(_) => vec![Mode::Seams, Mode::Storm],
            Self::Command(_) => vec![Mode::Syscalls, Mode::Storm],
            Self::Http(_) => vec![Mode::Storm],
        }
    }

    fn facts(&self) -> SubjectFacts {
        match self {
            Self::InProcess(subject) => SubjectFacts {
                name: subject.name().to_owned(),
                kind: Kind::InProcess,
                invocation: Vec::new(),
                claims: subject.claims(),
            },
            Self::Command(command) => SubjectFacts {
                name: command.name.clone(),
                kind: Kind::Command,
                invocation: command.invocation(),
                claims: command.claims,
            },
            Self::Http(http) => SubjectFacts {
                name: http.name.clone(),
                kind: Kind::Http,
                invocation: vec![http.template()],
                claims: http.claims,
            },
        }
    }
}

/// How a probe is carried out.
#[derive(Clone)]
pub struct Options {
    /// Directory the arena is made in; it decides which filesystem is probed. For a file server
    /// this is where the outside part lies, and has to be on the filesystem of its root.
    pub dir: PathBuf,
    /// What the caller says is probed; copied into the report.
    pub build: String,
    /// Repeats a run's order and contents.
    pub seed: u64,
    /// Ways of looking; empty means all that suit the subject.
    pub modes: Vec<Mode>,
    /// Attacks; [`Attack::Plain`] is always among them.
    pub attacks: Vec<Attack>,
    /// Length of the fixtures in bytes, rounded up to lines. Longer than a subject's buffer, or it
    /// is never seen reading twice.
    pub len: usize,
    /// The ceiling subjects are given, in bytes, rounded up to lines.
    pub ceiling: u64,
    /// 1, or 2 to undo each strike at every later boundary as well; that squares the time.
    pub depth: u32,
    /// How long a read may take before it counts as hung.
    pub patience: Duration,
    /// How long the subject's seams and boundaries may take, each.
    pub budget: Duration,
    /// How long the storm on the subject lasts; up to ten times as long where it stays one-sided.
    pub storm: Duration,
    /// How to start this program as a reader; see [`Relaunch`]. Without it there are no controls
    /// for system calls, and nothing is proven by them.
    pub relaunch: Option<Relaunch>,
    /// Set from elsewhere to stop early.
    pub stop: Arc<AtomicBool>,
    /// Told how far it is.
    pub progress: Arc<dyn Progress + Send>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("dir", &self.dir)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The usual probe in `dir`: everything, at depth 1, with a storm of 5 seconds.
    #[must_use]
    pub fn new_in(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            build: String::new(),
            seed: crate::rng::fresh_seed(),
            modes: Vec::new(),
            attacks: Attack::ALL.to_vec(),
            len: 320 << 10,
            ceiling: 1 << 20,
            depth: 1,
            patience: Duration::from_secs(10),
            budget: Duration::from_mins(10),
            storm: Duration::from_secs(5),
            relaunch: None,
            stop: Arc::default(),
            progress: Arc::new(Silent),
        }
    }

    fn sizes(&self) -> Result<(usize, u64), ProbeError> {
        let len = self.len.next_multiple_of(LINE);
        let ceiling = self.ceiling.next_multiple_of(LINE as u64);
        if len < 2 * LINE || (len as u64) > ceiling || ceiling > 64 << 20 {
            return Err(ProbeError::Usage(format!(
                "the length must be at least {} bytes and at most the ceiling, which is at most \
                 64 MiB",
                2 * LINE
            )));
        }
        Ok((len, ceiling))
    }

    fn attacks(&self) -> Vec<Attack> {
        let mut attacks = self.attacks.clone();
        attacks.push(Attack::Plain);
        attacks.sort_unstable();
        attacks.dedup();
        attacks
    }
}

/// Attacks that settle whether a control loses.
const ON_CONTROLS: [Attack; 3] = [Attack::Plain, Attack::FinalLink, Attack::ParentLink];
/// Length of the fixtures of controls and references, in bytes.
const CONTROL_LEN: usize = 4 << 10;
/// Attacks a reference has to withstand.
const ON_REFERENCES: [Attack; 6] = [
    Attack::Plain,
    Attack::FinalLinkThere,
    Attack::ParentLinkThere,
    Attack::FinalLink,
    Attack::ParentLink,
    Attack::GrandparentLink,
];

/// Attacks `target` and reports.
///
/// Blocks for as long as the options allow. What the subject does is in the report, never an error.
///
/// # Errors
/// [`ProbeError`] where the probe itself could not be carried out, or was stopped.
pub fn prove(target: &Target, options: &Options) -> Result<Report, ProbeError> {
    let started = Instant::now();
    #[expect(
        clippy::disallowed_methods,
        reason = "a report carries the host's wall clock"
    )]
    let made_at = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let probe = Probe::set_up(target, options)?;
    let host = probe.arena.host().map_err(|source| ProbeError::Host {
        what: "describe the host",
        source,
    })?;
    let mut rng = Rng::new(options.seed);
    let mut report = Report {
        format: FORMAT.to_owned(),
        probe: env!("CARGO_PKG_VERSION").to_owned(),
        build: options.build.clone(),
        made_at: made_at.as_secs(),
        elapsed_ms: 0,
        seed: options.seed,
        host,
        subject: target.facts(),
        modes: Vec::new(),
        matrix: Vec::new(),
        counts: Counts::default(),
        controls: Vec::new(),
        conclusion: Conclusion::Inconclusive,
        reasons: Vec::new(),
    };
    let possible = target.modes(options);
    let wanted = if options.modes.is_empty() {
        possible.clone()
    } else {
        options.modes.clone()
    };
    for mode in wanted {
        let found = if possible.contains(&mode) {
            report.controls.extend(probe.controls(mode, &mut rng)?);
            probe.subject(mode, &mut rng)?
        } else {
            let mut tally = Tally::new(mode, report.subject.claims, Coverage::Exhaustive);
            tally.lower(
                Coverage::Inconclusive,
                "this subject cannot be looked at in this way",
            );
            tally.finish()
        };
        report.counts.merge(&found.counts());
        report.modes.push(found.run);
        report.matrix.extend(found.rows);
    }
    report.elapsed_ms = millis(started.elapsed());
    (report.conclusion, report.reasons) = report.conclude();
    Ok(report)
}

struct Probe<'a> {
    target: &'a Target,
    options: &'a Options,
    arena: Arena,
    /// The outside part, where it cannot lie beside the root.
    hold: Option<Arena>,
    attacks: Vec<Attack>,
    len: usize,
    ceiling: u64,
}

impl<'a> Probe<'a> {
    fn set_up(target: &'a Target, options: &'a Options) -> Result<Self, ProbeError> {
        let (len, ceiling) = options.sizes()?;
        let mut attacks = options.attacks();
        let (arena, hold) = match target {
            Target::InProcess(_) | Target::Command(_) => (Arena::new_in(&options.dir)?, None),
            Target::Http(http) => {
                // The cell's root is an ordinary directory to the server; replacing it is no attack.
                attacks.retain(|attack| *attack != Attack::RootReplaced);
                let arena = Arena::with_access(&http.root, Access::Readable)?;
                let hold = Arena::with_access(&options.dir, Access::Readable)?;
                hold.must_be_outside(&http.root)?;
                (arena, Some(hold))
            }
        };
        Ok(Self {
            target,
            options,
            arena,
            hold,
            attacks,
            len,
            ceiling,
        })
    }

    fn plan<'b>(&'b self, attacks: &'b [Attack], budget: Duration) -> Plan<'b> {
        Plan {
            arena: &self.arena,
            hold: self.hold.as_ref(),
            attacks,
            len: self.len,
            ceiling: self.ceiling,
            patience: self.options.patience,
            until: Instant::now() + budget,
            stop: &self.options.stop,
            progress: self.options.progress.as_ref(),
        }
    }

    fn subject(&self, mode: Mode, rng: &mut Rng) -> Result<Found, ProbeError> {
        let plan = self.plan(&self.attacks, self.options.budget);
        let depth = self.options.depth;
        match (mode, self.target) {
            (Mode::Seams, Target::InProcess(subject)) => seams::explore(&plan, subject, rng),
            (Mode::Syscalls, Target::InProcess(subject)) => match &self.options.relaunch {
                Some(relaunch) => {
                    syscalls::explore(&plan, &relaunch.command(subject.as_ref()), depth, rng)
                }
                None => Ok(nothing(mode, subject.claims())),
            },
            (Mode::Syscalls, Target::Command(command)) => {
                syscalls::explore(&plan, command, depth, rng)
            }
            (Mode::Storm, target) => {
                let reader = storm::Reader::of(target);
                storm::explore(
                    &plan,
                    &reader,
                    self.options.storm,
                    storm::Until::BothOutcomes,
                    rng,
                )
            }
            (Mode::Seams, Target::Command(_) | Target::Http(_))
            | (Mode::Syscalls, Target::Http(_)) => Ok(nothing(mode, Claims::default())),
        }
    }

    /// Runs the readers of known worth in `mode`, reached the way the subject is.
    fn controls(&self, mode: Mode, rng: &mut Rng) -> Result<Vec<ControlRun>, ProbeError> {
        let mut runs = Vec::new();
        for (role, subject) in control::all() {
            let attacks: &[Attack] = match role {
                Role::Control => &ON_CONTROLS,
                Role::Reference => &ON_REFERENCES,
            };
            let mut plan = self.plan(attacks, self.options.budget);
            // What is asked of them happens before the first byte is read.
            plan.len = plan.len.min(CONTROL_LEN);
            let found = match mode {
                Mode::Seams => seams::explore(&plan, &subject, rng)?,
                Mode::Syscalls => {
                    let Some(relaunch) = &self.options.relaunch else {
                        continue;
                    };
                    syscalls::explore(&plan, &relaunch.command(subject.as_ref()), 1, rng)?
                }
                Mode::Storm => {
                    let Some(found) = self.storm_control(role, &subject, &plan, rng)? else {
                        continue;
                    };
                    found
                }
            };
            runs.push(ControlRun {
                name: subject.name().to_owned(),
                role,
                mode,
                beaten: found.counts().is_lost(subject.claims()),
                coverage: found.run.coverage,
                matrix: found.rows,
            });
        }
        Ok(runs)
    }

    fn storm_control(
        &self,
        role: Role,
        subject: &Arc<dyn Subject>,
        plan: &Plan<'_>,
        rng: &mut Rng,
    ) -> Result<Option<Found>, ProbeError> {
        let reader = match self.target {
            Target::InProcess(_) => storm::Reader::InProcess(Arc::clone(subject)),
            Target::Command(_) => match &self.options.relaunch {
                Some(relaunch) => storm::Reader::Command(relaunch.command(subject.as_ref())),
                None => return Ok(None),
            },
            Target::Http(http) => storm::Reader::Served(http.clone(), Arc::clone(subject)),
        };
        let until = match role {
            Role::Control => storm::Until::Beaten,
            Role::Reference => storm::Until::Time,
        };
        let time = self.options.storm.min(Duration::from_secs(5)) / 5;
        storm::explore(plan, &reader, time, until, rng).map(Some)
    }
}

fn nothing(mode: Mode, claims: Claims) -> Found {
    let mut tally = Tally::new(mode, claims, Coverage::Exhaustive);
    tally.lower(
        Coverage::Inconclusive,
        "this subject cannot be looked at in this way",
    );
    tally.finish()
}
