//! Designs that move names: out of the root, by climbing, by odd spellings, by magic links, by mounts,
//! by renames in a deep path.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read as _,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use holdfast::{
    model::{ByteCount, Cancel, RelPath},
    pinned::{Bounds, Links, Policy, Resolver, Root},
};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    mount::{MountFlags, UnmountFlags},
};

use super::{
    time,
    weather::{Answer, Race},
};
use crate::{
    arena::{Arena, bytes, rel_path},
    child,
};

const IN: &[u8] = b"IN:  a decoy.";
const OUT: &[u8] = b"OUT: a secret";
const LIMIT: u64 = 64;

fn following() -> Policy {
    Policy {
        links: Links::Beneath,
        ..Policy::default()
    }
}

/// What the reader under test makes of `path`.
fn read(arena: &Arena, root: &Root, path: &RelPath, resolver: Resolver) -> Answer {
    arena
        .read(root, path, resolver, LIMIT, &mut ())
        .map(|snapshot| bytes(&snapshot))
        .map_err(|error| error.class().to_owned())
}

fn failed(error: impl Into<std::io::Error>) -> String {
    error.into().kind().to_string()
}

fn content(file: OwnedFd) -> Answer {
    let mut bytes = Vec::new();
    File::from(file)
        .take(LIMIT)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// Walks by descriptors, as far as no component is a link, and counts how deep it is: a climb is
/// allowed while the count says that it stays beneath.
fn count_depth(root: &Path, components: &[&str]) -> Answer {
    let mut at = openat(CWD, root, OFlags::PATH, Mode::empty()).map_err(failed)?;
    let mut depth = 0_u32;
    let (leaf, way) = components.split_last().unwrap();
    for component in way {
        depth = match *component {
            ".." => depth.checked_sub(1).ok_or("outside")?,
            _ => depth + 1,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        at = openat(&at, *component, flags, Mode::empty()).map_err(failed)?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
    content(openat(&at, *leaf, flags, Mode::empty()).map_err(failed)?)
}

fn judge(bad: &[String]) {
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Keeps I2 at length (A3): a directory that leaves the root while it is walked leads to what it holds,
/// never to what lies where it went.
#[test]
#[ignore = "two minutes for each resolver"]
fn a3_an_ancestor_that_leaves_the_root_takes_nobody_along() {
    let arena = Arena::new();
    arena.file("root/a/b/f", IN);
    arena.file("root/f", IN);
    arena.file("out/f", OUT);
    arena.dir("out/x/b");
    let climb = || count_depth(&arena.path("root"), &["a", "b", "..", "..", "f"]);
    let root = arena.root(Policy::default());
    let path = rel_path("a/b/f");
    let race = Race {
        name: "A3 ancestor exchanged with one outside",
        change: &|_| arena.exchange("root/a", "out/x"),
        canary: Some(("depth-counter", &climb)),
        allowed: &["not_found", "busy", "changed"],
        is_two_sided: true,
    };
    let mut bad = race.run(time(), &|resolver| read(&arena, &root, &path, resolver));
    let race = Race {
        name: "A3 ancestor renamed out and back",
        change: &|n| match n % 2 {
            0 => arena.rename("root/a", "out/a"),
            _ => arena.rename("out/a", "root/a"),
        },
        ..race
    };
    bad.extend(race.run(time(), &|resolver| read(&arena, &root, &path, resolver)));
    judge(&bad);
}

/// Keeps I2 at length (A4): climbs in a link's target are counted where they happen, not where they were
/// looked up.
#[test]
#[ignore = "a minute for each resolver"]
fn a4_a_climb_in_a_link_does_not_leave_with_the_directory_it_is_in() {
    let arena = Arena::new();
    arena.file("root/f", IN);
    arena.file("f", OUT);
    arena.link("root/a/c/l", "../../f");
    arena.dir("out/b");
    let root = arena.root(following());
    let path = rel_path("a/c/l");
    let race = Race {
        name: "A4 climb in a moved directory",
        change: &|_| arena.exchange("root/a/c", "out/b"),
        canary: Some(("depth-counter", &|| {
            count_depth(&arena.path("root"), &["a", "c", "..", "..", "f"])
        })),
        allowed: &["not_found", "busy", "changed"],
        is_two_sided: true,
    };
    judge(&race.run(time(), &|resolver| read(&arena, &root, &path, resolver)));
}

/// Keeps I2 at length (A8): no spelling of a path is another way in while an ancestor is swapped.
#[test]
#[ignore = "a minute for each resolver"]
fn a8_no_odd_spelling_is_another_way_in() {
    let arena = Arena::new();
    arena.file("root/a/b/f", IN);
    arena.link("root/a/b/s", "../../../out/b/f");
    arena.link("root/a/b/d", "../../../out/b");
    arena.file("out/b/f", OUT);
    arena.link("root/a2", "../out");
    let root = arena.root(Policy::default());
    // The trap the spellings are about: with a slash behind it, a link is followed all the same.
    let dir = openat(CWD, arena.path("root/a/b"), OFlags::PATH, Mode::empty()).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let followed = openat(&dir, "d/", flags, Mode::empty()).unwrap();
    assert!(openat(&dir, "d", flags, Mode::empty()).is_err());
    assert!(openat(&followed, "f", OFlags::PATH, Mode::empty()).is_ok());
    let spellings = [
        "a/b/f", "a/b/f/", "a/b/s/", "a//b/f", "./a/b/f", "a/b/./f", "a/b/d/f", "a/b/d//f",
        "a/b/d/", "a/b/s", "/a/b/f", "a/b/f\0",
    ];
    let next = AtomicUsize::new(0);
    let race = Race {
        name: "A8 odd spellings",
        change: &|_| arena.exchange("root/a", "root/a2"),
        canary: Some(("leaf-nofollow", &|| {
            let path = arena.path("root/a//b/./f");
            content(openat(CWD, path, OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?)
        })),
        allowed: &[
            "invalid_path",
            "denied_symlink",
            "not_found",
            "busy",
            "changed",
        ],
        is_two_sided: true,
    };
    let bad = race.run(time(), &|resolver| {
        let at = next.fetch_add(1, Ordering::Relaxed) % spellings.len();
        match RelPath::parse(spellings[at].as_bytes()) {
            Ok(path) => read(&arena, &root, &path, resolver),
            Err(_) => Err("invalid_path".to_owned()),
        }
    });
    judge(&bad);
}

/// Keeps I2 at length (A9): the links of a process filesystem lead anywhere, and are followed nowhere.
#[test]
#[ignore = "two minutes for each resolver"]
fn a9_no_magic_link_is_followed() {
    let arena = Arena::new();
    arena.file("secret", OUT);
    arena.file("gone", OUT);
    let kinds = AtomicU64::new(0);
    let slot = Mutex::new(OwnedFd::from(File::open(arena.path("secret")).unwrap()));
    let number = {
        use std::os::fd::AsRawFd as _;
        slot.lock().unwrap().as_raw_fd()
    };
    let task = rustix::thread::gettid();
    let maps = std::fs::read_dir("/proc/self/map_files").unwrap().next();
    let map = maps.unwrap().unwrap().file_name();
    let paths = [
        "exe".to_owned(),
        "cwd/Cargo.toml".to_owned(),
        "root/etc/hostname".to_owned(),
        format!("fd/{number}"),
        format!("fd/{number}/x"),
        format!("task/{}/root/etc/hostname", task.as_raw_nonzero()),
        format!("map_files/{}", map.to_str().unwrap()),
    ]
    .map(|path| rel_path(&path));
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let change = |n: u64| {
        let mut slot = slot.lock().unwrap();
        match n % 5 {
            0 => rustix::io::dup2(&writer, &mut slot),
            1 => rustix::io::dup2(&socket, &mut slot),
            2 => {
                let path = arena.path("gone");
                let open = openat(CWD, &path, OFlags::RDONLY | OFlags::CREATE, Mode::RUSR).unwrap();
                std::fs::remove_file(&path).unwrap();
                rustix::io::dup2(open, &mut slot)
            }
            3 => {
                let path = arena.path("secret");
                rustix::io::dup2(
                    openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap(),
                    &mut slot,
                )
            }
            _ => rustix::io::dup2(File::open(arena.path("secret")).unwrap(), &mut slot),
        }
        .unwrap();
        kinds.fetch_add(1, Ordering::Relaxed);
    };
    let next = AtomicUsize::new(0);
    for policy in [Policy::default(), following()] {
        let root = Root::open(Path::new("/proc/self"), policy.clone()).unwrap();
        let name = format!("A9 magic links, {:?}", policy.links);
        let race = Race {
            name: &name,
            change: &change,
            canary: Some(("by-path", &|| {
                let path = format!("/proc/self/fd/{number}");
                content(
                    openat(CWD, path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
                        .map_err(failed)?,
                )
            })),
            allowed: &["denied_symlink", "denied_magic_link"],
            is_two_sided: false,
        };
        let bad = race.run(time(), &|resolver| {
            let at = next.fetch_add(1, Ordering::Relaxed) % paths.len();
            read(&arena, &root, &paths[at], resolver)
        });
        judge(&bad);
    }
}

/// Keeps I2 at length (A10): what is mounted beneath a root while it is read is not read, whatever it is
/// mounted over. Runs in a mount namespace of its own.
#[test]
#[ignore = "two minutes for each resolver"]
fn a10_what_is_mounted_beneath_a_root_is_not_read() {
    let test = "long::names::a10_what_is_mounted_beneath_a_root_is_not_read";
    if !child::is_child(test) {
        return child::in_namespace(test, "", OsStr::new(""));
    }
    let arena = Arena::new();
    arena.file("root/a/f", IN);
    arena.file("out/f", OUT);
    let root = arena.root(Policy::default());
    let mut bad = Vec::new();
    for (name, from, over) in [
        ("A10 bind over an ancestor", "out", "root/a"),
        ("A10 bind over the file", "out/f", "root/a/f"),
    ] {
        let (from, over) = (arena.path(from), arena.path(over));
        let race = Race {
            name,
            change: &|n| match n % 2 {
                0 => rustix::mount::mount_bind(&from, &over).unwrap(),
                _ => rustix::mount::unmount(&over, UnmountFlags::DETACH).unwrap(),
            },
            canary: Some(("leaf-nofollow", &|| {
                let path = arena.path("root/a/f");
                content(openat(CWD, path, OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?)
            })),
            allowed: &["denied_mount", "changed", "busy", "not_found"],
            is_two_sided: true,
        };
        bad.extend(race.run(time(), &|resolver| {
            read(&arena, &root, &rel_path("a/f"), resolver)
        }));
    }
    // Mounts elsewhere hold nobody up.
    let elsewhere = arena.path("elsewhere");
    arena.dir("elsewhere");
    let race = Race {
        name: "A10 mounts elsewhere",
        change: &|n| match n % 2 {
            0 => {
                let none = MountFlags::empty();
                rustix::mount::mount("none", &elsewhere, "tmpfs", none, None).unwrap();
            }
            _ => rustix::mount::unmount(&elsewhere, UnmountFlags::DETACH).unwrap(),
        },
        canary: None,
        allowed: &["busy"],
        is_two_sided: false,
    };
    bad.extend(race.run(time(), &|resolver| {
        read(&arena, &root, &rel_path("a/f"), resolver)
    }));
    judge(&bad);
}

/// The directories of a path of 65 components, and the one in the middle that is renamed.
fn deep(arena: &Arena) -> (RelPath, [String; 2]) {
    let names: Vec<String> = (0..64).map(|n| format!("d{n}")).collect();
    let path = names.join("/") + "/f";
    arena.file(&format!("root/{path}"), IN);
    let middle = format!("root/{}", names[..32].join("/"));
    let away = format!("root/{}/away", names[..31].join("/"));
    (rel_path(&path), [middle, away])
}

/// Keeps I2 and I11 at length (A11): renames in the middle of a deep path make it absent for a moment, and
/// hold nobody up past what was allowed.
#[test]
#[ignore = "two minutes for each resolver"]
fn a11_renames_in_a_deep_path_are_at_most_an_absence() {
    let arena = Arena::new();
    arena.file("root/climbs/f", IN);
    arena.file("f", OUT);
    let (path, [middle, away]) = deep(&arena);
    let change = |n: u64| match n % 2 {
        0 => arena.rename(&middle, &away),
        _ => arena.rename(&away, &middle),
    };
    // As many climbs as a link may have here, all of them below the root.
    let climbs = "../".repeat(30) + &vec!["up"; 30].join("/") + "/" + &"../".repeat(30);
    let ladder = vec!["up"; 30].join("/");
    arena.dir(&format!("root/{ladder}"));
    arena.link(&format!("root/{ladder}/l"), &(climbs + "climbs/f"));
    let link = rel_path(&format!("{ladder}/l"));
    let race = Race {
        name: "A11 rename storm in a deep path",
        change: &change,
        canary: None,
        allowed: &["not_found", "busy", "changed"],
        is_two_sided: true,
    };
    let root = arena.root(Policy::default());
    let mut bad = race.run(time(), &|resolver| read(&arena, &root, &path, resolver));
    // A storm anywhere in the system makes the kernel look again at each climb.
    let race = Race {
        name: "A11 climbs under a rename storm",
        allowed: &["busy"],
        is_two_sided: false,
        ..race
    };
    let root = arena.root(following());
    bad.extend(race.run(time(), &|resolver| read(&arena, &root, &link, resolver)));
    judge(&bad);
}

/// Keeps I11 at length (A11): of 200 reads under a storm each answers, and none goes on after it.
#[test]
#[ignore = "as long as the deadline, for each resolver"]
fn a11_two_hundred_reads_under_a_storm_all_answer() {
    let arena = Arena::new();
    let (path, [middle, away]) = deep(&arena);
    let root = arena.root(Policy::default());
    for resolver in Resolver::ALL {
        let slowest = Mutex::new(Duration::ZERO);
        let answered = AtomicU64::new(0);
        let all = || {
            std::thread::scope(|scope| {
                for _ in 0..200 {
                    scope.spawn(|| {
                        let start = Instant::now();
                        let limit = ByteCount::new(LIMIT);
                        let spool = arena.spools().create(limit).unwrap();
                        let bounds = Bounds {
                            deadline: Some(start + Duration::from_secs(5)),
                            ..Bounds::new(limit, Cancel::new())
                        };
                        if let Err(error) = root.snapshot(&path, resolver, spool, &bounds, &mut ())
                        {
                            let allowed = ["not_found", "busy", "changed", "deadline"];
                            assert!(allowed.contains(&error.class()), "{error:?}");
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                        let mut slowest = slowest.lock().unwrap();
                        *slowest = start.elapsed().max(*slowest);
                    });
                }
            });
            Ok(IN.to_vec())
        };
        super::weather::storm(
            &|n| match n % 2 {
                0 => arena.rename(&middle, &away),
                _ => arena.rename(&away, &middle),
            },
            &all,
            |taken, _| taken.inside > 0,
        );
        assert_eq!(answered.into_inner(), 200);
        super::say(&format!(
            "A11 200 reads at once, {resolver}: all answered, the slowest after {:?}",
            slowest.into_inner().unwrap()
        ));
        // What a thread that still spins would use up shows here, in print.
        let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let before = spent();
        std::thread::sleep(Duration::from_millis(500));
        let after = spent();
        super::say(&format!(
            "A11 after the storm, {resolver}: {} ms of processor time in 500 ms",
            (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1_000_000
        ));
    }
}
