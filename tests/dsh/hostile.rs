//! Homes that were made to hurt the reader.

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::{Path, PathBuf},
    sync::mpsc::channel,
    time::Duration,
};

use holdfast::{
    home::DshHome,
    journal::{
        JournalError, Source as _,
        dsh::{DshLimits, DshOwners, DshSource},
    },
    model::{AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest, FileName, MediaType},
    store::{Objects as _, StoreError, dsh::DshObjects},
};

use crate::support::{Bench, HomeBuilder, event, frame, header};

/// What is put in the place of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instead {
    /// A link to a good copy, elsewhere.
    Link,
    /// A link to itself.
    Loop,
    Fifo,
    Socket,
    /// `/dev/zero` of one's own, where the system lets us.
    Device,
    Directory,
    File,
    Nothing,
}

const ALL: [Instead; 8] = [
    Instead::Link,
    Instead::Loop,
    Instead::Fifo,
    Instead::Socket,
    Instead::Device,
    Instead::Directory,
    Instead::File,
    Instead::Nothing,
];

/// Puts `instead` where `path` is; `false` when the system does not allow it, or it would be no change.
fn replace(path: &Path, instead: Instead) -> bool {
    use rustix::fs::{CWD, FileType, mknodat};
    let was_dir = path.is_dir();
    if (instead == Instead::Directory && was_dir) || (instead == Instead::File && !was_dir) {
        return false;
    }
    let aside = path.with_file_name("aside");
    fs::rename(path, &aside).unwrap();
    let node = |kind, device| mknodat(CWD, path, kind, 0o600.into(), device);
    match instead {
        Instead::Link => symlink(&aside, path).unwrap(),
        Instead::Loop => symlink(path, path).unwrap(),
        Instead::Fifo => node(FileType::Fifo, 0).unwrap(),
        Instead::Socket => node(FileType::Socket, 0).unwrap(),
        Instead::Device => {
            if node(FileType::CharacterDevice, rustix::fs::makedev(1, 5)).is_err() {
                fs::rename(&aside, path).unwrap();
                return false;
            }
        }
        Instead::Directory => fs::create_dir(path).unwrap(),
        Instead::File => fs::write(path, b"x").unwrap(),
        Instead::Nothing => {}
    }
    true
}

/// Fails instead of hanging.
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, answer) = channel();
    std::thread::spawn(move || done.send(work()).ok());
    answer
        .recv_timeout(Duration::from_secs(20))
        .unwrap_or_else(|_| panic!("{what}: hung or panicked"))
}

/// Keeps I2.
#[test]
fn nothing_but_a_real_directory_or_file_in_any_position_gives_a_session() {
    let mut cases = 0;
    for position in [
        "sessions",
        "sessions/--w--",
        "sessions/--w--/s",
        "sessions/--w--/s/session.v3.jsonl",
    ] {
        for instead in ALL {
            let home = HomeBuilder::new();
            home.log(
                "s",
                Some("/w"),
                "session.v3.jsonl",
                header(3, "s", Some("/w")).as_bytes(),
            );
            home.log(
                "neighbour",
                Some("/n"),
                "session.v3.jsonl",
                header(3, "neighbour", Some("/n")).as_bytes(),
            );
            if !replace(&home.path().join(position), instead) {
                continue;
            }
            cases += 1;
            let row = format!("{instead:?} at {position}");
            within(&row.clone(), move || {
                if position == "sessions" {
                    let bench = tempfile::tempdir().unwrap();
                    let dir = fs::File::open(bench.path()).unwrap();
                    let clock = std::sync::Arc::new(holdfast::model::SystemClock);
                    let control = holdfast::control::Control::open_inline(dir, clock).unwrap();
                    let owners = DshOwners {
                        owners: Vec::new(),
                        host: None,
                    };
                    let opened = DshSource::open(
                        control.into(),
                        home.open().into(),
                        "h",
                        owners,
                        DshLimits::default(),
                    );
                    match (instead, opened) {
                        (Instead::Nothing, Ok(source)) => assert_eq!(source.sessions(), []),
                        (Instead::Nothing, Err(error)) => panic!("{row}: {error}"),
                        (_, opened) => assert!(
                            matches!(opened, Err(JournalError::Corrupt(_))),
                            "{row}: {opened:?}"
                        ),
                    }
                    return;
                }
                let opened = Bench::new().open(home.open());
                match opened
                    .source
                    .handle_of("s")
                    .map(|session| opened.source.session(session))
                {
                    None | Some(Err(JournalError::Corrupt(_) | JournalError::NotFound)) => {}
                    Some(other) => panic!("{row}: {other:?}"),
                }
                assert!(
                    opened.source.session(opened.handle("neighbour")).is_ok(),
                    "{row}"
                );
            });
        }
    }
    assert!(cases >= 20, "{cases}");
}

