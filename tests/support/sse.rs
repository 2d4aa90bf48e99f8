//! A reader of the event stream that can stop reading, and says what it saw.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::server::{Person, Server, request};

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Sse {
    socket: TcpStream,
    octets: Vec<u8>,
    text: String,
    /// Everything read so far.
    pub(crate) seen: Vec<Frame>,
    /// `streamId` of `ready`.
    pub(crate) stream: String,
    ended: bool,
    patience: Option<Instant>,
}

impl Sse {
    /// Opens a stream and reads its baseline.
    pub(crate) fn open(server: &Server, who: &Person, last: Option<&str>) -> Self {
        let mut sse = Self::unread(server, who, last);
        let ready = sse.until("ready");
        ready.data["streamId"]
            .as_str()
            .unwrap()
            .clone_into(&mut sse.stream);
        sse.until("live");
        sse
    }

    /// Opens a stream of which nothing is read.
    pub(crate) fn unread(server: &Server, who: &Person, last: Option<&str>) -> Self {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let fields: Vec<_> = last
            .map(|last| ("Last-Event-ID", last))
            .into_iter()
            .collect();
        let octets = request("GET", "/v1/events", Some(&who.token), &fields, None);
        socket.write_all(&octets).unwrap();
        Self {
            socket,
            octets: Vec::new(),
            text: String::new(),
            seen: Vec::new(),
            stream: String::new(),
            ended: false,
            patience: None,
        }
    }

    /// The next frame; none when the stream is over.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let mut lines = block.lines();
                    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                };
                let Some(event) = field("event") else {
                    continue;
                };
                let frame = Frame {
                    id: field("id").map(str::to_owned),
                    event: event.to_owned(),
                    data: serde_json::from_str(field("data").unwrap()).unwrap(),
                };
                self.seen.push(frame.clone());
                return Some(frame);
            }
            let is_late = self.patience.is_some_and(|until| Instant::now() > until);
            if self.ended || is_late || !self.more() {
                return None;
            }
        }
    }

    /// Reads up to a frame of this type. Signs of life do not make it wait for ever.
    pub(crate) fn until(&mut self, event: &str) -> Frame {
        self.patience = Some(Instant::now() + Duration::from_mins(1));
        loop {
            match self.next() {
                Some(frame) if frame.event == event => return frame,
                Some(_) => {}
                None => panic!("no {event} in {:?}", self.seen),
            }
        }
    }

    /// Reads up to a sign of life that is no frame; whether one came.
    pub(crate) fn beats(&mut self) -> bool {
        let until = Instant::now() + Duration::from_mins(1);
        while !self.text.starts_with(":\n\n") {
            let has_frame = self.text.contains("\n\n");
            let goes_on = if has_frame {
                self.next().is_some()
            } else {
                self.more()
            };
            if !goes_on || Instant::now() > until {
                return false;
            }
        }
        true
    }

    /// Reads to the end of the stream.
    pub(crate) fn drain(&mut self) {
        while self.next().is_some() {}
    }

    /// The frames of this type so far.
    pub(crate) fn all(&self, event: &str) -> Vec<&Frame> {
        self.seen.iter().filter(|one| one.event == event).collect()
    }

    /// The id of the last frame read that has one.
    pub(crate) fn last_id(&self) -> String {
        let ids = self.seen.iter().rev().filter_map(|frame| frame.id.clone());
        ids.into_iter().next().unwrap()
    }

    /// Shows the server that the stream is read.
    pub(crate) fn acknowledge(&self, server: &Server, who: &Person) -> u16 {
        let target = format!("/v1/streams/{}/ack", self.stream);
        let form = json!({"lastEventId": self.last_id()});
        server.post(&target, who, &form).status
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) => self.octets.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return false,
            // A lease of ours was broken, which a signal says.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return true,
            Err(error) => panic!("waiting for a frame: {error}; seen {:?}", self.seen),
        }
        // The head goes away with the first chunk.
        if let Some(end) = self.octets.windows(4).position(|four| four == b"\r\n\r\n")
            && self.octets.starts_with(b"HTTP/")
        {
            let head = String::from_utf8_lossy(&self.octets[..end]).into_owned();
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            self.octets.drain(..end + 4);
        }
        if self.octets.starts_with(b"HTTP/") {
            return true;
        }
        while let Some(line) = self.octets.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.octets[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            let whole = line + 2 + size + 2;
            if self.octets.len() < whole {
                break;
            }
            let chunk = &self.octets[line + 2..line + 2 + size];
            self.text.push_str(std::str::from_utf8(chunk).unwrap());
            self.octets.drain(..whole);
            self.ended |= size == 0;
        }
        true
    }
}
