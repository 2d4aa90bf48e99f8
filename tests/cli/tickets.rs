//! Tickets of a server that is killed.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use rustix::process::Signal;

use crate::{program::Home, wire};

/// Larger than what the sockets between the two hold.
const SIZE: usize = 48 << 20;

/// Keeps I12: `kill -9` in the middle of a download by a one-use ticket. After a new start the download
/// goes on where it was cut, and there is no other use of it.
#[test]
fn a_download_by_ticket_goes_on_after_a_kill_and_is_still_one_use() {
    let home = Home::new();
    let mut first = home.up();
    let session = first.text("session").to_owned();
    let mut content = vec![0; SIZE];
    for (index, word) in content.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(index as u64).to_le_bytes());
    }
    let file = home.file("large.bin", &content);
    home.json(&["put", "-s", &session, "--reference", file.to_str().unwrap()]);
    let ticket = home.json(&["ticket", "create", "-s", &session, "large.bin"]);
    let href = ticket["href"].as_str().unwrap();

    let mut stream = TcpStream::connect(first.address()).unwrap();
    let request = format!("GET {href} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = vec![0; 4 << 20];
    stream.read_exact(&mut got).unwrap();
    first.signal(Signal::KILL);
    first.wait();
    drop(stream);
    let body = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    got.drain(..body);

    let second = home.up();
    let address = second.address();
    let listed = home.json(&["ticket", "list", "--as", "you"]);
    assert_eq!(
        listed["tickets"].as_array().unwrap().len(),
        0,
        "the host made it"
    );
    let listed = home.json(&["ticket", "list"]);
    assert_eq!(listed["tickets"][0]["opened"], 1, "the use is kept");
    assert_eq!(wire::get(address, href, None, &[]).status, 404);
    let rest = format!("Range: bytes={}-", got.len());
    let answer = wire::get(address, href, None, &[&rest]);
    assert_eq!(answer.status, 206, "{}", answer.head);
    got.extend(answer.body);
    assert!(got == content);
    for again in [&rest[..], "Range: bytes=1-", "Range: bytes=0-"] {
        assert_eq!(
            wire::get(address, href, None, &[again]).status,
            404,
            "{again}"
        );
    }
}
