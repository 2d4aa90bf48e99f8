//! Whose word is taken for a server: TLS as a client speaks it.
//!
//! Promises: a request leaves only towards a server whose certificate is in force, is for the name in
//! the URL, and is vouched for by a root of the platform or of the file given; else nothing of it is
//! sent, and the person is told what is wrong with the certificate and what to do.

use std::{fs::File, io, io::Read as _, path::Path, sync::Arc};

use rustix::fs::{Mode, OFlags};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, CertificateError, ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
        version::{TLS12, TLS13},
    },
};

use super::{
    client::unreachable,
    exit::{Exit, Failure},
    output::shown,
};

/// The largest file of roots that is read, in bytes: a platform's whole list has a fifth of it.
const MAX_FILE: u64 = 1 << 20;
/// The one protocol spoken inside.
const ALPN: &[u8] = b"http/1.1";

/// A server's name, and what its certificate is judged by.
pub(super) struct Trust {
    name: ServerName<'static>,
    connector: TlsConnector,
    roots: &'static str,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Trust {
    /// Trust in the server called `host`, on the word of the roots in `cacert`, or of the platform's.
    /// Blocks.
    pub(super) fn in_server(host: &str, cacert: Option<&Path>) -> Result<Self, Failure> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_odd| Failure::new(Exit::Usage, "--url: not a host's name"))?;
        let (roots, origin) = match cacert {
            Some(file) => (given(file)?, "the roots of --cacert"),
            None => (platform()?, "the platform's roots"),
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| Failure::of(Exit::Failed, &error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            name,
            connector: TlsConnector::from(Arc::new(config)),
            roots: origin,
        })
    }

    /// Sets TLS up with the server. Nothing of a request has been sent when it fails.
    pub(super) async fn greet(&self, socket: TcpStream) -> Result<TlsStream<TcpStream>, Failure> {
        let greeted = self.connector.connect(self.name.clone(), socket).await;
        greeted.map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &io::Error) -> Failure {
        let cause = error.get_ref().and_then(|it| it.downcast_ref());
        match cause {
            Some(rustls::Error::InvalidCertificate(why)) => {
                let name = shown(&self.name.to_str());
                let said = shown(&why.to_string());
                let why = if is_for_another(why) {
                    format!("it is for another name ({said})")
                } else if has_expired(why) {
                    format!("it has expired ({said})")
                } else if *why == CertificateError::UnknownIssuer {
                    format!(
                        "none of {} vouches for it; --cacert FILE trusts those in a file instead",
                        self.roots
                    )
                } else {
                    said
                };
                let message =
                    format!("the certificate of {name} is refused: {why}. Nothing was sent to it");
                Failure::new(Exit::Refused, message)
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                let message = "the server does not speak TLS there; is it an http:// address?";
                Failure::new(Exit::Failed, message)
            }
            Some(other) => {
                Failure::new(Exit::Failed, format!("TLS: {}", shown(&other.to_string())))
            }
            None => unreachable(&error.to_string()),
        }
    }
}

fn is_for_another(why: &CertificateError) -> bool {
    matches!(
        why,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
    )
}

fn has_expired(why: &CertificateError) -> bool {
    matches!(
        why,
        CertificateError::Expired | CertificateError::ExpiredContext { .. }
    )
}

/// The roots in a file, all of which must be readable: one left out in silence would be missed later.
fn given(path: &Path) -> Result<RootCertStore, Failure> {
    let usage =
        |why: &str| Failure::new(Exit::Usage, format!("--cacert {}: {why}", path.display()));
    let failed =
        |error: io::Error| Failure::io(format_args!("--cacert {}", path.display()), &error);
    // A pipe in its place is not waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let file = File::from(file);
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() || facts.len() > MAX_FILE {
        return Err(usage("not a file of at most 1 MiB"));
    }
    let mut pem = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut pem).map_err(failed)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_odd| usage("not PEM"))?;
        let added = roots.add(certificate);
        added.map_err(|_odd| usage("a certificate in it cannot be read"))?;
    }
    if roots.is_empty() {
        return Err(usage("there is no certificate in it"));
    }
    Ok(roots)
}

/// The roots this platform trusts. Some of them may be of kinds we cannot read.
fn platform() -> Result<RootCertStore, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _left) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        let message = "this platform lists no roots to trust (the package ca-certificates); --cacert \
                       FILE names some";
        return Err(Failure::new(Exit::Configuration, message));
    }
    Ok(roots)
}