fn reference(content: &[u8], name: Option<&str>, image: bool) -> AttachmentRef {
    AttachmentRef {
        id: AttachmentId::new(Digest::of(content)),
        name: name.map(|name| FileName::parse(name).unwrap()),
        bytes: ByteCount::from(content.len()),
        kind: if image {
            AttachmentKind::Image {
                media_type: MediaType::Png,
                width: 1,
                height: 1,
            }
        } else {
            AttachmentKind::File
        },
    }
}

/// A home with one object in each of the three trees; the paths to the objects.
fn attachments(content: &[u8]) -> (HomeBuilder, [PathBuf; 3]) {
    let home = HomeBuilder::new();
    let hex = Digest::of(content).to_string();
    let trees = home.path().join("attachments/v1");
    let place = |tree: &str| {
        let dir = trees.join(tree).join(hex.split_at(2).0);
        fs::create_dir_all(&dir).unwrap();
        dir.join(&hex)
    };
    let (image, canonical, names) = (place("objects"), place("file-objects"), place("files"));
    fs::write(&image, content).unwrap();
    fs::write(&canonical, content).unwrap();
    fs::create_dir(&names).unwrap();
    let file = names.join("a.txt");
    fs::hard_link(&canonical, &file).unwrap();
    (home, [image, canonical, file])
}

/// Keeps I2.
#[test]
fn nothing_but_a_real_directory_or_file_in_any_position_gives_an_attachment() {
    let content = b"content of an attachment";
    let mut cases = 0;
    for (which, reference) in [
        (0, reference(content, None, true)),
        (1, reference(content, None, false)),
        (2, reference(content, Some("a.txt"), false)),
    ] {
        let (home, paths) = attachments(content);
        let opened = DshObjects::new(home.open().into());
        assert!(
            opened.open(&reference).is_ok(),
            "{which}: two links are honest here"
        );
        let depth = paths[which]
            .strip_prefix(home.path())
            .unwrap()
            .components()
            .count();
        for up in 0..depth {
            for instead in ALL {
                let (home, paths) = attachments(content);
                let target = paths[which].ancestors().nth(up).unwrap().to_owned();
                if !replace(&target, instead) {
                    continue;
                }
                cases += 1;
                let (row, reference) = (
                    format!("{instead:?} at {}", target.display()),
                    reference.clone(),
                );
                within(&row.clone(), move || {
                    let objects = DshObjects::new(home.open().into());
                    match objects.open(&reference) {
                        Err(StoreError::NotFound(_) | StoreError::NotAnObject(_)) => {}
                        other => panic!("{row}: {other:?}"),
                    }
                });
            }
        }
    }
    assert!(cases > 80, "{cases}");
}

#[test]
fn a_reference_gives_only_the_bytes_of_its_own_name_and_length() {
    let content = b"content of an attachment";
    let (home, paths) = attachments(content);
    let objects = DshObjects::new(home.open().into());
    for name in ["b.txt", "A.txt", "a.txt.", "CON", "a:b", &"長".repeat(86)] {
        let found = objects.open(&reference(content, Some(name), false));
        assert!(
            matches!(found, Err(StoreError::NotFound(_))),
            "{name}: {found:?}"
        );
    }
    // A name the home would never have made is not looked up, whatever lies there.
    fs::hard_link(&paths[1], paths[2].with_file_name("a:b")).unwrap();
    let found = objects.open(&reference(content, Some("a:b"), false));
    assert!(matches!(found, Err(StoreError::NotFound(_))), "{found:?}");
    let mut longer = reference(content, Some("a.txt"), false);
    longer.bytes = ByteCount::new(1);
    let found = objects.open(&longer);
    assert!(
        matches!(found, Err(StoreError::LengthMismatch { .. })),
        "{found:?}"
    );
    // An image's bytes are not a file's, and the other way round.
    let (home, paths) = attachments(content);
    let objects = DshObjects::new(home.open().into());
    fs::remove_file(&paths[0]).unwrap();
    let found = objects.open(&reference(content, Some("a.txt"), true));
    assert!(matches!(found, Err(StoreError::NotFound(_))), "{found:?}");
}

