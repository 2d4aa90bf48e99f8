//! Downloads an attachment so that the file on disk, not only the answer, is what the id stands for.
//!
//! Promises: nothing stands at the output before its length and SHA-256 were taken from the file
//! that was written; a cut leaves a part from which the next run goes on; a link at the output is
//! never followed and, without `--force`, nothing there is replaced.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::FileExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
};
use serde::Serialize;
use tokio::time::timeout;

use super::{
    client::{Client, STALL, stalled, succeeded},
    exit::{Exit, Failure},
    output,
};
use crate::model::{AttachmentId, Digester, FileName};

/// The pause before going on after a cut.
const PAUSE: Duration = Duration::from_millis(300);
/// How much of the part is read at a time when it is checked, in bytes.
const BLOCK: usize = 1 << 18;

/// What is wanted and where it goes.
#[derive(Debug)]
pub(super) struct Download {
    /// The attachment's address, escaped, with a name when one is needed.
    pub(super) path: String,
    /// What the bytes must hash to.
    pub(super) id: AttachmentId,
    /// The length the session states, in bytes.
    pub(super) bytes: Option<u64>,
    /// The name the session states.
    pub(super) name: Option<FileName>,
    /// Where it goes, as the person said.
    pub(super) output: Option<PathBuf>,
    /// Whether something at the output is replaced.
    pub(super) force: bool,
    /// How often to go on after a cut that followed progress.
    pub(super) retries: u32,
    /// Whether somebody wants to see how far it is.
    pub(super) progress: bool,
}

/// What was downloaded.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Downloaded {
    /// The file.
    pub(super) output: String,
    /// The id its bytes were checked against.
    pub(super) attachment_id: AttachmentId,
    /// Its length.
    pub(super) bytes: u64,
    /// How many bytes an earlier run had left.
    pub(super) resumed_from: u64,
}

impl Download {
    /// Downloads, checks, and only then gives the file its name.
    pub(super) async fn run(self, client: &Client) -> Result<Downloaded, Failure> {
        let target = Target::open(&self)?;
        if !self.force && target.is_taken()? {
            let message = format!("{} exists; --force replaces it", target.shown());
            return Err(Failure::new(Exit::Refused, message));
        }
        let part = Part::open(&target, self.id)?;
        let done = self.complete(client, &target, &part).await;
        if done.is_err() && part.len().is_ok_and(|length| length == 0) {
            // Nothing to go on from; it may be gone already.
            part.discard(&target).ok();
        }
        done
    }

    async fn complete(
        &self,
        client: &Client,
        target: &Target,
        part: &Part,
    ) -> Result<Downloaded, Failure> {
        let mut kept = part.len()?;
        let total = loop {
            let total = self.fill(client, part, &mut kept).await?;
            let length = part.len()?;
            let stated = self.bytes.unwrap_or(total);
            if length == total && total == stated && part.holds(self.id)? {
                break total;
            }
            part.truncate()?;
            if kept == 0 {
                let message = format!(
                    "what arrived is not {}: {length} bytes of {stated}, or other content; \
                     nothing was kept",
                    self.id
                );
                return Err(Failure::new(Exit::Damaged, message));
            }
            // The part of an earlier run may be the bad one: once more, from the start.
            output::note("the kept part does not fit; starting over");
            kept = 0;
        };
        part.publish(target, self.force)?;
        Ok(Downloaded {
            output: target.shown(),
            attachment_id: self.id,
            bytes: total,
            resumed_from: kept,
        })
    }

