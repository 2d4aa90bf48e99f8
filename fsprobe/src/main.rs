//! The `fsprobe` program.

#![forbid(unsafe_code)]

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use fsprobe::{
    Arena, ProbeError,
    baseline::{self, BaselineReport, Outcome},
};

/// Shows whether a file reader can be raced.
///
/// Exit status: 0 proven, or the baseline behaves as documented; 1 an escape or a hang, or a
/// baseline that needs a review; 2 inconclusive; 3 usage.
#[derive(Debug, Parser)]
#[command(name = "fsprobe", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Repeat the six founding assertions on the check-then-open control and its reference.
    Baseline(Common),
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Directory to make the arena in.
    #[arg(long, env = "TMPDIR", default_value = "/tmp")]
    dir: PathBuf,
    /// Repeat a run: the same seed gives the same contents and the same order.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

const EXIT_LOST: u8 = 1;
const EXIT_INCONCLUSIVE: u8 = 2;
const EXIT_USAGE: u8 = 3;

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
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(writeln!(io::stderr(), "fsprobe: {}", chain(&error)));
            ExitCode::from(match error {
                ProbeError::Usage(_) => EXIT_USAGE,
                ProbeError::Arena { .. }
                | ProbeError::Start { .. }
                | ProbeError::Host { .. }
                | ProbeError::Stopped => EXIT_INCONCLUSIVE,
            })
        }
    }
}

fn run(cli: &Cli) -> Result<u8, ProbeError> {
    match &cli.command {
        Command::Baseline(common) => {
            let arena = Arena::new_in(&common.dir)?;
            let seed = common.seed.unwrap_or_else(fsprobe::fresh_seed);
            let report = baseline::run(&arena, seed)?;
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
    }
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
