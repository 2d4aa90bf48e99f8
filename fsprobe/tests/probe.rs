//! Do weak readers lose and good ones hold, in every way of looking, and is everything put away
//! afterwards?

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at their own directories"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use fsprobe::{
    Attack, Conclusion, Http, Options, Reader, Refusal, Relaunch, Report, Seam, Subject, Target,
    answer_if_asked,
    control::{self, OpenatWalk},
    prove,
    report::{Coverage, Mode, Role, Row},
};

const SWAPS: [Attack; 3] = [
    Attack::FinalLink,
    Attack::ParentLink,
    Attack::GrandparentLink,
];

/// Led to by [`Relaunch::this_test`]; passes when nobody asks anything.
#[test]
fn asked() {
    answer_if_asked(&[Arc::new(Threaded)]);
}

/// Checks on one thread and opens on another, which is where the swap has to meet it.
struct Threaded;

impl Subject for Threaded {
    fn name(&self) -> &'static str {
        "threaded"
    }
    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        struct Inner(PathBuf);
        impl Reader for Inner {
            fn read(&mut self, path: &Path, _: u64, _: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
                let file = self.0.join(path);
                if std::fs::symlink_metadata(&file).is_ok_and(|about| about.is_file()) {
                    let read = std::thread::spawn(move || std::fs::read(file));
                    read.join().unwrap().map_err(|_error| Refusal::new("io"))
                } else {
                    Err(Refusal::new("not-regular"))
                }
            }
        }
        Ok(Box::new(Inner(root.to_owned())))
    }
}

fn options(dir: &Path, modes: &[Mode], attacks: &[Attack]) -> Options {
    let mut options = Options::new_in(dir);
    options.seed = 1;
    options.modes = modes.to_vec();
    options.attacks = attacks.to_vec();
    options.len = 130 << 10;
    options.storm = Duration::from_millis(1500);
    options.patience = Duration::from_secs(30);
    options.relaunch = Some(Relaunch::this_test("asked").unwrap());
    options
}

fn in_process(subject: impl Subject + 'static) -> Target {
    Target::InProcess(Arc::new(subject))
}

fn fsprobe(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fsprobe"));
    command.env("TMPDIR", dir);
    command
}

fn left_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

fn row(report: &Report, mode: Mode, attack: Attack) -> &Row {
    report
        .matrix
        .iter()
        .find(|row| row.mode == mode && row.attack == attack)
        .unwrap()
}

/// Mode, attack and moments at which each control lost.
fn losses(report: &Report) -> Vec<(String, Attack, Vec<u64>)> {
    let mut losses = Vec::new();
    for control in &report.controls {
        for row in &control.matrix {
            let at = row.places.iter().map(|place| place.index).collect();
            losses.push((
                format!("{} in {}", control.name, control.mode),
                row.attack,
                at,
            ));
        }
    }
    losses
}

#[test]
fn controls_lose_at_the_same_moments_in_every_run_and_references_hold() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &[Mode::Seams, Mode::Syscalls], &SWAPS);
    let first = prove(&in_process(OpenatWalk), &options).unwrap();
    assert_eq!(first.conclusion, Conclusion::Proven, "{:#?}", first.reasons);
    for control in &first.controls {
        assert_eq!(
            control.beaten,
            control.role == Role::Control,
            "{control:#?}"
        );
        assert_eq!(control.coverage, Coverage::Exhaustive, "{control:#?}");
    }
    let second = prove(&in_process(OpenatWalk), &options).unwrap();
    assert_eq!(losses(&first), losses(&second));
    assert_eq!(left_in(dir.path()), 0);
}

#[test]
fn the_reference_is_not_beaten_by_any_attack_it_speaks_of_in_any_mode() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &Mode::ALL, &Attack::ALL);
    let report = prove(&in_process(OpenatWalk), &options).unwrap();
    assert_eq!(
        report.conclusion,
        Conclusion::Proven,
        "{:#?}",
        report.reasons
    );
    let counts = report.counts;
    assert_eq!(
        (
            counts.escaped,
            counts.hung,
            counts.over_limit,
            counts.sightings
        ),
        (0, 0, 0, 0)
    );
    assert!(
        counts.torn > 0,
        "it compares no stamps, so rewriting has to show"
    );
    let storm = report
        .modes
        .iter()
        .find(|run| run.mode == Mode::Storm)
        .unwrap();
    assert!(storm.flips > 100 && storm.runs > 100, "{storm:?}");
}

