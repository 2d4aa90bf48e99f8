//! Writes a native session into a directory laid out as a DSH home.
//!
//! Promises: the log gets its name last, after it was read back and everything it refers to lies
//! there, verified by digest and flushed; until then nothing of it can be seen. What lies there is
//! never replaced by anything but a continuation of itself. No link below the directory is followed.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::Path,
};

use http::{Method, Response};
use http_body_util::BodyExt as _;
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags},
    io::Errno,
};
use serde::Serialize;
use tokio::time::timeout;

use super::{
    arguments::{Common, Export, Reach},
    beside::reach,
    client::{Client, STALL, stalled, succeeded},
    exit::{Exit, Failure},
    find::{self, Listed},
    output::{Output, shown},
};
use crate::{
    beneath::{BeneathError, ForeignDir},
    journal::{
        dsh::LogName,
        export::{self, LOG, Place},
        import::{LogContents, SessionLog},
    },
    model::{AttachmentId, AttachmentKind, AttachmentRef, Digester, SessionHandle},
    store::dsh::saved_name,
};

/// How much is read at a time when files are compared, in bytes.
const BLOCK: usize = 1 << 18;
/// The most entries of a session's folder.
const MAX_ENTRIES: usize = 1_000;

/// What was exported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Exported {
    session: String,
    id: String,
    /// The log, below the directory.
    log: String,
    events: u64,
    attachments: usize,
    /// `new`, `extended` or `unchanged`.
    outcome: &'static str,
}

/// `export`.
pub(super) async fn run(common: &Common, export: &Export, output: Output) -> Result<(), Failure> {
    beside_us(&export.reach)?;
    let (client, _beside) = reach(common, &export.reach).await?;
    let session = find::session(&client, &export.session).await?;
    let home = Tree::create(&export.directory)?;
    let done = write(&client, session, &home).await?;
    output.print(&done, |done| {
        format!(
            "{}: {} events and {} attachments in {}",
            done.outcome,
            done.events,
            done.attachments,
            shown(&done.log),
        )
    })
}

