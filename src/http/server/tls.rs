//! TLS: a certificate and its key, which may change while connections live.
//!
//! Promises: TLS 1.2 and 1.3 alone, with the library's own choice of suites; a pair that does not fit
//! together is refused; a change meets new connections, and those that live keep what they began
//! with. Leaves to others: reading the files (`app`), the time a handshake has (`server`).

use std::{
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
        version::{TLS12, TLS13},
    },
    server::TlsStream,
};

/// The one protocol spoken inside.
const ALPN: &[u8] = b"http/1.1";
/// The most certificates a chain has.
const MOST_CERTIFICATES: usize = 16;

/// Why a certificate and a key cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The certificate's text is not PEM.
    #[error("the certificate is not PEM")]
    Certificate(#[source] pem::Error),
    /// There is no certificate in it.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// A chain is longer than any is.
    #[error("more than 16 certificates")]
    TooMany,
    /// The key's text holds no private key.
    #[error("the key is no private key in PEM")]
    Key(#[source] pem::Error),
    /// The two do not fit together, or are of a kind that is not spoken.
    #[error("certificate and key cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// What is shown to those who connect.
pub struct Tls(RwLock<Arc<ServerConfig>>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// TLS with this chain of certificates, leaf first, and its key, both PEM.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Ok(Self(RwLock::new(Arc::new(config(certificate, key)?))))
    }

    /// Shows another pair from now on. When it is refused, the old one stays.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let config = Arc::new(config(certificate, key)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Sets TLS up with a peer.
    pub(super) async fn accept<S>(&self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let now = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(now).accept(socket).await
    }
}

fn config(certificate: &[u8], key: &[u8]) -> Result<ServerConfig, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .take(MOST_CERTIFICATES + 1)
        .collect::<Result<Vec<_>, _>>()
        .map_err(TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    if chain.len() > MOST_CERTIFICATES {
        return Err(TlsError::TooMany);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(TlsError::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}
