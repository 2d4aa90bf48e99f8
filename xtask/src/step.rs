//! Runs one command after the other with its output in view, and sums up.

use std::{
    fmt,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// Prints a line; a reader that has gone away is no failure of the checks.
pub(crate) fn say(line: impl fmt::Display) {
    let mut out = std::io::stdout().lock();
    let printed = writeln!(out, "{line}").and_then(|()| out.flush());
    drop(printed);
}

/// The project's directory.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
        .to_owned()
}

/// Whether the command can be run and succeeds; its output is not shown.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The steps so far and how they ended.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

#[derive(Debug)]
struct Step {
    name: String,
    outcome: Outcome,
    took: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

impl Steps {
    /// Runs `cargo` with `arguments`; goes on when it fails.
    pub(crate) fn cargo(&mut self, name: &str, arguments: &[&str]) {
        self.cargo_with(name, arguments, &[]);
    }

    /// As [`Steps::cargo`], with variables.
    pub(crate) fn cargo_with(&mut self, name: &str, arguments: &[&str], set: &[(&str, &str)]) {
        say(format_args!("\n== {name}: cargo {}", arguments.join(" ")));
        self.check(name, || {
            Command::new("cargo")
                .args(arguments)
                .current_dir(project())
                .envs(set.iter().copied())
                .stdin(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        });
    }

    /// Runs `check` as a step.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> bool) {
        let start = Instant::now();
        let outcome = if check() {
            Outcome::Passed
        } else {
            Outcome::Failed
        };
        self.0.push(Step {
            name: name.to_owned(),
            outcome,
            took: start.elapsed(),
        });
    }

    /// Notes a step that is not run, and why.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        self.0.push(Step {
            name: name.to_owned(),
            outcome: Outcome::Skipped(why.to_owned()),
            took: Duration::ZERO,
        });
    }

    /// Prints how each step ended; success when none failed.
    pub(crate) fn finish(self) -> ExitCode {
        say("\n== summary");
        for step in &self.0 {
            let seconds = step.took.as_secs();
            match &step.outcome {
                Outcome::Passed => say(format_args!("  passed   {:>5} s  {}", seconds, step.name)),
                Outcome::Failed => say(format_args!("  FAILED   {:>5} s  {}", seconds, step.name)),
                Outcome::Skipped(why) => {
                    say(format_args!("  skipped           {}: {why}", step.name));
                }
            }
        }
        if self.0.iter().any(|step| step.outcome == Outcome::Failed) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}
