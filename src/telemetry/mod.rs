//! Logs: one line an event on standard error, for people at a terminal and as JSON elsewhere.
//!
//! Promises: nothing below this module prints by itself; paths, tokens and file names reach a log
//! only as `model::Redacted` values (I14). Leaves to others: what is worth a line.

#![forbid(unsafe_code)]

use std::io::IsTerminal as _;

use thiserror::Error;
use tracing_subscriber::{EnvFilter, filter::ParseError, fmt};

/// What runs, which decides what is logged when nothing else is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// A server: our own lines from `info` on, others' warnings.
    Server,
    /// A command, whose result is what the person looks at: warnings.
    Command,
}

impl Running {
    const fn filter(self) -> &'static str {
        match self {
            Self::Server => "warn,holdfast=info",
            Self::Command => "warn",
        }
    }
}

/// Why logging could not be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The filter cannot be read.
    #[error("HOLDFAST_LOG: not a log filter")]
    Filter(#[from] ParseError),
    /// Logging was set up before.
    #[error("logging is set up already")]
    Twice,
}

/// Starts logging by `filter` (the form of `HOLDFAST_LOG`, such as `info` or `holdfast=debug`), or
/// as what runs needs it.
///
/// # Errors
/// [`TelemetryError::Filter`] for a filter that cannot be read; [`TelemetryError::Twice`] when it
/// was started before.
pub fn start(running: Running, filter: Option<&str>) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(filter.unwrap_or(running.filter()))?;
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(true);
    let started = if std::io::stderr().is_terminal() {
        builder.compact().try_init()
    } else {
        builder
            .json()
            .flatten_event(true)
            .with_ansi(false)
            .try_init()
    };
    started.map_err(|_already| TelemetryError::Twice)
}
