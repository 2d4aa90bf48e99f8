//! Takes in the sessions of a directory laid out as a DSH home.
//!
//! Promises: every log and attachment is read and checked before the first session is taken in; each
//! session comes in whole or not at all; nothing is written to the directory and no link below it is
//! followed.

use std::{io, os::unix::fs::FileExt as _, sync::Arc};

use axum::body::{Body, Bytes};
use futures_util::stream;
use http::{Method, header};
use rustix::fs::FileType;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};

use super::{
    arguments::{Common, Import},
    beside::reach,
    client::{Client, read_json, succeeded},
    exit::{Exit, Failure},
    export::beside_us,
    find::string,
    output::{Output, shown},
    show::owners,
};
use crate::{
    beneath::{BeneathError, ForeignDir},
    home::DshHome,
    journal::{
        JournalError,
        dsh::LogName,
        export,
        import::{LogContents, SessionLog},
    },
    model::{AttachmentId, AttachmentRef, Digester, PrincipalId},
    store::{Objects as _, dsh::DshObjects},
    transfer::exchange::{Content, Manifest},
};

/// How much is read at a time, in bytes.
const BLOCK: usize = 1 << 18;
/// The most project folders, and the most session folders of one.
const MAX_FOLDERS: usize = 100_000;
/// The most entries of a session's folder.
const MAX_ENTRIES: usize = 1_000;

/// A session that was read and found right.
struct Checked {
    log: SessionLog,
    contents: LogContents,
    /// Each content once, with a reference by which it is found.
    content: Vec<AttachmentRef>,
}

