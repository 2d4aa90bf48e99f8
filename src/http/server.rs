//! The accept loop: connections, their limits, and how they end.
//!
//! Promises: everything a peer can hold is bounded (I11): the number of connections, the time for a
//! whole head counted from the accept, the size and count of its fields, and the time without
//! progress in either direction, measured by what the peer acknowledged. A peer that is given up is
//! reset, so that the kernel keeps nothing for it. A request with an ambiguous target, host or length
//! never reaches the service. Leaves to others: what a request means.

#![forbid(unsafe_code)]

mod crowd;
mod life;
mod listener;
mod socket;
mod threshold;
pub mod tls;
mod words;

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::body::{Body, Bytes};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    crowd::{Crowd, Seat},
    life::{Life, Patience},
    socket::{Counted, Socket},
    threshold::{HeadLimits, Stream, Threshold},
    tls::Tls,
};
pub use self::{
    life::Cut,
    listener::{Listener, Peer},
};
use super::semantics::{self, AuthorityError, Coding, HeadError, Host};
use crate::model::Limits;

/// How long a connection that has ended stays open for the peer to read the last answer.
const LINGER: Duration = Duration::from_secs(2);
/// The least room for a connection's buffers beside a request's head.
const BUFFER: usize = 32 * 1024;
/// The most peers turned away at the door at once that are given time to read why.
const PARTING: usize = 32;
/// What a TLS connection begins with: a handshake record.
const HANDSHAKE: u8 = 0x16;
/// The wait after the system refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers a request. Its extensions hold the [`Peer`] and the [`Host`].
    ///
    /// Dropped when the peer goes away or is given up.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;

    /// Renders a refusal that was decided before routing.
    fn refuse(&self, refusal: Refusal) -> Response<Body>;
}

/// Why a request was refused before it reached the service. Its connection is closed afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Target or host: 400, a target that is too long 414.
    Authority(AuthorityError),
    /// Two lengths, or a transfer coding other than `chunked` alone: 400.
    Framing,
    /// A head that cannot be read, 400, or is too large: 431, or 414.
    Head(HeadError),
    /// A head that did not arrive in time: 408.
    SlowHead,
    /// The peer's address holds all the connections it may: 503.
    Crowded,
    /// Plain HTTP where TLS is spoken: 400.
    NotTls,
}

/// Counts of connections: for metrics, and for tests that look for leaks.
#[derive(Debug, Default)]
pub struct Traffic {
    live: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
}

impl Traffic {
    /// Connections held at this moment.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Connections accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed at once: a peer that may not connect, or has too many.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connections given up while they waited for the peer.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }
}

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were reset because they were still busy at the deadline.
    pub cut: u64,
}

/// Serves `listener` until `shutdown` is ready, then drains.
///
/// At [`Limits::connections`] no more are accepted: they wait in the kernel's bounded queue, not in
/// ours. Beyond [`Limits::connections_per_address`] an address is turned away: with 503, or without a
/// word where TLS would have to be set up first. On shutdown nothing is accepted any more, idle
/// connections close, requests under way finish within [`Limits::drain`], and what is left is reset.
/// Returns once the last connection has gone.
pub async fn serve<H: Handler>(
    listener: Listener,
    handler: H,
    limits: &Limits,
    traffic: Arc<Traffic>,
    shutdown: impl Future<Output = ()>,
) -> Drained {
    let server = Server {
        handler,
        http: http(limits),
        head: HeadLimits {
            bytes: usize::try_from(limits.request_head.get()).unwrap_or(usize::MAX),
            fields: limits.request_fields,
        },
        tls: listener.tls(),
        patience: Patience::of(limits),
        traffic,
        drain: CancellationToken::new(),
        kill: CancellationToken::new(),
    };
    let tasks = TaskTracker::new();
    let room = Arc::new(Semaphore::new(limits.connections));
    let crowd = Arc::new(Crowd::new(limits.connections_per_address));
    let parting = Arc::new(Semaphore::new(PARTING));
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let (permit, socket, peer) = match accepted {
            Ok(accepted) => accepted,
            // The peer went away first.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !peer.may_connect() {
            server.traffic.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let Some(seat) = crowd.seat(peer) else {
            server.traffic.refused.fetch_add(1, Ordering::Relaxed);
            // Who is turned away may not fill the room either: beyond a few, without a word.
            if let Ok(few) = Arc::clone(&parting).try_acquire_owned()
                && server.tls.is_none()
            {
                tasks.spawn(server.clone().turn_away(socket, (permit, few)));
            }
            continue;
        };
        let held = Held::new(Arc::clone(&server.traffic), permit, seat);
        tasks.spawn(server.clone().connection(socket, peer, held));
    }
    drop(listener);
    tasks.close();
    server.drain.cancel();
    if tokio::time::timeout(limits.drain, tasks.wait())
        .await
        .is_ok()
    {
        return Drained { cut: 0 };
    }
    let cut = server.traffic.live();
    server.kill.cancel();
    tasks.wait().await;
    Drained { cut }
}

