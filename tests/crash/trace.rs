//! Runs a program under `strace`, counts its system calls, and meddles with one of them.
//!
//! `strace` counts an injection's `when=` per system call name, so counts repeat only for programs
//! with one thread: `spec/store.md` 2.2 F.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Calls that may change what a restart finds.
const CHANGING: &[&str] = &[
    "chmod",
    "copy_file_range",
    "creat",
    "fallocate",
    "fchmod",
    "fchmodat",
    "fdatasync",
    "fsync",
    "ftruncate",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "mknodat",
    "msync",
    "open",
    "openat",
    "openat2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "symlinkat",
    "sync_file_range",
    "syncfs",
    "truncate",
    "unlink",
    "unlinkat",
    "write",
    "writev",
];

/// One system call of a counting run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its name.
    pub(crate) name: String,
    /// Its number among the calls of this name, from 1.
    pub(crate) nth: u32,
    /// Its arguments and result as `strace` shows them.
    pub(crate) text: String,
}

/// A program that does the same system calls each time.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    exe: PathBuf,
    args: Vec<String>,
}

/// What a run under `strace` did.
#[derive(Debug)]
pub(crate) struct Run {
    /// The program's standard output.
    pub(crate) stdout: String,
    /// Whether it ended by `SIGKILL`.
    pub(crate) killed: bool,
    /// Whether it ended with status 0.
    pub(crate) success: bool,
    /// Its calls.
    pub(crate) calls: Vec<Call>,
}

impl Program {
    /// `exe` with these arguments.
    pub(crate) fn new(
        exe: impl Into<PathBuf>,
        args: impl IntoIterator<Item = impl ToString>,
    ) -> Self {
        Self {
            exe: exe.into(),
            args: args.into_iter().map(|arg| arg.to_string()).collect(),
        }
    }

    /// Runs it as it is.
    pub(crate) fn run(&self) -> Output {
        Command::new(&self.exe)
            .args(&self.args)
            .stdin(Stdio::null())
            .output()
            .expect("the program starts")
    }

    /// Runs it and lists its calls.
    pub(crate) fn trace(&self) -> Run {
        self.strace(&[])
    }

    /// Runs it with one injection, as in `fsync:error=EIO:when=1`.
    pub(crate) fn inject(&self, injection: &str) -> Run {
        self.strace(&[injection])
    }

    /// Runs it with several injections.
    pub(crate) fn inject_all(&self, injections: &[&str]) -> Run {
        self.strace(injections)
    }

    /// Runs it and kills it as it enters `call`, which then does not happen.
    pub(crate) fn kill_at(&self, call: &Call) -> Run {
        self.strace(&[&format!("{}:signal=SIGKILL:when={}", call.name, call.nth)])
    }

    fn strace(&self, injections: &[&str]) -> Run {
        let dir = tempfile::tempdir().expect("a directory for the log");
        let log = dir.path().join("log");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-s", "200", "-o"]).arg(&log);
        for injection in injections {
            command.args(["-e", &format!("inject={injection}")]);
        }
        let output = command
            .arg("--")
            .arg(&self.exe)
            .args(&self.args)
            .stdin(Stdio::null())
            .output()
            .expect("strace starts");
        let log = fs::read(&log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        Run {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            killed: log.contains("+++ killed by SIGKILL +++"),
            success: output.status.success(),
            calls: calls(&log),
        }
    }
}

fn calls(log: &str) -> Vec<Call> {
    let mut seen = std::collections::HashMap::<String, u32>::new();
    // By thread: its call that was not over when another thread's came between.
    let mut open = std::collections::HashMap::<String, usize>::new();
    let mut calls = Vec::<Call>::new();
    for line in log.lines() {
        let Some((pid, text)) = line.split_once(' ') else {
            continue;
        };
        let text = text.trim_start();
        if text.starts_with("<... ") {
            if let Some((_, rest)) = text.split_once(" resumed>")
                && let Some(call) = open.remove(pid)
            {
                calls[call].text.push_str(rest);
            }
            continue;
        }
        let Some((name, _)) = text.split_once('(') else {
            continue;
        };
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        let nth = seen.entry(name.to_owned()).or_default();
        *nth += 1;
        let whole = text.strip_suffix(" <unfinished ...>");
        if whole.is_some() {
            open.insert(pid.to_owned(), calls.len());
        }
        calls.push(Call {
            name: name.to_owned(),
            nth: *nth,
            text: whole.unwrap_or(text).to_owned(),
        });
    }
    calls
}

impl Run {
    /// The calls that changed something, in order: every place where a kill can make a difference.
    pub(crate) fn changes(&self) -> Vec<Call> {
        self.calls
            .iter()
            .filter(|call| CHANGING.contains(&call.name.as_str()))
            .filter(|call| !call.text.contains(") = -1 "))
            .filter(|call| {
                !call.name.starts_with("open")
                    || ["O_CREAT", "O_TRUNC", "O_TMPFILE"]
                        .iter()
                        .any(|flag| call.text.contains(flag))
            })
            .cloned()
            .collect()
    }

    /// The calls of this name.
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Call> + 'a {
        self.calls.iter().filter(move |call| call.name == name)
    }
}

/// Why nothing can be traced here; `None` when it can.
pub(crate) fn unavailable() -> Option<&'static str> {
    let tried = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "--", "true"])
        .stdin(Stdio::null())
        .output();
    match tried {
        Err(_) => Some("strace is not installed"),
        Ok(output) if !output.status.success() => Some("this machine does not allow ptrace"),
        Ok(_) => None,
    }
}

/// The program next to this test under the name Cargo gave it.
pub(crate) fn store_tool(args: impl IntoIterator<Item = impl ToString>) -> Program {
    Program::new(Path::new(env!("CARGO_BIN_EXE_store-tool")), args)
}

/// The program that appends, likewise.
pub(crate) fn journal_tool(args: impl IntoIterator<Item = impl ToString>) -> Program {
    Program::new(Path::new(env!("CARGO_BIN_EXE_journal-tool")), args)
}

/// The program that releases, likewise.
pub(crate) fn release_tool(args: impl IntoIterator<Item = impl ToString>) -> Program {
    Program::new(Path::new(env!("CARGO_BIN_EXE_release-tool")), args)
}
