//! What happens to a download when the stored object is not what it was.

use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::{
    doors::{Behind, DOORS, House},
    support::{Server, server::content},
};

/// Changes an object in place and leaves its mode as the store made it: the content alone has to
/// give the change away.
pub(crate) fn in_place(object: &Path, change: impl FnOnce(&fs::File)) {
    let mode = |mode| fs::set_permissions(object, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(object)
        .unwrap();
    mode(0o400);
    change(&file);
}

fn flip_bit(object: &Path, at: u64) {
    in_place(object, |file| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    });
}

/// What it is, and how it is done to an object of the given content.
type ObjectDamage<'a> = (&'a str, &'a dyn Fn(&Path, &[u8]));

/// What it is, and how it is done to an object that is being sent.
type TransferDamage<'a> = (&'a str, &'a dyn Fn(&Path));

fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo")
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

/// Keeps I4: damaged before the request, not one byte is sent, by whichever door.
#[test]
fn a_damaged_object_yields_no_byte() {
    let house = House::new();
    let server = house.server();
    let outside = server.data().join("outside");
    let damages: [ObjectDamage<'_>; 9] = [
        ("a symlink to the same bytes", &|object, bytes| {
            fs::write(&outside, bytes).unwrap();
            fs::remove_file(object).unwrap();
            symlink(&outside, object).unwrap();
        }),
        ("a symlink to nothing", &|object, _| {
            fs::remove_file(object).unwrap();
            symlink("nowhere", object).unwrap();
        }),
        ("a FIFO", &|object, _| {
            fs::remove_file(object).unwrap();
            fifo(object);
        }),
        ("a directory", &|object, _| {
            fs::remove_file(object).unwrap();
            fs::create_dir(object).unwrap();
        }),
        ("truncated", &|object, bytes| {
            in_place(object, |file| file.set_len(bytes.len() as u64 - 1).unwrap());
        }),
        ("emptied", &|object, _| {
            in_place(object, |file| file.set_len(0).unwrap());
        }),
        ("grown", &|object, bytes| {
            in_place(object, |file| {
                file.write_all_at(b"x", bytes.len() as u64).unwrap();
            });
        }),
        ("the first bit flipped", &|object, _| flip_bit(object, 0)),
        ("the last bit flipped", &|object, bytes| {
            flip_bit(object, bytes.len() as u64 - 1);
        }),
    ];
    let rows = damages
        .iter()
        .flat_map(|row| DOORS.iter().map(move |door| (row, door)));
    for (n, ((what, damage), door)) in (10_u32..).zip(rows) {
        let behind = house.open(door, &format!("f{n}"), &content(700_000, n));
        damage(&server.object(&behind.bytes), &behind.bytes);
        for range in [
            "bytes=0-",
            "bytes=0-0",
            "bytes=300000-300009",
            "bytes=-1",
            "none",
        ] {
            for method in ["GET", "HEAD"] {
                let answer = behind.ask(server, method, &[("Range", range)]);
                let row = format!("{} {what}: {method} {range}", door.name);
                assert_eq!(answer.status, 500, "{row}");
                if method == "GET" {
                    assert_eq!(answer.code(), "integrity", "{row}");
                }
                assert_eq!(answer.field("repr-digest"), None, "{row}");
                assert_eq!(answer.field("etag"), None, "{row}");
            }
        }
    }
    assert_eq!(
        server.get("/v1/sessions", &server.alice).status,
        200,
        "nothing hangs"
    );
}

/// Keeps I4: good when it was asked for, damaged before the next request.
#[test]
fn a_bit_flipped_between_two_downloads_is_seen_by_the_second() {
    let house = House::new();
    for (n, door) in (20..).zip(&DOORS) {
        let behind = house.open(door, "a", &content(1 << 20, n));
        assert_eq!(behind.get(house.server()).status, 200, "{}", door.name);
        flip_bit(&house.server().object(&behind.bytes), 900_000);
        let answer = behind.get(house.server());
        assert_eq!(
            (answer.status, answer.code()),
            (500, "integrity".to_owned()),
            "{}",
            door.name
        );
    }
}

/// Large enough that most of it has not left when its start has been read.
const LONG: usize = 32 << 20;

/// Starts a download and reads its first bytes, so that it is verified and under way.
fn under_way(server: &Server, behind: &Behind) -> (crate::support::Client, Vec<u8>) {
    let mut client = server.connect();
    client.send(&behind.request("GET", &[])).unwrap();
    let head = client.read_head();
    assert_eq!(head.status, 200);
    let length = behind.bytes.len().to_string();
    assert_eq!(head.field("content-length"), Some(length.as_str()));
    let start = client.read_body(100_000);
    (client, start)
}

