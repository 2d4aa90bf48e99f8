//! A connection's socket, counted on the way through.

use std::{
    io::{self, IoSlice},
    net::Shutdown,
    os::fd::AsFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::life::Life;
use crate::sys;

/// The most bytes taken from the socket at once.
const READ: usize = 64 * 1024;

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    /// The first octet that waits to be read, or none at the end. It stays unread.
    pub(super) async fn first(&self) -> io::Result<Option<u8>> {
        let mut octet = [0];
        let seen = match self {
            Self::Tcp(stream) => stream.peek(&mut octet).await?,
            Self::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok((seen > 0).then_some(octet[0]))
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(parts),
            Self::Unix(stream) => stream.try_write_vectored(parts),
        }
    }

    /// How much of what was written the peer has not acknowledged; none where the system cannot say,
    /// which leaves the socket's readiness as the measure of progress.
    pub(super) fn unacknowledged(&self) -> u64 {
        let queued = match self {
            Self::Tcp(stream) => sys::unacknowledged(stream.as_fd()),
            Self::Unix(stream) => sys::unacknowledged(stream.as_fd()),
        };
        queued.unwrap_or(0)
    }

    /// Makes the coming close a reset, which frees what the kernel holds for the peer at once; a plain
    /// close would go on feeding a slow reader for minutes.
    pub(super) fn reset_on_close(&self) {
        if let Self::Tcp(stream) = self {
            // Fails only on a connection that has ended already.
            SockRef::from(stream).set_linger(Some(Duration::ZERO)).ok();
        }
    }

    /// Says that nothing more will come; what was written is still delivered.
    pub(super) fn end_output(&self) -> io::Result<()> {
        let ended = match self {
            Self::Tcp(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
            Self::Unix(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
        };
        match ended {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        }
    }
}

/// The socket as HTTP, or TLS below it, sees it.
#[derive(Debug)]
pub(super) struct Counted {
    socket: Arc<Socket>,
    life: Arc<Life>,
}

impl Counted {
    pub(super) const fn new(socket: Arc<Socket>, life: Arc<Life>) -> Self {
        Self { socket, life }
    }

    fn poll_out(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&Socket) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.socket.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    self.life.is_blocked();
                    return Poll::Pending;
                }
            }
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(written) => {
                    self.life.has_written(written);
                    return Poll::Ready(Ok(written));
                }
            }
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            let room = buffer.remaining().min(READ);
            let place = buffer.initialize_unfilled_to(room);
            match self.socket.try_read(place) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(read) => {
                    self.life.has_read(read);
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |socket| socket.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.end_output())
    }
}