async fn accept(
    listener: &Listener,
    room: &Arc<Semaphore>,
) -> io::Result<(OwnedSemaphorePermit, Socket, Peer)> {
    let permit = Arc::clone(room).acquire_owned().await;
    let permit = permit.expect("nobody closes the semaphore");
    let (socket, peer) = listener.accept().await?;
    Ok((permit, socket, peer))
}

/// The HTTP library with our bounds. Its own head timer is off: it starts too late and ends too
/// early, the watch of [`life`] covers the whole head from the accept on.
fn http(limits: &Limits) -> http1::Builder {
    let head = usize::try_from(limits.request_head.get()).unwrap_or(usize::MAX);
    let mut http = http1::Builder::new();
    http.header_read_timeout(None)
        .max_header_size(head)
        .max_headers(limits.request_fields)
        .max_buf_size(head.saturating_add(BUFFER));
    http
}

/// A connection's place among the others, given back when it ends.
struct Held {
    traffic: Arc<Traffic>,
    _permit: OwnedSemaphorePermit,
    _seat: Seat,
}

impl Held {
    fn new(traffic: Arc<Traffic>, permit: OwnedSemaphorePermit, seat: Seat) -> Self {
        traffic.accepted.fetch_add(1, Ordering::Relaxed);
        traffic.live.fetch_add(1, Ordering::Relaxed);
        Self {
            traffic,
            _permit: permit,
            _seat: seat,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.traffic.live.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Server<H> {
    handler: H,
    http: http1::Builder,
    head: HeadLimits,
    tls: Option<Arc<Tls>>,
    patience: Patience,
    traffic: Arc<Traffic>,
    drain: CancellationToken,
    kill: CancellationToken,
}

impl<H: Handler> Server<H> {
    async fn connection(self, socket: Socket, peer: Peer, held: Held) {
        let socket = Arc::new(socket);
        let life = Arc::new(Life::new(self.patience, Instant::now()));
        let counted = Counted::new(Arc::clone(&socket), Arc::clone(&life));
        match self.stream(counted, &socket, &life).await {
            Err(Unheard::Gone) => {}
            Err(Unheard::Cut(cut)) => self.count_cut(peer, cut),
            Err(Unheard::NotTls(counted)) => {
                let mut threshold = self.threshold(Stream::Plain(counted), &life);
                let words = self.handler.refuse(Refusal::NotTls);
                self.farewell(&mut threshold, Some(words), &socket, &life)
                    .await;
            }
            Ok(stream) => self.conversation(stream, peer, &socket, &life).await,
        }
        // The descriptor is closed before the place is given back.
        drop(socket);
        drop(held);
    }

    async fn conversation(
        &self,
        stream: Stream,
        peer: Peer,
        socket: &Arc<Socket>,
        life: &Arc<Life>,
    ) {
        let threshold = self.threshold(stream, life);
        let (mut threshold, cut) = self.requests(threshold, socket, life, peer).await;
        if let Some(cut) = cut {
            self.count_cut(peer, cut);
        }
        let refusal = match cut {
            None => threshold.refused().map(Refusal::Head),
            Some(Cut::SlowHead) => Some(Refusal::SlowHead),
            // Nothing was asked: nothing is said, but that TLS ends as it should.
            Some(Cut::Idle) if threshold.is_tls() => None,
            Some(Cut::Idle) => return,
            Some(Cut::StalledOut | Cut::StalledIn | Cut::TooSlow | Cut::Drained) => {
                return socket.reset_on_close();
            }
        };
        let words = refusal.map(|refusal| self.handler.refuse(refusal));
        self.farewell(&mut threshold, words, socket, life).await;
    }

    fn count_cut(&self, peer: Peer, cut: Cut) {
        self.traffic.cut.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(?peer, ?cut, "connection given up");
    }

    fn threshold(&self, stream: Stream, life: &Arc<Life>) -> Threshold {
        Threshold::new(stream, Arc::clone(life), self.head)
    }

    /// The connection's octets in the clear: at once, or after TLS has been set up, which has the time
    /// of a head.
    async fn stream(
        &self,
        counted: Counted,
        socket: &Socket,
        life: &Life,
    ) -> Result<Stream, Unheard> {
        let Some(tls) = &self.tls else {
            return Ok(Stream::Plain(counted));
        };
        let mut opening = pin!(async {
            match socket.first().await {
                Ok(Some(HANDSHAKE)) => {}
                Ok(Some(_)) => return Err(Unheard::NotTls(counted)),
                Ok(None) | Err(_) => return Err(Unheard::Gone),
            }
            match tls.accept(counted).await {
                Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
                Err(error) => {
                    tracing::debug!(%error, "no TLS");
                    Err(Unheard::Gone)
                }
            }
        });
        let mut look = tokio::time::interval(self.patience.interval());
        loop {
            tokio::select! {
                biased;
                opened = &mut opening => return opened,
                () = self.kill.cancelled() => return Err(Unheard::Cut(Cut::Drained)),
                // Nothing has been asked yet.
                () = self.drain.cancelled() => return Err(Unheard::Cut(Cut::Idle)),
                _ = look.tick() => {}
            }
            if let Some(cut) = life.judge(Instant::now(), socket.unacknowledged()) {
                socket.reset_on_close();
                return Err(Unheard::Cut(cut));
            }
        }
    }

    /// Serves requests until the connection ends by itself, or is to be given up.
    async fn requests(
        &self,
        threshold: Threshold,
        socket: &Socket,
        life: &Arc<Life>,
        peer: Peer,
    ) -> (Threshold, Option<Cut>) {
        let service = service_fn(|request| {
            // At once, before the library reads on: what follows must find this request begun.
            let two_lengths = life.begins();
            Box::pin(async move {
                Ok::<_, Infallible>(self.request(request, two_lengths, peer, life).await)
            })
        });
        let connection = self.http.serve_connection(TokioIo::new(threshold), service);
        let mut connection = Box::new(connection);
        let mut look = tokio::time::interval(self.patience.interval());
        let mut draining = false;
        let cut = loop {
            tokio::select! {
                biased;
                ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => {
                    if let Err(error) = ended {
                        tracing::debug!(?peer, %error, "connection ended early");
                    }
                    break None;
                }
                () = self.kill.cancelled() => break Some(Cut::Drained),
                () = self.drain.cancelled(), if !draining => {
                    draining = true;
                    Pin::new(&mut *connection).graceful_shutdown();
                }
                _ = look.tick() => {}
            }
            let unacknowledged = socket.unacknowledged();
            if draining && life.is_idle(unacknowledged) {
                break Some(Cut::Idle);
            }
            if let Some(cut) = life.judge(Instant::now(), unacknowledged) {
                break Some(cut);
            }
        };
        (connection.into_parts().io.into_inner(), cut)
    }

    /// Turns a peer away that has not been heard.
    async fn turn_away(self, socket: Socket, place: (OwnedSemaphorePermit, OwnedSemaphorePermit)) {
        let socket = Arc::new(socket);
        let life = Arc::new(Life::new(self.patience, Instant::now()));
        let counted = Counted::new(Arc::clone(&socket), Arc::clone(&life));
        let mut threshold = self.threshold(Stream::Plain(counted), &life);
        let words = self.handler.refuse(Refusal::Crowded);
        self.farewell(&mut threshold, Some(words), &socket, &life)
            .await;
        drop(threshold);
        drop(socket);
        drop(place);
    }

    /// Ends a connection: with `words`, if any, and in a way that lets the peer read what was said.
    async fn farewell(
        &self,
        threshold: &mut Threshold,
        words: Option<Response<Body>>,
        socket: &Socket,
        life: &Life,
    ) {
        let words = match words {
            Some(words) => words::last(words).await,
            None => Vec::new(),
        };
        let mut saying = pin!(threshold.end(&words));
        let mut look = tokio::time::interval(self.patience.interval());
        let said = loop {
            tokio::select! {
                biased;
                said = &mut saying => break said,
                () = self.kill.cancelled() => return socket.reset_on_close(),
                _ = look.tick() => {}
            }
            if life.judge(Instant::now(), socket.unacknowledged()) == Some(Cut::StalledOut) {
                self.traffic.cut.fetch_add(1, Ordering::Relaxed);
                return socket.reset_on_close();
            }
        };
        if said.is_ok() {
            self.last_words(socket, life).await;
        }
    }

    async fn request(
        &self,
        request: Request<Incoming>,
        two_lengths: bool,
        peer: Peer,
        life: &Arc<Life>,
    ) -> Response<Body> {
        let coding = semantics::coding(request.headers());
        let checked = match coding {
            _ if two_lengths => Err(Refusal::Framing),
            Coding::Unknown => Err(Refusal::Framing),
            Coding::None | Coding::Chunked => semantics::check_target(request.uri())
                .and_then(|()| Host::of(request.headers()))
                .map_err(Refusal::Authority),
        };
        let refused = checked.is_err();
        let mut response = match checked {
            Err(refusal) => self.handler.refuse(refusal),
            Ok(host) => {
                let mut request = request.map(|body| Body::new(Received::new(body, life)));
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(host);
                self.handler.answer(request).await
            }
        };
        if response.status() == StatusCode::NOT_MODIFIED {
            // It would be taken for that of the content (RFC 9110, 8.6).
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        // After a chunked body nobody can be of two minds about where the next head begins.
        if refused || coding == Coding::Chunked {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response.map(|body| Body::new(Sent::new(body, life)))
    }

    /// Keeps an ended connection until the peer has the last answer: a close with unread input
    /// would reset it, and the answer with it.
    async fn last_words(&self, socket: &Socket, life: &Life) {
        let mut look = tokio::time::interval(self.patience.interval());
        let mut sink = vec![0; 4096];
        let mut acknowledged: Option<Instant> = None;
        loop {
            tokio::select! {
                ready = socket.readable() => match ready.and_then(|()| socket.try_read(&mut sink)) {
                    Ok(0) => return,
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                    Ok(_) | Err(_) => {}
                },
                () = self.kill.cancelled() => return socket.reset_on_close(),
                _ = look.tick() => {}
            }
            let (now, unacknowledged) = (Instant::now(), socket.unacknowledged());
            if unacknowledged == 0 {
                let since = *acknowledged.get_or_insert(now);
                if self.drain.is_cancelled() || now.saturating_duration_since(since) > LINGER {
                    return;
                }
            } else if life.judge(now, unacknowledged) == Some(Cut::StalledOut) {
                self.traffic.cut.fetch_add(1, Ordering::Relaxed);
                return socket.reset_on_close();
            }
        }
    }
}

/// Why a connection ends before a request could be heard.
enum Unheard {
    /// The peer went, or spoke no TLS that is understood.
    Gone,
    /// It was given up.
    Cut(Cut),
    /// The peer speaks in the clear where TLS is spoken.
    NotTls(Counted),
}

/// A request's body; tells the watch when the service waits for it.
struct Received {
    body: Incoming,
    life: Arc<Life>,
}

impl Received {
    fn new(body: Incoming, life: &Arc<Life>) -> Self {
        let life = Arc::clone(life);
        Self { body, life }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.life.wants_body(frame.is_pending());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.life.wants_body(false);
    }
}

/// An answer's body; tells the watch when it has been handed over.
struct Sent {
    body: Body,
    life: Arc<Life>,
}

impl Sent {
    fn new(body: Body, life: &Arc<Life>) -> Self {
        let life = Arc::clone(life);
        Self { body, life }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.life.ends(Instant::now());
    }
}