#[test]
fn every_control_is_broken_as_a_subject_and_the_fifo_hangs_the_one_that_opens_it() {
    let dir = tempfile::tempdir().unwrap();
    for (role, subject) in control::all() {
        if role == Role::Control {
            let options = options(dir.path(), &[Mode::Seams], &Attack::ALL);
            let name = subject.name().to_owned();
            let report = prove(&Target::InProcess(subject), &options).unwrap();
            assert_eq!(report.conclusion, Conclusion::Broken, "{name}");
            if name == "stat-then-open" {
                let fifo = row(&report, Mode::Seams, Attack::Fifo);
                assert!(
                    fifo.counts.hung > 0 && fifo.counts.sightings > 0,
                    "{fifo:?}"
                );
                let grown = row(&report, Mode::Seams, Attack::Grow);
                assert_eq!(
                    grown.counts.over_limit, 0,
                    "it counts what it reads: {grown:?}"
                );
            }
        }
    }
}

/// Reads by name in two chunks and believes the size it saw: loses everything there is to lose.
struct Naive;

impl Subject for Naive {
    fn name(&self) -> &'static str {
        "naive"
    }
    fn claims(&self) -> fsprobe::Claims {
        fsprobe::Claims::ALL
    }
    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        struct Inner(PathBuf);
        impl Reader for Inner {
            fn read(
                &mut self,
                path: &Path,
                _: u64,
                seam: &mut Seam<'_>,
            ) -> Result<Vec<u8>, Refusal> {
                let lost = |_error| Refusal::new("io");
                seam("started");
                let mut file = File::open(self.0.join(path)).map_err(lost)?;
                let mut bytes = vec![0; 64 << 10];
                let count = file.read(&mut bytes).map_err(lost)?;
                bytes.truncate(count);
                seam("half");
                file.read_to_end(&mut bytes).map_err(lost)?;
                Ok(bytes)
            }
        }
        Ok(Box::new(Inner(root.to_owned())))
    }
}

#[test]
fn a_reader_that_claims_everything_and_keeps_nothing_is_caught_at_each_attack() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &[Mode::Seams], &Attack::ALL);
    let report = prove(&in_process(Naive), &options).unwrap();
    let counts = |attack| row(&report, Mode::Seams, attack).counts;
    for attack in SWAPS.into_iter().chain([
        Attack::FinalLinkThere,
        Attack::ParentLinkThere,
        Attack::HardLink,
        Attack::RootReplaced,
    ]) {
        assert!(counts(attack).escaped > 0, "{attack}: {:?}", counts(attack));
    }
    for attack in [Attack::RewriteByWrite, Attack::RewriteByMapping] {
        assert!(counts(attack).torn > 0, "{attack}: {:?}", counts(attack));
    }
    for attack in [Attack::Grow, Attack::TooLarge] {
        assert!(
            counts(attack).over_limit > 0,
            "{attack}: {:?}",
            counts(attack)
        );
    }
    assert!(counts(Attack::Fifo).hung > 0);
    assert_eq!(
        counts(Attack::OutsideOver).escaped,
        0,
        "renamed in, it is inside"
    );
    assert_eq!(counts(Attack::Plain).inside, 1);
}

#[test]
fn a_subject_whose_steps_vary_is_sampled_and_not_proven() {
    struct Fickle(AtomicU32);
    impl Subject for Fickle {
        fn name(&self) -> &'static str {
            "fickle"
        }
        fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
            struct Inner(Box<dyn Reader>, u32);
            impl Reader for Inner {
                fn read(
                    &mut self,
                    path: &Path,
                    ceiling: u64,
                    seam: &mut Seam<'_>,
                ) -> Result<Vec<u8>, Refusal> {
                    seam(if self.1 % 3 == 2 { "odd" } else { "even" });
                    self.0.read(path, ceiling, seam)
                }
            }
            let round = self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(Inner(OpenatWalk.open(root)?, round)))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), &[Mode::Seams], &SWAPS);
    let report = prove(&in_process(Fickle(AtomicU32::new(0))), &options).unwrap();
    assert_eq!(report.modes[0].coverage, Coverage::Sampled);
    assert_eq!(report.conclusion, Conclusion::Inconclusive);
}

