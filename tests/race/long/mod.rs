//! The designs of a race, one at a time and at length, each beside the naive reader that must lose to
//! it in the same run. A design whose naive reader survived is inconclusive, never passed.

mod names;
mod torn;
mod weather;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fsprobe::{
    Attack, Claims, Options, Reader, Refusal, Report, Seam, Subject, Target,
    report::{Counts, Mode},
};
use holdfast::pinned::{Policy, Resolver};
use rustix::fs::{Mode as Permissions, OFlags};

use crate::{
    arena::{Arena, bytes, rel_path},
    probe::{scratch, subject},
};

/// How long each design storms each resolver, in seconds, unless the environment says otherwise.
const STORM: u64 = 60;
/// How long a naive reader has to lose, at most ten times over.
const CANARY: Duration = Duration::from_secs(5);
/// Reads of each outcome without which the schedule was one-sided.
const ENOUGH: u64 = 100;

/// One design: what is done, who must lose to it, and the words a good reader may refuse with.
struct Design {
    name: &'static str,
    attacks: &'static [Attack],
    canary: Naive,
    allowed: &'static [&'static str],
    /// Whether reads must both succeed and be refused, [`ENOUGH`] times each.
    is_two_sided: bool,
}

const DESIGNS: &[Design] = &[
    Design {
        name: "A1 final component and link",
        attacks: &[Attack::FinalLink],
        canary: Naive::LstatThenOpen,
        // Busy, where a name was never the same for two looks in a row.
        allowed: &["denied_symlink", "changed", "busy"],
        is_two_sided: true,
    },
    Design {
        name: "A2 ancestor and link to outside",
        attacks: &[Attack::ParentLink, Attack::GrandparentLink],
        canary: Naive::RealpathThenNofollow,
        allowed: &["denied_symlink", "changed", "busy"],
        is_two_sided: true,
    },
    Design {
        name: "A6 root swapped at its own name",
        attacks: &[Attack::RootReplaced],
        canary: Naive::ByPath,
        allowed: &[],
        is_two_sided: false,
    },
    Design {
        name: "B1 FIFO",
        attacks: &[Attack::Fifo],
        canary: Naive::NonblockThenAsk,
        allowed: &["not_regular", "changed", "busy"],
        is_two_sided: true,
    },
    Design {
        name: "C1 rewritten through a mapping",
        attacks: &[Attack::RewriteByMapping],
        canary: Naive::Sandwich,
        allowed: &["changed"],
        is_two_sided: false,
    },
    Design {
        name: "C5 rewritten by write",
        attacks: &[Attack::RewriteByWrite],
        // The attack writes in steps, each of which moves the times: only who asks for none loses.
        canary: Naive::ByPath,
        allowed: &["changed"],
        is_two_sided: false,
    },
    Design {
        name: "C8 growth",
        attacks: &[Attack::Grow],
        canary: Naive::SizeThenRead,
        allowed: &["too_large", "changed"],
        is_two_sided: false,
    },
];

/// A reader as many are written. Each undertakes everything, so that what it loses counts.
#[derive(Clone, Copy, Debug)]
enum Naive {
    /// Asks whether the name is a link, then opens it.
    LstatThenOpen,
    /// Resolves the path, compares the start, opens without following the last component.
    RealpathThenNofollow,
    /// Opens the path, root and all, every time.
    ByPath,
    /// Opens without waiting, then asks what it opened.
    NonblockThenAsk,
    /// Opens, then asks whether the file has one name.
    OneLink,
    /// Asks for the times before and after reading.
    Sandwich,
    /// Asks for the size, then reads to the end.
    SizeThenRead,
}

impl Subject for Naive {
    fn name(&self) -> &'static str {
        match self {
            Self::LstatThenOpen => "lstat-then-open",
            Self::RealpathThenNofollow => "realpath-then-nofollow",
            Self::ByPath => "by-path",
            Self::NonblockThenAsk => "nonblock-then-ask",
            Self::OneLink => "one-link",
            Self::Sandwich => "sandwich",
            Self::SizeThenRead => "size-then-read",
        }
    }

    fn claims(&self) -> Claims {
        Claims::ALL
    }

    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        Ok(Box::new(NaiveReader(*self, root.to_owned())))
    }
}

struct NaiveReader(Naive, PathBuf);

impl Reader for NaiveReader {
    fn read(&mut self, path: &Path, ceiling: u64, _: &mut Seam<'_>) -> Result<Vec<u8>, Refusal> {
        let Self(naive, root) = self;
        self::read(*naive, root, &root.join(path), ceiling)
            .map_err(|error| Refusal::new(error.kind().to_string()))
    }
}

