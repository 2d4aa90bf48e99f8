//! Every attack at every named step of a read, on both resolvers.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use holdfast::{
    model::{ByteCount, Cancel},
    pinned::{Bounds, HardLinks, PinnedError, Policy, Resolver, Step},
};

use crate::{
    arena::{Arena, bytes, open_descriptors, rel_path},
    child,
};

/// Longer than one read, so that an attack can fall between two.
const LENGTH: usize = 256 * 1024 + 10;
const LIMIT: u64 = LENGTH as u64 + 8;
const PATH: &str = "a/b/f";

/// Contents of equal length, so that length cannot tell them apart.
fn content(word: &str) -> Vec<u8> {
    word.as_bytes()
        .iter()
        .copied()
        .cycle()
        .take(LENGTH)
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attack {
    FinalBecomesLink,
    ParentBecomesLink,
    GrandparentBecomesLink,
    AncestorMovesOut,
    RootIsReplaced,
    FinalBecomesFifo,
    FinalBecomesDirectory,
    AnotherFileRenamedOver,
    GrowsWithinTheLimit,
    GrowsPastTheLimit,
    Truncated,
    RewrittenInPlace,
    GetsASecondName,
    SecretLinkedOver,
    Unlinked,
}

use Attack::*;

const ATTACKS: [Attack; 15] = [
    FinalBecomesLink,
    ParentBecomesLink,
    GrandparentBecomesLink,
    AncestorMovesOut,
    RootIsReplaced,
    FinalBecomesFifo,
    FinalBecomesDirectory,
    AnotherFileRenamedOver,
    GrowsWithinTheLimit,
    GrowsPastTheLimit,
    Truncated,
    RewrittenInPlace,
    GetsASecondName,
    SecretLinkedOver,
    Unlinked,
];

/// How far a read has come, from the attacker's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// No component is held.
    Nothing,
    /// `a` is held, the rest is still a name.
    HoldsA,
    /// `a/b` is held, the file is still a name.
    HoldsB,
    /// The file is held; its facts are not known.
    HoldsFile,
    /// Its facts were examined once; reading has not begun.
    Admitted,
    /// The facts to compare with are taken.
    Stamped,
    /// Its name was confirmed.
    Confirmed,
    /// The first read is done, the end is not known.
    HalfRead,
    /// Everything is read; only the comparison is left.
    Copied,
}

fn phase(step: Step) -> Phase {
    match step {
        Step::Begun => Phase::Nothing,
        Step::Component { index: 0 } => Phase::HoldsA,
        Step::Component { index: 1 } => Phase::HoldsB,
        Step::Component { .. } | Step::Resolved => Phase::HoldsFile,
        Step::Examined | Step::Reopened => Phase::Admitted,
        Step::Stamped => Phase::Stamped,
        Step::Confirmed | Step::Flushed | Step::Read { offset: 0 } => Phase::Confirmed,
        Step::Read { .. } => Phase::HalfRead,
        Step::Copied => Phase::Copied,
        Step::Leased | Step::Cloned | Step::Again { .. } | _ => {
            panic!("a step without a row here: {step:?}")
        }
    }
}

/// The file, and what `attack` needs besides.
fn prepare(arena: &Arena, attack: Attack) {
    arena.file("root/a/b/f", &content("inside!"));
    arena.fifo("root/a/b/fifo");
    let outside = |name: &str| arena.file(name, &content("outside"));
    match attack {
        FinalBecomesLink => {
            outside("outside/f");
            arena.link("root/a/b/link", "../../../outside/f");
        }
        ParentBecomesLink => {
            outside("outside/b/f");
            arena.link("root/a/b-link", "../../outside/b");
        }
        GrandparentBecomesLink => {
            outside("outside/a/b/f");
            arena.link("root/a-link", "../outside/a");
        }
        AncestorMovesOut => arena.dir("outside/x"),
        RootIsReplaced => outside("evil/a/b/f"),
        FinalBecomesDirectory => arena.dir("root/a/b/dir"),
        AnotherFileRenamedOver => arena.file("root/a/b/new", &content("newer!!")),
        SecretLinkedOver => outside("outside/f"),
        GetsASecondName => arena.dir("outside"),
        FinalBecomesFifo | GrowsWithinTheLimit | GrowsPastTheLimit | Truncated
        | RewrittenInPlace | Unlinked => {}
    }
}

