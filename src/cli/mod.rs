//! The command line: reads the words, finds the server, does the one thing asked, says how it ended.
//!
//! Promises: one way in (I10): a command without a server asks the same router in its own process;
//! what `get` leaves at the output was read back and checked; exit codes are stable. Leaves to
//! others: everything a server does.

#![forbid(unsafe_code)]

mod arguments;
mod audit;
mod beside;
mod card;
mod client;
mod events;
mod exit;
mod export;
mod find;
mod frames;
mod get;
mod import;
mod output;
mod prove;
mod put;
mod question;
mod release;
mod serve;
mod setup;
mod show;
mod ticket;
mod token;
mod trust;
mod up;
mod verify;
mod watch;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser as _;
use exit::{Exit, Failure};
use http::Method;
use output::{Output, note};
use serde_json::{Value, json};

use crate::{
    app::Opened,
    model::ReceiptHandle,
    telemetry::{self, Running},
};

/// Runs the program with the arguments and the environment it was started with.
#[must_use]
pub fn run() -> ExitCode {
    crate::prove::answer_if_asked(std::env::args_os().skip(1));
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            drop(error.print());
            // Help and version were asked for; everything else is a slip.
            return if error.use_stderr() {
                // `prove` has exit codes of its own, in which 2 is a finding.
                if std::env::args_os().any(|word| word == "prove") {
                    Exit::Configuration.into()
                } else {
                    Exit::Usage.into()
                }
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the log's filter, read once at start"
    )]
    let filter = std::env::var("HOLDFAST_LOG").ok();
    let running = if matches!(arguments.command, Command::Up(_) | Command::Serve(_)) {
        Running::Server
    } else {
        Running::Command
    };
    let started = telemetry::start(running, filter.as_deref())
        .map_err(|error| Failure::of(Exit::Usage, &error));
    match started.and_then(|()| dispatch(&arguments)) {
        Ok(code) => code,
        Err(failure) => {
            note(format_args!("holdfast: {failure}"));
            failure.exit.into()
        }
    }
}

