//! The `fsprobe` program.

#![forbid(unsafe_code)]

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal as _, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand, ValueEnum};
use fsprobe::{
    Arena, Attack, Claims, Command as Program, Http, Options, ProbeError, Progress, Relaunch,
    Report, Target,
    baseline::{self, BaselineReport, Outcome},
    control::{self, OpenatWalk},
    oracle::Shape,
    page,
    report::Mode,
    subject::{Subject, stepping::Stepping},
};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{Mode as Permissions, OFlags};

/// Shows whether a file reader can be raced.
///
/// Exit status: 0 proven, or the baseline behaves as documented; 1 an escape, a hang or another
/// loss, or a baseline that needs a review; 2 inconclusive; 3 usage.
#[derive(Debug, Parser)]
#[command(name = "fsprobe", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Repeat the six founding assertions on the check-then-open control, or on a program that stops
    /// at its own check, and on the reference.
    Baseline {
        #[command(flatten)]
        common: Common,
        /// A control of one's own, with {root}, {path} and {ceiling}: at its check it writes the line
        /// `fsprobe-step checked` to standard error and waits for a line on standard input.
        #[arg(last = true)]
        argv: Vec<OsString>,
    },
    /// Attack a program at every system call boundary and in a storm, for example:
    /// fsprobe run -- cat {root}/{path}
    Run {
        #[command(flatten)]
        probe: Probe,
        /// The content lies somewhere in the output, as in an archive, instead of being all of it.
        #[arg(long)]
        within: bool,
        /// Undo every strike at every later boundary as well; squares the time.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
        depth: u32,
        /// Program and arguments, with {root} and {path} (and {ceiling}) where they belong.
        #[arg(last = true, required = true)]
        argv: Vec<OsString>,
    },
    /// Storm a file server on this host.
    Http {
        #[command(flatten)]
        probe: Probe,
        /// The directory the server serves; a subdirectory is made in it and removed again.
        #[arg(long)]
        root: PathBuf,
        /// Where it answers, for example `http://127.0.0.1:8080/{path}`; literal addresses only.
        #[arg(long)]
        url: String,
    },
    /// Attack one of the built-in controls or references in every way.
    Builtin {
        #[command(flatten)]
        probe: Probe,
        /// Which one.
        #[arg(value_name = "NAME")]
        builtin: String,
    },
    /// Show a saved report again.
    Show {
        /// The JSON file.
        report: PathBuf,
        /// Also write the page.
        #[arg(long)]
        html: Option<PathBuf>,
    },
    /// List the attacks.
    Attacks,
    /// Be a built-in reader for one read; the prober starts itself like this.
    #[command(hide = true)]
    Ask,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Directory to make the arena in; its filesystem is the one that is probed.
    #[arg(long, env = "TMPDIR", default_value = "/tmp")]
    dir: PathBuf,
    /// Repeat a run: the same seed gives the same contents and the same order.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Probe {
    #[command(flatten)]
    common: Common,
    /// Ways of looking; all that suit the subject unless given.
    #[arg(long, value_delimiter = ',')]
    mode: Vec<ModeName>,
    /// Attacks by name (see `fsprobe attacks`); all unless given.
    #[arg(long, value_delimiter = ',')]
    attack: Vec<String>,
    /// What the subject undertakes beyond staying inside and coming back.
    #[arg(long, value_delimiter = ',')]
    claim: Vec<ClaimName>,
    /// Length of the storm in seconds.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    storm: f64,
    /// The most the boundaries may take, in seconds.
    #[arg(long, default_value_t = 600.0, value_parser = seconds)]
    budget: f64,
    /// How long one read may take before it counts as hung, in seconds.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    patience: f64,
    /// Length of the fixtures in bytes.
    #[arg(long, default_value_t = 320 << 10)]
    len: usize,
    /// The ceiling the subject is told, in bytes.
    #[arg(long, default_value_t = 1 << 20)]
    ceiling: u64,
    /// The name reports use for the subject.
    #[arg(long)]
    name: Option<String>,
    /// What is probed, such as a version; copied into the report.
    #[arg(long, default_value = "")]
    build: String,
    /// Also write the report as JSON to this file.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Also write the report as a page to this file.
    #[arg(long)]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeName {
    Seams,
    Syscalls,
    Storm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClaimName {
    Ceiling,
    Whole,
    SpecialFiles,
    HardLinks,
    Root,
}

const EXIT_LOST: u8 = 1;
const EXIT_INCONCLUSIVE: u8 = 2;
const EXIT_USAGE: u8 = 3;
const EXIT_STOPPED: u8 = 130;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            // A closed terminal is no reason to change the exit status.
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(writeln!(io::stderr(), "fsprobe: {}", chain(&error)));
            ExitCode::from(match error {
                ProbeError::Usage(_) => EXIT_USAGE,
                ProbeError::Stopped => EXIT_STOPPED,
                ProbeError::Arena { .. } | ProbeError::Start { .. } | ProbeError::Host { .. } => {
                    EXIT_INCONCLUSIVE
                }
            })
        }
    }
}