/// Keeps I4: the connection is cut before the first wrong byte, and the client can tell (I03).
#[test]
fn i03_a_medium_that_changes_under_a_transfer_cuts_it_before_the_first_wrong_byte() {
    let house = House::new();
    let server = house.server();
    let damages: [TransferDamage<'_>; 3] = [
        ("a bit flipped", &|object| {
            flip_bit(object, LONG as u64 - 70_000);
        }),
        ("truncated", &|object| {
            in_place(object, |file| file.set_len(LONG as u64 - 70_000).unwrap());
        }),
        ("rewritten", &|object| {
            let other = content(LONG / 4, 99);
            in_place(object, |file| {
                file.write_all_at(&other, LONG as u64 / 2).unwrap();
            });
        }),
    ];
    let rows = damages
        .iter()
        .flat_map(|row| DOORS.iter().map(move |door| (row, door)));
    for (n, ((what, damage), door)) in (30_u32..).zip(rows) {
        let behind = house.open(door, &format!("f{n}"), &content(LONG, n));
        let (mut client, mut got) = under_way(server, &behind);
        damage(&server.object(&behind.bytes));
        got.extend(client.read_to_end());
        let (row, all) = (format!("{} {what}", door.name), &behind.bytes);
        assert!(got.len() < all.len(), "{row}: {} bytes", got.len());
        assert!(
            got == all[..got.len()],
            "{row}: every byte that came is right"
        );
        assert_eq!(
            behind.get(server).status,
            500,
            "{row}: the next one is refused"
        );
    }
}

/// Keeps I2 and I4: the descriptor that was verified is the one that is read (I02).
#[test]
fn i02_an_object_replaced_under_a_transfer_changes_nothing_of_it() {
    let house = House::new();
    let server = house.server();
    for (n, door) in (50..).zip(&DOORS) {
        let behind = house.open(door, "a", &content(LONG, n));
        let (mut client, mut got) = under_way(server, &behind);
        let object = server.object(&behind.bytes);
        let other = server.data().join("other");
        fs::write(&other, content(LONG, 49)).unwrap();
        fs::rename(&other, &object).unwrap();
        got.extend(client.read_body(behind.bytes.len() - got.len()));
        assert!(
            got == behind.bytes,
            "{}: it ends with what it began",
            door.name
        );
        assert_eq!(behind.get(server).code(), "integrity", "{}", door.name);
    }
}

/// Keeps I4: rewriting in a loop, every download is whole and right, or no download (I02).
#[test]
fn i02_an_object_rewritten_in_a_loop_is_right_or_refused() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let bytes = content(2 << 20, 50);
    let target = server.attach(&session, "a", &bytes);
    let object = server.object(&bytes);
    let ended = AtomicBool::new(false);
    let (mut right, mut cut, mut refused) = (0, 0, 0);
    std::thread::scope(|scope| {
        let rewriting = scope.spawn(|| {
            in_place(&object, |file| {
                while !ended.load(Ordering::Relaxed) {
                    file.write_all_at(b"other", 1_500_000).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                    let good = &bytes[1_500_000..1_500_005];
                    file.write_all_at(good, 1_500_000).unwrap();
                    std::thread::sleep(Duration::from_millis(60));
                }
            });
        });
        // Until both kinds were seen, so that neither passes unseen.
        for round in 0..400 {
            if round >= 40 && right > 0 && cut + refused > 0 {
                break;
            }
            let answer = server.get(&target, &server.alice);
            match answer.status {
                200 if answer.whole => {
                    assert!(answer.body == bytes, "a whole answer is the right one");
                    right += 1;
                }
                200 => {
                    assert!(
                        answer.body == bytes[..answer.body.len()],
                        "a part is a prefix"
                    );
                    cut += 1;
                }
                status => {
                    assert_eq!(status, 500, "{}", answer.text());
                    refused += 1;
                }
            }
        }
        ended.store(true, Ordering::Relaxed);
        rewriting.join().unwrap();
    });
    eprintln!("rewritten in a loop: {right} right, {cut} cut, {refused} refused");
    assert!(right > 0 && cut + refused > 0, "inconclusive");
}

/// The same bytes again heal what is damaged.
#[test]
fn an_upload_heals_a_damaged_object() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let bytes = content(400_000, 60);
    let target = server.attach(&session, "a", &bytes);
    flip_bit(&server.object(&bytes), 7);
    assert_eq!(server.get(&target, &server.alice).code(), "integrity");
    assert_eq!(
        server.upload(&session, "a", &server.alice, &bytes).status,
        201
    );
    assert!(server.get(&target, &server.alice).body == bytes);
}
