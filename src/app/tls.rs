//! The certificate's files: read at start and again on request.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use crate::{
    config::TlsConfig,
    http::server::tls::{Tls, TlsError},
};

/// The largest file that is read, in bytes: a chain of sixteen fits many times.
const MAX_FILE: u64 = 1 << 20;

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
}

impl Certificate {
    pub(super) fn open(files: &TlsConfig) -> Result<Self, CertificateError> {
        let (cert, key) = read(files)?;
        let tls = Tls::new(&cert, &key).map_err(|source| pair(files, source))?;
        Ok(Self {
            files: files.clone(),
            tls: Arc::new(tls),
        })
    }

    pub(super) fn tls(&self) -> Arc<Tls> {
        Arc::clone(&self.tls)
    }

    /// Reads the files again. When they are refused, what was shown is shown on.
    pub(super) fn reload(&self) -> Result<(), CertificateError> {
        let (cert, key) = read(&self.files)?;
        self.tls
            .replace(&cert, &key)
            .map_err(|source| pair(&self.files, source))
    }
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
