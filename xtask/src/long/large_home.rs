//! A DSH home of 10,000 sessions and 1,000,000 events: what a start, a list, a snapshot, a page and a
//! download cost, with a cold index, a warm one, and one that was deleted.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{BufWriter, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Report, Scratch, Server, fill, memory, start_with};

/// The sessions, the events of all but one of them, and those of that one.
const SESSIONS: u64 = 10_000;
const EVENTS: u64 = 90;
const MOST_EVENTS: u64 = 1_000_000 - (SESSIONS - 1) * EVENTS;
/// The project folders they lie in.
const PROJECTS: u64 = 100;
/// The length of the one file every session refers to, in bytes.
const FILE: u64 = 64 << 10;
/// How many sessions are asked for each figure.
const SAMPLE: u64 = 200;

/// Builds the home, serves it three times, and compares what was read with what lies there.
pub(super) fn check(report: &mut Report) -> Result<bool, String> {
    let scratch = Scratch::new().map_err(|error| format!("no directory: {error}"))?;
    let home = scratch.0.join("home");
    let made = Instant::now();
    let (bytes, digest) = generate(&home)?;
    report.say(format_args!(
        "large home: {SESSIONS} sessions, {} events, {} MiB of logs, made in {:.1} s",
        (SESSIONS - 1) * EVENTS + MOST_EVENTS,
        bytes >> 20,
        made.elapsed().as_secs_f64(),
    ));
    let mut good = true;
    for (number, state) in ["cold index", "warm index", "index deleted"]
        .into_iter()
        .enumerate()
    {
        if number == 2 {
            remove_index(&scratch.0);
        }
        good &= serve(&scratch.0, &home, state, bytes, &digest, report)?;
    }
    Ok(good)
}

fn serve(
    dir: &Path,
    home: &Path,
    state: &str,
    bytes: u64,
    digest: &str,
    report: &mut Report,
) -> Result<bool, String> {
    let began = Instant::now();
    let home = home.to_string_lossy().into_owned();
    let server = start_with(dir, &["--dsh-home", &home, "--owner", "you"])?;
    let ready = began.elapsed();
    let at_start = read_so_far(&server)?;
    let rss = memory(&server, "VmRSS")?;
    report.say(format_args!(
        "large home, {state}: ready in {:.2} s, {} KiB read, RSS {} MiB",
        ready.as_secs_f64(),
        at_start >> 10,
        rss >> 10,
    ));
    let mut good = at_start < bytes / 8;

    let list = measure(&server, state, "list of 100", report, 20, |_| {
        "/v1/sessions?limit=100".to_owned()
    })?;
    let (before, began) = (read_so_far(&server)?, Instant::now());
    let mut handles = handles(&server)?;
    report.say(format_args!(
        "large home, {state}: the whole list in {:.2} s, {} MiB read",
        began.elapsed().as_secs_f64(),
        read_so_far(&server)?.saturating_sub(before) >> 20,
    ));
    // `up` has a demo session of its own.
    handles.retain(|(_, id)| id.starts_with("session-"));
    if u64::try_from(handles.len()) != Ok(SESSIONS) {
        return Err(format!(
            "{} sessions are listed, not {SESSIONS}",
            handles.len()
        ));
    }
    let session = |at: u64| {
        handles[usize::try_from(at * 37 % SESSIONS).unwrap_or(0)]
            .0
            .clone()
    };
    let big = handles
        .iter()
        .find(|(_, id)| id == "session-0")
        .map(|(handle, _)| handle.clone())
        .ok_or("the large session is not listed")?;
    let before = read_so_far(&server)?;
    for (what, path) in [
        ("snapshot", "/snapshot".to_owned()),
        ("last page", "/events?limit=50".to_owned()),
        ("early page", "/events?limit=50&beforeSeq=60".to_owned()),
        ("download of 64 KiB", format!("/attachments/{digest}")),
    ] {
        measure(&server, state, what, report, SAMPLE, |at| {
            format!("/v1/sessions/{}{path}", session(at))
        })?;
        measure(
            &server,
            state,
            &format!("{what}, {MOST_EVENTS} events"),
            report,
            20,
            |at| {
                let path = match what {
                    "early page" => format!("/events?limit=50&beforeSeq={}", 500 + at * 4_000),
                    _ => path.clone(),
                };
                format!("/v1/sessions/{big}{path}")
            },
        )?;
    }
    let read = read_so_far(&server)?.saturating_sub(before);
    report.say(format_args!(
        "large home, {state}: {} MiB read for {} requests, RSS {} MiB, peak {} MiB",
        read >> 20,
        4 * (SAMPLE + 20),
        memory(&server, "VmRSS")? >> 10,
        memory(&server, "VmHWM")? >> 10,
    ));
    // A list reads the logs it lists at most, once; nothing after it reads them all.
    good &= list < bytes / 4 && read < bytes;
    if !good {
        report.say(format_args!(
            "large home, {state}: FAILED, more was read than was asked for"
        ));
    }
    Ok(good)
}

