//! `prove`, the gate of a running server, and `up` that proves its demo root: with the real program.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::{
    program::{Done, Home, Server},
    wire,
};

/// Waits until `reached`, or fails with what was there instead.
fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    is_it: impl Fn(&T) -> bool,
) {
    let start = Instant::now();
    loop {
        let seen = look();
        if is_it(&seen) {
            return;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "{what}: {seen:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What `GET /v1/probe` says of the demo root.
fn gate(server: &Server) -> Value {
    let answer = server.get("/v1/probe");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["roots"][0].clone()
}

/// Has the server load the report again until it says `reason`; none: that the gate is open.
fn reloads(server: &Server, reason: Option<&str>) {
    server.signal(Signal::HUP);
    let expected = reason.map_or(Value::Null, Value::from);
    eventually(
        "the gate's reason",
        || ["state", "reason"].map(|key| gate(server)[key].clone()),
        |[state, reason]| {
            *reason == expected && state == if expected.is_null() { "open" } else { "closed" }
        },
    );
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// Keeps I3, on this very host: what `up` proves opens the gate for its root, and everything that is
/// not that report, made here by this program for this root, closes it again.
#[test]
fn up_proves_its_demo_root_and_nothing_but_that_report_opens_the_gate() {
    let home = Home::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = free.local_addr().unwrap().to_string();
    drop(free);
    let mut server = home.up_proving(|command| {
        command.env("HOLDFAST_ADMIN", &admin);
    });
    let shown = gate(&server);
    assert_eq!(shown["state"], "open", "{shown}");
    assert_eq!(shown["resolvers"], json!(["openat2"]));
    assert_eq!(shown["probes"][0]["conclusion"], "proven");
    assert_eq!(
        names(&home.data()),
        ["data", "holdfast.toml", "workspace"],
        "no arena is left"
    );
    let ready = wire::get(&admin, "/readyz", None, &[]);
    let ready = String::from_utf8(ready.body).unwrap();
    assert_eq!(ready, "ready\ngate workspace: open\n");
    let path = format!("/v1/sessions/{}/snapshot", server.text("session"));
    let deliverables = server.get(&path).json()["display"]["deliverables"].clone();
    assert_eq!(
        deliverables["gate"],
        json!({"root": "workspace", "state": "open"})
    );
    assert_eq!(deliverables["mode"], "release");
    assert!(deliverables.get("reason").is_none());

    let [report, key] = ["probe.json", "seal.key"].map(|name| home.data().join("data").join(name));
    let [good, good_key] = [&report, &key].map(|file| std::fs::read(file).unwrap());
    let text = String::from_utf8(good.clone()).unwrap();
    for (edit, with) in [
        ("\"escaped\":0", "\"escaped\":7"),
        ("\"openat2\"", "\"walk\""),
    ] {
        assert!(text.contains(edit), "{edit}");
        std::fs::write(&report, text.replacen(edit, with, 1)).unwrap();
        reloads(&server, Some("forged"));
        std::fs::write(&report, &good).unwrap();
        reloads(&server, None);
    }
    std::fs::write(&key, [7; 32]).unwrap();
    reloads(&server, Some("forged"));
    std::fs::write(&key, &good_key).unwrap();
    std::fs::remove_file(&report).unwrap();
    reloads(&server, Some("no-report"));
    std::fs::create_dir(&report).unwrap();
    reloads(&server, Some("forged"));
    std::fs::remove_dir(&report).unwrap();
    std::fs::write(&report, &good).unwrap();
    server.signal(Signal::TERM);
    assert!(server.wait().success());

    after_a_restart(&home, &good);
    // Another program, if only by one byte nobody runs.
    let other = home.path().join("other");
    std::fs::copy(env!("CARGO_BIN_EXE_holdfast"), &other).unwrap();
    let mut bytes = std::fs::OpenOptions::new()
        .append(true)
        .open(&other)
        .unwrap();
    std::io::Write::write_all(&mut bytes, b"!").unwrap();
    drop(bytes);
    let mut command = crate::program::program(&other);
    command
        .args([
            "--json",
            "up",
            "--no-prove",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ])
        .arg(home.data());
    let mut newer = Server::start(command, home.path().join("newer.log"));
    assert_eq!(gate(&newer)["reason"], "host-mismatch");
    newer.signal(Signal::TERM);
    assert!(newer.wait().success());
    // Another root under the same name, with report and key from here.
    let foreign = Home::new();
    let server = foreign.up();
    assert_eq!(gate(&server)["reason"], "no-report");
    std::fs::write(foreign.data().join("data/probe.json"), &good).unwrap();
    reloads(&server, Some("forged"));
    std::fs::write(foreign.data().join("data/seal.key"), &good_key).unwrap();
    reloads(&server, Some("host-mismatch"));
}

/// The same program: what was proven is still current, so nothing is proven again; and the
/// configuration's word comes first.
fn after_a_restart(home: &Home, report: &[u8]) {
    let mut again = home.up_proving(|_| {});
    assert_eq!(gate(&again)["state"], "open");
    let kept = std::fs::read(home.data().join("data/probe.json")).unwrap();
    assert_eq!(kept, report);
    again.signal(Signal::TERM);
    assert!(again.wait().success());
    let mut closed = home.up_with(|command| {
        command.env("HOLDFAST_DELIVERABLES_MODE", "metadata-only");
    });
    assert_eq!(gate(&closed)["reason"], "not-enabled");
    closed.signal(Signal::TERM);
    assert!(closed.wait().success());
}

/// A home with a root beside its directory, where contents are enabled.
fn with_root(more: &str) -> (Home, PathBuf) {
    let home = Home::new();
    let root = home.path().join("ws");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("theirs"), "untouched").unwrap();
    let done = home.run(&["init"]);
    assert_eq!(done.code, 0, "{done:?}");
    let text = format!(
        "deliverables.mode = \"when-proven\"\n[[root]]\nname = \"ws\"\npath = \"../ws\"\n{more}\n"
    );
    std::fs::write(home.data().join("holdfast.toml"), text).unwrap();
    (home, root)
}

/// Keeps I2 for ourselves: a probe that is killed or stopped leaves nothing that the next one does not
/// remove, touches nothing of the root, and keeps no report.
#[test]
fn a_probe_that_is_killed_or_stopped_is_cleaned_up_after() {
    let (home, root) = with_root("");
    let arena = home.path().join(".holdfast-arena-ws");
    let start = || {
        home.command(&["prove"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let cells = || names(&home.path().join(".holdfast-arena-ws"));
    let mut killed = start();
    eventually(
        "an arena",
        || arena.exists() && !cells().is_empty(),
        |is_there| *is_there,
    );
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = cells();
    assert_eq!(left.len(), 1, "what a killed probe leaves: {left:?}");
    let mut stopped = start();
    eventually("its own arena in its place", cells, |now| {
        now.len() == 1 && *now != left
    });
    let third = home.run(&["prove"]);
    assert_eq!(third.code, 2, "{third:?}");
    assert!(third.err.contains("under way"), "{third:?}");
    rustix::process::kill_process(Pid::from_child(&stopped), Signal::TERM).unwrap();
    let status = stopped.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(!arena.exists(), "removed with everything in it");
    assert!(!home.data().join("data/probe.json").exists());
    assert_eq!(names(&root), ["theirs"]);
    assert_eq!(
        std::fs::read_to_string(root.join("theirs")).unwrap(),
        "untouched"
    );
}

/// Keeps I3: where there is nowhere to probe, nothing is proven, and the report says so.
#[test]
fn a_root_without_an_arena_on_its_mount_stays_closed_and_says_so() {
    let memory = Path::new("/dev/shm");
    if !memory.exists() {
        println!("skipped: /dev/shm is needed as another mount");
        return;
    }
    let elsewhere = tempfile::tempdir_in(memory).unwrap();
    let (home, _root) = with_root(&format!("arena = \"{}\"", elsewhere.path().display()));
    let done = home.run(&["--json", "prove"]);
    assert_eq!(done.code, 2, "{done:?}");
    let said: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(said["roots"][0]["reason"], "no-arena");
    assert_eq!(names(elsewhere.path()), [""; 0]);
    let text = home.run(&["prove"]);
    assert!(text.out.contains("closed, no-arena; set arena"), "{text:?}");
}

fn refused(more: &str) -> Done {
    let (home, _root) = with_root(more);
    std::fs::create_dir(home.path().join("arena")).unwrap();
    std::fs::create_dir(home.path().join("ws/inner")).unwrap();
    std::fs::create_dir(home.path().join("open")).unwrap();
    let shared = std::os::unix::fs::PermissionsExt::from_mode(0o770);
    std::fs::set_permissions(home.path().join("open"), shared).unwrap();
    let checked = home.run(&["check-config"]);
    let proven = home.run(&["prove"]);
    assert_eq!(
        (checked.code, proven.code),
        (3, 3),
        "{checked:?} {proven:?}"
    );
    assert_eq!(checked.err, proven.err);
    assert!(!home.data().join("data/probe.json").exists());
    checked
}

/// An arena in reach of a root's writer, or in the way of anything of ours, is refused at start.
#[test]
fn an_arena_that_could_be_reached_is_refused_at_start() {
    for (arena, says) in [
        ("../ws", "the arena of root `ws` lies in root `ws`"),
        ("../ws/inner", "the arena of root `ws` lies in root `ws`"),
        ("..", "root `ws` lies in the arena of root `ws`"),
        ("data", "the arena of root `ws` lies in the data directory"),
        (
            "data/objects",
            "the arena of root `ws` lies in the data directory",
        ),
        (".", "the data directory lies in the arena of root `ws`"),
        ("../open", "the arena of root `ws` may be written by others"),
        ("../nowhere", "the arena of root `ws` cannot be opened"),
    ] {
        let done = refused(&format!("arena = \"{arena}\""));
        assert!(done.err.contains(says), "{arena}: {done:?}");
    }
}

#[test]
fn the_exit_codes_of_prove_are_those_of_fsprobe() {
    let (home, _root) = with_root("");
    for words in [
        &["prove", "--storm", "soon"][..],
        &["prove", "--storm", "2d"],
        &["prove", "--nonsense"],
    ] {
        let done = home.run(words);
        assert_eq!(done.code, 3, "{done:?}");
    }
    let bare = Home::new();
    assert_eq!(bare.run(&["init"]).code, 0);
    let done = bare.run(&["prove"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("names no root"), "{done:?}");
    let help = home.run(&["prove", "--help"]);
    let codes = help
        .out
        .split_once("Exit codes of `prove`:")
        .unwrap()
        .1
        .trim_end();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md")).unwrap();
    assert!(page.contains(codes), "docs/cli.md does not have:{codes}");
}