/// The log names directories of the host, so it goes the owner-only ways alone.
pub(super) fn beside_us(reach: &Reach) -> Result<(), Failure> {
    if reach.url.is_some() {
        let message = "sessions go in and out beside the data directory, not over the network";
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(())
}

async fn write(client: &Client, session: SessionHandle, home: &Tree) -> Result<Exported, Failure> {
    // Its place is known from its first line, so it lies at the top until it is checked.
    let file = home.unnamed()?;
    let path = format!("/local/v1/sessions/{session}/log");
    fetch(client, &path, &file).await?;
    let contents = contents_of(&file)?;
    let place = export::place(contents.header.id.as_str(), contents.header.cwd.as_deref())
        .map_err(|error| Failure::of(Exit::Refused, &error))?;
    if let Some(name) = unsavable(&contents) {
        let message = format!(
            "a DSH home cannot hold an attachment named `{}`",
            shown(name)
        );
        return Err(Failure::new(Exit::Refused, message));
    }
    let folder = home
        .dir("sessions")?
        .dir(&place.project)?
        .dir(&place.folder)?;
    let lock = folder.lock()?;
    // Known to be refused before anything is fetched.
    let before = folder.compare(&file, &place)?;
    if before != Before::Same {
        let attachments = home.dir("attachments")?.dir("v1")?;
        for reference in &contents.references {
            save(client, session, &attachments, reference).await?;
        }
        folder.publish(&file, &place, before)?;
    }
    drop(lock);
    Ok(Exported {
        session: session.to_string(),
        id: contents.header.id.to_string(),
        log: format!("sessions/{}/{}/{}", place.project, place.folder, place.file),
        events: contents.events,
        attachments: contents.references.len(),
        outcome: match before {
            Before::Nothing => "new",
            Before::Less => "extended",
            Before::Same => "unchanged",
        },
    })
}

/// Reads back what was written, as strictly as an import would.
fn contents_of(file: &File) -> Result<LogContents, Failure> {
    let again = file
        .try_clone()
        .map_err(|error| Failure::io("the log", &error))?;
    let log = SessionLog::open(again, LOG).map_err(|error| Failure::io("the log", &error))?;
    log.contents().map_err(|error| {
        let message = format!("a DSH home cannot hold this session: {error}");
        Failure::new(Exit::Refused, message)
    })
}

/// The name of an attachment that would be saved under another, if there is one.
fn unsavable(contents: &LogContents) -> Option<&str> {
    let mut files = contents
        .references
        .iter()
        .filter(|reference| reference.kind == AttachmentKind::File);
    files.find_map(|file| {
        let name = file.name.as_ref()?.as_str();
        (saved_name(name) != name).then_some(name)
    })
}

/// Puts an attachment where a home keeps it, or finds it there.
async fn save(
    client: &Client,
    session: SessionHandle,
    attachments: &Tree,
    reference: &AttachmentRef,
) -> Result<(), Failure> {
    let hex = reference.id.digest().to_string();
    let bucket: String = hex.chars().take(2).collect();
    let tree = match reference.kind {
        AttachmentKind::Image { .. } => "objects",
        AttachmentKind::File => "file-objects",
    };
    let canonical = attachments.dir(tree)?.dir(&bucket)?;
    let file = if let Some(there) = canonical.found(&hex)? {
        there
    } else {
        let file = attachments.unnamed()?;
        let listed = Listed {
            id: reference.id,
            name: reference.name.clone(),
            bytes: Some(reference.bytes.get()),
            href: None,
        };
        fetch(client, &listed.path(session), &file).await?;
        holds(&file, reference)?;
        rustix::fs::fchmod(&file, Mode::RUSR).map_err(|errno| failed("an attachment", errno))?;
        canonical.name(&file, &hex)?;
        file
    };
    holds(&file, reference)?;
    if let (AttachmentKind::File, Some(name)) = (reference.kind, &reference.name) {
        let names = attachments.dir("files")?.dir(&bucket)?.dir(&hex)?;
        match names.found(name.as_str())? {
            Some(there) => holds(&there, reference)?,
            None => names.name(&file, name.as_str())?,
        }
    }
    Ok(())
}

/// Makes sure that a file is what the reference says.
fn holds(file: &File, reference: &AttachmentRef) -> Result<(), Failure> {
    let mut digester = Digester::default();
    let mut at = 0_u64;
    blocks(file, |block| {
        digester.update(block);
        at = at.saturating_add(u64::try_from(block.len()).unwrap_or(u64::MAX));
        Ok(())
    })?;
    let found = AttachmentId::new(digester.finish());
    if (found, at) == (reference.id, reference.bytes.get()) {
        return Ok(());
    }
    let message = format!("{at} bytes of {found} lie where {} should be", reference.id);
    Err(Failure::new(Exit::Damaged, message))
}

fn blocks(file: &File, mut take: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut block = vec![0; BLOCK];
    let mut at = 0_u64;
    loop {
        let read = match file.read_at(&mut block, at) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::io("reading back", &error)),
        };
        take(block.get(..read).unwrap_or_default())?;
        at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
}

/// Fetches an answer's whole body into a file and flushes it.
async fn fetch(client: &Client, path: &str, file: &File) -> Result<(), Failure> {
    let request = client
        .request(Method::GET, path)
        .body(axum::body::Body::empty())
        .map_err(|error| Failure::of(Exit::Usage, &error))?;
    let answer: Response<_> = timeout(STALL, client.send(request))
        .await
        .map_err(stalled)??;
    let mut body = succeeded(answer).await?.into_body();
    let mut at = 0_u64;
    while let Some(frame) = timeout(STALL, body.frame()).await.map_err(stalled)? {
        let frame = frame.map_err(|error| {
            Failure::new(Exit::TryAgain, format!("the answer was cut short: {error}"))
        })?;
        if let Ok(bytes) = frame.into_data() {
            file.write_all_at(&bytes, at)
                .map_err(|error| Failure::io("writing", &error))?;
            at = at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        }
    }
    file.sync_all()
        .map_err(|error| Failure::io("flushing", &error))
}

/// What lies where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The first part of what is to be written.
    Less,
    /// Exactly that.
    Same,
}

/// A directory of the export, held by descriptor.
#[derive(Debug)]
struct Tree(OwnedFd);

