//! Is a copy the file's content at one moment, and in which grade?

use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use holdfast::pinned::{Grade, Leases, Policy, Resolver, Step};

use crate::{
    arena::{Arena, bytes, rel_path},
    child,
    mapping::Mapping,
};

const LENGTH: usize = 256 * 1024 + 10;
const LIMIT: u64 = LENGTH as u64 + 8;
const PATH: &str = "d/f";

fn content(byte: u8) -> Vec<u8> {
    vec![byte; LENGTH]
}

fn policy(stability: Grade, leases: Leases) -> Policy {
    Policy {
        stability,
        leases,
        ..Policy::default()
    }
}

/// What a read of `root/d/f` comes to: its grade, or the error's class.
fn grade(arena: &Arena, policy: Policy) -> Result<Grade, &'static str> {
    arena
        .read(
            &arena.root(policy),
            &rel_path(PATH),
            Resolver::Openat2,
            LIMIT,
            &mut (),
        )
        .map(|snapshot| snapshot.evidence().grade)
        .map_err(|error| error.class())
}

fn steps_of(arena: &Arena, policy: &Policy) -> Vec<Step> {
    let mut steps = Vec::new();
    let root = arena.root(policy.clone());
    let path = rel_path(PATH);
    arena
        .read(&root, &path, Resolver::Openat2, LIMIT, &mut |step| {
            steps.push(step);
        })
        .unwrap();
    steps
}

/// The steps of a read by `policy` at or after which a store through a mapping that was dirty
/// before is not noticed although it can tear the copy.
fn unseen_stores(arena: &Arena, policy: &Policy) -> Vec<Step> {
    let mut unseen = Vec::new();
    for at in steps_of(arena, policy) {
        arena.file("root/d/f", &content(b'o'));
        let mapping = Mapping::of(&arena.path("root/d/f"));
        // Dirty before the read begins: the next store does not fault, so it moves no time.
        mapping.store(&content(b'o'));
        let root = arena.root(policy.clone());
        let path = rel_path(PATH);
        let result = arena.read(&root, &path, Resolver::Openat2, LIMIT, &mut |step| {
            if step == at {
                mapping.store(&content(b'n'));
            }
        });
        match result {
            Ok(snapshot) => {
                let bytes = bytes(&snapshot);
                let whole = bytes == content(b'o') || bytes == content(b'n');
                assert!(whole, "torn by a store at {at:?}");
                if matches!(at, Step::Read { offset: 1.. } | Step::Copied) {
                    unseen.push(at);
                }
            }
            Err(error) => assert_eq!(error.class(), "changed", "{at:?}: {error}"),
        }
    }
    unseen
}

/// Keeps I4: a store through a mapping, which moves no time while its page is dirty, never makes a
/// copy of two contents, at whatever step it falls.
#[test]
fn a_store_through_a_mapping_never_tears_a_stamped_copy() {
    let arena = Arena::new();
    arena.file("root/d/f", &content(b'o'));
    let policy = policy(Grade::Stamped, Leases::Never);
    assert_eq!(grade(&arena, policy.clone()), Ok(Grade::Stamped));
    assert_eq!(unseen_stores(&arena, &policy), []);
}

/// Who may be told that nobody writes is told so; who may not gets the next grade.
#[test]
fn a_lease_is_taken_only_where_asked_for_and_nobody_can_write() {
    let arena = Arena::new();
    arena.file("root/d/f", &content(b'o'));
    let lease = policy(Grade::Lease, Leases::Try);
    let stamped = policy(Grade::Stamped, Leases::Try);
    assert_eq!(grade(&arena, Policy::default()), Ok(Grade::Stamped));
    assert_eq!(grade(&arena, lease.clone()), Ok(Grade::Lease));
    assert_eq!(grade(&arena, stamped.clone()), Ok(Grade::Lease));
    let mapping = Mapping::of(&arena.path("root/d/f"));
    // The descriptor behind the mapping is closed; the mapping alone can still write.
    assert_eq!(grade(&arena, lease), Err("busy"));
    assert_eq!(grade(&arena, stamped), Ok(Grade::Stamped));
    drop(mapping);
    // Asked for, but not to be had: without the means no lease is as good as none possible.
    let without = policy(Grade::Lease, Leases::Never);
    assert_eq!(grade(&arena, without), Err("unsupported"));
}

