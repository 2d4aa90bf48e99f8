//! Every kind of public bug report that concerns released paths (`spec/bugs.md`), by every door at once: a
//! release, a capture at presentation, the archive of the directory and of the session, explain, and the
//! command line. What lies outside is in no answer, in no object and in no row.

use std::{
    cell::RefCell,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev};
use serde_json::{Value, json};

use crate::{
    directories::{class, unpacked},
    releases::{Scene, SetOnDrop},
    skip::skipped,
    support::{Answer, Options},
};

/// What may leave.
const INSIDE: &str = "these bytes may leave";
/// What may not.
const OUTSIDE: &str = "OUTSIDE: these may not";

/// A workspace, what lies beside it, and everything that was said.
struct Site {
    scene: Scene,
    outside: tempfile::TempDir,
    said: RefCell<Vec<Vec<u8>>>,
}

/// How one door answered.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The content, whole.
    Leaves,
    /// With this class.
    Refused(String),
}

/// The doors that answer about one file.
type Door = (&'static str, fn(&Site, &str) -> Said);

const DOORS: [Door; 5] = [
    ("release", Site::release),
    ("capture", Site::capture),
    ("a look", Site::look),
    ("everything", Site::everything),
    ("command line", Site::command_line),
];

impl Site {
    fn new() -> Self {
        Self::of(Scene::new())
    }

    fn of(scene: Scene) -> Self {
        // On the same filesystem, so that hard links and exchanges reach it.
        let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(outside.path().join("secret.txt"), OUTSIDE).unwrap();
        Self {
            scene,
            outside,
            said: RefCell::default(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.scene.root().join(path)
    }

    fn inside(&self, path: &str) {
        self.scene.file(path, INSIDE.as_bytes());
    }

    fn secret(&self) -> PathBuf {
        self.outside.path().join("secret.txt")
    }

    fn note(&self, text: &[u8]) {
        self.said.borrow_mut().push(text.to_vec());
    }

    /// What came of a release, down to the last byte.
    fn ended(&self, answer: &Answer, released: &Value) -> Said {
        self.note(&answer.body);
        if answer.status >= 300 {
            return Said::Refused(answer.json()["class"].as_str().unwrap_or("").to_owned());
        }
        let body = self.download(released);
        assert_eq!(String::from_utf8_lossy(&body), INSIDE, "{}", answer.text());
        Said::Leaves
    }

    /// The content of an ask or a receipt.
    fn download(&self, released: &Value) -> Vec<u8> {
        let alice = &self.scene.server.alice;
        let receipt = if released.get("requestId").is_some() {
            let decided = self.scene.decide(alice, released, "allowed-once");
            self.note(&decided.body);
            decided.json()["receipt"].clone()
        } else {
            released.clone()
        };
        let got = self
            .scene
            .server
            .get(receipt["href"].as_str().unwrap(), alice);
        assert_eq!(got.status, 200, "{}", got.text());
        self.note(&got.body);
        got.body
    }

    fn release(&self, path: &str) -> Said {
        let answer = self.scene.ask_for(path);
        let released = answer.json();
        self.ended(&answer, &released)
    }

    fn capture(&self, path: &str) -> Said {
        let answer = self.scene.capture(&json!([{ "path": path }]), None);
        let file = &answer.json()["files"][0];
        let released = file.get("release").or(file.get("receipt"));
        self.ended(&answer, released.unwrap_or(&Value::Null))
    }

    fn members(&self, answer: &Answer) -> Option<(Value, Value)> {
        self.note(&answer.body);
        assert!([201, 202].contains(&answer.status), "{}", answer.text());
        let members = unpacked(&self.download(&answer.json()))?;
        let text = members["holdfast-manifest.json"].as_str().unwrap();
        let manifest = serde_json::from_str(text).unwrap();
        Some((members, manifest))
    }

    /// The session's archive.
    fn everything(&self, path: &str) -> Said {
        self.scene.present(&json!([{ "path": path }]));
        let token = Some(self.scene.server.alice.token.as_str());
        let target = format!("/v1/sessions/{}/archive", self.scene.session);
        let answer = self.scene.server.ask("POST", &target, token);
        let Some((members, manifest)) = self.members(&answer) else {
            return Said::Leaves;
        };
        let found = found(&members, &manifest, &format!("files/{path}"));
        // A path that leads nowhere in the session has no place among its files.
        match found {
            Said::Refused(class) if class.is_empty() => Said::Refused(self::class(&manifest, path)),
            found @ (Said::Leaves | Said::Refused(_)) => found,
        }
    }

    /// The archive of the directory `k`: the class of what is called `name` in it.
    fn archived(&self, name: &str) -> Said {
        let answer = self.scene.ask_for("k");
        let Some((members, manifest)) = self.members(&answer) else {
            return Said::Leaves;
        };
        found(&members, &manifest, name)
    }

    fn explain(&self, path: &str) -> Said {
        let seq = self.scene.present(&json!([{ "path": path }]));
        let target = self.scene.item(seq, 0, "explain");
        let answer = self.scene.server.get(&target, &self.scene.server.alice);
        self.note(&answer.body);
        explained(&answer.json())
    }

    /// An explanation that looks at the file, by the program and without it.
    fn look(&self, path: &str) -> Said {
        let seq = self.scene.present(&json!([{ "path": path }]));
        let target = self.scene.item(seq, 0, "explain?look=true");
        let answer = self.scene.server.get(&target, &self.scene.server.alice);
        self.note(&answer.body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let by_program = self.run(&["explain", "--look", "-s", &self.scene.session, path]);
        assert!(by_program.status.success(), "{by_program:?}");
        let by_program: Value = serde_json::from_slice(&by_program.stdout).unwrap();
        assert_eq!(by_program, answer.json(), "{path}: one explanation");
        explained(&answer.json())
    }

    /// The program, as the owner.
    fn run(&self, words: &[&str]) -> std::process::Output {
        let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(["--json", "--data"])
            .arg(self.outside.path().join("none"))
            .args(words)
            .env(
                "HOLDFAST_URL",
                format!("http://{}", self.scene.server.address),
            )
            .env("HOLDFAST_TOKEN", &self.scene.server.alice.token)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        self.note(&output.stdout);
        self.note(&output.stderr);
        output
    }

    fn command_line(&self, path: &str) -> Said {
        self.scene.present(&json!([{ "path": path }]));
        let at = ["-s", &self.scene.session, path];
        let by_program = self.run(&[&["explain"], &at[..]].concat());
        assert!(by_program.status.success(), "{by_program:?}");
        let by_program = explained(&serde_json::from_slice(&by_program.stdout).unwrap());
        assert_eq!(by_program, self.explain(path), "{path}: one explanation");
        let done = self.run(&[&["release"], &at[..]].concat());
        if done.status.success() {
            let released = serde_json::from_slice(&done.stdout).unwrap();
            let body = self.download(&released);
            assert_eq!(String::from_utf8_lossy(&body), INSIDE);
            return Said::Leaves;
        }
        // The program tells the reason, the rule's setting and the code, and ends as refused or absent.
        assert!([4, 7].contains(&done.status.code().unwrap()), "{done:?}");
        let answer = self.scene.ask_for(path).json();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        for fact in ["code", "setting"] {
            let fact = answer[fact].as_str().unwrap_or_default();
            assert!(text.contains(fact), "{path}: {fact} in {text}");
        }
        Said::Refused(answer["class"].as_str().unwrap().to_owned())
    }

    /// Nothing of what lies outside was said, or is kept.
    fn has_kept_it_in(&self, what: &str) {
        let has = |bytes: &[u8]| {
            bytes
                .windows(8)
                .any(|eight| eight == &OUTSIDE.as_bytes()[..8])
        };
        for said in self.said.borrow().iter() {
            assert!(!has(said), "{what}: {}", String::from_utf8_lossy(said));
        }
        let mut open = vec![self.scene.server.data().join("data")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            } else {
                assert!(
                    !has(&fs::read(&path).unwrap()),
                    "{what}: {}",
                    path.display()
                );
            }
        }
        let mut outside = fs::read_dir(self.outside.path()).unwrap();
        let only = outside.next().unwrap().unwrap().file_name();
        assert!(
            only == "secret.txt" && outside.next().is_none(),
            "{what}: nothing new"
        );
    }
}

/// What an archive has of this path: its content, or why it has not.
fn found(members: &Value, manifest: &Value, path: &str) -> Said {
    let left_out = class(manifest, path);
    let mut files = manifest["files"].as_array().unwrap().iter();
    let Some(file) = files.find(|file| file["path"] == path) else {
        return Said::Refused(left_out);
    };
    assert_eq!(members[file["name"].as_str().unwrap()], INSIDE, "{path}");
    Said::Leaves
}

fn explained(answer: &Value) -> Said {
    if answer["outcome"] != "refuse" {
        return Said::Leaves;
    }
    let last = answer["rules"].as_array().unwrap().last().unwrap();
    Said::Refused(last["class"].as_str().unwrap().to_owned())
}

/// One kind of fault: what is laid out, the path that is declared, and what every door says of it.
struct Kind {
    id: &'static str,
    what: &'static str,
    /// `OUT` stands for the directory outside.
    path: &'static str,
    lay: fn(&Site),
    /// The class of the refusal; none where it leaves.
    class: &'static str,
    setting: Option<&'static str>,
    /// What it, or what leads to it, is called in the archive of `k`; none where it is not in there.
    member: Option<&'static str>,
}

fn special(site: &Site, kind: FileType) {
    let device = if kind == FileType::CharacterDevice {
        makedev(1, 5)
    } else {
        0
    };
    rustix::fs::mknodat(CWD, site.at("k/it"), kind, Mode::RUSR | Mode::WUSR, device).unwrap();
}

const LINKS: Option<&str> = Some("root.links");
const DENY: Option<&str> = Some("root.deny");

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    Kind { id: "-", what: "an ordinary file", path: "k/a.txt", class: "", setting: None,
        lay: |site| site.inside("k/a.txt"), member: Some("a.txt") },
    Kind { id: "S01", what: "a directory on the way is a link to the outside", path: "k/d/secret.txt",
        class: "denied_symlink", setting: LINKS, member: Some("d"),
        lay: |site| symlink(site.outside.path(), site.at("k/d")).unwrap() },
    Kind { id: "S02", what: "an ancestor far up is one", path: "k/a/b/c/secret.txt",
        class: "denied_symlink", setting: LINKS, member: Some("a/b"),
        lay: |site| {
            fs::create_dir(site.at("k/a")).unwrap();
            fs::create_dir(site.outside.path().join("c")).unwrap();
            symlink(site.outside.path(), site.at("k/a/b")).unwrap();
            fs::remove_dir(site.outside.path().join("c")).unwrap();
        } },
    Kind { id: "S07", what: "a link to a file outside, in a directory", path: "k/l", class: "denied_symlink",
        setting: LINKS, member: Some("l"), lay: |site| symlink(site.secret(), site.at("k/l")).unwrap() },
    Kind { id: "S10", what: "something new below a link", path: "k/l/new/child", class: "denied_symlink",
        setting: LINKS, member: Some("l"), lay: |site| symlink(site.outside.path(), site.at("k/l")).unwrap() },
    Kind { id: "S10", what: "something new below nothing", path: "k/none/new/child", class: "not_found",
        setting: None, member: None, lay: |_| {} },
    Kind { id: "S11", what: "a link to what is not there yet", path: "k/out.txt", class: "denied_symlink",
        setting: LINKS, member: Some("out.txt"),
        lay: |site| symlink(site.outside.path().join("new.txt"), site.at("k/out.txt")).unwrap() },
    Kind { id: "S13", what: "a second name of a file outside", path: "k/h", class: "denied_hardlink",
        setting: Some("root.hardlinks"), member: Some("h"),
        lay: |site| fs::hard_link(site.secret(), site.at("k/h")).unwrap() },
    Kind { id: "S13", what: "two names within the root", path: "k/h", class: "denied_hardlink",
        setting: Some("root.hardlinks"), member: Some("h"),
        lay: |site| {
            site.inside("stored");
            fs::hard_link(site.at("stored"), site.at("k/h")).unwrap();
        } },
    Kind { id: "S17", what: "a link through the process's own root", path: "k/l", class: "denied_symlink",
        setting: LINKS, member: Some("l"),
        lay: |site| {
            let way = format!("/proc/self/root{}", site.secret().display());
            symlink(way, site.at("k/l")).unwrap();
        } },
    Kind { id: "S20", what: "a relative link that stays inside", path: "k/a", class: "denied_symlink",
        setting: LINKS, member: Some("a"),
        lay: |site| {
            site.inside("k/b.txt");
            symlink("b.txt", site.at("k/a")).unwrap();
        } },
    Kind { id: "S20", what: "a linked directory that stays inside", path: "k/dl/b.txt", class: "denied_symlink",
        setting: LINKS, member: Some("dl"),
        lay: |site| {
            site.inside("k/real/b.txt");
            symlink("real", site.at("k/dl")).unwrap();
        } },
    Kind { id: "S20", what: "an absolute link that stays inside", path: "k/a", class: "denied_symlink",
        setting: LINKS, member: Some("a"),
        lay: |site| {
            site.inside("k/b.txt");
            symlink(site.at("k/b.txt"), site.at("k/a")).unwrap();
        } },
    Kind { id: "F01", what: "a FIFO", path: "k/it", class: "not_regular", setting: None, member: Some("it"),
        lay: |site| special(site, FileType::Fifo) },
    Kind { id: "F01", what: "a socket", path: "k/it", class: "not_regular", setting: None, member: Some("it"),
        lay: |site| special(site, FileType::Socket) },
    Kind { id: "T01", what: "slashes and dots that are encoded", path: "k/..%2f..%2fsecret.txt",
        class: "not_found", setting: None, member: None, lay: |_| {} },
    Kind { id: "T01", what: "a file that is called like an encoded path", path: "k/..%2fa", class: "",
        setting: None, member: None, lay: |site| site.inside("k/..%2fa") },
    Kind { id: "T02", what: "an absolute path", path: "OUT/secret.txt", class: "outside-root", setting: None,
        member: None, lay: |_| {} },
    Kind { id: "T02", what: "an absolute path of the host's", path: "/etc/passwd", class: "outside-root",
        setting: None, member: None, lay: |_| {} },
    Kind { id: "T07", what: "a prefix that is allowed, and then out of it", path: "k/../../BESIDE/secret.txt",
        class: "outside-root", setting: None, member: None, lay: |_| {} },
    Kind { id: "T07", what: "out and in again", path: "k/../k/a.txt", class: "invalid-path", setting: None,
        member: None, lay: |site| site.inside("k/a.txt") },
    Kind { id: "P01", what: "a project's secrets", path: "k/app/.env", class: "denied_name", setting: DENY,
        member: Some("app/.env"), lay: |site| site.scene.file("k/app/.env", OUTSIDE.as_bytes()) },
    Kind { id: "P01", what: "a shell's secrets", path: "k/.envrc", class: "denied_name", setting: DENY,
        member: Some(".envrc"), lay: |site| site.scene.file("k/.envrc", OUTSIDE.as_bytes()) },
    Kind { id: "P01", what: "a private key", path: "k/deep/id_ed25519", class: "denied_name", setting: DENY,
        member: Some("deep/id_ed25519"),
        lay: |site| site.scene.file("k/deep/id_ed25519", OUTSIDE.as_bytes()) },
    Kind { id: "P01", what: "whatever is in a directory of keys", path: "k/.ssh/notes.txt",
        class: "denied_name", setting: DENY, member: Some(".ssh"),
        lay: |site| site.scene.file("k/.ssh/notes.txt", OUTSIDE.as_bytes()) },
    Kind { id: "P04", what: "an ordinary file below a name with a dot", path: "k/.config/needed.json",
        class: "", setting: None, member: Some(".config/needed.json"),
        lay: |site| {
            site.inside("k/.config/needed.json");
            site.scene.file("k/.env", OUTSIDE.as_bytes());
        } },
];

/// S01, S02, S07, S10, S11, S13, S17, S20, F01, T01, T02, T07, P01 and P04, each by every door: the same
/// answer everywhere, with its rule's setting, and nothing of the outside anywhere. Keeps I2 and I15.
#[test]
fn every_kind_has_one_answer_by_every_door_and_keeps_the_outside_out() {
    std::thread::scope(|scope| {
        for some in KINDS.chunks(KINDS.len().div_ceil(8)) {
            scope.spawn(|| some.iter().for_each(one_answer));
        }
    });
}

fn one_answer(kind: &Kind) {
    let site = Site::new();
    fs::create_dir(site.at("k")).unwrap();
    (kind.lay)(&site);
    let outside = site.outside.path();
    let path = kind
        .path
        .replace("OUT", outside.to_str().unwrap())
        .replace("BESIDE", outside.file_name().unwrap().to_str().unwrap());
    let what = format!("{}: {}", kind.id, kind.what);
    let expected = match kind.class {
        "" => Said::Leaves,
        class => Said::Refused(class.to_owned()),
    };
    for (door, go) in DOORS {
        assert_eq!(go(&site, &path), expected, "{what}, by {door}");
    }
    // What is known by letters alone is explained; anything else would have to be opened.
    let by_letters = ["outside-root", "invalid-path", "denied_name"].contains(&kind.class);
    let told = if by_letters { &expected } else { &Said::Leaves };
    assert_eq!(&site.explain(&path), told, "{what}, explained");
    if let Some(member) = kind.member {
        assert_eq!(site.archived(member), expected, "{what}, in its directory");
    }
    if !kind.class.is_empty() {
        let refused = site.scene.ask_for(&path).json();
        assert_eq!(
            refused["setting"].as_str(),
            kind.setting,
            "{what}: {refused}"
        );
    }
    site.has_kept_it_in(&what);
}

/// S01, S02 and S03: a directory, an ancestor and a file are exchanged for links to the outside all the
/// time, while every door is asked. Keeps I2.
#[test]
fn s01_s02_s03_names_that_are_swapped_all_the_time_let_nothing_out_by_any_door() {
    let site = Site::new();
    for dir in ["k/d", "k/up/b"] {
        site.inside(&format!("{dir}/secret.txt"));
    }
    site.inside("k/f");
    fs::create_dir(site.at("links")).unwrap();
    symlink(site.outside.path(), site.at("links/d")).unwrap();
    // What the ancestor is exchanged for leads to the outside one level further up.
    symlink(site.outside.path(), site.at("links/b")).unwrap();
    symlink(site.secret(), site.at("links/f")).unwrap();
    let stop = AtomicBool::new(false);
    let root = site.scene.root().to_owned();
    let (mut left, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let swap = |one: &str, other: &str| {
                let (one, other) = (root.join(one), root.join(other));
                rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            };
            while !stop.load(Ordering::Relaxed) {
                swap("k/d", "links/d");
                swap("k/up/b", "links/b");
                swap("k/f", "links/f");
            }
        });
        let _stop = SetOnDrop(&stop);
        for round in 0..12 {
            for path in ["k/d/secret.txt", "k/up/b/secret.txt", "k/f"] {
                for (door, go) in DOORS {
                    // The program asks twice, and may be told differently.
                    if ["command line", "a look"].contains(&door) {
                        site.scene.present(&json!([{ "path": path }]));
                        let at = ["-s", &site.scene.session, path];
                        site.run(&[&["explain", "--look"], &at[..]].concat());
                        site.run(&[&["release"], &at[..]].concat());
                        continue;
                    }
                    match go(&site, path) {
                        Said::Leaves => left += 1,
                        Said::Refused(class) => {
                            let expected = ["denied_symlink", "changed", "not_found", "busy"];
                            assert!(expected.contains(&class.as_str()), "{path}: {class}");
                            refused += 1;
                        }
                    }
                }
            }
            if round % 3 == 0 {
                for member in ["d/secret.txt", "up/b/secret.txt", "f"] {
                    site.archived(member);
                }
            }
        }
    });
    assert!(left > 5 && refused > 5, "{left} left and {refused} refused");
    site.has_kept_it_in("a storm");
}