/// `import`.
pub(super) async fn run(common: &Common, import: &Import, output: Output) -> Result<(), Failure> {
    beside_us(&import.reach)?;
    let home = DshHome::open(&import.directory)
        .map_err(|error| Failure::io(import.directory.display(), &error))?;
    let objects = Arc::new(DshObjects::new(Arc::new(home)));
    let sessions = check(&objects, import.session.as_deref())?;
    if sessions.is_empty() {
        let message = "there is no such session in the directory";
        return Err(Failure::new(Exit::NotFound, message));
    }
    let mut done: Vec<Value> = Vec::new();
    if import.dry_run {
        done.extend(sessions.iter().map(|session| {
            json!({
                "id": session.contents.header.id.as_str(),
                "events": session.contents.events,
                "attachments": session.contents.references.len(),
            })
        }));
    } else {
        let (client, _beside) = reach(common, &import.reach).await?;
        let owners = owners(&client, &import.owners).await?;
        for session in sessions {
            let id = session.contents.header.id.to_string();
            let sent = send(&client, session, &owners, Arc::clone(&objects)).await;
            done.push(sent.map_err(|mut failure| {
                failure.message = format!("{}: {}", shown(&id), failure.message);
                failure
            })?);
        }
    }
    output.print(&json!({ "sessions": done }), |_| {
        let line = |row: &Value| {
            let known = row.get("isNew").and_then(Value::as_bool) == Some(false);
            let number = |key| row.get(key).cloned().unwrap_or_default();
            format!(
                "{}  {} events, {} attachments{}",
                shown(string(row, "id")),
                number("events"),
                number("attachments"),
                if known { ", there already" } else { "" },
            )
        };
        done.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Reads and checks every session of the home, or the one named.
fn check(objects: &DshObjects, only: Option<&str>) -> Result<Vec<Checked>, Failure> {
    let sessions = objects
        .home()
        .sessions()
        .map_err(|error| beneath("sessions", &error))?;
    let mut found: Vec<Checked> = Vec::new();
    for project in directories(&sessions, "sessions")? {
        let called = String::from_utf8_lossy(&project).into_owned();
        let dir = sessions
            .dir(&project)
            .map_err(|error| beneath(&called, &error))?;
        for folder in directories(&dir, &called)? {
            let called = format!("{called}/{}", String::from_utf8_lossy(&folder));
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::new(Exit::Refused, format!("{}: {why}", shown(&called)))
            };
            let id = crate::journal::dsh::session_id(&folder);
            if only.is_some_and(|only| id.as_deref() != Some(only)) {
                continue;
            }
            let dir = dir.dir(&folder).map_err(|error| beneath(&called, &error))?;
            let Some(log) = open(&dir, &called)? else {
                continue;
            };
            let contents = log.contents().map_err(|error| wrong(&error))?;
            let header = &contents.header;
            let place = export::place(header.id.as_str(), header.cwd.as_deref());
            let place = place.map_err(|error| wrong(&error))?;
            if (place.project.as_bytes(), place.folder.as_bytes()) != (&*project, &*folder) {
                return Err(wrong(&"its header is that of another folder"));
            }
            if found
                .iter()
                .any(|other| other.contents.header.id == header.id)
            {
                return Err(wrong(&"two project folders have a session of this id"));
            }
            let mut content: Vec<AttachmentRef> = Vec::new();
            for reference in &contents.references {
                holds(objects, reference).map_err(|error| wrong(&error))?;
                if content.iter().all(|other| other.id != reference.id) {
                    content.push(reference.clone());
                }
            }
            found.push(Checked {
                log,
                contents,
                content,
            });
        }
    }
    Ok(found)
}

/// The newest generation of the log in a session's folder.
fn open(dir: &ForeignDir, called: &str) -> Result<Option<SessionLog>, Failure> {
    let names = dir
        .names(MAX_ENTRIES)
        .map_err(|error| beneath(called, &error))?;
    let logs: Vec<LogName> = names
        .iter()
        .filter_map(|(name, _)| LogName::parse(name))
        .collect();
    let Some(newest) = logs.iter().max_by_key(|log| log.version).copied() else {
        return Ok(None);
    };
    if logs
        .iter()
        .filter(|log| log.version == newest.version)
        .count()
        > 1
    {
        let message = format!("{}: the log lies there twice", shown(called));
        return Err(Failure::new(Exit::Refused, message));
    }
    let (file, _stamp) = dir
        .file(newest.file_name().as_bytes())
        .map_err(|error| beneath(called, &error))?;
    SessionLog::open(file, newest)
        .map(Some)
        .map_err(|error| Failure::io(shown(called), &error))
}

fn directories(dir: &ForeignDir, called: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let names = dir
        .names(MAX_FOLDERS)
        .map_err(|error| beneath(called, &error))?;
    let mut names: Vec<Vec<u8>> = names
        .into_iter()
        .filter(|(_, kind)| *kind == FileType::Directory)
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// Makes sure that the content of a reference is there and is what it says.
fn holds(objects: &DshObjects, reference: &AttachmentRef) -> Result<(), String> {
    let name = reference.name.as_ref().map_or("", |name| name.as_str());
    let called = format!("{} {}", reference.id, shown(name));
    let blob = objects
        .open(reference)
        .map_err(|error| format!("{called}: {error}"))?;
    let mut digester = Digester::default();
    let read = blocks(&blob.file, |block| {
        digester.update(block);
        Ok(())
    });
    read.map_err(|error| format!("{called}: {error}"))?;
    if AttachmentId::new(digester.finish()) == reference.id {
        Ok(())
    } else {
        Err(format!("{called}: its content is another"))
    }
}

fn blocks(file: &std::fs::File, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut at = 0_u64;
    loop {
        let read = match file.read_at(&mut block, at) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        take(block.get(..read).unwrap_or_default())?;
        at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
}

/// Sends a session; the server checks all of it again.
async fn send(
    client: &Client,
    session: Checked,
    owners: &[PrincipalId],
    objects: Arc<DshObjects>,
) -> Result<Value, Failure> {
    let manifest = Manifest {
        log: session.contents.bytes.get(),
        content: session
            .content
            .iter()
            .map(|reference| Content {
                id: reference.id,
                bytes: reference.bytes.get(),
            })
            .collect(),
        owners: owners.to_vec(),
    };
    let mut first =
        serde_json::to_vec(&manifest).map_err(|error| Failure::of(Exit::Failed, &error))?;
    first.push(b'\n');
    let (pieces, mut sent) = channel::<io::Result<Bytes>>(4);
    let reading = tokio::task::spawn_blocking(move || {
        let produced = produce(&first, &session, &objects, &pieces);
        if let Err(error) = produced {
            // Nobody listens any more when the server has answered early.
            pieces.blocking_send(Err(error)).ok();
        }
    });
    let request = client
        .request(Method::POST, "/local/v1/imports")
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .body(Body::from_stream(stream::poll_fn(move |context| {
            sent.poll_recv(context)
        })))
        .map_err(|error| Failure::of(Exit::Usage, &error))?;
    let answer = read_json(succeeded(client.send(request).await?).await?).await;
    reading.await.ok();
    answer
}

fn produce(
    first: &[u8],
    session: &Checked,
    objects: &DshObjects,
    to: &Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let put = |bytes: &[u8]| {
        to.blocking_send(Ok(Bytes::copy_from_slice(bytes)))
            .map_err(|_closed| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    put(first)?;
    let mut gathered = Vec::with_capacity(BLOCK);
    let lines = session.log.lines(|line| {
        gathered.extend_from_slice(line);
        gathered.push(b'\n');
        if gathered.len() >= BLOCK {
            put(&gathered).map_err(|source| JournalError::Io {
                action: "sending a log",
                source: Box::new(source),
            })?;
            gathered.clear();
        }
        Ok(())
    });
    lines.map_err(io::Error::other)?;
    put(&gathered)?;
    for reference in &session.content {
        let blob = objects.open(reference).map_err(io::Error::other)?;
        blocks(&blob.file, put)?;
    }
    Ok(())
}

fn beneath(called: &str, error: &BeneathError) -> Failure {
    let exit = match error {
        BeneathError::Missing => Exit::NotFound,
        BeneathError::Wrong(_) | BeneathError::TooMany(_) => Exit::Refused,
        BeneathError::Io(_) => Exit::Failed,
    };
    Failure::new(exit, format!("{}: {error}", shown(called)))
}
