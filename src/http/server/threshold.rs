//! What stands between a connection's octets and the HTTP library: heads pass whole, checked, or not
//! at all.
//!
//! Promises: the library never sees a head it would turn away with an answer of its own; it sees the
//! end of the connection instead, once every earlier answer is out, and the refusal is ours to word.
//! At most one head is held, of bounded size (I11); bodies pass without a copy. Leaves to others:
//! what a head asks for.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::{life::Life, socket::Counted};
use crate::http::semantics::{HeadError, HeadScan, Scanned, check_head};

/// The most octets taken at once while a head is expected.
const READ: usize = 8 * 1024;

/// A connection's octets, in the clear.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Counted),
    Tls(Box<TlsStream<Counted>>),
}

/// Bounds of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes: usize,
    pub(super) fields: usize,
}

/// A connection's octets as the HTTP library sees them.
#[derive(Debug)]
pub(super) struct Threshold {
    stream: Stream,
    life: Arc<Life>,
    limits: HeadLimits,
    scan: HeadScan,
    /// Octets that may pass.
    passed: Bytes,
    /// The beginning of a head.
    head: Vec<u8>,
    /// The size at which the head's beginning is looked at again: doubling, so that a head that drips
    /// costs no more than a few looks.
    next_look: usize,
    refused: Option<HeadError>,
    /// Answers that have left the library's buffers.
    out: u64,
    waiting: Option<Waker>,
}

impl Threshold {
    pub(super) fn new(stream: Stream, life: Arc<Life>, limits: HeadLimits) -> Self {
        Self {
            stream,
            life,
            limits,
            scan: HeadScan::default(),
            passed: Bytes::new(),
            head: Vec::new(),
            next_look: 1,
            refused: None,
            out: 0,
            waiting: None,
        }
    }

    /// Why the last head was not let through.
    pub(super) const fn refused(&self) -> Option<HeadError> {
        self.refused
    }

    /// Says `words`, if any, and that nothing more follows.
    pub(super) async fn end(&mut self, words: &[u8]) -> io::Result<()> {
        self.stream.write_all(words).await?;
        self.stream.flush().await?;
        self.stream.shutdown().await
    }

    /// Whether the octets are encrypted on their way.
    pub(super) const fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Sorts octets that came while a head was expected.
    fn take(&mut self, bytes: &[u8]) {
        let mut passed = Vec::new();
        let mut rest = bytes;
        while self.refused.is_none() && !rest.is_empty() {
            let (used, scanned) = self.scan.next(rest);
            let (here, after) = rest.split_at_checked(used).unwrap_or((rest, &[]));
            rest = after;
            if scanned == Scanned::Other {
                passed.extend_from_slice(here);
                continue;
            }
            self.head.extend_from_slice(here);
            let whole = scanned == Scanned::HeadEnd;
            if self.head.len() > self.limits.bytes {
                self.refused = Some(HeadError::TooLarge);
            } else if whole || self.head.len() >= self.next_look {
                self.next_look = self.head.len().saturating_mul(2);
                self.refused = check_head(&self.head, self.limits.fields).err();
            }
            if whole && self.refused.is_none() {
                passed.append(&mut self.head);
                self.head = Vec::new();
                self.next_look = 1;
                if let Some(nth) = self.scan.conflict() {
                    self.life.has_two_lengths(nth);
                }
            }
        }
        if self.refused.is_some() {
            self.head = Vec::new();
        }
        self.passed = passed.into();
    }
}

impl AsyncRead for Threshold {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.passed.is_empty() {
                let here = this.passed.len().min(buffer.remaining());
                buffer.put_slice(&this.passed.split_to(here));
                return Poll::Ready(Ok(()));
            }
            if this.refused.is_some() {
                if this.life.answered() == Some(this.out) {
                    return Poll::Ready(Ok(()));
                }
                this.waiting = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if !this.scan.expects_head() {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
                let come = buffer.filled().get(before..).unwrap_or_default();
                this.life.has_heard(come.len());
                let (body, _) = this.scan.next(come);
                if let Some(next) = come.get(body..).filter(|next| !next.is_empty()) {
                    // What follows the body is a head, which passes whole or not at all.
                    let next = next.to_vec();
                    buffer.set_filled(before.saturating_add(body));
                    this.take(&next);
                }
                return Poll::Ready(Ok(()));
            }
            let mut room = [0; READ];
            let mut room = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.life.has_heard(room.filled().len());
            this.take(room.filled());
        }
    }
}

impl AsyncWrite for Threshold {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // The library flushes when its own buffers are empty.
        if let Some(answered) = self.life.answered() {
            self.out = answered;
            if let Some(waiting) = self.waiting.take() {
                waiting.wake();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
