//! A release while the disk of the data directory is full, at whatever step.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use holdfast::model::{ByteCount, Limits};
use serde_json::{Value, json};

use crate::{
    releases::Scene,
    skip::skipped,
    support::{
        Answer, Options,
        server::{content, eventually},
    },
};

/// One page of a filesystem in memory.
const PAGE: u64 = 4096;

/// A filesystem of its own; unmounted when dropped.
struct SmallDisk {
    mount: tempfile::TempDir,
}

impl SmallDisk {
    /// One of this size; why not, where none can be had.
    fn new(size: ByteCount) -> Result<Self, String> {
        let mount = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let size = format!("size={}", size.get());
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "holdfast-test"])
            .arg(mount.path())
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(Self { mount }),
            other => Err(format!("nothing can be mounted here: {other:?}")),
        }
    }

    fn path(&self) -> &Path {
        self.mount.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Uses all room but so many pages.
    fn leave(&self, pages: u64) {
        let disk = rustix::fs::statvfs(self.path()).unwrap();
        let used = disk.f_bavail * disk.f_frsize - pages * PAGE;
        let file = fs::File::create(self.ballast()).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, used).unwrap();
        let disk = rustix::fs::statvfs(self.path()).unwrap();
        assert_eq!(disk.f_bavail * disk.f_frsize, pages * PAGE);
    }

    /// Makes room again.
    fn clear(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        drop(unmount.arg("-l").arg(self.path()).output());
    }
}

/// Everything a release could leave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) objects: usize,
    pub(crate) waiting: usize,
    pub(crate) receipts: usize,
    pub(crate) claims: usize,
}

pub(crate) fn left(scene: &Scene) -> Left {
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        let rows = scene.server.parts.control.read(|conn| {
            let count: i64 = conn.query_row(&sql, [], |row| row.get(0))?;
            Ok::<_, holdfast::control::ControlError>(count)
        });
        usize::try_from(rows.unwrap()).unwrap()
    };
    Left {
        objects: scene.server.objects(),
        waiting: scene.pending().len(),
        receipts: count("receipts"),
        claims: count("unclaimed"),
    }
}

/// A way by which something is released: what is there before, and the request.
struct Door {
    name: &'static str,
    prepare: fn(&Scene, u32) -> Value,
    ask: fn(&Scene, &Value) -> Answer,
}

fn noise(n: u32, bytes: usize) -> Vec<u8> {
    content(bytes, n + 1)
}

const DOORS: [Door; 4] = [
    Door {
        name: "file",
        prepare: |scene, n| {
            scene.file(&format!("f{n}"), &noise(n, 60_000));
            json!(scene.present(&json!([{"path": format!("f{n}")}])))
        },
        ask: |scene, seq| scene.release(seq.as_u64().unwrap()),
    },
    Door {
        name: "directory",
        prepare: |scene, n| {
            for (file, bytes) in [("a", 20_000), ("b", 30_000)] {
                scene.file(&format!("d{n}/{file}"), &noise(n, bytes));
            }
            json!(scene.present(&json!([{"path": format!("d{n}")}])))
        },
        ask: |scene, seq| scene.release(seq.as_u64().unwrap()),
    },
    Door {
        name: "capture",
        prepare: |scene, n| {
            for (file, bytes) in [("a", 20_000), ("b", 30_000)] {
                scene.file(&format!("c{n}/{file}"), &noise(n, bytes));
            }
            json!([{"path": format!("c{n}/a")}, {"path": format!("c{n}/b")}])
        },
        ask: |scene, files| scene.capture(files, None),
    },
    Door {
        name: "everything",
        prepare: |scene, n| {
            for (file, bytes) in [("a", 20_000), ("b", 30_000)] {
                scene.file(file, &noise(n, bytes));
            }
            json!(scene.present(&json!([{"path": "a"}, {"path": "b"}])))
        },
        ask: |scene, _| {
            let token = Some(scene.server.alice.token.as_str());
            let target = format!("/v1/sessions/{}/archive", scene.session);
            scene.server.ask("POST", &target, token)
        },
    },
];

