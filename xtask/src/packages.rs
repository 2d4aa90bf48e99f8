//! Installs the few programs the tests call, when this machine lacks them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::step::{project, say, succeeds};

/// A program the tests call, or a module of the system's Python, and the Debian package that has it.
const NEEDED: [(&str, &str, &str); 22] = [
    ("strace", "strace", "kill at every system call"),
    (
        "mkfs.ext4",
        "e2fsprogs",
        "power cuts on a filesystem of our own",
    ),
    (
        "mkfs.xfs",
        "xfsprogs",
        "power cuts on a filesystem of our own",
    ),
    (
        "mkfs.btrfs",
        "btrfs-progs",
        "atomic copies on a filesystem of our own",
    ),
    ("losetup", "mount", "power cuts on a filesystem of our own"),
    ("nginx", "nginx-light", "downloads through a proxy"),
    ("openssl", "openssl", "TLS as another library speaks it"),
    ("curl", "curl", "downloads as a person would do them"),
    ("wget", "wget", "downloads as a person would do them"),
    ("aria2c", "aria2", "downloads as a person would do them"),
    (
        "python3:requests",
        "python3-requests",
        "downloads as a script would do them",
    ),
    (
        "python3:httpx",
        "python3-httpx",
        "downloads as a script would do them",
    ),
    (
        "python3:ensurepip",
        "python3-venv",
        "judges of HTTP answers, in an environment of their own",
    ),
    ("unzip", "unzip", "archives as a person would unpack them"),
    (
        "bsdtar",
        "libarchive-tools",
        "archives as a person would unpack them",
    ),
    ("chromium", "chromium", "downloads as a browser does them"),
    (
        "chromedriver",
        "chromium-driver",
        "downloads as a browser does them",
    ),
    ("script", "bsdutils", "questions answered at a terminal"),
    ("node", "nodejs", "the client in TypeScript"),
    ("npm", "npm", "the client in TypeScript"),
    ("sha256sum", "coreutils", "checks as a person would do them"),
    ("c++", "g++", "the fuzzing engine"),
];

/// Installs what is missing where that is possible, and says what it did or what is left to do.
///
/// Tests that miss a program print a `skipped` line of their own; nothing here makes them fail.
pub(crate) fn install() {
    install_programs();
    install_judges();
    install_typescript();
}

/// What builds the client in TypeScript, of the versions in its lock file, below the target directory.
fn install_typescript() {
    let source = project().join("clients/typescript");
    let Some(target) = target() else {
        return say("== setup: where is the target directory?");
    };
    let tools = target.join("typescript");
    let text = |path: &Path| path.to_str().unwrap_or_default().to_owned();
    let (wanted, done) = (
        source.join("package-lock.json"),
        tools.join("installed.json"),
    );
    if succeeds("cmp", &["-s", &text(&wanted), &text(&done)]) {
        return say("== setup: the compilers of the client in TypeScript are here");
    }
    say("== setup: installing the compilers of the client in TypeScript");
    let own = text(&tools);
    let ran = succeeds("mkdir", &["-p", &own])
        && succeeds(
            "cp",
            &[&text(&source.join("package.json")), &text(&wanted), &own],
        )
        && succeeds(
            "npm",
            &[
                "ci",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--prefix",
                &own,
            ],
        )
        && succeeds("cp", &[&text(&wanted), &text(&done)]);
    if !ran {
        say("  that failed; tests that need them will say that they are skipped");
    }
}

/// The judges of HTTP answers, of the versions written down, in a Python environment of their own
/// below the target directory.
fn install_judges() {
    let wanted = project().join("tests/clients/judges.txt");
    let Some(target) = target() else {
        return say("== setup: where is the target directory?");
    };
    let (judges, done) = (target.join("judges"), target.join("judges/installed.txt"));
    let text = |path: &Path| path.to_str().unwrap_or_default().to_owned();
    // What was installed is written down last: half an installation is none.
    if succeeds("cmp", &["-s", &text(&wanted), &text(&done)]) {
        return say("== setup: the judges of HTTP answers are here");
    }
    say("== setup: installing the judges of HTTP answers (tests/clients/judges.txt)");
    let pip = text(&judges.join("bin/pip"));
    let ran = succeeds(
        "/usr/bin/python3",
        &["-m", "venv", "--clear", &text(&judges)],
    ) && succeeds(&pip, &["install", "-q", "--no-input", "-r", &text(&wanted)])
        && succeeds("cp", &[&text(&wanted), &text(&done)]);
    if !ran {
        say("  that failed; tests that need them will say that they are skipped");
    }
}

/// The target directory this program was built into.
fn target() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.to_owned())
}

fn install_programs() {
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|(program, ..)| !is_on_path(program))
        .collect();
    if missing.is_empty() {
        return say("== setup: everything the tests call is here");
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    say("== setup: missing");
    for (program, package, purpose) in &missing {
        say(format_args!("  {program} (package {package}): {purpose}"));
    }
    if !is_on_path("apt-get") || !succeeds("sh", &["-c", "test \"$(id -u)\" = 0"]) {
        return say(format_args!(
            "  not installed (needs root and apt-get); as root: apt-get install {}",
            packages.join(" ")
        ));
    }
    say(format_args!(
        "  installing: apt-get install {}",
        packages.join(" ")
    ));
    let ran = apt(&["-q", "update"])
        && apt(&[
            &["-qy", "--no-install-recommends", "install"],
            packages.as_slice(),
        ]
        .concat());
    if !ran {
        say("  apt-get failed; tests that need these programs will say that they are skipped");
    }
}

fn apt(arguments: &[&str]) -> bool {
    Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn is_on_path(program: &str) -> bool {
    if let Some(module) = program.strip_prefix("python3:") {
        return succeeds("/usr/bin/python3", &["-c", &format!("import {module}")]);
    }
    // System administration programs are often off a user's PATH though they are installed.
    let script = "PATH=\"$PATH:/usr/sbin:/sbin\"; command -v \"$1\"";
    succeeds("sh", &["-c", script, "sh", program])
}