/// Keeps I4: somebody who opens the file for writing while the lease is held breaks it, gets the
/// file as soon as the read notices, and the read gives nothing. The signal of the break does not
/// end the process.
#[test]
fn a_lease_that_breaks_at_any_step_gives_nothing() {
    let arena = Arena::new();
    arena.file("root/d/f", &content(b'o'));
    let policy = policy(Grade::Lease, Leases::Try);
    let steps = steps_of(&arena, &policy);
    let leased = steps.iter().position(|step| *step == Step::Leased).unwrap();
    for at in &steps[leased..] {
        let path = arena.path("root/d/f");
        let result = arena.read(
            &arena.root(policy.clone()),
            &rel_path(PATH),
            Resolver::Openat2,
            LIMIT,
            &mut |step| {
                if step == *at {
                    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
                    let open = fs::OpenOptions::new()
                        .write(true)
                        .custom_flags(flags)
                        .open(&path);
                    assert_eq!(open.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
                }
            },
        );
        assert_eq!(
            result.map_err(|error| error.class()).err(),
            Some("changed"),
            "{at:?}"
        );
        fs::OpenOptions::new()
            .write(true)
            .open(arena.path("root/d/f"))
            .unwrap();
    }
}

/// A filesystem in memory never reports stores through a mapping: it is read twice or not at all.
#[test]
fn a_filesystem_in_memory_is_never_stamped() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return child::skipped("1 case in memory", "there is no /dev/shm");
    };
    let arena = Arena::at(dir);
    arena.dir("root");
    arena.file("root/d/f", &content(b'o'));
    assert_eq!(grade(&arena, Policy::default()), Err("unsupported"));
    let twice = policy(Grade::DoubleRead, Leases::Never);
    assert_eq!(grade(&arena, twice.clone()), Ok(Grade::DoubleRead));
    // A store between the passes is seen by the second; one during the second tears nothing.
    assert_eq!(unseen_stores(&arena, &twice), [Step::Copied]);
}

/// An ordinary filesystem may be read twice too where nothing more is asked, but then the better
/// grade is had for nothing.
#[test]
fn the_best_grade_is_taken_not_the_lowest_accepted() {
    let arena = Arena::new();
    arena.file("root/d/f", &content(b'o'));
    let lowest = policy(Grade::DoubleRead, Leases::Never);
    assert_eq!(grade(&arena, lowest), Ok(Grade::Stamped));
    assert_eq!(
        grade(&arena, policy(Grade::Clone, Leases::Try)),
        Err("unsupported")
    );
}

/// On a filesystem that clones, a copy is atomic: a store at any step gives the content before or
/// after it. Runs itself again in a mount namespace of its own, on a filesystem in a file.
#[test]
fn a_clone_is_taken_on_xfs() {
    clone_in_an_image("stability::a_clone_is_taken_on_xfs", "mkfs.xfs");
}

/// As on XFS.
#[test]
fn a_clone_is_taken_on_btrfs() {
    clone_in_an_image("stability::a_clone_is_taken_on_btrfs", "mkfs.btrfs");
}

fn clone_in_an_image(name: &str, mkfs: &str) {
    if child::is_child(name) {
        return clone_on(Path::new("/mnt"));
    }
    let arena = Arena::new();
    let image = arena.path("image");
    fs::File::create(&image)
        .unwrap()
        .set_len(320 << 20)
        .unwrap();
    let setup = format!("{mkfs} -q \"$1\" && mount -o loop \"$1\" /mnt || exit 77");
    child::in_namespace(name, &setup, image.as_os_str());
}

fn clone_on(mount: &Path) {
    let arena = Arena::at(tempfile::tempdir_in(mount).unwrap());
    arena.dir("root");
    arena.file("root/d/f", &content(b'o'));
    let clone = policy(Grade::Clone, Leases::Never);
    assert_eq!(grade(&arena, clone.clone()), Ok(Grade::Clone));
    assert_eq!(grade(&arena, Policy::default()), Ok(Grade::Clone));
    let steps = steps_of(&arena, &clone);
    assert!(steps.contains(&Step::Cloned) && !steps.contains(&Step::Flushed));
    // After the clone a store changes another file: not seen, and not in the copy either.
    assert_eq!(unseen_stores(&arena, &clone), [Step::Copied]);
    // A spool elsewhere shares no blocks.
    let elsewhere = Arena::new();
    let path = rel_path(PATH);
    let root = arena.root(Policy::default());
    let snapshot = elsewhere
        .read(&root, &path, Resolver::Walk, LIMIT, &mut ())
        .unwrap();
    assert_eq!(snapshot.evidence().grade, Grade::Stamped);
}
