//! Public reports about readers of this kind, retold on `pinned`: each test is named after its row.

use holdfast::{
    model::RelPath,
    pinned::{HardLinks, Links, Mounts, Policy, Resolver},
};

use crate::{
    arena::{Arena, bytes},
    child,
};

const INSIDE: &[u8] = b"what may be read";
const OUTSIDE: &[u8] = b"never to be read";

/// A root with one file, and a secret beside the root.
fn arena() -> Arena {
    let arena = Arena::new();
    arena.file("root/a.txt", INSIDE);
    arena.file("out/secret.txt", OUTSIDE);
    arena
}

/// What a read of `path` comes to, the same from both resolvers: the content, or the class.
fn read(arena: &Arena, path: &str, policy: &Policy) -> Result<Vec<u8>, &'static str> {
    let root = arena.root(policy.clone());
    let path = RelPath::parse(path.as_bytes()).unwrap();
    let [one, other] = Resolver::ALL.map(|resolver| {
        let copy = arena.read(&root, &path, resolver, 1024, &mut ());
        copy.map(|copy| bytes(&copy)).map_err(|error| error.class())
    });
    assert_eq!(one, other);
    one
}

fn following() -> Policy {
    Policy {
        links: Links::Beneath,
        ..Policy::default()
    }
}

/// A missing parent means missing; no fallback path reaches the disk.
#[test]
fn s10_what_is_missing_below_a_link_is_never_looked_for_elsewhere() {
    let arena = arena();
    arena.link("root/link", "../out");
    arena.file("out/new/child", OUTSIDE);
    let refused = Err("denied_symlink");
    assert_eq!(read(&arena, "link/new/child", &Policy::default()), refused);
    assert_eq!(
        read(&arena, "link/new/child", &following()),
        Err("denied_escape")
    );
    let missing = Err("not_found");
    assert_eq!(read(&arena, "no/new/child", &Policy::default()), missing);
}

/// A second name is refused as what it is, never as missing, and a switch allows it.
#[test]
fn s13_a_hard_link_is_refused_by_its_own_name_and_can_be_allowed() {
    let arena = arena();
    arena.hard_link("root/a.txt", "root/b.txt");
    let denied = read(&arena, "b.txt", &Policy::default());
    assert_eq!(denied, Err("denied_hardlink"));
    let allowing = Policy {
        hard_links: HardLinks::Allow,
        ..Policy::default()
    };
    assert_eq!(read(&arena, "b.txt", &allowing), Ok(INSIDE.to_vec()));
}

/// The operator's own path may lead over a link.
#[test]
fn s14_a_root_registered_through_a_link_is_served() {
    let arena = arena();
    arena.rename("root", "real");
    arena.link("root", "real");
    let copy = read(&arena, "a.txt", &Policy::default());
    assert_eq!(copy, Ok(INSIDE.to_vec()));
}

/// A link out is refused; whether links are followed at all is a choice.
#[test]
fn s17_a_link_to_the_outside_is_refused() {
    let arena = arena();
    arena.link("root/l", "../out/secret.txt");
    arena.link(
        "root/absolute",
        arena.path("out/secret.txt").to_str().unwrap(),
    );
    for path in ["l", "absolute"] {
        let refused = Err("denied_symlink");
        assert_eq!(read(&arena, path, &Policy::default()), refused);
        assert_eq!(read(&arena, path, &following()), Err("denied_escape"));
    }
}

/// A link that stays inside is refused by default and followed where the root says so.
#[test]
fn s20_a_link_inside_is_followed_where_the_root_allows_it() {
    let arena = arena();
    arena.link("root/a", "a.txt");
    let refused = Err("denied_symlink");
    assert_eq!(read(&arena, "a", &Policy::default()), refused);
    assert_eq!(read(&arena, "a", &following()), Ok(INSIDE.to_vec()));
}

/// Crossing a mount, also one below a link inside, is refused by its own reason, and a setting
/// allows it. Runs itself again in a mount namespace of its own.
#[test]
fn s21_a_mount_below_a_link_is_crossed_only_where_the_root_allows_it() {
    let name = "reports::s21_a_mount_below_a_link_is_crossed_only_where_the_root_allows_it";
    if !child::is_child(name) {
        return child::in_namespace(name, "", std::ffi::OsStr::new(""));
    }
    let arena = arena();
    arena.dir("root/real/mnt");
    arena.link("root/link", "real");
    let mount = arena.path("root/real/mnt");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", &mount, "tmpfs", flags, None).unwrap();
    arena.file("root/real/mnt/f", INSIDE);
    let denied = Err("denied_mount");
    assert_eq!(read(&arena, "real/mnt/f", &Policy::default()), denied);
    assert_eq!(read(&arena, "link/mnt/f", &following()), denied);
    let crossing = Policy {
        mounts: Mounts::Allow,
        stability: holdfast::pinned::Grade::DoubleRead,
        ..following()
    };
    let copy = read(&arena, "link/mnt/f", &crossing);
    assert_eq!(copy, Ok(INSIDE.to_vec()));
}

/// A FIFO is never opened, so nobody waits for it and the next read is served.
#[test]
fn f01_a_fifo_is_refused_at_once_and_holds_nobody_up() {
    let arena = arena();
    arena.fifo("root/pipe");
    let refused = Err("not_regular");
    assert_eq!(read(&arena, "pipe", &Policy::default()), refused);
    assert!(!arena.fifo_has_a_reader("root/pipe"));
    let copy = read(&arena, "a.txt", &Policy::default());
    assert_eq!(copy, Ok(INSIDE.to_vec()));
}