impl Tree {
    /// The directory a person names, made when it is not there.
    fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(path.display(), &error);
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .recursive(true)
            .create(path)
            .map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty());
        Ok(Self(dir.map_err(|errno| failed(errno.into()))?))
    }

    /// The directory `name` in this one, made when it is not there; a link to one is refused.
    fn dir(&self, name: &str) -> Result<Self, Failure> {
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => self.flush()?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(name, errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.0, name, flags, Mode::empty());
        Ok(Self(dir.map_err(|errno| failed(name, errno))?))
    }

    /// A file without a name: nothing is left of it when we end before it has one.
    fn unnamed(&self) -> Result<File, Failure> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, ".", flags, Mode::RUSR | Mode::WUSR);
        Ok(file
            .map_err(|errno| failed("a file without a name", errno))?
            .into())
    }

    /// Gives a file a name that nothing has yet.
    fn name(&self, file: &File, name: &str) -> Result<(), Failure> {
        let table = rustix_linux_procfs::proc_self_fd().map_err(|errno| failed(name, errno))?;
        let number = file.as_fd().as_raw_fd().to_string();
        rustix::fs::linkat(table, &*number, &self.0, name, AtFlags::SYMLINK_FOLLOW)
            .map_err(|errno| failed(name, errno))?;
        self.flush()
    }

    /// The regular file of this name, if anything has it.
    fn found(&self, name: &str) -> Result<Option<File>, Failure> {
        match self.foreign()?.file(name.as_bytes()) {
            Ok((file, _stamp)) => Ok(Some(file)),
            Err(BeneathError::Missing) => Ok(None),
            Err(BeneathError::Io(error)) => Err(Failure::io(shown(name), &error)),
            Err(error @ (BeneathError::Wrong(_) | BeneathError::TooMany(_))) => {
                let message = format!("{}: {error}", shown(name));
                Err(Failure::new(Exit::Refused, message))
            }
        }
    }

    fn foreign(&self) -> Result<ForeignDir, Failure> {
        let again = self.0.try_clone();
        Ok(ForeignDir::from(
            again.map_err(|error| Failure::io("the directory", &error))?,
        ))
    }

    fn flush(&self) -> Result<(), Failure> {
        rustix::fs::fsync(&self.0).map_err(|errno| failed("the directory", errno))
    }

    /// The lock a writer of this folder holds, a DSH host included.
    fn lock(&self) -> Result<OwnedFd, Failure> {
        let name = "session.lock";
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| failed(name, errno))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(lock),
            Err(Errno::AGAIN) => {
                let message = "somebody else writes to this session's folder now";
                Err(Failure::new(Exit::TryAgain, message))
            }
            Err(errno) => Err(failed(name, errno)),
        }
    }

    /// What lies in this session's folder, against what is to be written there.
    fn compare(&self, file: &File, place: &Place) -> Result<Before, Failure> {
        let names = self.foreign()?.names(MAX_ENTRIES);
        let names = names.map_err(|error| Failure::of(Exit::Refused, &error))?;
        let taken = |what: &str| {
            let folder = format!("sessions/{}/{}", place.project, place.folder);
            Failure::new(Exit::Refused, format!("{}: {what}", shown(&folder)))
        };
        let other = |name: &Vec<u8>| LogName::parse(name).is_some_and(|log| log != LOG);
        if names.iter().any(|(name, _)| other(name)) {
            return Err(taken("another generation of the log lies there"));
        }
        let Some(there) = self.found(&place.file)? else {
            return Ok(Before::Nothing);
        };
        let differs = || taken("another log lies there, and is left as it is");
        let mut at = 0_u64;
        let mut last = b'\n';
        blocks(&there, |block| {
            let mut same = vec![0; block.len()];
            file.read_exact_at(&mut same, at)
                .map_err(|_shorter| differs())?;
            if same != block {
                return Err(differs());
            }
            last = block.last().copied().unwrap_or(last);
            at = at.saturating_add(u64::try_from(block.len()).unwrap_or(u64::MAX));
            Ok(())
        })?;
        let len = file
            .metadata()
            .map_err(|error| Failure::io("the log", &error))?
            .len();
        match at {
            at if at == len => Ok(Before::Same),
            _ if last == b'\n' => Ok(Before::Less),
            _ => Err(differs()),
        }
    }

    /// Gives the log its name; what lies there was found to be its beginning.
    fn publish(&self, file: &File, place: &Place, before: Before) -> Result<(), Failure> {
        if before == Before::Nothing {
            return self.name(file, &place.file);
        }
        let mut bits = [0; 8];
        getrandom::fill(&mut bits).map_err(|error| Failure::of(Exit::Failed, &error))?;
        let beside = format!("{:016x}.tmp", u64::from_be_bytes(bits));
        self.name(file, &beside)?;
        let renamed = rustix::fs::renameat(&self.0, &*beside, &self.0, &*place.file);
        if let Err(errno) = renamed {
            rustix::fs::unlinkat(&self.0, &*beside, AtFlags::empty()).ok();
            return Err(failed(&place.file, errno));
        }
        self.flush()
    }
}

fn failed(what: &str, errno: Errno) -> Failure {
    Failure::io(shown(what), &errno.into())
}