/// S14: a root that was registered through a link, and a session whose directory is named through it.
#[test]
fn s14_a_root_behind_a_link_is_served_by_every_door() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(place.path().join("ws")).unwrap();
    symlink("ws", place.path().join("link")).unwrap();
    let site = Site::of(Scene::proven(Options {
        roots: vec![("ws", place.path().join("link"))],
        ..Options::default()
    }));
    fs::create_dir(place.path().join("ws/k")).unwrap();
    fs::write(place.path().join("ws/k/a.txt"), INSIDE).unwrap();
    for (door, go) in DOORS {
        assert_eq!(go(&site, "k/a.txt"), Said::Leaves, "by {door}");
    }
    assert_eq!(site.archived("a.txt"), Said::Leaves);
    assert_eq!(site.explain("k/a.txt"), Said::Leaves);
}

/// S21: what is mounted beneath a root is refused by its own name by every door, and the rest of the
/// directory leaves.
#[test]
fn s21_a_mount_beneath_a_root_is_refused_by_its_own_name_by_every_door() {
    let site = Site::new();
    site.inside("k/a.txt");
    fs::create_dir(site.at("k/m")).unwrap();
    let mounted = match Mounted::on(&site.at("k/m")) {
        Ok(mounted) => mounted,
        Err(why) => return skipped(1, "mount beneath a root", &why),
    };
    fs::write(site.at("k/m/secret.txt"), OUTSIDE).unwrap();
    let refused = Said::Refused("denied_mount".to_owned());
    for (door, go) in DOORS {
        assert_eq!(go(&site, "k/m/secret.txt"), refused, "by {door}");
    }
    assert_eq!(site.archived("m"), refused);
    assert_eq!(site.archived("a.txt"), Said::Leaves);
    let answer = site.scene.ask_for("k/m/secret.txt").json();
    assert_eq!(answer["setting"], "root.mounts");
    site.has_kept_it_in("a mount");
    drop(mounted);
}

