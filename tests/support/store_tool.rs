//! `store-tool`: one upload at a time on one thread, to be killed, starved and cut off by the crash
//! tests. Never part of a release.
//!
//! ```text
//! store-tool [--without STEP] [--collect] [--undeclared] [--acks FILE] init DIR
//! store-tool [...] put DIR SEED LEN [SEED LEN]...
//! store-tool [...] get DIR SEED LEN
//! store-tool [...] verify DIR [SEED LEN]...
//! store-tool [...] journey DIR COUNT
//! store-tool handoff DIR
//! ```
//!
//! One line on stdout per thing done: `ack SEED OUTCOME` only after it is durable, `whole SEED`
//! after the last verified byte, `found WHAT` for what a survey reports, or `refused WHAT` with the
//! variant of the error. `--acks` also
//! appends each acknowledgement to a file and flushes it before it is printed, as a journal does.
//! `journey` is the whole way of an attachment, from its first byte to `ack SEQ` for the durable event
//! that refers to it, in the session of `journal-tool`, which it creates when there is none.
//!
//! `handoff` makes every call of the handoff protocol about files of DIR, without an executor and with
//! the simulator, between the lines `begin` and `end`, and prints each receipt.
//!
//! `--collect` sweeps between the commit and the acknowledgement. `--undeclared` uploads without
//! telling the length first.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test program: it opens what it is told to and speaks on stdout"
)]

#[path = "content.rs"]
mod content;
#[path = "session.rs"]
mod session;