#[test]
fn without_controls_nothing_is_proven() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), &[Mode::Syscalls], &[Attack::Truncate]);
    options.relaunch = None;
    let argv = ["cat", "{root}/{path}"].map(Into::into).to_vec();
    let report = prove(
        &Target::Command(fsprobe::Command::new(argv).unwrap()),
        &options,
    )
    .unwrap();
    assert_eq!(report.conclusion, Conclusion::Inconclusive);
    assert!(
        report
            .reasons
            .iter()
            .any(|reason| reason.contains("no control")),
        "{report:#?}"
    );
}

#[test]
fn a_program_that_follows_links_is_broken_and_the_report_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let output = fsprobe(dir.path())
        .args([
            "run",
            "--mode",
            "syscalls",
            "--attack",
            "final-link,fifo",
            "--json",
            "--seed",
            "3",
            "--",
        ])
        .args(["cat", "{root}/{path}"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        report.modes[0].coverage,
        Coverage::Exhaustive,
        "{:?}",
        report.modes
    );
    let lost = row(&report, Mode::Syscalls, Attack::FinalLink);
    assert!(
        lost.counts.escaped > 0 && lost.counts.inside > 0,
        "{lost:?}"
    );
    let fifo = row(&report, Mode::Syscalls, Attack::Fifo);
    assert!(
        fifo.counts.hung > 0 && fifo.counts.sightings > 0,
        "{fifo:?}"
    );
    assert!(
        lost.places
            .iter()
            .any(|place| place.moment.contains("open")),
        "{lost:?}"
    );
    assert_eq!(left_in(dir.path()), 0);
}

#[test]
fn threads_and_forks_are_followed_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), &[Mode::Syscalls], &[Attack::FinalLink]);
    options.len = 64;
    let report = prove(&in_process(Threaded), &options).unwrap();
    let lost = row(&report, Mode::Syscalls, Attack::FinalLink);
    assert!(
        lost.places
            .iter()
            .any(|place| place.moment.contains("of thread")),
        "{lost:#?}"
    );
    assert!(
        lost.counts.refused > 0 && lost.counts.inside > 0,
        "{lost:#?}"
    );
    assert_eq!(
        report.modes[0].coverage,
        Coverage::Exhaustive,
        "{:?}",
        report.modes
    );

    let argv = ["sh", "-c", "cat {root}/{path}; true"]
        .map(Into::into)
        .to_vec();
    let report = prove(
        &Target::Command(fsprobe::Command::new(argv).unwrap()),
        &options,
    )
    .unwrap();
    let lost = row(&report, Mode::Syscalls, Attack::FinalLink);
    assert!(
        lost.places
            .iter()
            .any(|place| place.moment.contains("of thread")),
        "{lost:#?}"
    );
}

#[test]
fn a_program_whose_calls_vary_is_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let script = "read u < /proc/sys/kernel/random/uuid; case $u in [0-7]*) test -e {root} ;; esac; \
                  cat {root}/{path}";
    let output = fsprobe(dir.path())
        .args([
            "run", "--mode", "syscalls", "--attack", "truncate", "--len", "4096", "--json", "--",
        ])
        .args(["sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.modes[0].coverage, Coverage::Sampled);
}

#[test]
fn a_program_that_does_not_come_back_is_hung_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let argv = ["sh", "-c", "cat {root}/{path}; exec sleep 1000"]
        .map(Into::into)
        .to_vec();
    let mut options = options(dir.path(), &[Mode::Syscalls], &[Attack::TooLarge]);
    options.patience = Duration::from_secs(1);
    let started = Instant::now();
    let report = prove(
        &Target::Command(fsprobe::Command::new(argv).unwrap()),
        &options,
    )
    .unwrap();
    assert_eq!(
        report.conclusion,
        Conclusion::Broken,
        "{:#?}",
        report.reasons
    );
    assert!(row(&report, Mode::Syscalls, Attack::Plain).counts.hung > 0);
    assert!(started.elapsed() < Duration::from_secs(200));
}

#[test]
fn depth_two_strikes_and_undoes_at_every_pair() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), &[Mode::Syscalls], &[Attack::ParentLink]);
    options.depth = 2;
    options.len = 64;
    let report = prove(&in_process(OpenatWalk), &options).unwrap();
    assert_eq!(
        report.conclusion,
        Conclusion::Proven,
        "{:#?}",
        report.reasons
    );
    let run = &report.modes[0];
    assert!(run.runs > 2 * run.boundaries, "{run:?}");
}

