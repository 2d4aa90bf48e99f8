//! A subject that is a program: started anew for every read, unmodified, answering on its output.

#![forbid(unsafe_code)]

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Seek as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::MemfdFlags;

use crate::{
    arena::{Cell, TARGET},
    error::ProbeError,
    oracle::{Answer, Ending, Shape},
    subject::{Claims, Refusal},
};

/// The most that is kept of an answer; a program that says more is cut off by its own limit.
const MAX_ANSWER: u64 = 64 << 20;

/// A program, with `{root}`, `{path}` and `{ceiling}` in its arguments to be filled in.
#[derive(Debug, Clone)]
pub struct Command {
    /// The name reports use.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Added to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Whether its output is the content or contains it.
    pub shape: Shape,
    /// What it undertakes.
    pub claims: Claims,
    /// Where it answers.
    pub channel: Channel,
}

/// Where a program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channel {
    /// On its standard output.
    #[default]
    Stdout,
    /// On a descriptor of its own, named in its environment (see [`Relaunch`](crate::Relaunch)).
    Descriptor,
}

impl Command {
    /// A program by its argument vector, answering on standard output.
    ///
    /// # Errors
    /// [`ProbeError::Usage`] where there is no program, or nothing says which file to read.
    pub fn new(argv: Vec<OsString>) -> Result<Self, ProbeError> {
        let Some(program) = argv.first() else {
            return Err(ProbeError::Usage("no program given".to_owned()));
        };
        let has = |placeholder: &str| {
            argv.iter().any(|argument| {
                crate::content::contains(argument.as_bytes(), placeholder.as_bytes())
            })
        };
        if !has("{root}") || !has("{path}") {
            return Err(ProbeError::Usage(
                "the command must contain {root} and {path}, such as: cat {root}/{path}".to_owned(),
            ));
        }
        let name = PathBuf::from(program);
        let name = name
            .file_name()
            .unwrap_or(program)
            .to_string_lossy()
            .into_owned();
        Ok(Self {
            name,
            argv,
            env: Vec::new(),
            shape: Shape::Exact,
            claims: Claims::default(),
            channel: Channel::Stdout,
        })
    }

    /// The command line as it was given.
    #[must_use]
    pub fn invocation(&self) -> Vec<String> {
        self.argv
            .iter()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect()
    }

    /// Ready to be started on `cell`, with the file its answer will be in.
    pub(crate) fn on(&self, cell: &Cell) -> Result<(std::process::Command, Output), ProbeError> {
        let memory = |name: &str| {
            rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(|errno| ProbeError::Host {
                what: "make a file in memory for the answer",
                source: errno.into(),
            })
        };
        let (answer, complaint) = (memory("fsprobe-answer")?, memory("fsprobe-complaint")?);
        let share = |file: &OwnedFd| {
            file.try_clone()
                .map(Stdio::from)
                .map_err(|source| ProbeError::Host {
                    what: "share the answer's file",
                    source,
                })
        };
        let mut argv = self.argv.iter().map(|argument| fill(argument, cell));
        let program = argv.next().unwrap_or_default();
        let mut command = std::process::Command::new(program);
        command
            .args(argv)
            .stdin(Stdio::null())
            .stderr(share(&complaint)?);
        for (name, value) in &self.env {
            command.env(name, fill(value, cell));
        }
        let kept_open = match self.channel {
            Channel::Stdout => {
                command.stdout(share(&answer)?);
                None
            }
            Channel::Descriptor => {
                command.stdout(Stdio::null());
                command.env(crate::child::ENV_ANSWER, answer.as_raw_fd().to_string());
                Some(answer.as_raw_fd())
            }
        };
        let output = Output {
            answer: File::from(answer),
            complaint: File::from(complaint),
            kept_open,
            shape: self.shape,
        };
        Ok((command, output))
    }

    /// Runs it once on `cell`, untraced, and waits at most `patience`.
    pub(crate) fn read(&self, cell: &Cell, patience: Duration) -> Result<Answer, ProbeError> {
        let (mut command, mut output) = self.on(cell)?;
        crate::sys::limit_child(&mut command, MAX_ANSWER, output.kept_open);
        let mut child = command.spawn().map_err(|source| self.start_error(source))?;
        let ended = wait(&mut child, patience).map_err(|source| ProbeError::Host {
            what: "wait for the program",
            source,
        })?;
        output.judge_ending(ended)
    }

    pub(crate) fn start_error(&self, source: io::Error) -> ProbeError {
        ProbeError::Start {
            program: self.name.clone(),
            source,
        }
    }
}

