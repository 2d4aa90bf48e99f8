//! The static cases of `path_cases.json`: what each known trick against a path must come to, on
//! both resolvers.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use holdfast::{
    model::{ByteCount, Cancel, RelPath},
    pinned::{Bounds, Links, PinnedError, Policy, Resolver, Root},
    spool::SpoolWriter,
};
use rustix::fs::{FileType, Mode};
use serde::Deserialize;

use crate::{
    arena::{Arena, bytes, unprivileged},
    child,
};

#[derive(Deserialize)]
struct Cases {
    count: usize,
    trees: BTreeMap<String, Vec<Entry>>,
    #[serde(rename = "cases")]
    all: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    tree: Option<String>,
    #[serde(default)]
    entries: Vec<Entry>,
    #[serde(default)]
    extra_entries: Vec<Entry>,
    path: Option<String>,
    path_hex: Option<String>,
    #[serde(default)]
    literal_path: bool,
    root_override: Option<String>,
    #[serde(default)]
    after_root_open: Vec<String>,
    max_bytes: Option<u64>,
    deadline_ms: Option<u64>,
    #[serde(default)]
    requires: Vec<String>,
    expected: String,
    #[serde(default)]
    accept: Vec<String>,
    expected_in_root: Option<String>,
    #[serde(default)]
    accept_in_root: Vec<String>,
}

