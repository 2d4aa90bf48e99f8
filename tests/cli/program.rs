//! Runs the program and takes it apart when it has ended.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::wire;

/// The program with an environment of its own.
pub(crate) fn holdfast() -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_holdfast")))
}

/// Another program with an environment of its own.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("HOLDFAST_") {
            command.env_remove(variable);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    /// The JSON value it printed, after it ended well.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    Done {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A directory with room for one Holdfast directory and whatever a test wants beside it.
#[derive(Debug)]
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("hf")
    }

    /// A file in the home with this content.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The program on this home's directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = holdfast();
        command.arg("--data").arg(self.data()).args(arguments);
        command.current_dir(self.path());
        command
    }

    /// Runs the program on this home's directory.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        run(&mut self.command(arguments))
    }

    /// Runs the program with `--json` and reads what it printed.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        self.run(&all).json()
    }

    /// `up` on a free port.
    pub(crate) fn up(&self) -> Server {
        self.up_with(|_| {})
    }

    /// `up` on a free port, that first proves its root; started as `change` says.
    pub(crate) fn up_proving(&self, change: impl FnOnce(&mut Command)) -> Server {
        let mut command = self.command(&["--json", "up", "--listen", "127.0.0.1:0"]);
        change(&mut command);
        Server::start(command, self.path().join("up.log"))
    }

    /// `up` on a free port, started as `change` says.
    pub(crate) fn up_with(&self, change: impl FnOnce(&mut Command)) -> Server {
        let mut command = self.command(&["--json", "up", "--no-prove", "--listen", "127.0.0.1:0"]);
        change(&mut command);
        Server::start(command, self.path().join("up.log"))
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// What it printed when it was ready.
    pub(crate) ready: Value,
    log: PathBuf,
}

impl Server {
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Self {
        let stderr = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let mut values = serde_json::Deserializer::from_reader(out).into_iter::<Value>();
        let ready = match values.next() {
            Some(Ok(ready)) => ready,
            other => {
                let status = child.wait().unwrap();
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                panic!("no server: {other:?}, {status}, {said}");
            }
        };
        Self { child, ready, log }
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    pub(crate) fn address(&self) -> &str {
        self.text("url").strip_prefix("http://").unwrap()
    }

    /// A GET with the demo user's token.
    pub(crate) fn get(&self, path: &str) -> wire::Answer {
        wire::get(self.address(), path, Some(self.text("token")), &[])
    }

    /// The address of the demo's attachment.
    pub(crate) fn attachment(&self) -> String {
        format!(
            "/v1/sessions/{}/attachments/{}",
            self.text("session"),
            self.text("attachmentId")
        )
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end, but not for ever.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < Duration::from_mins(1), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as an operator would, and returns what it logged.
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.wait();
        let log = self.log();
        assert!(status.success(), "{status}: {log}");
        log
    }

    pub(crate) fn log(&self) -> String {
        let mut log = String::new();
        File::open(&self.log)
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, or it is ended here: a failed test leaves no server behind.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
