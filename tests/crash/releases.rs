//! A release under kills and without room: wherever it is stopped, receipts have their bytes, and after a start bytes have
//! their owners.

use std::collections::BTreeSet;

use holdfast::{
    model::{ByteCount, Digest},
    receipt::Released,
};

use crate::{
    disk::Kind,
    place::{Place, Standing, needed},
    releasing::{Circumstances, Desk, SESSION},
    skip::skipped,
    store::kinds,
    trace::{self, Call, Program, Run},
};

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
    // Of many pages written in a row the first, the last, and each ninth between.
    let name = |n: usize| points.get(n).map(|call| &call.name);
    let is_within = |n: usize| n > 0 && name(n - 1) == name(n) && name(n) == name(n + 1);
    let chosen = (0..points.len()).filter(|n| n % 9 == 0 || !is_within(*n));
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
                assert!(is_late || last.contains("Full"), "{when}: {last}: {met:?}");
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

    /// Cuts the power at every fourth change it makes, and after it was done.
    fn cut(&self, kind: Kind) {
        let mut place = Place::on(kind, self.how);
        let counting = (self.prepare)(&place, 0).trace();
        self.is_done(&counting.stdout, self.name);
        let points = points(&counting);
        let mut said = BTreeSet::new();
        let acknowledged = |stdout: &str, said: &mut BTreeSet<String>| {
            let lines = stdout
                .lines()
                .filter_map(|line| line.strip_prefix("released "));
            said.extend(lines.map(str::to_owned));
        };
        acknowledged(&counting.stdout, &mut said);
        for (n, point) in (1..).zip(points.iter().step_by(4)) {
            let when = format!("{}, power cut at {n}: {point:?}", self.name);
            let program = (self.prepare)(&place, n);
            acknowledged(&program.kill_at(point).stdout, &mut said);
            place.power_cut();
            assert!(
                place.restart(&when).receipts.is_superset(&said),
                "{when}: {said:?}"
            );
            let again = String::from_utf8(program.run().stdout).unwrap();
            acknowledged(&again, &mut said);
            place.power_cut();
            if !again.contains("no such ask") {
                self.is_done(&again, &when);
            }
            assert!(
                place.restart(&when).receipts.is_superset(&said),
                "{when}: {said:?}"
            );
            self.judge(&place, n, &when);
        }
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

/// A file that leaves at once.
fn released() -> Work<'static> {
    Work {
        name: "released",
        says: "released ",
        least: 10,
        how: Circumstances::default(),
        prepare: &|place, n| {
            place.file(&format!("f{n}"), &content(n));
            release(place, &format!("f{n}"), &format!("key{n}"))
        },
        check: &|_, n, standing| once(standing, &format!("f{n}")),
    }
}

/// A no, after which the copy goes.
fn rejected() -> Work<'static> {
    Work {
        name: "rejected",
        says: "settled",
        least: 8,
        how: Circumstances::default(),
        prepare: &|place, n| {
            asked(place, n);
            place.tool("decide", &["0", "rejected"])
        },
        check: &|place, n, standing| standing.asks.is_empty() && !has(place, n),
    }
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
        released(),
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
        rejected(),
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

/// Keeps I5 and I12: `kill -9` and "no space left" at each change of the removal of a session that has
/// content of each kind: it is whole or nobody's, and nothing of it stays.
#[test]
fn a_session_whose_removal_is_killed_at_any_change_is_whole_or_gone() {
    each(&[Work {
        name: "removed",
        says: "removed",
        least: 20,
        how: Circumstances::default(),
        prepare: &|place, n| {
            let desk = place.desk();
            if desk.parts.journal.session(SESSION).is_err() {
                desk.begin(place.path()).unwrap();
            }
            place.file("released", &content(n));
            let seq = desk.declare(&["released"]).unwrap();
            assert!(matches!(desk.release(seq, None), Ok(Released::Now(_))));
            for (upload, own) in [("a", "of its own"), ("b", "another")] {
                desk.upload(upload, format!("{own} {n}").as_bytes());
            }
            drop(desk);
            asked(place, n + 1000);
            place.tool("remove", &[])
        },
        check: &|place, _, standing| {
            let rows = [
                standing.receipts.len(),
                standing.asks.len(),
                standing.declared.len(),
            ];
            rows == [0; 3] && place.objects().is_empty()
        },
    }]);
}

/// Keeps I5 and I12: the power fails at changes of a release and of a no, and right after them. Every receipt
/// that was given has its bytes, and no bytes are without an owner.
#[test]
fn a_power_cut_at_any_change_of_a_release_leaves_no_receipt_without_bytes() {
    if let Some(why) = trace::unavailable() {
        return skipped(20, "power cuts within a release", why);
    }
    for kind in kinds() {
        released().cut(kind);
        // XFS takes its time over each start.
        if kind == Kind::Ext4 {
            rejected().cut(kind);
        }
    }
}
