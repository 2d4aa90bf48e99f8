//! A server with a trivial service, and a client that says exactly what it is told to.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use axum::body::{Body, Bytes};
use futures_util::{StreamExt as _, stream};
use holdfast::{
    http::{
        semantics::HeadError,
        server::{Drained, Handler, Listener, Refusal, Traffic, serve},
    },
    model::Limits,
};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use socket2::{Domain, Socket, Type};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

/// What a chunk of `/bytes` is made of.
const CHUNK: &[u8] = &[b'x'; 16 * 1024];
/// Tests that count descriptors of the process run alone.
static ALONE: RwLock<()> = RwLock::new(());

/// Bounds short enough for a test.
pub(crate) fn short() -> Limits {
    Limits {
        head_deadline: Duration::from_millis(500),
        stall: Duration::from_millis(600),
        drain: Duration::from_millis(1500),
        ..Limits::default()
    }
}

/// `/`: `hello`. `/bytes?n`: n bytes. `/take`: reads the body, answers its length. `/refuse`: 413 at
/// once, without reading. `/think?ms`: answers after that time. Anything else: 404.
#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    busy: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
}

struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for Service {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        self.served.fetch_add(1, Ordering::SeqCst);
        self.busy.fetch_add(1, Ordering::SeqCst);
        let busy = Busy(Arc::clone(&self.busy));
        let query = request.uri().query().unwrap_or("0").to_owned();
        match request.uri().path() {
            "/" => Response::new(Body::from("hello")),
            "/bytes" => {
                let len: usize = query.parse().unwrap();
                let chunks = stream::iter((0..len).step_by(CHUNK.len())).map(move |sent| {
                    let _busy = &busy;
                    let chunk = &CHUNK[..CHUNK.len().min(len - sent)];
                    Ok::<_, io::Error>(Bytes::from_static(chunk))
                });
                let mut response = Response::new(Body::from_stream(chunks));
                response.headers_mut().insert("content-length", len.into());
                response
            }
            "/take" => {
                let mut body = request.into_body();
                let mut len = 0;
                while let Some(Ok(frame)) = body.frame().await {
                    len += frame.data_ref().map_or(0, Bytes::len);
                }
                Response::new(Body::from(len.to_string()))
            }
            "/refuse" => status(StatusCode::PAYLOAD_TOO_LARGE, "too much"),
            "/think" => {
                let time = Duration::from_millis(query.parse().unwrap());
                tokio::time::sleep(time).await;
                Response::new(Body::from("thought"))
            }
            _ => status(StatusCode::NOT_FOUND, "nothing"),
        }
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        let code = match refusal {
            Refusal::Head(HeadError::TooLarge) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::SlowHead => StatusCode::REQUEST_TIMEOUT,
            Refusal::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Authority(_) | Refusal::Framing | Refusal::Head(_) | Refusal::NotTls => {
                StatusCode::BAD_REQUEST
            }
        };
        status(code, &format!("{refusal:?}"))
    }
}

fn status(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response
}

/// Held for as long as the server lives.
#[expect(dead_code, reason = "held, never read")]
enum Company {
    Others(RwLockReadGuard<'static, ()>),
    Nobody(RwLockWriteGuard<'static, ()>),
}

impl Company {
    fn others() -> Self {
        Self::Others(ALONE.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn nobody() -> Self {
        Self::Nobody(ALONE.write().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) runtime: Runtime,
    service: Service,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Drained>,
    _company: Company,
}

impl Server {
    pub(crate) fn start(limits: Limits) -> Self {
        let company = Company::others();
        Self::start_with(limits, company, loopback)
    }

    pub(crate) fn alone(limits: Limits) -> Self {
        let company = Company::nobody();
        Self::start_with(limits, company, loopback)
    }

    pub(crate) fn on(limits: Limits, listener: impl FnOnce() -> Listener) -> Self {
        let company = Company::others();
        Self::start_with(limits, company, listener)
    }

    fn start_with(limits: Limits, company: Company, listener: impl FnOnce() -> Listener) -> Self {
        let runtime = Runtime::new().unwrap();
        let inside = runtime.enter();
        let listener = listener();
        let address = listener
            .address()
            .unwrap_or_else(|| "127.0.0.1:0".parse().unwrap());
        let (traffic, service) = (Arc::new(Traffic::default()), Service::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let served = runtime.spawn({
            let (service, traffic) = (service.clone(), Arc::clone(&traffic));
            async move {
                let stopped = async {
                    stopped.await.ok();
                };
                serve(listener, service, &limits, traffic, stopped).await
            }
        });
        drop(inside);
        Self {
            address,
            traffic,
            runtime,
            service,
            stop: Some(stop),
            served,
            _company: company,
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::of(TcpStream::connect(self.address).unwrap())
    }

    /// A client whose kernel takes little at a time.
    pub(crate) fn connect_narrow(&self) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&self.address.into()).unwrap();
        Client::of(socket.into())
    }

    /// Answers under way.
    pub(crate) fn busy(&self) -> usize {
        self.service.busy.load(Ordering::SeqCst)
    }

    /// Requests that reached the service.
    pub(crate) fn served(&self) -> usize {
        self.service.served.load(Ordering::SeqCst)
    }

    pub(crate) fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) fn stopped(self) -> Drained {
        self.runtime.block_on(self.served).unwrap()
    }

    /// Waits until no connection is held and no answer is under way.
    pub(crate) fn settles(&self, within: Duration) -> bool {
        until(within, || self.traffic.live() == 0 && self.busy() == 0)
    }
}

pub(crate) fn loopback() -> Listener {
    Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Whether something comes true in time.
pub(crate) fn until(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < within {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    holds()
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// An answer's status, head and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn closes(&self) -> bool {
        self.head.to_ascii_lowercase().contains("connection: close")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) fn of(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    pub(crate) fn get(&mut self, target: &str) -> &mut Self {
        self.say(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Reads up to and with the blank line that ends a head.
    pub(crate) fn head(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.read.split_off(end + 4);
                let head = std::mem::replace(&mut self.read, rest);
                return Ok(String::from_utf8(head).unwrap());
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.read.extend_from_slice(&buffer[..read]);
                Ok(())
            }
        }
    }

    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        self.answer_to("GET")
    }

    pub(crate) fn answer_to(&mut self, method: &str) -> io::Result<Answer> {
        let head = self.head()?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse::<usize>().unwrap())
        });
        let len = if method == "HEAD" {
            0
        } else {
            length.unwrap_or(0)
        };
        while self.read.len() < len {
            self.more()?;
        }
        let rest = self.read.split_off(len);
        let body = std::mem::replace(&mut self.read, rest);
        Ok(Answer { status, head, body })
    }

    /// Takes at most `len` bytes from the kernel.
    pub(crate) fn sip(&mut self, len: usize) -> io::Result<usize> {
        let buffered = self.read.len().min(len);
        self.read.drain(..buffered);
        if buffered == len {
            return Ok(len);
        }
        let mut buffer = vec![0; len - buffered];
        Ok(buffered + self.stream.read(&mut buffer)?)
    }

    /// Reads to the end; says how many bytes came, and how it ended.
    pub(crate) fn rest(&mut self) -> (usize, io::Result<()>) {
        let mut taken = std::mem::take(&mut self.read).len();
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return (taken, Ok(())),
                Ok(read) => taken += read,
                Err(error) => return (taken, Err(error)),
            }
        }
    }

    /// Whether the other side has ended the connection without a further byte.
    pub(crate) fn ended(&mut self) -> bool {
        matches!(self.rest(), (0, _))
    }
}
