//! Where connections come from.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Mode},
    io::Errno,
};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::{socket::Socket, tls::Tls};

/// Connections the kernel may hold for us before they are accepted.
const BACKLOG: u32 = 1024;

/// An open listening socket.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    tls: Option<Arc<Tls>>,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Who is at the other end of a connection, as the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Somebody on the network.
    Remote(SocketAddr),
    /// A process on this machine, through the owner's socket.
    Local {
        /// Its user.
        uid: u32,
    },
}

impl Peer {
    /// The network address, if it has one.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Remote(address) => Some(address.ip()),
            Self::Local { .. } => None,
        }
    }

    /// A local peer must be the user we run as; file modes alone would let the superuser's
    /// containers in.
    pub(super) fn may_connect(self) -> bool {
        match self {
            Self::Remote(_) => true,
            Self::Local { uid } => uid == rustix::process::geteuid().as_raw(),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(address) => address.fmt(f),
            Self::Local { uid } => write!(f, "local user {uid}"),
        }
    }
}

impl Listener {
    /// Listens on a TCP address.
    ///
    /// Needs a runtime.
    ///
    /// # Errors
    /// What the system says, `AddrInUse` above all.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Kind::Tcp(socket.listen(BACKLOG)?).into())
    }

    /// Listens on a socket called `name` in an open directory, replacing what an earlier process left
    /// there. Only the user we run as is served through it.
    ///
    /// The caller holds the lock that makes it the only one to do so. Needs a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn unix(dir: impl AsFd, name: &str) -> io::Result<Self> {
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // A path through the descriptor: it is short, and it names this very directory.
        let path = format!("/proc/self/fd/{}/{name}", dir.as_fd().as_raw_fd());
        let listener = UnixListener::bind(path)?;
        rustix::fs::chmodat(&dir, name, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        Ok(Kind::Unix(listener).into())
    }

    /// Takes over a socket that listens already, as systemd hands them out.
    ///
    /// Needs a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn inherited(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Kind::Tcp(TcpListener::from_std(listener)?).into())
    }

    /// The same socket, where TLS is spoken and nothing else.
    #[must_use]
    pub fn with_tls(self, tls: Arc<Tls>) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
    }

    pub(super) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// The TCP address it listens on.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix(_) => None,
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Socket, Peer)> {
        match &self.kind {
            Kind::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Fails only on a connection that has ended already.
                stream.set_nodelay(true).ok();
                Ok((Socket::Tcp(stream), Peer::Remote(address)))
            }
            Kind::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok((Socket::Unix(stream), Peer::Local { uid }))
            }
        }
    }
}

impl From<Kind> for Listener {
    fn from(kind: Kind) -> Self {
        Self { kind, tls: None }
    }
}
