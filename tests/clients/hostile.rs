//! Hostile peers beside healthy ones, in one run: each hostile request has its right answer, healthy
//! clients of every door get their bytes meanwhile, and the server's memory stays where it was.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::{
    doors::{DOORS, House},
    wire,
};

/// What a healthy client downloads, in bytes.
const SIZE: u32 = 4 << 20;
/// What every peer may cost while it is there, in KiB, and all of them together.
const EACH: u64 = 1 << 10;
const ALL: u64 = 16 << 10;

/// What a hostile peer does on a connection of its own, until told that it is over.
enum Deed {
    /// Says it, and hears this status and the end of the connection; over and over.
    Told(String, u16),
    /// Says it, and hears this status first; over and over.
    Heard(String, u16),
    /// Says the first part, and then the second octet by octet, for ever.
    Drips(&'static str, u8),
    /// Says it and takes an octet now and then, or none at all.
    Takes(String, usize),
}

/// A row: what is done, by how many at once.
struct Row {
    name: &'static str,
    peers: u64,
    deed: Deed,
}

fn row(name: &'static str, peers: u64, deed: Deed) -> Row {
    Row { name, peers, deed }
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows(token: &str, large: &str) -> Vec<Row> {
    let get = |fields: &str| {
        format!(
            "GET {large} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{fields}\r\n"
        )
    };
    let plain = |line: &str, fields: &str| format!("{line}\r\n{fields}\r\n");
    let post = |fields: &str| {
        let next = "GET /v1/host HTTP/1.1\r\nHost: localhost\r\n\r\n";
        format!("POST /v1/login HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n0\r\n\r\n{next}")
    };
    let apart = |count: usize| {
        let each: Vec<String> = (0..count).map(|n| format!("{0}-{0}", n * 2)).collect();
        format!("Range: bytes={}\r\n", each.join(","))
    };
    let upon = format!("Range: bytes={}\r\n", vec!["0-"; 5000].join(","));
    let host = "Host: localhost\r\n";
    let line = "GET /v1/host HTTP/1.1";
    let many = format!("{line}\r\n{host}\r\n").repeat(200);
    vec![
        row("silence", 100, Deed::Takes(String::new(), 0)),
        row(
            "a slow head",
            50,
            Deed::Drips("GET / HTTP/1.1\r\nHost: a\r\nX: ", b'x'),
        ),
        row("slow readers", 20, Deed::Takes(get(""), 2000)),
        row("readers that stop", 40, Deed::Takes(get(""), 0)),
        row("2,500 ranges", 4, Deed::Heard(get(&apart(2500)), 200)),
        row("10,000 ranges", 4, Deed::Told(get(&apart(10_000)), 431)),
        row(
            "ranges upon each other",
            4,
            Deed::Heard(get("Range: bytes=0-,5-99,0-,-7\r\n"), 206),
        ),
        row(
            "5,000 ranges upon each other",
            4,
            Deed::Heard(get(&upon), 200),
        ),
        row("a pipeline nobody reads", 10, Deed::Takes(many, 0)),
        row(
            "a head of a mebibyte",
            4,
            Deed::Told(
                plain(line, &format!("{host}X: {}\r\n", "x".repeat(1 << 20))),
                431,
            ),
        ),
        row(
            "a thousand fields",
            4,
            Deed::Told(
                plain(line, &format!("{host}{}", "X: y\r\n".repeat(1000))),
                431,
            ),
        ),
        row(
            "two lengths",
            4,
            Deed::Told(
                post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
                400,
            ),
        ),
        row(
            "two other lengths",
            4,
            Deed::Told(post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
        ),
        row(
            "an odd coding",
            4,
            Deed::Told(post("Transfer-Encoding: gzip, chunked\r\n"), 400),
        ),
        row(
            "an absolute target",
            4,
            Deed::Told(plain("GET http://localhost/v1/host HTTP/1.1", host), 400),
        ),
        row(
            "an authority for a target",
            4,
            Deed::Told(plain("CONNECT localhost:443 HTTP/1.1", host), 400),
        ),
        row("no Host", 4, Deed::Told(plain(line, ""), 400)),
        row(
            "two Hosts",
            4,
            Deed::Told(plain(line, &format!("{host}{host}")), 400),
        ),
        row(
            "a bad Host",
            4,
            Deed::Told(plain(line, "Host: a b\r\n"), 400),
        ),
        row(
            "somebody else's Host",
            4,
            Deed::Heard(plain(line, "Host: evil.example\r\n"), 421),
        ),
    ]
}

impl Deed {
    /// Does it until `over`; how often it was done.
    fn run(&self, address: &str, over: &AtomicBool, begun: &AtomicUsize) {
        let mut stream = connect(address);
        match self {
            Self::Told(said, status) | Self::Heard(said, status) => {
                while !over.load(Ordering::Relaxed) {
                    // It may be refused before it is said to its end.
                    stream.write_all(said.as_bytes()).ok();
                    assert_eq!(heard(&mut stream), Some(*status), "{said:.80}");
                    if matches!(self, Self::Told(..)) {
                        assert!(ends(&mut stream), "{said:.80}");
                    }
                    begun.fetch_add(1, Ordering::Relaxed);
                    stream = connect(address);
                }
            }
            Self::Drips(first, then) => {
                stream.write_all(first.as_bytes()).unwrap();
                begun.fetch_add(1, Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) && stream.write_all(&[*then]).is_ok() {
                    thread::sleep(Duration::from_millis(20));
                }
            }
            Self::Takes(said, each) => {
                // Where nothing is read, not all may find room.
                stream
                    .set_write_timeout(Some(Duration::from_millis(500)))
                    .unwrap();
                stream.write_all(said.as_bytes()).ok();
                begun.fetch_add(1, Ordering::Relaxed);
                let mut room = vec![0; *each];
                while !over.load(Ordering::Relaxed) {
                    if *each > 0 {
                        stream.read_exact(&mut room).unwrap();
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_mins(1));
    stream.set_read_timeout(patience).unwrap();
    stream
}

/// The status of the first answer.
fn heard(stream: &mut TcpStream) -> Option<u16> {
    let mut line = [0; 12];
    stream.read_exact(&mut line).ok()?;
    std::str::from_utf8(&line)
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()
}

/// Whether the connection ends, and there is nothing but the one answer on it.
fn ends(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let ended = match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    ended && !rest.windows(9).any(|nine| nine == b"HTTP/1.1 ")
}

/// A line of what the kernel says of the server, in KiB.
fn memory(pid: u64, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// Keeps I11.
#[test]
fn whatever_hostile_peers_do_healthy_clients_are_served_and_memory_stays() {
    let house = House::new(|home| home.up_proving(|_| {}));
    let pid = house.server.ready["pid"].as_u64().unwrap();
    let address = house.server.address();
    let content: Vec<u8> = (0..SIZE / 4)
        .flat_map(|n| (n ^ 0x5bd1_e995).to_le_bytes())
        .collect();
    let healthy: Vec<_> = DOORS
        .iter()
        .map(|door| (door, house.open(door, "healthy.bin", &content)))
        .collect();
    let large = house.open(&DOORS[0], "large.bin", &vec![7; 32 << 20]);
    let served = |row: &str| {
        for (door, behind) in &healthy {
            let token = Some(house.token()).filter(|_| door.needs_token);
            let answer = wire::get(address, &behind.target, token, &[]);
            assert_eq!(answer.status, 200, "{row}: {}", door.name);
            assert!(answer.body == behind.bytes, "{row}: {}", door.name);
        }
    };
    served("nobody");
    for row in rows(house.token(), &large.target) {
        // From here on the kernel notes the most this process has.
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        let before = memory(pid, "VmRSS");
        let (over, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let _over = Over(&over);
            for _ in 0..row.peers {
                scope.spawn(|| {
                    // One that fails ends the row, and with it the test.
                    let _over = Over(&over);
                    row.deed.run(address, &over, &begun);
                });
            }
            let peers = usize::try_from(row.peers).unwrap();
            while begun.load(Ordering::Relaxed) < peers && !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            served(row.name);
        });
        let grown = memory(pid, "VmHWM").saturating_sub(before);
        eprintln!(
            "{}: {} times, {grown} KiB",
            row.name,
            begun.load(Ordering::Relaxed)
        );
        assert!(grown < ALL + EACH * row.peers, "{}: {grown} KiB", row.name);
    }
    served("nobody any more");
}

/// Says that it is over, also when a test ends early.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