    /// Asks for what is missing until the answer's length is there, and returns that length. `kept`
    /// becomes 0 when what an earlier run left is of no use.
    async fn fill(&self, client: &Client, part: &Part, kept: &mut u64) -> Result<u64, Failure> {
        let bar = self.progress.then(bar);
        let mut retries = self.retries;
        loop {
            let before = part.len()?;
            let cut = match self.ask(client, part, bar.as_ref()).await {
                Ok(total) => return Ok(total),
                Err(Interrupted::Ended(failure)) => return Err(failure),
                Err(Interrupted::TooLong) => {
                    output::note("the kept part is too long; starting over");
                    *kept = 0;
                    part.truncate()?;
                    continue;
                }
                Err(Interrupted::Cut(failure)) => failure,
            };
            let length = part.len()?;
            if length == 0 {
                return Err(cut);
            }
            if retries == 0 || length <= before {
                part.sync()?;
                let message = format!(
                    "cut short after {length} bytes: {cut}; the part is kept, run it again to go on"
                );
                return Err(Failure::new(Exit::TryAgain, message));
            }
            retries = retries.saturating_sub(1);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One request, written to the part as it arrives.
    async fn ask(
        &self,
        client: &Client,
        part: &Part,
        bar: Option<&ProgressBar>,
    ) -> Result<u64, Interrupted> {
        let kept = part.len()?;
        let mut request = client.request(Method::GET, &self.path);
        if kept > 0 {
            request = request
                .header(header::RANGE, format!("bytes={kept}-"))
                .header(header::IF_RANGE, self.tag());
        }
        let request = request
            .body(axum::body::Body::empty())
            .map_err(|error| Failure::of(Exit::Usage, &error))?;
        let response = timeout(STALL, client.send(request))
            .await
            .map_err(stalled)??;
        let (mut at, total) = match response.status() {
            StatusCode::OK => {
                self.is_ours(&response)?;
                let total = content_length(&response)
                    .ok_or_else(|| odd("the answer does not state its length"))?;
                self.is_stated(total)?;
                part.truncate()?;
                (0, total)
            }
            StatusCode::PARTIAL_CONTENT => match content_range(&response) {
                Some((Some(first), total)) if kept > 0 && first == kept => {
                    self.is_ours(&response)?;
                    self.is_stated(total)?;
                    (kept, total)
                }
                _ => return Err(odd("the answer is not the range that was asked for").into()),
            },
            StatusCode::RANGE_NOT_SATISFIABLE => match content_range(&response) {
                Some((None, total)) if total == kept => return Ok(total),
                Some((None, total)) if total < kept => return Err(Interrupted::TooLong),
                _ => return Err(succeeded(response).await.err().unwrap_or_else(range).into()),
            },
            _ => return Err(succeeded(response).await.err().unwrap_or_else(range).into()),
        };
        if let Some(bar) = bar {
            bar.set_length(total);
            bar.set_position(at);
        }
        let mut body = response.into_body();
        loop {
            let frame = timeout(STALL, body.frame())
                .await
                .map_err(|elapsed| Interrupted::Cut(stalled(elapsed)))?;
            match frame {
                None => break,
                Some(Err(error)) => {
                    return Err(Interrupted::Cut(Failure::new(
                        Exit::TryAgain,
                        error.to_string(),
                    )));
                }
                Some(Ok(frame)) => {
                    let Some(bytes) = frame.data_ref() else {
                        continue;
                    };
                    at = part.write(at, bytes, total)?;
                    if let Some(bar) = bar {
                        bar.set_position(at);
                    }
                }
            }
        }
        if at < total {
            let message = format!("the answer ended {} bytes early", total.saturating_sub(at));
            return Err(Interrupted::Cut(Failure::new(Exit::TryAgain, message)));
        }
        Ok(total)
    }
}

impl Download {
    /// The strong tag of the content.
    fn tag(&self) -> String {
        format!("\"{}\"", self.id.digest())
    }

    /// Refuses an answer that says it is of other content, before a byte of it is kept. One on the way
    /// may have made the tag a weak one.
    fn is_ours<B>(&self, response: &Response<B>) -> Result<(), Failure> {
        let Some(tag) = response.headers().get(header::ETAG) else {
            return Ok(());
        };
        let tag = tag.as_bytes();
        if tag.strip_prefix(b"W/").unwrap_or(tag) == self.tag().as_bytes() {
            return Ok(());
        }
        let message = format!(
            "the answer is of other content than {}; nothing of it was kept",
            self.id
        );
        Err(Failure::new(Exit::Damaged, message))
    }

    /// Refuses a length that is not the one the session states.
    fn is_stated(&self, total: u64) -> Result<(), Failure> {
        match self.bytes {
            Some(bytes) if bytes != total => {
                let message = format!(
                    "the answer is of {total} bytes and not of {bytes}; nothing of it was kept"
                );
                Err(Failure::new(Exit::Damaged, message))
            }
            _ => Ok(()),
        }
    }
}

/// How a request ended without its answer being complete.
#[derive(Debug)]
enum Interrupted {
    /// On the way; asking again may help.
    Cut(Failure),
    /// Before it began: what is kept is more than the whole.
    TooLong,
    /// For good.
    Ended(Failure),
}

impl From<Failure> for Interrupted {
    fn from(failure: Failure) -> Self {
        if failure.exit == Exit::TryAgain {
            Self::Cut(failure)
        } else {
            Self::Ended(failure)
        }
    }
}

fn odd(why: &str) -> Failure {
    Failure::new(Exit::Failed, why)
}

fn range() -> Failure {
    odd("the answer has an unknown form")
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let form = "{bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar
}

fn content_length<B>(response: &Response<B>) -> Option<u64> {
    let field = response.headers().get(header::CONTENT_LENGTH)?;
    field.to_str().ok()?.parse().ok()
}

/// `bytes 5-9/10` as `(Some(5), 10)`, `bytes */10` as `(None, 10)`.
fn content_range<B>(response: &Response<B>) -> Option<(Option<u64>, u64)> {
    let field = response
        .headers()
        .get(header::CONTENT_RANGE)?
        .to_str()
        .ok()?;
    let (range, total) = field.strip_prefix("bytes ")?.split_once('/')?;
    let total: u64 = total.parse().ok()?;
    if range == "*" {
        return Some((None, total));
    }
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last.checked_add(1)? == total).then_some((Some(first), total))
}

/// An open directory and a name in it.
#[derive(Debug)]
struct Target {
    dir: OwnedFd,
    dir_path: PathBuf,
    name: OsString,
}

impl Target {
    /// Finds where the file goes: the output, or the attachment's own name in the output directory
    /// or the working directory.
    fn open(download: &Download) -> Result<Self, Failure> {
        let output = download.output.as_deref();
        let names_directory = output.is_some_and(|path| {
            path.as_os_str().as_bytes().ends_with(b"/")
                || path.file_name().is_none()
                || rustix::fs::stat(path).is_ok_and(|facts| is(&facts, FileType::Directory))
        });
        let (dir_path, name) = match output {
            Some(path) if !names_directory => {
                let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
                let name = path.file_name().unwrap_or(OsStr::new("download"));
                (dir.unwrap_or(Path::new(".")).to_owned(), name.to_owned())
            }
            dir => {
                let dir = dir.unwrap_or(Path::new("."));
                (dir.to_owned(), own_name(download).into())
            }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&dir_path, flags, Mode::empty())
            .map_err(|errno| failed(&dir_path, errno))?;
        Ok(Self {
            dir,
            dir_path,
            name,
        })
    }