/// A filesystem of its own on a directory, as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn on(path: &Path) -> Result<Self, String> {
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "holdfast-test"])
            .arg(path)
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(Self(path.to_owned())),
            other => Err(format!("nothing can be mounted here: {other:?}")),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}

/// F01: FIFOs, sockets and devices are refused at once, and whoever asks for a plain file beside them is
/// answered: as many as the root has threads, and more, hold nobody up.
#[test]
fn f01_special_files_hold_up_nobody_who_asks_beside_them() {
    let site = Site::new();
    site.inside("k/a.txt");
    let kinds = [FileType::Fifo, FileType::Socket, FileType::CharacterDevice];
    for (n, kind) in kinds.into_iter().enumerate() {
        special(&site, kind);
        fs::rename(site.at("k/it"), site.at(&format!("k/{n}"))).unwrap();
    }
    let scene = &site.scene;
    let special = scene.present(&json!([{"path": "k/0"}, {"path": "k/1"}, {"path": "k/2"}]));
    let plain = scene.present(&json!([{"path": "k/a.txt"}]));
    std::thread::scope(|scope| {
        for n in 0..9 {
            scope.spawn(move || {
                let token = Some(scene.server.alice.token.as_str());
                let target = scene.item(special, n % 3, "release");
                let refused = scene.server.ask("POST", &target, token);
                assert_eq!(refused.json()["class"], "not_regular", "{}", refused.text());
            });
        }
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(scene.release(plain).status, 202));
        }
    });
    for member in ["0", "1", "2"] {
        assert_eq!(
            site.archived(member),
            Said::Refused("not_regular".to_owned())
        );
    }
}

