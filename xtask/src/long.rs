//! The long suite: what takes too long for every change. Prints as it goes, and writes seeds, counts
//! and verdicts to `target/long/report.txt`.

mod large_home;
mod published;

use std::{
    fmt,
    fs::{self, File},
    io::{BufWriter, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::step::{Steps, project, say};

/// The size of the large file, in bytes.
const LARGE: u64 = 1 << 30;
/// How often it goes up and down.
const ROUNDS: u32 = 2;
/// How much the server may grow, in KiB.
const MAX_GROWTH: u64 = 32 << 10;

/// Runs the suite, or the one part named; the report holds what was seen even when something fails.
pub(crate) fn run(only: Option<&str>) -> ExitCode {
    let mut steps = Steps::default();
    let wanted = |part: &str| only.is_none_or(|only| only == part);
    let release = ["build", "--release", "-p", "holdfast"];
    steps.cargo("release build", &release);
    let mut report = Report::default();
    let mut part = |steps: &mut Steps, part: &str, name: &str, check: Check| {
        if !wanted(part) {
            return;
        }
        steps.check(name, || match check(&mut report) {
            Ok(is_good) => is_good,
            Err(why) => {
                report.say(format_args!("failed: {why}"));
                false
            }
        });
    };
    let large = "1 GiB up and down in flat memory";
    part(&mut steps, "large", large, large_file);
    let home = "a DSH home of 10,000 sessions and 1,000,000 events";
    part(&mut steps, "home", home, large_home::check);
    let dsh =
        "homes written by DSH's published packages, and their reader under the founding probe";
    if wanted("dsh") {
        match published::install() {
            Ok(()) => part(&mut steps, "dsh", dsh, published::check),
            Err(why) => steps.skip(dsh, &why),
        }
    }
    if wanted("tests") {
        steps.cargo_with(
            "long tests",
            &[
                "test",
                "--release",
                "--workspace",
                "--features",
                "holdfast/_seams",
                "--no-fail-fast",
                "--",
                "--ignored",
                "--nocapture",
                "--test-threads",
                "1",
            ],
            // Long means long: nothing may be left out.
            &[("HOLDFAST_TESTS", "complete")],
        );
    }
    if wanted("judges") {
        steps.cargo_with(
            "the description, with many examples",
            &[
                "test",
                "--release",
                "-p",
                "holdfast",
                "--features",
                "holdfast/_seams",
                "--test",
                "clients",
                "--",
                "--nocapture",
                "judges::schemathesis",
            ],
            &[
                ("HOLDFAST_TESTS", "complete"),
                ("HOLDFAST_TEST_EXAMPLES", "400"),
            ],
        );
    }
    if let Err(error) = report.write() {
        say(format_args!("the report could not be written: {error}"));
    }
    steps.finish()
}

/// A part of the suite: whether what it saw is good, or why it could not look.
type Check = fn(&mut Report) -> Result<bool, String>;

/// What is seen, line by line: printed at once, kept for the file.
#[derive(Debug, Default)]
struct Report(String);

impl Report {
    fn say(&mut self, line: impl fmt::Display) {
        let line = line.to_string();
        say(&line);
        self.0.push_str(&line);
        self.0.push('\n');
    }

    fn path() -> PathBuf {
        project().join("target/long/report.txt")
    }

    #[expect(clippy::disallowed_methods, reason = "the suite writes its own report")]
    fn write(&self) -> std::io::Result<()> {
        let path = Self::path();
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut file = File::options().create(true).append(true).open(path)?;
        file.write_all(self.0.as_bytes())
    }
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

#[expect(
    clippy::disallowed_methods,
    reason = "the suite builds its own directories"
)]
impl Scratch {
    fn new() -> std::io::Result<Self> {
        // On the disk of the build, not in memory: a store refuses what may lose data.
        let path = project().join(format!("target/long/{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    #[expect(
        clippy::disallowed_methods,
        reason = "the suite removes its own directory"
    )]
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// The server of a test; ended with it.
struct Server {
    child: Child,
    ready: Value,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sends a large file up and down over loopback and compares the server's memory before and after.
fn large_file(report: &mut Report) -> Result<bool, String> {
    let scratch = Scratch::new().map_err(|error| format!("no directory: {error}"))?;
    let seed = now_nanos() | 1;
    report.say(format_args!(
        "large file: seed {seed}, {LARGE} bytes, {ROUNDS} rounds"
    ));
    let server = start(&scratch.0)?;
    // What the first request of each kind allocates is not growth with size.
    let small = scratch.0.join("small");
    fill(&small, seed, 1 << 16)?;
    round(&scratch.0, &server, &small, "small", report)?;
    let before = memory(&server, "VmRSS")?;
    for number in 0..ROUNDS {
        let file = scratch.0.join("large");
        let seed = seed.wrapping_add(u64::from(number) << 32);
        fill(&file, seed, LARGE)?;
        round(
            &scratch.0,
            &server,
            &file,
            &format!("large-{number}"),
            report,
        )?;
    }
    let after = memory(&server, "VmRSS")?;
    let peak = memory(&server, "VmHWM")?;
    let (growth, highest) = (after.saturating_sub(before), peak.saturating_sub(before));
    let is_flat = growth < MAX_GROWTH && highest < MAX_GROWTH;
    report.say(format_args!(
        "large file: RSS {before} KiB before, {after} KiB after (growth {growth} KiB), peak {peak} KiB \
         (growth {highest} KiB), limit {MAX_GROWTH} KiB: {}",
        if is_flat { "passed" } else { "FAILED" },
    ));
    Ok(is_flat)
}

fn program() -> PathBuf {
    project().join("target/release/holdfast")
}

fn start(dir: &Path) -> Result<Server, String> {
    start_with(dir, &[])
}

fn start_with(dir: &Path, arguments: &[&str]) -> Result<Server, String> {
    let mut child = Command::new(program())
        .args([
            "--json",
            "up",
            "--no-prove",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ])
        .arg(dir.join("hf"))
        .args(arguments)
        .env("HOLDFAST_LIMITS_FILE", "2GiB")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("no server: {error}"))?;
    let out = child.stdout.take().ok_or("the server has no output")?;
    let first = serde_json::Deserializer::from_reader(out)
        .into_iter::<Value>()
        .next();
    match first {
        Some(Ok(ready)) => Ok(Server { child, ready }),
        other => {
            child.kill().ok();
            child.wait().ok();
            Err(format!("the server did not start: {other:?}"))
        }
    }
}

/// Up, down, compared; the client checks length and digest itself.
fn round(
    dir: &Path,
    server: &Server,
    file: &Path,
    name: &str,
    report: &mut Report,
) -> Result<(), String> {
    let text = |key: &str| {
        server
            .ready
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let token = text("token").to_owned();
    let run = |arguments: &[&str], file: &Path, token: Option<&str>| {
        let mut command = Command::new(program());
        command
            .arg("--data")
            .arg(dir.join("hf"))
            .args(arguments)
            .arg(file);
        if let Some(token) = token {
            command
                .args(["--url", text("url")])
                .env("HOLDFAST_TOKEN", token);
        }
        let start = Instant::now();
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("no client: {error}"))?;
        if output.status.success() {
            Ok(start.elapsed())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    let session = ["--session", text("session")];
    let up = [&["put", "--reference", "--name", name], &session[..]].concat();
    let up = run(&up, file, None)?;
    let down = dir.join("down");
    let get = [&["get", name, "--force"], &session[..], &["--output"]].concat();
    let first = run(&get, &down, Some(&token))?;
    let second = run(&get, &down, Some(&token))?;
    report.say(format_args!(
        "large file: {name} up in {:.1} s, down in {:.1} s, again in {:.1} s",
        up.as_secs_f64(),
        first.as_secs_f64(),
        second.as_secs_f64(),
    ));
    Ok(())
}

/// A number of KiB from the server's status.
fn memory(server: &Server, field: &str) -> Result<u64, String> {
    let path = format!("/proc/{}/status", server.child.id());
    let mut status = String::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel says how large our child is"
    )]
    File::open(&path)
        .and_then(|mut file| file.read_to_string(&mut status))
        .map_err(|error| format!("{path}: {error}"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .ok_or_else(|| format!("{path} has no {field}"))
}

/// Fills a file with `bytes` bytes that follow from `seed` (xorshift64).
#[expect(clippy::disallowed_methods, reason = "the suite makes its own files")]
fn fill(path: &Path, seed: u64, bytes: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("making a file: {error}");
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
    let mut state = seed | 1;
    let mut left = bytes;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let take = usize::try_from(left.min(8)).unwrap_or(8);
        file.write_all(word.get(..take).unwrap_or_default())
            .map_err(failed)?;
        left = left.saturating_sub(8);
    }
    file.flush().map_err(failed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a seed nobody chose; it is printed"
)]
fn now_nanos() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(1)
}