#[test]
fn a_configured_home_may_be_a_link_and_its_parts_may_be_configured_apart() {
    let content = b"content of an attachment";
    let (home, _) = attachments(content);
    home.log(
        "s",
        None,
        "session.v3.jsonl",
        header(3, "s", None).as_bytes(),
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(home.path(), &link).unwrap();
    let opened = Bench::new().open(DshHome::open(&link).unwrap());
    assert!(opened.source.session(opened.handle("s")).is_ok());
    assert!(
        opened
            .objects
            .open(&reference(content, Some("a.txt"), false))
            .is_ok()
    );
    // Attachments that were moved to other storage are refused as a link and served by name.
    let moved = elsewhere.path().join("moved");
    fs::rename(home.path().join("attachments"), &moved).unwrap();
    symlink(&moved, home.path().join("attachments")).unwrap();
    let objects = DshObjects::new(home.open().into());
    let found = objects.open(&reference(content, Some("a.txt"), false));
    assert!(
        matches!(found, Err(StoreError::NotAnObject(_))),
        "{found:?}"
    );
    let objects = DshObjects::new(home.open().with_attachments(&moved).unwrap().into());
    assert!(
        objects
            .open(&reference(content, Some("a.txt"), false))
            .is_ok()
    );
}

/// A frame of `blocks` blocks of 128 KiB, each one byte repeated: four bytes in the file for each.
fn run_length_frame(byte: u8, blocks: u32) -> Vec<u8> {
    // No checksum, no content size, a window of 128 KiB.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 7 << 3];
    for block in 1..=blocks {
        let head = (128_u32 << 10) << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend(&head.to_le_bytes()[..3]);
        frame.push(byte);
    }
    frame
}

/// Fails when this process ever used much memory.
fn assert_peak() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 400 << 10, "{} MiB", kib >> 10);
}