const UNPACK: &str = "
import json, os, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
archive.extractall(sys.argv[2])
print(json.dumps([[info.filename, info.external_attr >> 16, info.is_dir()]
                  for info in archive.infolist()]))
";

/// Z06 and Z10: an archive of a tree with links in pairs, odd names and all sorts of mode bits holds plain
/// files alone, readable, executable where they were, and nothing that a careless unpacker puts elsewhere.
#[test]
fn z06_z10_an_archive_is_safe_for_the_most_careless_unpacker() {
    let site = Site::new();
    let names = [
        ("0644", 0o644),
        ("0755", 0o755),
        ("0600", 0o600),
        ("4755", 0o4755),
        ("..\\..\\x", 0o644),
        ("a:b", 0o644),
        ("CON", 0o644),
        ("x.", 0o644),
        ("X.", 0o644),
        ("line\nbreak", 0o644),
        ("...", 0o644),
    ];
    for (name, mode) in names {
        site.inside(&format!("k/{name}"));
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(site.at(&format!("k/{name}")), mode).unwrap();
    }
    // A link, and what a careless unpacker would then write through it.
    symlink(site.outside.path(), site.at("k/pair")).unwrap();
    fs::create_dir(site.at("k/pair2")).unwrap();
    site.inside("k/pair2/new.txt");
    let answer = site.scene.ask_for("k");
    let bytes = site.download(&answer.json());
    let to = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (zip, into) = (to.path().join("it.zip"), to.path().join("into"));
    fs::write(&zip, &bytes).unwrap();
    let python = Command::new("python3")
        .args(["-c", UNPACK])
        .arg(&zip)
        .arg(&into)
        .output();
    let Ok(python) = python else {
        return skipped(1, "unpacker", "python3 is not here");
    };
    assert!(python.status.success(), "{python:?}");
    let members: Vec<(String, u32, bool)> = serde_json::from_slice(&python.stdout).unwrap();
    assert_eq!(members.len(), names.len() + 2, "{members:?}");
    let mut seen = std::collections::HashSet::new();
    for (name, mode, is_directory) in &members {
        let executable = ["0755", "4755"].contains(&name.as_str());
        let expected = if executable { 0o100_755 } else { 0o100_644 };
        assert_eq!((*mode, *is_directory), (expected, false), "{name}");
        let parts: Vec<_> = name.split('/').collect();
        let is_plain =
            |part: &&str| !["", ".", ".."].contains(part) && !part.contains(['\\', ':', '\n']);
        assert!(parts.iter().all(is_plain), "{name:?}");
        assert!(seen.insert(name.to_lowercase()), "{name:?} is there twice");
    }
    if let Ok(tar) = Command::new("bsdtar")
        .arg("-xPf")
        .arg(&zip)
        .current_dir(&into)
        .output()
    {
        assert!(tar.status.success(), "{tar:?}");
    } else {
        skipped(1, "unpacker", "bsdtar is not here");
    }
    let beside: Vec<_> = fs::read_dir(to.path())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(beside.len(), 2, "{beside:?}");
    site.has_kept_it_in("an archive");
}