    fn shown(&self) -> String {
        let path = self.dir_path.join(&self.name);
        path.strip_prefix(".")
            .unwrap_or(&path)
            .display()
            .to_string()
    }

    /// Whether anything, a dangling link too, stands at the output.
    fn is_taken(&self) -> Result<bool, Failure> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(&self.dir_path, errno)),
        }
    }
}

/// The name a download gets when the person gave none: the session's, unless it would hide the file
/// or be taken for an option; then one made of the digest.
fn own_name(download: &Download) -> String {
    match &download.name {
        Some(name) if !name.as_str().starts_with(['.', '-']) => name.as_str().to_owned(),
        _ => {
            let digest = download.id.digest().to_string();
            format!("attachment-{}", digest.get(..16).unwrap_or(&digest))
        }
    }
}

/// The file being downloaded, under a name of its own beside the output.
///
/// The name is known beforehand, so that the next run finds it; what stands there is used only when
/// it is our own plain file with this one name.
#[derive(Debug)]
struct Part {
    file: File,
    name: String,
}

impl Part {
    fn open(target: &Target, id: AttachmentId) -> Result<Self, Failure> {
        let digest = id.digest().to_string();
        let name = format!(".holdfast-{}.part", digest.get(..32).unwrap_or(&digest));
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&target.dir, &name, flags, Mode::from_raw_mode(0o666))
            .map_err(|errno| failed(&target.dir_path.join(&name), errno))?;
        let refused = |why| {
            let message = format!("{}: {why}", target.dir_path.join(&name).display());
            Failure::new(Exit::Refused, message)
        };
        let facts = rustix::fs::fstat(&fd).map_err(|errno| failed(&target.dir_path, errno))?;
        let own = rustix::process::geteuid().as_raw();
        if !is(&facts, FileType::RegularFile) || facts.st_uid != own || facts.st_nlink != 1 {
            return Err(refused("stands in the way and is not a part of ours"));
        }
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut busy = refused("another download writes to it");
                busy.exit = Exit::TryAgain;
                return Err(busy);
            }
            Err(errno) => return Err(failed(&target.dir_path, errno)),
        }
        Ok(Self {
            file: fd.into(),
            name,
        })
    }

    fn len(&self) -> Result<u64, Failure> {
        self.file
            .metadata()
            .map(|facts| facts.len())
            .map_err(|error| Failure::io("the part", &error))
    }

    fn truncate(&self) -> Result<(), Failure> {
        self.file
            .set_len(0)
            .map_err(|error| Failure::io("the part", &error))
    }

    fn sync(&self) -> Result<(), Failure> {
        self.file
            .sync_all()
            .map_err(|error| Failure::io("flushing the part", &error))
    }

    /// Writes what arrived at `at`; more than `total` is refused.
    fn write(&self, at: u64, bytes: &[u8], total: u64) -> Result<u64, Failure> {
        let end = u64::try_from(bytes.len())
            .ok()
            .and_then(|len| at.checked_add(len));
        let end = end
            .filter(|end| *end <= total)
            .ok_or_else(|| Failure::new(Exit::Damaged, "more arrived than the answer stated"))?;
        self.file
            .write_all_at(bytes, at)
            .map_err(|error| Failure::io("writing the part", &error))?;
        Ok(end)
    }

    /// Whether the file, read back, hashes to `id`.
    fn holds(&self, id: AttachmentId) -> Result<bool, Failure> {
        let mut digester = Digester::default();
        let mut block = vec![0; BLOCK];
        let mut at = 0_u64;
        loop {
            let read = match self.file.read_at(&mut block, at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::io("reading the part back", &error)),
            };
            digester.update(block.get(..read).unwrap_or_default());
            at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        }
        Ok(digester.finish() == id.digest())
    }

    fn discard(&self, target: &Target) -> Result<(), Failure> {
        rustix::fs::unlinkat(&target.dir, &self.name, AtFlags::empty())
            .map_err(|errno| failed(&target.dir_path, errno))
    }

    /// Flushes the file and gives it the output's name; the file checked is the file named.
    fn publish(&self, target: &Target, force: bool) -> Result<(), Failure> {
        self.sync()?;
        let ours = rustix::fs::fstat(self.file.as_fd())
            .map_err(|errno| failed(&target.dir_path, errno))?;
        let flags = if force {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        let renamed =
            rustix::fs::renameat_with(&target.dir, &self.name, &target.dir, &target.name, flags);
        match renamed {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let message = format!(
                    "{} has appeared meanwhile; the part is kept",
                    target.shown()
                );
                return Err(Failure::new(Exit::Refused, message));
            }
            // Some filesystems cannot rename without replacing; a hard link can.
            Err(Errno::INVAL) if !force => {
                let (dir, name) = (&target.dir, &target.name);
                rustix::fs::linkat(dir, &self.name, dir, name, AtFlags::empty())
                    .map_err(|errno| failed(&target.dir_path.join(name), errno))?;
                self.discard(target)?;
            }
            Err(errno) => return Err(failed(&target.dir_path.join(&target.name), errno)),
        }
        rustix::fs::fsync(&target.dir).map_err(|errno| failed(&target.dir_path, errno))?;
        let named = rustix::fs::statat(&target.dir, &target.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| failed(&target.dir_path.join(&target.name), errno))?;
        if (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino) {
            let message = format!("{} is not the file that was checked", target.shown());
            return Err(Failure::new(Exit::Damaged, message));
        }
        Ok(())
    }
}

fn is(facts: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(facts.st_mode) == kind
}

fn failed(path: &Path, errno: Errno) -> Failure {
    Failure::io(path.display(), &errno.into())
}
