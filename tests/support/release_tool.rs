//! `release-tool`: one step of a release at a time on one thread, to be killed and starved by the crash
//! tests. Never part of a release of this software.
//!
//! ```text
//! release-tool [--later HOURS] [--bytes N] release DIR SEQ KEY
//! release-tool [...] capture DIR KEY PATH...
//! release-tool [...] archive DIR KEY
//! release-tool [...] decide DIR INDEX allowed-once|rejected
//! release-tool [...] remove DIR
//! release-tool [...] recover DIR
//! ```
//!
//! DIR is what `releasing::Desk::make` made. `decide` is about the ask that has waited INDEX-longest;
//! `recover` does what a start does. Between opening and doing it prints `begin`, and then one line per
//! file, after it is durable: `released HANDLE`, `asked HANDLE`, `settled`, `removed`,
//! `recovered`, or `refused ERROR`.
#![expect(clippy::print_stdout, reason = "a test program: it speaks on stdout")]

#[path = "proven.rs"]
mod proven;
#[path = "releasing.rs"]
mod releasing;

use std::{error::Error, path::PathBuf, process::ExitCode};

use holdfast::{
    model::Seq,
    receipt::{Decision, Released},
};
use releasing::{Circumstances, Desk, SESSION};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("refused {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut how = Circumstances::default();
    let mut words = std::env::args().skip(1);
    let command = loop {
        match words.next().ok_or("no command")?.as_str() {
            "--later" => how.later = words.next().ok_or("how much later?")?.parse()?,
            "--bytes" => how.bytes = words.next().ok_or("how many bytes?")?.parse()?,
            other => break other.to_owned(),
        }
    };
    let dir = PathBuf::from(words.next().ok_or("which directory?")?);
    let rest: Vec<String> = words.collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let desk = Desk::open(&dir, how)?;
    println!("begin");
    match (command.as_str(), rest.as_slice()) {
        ("release", [seq, key]) => say(&desk.release(Seq::new(seq.parse()?), Some(key))?),
        ("archive", [key]) => say(&desk.archive(key)?),
        ("capture", [key, paths @ ..]) => {
            desk.capture(paths, key)?.captured.iter().for_each(say);
        }
        ("decide", [index, decision]) => {
            let asks = desk.parts.ledger.asks(SESSION)?;
            let ask = asks.get(index.parse::<usize>()?).ok_or("no such ask")?;
            let decision = Decision::parse(decision).ok_or("which decision?")?;
            desk.decide(ask, decision)?;
            println!("settled");
        }
        ("remove", []) => {
            desk.remove()?;
            println!("removed");
        }
        ("recover", []) => {
            desk.recover();
            println!("recovered");
        }
        _ => return Err(format!("no command {command} {rest:?}").into()),
    }
    Ok(())
}

fn say(released: &Released) {
    match released {
        Released::Now(receipt) => println!("released {}", receipt.statement.receipt),
        Released::Asked(ask) => println!("asked {}", ask.handle),
    }
}