fn run(cli: Cli) -> Result<u8, ProbeError> {
    match cli.command {
        Command::Baseline { common, argv } => run_baseline(&common, argv),
        Command::Run {
            probe,
            within,
            depth,
            argv,
        } => {
            let mut program = Program::new(argv)?;
            program.claims = probe.claims();
            if within {
                program.shape = Shape::Within;
            }
            if let Some(name) = &probe.name {
                program.name.clone_from(name);
            }
            let mut options = probe.options()?;
            options.depth = depth;
            probe.carry_out(&Target::Command(program), options)
        }
        Command::Http { probe, root, url } => {
            let mut http = Http::new(root, &url)?;
            http.claims = probe.claims();
            if let Some(name) = &probe.name {
                http.name.clone_from(name);
            }
            let options = probe.options()?;
            probe.carry_out(&Target::Http(http), options)
        }
        Command::Builtin {
            probe,
            builtin: name,
        } => {
            let found = control::all()
                .into_iter()
                .find(|(_, subject)| subject.name() == name);
            let (_, subject) = found.ok_or_else(|| {
                let all = control::all();
                let names: Vec<&str> = all.iter().map(|(_, subject)| subject.name()).collect();
                ProbeError::Usage(format!("{name} is none of {}", names.join(", ")))
            })?;
            let options = probe.options()?;
            probe.carry_out(&Target::InProcess(subject), options)
        }
        Command::Show { report, html } => {
            let report = read_report(&report)?;
            if let Some(path) = html {
                save(&path, &page::html(&report))?;
            }
            print(&page::table(&report))?;
            Ok(report.conclusion.exit_code())
        }
        Command::Attacks => print(&page::attacks()).map(|()| 0),
        Command::Ask => {
            fsprobe::answer_if_asked(&[]);
            Err(ProbeError::Usage("nothing was asked".to_owned()))
        }
    }
}

impl Probe {
    fn claims(&self) -> Claims {
        let has = |claim| self.claim.contains(&claim);
        Claims {
            ceiling: has(ClaimName::Ceiling),
            whole: has(ClaimName::Whole),
            special_files: has(ClaimName::SpecialFiles),
            hard_links: has(ClaimName::HardLinks),
            root: has(ClaimName::Root),
        }
    }

    fn options(&self) -> Result<Options, ProbeError> {
        let mut options = Options::new_in(&self.common.dir);
        options.build.clone_from(&self.build);
        options.seed = self.common.seed.unwrap_or_else(fsprobe::fresh_seed);
        options.modes = self
            .mode
            .iter()
            .map(|mode| match mode {
                ModeName::Seams => Mode::Seams,
                ModeName::Syscalls => Mode::Syscalls,
                ModeName::Storm => Mode::Storm,
            })
            .collect();
        if !self.attack.is_empty() {
            options.attacks = self
                .attack
                .iter()
                .map(|name| {
                    Attack::by_name(name).ok_or_else(|| {
                        ProbeError::Usage(format!("{name} is no attack; see `fsprobe attacks`"))
                    })
                })
                .collect::<Result<_, _>>()?;
        }
        options.storm = Duration::from_secs_f64(self.storm);
        options.budget = Duration::from_secs_f64(self.budget);
        options.patience = Duration::from_secs_f64(self.patience);
        options.len = self.len;
        options.ceiling = self.ceiling;
        options.relaunch =
            Some(
                Relaunch::this_program(&["ask"]).map_err(|source| ProbeError::Host {
                    what: "find this program's own file",
                    source,
                })?,
            );
        Ok(options)
    }

    fn carry_out(&self, target: &Target, mut options: Options) -> Result<u8, ProbeError> {
        options.stop = stop_on_signals()?;
        let progress = Arc::new(Line::default());
        options.progress = Arc::<Line>::clone(&progress);
        let report = fsprobe::prove(target, &options);
        progress.clear();
        let report = report?;
        if let Some(path) = &self.report {
            save(path, &to_json(&report)?)?;
        }
        if let Some(path) = &self.html {
            save(path, &page::html(&report))?;
        }
        if self.common.json {
            print(&to_json(&report)?)?;
        } else {
            print(&page::table(&report))?;
        }
        Ok(report.conclusion.exit_code())
    }
}

