use http::{HeaderMap, header};

use super::trim_blanks;

/// Bytes of a field line looked at: enough for either name, blanks and a length of 64 bits.
const MAX_LINE: usize = 96;

/// Finds the heads of a connection's requests, and watches them for the two contradictory lengths.
///
/// The HTTP library reads a request that has both `Transfer-Encoding` and `Content-Length` by the
/// first and hides the second, then closes; we refuse such a request, because whoever sends it hopes
/// that somebody on the way reads it differently. The bytes are only looked at, never changed. Where
/// this reading and the library's should ever differ, the library's own defence still stands.
///
/// # Source
/// RFC 9112 sections 6.1 and 6.3.
#[derive(Debug, Default)]
pub struct HeadScan {
    state: State,
    line: Vec<u8>,
    fields: Fields,
    heads: u64,
    conflict: Option<u64>,
}

#[derive(Debug, Default)]
enum State {
    /// Before the first octet of a head: blank lines are allowed here.
    #[default]
    Start,
    Lines,
    Body(u64),
    /// The rest is chunked, or not for us to read: the connection ends with this request.
    Done,
}

#[derive(Debug, Default)]
struct Fields {
    length: Option<u64>,
    has_length: bool,
    has_coding: bool,
}

/// What the first of some bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// Of a head that goes on.
    Head,
    /// Of a head, and its end.
    HeadEnd,
    /// Of a body of stated length, or of what nobody reads as a head.
    Other,
}

impl HeadScan {
    /// Looks at the next bytes of the connection.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (used, _) = self.next(bytes);
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    /// Looks at the next bytes of the connection, up to the end of a head or a body; says how many
    /// were looked at, which is none only of none, and what they are.
    pub fn next(&mut self, bytes: &[u8]) -> (usize, Scanned) {
        match self.state {
            State::Done => (bytes.len(), Scanned::Other),
            State::Body(left) => {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left.saturating_sub(u64::try_from(here).unwrap_or(u64::MAX));
                self.state = if left == 0 {
                    State::Start
                } else {
                    State::Body(left)
                };
                (here, Scanned::Other)
            }
            State::Start | State::Lines => {
                let mut used = 0_usize;
                while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
                    let end = rest.iter().position(|&b| b == b'\n');
                    let here = end.and_then(|end| rest.get(..end)).unwrap_or(rest);
                    let room = MAX_LINE.saturating_sub(self.line.len());
                    self.line
                        .extend_from_slice(here.get(..room).unwrap_or(here));
                    let Some(end) = end else {
                        return (bytes.len(), Scanned::Head);
                    };
                    used = used.saturating_add(end).saturating_add(1);
                    let heads = self.heads;
                    self.end_line();
                    if self.heads > heads {
                        return (used, Scanned::HeadEnd);
                    }
                }
                (bytes.len(), Scanned::Head)
            }
        }
    }

    /// Whether what comes next is, or goes on with, a head.
    #[must_use]
    pub fn expects_head(&self) -> bool {
        matches!(self.state, State::Start | State::Lines)
    }

    /// Which request of the connection, from 0, was the first to have both lengths.
    #[must_use]
    pub fn conflict(&self) -> Option<u64> {
        self.conflict
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        match (line.is_empty(), &self.state) {
            (true, State::Lines) => self.end_head(),
            (true, _) => {}
            (false, _) => {
                self.state = State::Lines;
                self.fields.take(line);
            }
        }
    }

    fn end_head(&mut self) {
        let fields = std::mem::take(&mut self.fields);
        if fields.has_coding && fields.has_length && self.conflict.is_none() {
            self.conflict = Some(self.heads);
        }
        self.heads = self.heads.saturating_add(1);
        self.state = match (fields.has_coding, fields.has_length, fields.length) {
            (true, _, _) | (false, true, None) => State::Done,
            (false, _, None | Some(0)) => State::Start,
            (false, _, Some(length)) => State::Body(length),
        };
    }
}

