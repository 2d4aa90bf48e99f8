//! `journal-tool`: one append at a time on one thread, to be killed, starved and cut off by the
//! crash tests. Never part of a release.
//!
//! ```text
//! journal-tool create DIR
//! journal-tool append DIR COUNT
//! ```
//!
//! `create` makes the database and a session; `append` adds events, each referring to an upload of
//! its own, and prints `ack SEQ` for each only after it is durable, or `refused ERROR`.
#![expect(clippy::print_stdout, reason = "a test program speaks on stdout")]

#[path = "session.rs"]
mod session;

use std::{error::Error, path::PathBuf, process::ExitCode};

use holdfast::{
    journal::{Journal as _, JournalError, Source as _},
    model::Timestamp,
};
use session::{HANDLE, header, message, open_inline, upload};

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
