//! A client that writes every byte of a request itself.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// Sends raw bytes and reads until the server closes.
pub(crate) fn send(address: &str, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

pub(crate) fn parse(answer: &[u8]) -> Answer {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head,
        body: answer[end + 4..].to_vec(),
    }
}

pub(crate) fn get(address: &str, path: &str, token: Option<&str>, fields: &[&str]) -> Answer {
    request(address, "GET", path, token, fields, b"")
}

pub(crate) fn post_json(address: &str, path: &str, body: &serde_json::Value) -> Answer {
    let body = body.to_string();
    request(
        address,
        "POST",
        path,
        None,
        &["Content-Type: application/json"],
        body.as_bytes(),
    )
}

pub(crate) fn post_json_as(
    address: &str,
    path: &str,
    token: &str,
    body: &serde_json::Value,
) -> Answer {
    let body = body.to_string();
    let json = ["Content-Type: application/json"];
    request(address, "POST", path, Some(token), &json, body.as_bytes())
}

pub(crate) fn request(
    address: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
    fields: &[&str],
    body: &[u8],
) -> Answer {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(token) = token {
        request.extend(["Authorization: Bearer ", token, "\r\n"]);
    }
    for field in fields {
        request.extend([field, "\r\n"]);
    }
    if method == "POST" {
        request.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
    }
    request += "\r\n";
    let mut bytes = request.into_bytes();
    bytes.extend(body);
    parse(&send(address, &bytes))
}
