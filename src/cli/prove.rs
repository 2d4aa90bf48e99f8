//! `prove`: attacks the reader of every root and keeps the report the gate goes by.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fsprobe::{Conclusion, ProbeError, Progress, Silent, page};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    arguments::{Common, Prove},
    beside,
    exit::{Exit, Failure},
    output::{self, Output, note},
};
use crate::{
    app::{Proving, Settings, Which},
    config::{Config, parse_span},
    gate::{Gate, Probed, Standing},
};

/// Probing could not be carried out.
const INCONCLUSIVE: u8 = 2;
/// Somebody stopped it.
const STOPPED: u8 = 130;

/// Proves every root and prints what was found. Its exit codes are those of `fsprobe`.
pub(super) fn run(common: &Common, words: &Prove, output: Output) -> Result<ExitCode, Failure> {
    let config = beside::config(common)?;
    let storm = parse_span(&words.storm).filter(|span| (SHORTEST..=LONGEST).contains(span));
    let usage = |message: &str| Failure::new(Exit::Configuration, message);
    let storm =
        storm.ok_or_else(|| usage("--storm is a time span from 100ms to 1h, such as 5s"))?;
    let proving = match Proving::open(&config) {
        Ok(proving) => proving,
        Err(error) if error.is_busy() => return Ok(ended(&Failure::of(Exit::TryAgain, &error))),
        Err(error) => return Err(beside::opening(&error)),
    };
    if proving.is_empty() {
        return Err(usage(
            "the configuration names no root, so there is nothing to prove",
        ));
    }
    let settings = Settings {
        storm,
        seed: words.seed,
        resolvers: Which::All,
        stop: Arc::default(),
        progress: progress(),
    };
    let probed = match carry_out(&proving, &settings) {
        Ok(probed) => probed,
        Err(ProbeError::Stopped) => {
            note("holdfast: stopped; the report before is still there");
            return Ok(STOPPED.into());
        }
        Err(error) => return Ok(ended(&Failure::of(Exit::Failed, &error))),
    };
    let gate = proving.gate(&config);
    output.print(&shown(&probed, &gate), |_| text(&probed, &gate))?;
    Ok(code(&probed).into())
}

/// The shortest and the longest storm.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_hours(1);

fn ended(failure: &Failure) -> ExitCode {
    note(format_args!("holdfast: {failure}"));
    INCONCLUSIVE.into()
}

/// Probes until it is done or a signal asks to stop: then the arena is emptied first.
pub(super) fn carry_out(proving: &Proving, settings: &Settings) -> Result<Probed, ProbeError> {
    let stop = Arc::clone(&settings.stop);
    let host = |what| move |source: io::Error| ProbeError::Host { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(host("start a thread"))?;
    let listening = {
        let _inside = runtime.enter();
        let on = |kind| signal(kind).map_err(host("wait for signals"));
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        [on(interrupt)?, on(terminate)?, on(SignalKind::hangup())?]
    };
    std::thread::scope(|scope| {
        let (done, is_done) = tokio::sync::oneshot::channel::<()>();
        scope.spawn(move || runtime.block_on(stop_on(listening, &stop, is_done)));
        let probed = proving.run(settings);
        drop(done);
        probed
    })
}

/// Sets `stop` at the first signal; a second one ends the process at once.
async fn stop_on(
    mut signals: [tokio::signal::unix::Signal; 3],
    stop: &AtomicBool,
    mut is_done: tokio::sync::oneshot::Receiver<()>,
) {
    let [one, two, three] = &mut signals;
    loop {
        tokio::select! {
            _ = one.recv() => {}
            _ = two.recv() => {}
            _ = three.recv() => {}
            _ = &mut is_done => return,
        }
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(STOPPED.into());
        }
    }
}

/// 0: every root is proven. 1: a reader was beaten. 2: neither.
fn code(probed: &Probed) -> u8 {
    let reports = probed.roots.iter().flat_map(|root| &root.reports);
    let conclusions: Vec<_> = reports.map(|one| one.report.conclude().0).collect();
    if conclusions.contains(&Conclusion::Broken) {
        Conclusion::Broken.exit_code()
    } else if conclusions.contains(&Conclusion::Inconclusive)
        || probed.roots.iter().any(|root| root.reports.is_empty())
    {
        Conclusion::Inconclusive.exit_code()
    } else {
        Conclusion::Proven.exit_code()
    }
}

/// For programs: how the gate stands, and the reports.
fn shown(probed: &Probed, gate: &Gate) -> Value {
    let roots = probed.roots.iter().map(|root| {
        let (state, reason) = match gate.standing(&root.name) {
            Standing::Open { .. } => ("open", None),
            Standing::Closed(closed) => ("closed", Some(closed.code())),
        };
        json!({"root": root.name, "state": state, "reason": reason, "probes": root.reports})
    });
    json!({"build": probed.build, "roots": roots.collect::<Vec<_>>()})
}

/// For people: each report's table, then what the gate makes of it.
fn text(probed: &Probed, gate: &Gate) -> String {
    let mut text = String::new();
    for root in &probed.roots {
        for one in &root.reports {
            let table = page::table(&one.report);
            text.extend(["root ", &root.name, ": ", &table, "\n"]);
        }
    }
    for root in &probed.roots {
        let name = root.name.as_str();
        match gate.standing(name) {
            Standing::Open { .. } => text.extend(["gate for root `", name, "`: open\n"]),
            Standing::Closed(closed) => text.extend([
                "gate for root `",
                name,
                "`: closed, ",
                closed.code(),
                "; ",
                closed.remedy(),
                "\n",
            ]),
        }
    }
    text
}

/// `up`: proves what is not proven yet, briefly, and says what came of it.
pub(super) fn briefly(config: &Config) -> Result<(), Failure> {
    let proving = Proving::open(config).map_err(|error| beside::opening(&error))?;
    if proving.is_empty() {
        return Ok(());
    }
    note(
        "proving that reads beneath the root cannot be raced, once a boot: ten seconds, or more beside other work on the disk",
    );
    let settings = Settings {
        storm: Duration::from_secs(1),
        seed: None,
        resolvers: Which::Strongest,
        stop: Arc::default(),
        progress: progress(),
    };
    match carry_out(&proving, &settings) {
        Ok(_kept) => Ok(()),
        Err(ProbeError::Stopped) => Err(Failure::new(Exit::Failed, "stopped")),
        Err(error) => {
            let why = Failure::of(Exit::Failed, &error);
            note(format_args!(
                "not proven, so presented files stay metadata: {why}"
            ));
            Ok(())
        }
    }
}

fn progress() -> Arc<dyn Progress + Send + Sync> {
    if output::is_watched() {
        Arc::new(Line::default())
    } else {
        Arc::new(Silent)
    }
}

/// One line on the terminal that is written over.
#[derive(Debug, Default)]
struct Line {
    last: Mutex<Option<Instant>>,
}

impl Progress for Line {
    fn at(&self, who: &str, what: &str, done: u64, of: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() > Duration::from_millis(100)) {
            *last = Some(Instant::now());
            let percent = done.saturating_mul(100) / of.max(1);
            // Whether anybody sees it makes no difference to the probe.
            drop(write!(io::stderr(), "\r\x1b[K{what}: {who} {percent} %"));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(write!(io::stderr(), "\r\x1b[K"));
    }
}
