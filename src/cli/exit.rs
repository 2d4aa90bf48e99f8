//! How a command ends: the exit codes, and the one error type of the command line.

use std::{fmt, io, process::ExitCode};

/// What `--help` says about exit codes; `docs/cli.md` repeats it and a test compares the two.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed otherwise; the message says how
  2  the command line is wrong
  3  the configuration, or a directory it names, is refused
  4  not there, or not for this caller
  5  damaged: the bytes, or a log, are not what was written down of them
  6  busy, unreachable or cut short; trying again may help
  7  refused by a rule or a limit; the message names it";

/// What `prove --help` says about its own exit codes, which are those of `fsprobe`.
pub(super) const PROVE_EXIT_CODES: &str = "\
Exit codes of `prove`:
  0  every root is proven
  1  a reader was beaten: an escape, a torn read, a hang
  2  inconclusive: not everything could be run, or weak readers survived too
  3  the command line, the configuration, or a directory it names, is refused";

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Anything without a number of its own.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration or a directory it names is refused.
    Configuration = 3,
    /// Absent, foreign or unauthenticated.
    NotFound = 4,
    /// Bytes are not what they should be.
    Damaged = 5,
    /// Trying again may help.
    TryAgain = 6,
    /// A rule or a limit says no.
    Refused = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Configuration => 3,
            Exit::NotFound => 4,
            Exit::Damaged => 5,
            Exit::TryAgain => 6,
            Exit::Refused => 7,
        })
    }
}

/// Why a command did not do what it was asked: how it ends, and what to tell the person.
#[derive(Debug)]
pub(super) struct Failure {
    /// The exit code.
    pub(super) exit: Exit,
    /// What happened, in one or a few lines.
    pub(super) message: String,
}

impl Failure {
    /// A failure that ends with `exit`.
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// A failure with the chain of causes of `error`.
    pub(super) fn of(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            message.extend([": ", &next.to_string()]);
            cause = next.source();
        }
        Self { exit, message }
    }

    /// A failure of the system while `action` was tried.
    pub(super) fn io(action: impl fmt::Display, error: &io::Error) -> Self {
        use rustix::io::Errno;
        let exit = match Errno::from_io_error(error) {
            Some(Errno::NOENT) => Exit::NotFound,
            Some(Errno::NOSPC | Errno::DQUOT | Errno::AGAIN) => Exit::TryAgain,
            _ => Exit::Failed,
        };
        Self::new(exit, format!("{action}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