fn attack(arena: &Arena, attack: Attack) {
    let path = arena.path("root/a/b/f");
    let append = |n: usize| {
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&vec![b'+'; n]).unwrap();
    };
    match attack {
        FinalBecomesLink => arena.exchange("root/a/b/f", "root/a/b/link"),
        ParentBecomesLink => arena.exchange("root/a/b", "root/a/b-link"),
        GrandparentBecomesLink => arena.exchange("root/a", "root/a-link"),
        AncestorMovesOut => arena.exchange("root/a", "outside/x"),
        RootIsReplaced => arena.exchange("root", "evil"),
        FinalBecomesFifo => arena.exchange("root/a/b/f", "root/a/b/fifo"),
        FinalBecomesDirectory => arena.exchange("root/a/b/f", "root/a/b/dir"),
        AnotherFileRenamedOver => arena.rename("root/a/b/new", "root/a/b/f"),
        GrowsWithinTheLimit => append(8),
        GrowsPastTheLimit => append(9),
        Truncated => {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(7).unwrap();
        }
        RewrittenInPlace => {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&content("newer!!"), 0).unwrap();
        }
        GetsASecondName => arena.hard_link("root/a/b/f", "outside/second"),
        SecretLinkedOver => {
            arena.hard_link("outside/f", "root/a/b/secret");
            arena.rename("root/a/b/secret", "root/a/b/f");
        }
        Unlinked => fs::remove_file(path).unwrap(),
    }
}

/// The one outcome allowed: `Ok` of a content's first word, or an error class.
fn expected(
    attack: Attack,
    phase: Phase,
    hard_links: HardLinks,
) -> Result<&'static str, &'static str> {
    use Phase::*;
    let inside = Ok("inside!");
    let deny = hard_links == HardLinks::Deny;
    // The name leads elsewhere: what is held is read on only if nobody asks for its name, and only
    // until its change time is part of the comparison.
    let name_lost = if phase < Stamped && !deny {
        inside
    } else {
        Err("changed")
    };
    let held = phase >= HoldsFile;
    match attack {
        FinalBecomesLink if !held => Err("denied_symlink"),
        FinalBecomesFifo | FinalBecomesDirectory if !held => Err("not_regular"),
        AnotherFileRenamedOver if !held => Ok("newer!!"),
        Unlinked if !held => Err("not_found"),
        SecretLinkedOver if !held && deny => Err("denied_hardlink"),
        // Whoever allows several names has allowed this one.
        SecretLinkedOver if !held => Ok("outside"),
        FinalBecomesLink
        | FinalBecomesFifo
        | FinalBecomesDirectory
        | AnotherFileRenamedOver
        | SecretLinkedOver
        | Unlinked => name_lost,

        ParentBecomesLink if phase < HoldsB => Err("denied_symlink"),
        GrandparentBecomesLink if phase < HoldsA => Err("denied_symlink"),
        AncestorMovesOut if phase < HoldsA => Err("not_found"),
        // The directory that was inside is held, and so is its file.
        ParentBecomesLink | GrandparentBecomesLink | AncestorMovesOut | RootIsReplaced => inside,

        GrowsPastTheLimit if phase < Copied => Err("too_large"),
        // A content that stands still from the first look to the last is a content.
        GrowsWithinTheLimit if phase < Stamped => Ok("grown"),
        Truncated if phase < Stamped => Ok("cut"),
        RewrittenInPlace if phase < Stamped => Ok("newer!!"),
        GetsASecondName if phase < Stamped && deny => Err("denied_hardlink"),
        GetsASecondName if phase < Stamped => inside,

        GrowsPastTheLimit | GrowsWithinTheLimit | Truncated | RewrittenInPlace
        | GetsASecondName => Err("changed"),
    }
}

fn word(content: &[u8]) -> &'static str {
    match content.len() {
        7 if content == b"inside!" => "cut",
        n if n == LENGTH + 8 && content.starts_with(&self::content("inside!")) => "grown",
        _ => ["inside!", "newer!!", "outside"]
            .into_iter()
            .find(|word| content == self::content(word))
            .unwrap_or("a content that never was"),
    }
}

fn steps_of(resolver: Resolver, policy: &Policy) -> Vec<Step> {
    let arena = Arena::new();
    prepare(&arena, Unlinked);
    let mut steps = Vec::new();
    let root = arena.root(policy.clone());
    arena
        .read(&root, &rel_path(PATH), resolver, LIMIT, &mut |step| {
            steps.push(step);
        })
        .unwrap();
    steps
}

/// One attack at one step of one kind of read.
#[derive(Clone, Debug)]
struct Cell {
    attack: Attack,
    at: Step,
    resolver: Resolver,
    policy: Policy,
}

impl Cell {
    fn run(&self) {
        let arena = Arena::new();
        prepare(&arena, self.attack);
        let root = arena.root(self.policy.clone());
        let mut struck = false;
        let mut seam = |step| {
            if step == self.at {
                attack(&arena, self.attack);
                struck = true;
            }
            let swapped = struck && self.attack == FinalBecomesFifo;
            let fifo = if swapped { "f" } else { "fifo" };
            let stands = [
                (ParentBecomesLink, "root/a/b-link"),
                (GrandparentBecomesLink, "root/a-link/b"),
                (AncestorMovesOut, "outside/x/b"),
                (RootIsReplaced, "evil/a/b"),
            ];
            let moved = stands.iter().find(|(by, _)| struck && *by == self.attack);
            let directory = moved.map_or("root/a/b", |(_, to)| to);
            assert!(!arena.fifo_has_a_reader(&format!("{directory}/{fifo}")));
        };
        let path = rel_path(PATH);
        let result = arena.read(&root, &path, self.resolver, LIMIT, &mut seam);
        assert!(struck, "never reached: {self:?}");
        let outcome = match &result {
            Ok(snapshot) => Ok(word(&bytes(snapshot))),
            Err(error) => Err(error.class()),
        };
        let expected = expected(self.attack, phase(self.at), self.policy.hard_links);
        assert_eq!(outcome, expected, "{self:?}: {result:?}");
    }
}

