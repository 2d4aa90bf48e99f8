//! Strikes at random, at full speed, from a thread of its own, for a time.
//!
//! The attacker is stopped before answers are judged. A storm finds what nobody thought of and
//! proves little by itself: how often the tree changed and how often somebody looked is therefore
//! part of the result, and so is whether weak readers lost in the same weather.

#![forbid(unsafe_code)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use super::{Found, Judged, Plan, Tally, seams::FIFO_PATIENCE};
use crate::{
    arena::{Cell, TARGET},
    attack::Attack,
    error::ProbeError,
    oracle::{self, Answer, Verdict},
    prove::Target,
    report::{Coverage, Mode},
    rng::Rng,
    subject::{
        Claims, Subject,
        http::{ControlServer, Http},
        process::Command,
    },
};

/// Answers collected before the attacker is stopped and they are judged.
const BATCH: usize = 16;
/// A batch ends after this long, however few answers it has.
const BATCH_TIME: Duration = Duration::from_millis(40);
/// Fixtures are this short where only names change: more reads, more chances.
const SHORT: usize = 4 << 10;
/// A storm may last this many times as long as asked for, to become conclusive.
const EXTENSION: u32 = 10;
/// Undisturbed reads before the storm.
const CALM_READS: usize = 8;

/// How a subject is asked.
pub(crate) enum Reader {
    InProcess(Arc<dyn Subject>),
    Command(Command),
    Http(Http),
    /// A reader of known worth behind a server of our own.
    Served(Http, Arc<dyn Subject>),
}

impl Reader {
    pub(crate) fn of(target: &Target) -> Self {
        match target {
            Target::InProcess(subject) => Self::InProcess(Arc::clone(subject)),
            Target::Command(command) => Self::Command(command.clone()),
            Target::Http(http) => Self::Http(http.clone()),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::InProcess(subject) | Self::Served(_, subject) => subject.name(),
            Self::Command(command) => &command.name,
            Self::Http(http) => &http.name,
        }
    }

    fn claims(&self) -> Claims {
        match self {
            Self::InProcess(subject) | Self::Served(_, subject) => subject.claims(),
            Self::Command(command) => command.claims,
            Self::Http(http) => http.claims,
        }
    }

    /// Reads of each outcome that make a storm two-sided.
    fn enough(&self) -> u64 {
        match self {
            Self::InProcess(_) => 100,
            Self::Command(_) | Self::Http(_) | Self::Served(..) => 10,
        }
    }
}

/// When a storm may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// After its time.
    Time,
    /// As soon as the reader lost; after ten times its time at the latest.
    Beaten,
    /// After its time, once each attack had its turn and reads both succeeded and were refused; ten
    /// times at the latest.
    BothOutcomes,
}

/// One way of asking.
enum Asker {
    InProcess(Arc<dyn Subject>),
    Command(Command),
    Http(Http),
}

impl Asker {
    /// Opens what is opened once; nothing has been rearranged yet.
    fn open(&self, cell: &Cell) -> Result<OpenAsker<'_>, ProbeError> {
        match self {
            Self::InProcess(subject) => {
                let reader = subject.open(cell.root_path()).map_err(|refusal| {
                    ProbeError::Usage(format!(
                        "{} cannot open an untouched root: {refusal}",
                        subject.name()
                    ))
                })?;
                Ok(OpenAsker::InProcess(reader))
            }
            Self::Command(command) => Ok(OpenAsker::Command(command)),
            Self::Http(http) => Ok(OpenAsker::Http(http)),
        }
    }
}

/// One way of asking, ready to be used over and over.
enum OpenAsker<'a> {
    InProcess(Box<dyn crate::Reader>),
    Command(&'a Command),
    Http(&'a Http),
}

impl OpenAsker<'_> {
    fn ask(&mut self, cell: &Cell, patience: Duration) -> Result<Answer, ProbeError> {
        match self {
            Self::InProcess(reader) => {
                let ceiling = cell.setup().ceiling;
                Ok(Answer::of(reader.read(
                    Path::new(TARGET),
                    ceiling,
                    &mut |_step| {},
                )))
            }
            Self::Command(command) => command.read(cell, patience),
            Self::Http(http) => Ok(http.read(cell, patience)),
        }
    }
}