#[derive(Deserialize)]
struct Entry {
    path: Option<String>,
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    content: Option<String>,
    target: Option<String>,
    size: Option<u64>,
    mode: Option<String>,
    major: Option<u32>,
    minor: Option<u32>,
    from: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// Most often a case is read before `busy` is its answer.
const MAX_BUSY: u32 = 50;

fn cases() -> Cases {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/path_cases.json");
    let cases: Cases = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(cases.all.len(), cases.count);
    cases
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    text.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn os(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}

fn build(arena: &Arena, entry: &Entry) {
    let name = match (&entry.path, &entry.path_hex) {
        (Some(path), None) => PathBuf::from(path),
        (None, Some(hex)) => os(unhex(hex)),
        both => panic!("an entry needs one path: {both:?}"),
    };
    let path = arena.base().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let node = |kind, device| {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, device).unwrap();
    };
    let device = || rustix::fs::makedev(entry.major.unwrap(), entry.minor.unwrap());
    match entry.kind.as_str() {
        "dir" => fs::create_dir_all(&path).unwrap(),
        "file" => fs::write(&path, entry.content.as_ref().unwrap()).unwrap(),
        "symlink" => {
            let base = arena.base().to_str().unwrap();
            let target = entry.target.as_ref().unwrap().replace("$BASE", base);
            std::os::unix::fs::symlink(target, &path).unwrap();
        }
        "hardlink" => fs::hard_link(arena.path(entry.target.as_ref().unwrap()), &path).unwrap(),
        "sparse" => fs::File::create(&path)
            .unwrap()
            .set_len(entry.size.unwrap())
            .unwrap(),
        "chmod" => {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = u32::from_str_radix(entry.mode.as_ref().unwrap(), 8).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        "fifo" => node(FileType::Fifo, 0),
        "socket" => node(FileType::Socket, 0),
        "chardev" => node(FileType::CharacterDevice, device()),
        "blockdev" => node(FileType::BlockDevice, device()),
        "mount" => {
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tmpfs", &path, "tmpfs", flags, None).unwrap();
            for (name, content) in &entry.files {
                fs::write(path.join(name), content).unwrap();
            }
        }
        "bind" => {
            let from = arena.path(entry.from.as_ref().unwrap());
            rustix::mount::mount_bind(from, &path).unwrap();
        }
        other => panic!("an entry of an unknown type: {other}"),
    }
}

impl Case {
    fn needs(&self, what: &str) -> bool {
        self.requires.iter().any(|one| one == what)
    }

    fn asked(&self, arena: &Arena) -> Vec<u8> {
        match (&self.path, &self.path_hex) {
            (Some(path), None) if self.literal_path => path.clone().into_bytes(),
            (Some(path), None) => path
                .replace("$BASE", arena.base().to_str().unwrap())
                .into_bytes(),
            (None, Some(hex)) => unhex(hex),
            both => panic!("{} needs one path: {both:?}", self.id),
        }
    }

    fn outcome(&self, cases: &Cases, resolver: Resolver, policy: &Policy) -> String {
        let arena = Arena::empty();
        let tree = self.tree.iter().flat_map(|tree| &cases.trees[tree]);
        for entry in tree.chain(&self.entries).chain(&self.extra_entries) {
            build(&arena, entry);
        }
        let root_path = match &self.root_override {
            Some(path) => path.into(),
            None => arena.path("root"),
        };
        let root = match Root::open(&root_path, policy.clone()) {
            Ok(root) => root,
            Err(error) => return error.class().into(),
        };
        for move_ in &self.after_root_open {
            match move_.split(' ').collect::<Vec<_>>()[..] {
                ["rm", "-r", name] => fs::remove_dir_all(arena.path(name)).unwrap(),
                ["rename", from, to] => arena.rename(from, to),
                _ => panic!("an unknown move: {move_}"),
            }
        }
        let limit = ByteCount::new(self.max_bytes.unwrap_or(1 << 20));
        let asked = self.asked(&arena);
        let once = || {
            let spool = arena.spools().create(limit).unwrap();
            if self.needs("unprivileged") {
                return unprivileged(|| read(&root, &asked, resolver, limit, spool));
            }
            read(&root, &asked, resolver, limit, spool)
        };
        // The kernel answers `busy` while anything on the host is being renamed, and other tests
        // rename all the time. No case is about that, so it is asked again.
        (0..MAX_BUSY)
            .map(|_| once())
            .find(|outcome| outcome != "busy")
            .unwrap_or_else(|| "busy".into())
    }
}

fn read(
    root: &Root,
    asked: &[u8],
    resolver: Resolver,
    limit: ByteCount,
    spool: SpoolWriter,
) -> String {
    let snapshot = RelPath::parse(asked)
        .map_err(PinnedError::from)
        .and_then(|path| {
            root.snapshot(
                &path,
                resolver,
                spool,
                &Bounds::new(limit, Cancel::new()),
                &mut (),
            )
        });
    match snapshot {
        Ok(snapshot) => format!("content:{}", String::from_utf8_lossy(&bytes(&snapshot))),
        Err(error) => error.class().into(),
    }
}

impl Case {
    /// What the case must come to, and what else a sound reader may say.
    fn answers(&self, links: Links) -> (&String, &[String]) {
        match (links, &self.expected_in_root) {
            (Links::Beneath, Some(expected)) => (expected, &self.accept_in_root),
            (Links::Beneath, None) => (&self.expected, &self.accept_in_root),
            (Links::Deny, _) => (&self.expected, &self.accept),
        }
    }
}

/// What a case may come to: exactly its answer, unless the path itself is refused by its letters or
/// the root is a filesystem that makes its files up.
fn allowed(case: &Case, links: Links, outcome: &str) -> bool {
    let (expected, accept) = case.answers(links);
    let is = |expected: &String| {
        expected == outcome || (expected == "content:*" && outcome.starts_with("content:"))
    };
    let by_letters = matches!(outcome, "invalid_path" | "name_too_long");
    let synthetic = case.root_override.is_some();
    // A path's letters are judged alike whether or not links are followed.
    is(expected)
        || ((by_letters || synthetic) && accept.iter().any(is))
        || (by_letters && (is(&case.expected) || case.accept.iter().any(is)))
}

fn run(cases: &Cases, links: Links, wanted: impl Fn(&Case) -> bool) -> usize {
    let mut count = 0;
    let mut wrong = Vec::new();
    let policy = Policy {
        links,
        ..Policy::default()
    };
    for case in cases.all.iter().filter(|case| wanted(case)) {
        count += 1;
        let started = Instant::now();
        let outcomes = Resolver::ALL.map(|resolver| case.outcome(cases, resolver, &policy));
        if let Some(deadline) = case.deadline_ms {
            let took = started.elapsed();
            assert!(took < Duration::from_millis(deadline * 2), "{}", case.id);
        }
        let same = outcomes[0] == outcomes[1];
        if !same || !outcomes.iter().all(|outcome| allowed(case, links, outcome)) {
            let expected = case.answers(links).0;
            wrong.push(format!("{}: {outcomes:?}, not {expected}", case.id));
        }
        let leaked = outcomes.iter().any(|outcome| outcome.contains("OUT:"));
        assert!(!leaked, "{}", case.id);
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    count
}

fn privileged() -> bool {
    rustix::process::geteuid().is_root()
}

/// Keeps I2: every case comes to its one class, the same from both resolvers, and never to content
/// from outside.
#[test]
fn every_path_case_has_its_class_on_both_resolvers() {
    every_case(Links::Deny);
}

/// Keeps I2: where links that stay beneath are followed, every case comes to its one class too.
#[test]
fn every_path_case_has_its_class_where_links_beneath_are_followed() {
    every_case(Links::Beneath);
}

fn every_case(links: Links) {
    let cases = cases();
    let needs_root = |case: &Case| case.needs("mknod") || case.needs("unprivileged");
    let ran = run(&cases, links, |case| {
        !case.needs("mount") && (privileged() || !needs_root(case))
    });
    assert!(ran > 100);
    if !privileged() {
        let rest = cases.all.iter().filter(|case| needs_root(case)).count();
        child::skipped(&format!("{rest} path cases"), "they need root to be built");
    }
}

/// Keeps I2: crossing into another mount is refused, a bind mount of the same filesystem included.
/// Runs itself again in a mount namespace of its own.
#[test]
fn every_path_case_with_a_mount_is_refused_on_both_resolvers() {
    let cases = cases();
    let wanted = |case: &Case| case.needs("mount");
    let name = "path_cases::every_path_case_with_a_mount_is_refused_on_both_resolvers";
    if !child::is_child(name) {
        return child::in_namespace(name, "", OsStr::new(""));
    }
    assert_eq!(run(&cases, Links::Deny, wanted), 2);
    assert_eq!(run(&cases, Links::Beneath, wanted), 2);
}