fn dispatch(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let common = &arguments.common;
    let output = if common.json {
        Output::Json
    } else {
        Output::Text
    };
    let done = match &arguments.command {
        Command::Up(up) => up::run(common, up, output),
        Command::Serve(serve) => serve::run(common, serve, output),
        Command::Prove(words) => return prove::run(common, words, output),
        Command::Init(init) => initialise(common, init, output),
        Command::CheckConfig => check(common, output),
        Command::Openapi => output::line(crate::http::openapi::document().trim_end()),
        Command::Token(token) => serve::on_runtime(token::run(common, token, output)),
        Command::Ticket(ticket) => serve::on_runtime(ticket::run(common, ticket, output)),
        Command::Session(session) => serve::on_runtime(show::session(common, session, output)),
        Command::Append(append) => serve::on_runtime(async {
            let events = events::read(append.file.as_deref())?;
            let (client, _beside) = beside::reach(common, &append.at.reach).await?;
            let session = find::session(&client, &append.at.session).await?;
            let done = events::append(&client, session, events, append.expected_seq).await?;
            output.print(&done, |done| {
                let seq = |key| done.get(key).cloned().unwrap_or_default();
                format!("appended seq {} to {}", seq("firstSeq"), seq("lastSeq"))
            })
        }),
        Command::Put(put) => serve::on_runtime(upload(common, put, output)),
        Command::Get(get) => serve::on_runtime(download(common, get, output)),
        Command::Export(export) => serve::on_runtime(export::run(common, export, output)),
        Command::Import(import) => serve::on_runtime(import::run(common, import, output)),
        Command::Ls(at) => serve::on_runtime(show::list(common, at, output)),
        Command::Snapshot(at) => serve::on_runtime(show::snapshot(common, at)),
        Command::Present(what) => serve::on_runtime(release::present(common, what, output)),
        Command::Explain(file) => serve::on_runtime(release::explain(common, file, output)),
        Command::Release(file) => serve::on_runtime(release::release(common, file, output)),
        Command::Decide(decide) => serve::on_runtime(release::decide(common, decide, output)),
        Command::Verify(arguments::Verify {
            what: Some(arguments::VerifyWhat::Receipt { file }),
            ..
        }) => release::verify(common, file, output),
        Command::Audit(audit) => audit::run(common, audit, output),
        Command::Ask(ask) => serve::on_runtime(question::run(common, ask, output)),
        Command::Watch(watch) => serve::on_runtime(watch::run(common, watch, output)),
        Command::Verify(verify) => serve::on_runtime(verify::run(common, verify, output)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn initialise(
    common: &arguments::Common,
    init: &arguments::Init,
    output: Output,
) -> Result<(), Failure> {
    use crate::access::PrincipalKind;
    let root = init
        .root
        .as_deref()
        .map_or(setup::FirstRoot::None, setup::FirstRoot::Directory);
    let place = setup::directory(&common.data, root)?;
    let config = crate::config::Config::load(&place.config, std::env::vars_os())
        .map_err(|error| Failure::of(Exit::Configuration, &error))?;
    let service = crate::app::Service::open(&config).map_err(|error| beside::opening(&error))?;
    setup::principal(service.access(), PrincipalKind::Operator, "operator")?;
    setup::principal(service.access(), PrincipalKind::Host, "host")?;
    let done = json!({"config": place.config, "isNew": place.is_new});
    output.print(&done, |_| {
        format!(
            "{} {}\nnext: `token create NAME --kind user`, then `serve`",
            if place.is_new { "wrote" } else { "found" },
            place.config.display(),
        )
    })
}

/// Reads the configuration and opens what it names; the data directory's lock is let go again.
fn check(common: &arguments::Common, output: Output) -> Result<(), Failure> {
    let config = beside::config(common)?;
    // A running server holds the lock, and opened all of this when it started.
    let opened = match Opened::open(&config) {
        Ok(opened) => Some(opened),
        Err(error) if error.is_busy() => None,
        Err(error) => return Err(beside::opening(&error)),
    };
    let roots: Vec<Value> = config
        .roots
        .iter()
        .map(|root| json!({"name": root.name.as_str(), "path": root.path}))
        .collect();
    let done = json!({
        "config": config.source,
        "data": config.data,
        "listen": config.listen,
        "publicUrl": config.public_url.as_ref().map(ToString::to_string),
        "deliverablesMode": config.deliverables.name(),
        "roots": roots,
        "inUse": opened.is_none(),
    });
    output.print(&done, |_| {
        let mut text = format!(
            "{} is good\n  data          {}\n  listen        {}\n  deliverables  {}\n",
            config.source.display(),
            config.data.display(),
            config.listen,
            config.deliverables,
        );
        for root in &config.roots {
            let path = root.path.display();
            text.extend([
                "  root          ",
                root.name.as_str(),
                " = ",
                &path.to_string(),
                "\n",
            ]);
        }
        for held in opened
            .iter()
            .flat_map(Opened::roots)
            .filter(|held| held.is_our_own())
        {
            text.extend([
                "note: root `",
                held.name(),
                "` belongs to our own user: there is no boundary to who writes there\n",
            ]);
        }
        if opened.is_none() {
            text.push_str("note: a server has the data directory now\n");
        }
        text
    })
}

async fn upload(
    common: &arguments::Common,
    put: &arguments::Put,
    output: Output,
) -> Result<(), Failure> {
    let (client, _beside) = beside::reach(common, &put.at.reach).await?;
    let session = find::session(&client, &put.at.session).await?;
    let stored = put::put(&client, session, &put.file, put.name.as_deref()).await?;
    if put.reference {
        let file = find::listed(&stored)?;
        let event = events::message("A file was added.", &file);
        events::append(&client, session, vec![event], None).await?;
    }
    output.print(&stored, |stored| {
        let hint = if put.reference {
            ""
        } else {
            "\nit can be downloaded once an event refers to it (see --reference and `append`)"
        };
        format!("{}{hint}", find::string(stored, "attachmentId"))
    })
}

async fn download(
    common: &arguments::Common,
    get: &arguments::Get,
    output: Output,
) -> Result<(), Failure> {
    let (client, _beside) = beside::reach(common, &get.at.reach).await?;
    let session = find::session(&client, &get.at.session).await?;
    let file = if ReceiptHandle::parse(&get.attachment).is_ok() {
        release::content(&client, &get.attachment).await?
    } else {
        find::attachment(&client, session, &get.attachment).await?
    };
    let done = get::Download {
        path: file.path(session),
        id: file.id,
        bytes: file.bytes,
        name: file.name,
        output: get.output.clone(),
        force: get.force,
        retries: get.retries,
        progress: output == Output::Text && output::is_watched(),
    }
    .run(&client)
    .await?;
    output.print(&done, |done| {
        format!(
            "{}: {} bytes, sha256 verified",
            output::shown(&done.output),
            done.bytes
        )
    })
}

/// Asks with a method that has no body.
async fn ask(client: &client::Client, method: Method, path: &str) -> Result<Value, Failure> {
    client.json(method, path, None).await
}
