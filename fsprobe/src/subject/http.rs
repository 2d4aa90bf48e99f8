//! A subject that is a file server on this host, asked over HTTP one connection per read.
//!
//! Promises: only a literal loopback address is contacted; no name is resolved, no redirect
//! followed, no proxy used; every answer is bounded in size and time.

#![forbid(unsafe_code)]

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    arena::{Cell, TARGET},
    error::ProbeError,
    oracle::{Answer, Ending, Shape},
    subject::{Claims, Refusal, Subject},
};

/// The most that is read of an answer beyond the ceiling, headers included.
const SLACK: u64 = 256 << 10;

/// A file server that serves [`Http::root`].
#[derive(Debug, Clone)]
pub struct Http {
    /// The name reports use.
    pub name: String,
    /// The directory the server serves; a fresh subdirectory is made in it and removed again.
    pub root: PathBuf,
    /// What it undertakes.
    pub claims: Claims,
    address: SocketAddr,
    /// What follows the address, with `{path}` in it.
    target: String,
}

impl Http {
    /// The server that answers at `url`, a template such as `http://127.0.0.1:8080/{path}`.
    ///
    /// # Errors
    /// [`ProbeError::Usage`] for anything but plain HTTP to a literal loopback address with `{path}`
    /// in its path.
    pub fn new(root: PathBuf, url: &str) -> Result<Self, ProbeError> {
        let usage = |why: &str| ProbeError::Usage(format!("{url}: {why}"));
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| usage("only http:// is probed"))?;
        let (authority, target) = rest
            .split_once('/')
            .ok_or_else(|| usage("there is no path in it"))?;
        let address = parse_authority(authority)
            .ok_or_else(|| usage("the host must be a literal address, such as 127.0.0.1:8080"))?;
        if !address.ip().is_loopback() {
            return Err(usage("only a loopback address is probed"));
        }
        if !target.contains("{path}") {
            return Err(usage("there is no {path} in it"));
        }
        if target
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || c == '#')
        {
            return Err(usage("its path has characters a request line cannot carry"));
        }
        Ok(Self {
            name: format!("http-{}", address.port()),
            root,
            claims: Claims::default(),
            address,
            target: format!("/{target}"),
        })
    }

    /// The address template.
    #[must_use]
    pub fn template(&self) -> String {
        format!("http://{}{}", self.address, self.target)
    }

    /// The same question to a server at `address` that serves the same directory as `/`.
    pub(crate) fn served_by(&self, address: SocketAddr) -> Self {
        Self {
            address,
            target: "/{path}".to_owned(),
            ..self.clone()
        }
    }

    /// Asks for the cell's file once, and waits at most `patience` in all.
    pub(crate) fn read(&self, cell: &Cell, patience: Duration) -> Answer {
        let ceiling = cell.setup().ceiling;
        match self.ask(cell, patience, ceiling + SLACK) {
            Ok(answer) => answer,
            Err(error) if is_timeout(&error) => Answer::hung(),
            Err(error) => {
                let class = if error.kind() == io::ErrorKind::ConnectionRefused {
                    "connection refused"
                } else if error.kind() == io::ErrorKind::InvalidData {
                    "malformed answer"
                } else {
                    "connection broken"
                };
                Answer::of(Err(Refusal::new(class)))
            }
        }
    }

    fn ask(&self, cell: &Cell, patience: Duration, most: u64) -> io::Result<Answer> {
        let deadline = Instant::now() + patience;
        let mut stream = TcpStream::connect_timeout(&self.address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        // The arena's own names are plain ASCII, so nothing needs escaping.
        let beneath = cell
            .root_path()
            .strip_prefix(cell.served_root())
            .unwrap_or(Path::new(""));
        let path = format!("{}/{TARGET}", beneath.display());
        let target = self.target.replace("{path}", &path);
        let host = self.address;
        stream.write_all(
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        )?;
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        let mut ended = io::Result::Ok(());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Err(error),
                // A reset after some bytes: what came still counts.
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
            if bytes.len() as u64 > most || is_complete(&bytes) {
                break;
            }
        }
        if bytes.is_empty() {
            ended?;
        }
        understand(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

fn parse_authority(authority: &str) -> Option<SocketAddr> {
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return Some(address);
    }
    let bare = authority
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(authority)
        .parse::<IpAddr>()
        .ok()
        .map(|ip| SocketAddr::new(ip, 80))
}

/// An answer's head, as far as the probe cares.
struct Head {
    status: u16,
    length: Option<usize>,
    is_chunked: bool,
    body: usize,
}

fn head(bytes: &[u8]) -> Option<Head> {
    const END: &[u8] = b"\r\n\r\n";
    let end = bytes.windows(END.len()).position(|window| window == END)?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let mut lines = text.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut head = Head {
        status,
        length: None,
        is_chunked: false,
        body: end + END.len(),
    };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.trim().parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.is_chunked = value.to_ascii_lowercase().contains("chunked");
        }
    }
    Some(head)
}

/// Whether nothing more is to be expected, for servers that keep the connection open.
fn is_complete(bytes: &[u8]) -> bool {
    let Some(head) = head(bytes) else {
        return false;
    };
    match head.length {
        _ if head.is_chunked => bytes.ends_with(b"0\r\n\r\n"),
        Some(length) => bytes.len() >= head.body.saturating_add(length),
        None => false,
    }
}