/// Keeps I2 and I4: whatever changes at whatever step, a read gives the content that was inside at
/// one moment, or the one class that says why not.
#[test]
fn s01_s02_s03_every_attack_at_every_step_has_exactly_one_outcome() {
    let mut cells = Vec::new();
    for hard_links in [HardLinks::Deny, HardLinks::Allow] {
        let policy = Policy {
            hard_links,
            ..Policy::default()
        };
        for resolver in Resolver::ALL {
            for at in steps_of(resolver, &policy) {
                let policy = policy.clone();
                cells.extend(ATTACKS.map(|attack| Cell {
                    attack,
                    at,
                    resolver,
                    policy: policy.clone(),
                }));
            }
        }
    }
    assert!(cells.len() > 600, "{} cells", cells.len());
    // Every read waits for a flush: many at once share one.
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    cell.run();
                }
            });
        }
    });
}

/// Keeps I11: the ceiling is the read's own, whatever the spool would take.
#[test]
fn a_file_that_grows_past_the_ceiling_is_refused_whatever_the_spool_would_take() {
    for resolver in Resolver::ALL {
        let arena = Arena::new();
        prepare(&arena, GrowsPastTheLimit);
        let spool = arena.spools().create(ByteCount::mib(64)).unwrap();
        let bounds = Bounds::new(ByteCount::new(LIMIT), Cancel::new());
        let root = arena.root(Policy::default());
        let path = rel_path(PATH);
        let result = root.snapshot(&path, resolver, spool, &bounds, &mut |step| {
            if step == (Step::Read { offset: 0 }) {
                attack(&arena, GrowsPastTheLimit);
            }
        });
        let class = result.map(drop).map_err(|error| error.class());
        assert_eq!(class, Err("too_large"), "{resolver}");
    }
}

/// Both resolvers go through the same steps, but for the walk's components.
#[test]
fn the_steps_of_a_read_are_the_named_ones_in_order() {
    let common = [
        Step::Resolved,
        Step::Examined,
        Step::Reopened,
        Step::Stamped,
        Step::Confirmed,
        Step::Flushed,
        Step::Read { offset: 0 },
        Step::Read { offset: 256 * 1024 },
        Step::Read {
            offset: LENGTH as u64,
        },
        Step::Copied,
    ];
    let walk = [0, 1, 2].map(|index| Step::Component { index });
    let policy = Policy::default();
    let openat2 = [&[Step::Begun][..], &common].concat();
    assert_eq!(steps_of(Resolver::Openat2, &policy), openat2);
    let walk = [&[Step::Begun][..], &walk, &common].concat();
    assert_eq!(steps_of(Resolver::Walk, &policy), walk);
}

/// Keeps I4: cancelled at any step, a read gives nothing, and nothing
/// stays open.
#[test]
fn a_read_cancelled_at_any_step_gives_nothing_and_leaves_nothing_open() {
    for resolver in Resolver::ALL {
        for at in steps_of(resolver, &Policy::default()) {
            let arena = Arena::new();
            prepare(&arena, Unlinked);
            let root = arena.root(Policy::default());
            let cancel = Cancel::new();
            let limit = ByteCount::new(LIMIT);
            let spools = arena.spools();
            let result = root.snapshot(
                &rel_path(PATH),
                resolver,
                spools.create(limit).unwrap(),
                &Bounds::new(limit, cancel.clone()),
                &mut |step| {
                    if step == at {
                        cancel.fire();
                    }
                },
            );
            let class = result.as_ref().map_err(PinnedError::class).map(|_| ());
            assert_eq!(class, Err("cancelled"), "{resolver} at {at:?}");
        }
    }
}

/// The walk holds two components at a time, however deep the path.
#[test]
fn a_walk_holds_two_components_at_a_time() {
    let name = "deterministic::a_walk_holds_two_components_at_a_time";
    if !child::is_child(name) {
        return child::again(name);
    }
    let arena = Arena::new();
    let deep = [["d"; 127].join("/"), "f".into()].join("/");
    arena.file(&format!("root/{deep}"), b"deep");
    let root = arena.root(Policy::default());
    let before = open_descriptors();
    let mut most = 0;
    let pinned = root.pin(&rel_path(&deep), Resolver::Walk, &mut |_step| {
        most = most.max(open_descriptors());
    });
    assert!(pinned.is_ok());
    assert_eq!(most, before + 2);
}