/// Where a program's answer lands: files in memory, so that writing never waits for a reader.
#[derive(Debug)]
pub(crate) struct Output {
    answer: File,
    complaint: File,
    /// The descriptor a [`Channel::Descriptor`] program inherits.
    pub(crate) kept_open: Option<i32>,
    shape: Shape,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(i32),
    Signal(i32),
    Hung,
}

impl Output {
    pub(crate) const MAX: u64 = MAX_ANSWER;

    /// The answer of a program that ended like this.
    pub(crate) fn judge_ending(&mut self, ended: Ended) -> Result<Answer, ProbeError> {
        let mut bytes = Vec::new();
        let read = self.answer.rewind().and_then(|()| {
            (&self.answer)
                .take(MAX_ANSWER)
                .read_to_end(&mut bytes)
                .map(drop)
        });
        read.map_err(|source| ProbeError::Host {
            what: "read the program's answer",
            source,
        })?;
        let ending = match ended {
            Ended::Exit(0) => Ending::Whole,
            Ended::Exit(code) => Ending::Refused(Refusal::new(format!("exit {code}"))),
            Ended::Signal(signal) => Ending::Refused(Refusal::new(format!("signal {signal}"))),
            Ended::Hung => Ending::Hung,
        };
        Ok(Answer {
            bytes,
            ending,
            shape: self.shape,
        })
    }

    /// The first line the program complained with, for a note.
    pub(crate) fn complaint(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self.complaint.rewind().and_then(|()| {
            (&self.complaint)
                .take(512)
                .read_to_end(&mut bytes)
                .map(drop)
        });
        if read.is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = text
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        line.chars().filter(|c| !c.is_control()).take(200).collect()
    }
}

fn wait(child: &mut Child, patience: Duration) -> io::Result<Ended> {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(status) = child.try_wait()? {
            use std::os::unix::process::ExitStatusExt as _;
            return Ok(match (status.code(), status.signal()) {
                (Some(code), _) => Ended::Exit(code),
                (None, signal) => Ended::Signal(signal.unwrap_or_default()),
            });
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::Hung);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

/// Fills in the placeholders of one argument.
fn fill(argument: &OsStr, cell: &Cell) -> OsString {
    let ceiling = cell.setup().ceiling.to_string();
    let with: [(&[u8], &[u8]); 3] = [
        (b"{root}", cell.root_path().as_os_str().as_bytes()),
        (b"{path}", TARGET.as_bytes()),
        (b"{ceiling}", ceiling.as_bytes()),
    ];
    fill_in(argument, with)
}

/// Puts values in the place of placeholders; what was put in is not looked at again.
pub(super) fn fill_in(argument: &OsStr, with: [(&[u8], &[u8]); 3]) -> OsString {
    let mut rest = argument.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    'next: while let Some((first, tail)) = rest.split_first() {
        for (placeholder, value) in with {
            if let Some(tail) = rest.strip_prefix(placeholder) {
                filled.extend_from_slice(value);
                rest = tail;
                continue 'next;
            }
        }
        filled.push(*first);
        rest = tail;
    }
    OsString::from_vec(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_names_no_file_is_refused() {
        for argv in [&[][..], &["cat"], &["cat", "{root}"], &["cat", "{path}"]] {
            let argv = argv.iter().map(OsString::from).collect();
            assert!(matches!(Command::new(argv), Err(ProbeError::Usage(_))));
        }
    }

    #[test]
    fn a_program_is_started_on_the_cell_and_its_end_is_told() {
        let base = tempfile::tempdir().unwrap();
        let arena = crate::Arena::new_in(base.path()).unwrap();
        let setup = crate::arena::Setup {
            len: 64,
            ceiling: 128,
            nonce: 1,
        };
        let cell = arena.cell(crate::Attack::Plain, setup).unwrap();
        let run = |script: &str, patience| {
            let argv = ["sh", "-c", script, "{root}/{path}"]
                .map(OsString::from)
                .to_vec();
            Command::new(argv).unwrap().read(&cell, patience).unwrap()
        };
        let long = Duration::from_secs(20);
        let whole = run("cat \"$0\"", long);
        assert_eq!(whole.ending, Ending::Whole);
        assert_eq!(
            whole.bytes,
            cell.contents().bytes(crate::content::Mark::Inside, 64)
        );
        let refused = run("exit 7", long);
        assert_eq!(refused.ending, Ending::Refused(Refusal::new("exit 7")));
        let hung = run("echo part; exec sleep 60", Duration::from_millis(300));
        assert_eq!(
            (hung.ending, hung.bytes.as_slice()),
            (Ending::Hung, &b"part\n"[..])
        );
    }
}
