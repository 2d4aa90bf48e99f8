//! `journal-tool`: one append at a time on one thread, to be killed, starved and cut off by the
//! crash tests. Never part of a release.
//!
//! ```text
//! journal-tool create DIR
//! journal-tool append DIR COUNT
//! journal-tool redeem DIR SECRET
//! ```
//!
//! `create` makes the database and a session; `append` adds events, each referring to an upload of
//! its own, and prints `ack SEQ` for each only after it is durable, or `refused ERROR`. `redeem` opens
//! a use of a ticket, ends it as an answer does, and prints `sent` between the two.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test program opens what it is told to and speaks on stdout"
)]

#[path = "session.rs"]
mod session;

use std::{
    error::Error,
    fs::File,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use holdfast::{
    access::{Access, Asked, Wanted},
    control::Control,
    journal::{Journal as _, JournalError, Source as _},
    model::{Limits, SystemClock, Timestamp},
};
use session::{HANDLE, header, message, open_inline, shared, upload};

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
    let mut words = std::env::args().skip(1);
    let command = words.next().ok_or("no command")?;
    let dir = PathBuf::from(words.next().ok_or("which directory?")?);
    if command == "redeem" {
        redeem(&dir, &words.next().ok_or("which ticket?")?)?;
        return Ok(true);
    }
    let journal = open_inline(&dir)?;
    match command.as_str() {
        "create" => {
            match journal.create(header()) {
                Ok(_) => println!("ack created"),
                Err(JournalError::Exists) => println!("ack exists"),
                Err(error) => return Err(error.into()),
            }
            Ok(true)
        }
        "append" => {
            let count: u64 = words.next().ok_or("how many?")?.parse()?;
            let mut all = true;
            for _ in 0..count {
                // What a client does: look where the log stands, then append there.
                let next = journal.session(HANDLE)?.next_seq;
                let reference = upload(next.get());
                let at = Timestamp::from_millis(0);
                let appended = journal
                    .record_upload(HANDLE, &reference, at)
                    .and_then(|()| journal.append(HANDLE, message(next.get()), Some(next)));
                match appended {
                    Ok(appended) => println!("ack {}", appended.last),
                    Err(error) => {
                        println!("refused {error:?}");
                        all = false;
                    }
                }
            }
            Ok(all)
        }
        other => Err(format!("no command {other}").into()),
    }
}

/// What an answer with the whole content does to a ticket.
fn redeem(dir: &Path, secret: &str) -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SystemClock);
    let control = Arc::new(Control::open_inline(File::open(dir)?, clock.clone())?);
    let journal = Arc::new(shared(Arc::clone(&control)));
    let access = Access::new(control, journal, clock);
    let grace = Limits::default().ticket_grace;
    let ticket = access.ticket(secret, Asked::Whole, grace)?;
    let session = access.read_session(ticket.maker(), ticket.session())?;
    access.attachment(&session, ticket.attachment(), ticket.name())?;
    let used = access.open_use(&ticket, Wanted::Whole, grace)?;
    println!("sent");
    access.end_use(&used)?;
    Ok(())
}
