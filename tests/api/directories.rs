//! A declared directory: one archive of what may leave, and a list of what may not.

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use holdfast::model::ByteCount;
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use serde_json::{Value, json};

use crate::{releases::Scene, skip, support::Options};

const PYTHON: &str = "
import hashlib, json, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
print(json.dumps({info.filename: archive.read(info).decode('utf-8', 'replace')
                  for info in archive.infolist()}))
";

/// What an archive holds, by the names in it, as another program unpacks it.
pub(crate) fn unpacked(bytes: &[u8]) -> Option<Value> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("archive.zip");
    fs::write(&path, bytes).unwrap();
    for (program, words) in [("unzip", &["-tqq"][..]), ("bsdtar", &["-tf"])] {
        match Command::new(program).args(words).arg(&path).output() {
            Ok(output) => assert!(output.status.success(), "{program}: {output:?}"),
            Err(_) => skip::skipped(1, "archive", &format!("{program} is not here")),
        }
    }
    let python = Command::new("python3")
        .args(["-c", PYTHON])
        .arg(&path)
        .output();
    let Ok(python) = python else {
        skip::skipped(1, "archive", "python3 is not here");
        return None;
    };
    assert!(python.status.success(), "{python:?}");
    Some(serde_json::from_slice(&python.stdout).unwrap())
}

/// Releases what is declared at `path` and downloads it.
pub(crate) fn archive(scene: &Scene, path: &str) -> (Value, Vec<u8>) {
    let ask = scene.ask_for(path);
    assert_eq!(ask.status, 202, "{}", ask.text());
    let ask = ask.json();
    let decided = scene
        .decide(&scene.server.alice, &ask, "allowed-once")
        .json();
    let href = decided["receipt"]["href"].as_str().unwrap();
    let got = scene.server.get(href, &scene.server.alice);
    assert_eq!(got.status, 200, "{}", got.text());
    let disposition = got.field("content-disposition").unwrap();
    assert!(disposition.contains(".zip"), "{disposition}");
    (ask, got.body)
}

pub(crate) fn class(manifest: &Value, path: &str) -> String {
    let left_out = manifest["leftOut"].as_array().unwrap();
    let found = left_out.iter().find(|one| one["path"] == path);
    found
        .map_or("", |one| one["class"].as_str().unwrap())
        .to_owned()
}

/// Keeps I2: links, hard links, special files and secrets stay out of an archive and are named in it.
#[test]
fn a_directory_is_released_as_what_may_leave_of_it() {
    let scene = Scene::new();
    let root = scene.root().to_owned();
    let secret = scene.server.data().join("secret");
    fs::write(&secret, b"outside").unwrap();
    scene.file("out/report.txt", b"what was found");
    scene.file("out/deep/er/data.csv", b"1,2\n");
    scene.file("out/empty", b"");
    scene.file("out/large", &[7; 2048]);
    scene.file("out/id_rsa", b"-----BEGIN");
    scene.file("out/.ssh/known", b"x");
    scene.file("elsewhere", b"two names");
    fs::hard_link(root.join("elsewhere"), root.join("out/linked")).unwrap();
    symlink(&secret, root.join("out/link")).unwrap();
    symlink(scene.server.data(), root.join("out/dirlink")).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, root.join("out/pipe"), FileType::Fifo, mode, 0).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\x01name");
    fs::write(root.join("out").join(odd), b"odd").unwrap();

    let (ask, bytes) = archive(&scene, "out");
    assert_eq!(ask["name"], "out.zip");
    assert_eq!(ask["bytes"], json!(bytes.len()));
    let Some(members) = unpacked(&bytes) else {
        return;
    };
    let text = members["holdfast-manifest.json"].as_str().unwrap();
    let manifest: Value = serde_json::from_str(text).unwrap();
    for (name, content) in [
        ("report.txt", "what was found"),
        ("deep/er/data.csv", "1,2\n"),
        ("empty", ""),
    ] {
        assert_eq!(members[name], content, "{name}");
        let listed = manifest["files"].as_array().unwrap();
        let listed = listed.iter().find(|one| one["name"] == name).unwrap();
        let id = crate::support::server::id(content.as_bytes());
        assert_eq!(
            (&listed["attachmentId"], &listed["bytes"]),
            (&json!(id), &json!(content.len()))
        );
    }
    for (path, expected) in [
        ("link", "denied_symlink"),
        ("dirlink", "denied_symlink"),
        ("linked", "denied_hardlink"),
        ("pipe", "not_regular"),
        ("large", "too_large"),
        ("id_rsa", "denied_name"),
        (".ssh", "denied_name"),
    ] {
        assert_eq!(class(&manifest, path), expected, "{manifest}");
    }
    // The odd name is there under one that is safe everywhere.
    let names: Vec<&String> = members.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(!String::from_utf8_lossy(&bytes).contains("outside"));

    // The same files give the same archive, and a changed one another.
    let (again, _) = archive(&scene, "out");
    assert_eq!(again["attachmentId"], ask["attachmentId"]);
    scene.file("out/report.txt", b"something else");
    let (changed, _) = archive(&scene, "out");
    assert_ne!(changed["attachmentId"], ask["attachmentId"]);
}