/// Storms `reader` with every attack of the plan in turn.
pub(crate) fn explore(
    plan: &Plan<'_>,
    reader: &Reader,
    time: Duration,
    until: Until,
    rng: &mut Rng,
) -> Result<Found, ProbeError> {
    let mut tally = Tally::new(Mode::Storm, reader.claims(), Coverage::Random);
    let server;
    let asker = match reader {
        Reader::InProcess(subject) => Asker::InProcess(Arc::clone(subject)),
        Reader::Command(command) => Asker::Command(command.clone()),
        Reader::Http(http) => Asker::Http(http.clone()),
        Reader::Served(http, subject) => {
            let root = plan.arena.base_path().to_owned();
            server = ControlServer::start(root, Arc::clone(subject), plan.ceiling)?;
            Asker::Http(http.served_by(server.address()))
        }
    };
    let asker = Arc::new(asker);
    calm(plan, &asker, rng, &mut tally)?;
    let attacks: Vec<Attack> = plan
        .attacks
        .iter()
        .copied()
        .filter(|attack| !attack.is_standing())
        .collect();
    let turns = u32::try_from(attacks.len())
        .unwrap_or(u32::MAX)
        .saturating_mul(3)
        .max(1);
    let slice = (time / turns).clamp(Duration::from_millis(20), Duration::from_millis(250));
    let started = Instant::now();
    let mut turn = usize::try_from(rng.next() % 1024).unwrap_or_default();
    while !attacks.is_empty() {
        let elapsed = started.elapsed();
        let share = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        plan.progress.at(
            reader.name(),
            Mode::Storm.name(),
            share(elapsed.min(time)),
            share(time),
        );
        if !plan.goes_on()? || is_over(elapsed, time, until, reader, &attacks, &tally) {
            break;
        }
        let attack = attacks
            .get(turn % attacks.len())
            .copied()
            .unwrap_or(Attack::FinalLink);
        turn += 1;
        if !storm(plan, &asker, attack, slice, rng, &mut tally)? {
            tally.lower(
                Coverage::CutShort,
                "a reader hung for good; the storm ended with it",
            );
            break;
        }
    }
    Ok(tally.finish())
}

