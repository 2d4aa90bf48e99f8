//! Another origin: what it serves runs, and what runs anywhere tells it so.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

type Pages = Mutex<HashMap<String, (String, Vec<u8>)>>;

/// A careless server: content inline, with the type its name suggests, and nothing that holds it back.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) url: String,
    pages: Arc<Pages>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Elsewhere {
    /// Starts one; it ends with the test.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (pages, told) = (Arc::<Pages>::default(), Arc::default());
        let shared = (Arc::clone(&pages), Arc::clone(&told));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (pages, told) = shared.clone();
                thread::spawn(move || answer(client.unwrap(), &pages, &told));
            }
        });
        Self { url, pages, told }
    }

    /// Serves content at a path; its address.
    pub(crate) fn serve(&self, path: &str, media_type: &str, content: &[u8]) -> String {
        let page = (media_type.to_owned(), content.to_vec());
        self.pages.lock().unwrap().insert(path.to_owned(), page);
        format!("{}{path}", self.url)
    }

    /// Script that says that `what` ran, and where.
    pub(crate) fn tell(&self, what: &str) -> String {
        format!(
            "try {{ localStorage.setItem('ran', '{what}') }} catch (e) {{}} \
             fetch('{}/ran?{what}', {{mode: 'no-cors', keepalive: true}});",
            self.url
        )
    }

    /// What has run so far.
    pub(crate) fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }
}

fn answer(stream: TcpStream, pages: &Pages, told: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(line)) = lines.next() else { return };
    let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
    if let Some(what) = target.strip_prefix("/ran?") {
        told.lock().unwrap().push(what.to_owned());
    }
    while let Some(Ok(field)) = lines.next() {
        if field.is_empty() {
            break;
        }
    }
    let page = pages.lock().unwrap().get(&target).cloned();
    let (status, (media_type, content)) = match page {
        Some(page) => ("200 OK", page),
        None => ("404 Not Found", ("text/plain".to_owned(), Vec::new())),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        content.len()
    );
    let mut stream = stream;
    // A browser that has gone meanwhile does without.
    stream.write_all(head.as_bytes()).ok();
    stream.write_all(&content).ok();
}
