//! What is missing on a host has a defined answer: never a weaker read.

use std::ffi::OsStr;

use holdfast::{
    model::ByteCount,
    pinned::{Counters, Grade, Leases, Outcome, PinnedError, Policy, Resolver, Root, SelfTest},
    spool::SpoolError,
};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use crate::{
    arena::{Arena, open_descriptors, read_into, rel_path, unprivileged},
    child,
    filter::{self, COMPONENT, O_TMPFILE, OPENAT2, PTRACE, STATX},
};

fn arena() -> Arena {
    let arena = Arena::new();
    arena.file("root/d/f", b"inside!");
    arena
}

fn class(arena: &Arena, root: &Root, resolver: Resolver) -> Result<(), &'static str> {
    arena
        .read(root, &rel_path("d/f"), resolver, 64, &mut ())
        .map(drop)
        .map_err(|error| error.class())
}

/// Keeps I2: a kernel without `openat2` is remembered and counted, and nothing is read by another
/// way than the one asked for.
#[test]
fn a_kernel_without_openat2_is_remembered_and_never_replaced_in_silence() {
    let arena = arena();
    let root = arena.root(Policy::default());
    filter::with(OPENAT2, Errno::NOSYS, || {
        assert_eq!(class(&arena, &root, Resolver::Openat2), Err("unsupported"));
        assert_eq!(class(&arena, &root, Resolver::Walk), Ok(()));
    });
    // Where the call would work: kernels do not grow system calls, so it is not made again.
    assert_eq!(class(&arena, &root, Resolver::Openat2), Err("unsupported"));
    let counters = root.counters();
    assert_eq!((counters.missing, counters.filtered), (2, 0));
}

/// Keeps I2: a filter that answers `EPERM` speaks for its own thread and call, and is counted.
#[test]
fn a_filter_on_one_thread_is_not_taken_for_the_kernel_s_answer() {
    let arena = arena();
    let root = arena.root(Policy::default());
    filter::with(OPENAT2, Errno::PERM, || {
        assert_eq!(class(&arena, &root, Resolver::Openat2), Err("unsupported"));
        assert_eq!(class(&arena, &root, Resolver::Walk), Ok(()));
    });
    assert_eq!(class(&arena, &root, Resolver::Openat2), Ok(()));
    let filtered = Counters {
        missing: 0,
        filtered: 1,
    };
    assert_eq!(root.counters(), filtered);
}

#[test]
fn the_self_test_says_which_resolver_is_missing() {
    let arena = arena();
    let directory = std::fs::File::open(arena.path("spool")).unwrap();
    for errno in [Errno::NOSYS, Errno::PERM] {
        let report = filter::with(OPENAT2, errno, || SelfTest::run(&directory)).unwrap();
        let outcomes = report.outcomes();
        assert!(matches!(
            outcomes[0],
            (Resolver::Openat2, Outcome::Absent(_))
        ));
        assert_eq!(outcomes[1], (Resolver::Walk, Outcome::Sound));
        assert_eq!(report.sound().collect::<Vec<_>>(), [Resolver::Walk]);
    }
}

#[test]
fn a_filesystem_without_unnamed_files_makes_no_spool() {
    let arena = arena();
    for errno in [Errno::OPNOTSUPP, Errno::NOSPC, Errno::MFILE] {
        let result = filter::with(O_TMPFILE, errno, || {
            arena.spools().create(ByteCount::kib(1))
        });
        let error = result.map(drop).unwrap_err();
        let right = match errno {
            Errno::OPNOTSUPP => matches!(error, SpoolError::Unsupported(_)),
            Errno::NOSPC => matches!(error, SpoolError::Full(_)),
            _ => matches!(error, SpoolError::Resource(_)),
        };
        assert!(right, "{errno:?}: {error:?}");
        let class = PinnedError::from(error).class();
        let expected = match errno {
            Errno::OPNOTSUPP => "unsupported",
            Errno::NOSPC => "io",
            _ => "resource",
        };
        assert_eq!(class, expected);
    }
}

/// A lease is for the owner; others get the next grade, or the class that says so.
#[test]
fn without_the_right_to_a_lease_the_next_grade_is_taken() {
    if !rustix::process::geteuid().is_root() {
        return child::skipped("1 case of a lease on another's file", "it needs root");
    }
    for (lowest, expected) in [
        (Grade::Stamped, Ok(Grade::Stamped)),
        (Grade::Lease, Err("unsupported")),
    ] {
        let arena = arena();
        let root = arena.root(Policy {
            stability: lowest,
            leases: Leases::Try,
            ..Policy::default()
        });
        let spool = arena.spools().create(ByteCount::kib(1)).unwrap();
        let result = unprivileged(|| read_into(&root, &rel_path("d/f"), Resolver::Openat2, spool));
        let grade = result.map(|snapshot| snapshot.evidence().grade);
        assert_eq!(grade.map_err(|error| error.class()), expected);
    }
}