use std::{
    error::Error,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use content::content;
use holdfast::{
    approval::TurnMark,
    handoff::{
        Confirm, Executor, Handoff, HandoffError, Offer, SIMULATION, Simulator, Source, Target,
    },
    journal::{Journal as _, JournalError, Source as _},
    model::{
        AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Cancel, Digest, Limits, Moment,
        Seq, Timestamp,
    },
    store::{
        Objects as _, Store as _, StoreError, Stored,
        layout::{DataDir, Filesystems},
        local::{LocalOptions, LocalStore, Omit},
        verified::Verifier,
    },
};

#[derive(Default)]
struct Options {
    without: Option<Omit>,
    collect: bool,
    undeclared: bool,
    acks: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("refused {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Box<dyn Error>> {
    let mut options = Options::default();
    let mut words = std::env::args().skip(1);
    let command = loop {
        match words.next().ok_or("no command")?.as_str() {
            "--without" => {
                options.without = Some(match words.next().ok_or("without what?")?.as_str() {
                    "file-fsync" => Omit::FileFsync,
                    "dir-fsync" => Omit::DirFsync,
                    "pin" => Omit::Pin,
                    other => return Err(format!("no step {other}").into()),
                });
            }
            "--collect" => options.collect = true,
            "--undeclared" => options.undeclared = true,
            "--acks" => options.acks = Some(words.next().ok_or("which file?")?.into()),
            other => break other.to_owned(),
        }
    };
    let dir = PathBuf::from(words.next().ok_or("which directory?")?);
    let numbers: Vec<u64> = words.map(|word| word.parse()).collect::<Result<_, _>>()?;
    let objects = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    match command.as_str() {
        "init" => {
            DataDir::init_on(&dir, Filesystems::Any)?;
            println!("ack init");
            Ok(true)
        }
        "put" => {
            let store = open(&dir, &options)?;
            let mut all = true;
            for (seed, len) in objects {
                if let Err(error) = put(&store, &options, seed, len) {
                    println!("refused {error:?}");
                    all = false;
                }
            }
            Ok(all)
        }
        "get" => {
            let store = open(&dir, &options)?;
            for (seed, len) in objects {
                get(&store, seed, len)?;
                println!("whole {seed}");
            }
            Ok(true)
        }
        "journey" => {
            let count = *numbers.first().ok_or("how many?")?;
            journeys(&dir, &options, count)?;
            Ok(true)
        }
        "handoff" => {
            handoff(&dir)?;
            Ok(true)
        }
        "verify" => {
            let wanted: Vec<_> = objects
                .map(|(seed, len)| (Digest::of(&content(seed, len)), ByteCount::new(len)))
                .collect();
            let survey = open(&dir, &options)?.survey::<StoreError>(
                |first| {
                    let here = |(digest, _): &&(Digest, _)| digest.as_bytes()[0] == first;
                    Ok(wanted.iter().filter(here).copied().collect())
                },
                &Cancel::new(),
                |finding| println!("found {finding:?}"),
            )?;
            println!("good {} damaged {}", survey.good, survey.damaged);
            Ok(survey.damaged == 0)
        }
        other => Err(format!("no command {other}").into()),
    }
}

fn open(dir: &Path, options: &Options) -> Result<LocalStore, Box<dyn Error>> {
    let data = DataDir::open_on(dir, Filesystems::Any)?;
    let local = LocalOptions {
        free_reserve: ByteCount::ZERO,
        omit: options.without,
        ..LocalOptions::default()
    };
    let store = LocalStore::open(&data, local)?;
    // The lock is held for as long as the process lives.
    std::mem::forget(data);
    Ok(store)
}

fn put(store: &LocalStore, options: &Options, seed: u64, len: u64) -> Result<(), StoreError> {
    let io = |source| StoreError::Io {
        action: "acknowledging",
        source,
    };
    let stored = commit(store, options, &content(seed, len))?;
    if let Some(acks) = &options.acks {
        let mut acks = File::options()
            .append(true)
            .create(true)
            .open(acks)
            .map_err(io)?;
        acks.write_all(format!("{seed}\n").as_bytes()).map_err(io)?;
        acks.sync_all().map_err(io)?;
    }
    println!("ack {seed} {:?}", stored.outcome());
    Ok(())
}

/// Commits content and, when told to, collects before anything can refer to it.
fn commit(store: &LocalStore, options: &Options, content: &[u8]) -> Result<Stored, StoreError> {
    let len = ByteCount::from(content.len());
    let declared = (!options.undeclared).then_some(len);
    let mut spool = store.spool(declared, len)?;
    for piece in content.chunks(64 * 1024) {
        spool.write(piece)?;
    }
    let stored = store.commit(spool.finish())?;
    if options.collect {
        // Nothing refers to the object yet: the pin alone keeps it.
        let mut sweep = store.sweep(Timestamp::from_millis(1))?;
        sweep.doom(stored.digest(), || false)?;
        sweep.finish()?;
    }
    Ok(stored)
}

/// Uploads what the session's next event refers to, then appends that event.
fn journeys(dir: &Path, options: &Options, count: u64) -> Result<(), Box<dyn Error>> {
    let store = open(dir, options)?;
    let journal = session::open_inline(&dir.join("journal"))?;
    match journal.create(session::header()) {
        Ok(_) | Err(JournalError::Exists) => {}
        Err(error) => return Err(error.into()),
    }
    for _ in 0..count {
        let next = journal.session(session::HANDLE)?.next_seq;
        let stored = commit(&store, options, session::content_at(next.get()).as_bytes())?;
        let reference = session::upload(next.get());
        journal.record_upload(session::HANDLE, &reference, Timestamp::from_millis(0))?;
        journal.append(session::HANDLE, session::message(next.get()), Some(next))?;
        // What refers to it is durable: collection may look at it again.
        drop(stored);
        println!("ack {next}");
    }
    Ok(())
}

/// Says yes to everything.
struct Yes;

impl Confirm for Yes {
    fn confirm(&self, _offer: &Offer) -> Option<bool> {
        Some(true)
    }
}

fn handoff(dir: &Path) -> Result<(), Box<dyn Error>> {
    // Where an executor would look.
    std::env::set_current_dir(dir)?;
    let now = (Moment::default(), Timestamp::from_millis(1));
    let source = Source {
        host: "h".to_owned(),
        session: session::HANDLE,
        agent: "a".to_owned(),
        turn: TurnMark {
            number: 1,
            start: Seq::new(3),
        },
        bridge_generation: 1,
    };
    let executor = Executor {
        kind: SIMULATION.to_owned(),
        target: Target {
            id: "simulator".to_owned(),
            generation: 1,
        },
    };
    let paths = ["pipe", "missing", "link", "plain"];
    let intent = |path| {
        format!(r#"{{"version":1,"kind":"read-file","path":"{path}","maxBytes":10}}"#).into_bytes()
    };
    let intents = paths.map(intent);
    let closed = Handoff::without_executor();
    let open = Handoff::with(executor, Arc::new(Simulator))?;
    for desk in [&closed, &open] {
        desk.source_is(Some(source.clone()));
    }
    // Room for what is said later, taken before anybody looks.
    let (mut refused, mut receipts) = (Vec::with_capacity(64), Vec::with_capacity(64));
    let none = Digest::of(b"");
    println!("begin");
    for intent in &intents {
        refused.push(closed.offer(intent, now.0, now.1).err());
        refused.push(closed.validate(1, &none, now.0).err());
        refused.push(closed.execute(1, &none, "q", &Yes, &|| now).err());
        refused.push(closed.cancel(1, &none).err());
        let offer = open.offer(intent, now.0, now.1)?;
        open.validate(offer.id, &offer.digest, now.0)?;
        receipts.push(open.execute(offer.id, &offer.digest, "q", &Yes, &|| now)?);
        let offer = open.offer(intent, now.0, now.1)?;
        open.cancel(offer.id, &offer.digest)?;
    }
    println!("end");
    let unavailable = Some(HandoffError::ExecutorUnavailable);
    let all = refused.iter().all(|error| *error == unavailable);
    println!("refused {} {all}", refused.len());
    for receipt in receipts {
        println!("{}", receipt.json());
    }
    Ok(())
}

fn get(store: &LocalStore, seed: u64, len: u64) -> Result<(), StoreError> {
    let content = content(seed, len);
    let reference = AttachmentRef {
        id: AttachmentId::new(Digest::of(&content)),
        name: None,
        bytes: ByteCount::new(len),
        kind: AttachmentKind::File,
    };
    let verifier = Verifier::new(&Limits::default())?;
    let whole = verifier.verify(store.open(&reference)?, &Cancel::new())?;
    let mut blocks = whole.blocks(0..len);
    let mut left = content.as_slice();
    while let Some(block) = blocks.next()? {
        left = left
            .strip_prefix(&*block)
            .ok_or(StoreError::Changed(whole.digest()))?;
    }
    Ok(())
}