/// Keeps I5, I12 and I15: whatever room there is, a release is made or refused as `disk-full`; a refused
/// one leaves nothing, and is made once there is room.
#[test]
fn with_any_room_at_all_a_release_is_whole_or_leaves_nothing() {
    let disk = match SmallDisk::new(ByteCount::mib(48)) {
        Ok(disk) => disk,
        Err(why) => return skipped(DOORS.len(), "releases on a full disk", &why),
    };
    let mut n = 0;
    for door in &DOORS {
        let scene = Scene::proven(Options {
            limits: Limits {
                free_reserve: ByteCount::ZERO,
                ..Limits::default()
            },
            max_file: ByteCount::mib(1),
            disk: Some(disk.path().to_owned()),
            ..Options::default()
        });
        let (mut refused, mut made, mut furthest) = (0, 0, BTreeSet::new());
        for pages in 0..150 {
            n += 1;
            let wanted = (door.prepare)(&scene, n);
            let (before, seq) = (left(&scene), scene.last_seq());
            scene.server.calls.take();
            disk.leave(pages);
            let answer = (door.ask)(&scene, &wanted);
            let when = format!("{}, {pages} pages: {}", door.name, answer.text());
            if answer.status == 507 {
                refused += 1;
                assert_eq!(answer.code(), "disk-full", "{when}");
                let calls = scene.server.calls.take();
                furthest.extend(calls.into_iter().filter(|call| call.starts_with("store.")));
                let after = left(&scene);
                assert_eq!(
                    Left { claims: 0, ..after },
                    Left {
                        claims: 0,
                        ..before
                    },
                    "{when}"
                );
                eventually("its copies are gone", || scene.server.unnamed() == 0);
            } else {
                made += 1;
                assert!([201, 202].contains(&answer.status), "{when}");
            }
            disk.clear();
            // A file that cannot be copied is not declared; one that has no room is, and is not kept.
            assert!(scene.last_seq() - seq <= 1, "{when}");
            let again = (door.ask)(&scene, &wanted);
            assert!(
                [201, 202].contains(&again.status),
                "{when}: {}",
                again.text()
            );
            for ask in scene.pending() {
                let decided = scene.decide(&scene.server.alice, &ask, "rejected");
                assert_eq!(decided.status, 200, "{when}");
            }
            assert_eq!(scene.server.objects(), 0, "{when}");
            if made == 3 {
                break;
            }
        }
        assert!(refused > 15 && made == 3, "{}: {refused} {made}", door.name);
        let steps: BTreeSet<_> = ["store.spool", "store.commit"].into();
        assert!(furthest.is_superset(&steps), "{}: {furthest:?}", door.name);
        assert_eq!(left(&scene).claims, 0, "what was not given up then is now");
    }
}

/// Keeps I15: the reserve of the disk is not used by a release either, and nothing is declared that could
/// not be copied.
#[test]
fn a_release_that_would_use_the_reserve_is_refused_with_its_setting() {
    let scene = Scene::proven(Options {
        limits: Limits {
            free_reserve: ByteCount::new(u64::MAX / 2),
            ..Limits::default()
        },
        ..Options::default()
    });
    scene.file("d/a.txt", b"text");
    let files = json!([{"path": "d/a.txt"}]);
    let before = left(&scene);
    for (path, answer) in [
        ("d/a.txt", scene.ask_for("d/a.txt")),
        ("d", scene.ask_for("d")),
        ("capture", scene.capture(&files, None)),
    ] {
        let body = answer.json();
        assert_eq!((answer.status, answer.code().as_str()), (507, "disk-full"));
        assert_eq!(body["setting"], "limits.free_reserve", "{path}: {body}");
    }
    assert_eq!(
        scene.last_seq(),
        1,
        "what was asked for, not what was captured"
    );
    assert_eq!(left(&scene), before);
    assert_eq!(scene.server.unnamed(), 0);
}

/// Keeps I12: where the session has no room for what was captured, the files stand declared and nothing is
/// kept; each that has room can be released.
#[test]
fn what_was_captured_without_room_in_the_session_is_declared_and_not_kept() {
    for (limits, code, setting) in [
        (
            Limits {
                session_bytes: ByteCount::new(20),
                ..Limits::default()
            },
            "over-quota",
            "limits.session_bytes",
        ),
        (
            Limits {
                releases_waiting: 1,
                ..Limits::default()
            },
            "too-many-asks",
            "limits.releases_waiting",
        ),
    ] {
        let scene = Scene::proven(Options {
            limits: Limits {
                free_reserve: ByteCount::mib(1),
                ..limits
            },
            ..Options::default()
        });
        scene.file("a", &[1; 15]);
        scene.file("b", &[2; 15]);
        let before = left(&scene);
        let refused = scene.capture(&json!([{"path": "a"}, {"path": "b"}]), Some("key"));
        assert_eq!(refused.code(), code, "{}", refused.text());
        assert_eq!(refused.json()["setting"], setting, "{}", refused.text());
        assert_eq!(left(&scene), before, "{code}");
        assert_eq!(scene.last_seq(), 0, "they stand declared");
        let alone = scene.release(0);
        assert_eq!(alone.status, 202, "{code}: {}", alone.text());
        // The same request again declares nothing twice.
        let again = scene.capture(&json!([{"path": "a"}, {"path": "b"}]), Some("key"));
        assert_eq!(again.code(), code, "{}", again.text());
        assert_eq!((scene.last_seq(), scene.pending().len()), (0, 1));
    }
}