fn read(naive: Naive, root: &Path, path: &Path, ceiling: u64) -> std::io::Result<Vec<u8>> {
    let no = |why: &str| std::io::Error::other(why.to_owned());
    let open = |path: &Path, flags: OFlags| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
        let fd = rustix::fs::open(path, flags, Permissions::empty())?;
        std::io::Result::Ok(File::from(fd))
    };
    let file = match naive {
        Naive::LstatThenOpen if !std::fs::symlink_metadata(path)?.is_file() => {
            return Err(no("no file"));
        }
        Naive::RealpathThenNofollow => {
            let real = std::fs::canonicalize(path)?;
            if !real.starts_with(root) {
                return Err(no("outside"));
            }
            open(&real, OFlags::NOFOLLOW)?
        }
        Naive::NonblockThenAsk => open(path, OFlags::NONBLOCK | OFlags::NOFOLLOW)?,
        Naive::LstatThenOpen
        | Naive::ByPath
        | Naive::OneLink
        | Naive::Sandwich
        | Naive::SizeThenRead => open(path, OFlags::empty())?,
    };
    let before = file.metadata()?;
    let is_refused = match naive {
        Naive::NonblockThenAsk => !before.is_file(),
        Naive::OneLink => before.nlink() != 1,
        Naive::SizeThenRead => before.len() > ceiling,
        Naive::LstatThenOpen | Naive::RealpathThenNofollow | Naive::ByPath | Naive::Sandwich => {
            false
        }
    };
    if is_refused {
        return Err(no("refused"));
    }
    let mut bytes = Vec::new();
    match naive {
        Naive::SizeThenRead => {
            // Small steps, as a reader that sends on what it has.
            let mut chunk = [0; 4096];
            loop {
                match (&file).read(&mut chunk)? {
                    0 => break,
                    n => bytes.extend_from_slice(&chunk[..n]),
                }
                // The end never comes while the file grows; enough is seen by then.
                if bytes.len() as u64 > 2 * ceiling {
                    break;
                }
            }
        }
        Naive::LstatThenOpen
        | Naive::RealpathThenNofollow
        | Naive::ByPath
        | Naive::NonblockThenAsk
        | Naive::OneLink
        | Naive::Sandwich => {
            (&file).take(ceiling).read_to_end(&mut bytes)?;
        }
    }
    if let Naive::Sandwich = naive {
        let after = file.metadata()?;
        let facts = |of: &std::fs::Metadata| {
            (
                of.len(),
                of.mtime(),
                of.mtime_nsec(),
                of.ctime(),
                of.ctime_nsec(),
            )
        };
        if facts(&before) != facts(&after) {
            return Err(no("changed"));
        }
    }
    Ok(bytes)
}

/// Storms one reader with one design's attacks.
fn storm(subject: Arc<dyn Subject>, design: &Design, time: Duration) -> Report {
    let dir = scratch();
    let mut options = Options::new_in(dir.path());
    options.modes = vec![Mode::Storm];
    options.attacks = design.attacks.to_vec();
    options.storm = time;
    // A schedule that has two outcomes may take ten times as long to show both.
    options.budget = time * if design.is_two_sided { 10 } else { 1 };
    fsprobe::prove(&Target::InProcess(subject), &options).unwrap()
}

/// Everything counted for the design's attacks, the plain file left out.
fn counts(report: &Report) -> Counts {
    let mut counts = Counts::default();
    for row in report
        .matrix
        .iter()
        .filter(|row| row.attack != Attack::Plain)
    {
        counts.merge(&row.counts);
    }
    counts
}

fn say(line: &str) {
    let mut err = std::io::stderr().lock();
    writeln!(err, "{line}").unwrap();
}

/// What one resolver made of a design: nothing lost, or what was; and whether that says anything.
fn judge(design: &Design, resolver: Resolver, time: Duration) -> Result<(), String> {
    let report = storm(subject(resolver), design, time);
    let seen = counts(&report);
    let run = &report.modes[0];
    let seconds = (run.elapsed_ms / 1000).max(1);
    let mut classes = String::new();
    for row in report
        .matrix
        .iter()
        .filter(|row| row.attack != Attack::Plain)
    {
        for refused in &row.refusals {
            classes.extend([" ", &refused.class, "=", &refused.count.to_string()]);
            if !design.allowed.contains(&refused.class.as_str()) {
                return Err(format!("FAILED: refused with `{}`", refused.class));
            }
        }
    }
    say(&format!(
        "{}, {resolver}: seed {}, {} reads ({}/s), {} changes ({}/s), inside {}, refused {}:{classes}",
        design.name,
        report.seed,
        seen.total(),
        seen.total() / seconds,
        run.flips,
        run.flips / seconds,
        seen.inside,
        seen.refused,
    ));
    if seen.is_lost(Claims::ALL) {
        return Err(format!("FAILED: {}", fsprobe::page::table(&report)));
    }
    if design.is_two_sided && seen.inside.min(seen.refused) < ENOUGH {
        return Err("INCONCLUSIVE: one-sided".to_owned());
    }
    Ok(())
}

