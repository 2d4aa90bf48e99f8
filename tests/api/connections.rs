//! Peers that idle, stop reading or go away cost only themselves.

use crate::{
    doors::{DOORS, House},
    support::{
        Client, Options, Server,
        server::{content, descriptors, eventually, request},
    },
};

fn alone() -> Server {
    Server::with(&Options {
        alone: true,
        ..Options::default()
    })
}

/// Keeps I11.
#[test]
fn two_hundred_idle_connections_leave_nothing_behind() {
    let server = alone();
    let session = server.session(&[&server.alice]);
    let target = server.attach(&session, "a", b"abc");
    eventually("earlier connections are gone", || {
        server.traffic.live() == 0
    });
    let before = (descriptors().len(), server.tasks(), server.unnamed());
    let mut idle: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for (n, client) in idle.iter_mut().enumerate() {
        // Some say nothing, some begin a head, some have asked and stay.
        match n % 3 {
            0 => {}
            1 => client.send(b"GET /v1/host HTTP/1.1\r\nHost: loc").unwrap(),
            _ => {
                let octets = request("GET", &target, Some(&server.alice.token), &[], None);
                assert_eq!(client.ask(&octets).status, 200);
            }
        }
    }
    eventually("all are held", || server.traffic.live() == 200);
    assert_eq!(
        server.get(&target, &server.alice).body,
        b"abc",
        "others are served"
    );
    drop(idle);
    eventually("all are gone", || server.traffic.live() == 0);
    eventually("nothing is left", || {
        (descriptors().len(), server.tasks(), server.unnamed()) == before
    });
}

/// Keeps I11: readers that stop hold no thread, so others are served at once.
#[test]
fn readers_that_stop_cost_only_themselves() {
    for door in &DOORS {
        let house = House::alone();
        let server = house.server();
        let behind = house.open(door, "big", &content(24 << 20, 1));
        let session = server.session(&[&server.bob]);
        let small = server.attach(&session, "small", b"abc");
        eventually("earlier connections are gone", || {
            server.traffic.live() == 0
        });
        let before = (descriptors().len(), server.tasks(), server.unnamed());
        // More than there are threads in any pool.
        let stopped: Vec<Client> = (0..40)
            .map(|_| {
                let mut client = server.connect();
                client.send(&behind.request("GET", &[])).unwrap();
                assert_eq!(client.read_head().status, 200, "{}", door.name);
                client
            })
            .collect();
        for _ in 0..5 {
            assert_eq!(server.get(&small, &server.bob).body, b"abc");
            assert!(behind.get(server).body == behind.bytes, "{}", door.name);
        }
        // Served beside them, not after they were given up.
        assert!(server.traffic.live() >= u64::try_from(stopped.len()).unwrap());
        drop(stopped);
        eventually("nothing is left", || {
            (descriptors().len(), server.tasks(), server.unnamed()) == before
        });
    }
}

/// A client that goes stops what is done for it (D02).
#[test]
fn d02_a_reader_that_goes_ends_its_transfer() {
    for door in &DOORS {
        let house = House::alone();
        let server = house.server();
        let behind = house.open(door, "big", &content(24 << 20, 2));
        eventually("earlier connections are gone", || {
            server.traffic.live() == 0
        });
        let before = (descriptors().len(), server.tasks(), server.unnamed());
        for read in [0, 1, 100_000, 5 << 20] {
            let mut client = server.connect();
            client.send(&behind.request("GET", &[])).unwrap();
            client.read_head();
            client.read_body(read);
            drop(client);
        }
        eventually("nothing is left", || {
            (descriptors().len(), server.tasks(), server.unnamed()) == before
        });
        let metrics = server.app.counters().render();
        assert!(
            metrics.contains("holdfast_downloads_cut_total 4"),
            "{}: {metrics}",
            door.name
        );
    }
}

/// The memory of a transfer does not grow with the file (D05). The gibibyte version is in the long
/// suite; here growth of the process over one 64 MiB transfer each way. Keeps I11.
#[test]
fn d05_a_transfer_is_never_held_in_memory() {
    let server = alone();
    let session = server.session(&[&server.alice]);
    let target = format!("{session}/attachments?name=big");
    let token = Some(server.alice.token.as_str());
    let size = 64 << 20;
    let block = content(1 << 20, 3);
    server.upload(&session, "warm", &server.alice, &block);
    let before = resident();
    let mut most = before;
    let mut client = server.connect();
    let length = [("Content-Length", size.to_string())];
    let fields = length
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    client
        .send(&request("POST", &target, token, &fields, None))
        .unwrap();
    for _ in 0..size / block.len() {
        client.send(&block).unwrap();
        most = most.max(resident());
    }
    let answer = client.read(false);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let id = answer.json()["attachmentId"].as_str().unwrap().to_owned();
    let attachment = serde_json::json!({"attachmentId": id, "name": "big", "bytes": size});
    let event = serde_json::json!({"events": [{"type": "user/message", "data": {"id": "m",
        "role": "user", "source": {"kind": "user"},
        "content": [{"type": "file", "attachment": attachment}]}}]});
    assert_eq!(
        server
            .post(&format!("{session}/events"), &server.host, &event)
            .status,
        201
    );
    let octets = request(
        "GET",
        &format!("{session}/attachments/{id}"),
        token,
        &[],
        None,
    );
    client.send(&octets).unwrap();
    assert_eq!(client.read_head().status, 200);
    for _ in 0..size / block.len() {
        assert!(client.read_body(block.len()) == block);
        most = most.max(resident());
    }
    let grown = most.saturating_sub(before);
    eprintln!(
        "64 MiB each way: resident memory grew by {} KiB",
        grown >> 10
    );
    assert!(grown < 32 << 20, "{grown}");
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Ranges by the thousand, all over each other, or more than a head holds: the whole file at most, in
/// flat memory, and others are served meanwhile. Keeps I11.
#[test]
fn ranges_by_the_thousand_cost_no_more_than_the_file() {
    let house = House::alone();
    let server = house.server();
    let session = server.session(&[&server.bob]);
    let beside = content(4 << 20, 5);
    let target = server.attach(&session, "beside", &beside);
    let apart = |count: usize| {
        let each: Vec<String> = (0..count).map(|n| format!("{0}-{0}", n * 2)).collect();
        format!("bytes={}", each.join(","))
    };
    let upon = format!("bytes={}", vec!["1-"; 3000].join(","));
    for door in &DOORS {
        let behind = house.open(door, "big", &content(4 << 20, 4));
        let before = resident();
        for (ranges, status) in [
            (apart(2500), 200),
            (upon.clone(), 200),
            ("bytes=1-,5-99,1-".to_owned(), 206),
            (apart(10_000), 431),
        ] {
            for _ in 0..3 {
                let answer = behind.ask(server, "GET", &[("Range", &ranges)]);
                let row = format!("{} {} bytes of ranges", door.name, ranges.len());
                assert_eq!(answer.status, status, "{row}");
                match status {
                    200 => assert!(answer.body == behind.bytes, "{row}"),
                    206 => assert!(answer.body == behind.bytes[1..], "{row}"),
                    _ => assert_eq!(answer.code(), "head-too-large", "{row}"),
                }
                assert!(server.get(&target, &server.bob).body == beside, "{row}");
            }
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{}: {grown}", door.name);
    }
}