impl Fields {
    fn take(&mut self, line: &[u8]) {
        let mut halves = line.splitn(2, |&b| b == b':');
        let (Some(name), Some(value)) = (halves.next(), halves.next()) else {
            return;
        };
        let name = trim_blanks(name);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.has_coding = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.has_length = true;
            let digits = std::str::from_utf8(trim_blanks(value)).ok();
            self.length = digits.and_then(|digits| digits.parse().ok());
        }
    }
}

/// What a request's transfer coding allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// None: the connection can be used again.
    None,
    /// `chunked` alone: read it, then close, so that nothing can hide behind it.
    Chunked,
    /// Anything else: refused.
    Unknown,
}

/// Reads `Transfer-Encoding`: `chunked` and nothing else.
///
/// # Source
/// RFC 9112 section 6.1.
#[must_use]
pub fn coding(request: &HeaderMap) -> Coding {
    let mut lines = request.get_all(header::TRANSFER_ENCODING).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Coding::None,
        (Some(line), None) if trim_blanks(line.as_bytes()).eq_ignore_ascii_case(b"chunked") => {
            Coding::Chunked
        }
        (Some(_), _) => Coding::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{Coding, HeadScan, Scanned, coding};

    fn scan(parts: &[&str]) -> HeadScan {
        let mut scan = HeadScan::default();
        for part in parts {
            scan.feed(part.as_bytes());
        }
        scan
    }

    #[test]
    fn both_lengths_in_one_head_are_noticed_in_any_order_and_cut() {
        for head in [
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nCONTENT-LENGTH:5\r\n\r\n",
            "\r\n\r\nPOST / HTTP/1.1\nContent-Length: 5\nTransfer-Encoding: x\n\n",
        ] {
            assert_eq!(scan(&[head]).conflict(), Some(0), "{head:?}");
            let bytes: Vec<_> = head.chars().map(String::from).collect();
            let bytes: Vec<_> = bytes.iter().map(String::as_str).collect();
            assert_eq!(scan(&bytes).conflict(), Some(0), "{head:?} byte by byte");
        }
    }

    #[test]
    fn bodies_are_passed_over() {
        let body = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n";
        let first = format!("PUT / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        let second = "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(scan(&[&first, body]).conflict(), None);
        let both = scan(&[&first, body, second]);
        assert_eq!(both.conflict(), Some(1));
    }

    /// Cut anywhere, a stream falls into the same heads and bodies.
    #[test]
    fn heads_end_where_they_end_however_the_bytes_come() {
        let stream = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nPUT / HTTP/1.1\r\nContent-Length: 6\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\n\nGET";
        for cut in 1..stream.len() {
            let (mut scan, mut ends, mut at) = (HeadScan::default(), Vec::new(), 0);
            for part in stream.chunks(cut) {
                let mut rest = part;
                while !rest.is_empty() {
                    let (used, scanned) = scan.next(rest);
                    assert!(used > 0);
                    at += used;
                    rest = &rest[used..];
                    if scanned == Scanned::HeadEnd {
                        ends.push(at);
                    }
                }
            }
            assert_eq!(ends, [29, 66, 88], "in parts of {cut}");
            assert!(scan.expects_head());
        }
    }

    #[test]
    fn one_length_is_no_conflict_and_a_long_line_costs_no_memory() {
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n", "a".repeat(100_000));
        let scanned = scan(&[
            &long,
            "Content-Length: 0\r\n\r\nGET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ]);
        assert_eq!(scanned.conflict(), None);
        assert!(scan(&[long.trim_end()]).line.capacity() < 1024);
    }

    #[test]
    fn only_chunked_alone_is_a_coding() {
        for (lines, expected) in [
            (&[][..], Coding::None),
            (&["chunked"], Coding::Chunked),
            (&["Chunked"], Coding::Chunked),
            (&["gzip, chunked"], Coding::Unknown),
            (&["chunked", "chunked"], Coding::Unknown),
            (&["identity"], Coding::Unknown),
        ] {
            let mut request = HeaderMap::new();
            for line in lines {
                request.append(header::TRANSFER_ENCODING, HeaderValue::from_static(line));
            }
            assert_eq!(coding(&request), expected, "{lines:?}");
        }
    }
}