/// Serves files below `root` by name, one connection at a time, for as long as the test runs.
fn serve(root: PathBuf, subject: Option<Arc<dyn Subject>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 4096];
            let count = stream.read(&mut request).unwrap();
            let text = String::from_utf8_lossy(&request[..count]).into_owned();
            let path = text
                .split(' ')
                .nth(1)
                .unwrap()
                .trim_start_matches('/')
                .to_owned();
            let read = match &subject {
                None => std::fs::read(root.join(&path)).ok(),
                Some(subject) => {
                    let mut reader = subject.open(&root).unwrap();
                    reader.read(Path::new(&path), 1 << 20, &mut |_| {}).ok()
                }
            };
            let status = if read.is_some() {
                "200 OK"
            } else {
                "404 Not Found"
            };
            let body = read.unwrap_or_default();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            // The prober may have hung up already.
            let _sent = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&body));
        }
    });
    address
}

#[test]
fn a_file_server_is_judged_by_what_it_serves() {
    let served = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("precious"), "mine").unwrap();
    let options = options(elsewhere.path(), &[], &SWAPS);
    for (subject, conclusion) in [
        (None, Conclusion::Broken),
        (
            Some(Arc::new(OpenatWalk) as Arc<dyn Subject>),
            Conclusion::Proven,
        ),
    ] {
        let address = serve(served.path().to_owned(), subject);
        let url = format!("http://{address}/{{path}}");
        let http = Http::new(served.path().to_owned(), &url).unwrap();
        let report = prove(&Target::Http(http), &options).unwrap();
        assert_eq!(report.conclusion, conclusion, "{:#?}", report.reasons);
        assert_eq!(left_in(served.path()), 1, "only what was there before");
        assert_eq!(left_in(elsewhere.path()), 0);
    }
}

#[test]
fn the_outside_part_of_a_server_must_be_outside() {
    let served = tempfile::tempdir().unwrap();
    let beneath = served.path().join("beneath");
    std::fs::create_dir(&beneath).unwrap();
    let http = Http::new(served.path().to_owned(), "http://127.0.0.1:9/{path}").unwrap();
    let error = prove(&Target::Http(http), &options(&beneath, &[], &SWAPS)).unwrap_err();
    assert!(matches!(error, fsprobe::ProbeError::Usage(_)), "{error}");
}

/// Until the arena says whose it is: one without an owner is nobody's to remove.
fn wait_for_arena(dir: &Path) {
    let owned = |arena: std::io::Result<std::fs::DirEntry>| {
        let owner = arena.unwrap().path().join("owner");
        std::fs::read_to_string(owner).is_ok_and(|text| text.contains("\nboot "))
    };
    let until = Instant::now() + Duration::from_mins(1);
    while !std::fs::read_dir(dir).unwrap().any(owned) {
        assert!(Instant::now() < until, "no arena appeared");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_probe_is_cleaned_up_after_by_the_next_and_a_stopped_one_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let long = [
        "builtin",
        "openat-walk",
        "--mode",
        "storm",
        "--storm",
        "300",
    ];
    let mut killed = fsprobe(dir.path()).args(long).spawn().unwrap();
    wait_for_arena(dir.path());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(left_in(dir.path()), 1, "nobody could clean up");
    let next = fsprobe(dir.path()).args(["baseline"]).output().unwrap();
    assert!(next.status.success());
    assert_eq!(left_in(dir.path()), 0);

    let mut stopped = fsprobe(dir.path()).args(long).spawn().unwrap();
    wait_for_arena(dir.path());
    let pid = rustix::process::Pid::from_child(&stopped);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(stopped.wait().unwrap().code(), Some(130));
    assert_eq!(left_in(dir.path()), 0);
}

#[test]
fn a_saved_report_is_shown_again_as_table_and_page() {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("r.json"), dir.path().join("r.html"));
    let work = tempfile::tempdir().unwrap();
    let made = fsprobe(work.path())
        .args([
            "builtin",
            "stat-then-open",
            "--mode",
            "seams",
            "--attack",
            "final-link",
        ])
        .args(["--build", "<b>7</b>\u{1b}[2J", "--report"])
        .arg(&json)
        .output()
        .unwrap();
    assert_eq!(made.status.code(), Some(1), "{made:?}");
    let shown = fsprobe(work.path())
        .arg("show")
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .output();
    let shown = shown.unwrap();
    assert_eq!(shown.stdout, made.stdout, "the same table");
    assert!(
        !shown.stdout.contains(&0x1b),
        "no control characters reach a terminal"
    );
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("&lt;b&gt;7&lt;/b&gt;") && !page.contains("<b>7"));
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("url("));
}
