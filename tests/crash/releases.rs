//! A release under kills and without room: wherever it is stopped, receipts have their bytes, and after a start bytes have
//! their owners.

use std::{collections::BTreeSet, fs, path::Path};

use holdfast::{
    control::ControlError,
    model::{AttachmentKind, AttachmentRef, ByteCount, Cancel, Digest, ReceiptHandle},
    receipt::{Ask, Draft, Released},
    transfer::release::recover,
};

use crate::{
    releasing::{Circumstances, Desk, SESSION},
    skip::skipped,
    store::scratch,
    trace::{self, Call, Program, Run, release_tool},
};

/// A data directory with a workspace.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    how: Circumstances,
    _workspace: tempfile::TempDir,
}

/// What a start finds.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) receipts: BTreeSet<String>,
    /// The path of each receipt.
    pub(crate) paths: Vec<String>,
    pub(crate) asks: Vec<Ask>,
    /// Every path that was declared.
    pub(crate) declared: Vec<String>,
}

impl Place {
    pub(crate) fn new(how: Circumstances) -> Self {
        let dir = scratch();
        // In memory files do not show that they stood still.
        let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::os::unix::fs::symlink(workspace.path(), dir.path().join("ws")).unwrap();
        Desk::make(dir.path()).unwrap();
        Self {
            dir,
            how,
            _workspace: workspace,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The desk at the usual time.
    pub(crate) fn desk(&self) -> Desk {
        Desk::open(self.path(), Circumstances::default()).expect("a restart needs no help")
    }

    pub(crate) fn file(&self, path: &str, content: &str) {
        let path = self.path().join("ws").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The tool with these words, the directory after the first.
    pub(crate) fn tool(&self, command: &str, rest: &[&str]) -> Program {
        let (later, bytes) = (self.how.later.to_string(), self.how.bytes.to_string());
        let dir = self.path().to_str().unwrap();
        let all = ["--later", &later, "--bytes", &bytes, command, dir];
        release_tool([&all[..], rest].concat())
    }

    /// What lies in the store.
    pub(crate) fn objects(&self) -> BTreeSet<String> {
        let shards = fs::read_dir(self.path().join("data/objects/sha256")).unwrap();
        let objects = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
        let names = objects.map(|object| object.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// Starts again and judges: before anything is recovered every receipt and every ask has its bytes;
    /// afterwards all bytes have an owner too, and nothing waits to be cleared away.
    pub(crate) fn restart(&self, when: &str) -> Standing {
        let desk = Desk::open(self.path(), self.how).expect("a restart needs no help");
        desk.parts
            .control
            .standing()
            .expect("a restart needs no help");
        let before = standing(&desk, when);
        recover(&desk.parts);
        let recovered = standing(&desk, when);
        assert_eq!(before.receipts, recovered.receipts, "{when}");
        assert_eq!(before.asks, recovered.asks, "{when}");
        assert_eq!(self.objects(), needed(&desk), "bytes and owners {when}");
        let unclaimed = column(&desk, "SELECT 'x' FROM unclaimed");
        assert_eq!(unclaimed.len(), 0, "claims {when}");
        let staging = fs::read_dir(self.path().join("data/staging")).unwrap();
        assert_eq!(staging.count(), 0, "staging {when}");
        recovered
    }
}

/// What there is; every receipt and every ask of it has its bytes.
fn standing(desk: &Desk, when: &str) -> Standing {
    let receipts = column(desk, "SELECT handle FROM receipts");
    let mut paths = Vec::new();
    for handle in &receipts {
        let handle = ReceiptHandle::parse(handle).unwrap();
        let statement = desk.parts.ledger.receipt(handle).unwrap().statement;
        is_whole(desk, &statement.released, when);
        paths.push(statement.released.path().unwrap().to_owned());
    }
    let asks = desk.parts.ledger.asks(SESSION).unwrap();
    for ask in &asks {
        is_whole(desk, &ask.draft, when);
    }
    Standing {
        receipts,
        paths,
        asks,
        declared: desk.declared(),
    }
}

/// Keeps I5: the bytes are there, whole.
fn is_whole(desk: &Desk, draft: &Draft, when: &str) {
    let reference = AttachmentRef {
        id: draft.id,
        name: None,
        bytes: draft.bytes,
        kind: AttachmentKind::File,
    };
    let blob = desk.parts.store.open(&reference);
    let whole = blob.and_then(|blob| desk.parts.verifier.verify(blob, &Cancel::new()));
    assert!(whole.is_ok(), "{draft:?} {when}: {whole:?}");
}

/// What the database says that somebody needs.
fn needed(desk: &Desk) -> BTreeSet<String> {
    let now = desk.parts.clock.now().as_millis();
    let sql = format!(
        "SELECT lower(hex(digest)) FROM uploads UNION SELECT lower(hex(digest)) FROM refs
         UNION SELECT lower(hex(digest)) FROM receipts
         UNION SELECT lower(hex(digest)) FROM asks WHERE outcome IS NULL AND expires_at > {now}"
    );
    column(desk, &sql)
}

fn column(desk: &Desk, sql: &str) -> BTreeSet<String> {
    let rows = desk.parts.control.read(|conn| {
        let mut all = conn.prepare(sql)?;
        let rows = all.query_map([], |row| row.get(0))?;
        rows.collect::<Result<_, _>>().map_err(ControlError::from)
    });
    rows.unwrap()
}

/// The calls of the work itself: what opening does is killed by other tests.
fn points(run: &Run) -> Vec<Call> {
    let at = run
        .calls
        .iter()
        .position(|call| call.text.contains("\"begin\\n\""));
    let begun: BTreeSet<_> = run.calls[at.unwrap()..].iter().map(key).collect();
    let mut points = run.changes();
    points.retain(|call| begun.contains(&key(call)));
    points.remove(0);
    // Of many pages written in a row the first, the last, and each fifth between.
    let name = |n: usize| points.get(n).map(|call| &call.name);
    let is_within = |n: usize| n > 0 && name(n - 1) == name(n) && name(n) == name(n + 1);
    let chosen = (0..points.len()).filter(|n| n % 5 == 0 || !is_within(*n));
    chosen.map(|n| points[n].clone()).collect()
}

fn key(call: &Call) -> (String, u32) {
    (call.name.clone(), call.nth)
}

/// Work that is killed, again and again.
struct Work<'a> {
    name: &'a str,
    /// How its last word begins.
    says: &'a str,
    /// The fewest changes it makes.
    least: usize,
    how: Circumstances,
    /// Gets the place ready for the work of this number, and says how the tool is called for it.
    prepare: &'a dyn Fn(&Place, usize) -> Program,
    /// Judges the place after the work of this number was repeated.
    check: &'a dyn Fn(&Place, usize, &Standing) -> bool,
}

impl Work<'_> {
    /// Kills it at each change it makes.
    fn kill(&self) {
        let place = Place::new(self.how);
        let counting = (self.prepare)(&place, 0).trace();
        self.is_done(&counting.stdout, self.name);
        self.judge(&place, 0, self.name);
        let points = points(&counting);
        assert!(points.len() >= self.least, "{}: {points:?}", self.name);
        let mut killed = 0;
        for (n, point) in (1..).zip(&points) {
            let when = format!("{}, {n}: {point:?}", self.name);
            let program = (self.prepare)(&place, n);
            let run = program.kill_at(point);
            // The database writes some pages more or fewer as it grows.
            if run.killed {
                killed += 1;
            } else {
                self.is_done(&run.stdout, &when);
            }
            let standing = place.restart(&when);
            for handle in run
                .stdout
                .lines()
                .filter_map(|line| line.strip_prefix("released "))
            {
                assert!(standing.receipts.contains(handle), "{handle} {when}");
            }
            for handle in run
                .stdout
                .lines()
                .filter_map(|line| line.strip_prefix("asked "))
            {
                let mut asks = standing.asks.iter();
                assert!(
                    asks.any(|ask| ask.handle.to_string() == handle),
                    "{handle} {when}"
                );
            }
            // Whoever got no answer asks again.
            let again = program.run();
            let said = String::from_utf8(again.stdout).unwrap();
            // A decision that was durable needs no second one.
            if !said.contains("no such ask") {
                self.is_done(&said, &when);
            }
            self.judge(&place, n, &when);
        }
        let few = format!("{}: killed at {killed} of {points:?}", self.name);
        assert!(killed * 10 >= points.len() * 9, "{few}");
    }

    /// Answers each call that takes room with "no space left", once or from then on.
    fn starve(&self) {
        let place = Place::new(self.how);
        let counting = (self.prepare)(&place, 0).trace();
        let takes_room = |call: &Call| match call.name.as_str() {
            "openat" => call.text.contains("O_TMPFILE"),
            name => ["pwrite64", "linkat", "fallocate"].contains(&name),
        };
        let points = points(&counting);
        let points: Vec<_> = points.iter().filter(|call| takes_room(call)).collect();
        let (mut n, mut refused) = (0, 0);
        for (point, later) in points.iter().zip(["", "+"].into_iter().cycle()) {
            n += 1;
            let when = format!("{}, {n}{later}: {point:?}", self.name);
            let program = (self.prepare)(&place, n);
            let Call { name, nth, .. } = point;
            let run = program.inject(&format!("{name}:error=ENOSPC:when={nth}{later}"));
            assert!(!run.killed, "{when}");
            let last = run.stdout.lines().last().unwrap_or_default();
            if last.starts_with("refused") && self.says != "refused " {
                refused += 1;
                // The line that follows a commit: it stands, and is not acknowledged.
                let mut calls = run.calls.iter();
                let met = calls.find(|call| call.text.contains("INJECTED"));
                let is_line = met.is_some_and(|call| call.text.contains(r#"{\"commit\""#));
                let is_late = is_line && last.contains("NotDurable");
                assert!(is_late || last.contains("Full"), "{when}: {last}");
                if !is_late {
                    let desk = Desk::open(place.path(), self.how).unwrap();
                    assert_eq!(place.objects(), needed(&desk), "bytes and owners {when}");
                }
            } else {
                self.is_done(&run.stdout, &when);
            }
            place.restart(&when);
            let again = String::from_utf8(program.run().stdout).unwrap();
            if !again.contains("no such ask") {
                self.is_done(&again, &when);
            }
            self.judge(&place, n, &when);
        }
        let may_refuse = !["refused ", "recovered"].contains(&self.says);
        assert!(refused > 0 || !may_refuse, "{}: {points:?}", self.name);
    }

    fn is_done(&self, said: &str, when: &str) {
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with(self.says), "{when}: {said}");
    }

    fn judge(&self, place: &Place, n: usize, when: &str) {
        let standing = place.restart(when);
        let paths: Vec<_> = standing.asks.iter().map(|ask| ask.draft.path()).collect();
        let is_right = (self.check)(place, n, &standing);
        assert!(
            is_right,
            "{when}: receipts {:?} asks {paths:?}",
            standing.paths
        );
    }
}

fn content(n: usize) -> String {
    format!("content {n}")
}

/// Declares a file of this number and says how it is released.
fn release(place: &Place, path: &str, key: &str) -> Program {
    let seq = place.desk().declare(&[path]).unwrap();
    place.tool("release", &[&seq.to_string(), key])
}

/// Has a file of this number asked about.
fn asked(place: &Place, n: usize) {
    place.file(&format!(".f{n}"), &content(n));
    let desk = place.desk();
    let seq = desk.declare(&[&format!(".f{n}")]).unwrap();
    assert!(matches!(desk.release(seq, None), Ok(Released::Asked(_))));
}

/// Whether there is one receipt for this path.
fn once(standing: &Standing, path: &str) -> bool {
    standing.paths.iter().filter(|one| *one == path).count() == 1
}

fn has(place: &Place, n: usize) -> bool {
    let digest = Digest::of(content(n).as_bytes()).to_string();
    place.objects().contains(&digest)
}

/// Kills and starves each.
fn each(work: &[Work<'_>]) {
    if let Some(why) = trace::unavailable() {
        return skipped(work.len(), "kill points of releases", why);
    }
    for one in work {
        one.kill();
        one.starve();
    }
}

/// Keeps I5 and I12: `kill -9` and "no space left" at each change of a release: at once, with a question, in place of an
/// older question, and without room.
#[test]
fn a_release_killed_at_any_change_is_whole_or_nothing_and_can_be_repeated() {
    let how = Circumstances::default();
    each(&[
        Work {
            name: "released",
            says: "released ",
            least: 10,
            how,
            prepare: &|place, n| {
                place.file(&format!("f{n}"), &content(n));
                release(place, &format!("f{n}"), &format!("key{n}"))
            },
            check: &|_, n, standing| once(standing, &format!("f{n}")),
        },
        Work {
            name: "asked",
            says: "asked ",
            least: 10,
            how,
            prepare: &|place, n| {
                place.file(&format!(".f{n}"), &content(n));
                release(place, &format!(".f{n}"), &format!("key{n}"))
            },
            check: &|_, n, standing| {
                let path = format!(".f{n}");
                standing
                    .asks
                    .iter()
                    .filter(|ask| ask.draft.path() == Some(path.as_str()))
                    .count()
                    == 1
            },
        },
        Work {
            name: "withdrawn",
            says: "asked ",
            least: 10,
            how,
            prepare: &|place, n| {
                asked(place, n);
                place.file(&format!(".f{n}"), &format!("changed {n}"));
                let seq = place.desk().last().to_string();
                place.tool("release", &[&seq, &format!("key{n}")])
            },
            check: &|place, n, standing| {
                let path = format!(".f{n}");
                let asks = standing
                    .asks
                    .iter()
                    .filter(|ask| ask.draft.path() == Some(path.as_str()));
                asks.count() == 1 && !has(place, n)
            },
        },
        Work {
            name: "no room",
            says: "refused ",
            least: 10,
            how: Circumstances { bytes: 5, ..how },
            prepare: &|place, n| {
                place.file(&format!("f{n}"), &content(n));
                release(place, &format!("f{n}"), &format!("key{n}"))
            },
            check: &|place, _, standing| standing.receipts.is_empty() && place.objects().is_empty(),
        },
    ]);
}

/// Keeps I5 and I12: `kill -9` and "no space left" at each change of the release of a directory, and of files that are captured
/// as they are presented.
#[test]
fn a_directory_or_a_capture_killed_at_any_change_is_whole_or_nothing() {
    let how = Circumstances::default();
    each(&[
        Work {
            name: "directory",
            says: "released ",
            least: 12,
            how,
            prepare: &|place, n| {
                place.file(&format!("d{n}/a"), &content(n));
                place.file(&format!("d{n}/b"), "the same in each");
                release(place, &format!("d{n}"), &format!("key{n}"))
            },
            check: &|_, n, standing| once(standing, &format!("d{n}")),
        },
        Work {
            name: "everything",
            says: "asked ",
            least: 12,
            how,
            prepare: &|place, n| {
                place.file("ordinary", &content(n));
                place.file(".sensitive", "the same in each");
                if n == 0 {
                    place.desk().declare(&["ordinary", ".sensitive"]).unwrap();
                }
                place.tool("archive", &[&format!("key{n}")])
            },
            // What is asked about is the last one, and the older ones are withdrawn.
            check: &|place, _, standing| standing.asks.len() == 1 && place.objects().len() == 1,
        },
        Work {
            name: "captured",
            says: "asked ",
            least: 20,
            how,
            prepare: &|place, n| {
                let paths = [format!("f{n}"), format!(".f{n}")];
                place.file(&paths[0], &content(n));
                place.file(&paths[1], &format!("other {n}"));
                place.tool("capture", &[&format!("key{n}"), &paths[0], &paths[1]])
            },
            check: &|_, n, standing| {
                let path = format!(".f{n}");
                let asks = standing
                    .asks
                    .iter()
                    .filter(|ask| ask.draft.path() == Some(path.as_str()));
                asks.count() == 1
                    && once(standing, &format!("f{n}"))
                    && standing.declared.iter().filter(|one| **one == path).count() == 1
            },
        },
    ]);
}

/// Keeps I5 and I12: `kill -9` and "no space left" at each change of what ends a release: a yes, a no, its time, and what a
/// start clears away after a kill.
#[test]
fn the_end_of_a_release_killed_at_any_change_leaves_bytes_and_owners_together() {
    let how = Circumstances::default();
    each(&[
        Work {
            name: "allowed",
            says: "settled",
            least: 5,
            how,
            prepare: &|place, n| {
                asked(place, n);
                place.tool("decide", &["0", "allowed-once"])
            },
            check: &|_, n, standing| {
                standing.asks.is_empty() && standing.paths.contains(&format!(".f{n}"))
            },
        },
        Work {
            name: "rejected",
            says: "settled",
            least: 8,
            how,
            prepare: &|place, n| {
                asked(place, n);
                place.tool("decide", &["0", "rejected"])
            },
            check: &|place, n, standing| standing.asks.is_empty() && !has(place, n),
        },
        Work {
            name: "rejected, and needed by a receipt",
            says: "settled",
            least: 8,
            how,
            prepare: &|place, n| {
                place.file(&format!("f{n}"), &content(n));
                let desk = place.desk();
                let seq = desk.declare(&[&format!("f{n}")]).unwrap();
                assert!(matches!(desk.release(seq, None), Ok(Released::Now(_))));
                drop(desk);
                asked(place, n);
                place.tool("decide", &["0", "rejected"])
            },
            check: &|place, n, standing| standing.asks.is_empty() && has(place, n),
        },
        Work {
            name: "expired",
            says: "recovered",
            least: 8,
            how: Circumstances { later: 48, ..how },
            prepare: &|place, n| {
                asked(place, n);
                place.tool("recover", &[])
            },
            check: &|place, n, standing| standing.asks.is_empty() && !has(place, n),
        },
        Work {
            name: "recovered",
            says: "recovered",
            least: 8,
            how,
            prepare: &|place, n| {
                let desk = place.desk();
                let mut spool = desk.parts.store.spool(None, ByteCount::kib(1)).unwrap();
                spool.write(content(n).as_bytes()).unwrap();
                let spool = spool.finish();
                desk.parts.ledger.claim(&[spool.digest()]).unwrap();
                drop(desk.parts.store.commit(spool).unwrap());
                place.tool("recover", &[])
            },
            check: &|place, n, _| !has(place, n),
        },
    ]);
}