#[test]
fn a_directory_of_nothing_and_one_of_too_much_are_said_to_be_so() {
    let scene = Scene::proven(Options {
        max_file: ByteCount::kib(64),
        ..Options::default()
    });
    fs::create_dir(scene.root().join("bare")).unwrap();
    let (_, bytes) = archive(&scene, "bare");
    if let Some(members) = unpacked(&bytes) {
        assert_eq!(members.as_object().unwrap().len(), 1, "the list alone");
    }
    let many = scene.root().join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..10_001 {
        fs::File::create(many.join(n.to_string())).unwrap();
    }
    let refused = scene.ask_for("many");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (413, "over-limit")
    );
    assert!(
        refused.text().contains("10000 entries"),
        "{}",
        refused.text()
    );
    assert_eq!(scene.server.objects(), 1, "nothing was copied");
    // As deep as a path may be here.
    let deep = vec!["d"; 100].join("/");
    scene.file(&format!("deep/{deep}/f"), b"down here");
    let (_, bytes) = archive(&scene, "deep");
    if let Some(members) = unpacked(&bytes) {
        assert_eq!(members[&format!("{deep}/f")], "down here");
    }
}

/// Keeps I2 under a storm: whatever is swapped while an archive is made, no byte from outside is in it.
#[test]
fn nothing_from_outside_gets_into_an_archive_while_names_are_swapped() {
    let scene = Scene::new();
    let root = scene.root().to_owned();
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for n in 0..20 {
        scene.file(&format!("out/d/f{n}"), b"IN:  a decoy.");
        fs::write(outside.path().join(format!("f{n}")), b"OUT: a secret").unwrap();
    }
    symlink(outside.path(), root.join("out/e")).unwrap();
    symlink(outside.path().join("f0"), root.join("out/d/l")).unwrap();
    let exchange = |one: &str, other: &str| {
        let (one, other) = (root.join(one), root.join(other));
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).ok();
    };
    let is_over = AtomicBool::new(false);
    let (mut made, mut files) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                exchange("out/d", "out/e");
                exchange("out/d/f1", "out/d/l");
            }
        });
        let _over = Over(&is_over);
        for _ in 0..40 {
            let ask = scene.ask_for("out");
            if ask.status != 202 {
                assert_eq!(ask.code(), "changed", "{}", ask.text());
                continue;
            }
            let digest = ask.json()["attachmentId"].as_str().unwrap().to_owned();
            let object = stored(scene.server.data(), &digest);
            let bytes = fs::read(object).unwrap();
            assert!(
                !bytes.windows(4).any(|four| four == b"OUT:"),
                "a byte from outside"
            );
            made += 1;
            files += bytes.windows(4).filter(|four| *four == b"IN: ").count();
        }
    });
    assert!(
        made > 10 && files > 20,
        "{made} archives with {files} files"
    );
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn stored(data: &Path, id: &str) -> std::path::PathBuf {
    let hex = id.strip_prefix("sha256:").unwrap();
    data.join("data/objects/sha256").join(&hex[..2]).join(hex)
}
