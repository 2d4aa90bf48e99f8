//! Readers of this process as programs of their own, so that they can be traced.
//!
//! A process cannot trace itself, so a program that wants its in-process reader struck at every
//! system call is started again by the prober and asked, through its environment, to read one file
//! with the named reader and end. The program helps by calling [`answer_if_asked`] first thing.

#![forbid(unsafe_code)]

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::sys::signal::Signal;
use rustix::fs::{Mode, OFlags};

use crate::{
    control,
    oracle::Shape,
    subject::{
        Subject,
        process::{Channel, Command},
    },
};

const ENV_SUBJECT: &str = "FSPROBE_ASK_SUBJECT";
const ENV_ROOT: &str = "FSPROBE_ASK_ROOT";
const ENV_PATH: &str = "FSPROBE_ASK_PATH";
const ENV_CEILING: &str = "FSPROBE_ASK_CEILING";
/// Number of the descriptor to answer on.
pub(crate) const ENV_ANSWER: &str = "FSPROBE_ASK_ANSWER";

/// Raised once the root is open.
pub(crate) const OPENED: Signal = Signal::SIGURG;

/// What a reader's refusal makes the program's exit status.
const EXIT_REFUSED: i32 = 10;
const EXIT_UNKNOWN: i32 = 11;

/// How to start this program again so that it comes to [`answer_if_asked`].
#[derive(Debug, Clone)]
pub struct Relaunch {
    /// The program.
    pub program: PathBuf,
    /// Arguments that lead it there.
    pub arguments: Vec<OsString>,
}

impl Relaunch {
    /// This very program with `arguments`.
    ///
    /// # Errors
    /// Where the system does not say which file this program was started from.
    pub fn this_program(arguments: &[&str]) -> io::Result<Self> {
        let arguments = arguments.iter().map(OsString::from).collect();
        Ok(Self {
            program: std::env::current_exe()?,
            arguments,
        })
    }

    /// This test binary, led to the `#[test]` function `name` (with its modules, as
    /// `cargo test -- --list` shows it), which has to call [`answer_if_asked`].
    ///
    /// # Errors
    /// As [`Relaunch::this_program`].
    pub fn this_test(name: &str) -> io::Result<Self> {
        Self::this_program(&[name, "--exact", "--nocapture", "--test-threads=1"])
    }

    /// `subject` as a program.
    pub(crate) fn command(&self, subject: &dyn Subject) -> Command {
        let mut argv = vec![self.program.clone().into_os_string()];
        argv.extend(self.arguments.iter().cloned());
        let env = [
            (ENV_SUBJECT, subject.name()),
            (ENV_ROOT, "{root}"),
            (ENV_PATH, "{path}"),
            (ENV_CEILING, "{ceiling}"),
        ];
        Command {
            name: subject.name().to_owned(),
            argv,
            env: env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            shape: Shape::Exact,
            claims: subject.claims(),
            channel: Channel::Descriptor,
        }
    }
}

/// Returns at once in a program nobody asked anything. Otherwise reads the one file with the reader
/// of that name, one of `subjects` or a built-in, answers, and ends the process.
#[expect(
    clippy::disallowed_methods,
    reason = "the question is asked through the environment"
)]
pub fn answer_if_asked(subjects: &[Arc<dyn Subject>]) {
    let Some(name) = std::env::var_os(ENV_SUBJECT) else {
        return;
    };
    let var = |name| std::env::var_os(name).unwrap_or_default();
    let number = |name| var(name).to_str().and_then(|text| text.parse::<u64>().ok());
    let built_in = control::all();
    let subject = subjects
        .iter()
        .chain(built_in.iter().map(|(_, subject)| subject))
        .find(|subject| *subject.name() == *name);
    let (Some(subject), Some(ceiling), Some(answer)) =
        (subject, number(ENV_CEILING), number(ENV_ANSWER))
    else {
        std::process::exit(EXIT_UNKNOWN);
    };
    let answered = answer_with(
        subject.as_ref(),
        &PathBuf::from(var(ENV_ROOT)),
        &PathBuf::from(var(ENV_PATH)),
        ceiling,
        answer,
    );
    std::process::exit(match answered {
        Ok(true) => 0,
        Ok(false) => EXIT_REFUSED,
        Err(_lost) => EXIT_UNKNOWN,
    });
}

/// Reads and writes; whether there was anything to write.
fn answer_with(
    subject: &dyn Subject,
    root: &Path,
    path: &Path,
    ceiling: u64,
    answer: u64,
) -> io::Result<bool> {
    let read = subject.open(root).and_then(|mut reader| {
        // Tells a tracer that the root is open: what comes before is not a read yet. Ignored by
        // default, so without a tracer nothing happens.
        let _told = nix::sys::signal::raise(OPENED);
        reader.read(path, ceiling, &mut |_step| {})
    });
    match read {
        Ok(bytes) => {
            let name = format!("/proc/self/fd/{answer}");
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let file: OwnedFd = rustix::fs::open(name, flags, Mode::empty())?;
            File::from(file).write_all(&bytes)?;
            Ok(true)
        }
        Err(_refused) => Ok(false),
    }
}