/// I03 and T12: what the command line gets by a receipt is compared with it, and a receipt leads to its own
/// bytes alone.
#[test]
fn i03_t12_a_receipt_leads_to_its_own_bytes_and_the_program_compares_them() {
    let site = Site::new();
    site.inside("k/one");
    site.scene.file("k/two", OUTSIDE.as_bytes());
    let ask = site.scene.ask_for("k/one").json();
    let decided = site
        .scene
        .decide(&site.scene.server.alice, &ask, "allowed-once")
        .json();
    let (handle, href) = (&decided["receipt"]["receipt"], &decided["receipt"]["href"]);
    let (handle, href) = (handle.as_str().unwrap(), href.as_str().unwrap());
    for target in [
        format!("{href}/../two"),
        format!("{href}/..%2ftwo"),
        format!("{href}?path=k/two"),
        format!("{href}/two"),
        format!("/v1/receipts/{handle}/k/two"),
    ] {
        let got = site.scene.server.get(&target, &site.scene.server.alice);
        site.note(&got.body);
        assert!([400, 404].contains(&got.status), "{target}: {}", got.text());
    }
    let to = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = to.path().join("one");
    let get = [
        "get",
        handle,
        "-s",
        &site.scene.session,
        "-o",
        file.to_str().unwrap(),
    ];
    let done = site.run(&get);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), INSIDE);
    fs::remove_file(&file).unwrap();
    let object = site.scene.server.object(INSIDE.as_bytes());
    crate::damage::in_place(&object, |file| {
        std::os::unix::fs::FileExt::write_all_at(file, b"T", 0).unwrap();
    });
    let done = site.run(&get);
    assert!(!done.status.success(), "{done:?}");
    assert!(!file.exists(), "nothing is left of what did not fit");
    site.has_kept_it_in("receipts");
}