/// The plain file, and what can be in place beforehand.
fn calm(
    plan: &Plan<'_>,
    asker: &Arc<Asker>,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<(), ProbeError> {
    for attack in plan.attacks.iter().filter(|attack| attack.is_standing()) {
        let reads = if *attack == Attack::Plain {
            CALM_READS
        } else {
            1
        };
        for _ in 0..reads {
            let cell = plan.cell(*attack, rng)?;
            let answer = asker.open(&cell)?.ask(&cell, plan.patience)?;
            tally.judge(
                &cell,
                &answer,
                None,
                0,
                Some((0, &|| "from the start".to_owned())),
            );
        }
    }
    Ok(())
}

fn is_over(
    elapsed: Duration,
    time: Duration,
    until: Until,
    reader: &Reader,
    attacks: &[Attack],
    tally: &Tally,
) -> bool {
    let is_beaten = tally.counts().is_lost(reader.claims());
    if elapsed >= time.saturating_mul(EXTENSION) {
        return true;
    }
    match until {
        Until::Time => elapsed >= time,
        Until::Beaten => is_beaten,
        Until::BothOutcomes => {
            let (inside, refused) = tally.outcomes_of_names();
            let is_two_sided = inside.min(refused) >= reader.enough();
            let is_complete = attacks.iter().all(|attack| tally.reads_of(*attack) > 0);
            elapsed >= time && is_complete && (is_two_sided || is_beaten)
        }
    }
}

/// What the attacking thread and the one that leads it share.
#[derive(Default)]
struct Reins {
    hold: AtomicBool,
    is_held: AtomicBool,
    end: AtomicBool,
    flips: AtomicU64,
}

impl Reins {
    /// Stops the attacker and waits until it stands; false where it has ended.
    fn stop(&self, attacker: &thread::JoinHandle<Result<(), ProbeError>>) -> bool {
        self.hold.store(true, Ordering::SeqCst);
        while !self.is_held.load(Ordering::SeqCst) {
            if attacker.is_finished() {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    fn go(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        self.hold.store(false, Ordering::SeqCst);
    }

    fn attack(&self, cell: &Cell) -> Result<(), ProbeError> {
        let mut round = 0;
        while !self.end.load(Ordering::SeqCst) {
            if self.hold.load(Ordering::SeqCst) {
                self.is_held.store(true, Ordering::SeqCst);
                while self.is_held.load(Ordering::SeqCst) && !self.end.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                continue;
            }
            round += 1;
            let flips = cell.disturb(round)?;
            self.flips.fetch_add(flips, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// One attack for a while; false where the reader never came back.
fn storm(
    plan: &Plan<'_>,
    asker: &Arc<Asker>,
    attack: Attack,
    time: Duration,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<bool, ProbeError> {
    let len = if attack.is_content() {
        plan.len
    } else {
        plan.len.min(SHORT)
    };
    let cell = Arc::new(plan.cell_of_len(attack, len, rng)?);
    let reins = Arc::new(Reins::default());
    let batches = Batches::start(asker, &cell, plan.patience, rng.next())?;
    let attacker = {
        let (cell, reins) = (Arc::clone(&cell), Arc::clone(&reins));
        spawn("fsprobe-attacker", move || reins.attack(&cell))?
    };
    let until = Instant::now() + time;
    let mut outcome = Ok(true);
    while Instant::now() < until && !attacker.is_finished() {
        match batches.next(&cell, &reins, &attacker, plan.patience) {
            Ok(Some(batch)) => {
                // The attacker stands still from here to the end of the judgement.
                let is_standing = reins.stop(&attacker);
                judge(&cell, batch, tally);
                if !is_standing {
                    break;
                }
                reins.go();
            }
            Ok(None) => {
                let answer = Answer::hung();
                let verdict = Verdict::Hung;
                let judged = Judged {
                    attack,
                    verdict,
                    answer: &answer,
                    struck: None,
                    sightings: 0,
                };
                tally.count(&judged, Some((0, &|| "in the storm".to_owned())));
                outcome = Ok(false);
                break;
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    reins.end.store(true, Ordering::SeqCst);
    let ended = attacker.join();
    tally.add_flips(attack, reins.flips.load(Ordering::Relaxed));
    if matches!(outcome, Ok(true)) {
        batches.end();
    }
    match ended {
        Ok(Ok(())) => outcome,
        Ok(Err(error)) => Err(error),
        Err(_panic) => Err(ProbeError::Usage(
            "the attacking thread panicked".to_owned(),
        )),
    }
}

fn judge(cell: &Cell, batch: Batch, tally: &mut Tally) {
    // One that was let go may be noticed twice; a read opens the FIFO once.
    let mut sightings = batch.sightings.min(batch.answers.len() as u64);
    for answer in batch.answers {
        let verdict = oracle::judge_stormed(cell, &answer, tally.claims());
        let judged = Judged {
            attack: cell.attack(),
            verdict,
            answer: &answer,
            struck: None,
            // Which of them it was cannot be told; one carries them all.
            sightings: std::mem::take(&mut sightings),
        };
        tally.count(&judged, Some((0, &|| "in the storm".to_owned())));
    }
}

/// Answers of one batch, and how often the FIFO was opened during it.
struct Batch {
    answers: Vec<Answer>,
    sightings: u64,
}

/// A thread that reads and reads, a batch at a time.
struct Batches {
    more: mpsc::Sender<()>,
    answers: mpsc::Receiver<Result<Vec<Answer>, ProbeError>>,
    /// Answers in the batch under way.
    progress: Arc<AtomicUsize>,
    thread: thread::JoinHandle<()>,
}

impl Batches {
    fn start(
        asker: &Arc<Asker>,
        cell: &Arc<Cell>,
        patience: Duration,
        seed: u64,
    ) -> Result<Self, ProbeError> {
        let (more, requests) = mpsc::channel::<()>();
        let (tell, answers) = mpsc::channel();
        let progress = Arc::new(AtomicUsize::new(0));
        let (asker, cell, at) = (Arc::clone(asker), Arc::clone(cell), Arc::clone(&progress));
        let mut rng = Rng::new(seed);
        let (opened, is_open) = mpsc::channel();
        let thread = spawn("fsprobe-reader", move || {
            let mut open = match asker.open(&cell) {
                Ok(open) => open,
                Err(error) => {
                    drop(opened.send(Err(error)));
                    return;
                }
            };
            drop(opened.send(Ok(())));
            while requests.recv().is_ok() {
                let started = Instant::now();
                let mut batch = Vec::with_capacity(BATCH);
                let mut result = Ok(());
                while batch.len() < BATCH && started.elapsed() < BATCH_TIME {
                    // Otherwise both threads might fall into step and always meet alike.
                    for _ in 0..rng.next() % 512 {
                        std::hint::spin_loop();
                    }
                    match open.ask(&cell, patience) {
                        Ok(answer) => batch.push(answer),
                        Err(error) => {
                            result = Err(error);
                            break;
                        }
                    }
                    at.store(batch.len(), Ordering::SeqCst);
                }
                if tell.send(result.map(|()| batch)).is_err() {
                    break;
                }
            }
        })?;
        is_open.recv_timeout(patience).unwrap_or_else(|_silent| {
            Err(ProbeError::Usage(
                "the subject hung opening an untouched root".to_owned(),
            ))
        })?;
        Ok(Self {
            more,
            answers,
            progress,
            thread,
        })
    }

    /// Sends the thread home and waits until it has put everything down.
    fn end(self) {
        let Self {
            more,
            answers,
            thread,
            ..
        } = self;
        drop((more, answers));
        // A subject that panicked at the very end has given its answers all the same.
        drop(thread.join());
    }

    /// The next batch; `None` where the reader did not come back.
    fn next(
        &self,
        cell: &Cell,
        reins: &Reins,
        attacker: &thread::JoinHandle<Result<(), ProbeError>>,
        patience: Duration,
    ) -> Result<Option<Batch>, ProbeError> {
        self.progress.store(0, Ordering::SeqCst);
        if self.more.send(()).is_err() {
            return Ok(None);
        }
        let mut held = Vec::new();
        let mut sightings = 0;
        let mut last_seen = (0, Instant::now());
        loop {
            match self.answers.recv_timeout(FIFO_PATIENCE) {
                Ok(answers) => {
                    let mut answers = answers?;
                    for index in held {
                        if let Some(answer) = answers.get_mut::<usize>(index) {
                            *answer = Answer::hung();
                        }
                    }
                    sightings += cell.sightings();
                    return Ok(Some(Batch { answers, sightings }));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(None),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let at = self.progress.load(Ordering::SeqCst);
            if at != last_seen.0 {
                last_seen = (at, Instant::now());
            }
            if last_seen.1.elapsed() > patience.saturating_mul(2) {
                return Ok(None);
            }
            if cell.attack() == Attack::Fifo {
                let is_standing = reins.stop(attacker);
                sightings += cell.sightings();
                if cell.release_waiting() {
                    sightings += 1;
                    held.push(at);
                }
                if is_standing {
                    reins.go();
                }
            }
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<T>, ProbeError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|source| ProbeError::Host {
            what: "start a thread",
            source,
        })
}