/// The answer a whole response amounts to; `None` where it is no HTTP.
fn understand(bytes: &[u8]) -> Option<Answer> {
    let head = head(bytes)?;
    let raw = bytes.get(head.body..).unwrap_or_default();
    let (body, is_whole) = if head.is_chunked {
        unchunk(raw)
    } else {
        let is_whole = head.length.is_none_or(|length| raw.len() == length);
        (raw.to_vec(), is_whole)
    };
    let ending = if head.status != 200 {
        Ending::Refused(Refusal::new(format!("status {}", head.status)))
    } else if is_whole {
        Ending::Whole
    } else {
        Ending::Refused(Refusal::new("shorter than announced"))
    };
    Some(Answer {
        bytes: body,
        ending,
        shape: Shape::Exact,
    })
}

/// The content of a chunked body, and whether its end was there.
fn unchunk(mut raw: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(line) = raw.windows(2).position(|window| window == b"\r\n") else {
            return (body, false);
        };
        let size = raw
            .get(..line)
            .and_then(|line| std::str::from_utf8(line).ok());
        let size = size.and_then(|text| text.split(';').next());
        let Some(size) = size.and_then(|text| usize::from_str_radix(text.trim(), 16).ok()) else {
            return (body, false);
        };
        raw = raw.get(line + 2..).unwrap_or_default();
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = raw.get(..size) else {
            body.extend_from_slice(raw);
            return (body, false);
        };
        body.extend_from_slice(chunk);
        raw = raw
            .get(size..)
            .and_then(|rest| rest.strip_prefix(b"\r\n"))
            .unwrap_or_default();
    }
}

/// A file server of our own around a reader of known worth, for comparison.
pub(crate) struct ControlServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ControlServer {
    /// Serves `root` through `subject` on a free loopback port until dropped.
    pub(crate) fn start(
        root: PathBuf,
        subject: Arc<dyn Subject>,
        ceiling: u64,
    ) -> Result<Self, ProbeError> {
        let host = |source| ProbeError::Host {
            what: "listen on a loopback port",
            source,
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(host)?;
        let address = listener.local_addr().map_err(host)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("fsprobe-control".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    // One client at a time is all there is; one that breaks off is its own affair.
                    if let Ok(stream) = stream {
                        drop(serve(stream, &root, subject.as_ref(), ceiling));
                    }
                }
            })
            .map_err(|source| ProbeError::Host {
                what: "start a thread",
                source,
            })?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes it from its wait for a client.
        drop(TcpStream::connect_timeout(
            &self.address,
            Duration::from_secs(1),
        ));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            debug_assert!(false, "the control server panicked");
        }
    }
}

fn serve(
    mut stream: TcpStream,
    root: &Path,
    subject: &dyn Subject,
    ceiling: u64,
) -> io::Result<()> {
    let patience = Some(Duration::from_secs(2));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") && request.len() < 8192 {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(chunk.get(..count).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&request);
    let path = text
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/');
    let read = subject
        .open(root)
        .and_then(|mut reader| reader.read(Path::new(path), ceiling, &mut |_step| {}));
    let (status, body) = match read {
        Ok(bytes) => ("200 OK", bytes),
        Err(_refused) => ("403 Forbidden", Vec::new()),
    };
    let length = body.len();
    stream.write_all(
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    )?;
    stream.write_all(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_literal_loopback_address_is_accepted() {
        for (url, accepted) in [
            ("http://127.0.0.1:8080/{path}", true),
            ("http://127.9.9.9/files/{path}?raw=1", true),
            ("http://[::1]:80/{path}", true),
            ("http://[::1]/{path}", true),
            ("http://localhost:8080/{path}", false),
            ("http://10.0.0.1/{path}", false),
            ("http://[::ffff:127.0.0.1]/{path}", false),
            ("http://user@127.0.0.1/{path}", false),
            ("https://127.0.0.1/{path}", false),
            ("http://127.0.0.1:8080/", false),
            ("http://127.0.0.1:8080", false),
            ("http://127.0.0.1/{path} HTTP/1.1\r\nX:", false),
        ] {
            assert_eq!(
                Http::new(PathBuf::from("/"), url).is_ok(),
                accepted,
                "{url}"
            );
        }
    }

    #[test]
    fn answers_are_understood_by_their_framing() {
        let ok = "HTTP/1.1 200 OK\r\n";
        for (response, body, ending) in [
            (format!("{ok}Content-Length: 3\r\n\r\nabc"), "abc", "whole"),
            (
                format!("{ok}Content-Length: 4\r\n\r\nabc"),
                "abc",
                "shorter than announced",
            ),
            (format!("{ok}\r\nabc"), "abc", "whole"),
            (
                format!("{ok}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n"),
                "abc",
                "whole",
            ),
            (
                format!("{ok}Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
                "ab",
                "shorter than announced",
            ),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\n\r\n".to_owned(),
                "",
                "status 302",
            ),
        ] {
            let answer = understand(response.as_bytes()).unwrap();
            assert_eq!(answer.bytes, body.as_bytes(), "{response}");
            let said = match &answer.ending {
                Ending::Whole => "whole",
                Ending::Refused(refusal) => &refusal.class,
                Ending::Hung => "hung",
            };
            assert_eq!(said, ending, "{response}");
        }
        assert_eq!(understand(b"SSH-2.0-OpenSSH\r\n"), None);
    }
}