/// Every session the person sees, with its own id, in the order listed.
pub(super) fn handles(server: &Server) -> Result<Vec<(String, String)>, String> {
    let mut all: Vec<(String, String)> = Vec::new();
    loop {
        let after = all
            .last()
            .map_or_else(String::new, |(handle, _)| format!("&after={handle}"));
        let body = get(server, &format!("/v1/sessions?limit=100{after}"))?;
        let body: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let text = |row: &Value, key: &str| {
            let text = row.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let rows = body.get("sessions").and_then(Value::as_array);
        let before = all.len();
        let own = rows.into_iter().flatten();
        all.extend(own.map(|row| (text(row, "session"), text(row, "id"))));
        if body.get("hasMore") != Some(&Value::Bool(true)) || all.len() == before {
            break;
        }
    }
    Ok(all)
}

/// Asks `count` times and reports the latencies: of the first, and the median and slowest of all.
/// Returns the bytes read meanwhile.
fn measure(
    server: &Server,
    state: &str,
    what: &str,
    report: &mut Report,
    count: u64,
    path: impl Fn(u64) -> String,
) -> Result<u64, String> {
    let before = read_so_far(server)?;
    let mut took = Vec::new();
    for at in 0..count {
        let path = path(at);
        let start = Instant::now();
        get(server, &path)?;
        took.push(start.elapsed());
    }
    let read = read_so_far(server)?.saturating_sub(before);
    let first = took.first().copied().unwrap_or_default();
    took.sort_unstable();
    let at = |part: usize| {
        took.get((took.len() - 1) * part / 100)
            .copied()
            .unwrap_or_default()
    };
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    report.say(format_args!(
        "large home, {state}: {what}: first {:.1} ms, median {:.1} ms, 99 % {:.1} ms, {} KiB read",
        ms(first),
        ms(at(50)),
        ms(at(99)),
        read >> 10,
    ));
    Ok(read)
}

/// What the server has read so far, files and sockets, in bytes.
fn read_so_far(server: &Server) -> Result<u64, String> {
    let path = format!("/proc/{}/io", server.child.id());
    let mut text = String::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel says what our child has read"
    )]
    File::open(&path)
        .and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|error| format!("{path}: {error}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
        .ok_or_else(|| format!("{path} has no rchar"))
}