/// Keeps I2: without a process filesystem, or with one that somebody made up, no root is opened.
#[test]
fn no_root_is_opened_without_a_trustworthy_proc() {
    let name = "environment::no_root_is_opened_without_a_trustworthy_proc";
    if !child::is_child(name) {
        return child::in_namespace(name, "", OsStr::new(""));
    }
    let arena = arena();
    let flags = rustix::mount::MountFlags::empty();
    let opened = || {
        Root::open(&arena.path("root"), Policy::default())
            .map(drop)
            .map_err(|error| error.class())
    };
    assert_eq!(opened(), Ok(()));
    // Something over the one directory that is used.
    rustix::mount::mount("tmpfs", "/proc/self/fd", "tmpfs", flags, None).unwrap();
    assert_eq!(opened(), Err("unsupported"));
    // Nothing there at all, and then a forgery.
    rustix::mount::mount("tmpfs", "/proc", "tmpfs", flags, None).unwrap();
    assert_eq!(opened(), Err("unsupported"));
    std::fs::create_dir_all("/proc/1/fd").unwrap();
    std::os::unix::fs::symlink("1", "/proc/self").unwrap();
    assert_eq!(opened(), Err("unsupported"));
}

/// Keeps I11: with no descriptor left a read says `resource`, nothing stays open, and the next read
/// after the shortage works.
#[test]
fn a_read_without_descriptors_says_so_and_leaves_none_open() {
    let name = "environment::a_read_without_descriptors_says_so_and_leaves_none_open";
    if !child::is_child(name) {
        return child::again(name);
    }
    let arena = arena();
    let root = arena.root(Policy::default());
    let full = getrlimit(Resource::Nofile);
    assert_eq!(class(&arena, &root, Resolver::Openat2), Ok(()));
    let before = open_descriptors();
    let mut refused = 0;
    for resolver in Resolver::ALL {
        for spare in 0..8 {
            let spool = arena.spools().create(ByteCount::kib(1)).unwrap();
            // Below the limit are as many free numbers as there shall be to spare.
            let limit = Rlimit {
                current: (0..).filter(|fd| !is_open(*fd)).nth(spare),
                maximum: full.maximum,
            };
            setrlimit(Resource::Nofile, limit).unwrap();
            let result = read_into(&root, &rel_path("d/f"), resolver, spool);
            setrlimit(Resource::Nofile, full).unwrap();
            match result {
                Ok(snapshot) => drop(snapshot),
                Err(error) => {
                    assert_eq!(error.class(), "resource", "{resolver}, {spare} to spare");
                    refused += 1;
                }
            }
            assert_eq!(class(&arena, &root, resolver), Ok(()));
            assert_eq!(open_descriptors(), before, "{resolver}, {spare} to spare");
        }
    }
    assert!(refused > 4, "the limit was felt {refused} times");
}

fn is_open(fd: u64) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}

/// The program on a directory with one root, where contents are enabled, with `calls` failing.
fn program(calls: filter::Calls, errno: Errno, words: &[&str]) -> (Option<i32>, String) {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = home.path().join("hf");
    std::fs::create_dir(home.path().join("ws")).unwrap();
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("--data").arg(&data).args(words);
        command.output().unwrap()
    };
    assert!(run(&["init"]).status.success());
    let text = "deliverables.mode = \"when-proven\"\n[[root]]\nname = \"ws\"\npath = \"../ws\"\n";
    std::fs::write(data.join("holdfast.toml"), text).unwrap();
    // A filter is inherited by what the thread starts.
    let output = filter::with(calls, errno, || run(words));
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// Keeps I3: where no process may be stopped at its system calls, the gate stays closed and says why.
#[test]
fn a_host_without_ptrace_stays_incomplete() {
    let (code, said) = program(PTRACE, Errno::PERM, &["prove", "--storm", "300ms"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("closed, incomplete; run `holdfast prove`"),
        "{said}"
    );
    assert!(said.contains("syscalls was inconclusive"), "{said}");
}

/// A kernel without `openat2` starts with the walk, which passed the self-test; one without the facts
/// every resolver needs does not start with a root.
#[test]
fn a_start_says_which_resolvers_there_are() {
    let words = ["check-config"];
    let (code, said) = program(OPENAT2, Errno::NOSYS, &words);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("a resolver is not to be had"), "{said}");
    let (code, said) = program(STATX, Errno::NOSYS, &words);
    assert_eq!(code, Some(3), "{said}");
    // Without openat2 and with a walk that finds nothing there is nobody left to ask.
    let (code, said) = filter::with(OPENAT2, Errno::NOSYS, || {
        program(COMPONENT, Errno::NOENT, &words)
    });
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("answers wrongly") && said.contains("no resolver of this kernel"),
        "{said}"
    );
}
