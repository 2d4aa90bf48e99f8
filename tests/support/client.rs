//! A client that normalises nothing: request targets and fields leave as they are written.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// How long a test waits for the server before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, read as far as it came.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case, in the order they came.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body came as far as `Content-Length` says.
    pub(crate) whole: bool,
    /// The octets of the head, for comparing answers.
    pub(crate) head: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(field, _)| field == name);
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "more than one {name}: {self:?}");
        first
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        assert_eq!(
            self.field("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        self.json()["code"].as_str().unwrap().to_owned()
    }

    /// Head and body with the request's id and the date made equal: what a caller can tell apart.
    pub(crate) fn masked(&self) -> String {
        let id = self.field("x-request-id").unwrap_or_default().to_owned();
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        text.push_str(&self.text());
        if !id.is_empty() {
            text = text.replace(&id, "<id>");
        }
        let date = self.field("date").unwrap_or_default();
        text.replace(date, "<date>")
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            pending: Vec::new(),
        }
    }

    /// Waits so long for the server from here on.
    pub(crate) fn is_patient(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    /// Sends octets as they are.
    pub(crate) fn send(&mut self, octets: &[u8]) -> io::Result<()> {
        self.stream.write_all(octets)
    }

    /// Sends octets and reads one answer.
    pub(crate) fn ask(&mut self, octets: &[u8]) -> Answer {
        self.send(octets).unwrap();
        self.read(octets.starts_with(b"HEAD "))
    }

    /// Reads an answer; `bare` for one without a body whatever its fields say.
    pub(crate) fn read(&mut self, bare: bool) -> Answer {
        let mut answer = self.read_head();
        let length = answer
            .field("content-length")
            .map(|text| text.parse().unwrap());
        let expected: usize = match (bare || answer.status == 304 || answer.status == 204, length) {
            (true, _) => 0,
            (false, Some(length)) => length,
            (false, None) => panic!("an answer without a length: {answer:?}"),
        };
        self.fill_to(expected);
        answer.whole = self.pending.len() >= expected;
        answer.body = self
            .pending
            .drain(..expected.min(self.pending.len()))
            .collect();
        answer
    }

    /// Reads a head and leaves the body where it is.
    pub(crate) fn read_head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.pending.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more(),
                "closed in a head: {:?}",
                String::from_utf8_lossy(&self.pending)
            );
        };
        let head: Vec<u8> = self.pending.drain(..end).collect();
        let text = String::from_utf8(head.clone()).unwrap();
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let fields = lines
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap_or((line, ""));
                (name.to_ascii_lowercase(), value.to_owned())
            })
            .collect();
        Answer {
            status,
            fields,
            body: Vec::new(),
            whole: true,
            head,
        }
    }

    /// Reads body octets until `count` are there or the connection ends; returns what there is.
    pub(crate) fn read_body(&mut self, count: usize) -> Vec<u8> {
        self.fill_to(count);
        self.pending
            .drain(..count.min(self.pending.len()))
            .collect()
    }

    /// Reads to the end of the connection.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.pending)
    }

    pub(crate) fn end_output(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    fn fill_to(&mut self, count: usize) {
        while self.pending.len() < count && self.more() {}
    }

    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.pending.extend_from_slice(&buffer[..n]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            // A lease of ours was broken, which a signal says.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.more(),
            Err(error) => panic!("waiting for the server: {error}"),
        }
    }
}