/// How long each design storms each resolver.
fn time() -> Duration {
    let seconds = std::env::var("HOLDFAST_TEST_STORM").ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(STORM))
}

/// Keeps I2 and I4 at length: every design, both resolvers, the naive reader caught in the same run.
#[test]
#[ignore = "a minute for each design and resolver"]
fn every_design_at_length_beside_the_reader_it_must_catch() {
    let time = time();
    let mut bad = Vec::new();
    for design in DESIGNS {
        let is_caught = (0..10).any(|_| {
            let seen = counts(&storm(Arc::new(design.canary), design, CANARY));
            let is_caught = seen.is_lost(Claims::ALL);
            say(&format!(
                "{}, {}: lost {} of {}{}",
                design.name,
                design.canary.name(),
                seen.escaped + seen.torn + seen.hung + seen.over_limit + seen.sightings,
                seen.total(),
                if is_caught { "" } else { ", not caught yet" },
            ));
            is_caught
        });
        for resolver in Resolver::ALL {
            match judge(design, resolver, time) {
                Ok(()) if is_caught => {}
                Ok(()) => bad.push(format!(
                    "{}, {resolver}: INCONCLUSIVE: {} was not caught",
                    design.name,
                    design.canary.name()
                )),
                Err(why) => bad.push(format!("{}, {resolver}: {why}", design.name)),
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// What a reader that is asked again and again gave out.
#[derive(Debug, Default)]
struct Taken {
    decoys: u64,
    secrets: u64,
    refused: BTreeMap<String, u64>,
}

/// Links a secret to a name in the root and takes it away again, as fast as it goes, while `read` is
/// asked for that name.
fn beneath_a_linker(
    arena: &Arena,
    time: Duration,
    mut read: impl FnMut() -> Result<Vec<u8>, String>,
) -> Taken {
    arena.file("secret", b"OUT: a secret");
    arena.file("root/f", b"IN:  a decoy.");
    let [secret, name, next] = ["secret", "root/f", "next"].map(|name| arena.path(name));
    let is_over = AtomicBool::new(false);
    let mut taken = Taken::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::fs::write(&next, b"IN:  a decoy.").unwrap();
                std::fs::remove_file(&name).unwrap();
                std::fs::hard_link(&secret, &name).unwrap();
                // The count drops to one while somebody may still find the name.
                std::fs::remove_file(&name).unwrap();
                std::fs::rename(&next, &name).unwrap();
            }
        });
        let start = Instant::now();
        while start.elapsed() < time {
            match read() {
                Ok(bytes) if bytes.starts_with(b"OUT") => taken.secrets += 1,
                Ok(_) => taken.decoys += 1,
                Err(class) => *taken.refused.entry(class).or_default() += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    taken
}

/// Keeps I2 at length (B3): a secret that is linked in and out is never read, where asking once for
/// the number of names does not help.
#[test]
#[ignore = "a minute for each resolver"]
fn b3_a_secret_linked_in_and_out_is_never_read() {
    let arena = Arena::new();
    let name = arena.path("root/f");
    let is_caught = (0..10).any(|_| {
        let taken = beneath_a_linker(&arena, CANARY, || {
            read(Naive::OneLink, Path::new("/"), &name, 64)
                .map_err(|error| error.kind().to_string())
        });
        say(&format!("B3 hard link in and out, one-link: {taken:?}"));
        taken.secrets > 0
    });
    assert!(is_caught, "INCONCLUSIVE: one-link was not caught");
    let root = arena.root(Policy::default());
    for resolver in Resolver::ALL {
        let taken = beneath_a_linker(&arena, time(), || {
            arena
                .read(&root, &rel_path("f"), resolver, 64, &mut ())
                .map(|snapshot| bytes(&snapshot))
                .map_err(|error| error.class().to_owned())
        });
        say(&format!("B3 hard link in and out, {resolver}: {taken:?}"));
        assert_eq!(taken.secrets, 0, "{taken:?}");
        for class in taken.refused.keys() {
            let allowed = ["denied_hardlink", "not_found", "changed"];
            assert!(allowed.contains(&class.as_str()), "{taken:?}");
        }
        assert!(taken.decoys >= ENOUGH, "INCONCLUSIVE: {taken:?}");
    }
}
