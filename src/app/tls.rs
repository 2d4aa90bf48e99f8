//! The certificate's files: read at start, again on request, and again when they have changed.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::reload;
use crate::{
    config::TlsConfig,
    http::server::tls::{Tls, TlsError},
};

/// The largest file that is read, in bytes: a chain of sixteen fits many times.
const MAX_FILE: u64 = 1 << 20;
/// How often the files are looked at. What changed is read once it has been still from one look to the
/// next, so that a pair that is being replaced is mostly met whole.
const LOOK: Duration = Duration::from_secs(2);

/// Why there is no certificate to show.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Somebody else could have written the file, or can read the key.
    #[error("{} {why}", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The files hold no certificate with its key.
    #[error("{} and {}", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        #[source]
        source: TlsError,
    },
}

/// What is shown to those who connect, and where it comes from.
#[derive(Debug)]
pub(super) struct Certificate {
    files: TlsConfig,
    tls: Arc<Tls>,
    /// Held while the files are read, so that an older reading never follows a newer one.
    looks: Mutex<Looks>,
}

/// What is known of the files.
#[derive(Debug)]
struct Looks {
    /// As they were when they were last read, be it in vain.
    read: Facts,
    /// As they were at the last look.
    seen: Facts,
}

/// What tells a file from what it was; nothing where it cannot be asked.
type Stamp = Option<(u64, u64, u64, [i64; 4])>;
/// The stamps of certificate and key.
type Facts = [Stamp; 2];

impl Certificate {
    pub(super) fn open(files: &TlsConfig) -> Result<Self, CertificateError> {
        let facts = facts(files);
        let (cert, key) = read(files)?;
        let tls = Tls::new(&cert, &key).map_err(|source| pair(files, source))?;
        Ok(Self {
            files: files.clone(),
            tls: Arc::new(tls),
            looks: Mutex::new(Looks {
                read: facts,
                seen: facts,
            }),
        })
    }

    pub(super) fn tls(&self) -> Arc<Tls> {
        Arc::clone(&self.tls)
    }

    /// Reads the files again. When they are refused, what was shown is shown on.
    pub(super) fn reload(&self) -> Result<(), CertificateError> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_again(&mut looks, facts(&self.files))
    }

    /// Reads the files again if they have changed and come to rest.
    fn look(&self) -> Option<Result<(), CertificateError>> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let now = facts(&self.files);
        let is_still = std::mem::replace(&mut looks.seen, now) == now;
        (is_still && now != looks.read).then(|| self.read_again(&mut looks, now))
    }

    /// `now` is from before the reading: what changes during it is seen at the next look.
    fn read_again(&self, looks: &mut Looks, now: Facts) -> Result<(), CertificateError> {
        looks.read = now;
        let (cert, key) = read(&self.files)?;
        self.tls
            .replace(&cert, &key)
            .map_err(|source| pair(&self.files, source))
    }

    /// Looks at the files for ever, and says in the log what became of a change.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let this = Arc::clone(&self);
            match spawn_blocking(move || this.look()).await {
                Ok(None) => {}
                Ok(Some(read)) => {
                    reload::tell("certificate", read.map_err(Into::into));
                }
                Err(_panicked) => tracing::error!("a look at the certificate did not end well"),
            }
        }
    }
}

/// What there is under the files' names at this moment, at the end of any links.
fn facts(files: &TlsConfig) -> Facts {
    [&files.cert, &files.key].map(|path| {
        let facts = rustix::fs::stat(path).ok()?;
        let size = u64::try_from(facts.st_size).ok()?;
        let nanos = |it| i64::try_from(it).ok();
        let times = [
            facts.st_mtime,
            nanos(facts.st_mtime_nsec)?,
            facts.st_ctime,
            nanos(facts.st_ctime_nsec)?,
        ];
        Some((facts.st_dev, facts.st_ino, size, times))
    })
}

fn pair(files: &TlsConfig, source: TlsError) -> CertificateError {
    CertificateError::Pair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        source,
    }
}

fn read(files: &TlsConfig) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
    // A certificate is for everybody to read, its key is not.
    let cert = read_file(&files.cert, 0o022, "may be written by others (chmod go-w)")?;
    let key = read_file(
        &files.key,
        0o027,
        "may be read by everybody or written by others (chmod o=,g-w)",
    )?;
    Ok((cert, key))
}

/// Reads the operator's file, once, and refuses one with a mode in `refused`.
fn read_file(path: &Path, refused: u32, why: &'static str) -> Result<Vec<u8>, CertificateError> {
    let failed = |source| CertificateError::Read {
        path: path.to_owned(),
        source,
    };
    let untrusted = |why| CertificateError::Untrusted {
        path: path.to_owned(),
        why,
    };
    // A pipe in its place is not waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(io::Error::from)
        .map_err(failed)?;
    let file = File::from(file);
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(untrusted("is not a file"));
    }
    if facts.mode() & refused != 0 {
        return Err(untrusted(why));
    }
    if facts.uid() != rustix::process::geteuid().as_raw() && facts.uid() != 0 {
        return Err(untrusted("belongs to another user"));
    }
    if facts.len() > MAX_FILE {
        return Err(untrusted("is larger than 1 MiB"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}