fn run_baseline(common: &Common, argv: Vec<OsString>) -> Result<u8, ProbeError> {
    let arena = Arena::new_in(&common.dir)?;
    let seed = common.seed.unwrap_or_else(fsprobe::fresh_seed);
    let report = if argv.is_empty() {
        baseline::run(&arena, seed)?
    } else {
        let control: Arc<dyn Subject> = Arc::new(Stepping::new(argv));
        let reference: Arc<dyn Subject> = Arc::new(OpenatWalk);
        baseline::run_with(&arena, seed, &control, &reference)?
    };
    if common.json {
        print(&to_json(&report)?)?;
    } else {
        print(&baseline_table(&report))?;
    }
    Ok(match report.outcome {
        Outcome::Reproduced => 0,
        Outcome::Review => EXIT_LOST,
    })
}

/// One line on the terminal that is written over; nothing where no terminal looks.
#[derive(Default)]
struct Line {
    last: Mutex<Option<Instant>>,
}

impl Line {
    fn clear(&self) {
        if self
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
        {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}

impl Progress for Line {
    fn at(&self, who: &str, what: &str, done: u64, of: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() > Duration::from_millis(100));
        if is_due && io::stderr().is_terminal() {
            *last = Some(Instant::now());
            let percent = done.saturating_mul(100) / of.max(1);
            // Whether anybody sees it makes no difference to the probe.
            drop(write!(io::stderr(), "\r\x1b[K{what}: {who} {percent} %"));
        }
    }
}

/// A flag that is set by the first signal that asks us to end, so that the arena is removed; a
/// second one ends at once and leaves the arena to the next run.
fn stop_on_signals() -> Result<Arc<AtomicBool>, ProbeError> {
    let host = |source| ProbeError::Host {
        what: "wait for signals",
        source,
    };
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Before any other thread exists, so that all of them leave these signals to the one below.
    signals.thread_block().map_err(|errno| host(errno.into()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::Builder::new()
        .name("fsprobe-signals".to_owned())
        .spawn(move || {
            while signals.wait().is_ok() {
                if flag.swap(true, Ordering::Relaxed) {
                    std::process::exit(i32::from(EXIT_STOPPED));
                }
            }
        })
        .map_err(host)?;
    Ok(stop)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        Ok(_) | Err(_) => Err("a number of seconds from 0.01 to 86400".to_owned()),
    }
}

fn read_report(path: &Path) -> Result<Report, ProbeError> {
    let host = |source| ProbeError::Host {
        what: "read the report",
        source,
    };
    let file: OwnedFd =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Permissions::empty())
            .map_err(|errno| host(errno.into()))?;
    let report: Report = serde_json::from_reader(io::BufReader::new(File::from(file)))
        .map_err(|error| host(error.into()))?;
    if report.format != fsprobe::report::FORMAT {
        return Err(ProbeError::Usage(format!(
            "{} is no report of ours",
            path.display()
        )));
    }
    Ok(report)
}

fn save(path: &Path, text: &str) -> Result<(), ProbeError> {
    let host = |source| ProbeError::Host {
        what: "write the report",
        source,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Permissions::from_raw_mode(0o644);
    let file: OwnedFd = rustix::fs::open(path, flags, mode).map_err(|errno| host(errno.into()))?;
    File::from(file).write_all(text.as_bytes()).map_err(host)
}

fn baseline_table(report: &BaselineReport) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let show = |finding: &baseline::Finding| {
        let mut seen: Vec<_> = finding.observed.clone();
        seen.sort_unstable();
        seen.dedup();
        let seen: Vec<_> = seen.iter().map(|verdict| verdict.name()).collect();
        format!(
            "{}{}",
            seen.join(", "),
            if finding.holds { "" } else { " (!)" }
        )
    };
    // Writing to a string cannot fail.
    let mut line = |one: &str, two: &str, three: &str| {
        writeln!(text, "{one:32} {two:18} {three}").unwrap_or_default();
    };
    line("", &report.control, &report.reference);
    for assertion in &report.assertions {
        line(
            &assertion.name,
            &show(&assertion.control),
            &show(&assertion.reference),
        );
    }
    let outcome = match report.outcome {
        Outcome::Reproduced => {
            "reproduced: the control lost both swaps, the reference none; reading by checked path \
             stays blocked"
        }
        Outcome::Review => {
            "review: something no longer behaves as documented, see the rows marked (!); nothing \
             is opened by this"
        }
    };
    format!("{text}\n{outcome}\nseed {}\n", report.seed)
}

fn to_json(value: &impl serde::Serialize) -> Result<String, ProbeError> {
    let json = serde_json::to_string_pretty(value).map_err(|error| ProbeError::Host {
        what: "encode the report",
        source: error.into(),
    })?;
    Ok(json + "\n")
}

fn print(text: &str) -> Result<(), ProbeError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever closed the pipe has seen enough; the exit status still tells.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| ProbeError::Host {
            what: "print the report",
            source,
        }),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
