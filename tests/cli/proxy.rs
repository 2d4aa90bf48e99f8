//! A proxy that hurts the answers that pass through it.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What is done to the body of a download.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hurt {
    /// The connection ends after so many bytes of the body.
    CutAfter(usize),
    /// The byte at this position of the body is another one.
    FlipAt(usize),
    /// After so many bytes of the body nothing more comes, and the connection stays.
    StandAfter(usize),
    /// The head is another one, once a part of the content was asked for.
    Head(fn(&str) -> String),
}

/// A listening proxy; downloads are counted.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) url: String,
    pub(crate) downloads: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy to `server` that hurts the first `times` downloads; it ends with the test.
    pub(crate) fn start(server: &str, hurt: Hurt, times: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let downloads = Arc::new(AtomicUsize::new(0));
        let (server, count) = (server.to_owned(), Arc::clone(&downloads));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (server, count) = (server.clone(), Arc::clone(&count));
                thread::spawn(move || pass(client.unwrap(), &server, hurt, times, &count));
            }
        });
        Self { url, downloads }
    }
}

fn pass(mut client: TcpStream, server: &str, hurt: Hurt, times: usize, downloads: &AtomicUsize) {
    let mut upstream = TcpStream::connect(server).unwrap();
    let mut request = head(&mut client);
    let line = String::from_utf8_lossy(&request);
    let is_download = ["/attachments/", "/content ", "GET /d/"]
        .iter()
        .any(|part| line.contains(part));
    // One request a connection, so that the end of an answer is the end of the connection.
    let at = request.windows(2).position(|w| w == b"\r\n").unwrap() + 2;
    request.splice(at..at, b"Connection: close\r\n".iter().copied());
    upstream.write_all(&request).unwrap();
    let mut answer = head(&mut upstream);
    let hurts = is_download && downloads.fetch_add(1, Ordering::SeqCst) < times;
    if let (true, Hurt::Head(change)) = (hurts, hurt) {
        answer = change(&String::from_utf8(answer).unwrap()).into_bytes();
    }
    client.write_all(&answer).unwrap();
    let mut at = 0;
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = upstream.read(&mut block) {
        let mut end = read;
        match hurt {
            Hurt::CutAfter(limit) if hurts => end = read.min(limit - at),
            Hurt::FlipAt(position) if hurts && (at..at + read).contains(&position) => {
                block[position - at] ^= 1;
            }
            Hurt::StandAfter(limit) if hurts && at + read > limit => {
                client.write_all(&block[..limit - at]).ok();
                // Until the client goes.
                while matches!(client.read(&mut block), Ok(1..)) {}
                return;
            }
            Hurt::CutAfter(_) | Hurt::FlipAt(_) | Hurt::StandAfter(_) | Hurt::Head(_) => {}
        }
        if client.write_all(&block[..end]).is_err() {
            return;
        }
        at += end;
        if end < read {
            return;
        }
    }
}

/// Reads up to the empty line.
fn head(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    head
}