/// The body of an answer with status 200.
pub(super) fn get(server: &Server, path: &str) -> Result<Vec<u8>, String> {
    let text = |key: &str| {
        server
            .ready
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let address = text("url").trim_start_matches("http://");
    let failed = |error: std::io::Error| format!("{path}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         connection: close\r\n\r\n",
        text("token"),
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let head = answer.get(..end.unwrap_or(0)).unwrap_or_default();
    if !head.starts_with(b"HTTP/1.1 200") {
        return Err(format!("{path}: {}", String::from_utf8_lossy(&answer)));
    }
    Ok(answer.split_off(end.unwrap_or(0) + 4))
}

/// Deletes what the server may lose at any time.
#[expect(clippy::disallowed_methods, reason = "the suite's own directory")]
fn remove_index(dir: &Path) {
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(dir.join(format!("hf/data/journal/dsh-index{end}"))).ok();
    }
}

/// Writes the home; returns the bytes of its logs, and the id of the one file.
#[expect(clippy::disallowed_methods, reason = "the suite makes its own files")]
fn generate(home: &Path) -> Result<(u64, String), String> {
    let failed = |error: std::io::Error| format!("making a home: {error}");
    let content = home.with_extension("content");
    fill(&content, 7, FILE)?;
    let sum = Command::new("sha256sum").arg(&content).output();
    let sum = sum.map_err(|error| format!("sha256sum: {error}"))?;
    let hex: String = String::from_utf8_lossy(&sum.stdout)
        .chars()
        .take(64)
        .collect();
    let bucket: String = hex.chars().take(2).collect();
    let v1 = home.join("attachments/v1");
    let (object, name) = (
        v1.join("file-objects").join(&bucket).join(&hex),
        v1.join("files").join(&bucket).join(&hex).join("data.bin"),
    );
    for path in [&object, &name] {
        fs::create_dir_all(path.parent().unwrap_or(home)).map_err(failed)?;
    }
    fs::rename(&content, &object).map_err(failed)?;
    fs::hard_link(&object, &name).map_err(failed)?;
    let mut bytes = 0;
    for number in 0..SESSIONS {
        let cwd = format!("/workspaces/project-{}", number % PROJECTS);
        let folder: PathBuf = home
            .join("sessions")
            .join(format!("--workspaces-project-{}--", number % PROJECTS))
            .join(format!("session-{number}"));
        fs::create_dir_all(&folder).map_err(failed)?;
        let log = File::create(folder.join("session.v3.jsonl")).map_err(failed)?;
        let mut log = BufWriter::with_capacity(1 << 20, log);
        let events = if number == 0 { MOST_EVENTS } else { EVENTS };
        bytes += write_log(&mut log, number, &cwd, events, &hex).map_err(failed)?;
    }
    Ok((bytes, format!("sha256:{hex}")))
}

fn write_log(
    log: &mut impl std::io::Write,
    number: u64,
    cwd: &str,
    events: u64,
    hex: &str,
) -> std::io::Result<u64> {
    let mut bytes = 0;
    let mut put = |line: &str| {
        bytes += u64::try_from(line.len()).unwrap_or(0);
        log.write_all(line.as_bytes())
    };
    put(&format!(
        "{{\"type\":\"session\",\"version\":3,\"id\":\"session-{number}\",\"createdAt\":{},\
         \"cwd\":\"{cwd}\",\"isSeeded\":false,\"delegationDepth\":0}}\n",
        1_790_000_000_000 + number,
    ))?;
    let mut line = String::new();
    for seq in 0..events {
        let time = 1_790_000_000_000 + number + seq;
        let (kind, data) = match seq % 10 {
            0 if seq == 10 => (
                "user/message",
                format!(
                    "{{\"content\":[{{\"type\":\"file\",\"attachment\":{{\"attachmentId\":\
                     \"sha256:{hex}\",\"name\":\"data.bin\",\"bytes\":{FILE}}}}}]}}"
                ),
            ),
            0 => ("user/message", text(seq, 200)),
            5 => (
                "assistant/message",
                format!("{{\"turn\":1,\"step\":1,\"message\":{}}}", text(seq, 800)),
            ),
            7 if seq == 17 => (
                "deliverables/presented",
                "{\"turn\":1,\"callId\":\"c\",\"files\":[{\"path\":\"out/report.md\"}]}".to_owned(),
            ),
            _ => (
                "tool/call",
                format!(
                    "{{\"turn\":1,\"step\":1,\"callId\":\"c{seq}\",\"name\":\"bash\",\"arguments\":{:?}}}",
                    "x".repeat(150)
                ),
            ),
        };
        line.clear();
        write!(
            line,
            "{{\"type\":\"{kind}\",\"seq\":{seq},\"time\":{time},\"data\":{data}}}"
        )
        .ok();
        line.push('\n');
        put(&line)?;
    }
    log.flush()?;
    Ok(bytes)
}

fn text(seq: u64, length: usize) -> String {
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":\"{seq} {}\"}}]}}",
        "words ".repeat(length / 6)
    )
}