/// What the log is, its name, its bytes, and what is said of it.
type TooMuch = (&'static str, &'static str, Vec<u8>, &'static str);

fn too_much() -> Vec<TooMuch> {
    let head = header(0, "s", None);
    let after = |line: &[u8]| [head.as_bytes(), line].concat();
    let packed = |bytes: &[u8]| [&frame(head.as_bytes())[..], bytes].concat();
    let deep = format!(
        r#"{{"type":"x","seq":0,"time":1,"data":{}"#,
        "[".repeat(5_000_000)
    );
    let zeros_4_gib = run_length_frame(0, 32 << 10);
    let newlines_4_gib = run_length_frame(b'\n', 32 << 10);
    let mut window = frame(b"x");
    // The window the frame's head asks for: the largest there is.
    window.truncate(4);
    window.extend([0x00, 0xFF, 0x01, 0x00, 0x00]);
    let run = |n: usize| {
        let texts = vec!["\"\""; n].join(",");
        let gaps = vec!["0"; n - 1].join(",");
        format!(
            r#"{{"type":"text-chunks","seq0":0,"time0":1,"data":{{"turn":1,"step":1,"index":0,"dt":[{gaps}],"texts":[{texts}]}}}}"#
        )
    };
    vec![
        (
            "zeros",
            "session.jsonl.zstd",
            packed(&zeros_4_gib),
            "row 1: a line is longer than 16.0 MiB",
        ),
        (
            "newlines",
            "session.jsonl.zstd",
            packed(&newlines_4_gib),
            "the log has more than 100000 lines",
        ),
        (
            "header of zeros",
            "session.jsonl.zstd",
            zeros_4_gib.clone(),
            "the header: a line is longer",
        ),
        (
            "window",
            "session.jsonl.zstd",
            packed(&window),
            "too much memory",
        ),
        (
            "nesting",
            "session.jsonl",
            after(format!("{deep}\n").as_bytes()),
            "row 1: it nests deeper than 100",
        ),
        (
            "nested header",
            "session.jsonl",
            format!("{}\n", "[".repeat(1000)).into_bytes(),
            "the header: it nests",
        ),
        (
            "run",
            "session.jsonl",
            after(format!("{}\n{}", run(200_000), event(0, "turn/end", "{}")).as_bytes()),
            "row 1: a row of too many chunks",
        ),
        (
            "no frames",
            "session.jsonl.zstd",
            packed(b"{}\n\n\n"),
            "no Zstandard frame begins",
        ),
        (
            "skippable",
            "session.jsonl.zstd",
            packed(&[0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0]),
            "no Zstandard frame begins",
        ),
        (
            "not UTF-8",
            "session.jsonl",
            after(
                b"{\"type\":\"\xff\",\"seq\":0,\"time\":1,\"data\":{}}\n{\"type\":\"turn/end\"}\n",
            ),
            "row 1: ",
        ),
    ]
}

/// Keeps I11.
#[test]
fn what_is_too_much_is_refused_with_a_reason_in_bounded_memory() {
    for (what, name, bytes, why) in too_much() {
        let home = HomeBuilder::new();
        home.log("s", None, name, &bytes);
        home.log(
            "neighbour",
            None,
            "session.v3.jsonl",
            header(3, "neighbour", None).as_bytes(),
        );
        let limits = DshLimits {
            rows: 100_000,
            ..DshLimits::default()
        };
        let opened = Bench::new().open_with(home.open(), limits);
        let said = opened.refusal("s");
        assert!(said.contains(why), "{what}: {said}");
        assert!(
            opened.source.session(opened.handle("neighbour")).is_ok(),
            "{what}"
        );
    }
    assert_peak();
}

/// Keeps I11.
#[test]
fn a_line_of_a_hundred_mebibytes_is_refused() {
    // One that takes no room on disk.
    let head = header(0, "s", None);
    let home = HomeBuilder::new();
    let path = home.log("s", None, "session.jsonl", head.as_bytes());
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(100 << 20)
        .unwrap();
    let opened = Bench::new().open(home.open());
    assert_eq!(opened.refusal("s"), "row 1: a line is longer than 16.0 MiB");
    assert_peak();
}

/// Keeps I11.
#[test]
fn bounds_on_numbers_hold() {
    let limits = DshLimits {
        references: 10,
        folder_entries: 5,
        folders: 4,
        page: ByteCount::new(1000),
        ..DshLimits::default()
    };
    let file = |n: u64| {
        let digest = Digest::of(&n.to_le_bytes());
        format!(
            r#"{{"content":[{{"type":"file","attachment":{{"attachmentId":"sha256:{digest}","name":"n","bytes":8}}}}]}}"#
        )
    };
    let log = |count: u64| -> String {
        let rows = (0..count).map(|seq| event(seq, "user/message", &file(seq)));
        std::iter::once(header(3, "s", None)).chain(rows).collect()
    };
    let home = HomeBuilder::new();
    home.log("s", None, "session.v3.jsonl", log(10).as_bytes());
    let opened = Bench::new().open_with(home.open(), limits.clone());
    let session = opened.handle("s");
    assert_eq!(opened.source.session(session).unwrap().next_seq.get(), 10);
    // A page holds the newest that fit.
    let page = opened.source.page(session, None, None, 10).unwrap();
    let seqs: Vec<u64> = page.events.iter().map(|event| event.seq.get()).collect();
    assert_eq!((seqs, page.has_more), (vec![4, 5, 6, 7, 8, 9], true));
    home.log("s", None, "session.v3.jsonl", log(11).as_bytes());
    assert_eq!(
        opened.refusal("s"),
        "row 11: the log has more than 10 references"
    );
    // A folder of more entries than are listed.
    for n in 0..6 {
        home.log("s", None, &format!("{n}.tmp"), b"");
    }
    assert_eq!(
        opened.refusal("s"),
        "the session's folder: the directory has more than 5 entries"
    );
    // A project of more sessions than are listed takes no other down.
    for n in 0..5 {
        let id = format!("s{n}");
        home.log(
            &id,
            Some("/many"),
            "session.v3.jsonl",
            header(3, &id, Some("/many")).as_bytes(),
        );
    }
    home.log(
        "other",
        Some("/w"),
        "session.v3.jsonl",
        header(3, "other", Some("/w")).as_bytes(),
    );
    opened.source.look().unwrap();
    assert!(opened.source.session(opened.handle("other")).is_ok());
    assert_eq!(opened.source.handle_of("s0"), None);
    assert!(!opened.source.notes().is_empty());
}

#[test]
fn names_that_nobody_would_make_are_nobodys_session() {
    let home = HomeBuilder::new();
    let project = home.path().join("sessions/--w--");
    for name in [
        &b"a b"[..],
        b"~00e9",
        b"\xff\xfe",
        b"~D800",
        b"~002f",
        b"caf\xc3\xa9",
    ] {
        let folder = project.join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("session.v3.jsonl"), header(3, "x", Some("/w"))).unwrap();
    }
    fs::write(project.join("stray"), b"").unwrap();
    fs::write(home.path().join("sessions/stray"), b"").unwrap();
    let opened = Bench::new().open(home.open());
    assert_eq!(opened.source.sessions(), []);
    // An id with a control character has a folder, and is refused for what it is.
    fs::create_dir_all(project.join("a~000Ab")).unwrap();
    fs::write(
        project.join("a~000Ab/session.v3.jsonl"),
        header(3, "a\nb", Some("/w")),
    )
    .unwrap();
    opened.source.look().unwrap();
    assert!(opened.refusal("a\nb").starts_with("the header: its id"));
}
