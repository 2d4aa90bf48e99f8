//! Archives, as the usual unpackers read them.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use holdfast::{
    bundle::{Names, ZipWriter},
    model::{ByteCount, Cancel, RelPath},
    spool::{Spool, SpoolDir},
};

/// What goes in: the path in the root, whether it is executable, and its content.
const FILES: [(&[u8], bool, &[u8]); 7] = [
    (b"report.txt", false, b"what was found\n"),
    (b"bin/run", true, b"#!/bin/sh\n"),
    (b"empty", false, b""),
    ("报告/摘要 (1).md".as_bytes(), false, b"text"),
    (b"REPORT.TXT", false, b"another file\n"),
    (b"a\\b:c*?.txt", false, b"odd"),
    (b"\xff\xfe.bin", false, &[0; 70_000]),
];

fn spool(bytes: &[u8]) -> Spool {
    let dir = fs::File::open(std::env::temp_dir()).unwrap();
    let mut spool = SpoolDir::new(dir.into()).create(ByteCount::mib(1)).unwrap();
    spool.write(bytes).unwrap();
    spool.finish()
}

/// Writes the archive and says which member holds what.
fn archive(at: &Path) -> Vec<(String, bool, &'static [u8])> {
    let dir = fs::File::open(at.parent().unwrap()).unwrap();
    let spools = SpoolDir::new(dir.into());
    let mut writer = ZipWriter::new(spools.create(ByteCount::mib(1)).unwrap());
    let mut names = Names::default();
    let members = FILES.map(|(path, executable, content)| {
        let name = names.take(&RelPath::parse(path).unwrap());
        let text = name.as_str().to_owned();
        writer
            .add(name, executable, &spool(content), &Cancel::new())
            .unwrap();
        (text, executable, content)
    });
    let made = writer.finish().unwrap();
    let mut bytes = vec![0; usize::try_from(made.len().get()).unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(made.file(), &mut bytes, 0).unwrap();
    fs::write(at, bytes).unwrap();
    members.into()
}

struct Scene {
    _dir: tempfile::TempDir,
    zip: PathBuf,
    out: PathBuf,
    members: Vec<(String, bool, &'static [u8])>,
}

fn scene() -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let (zip, out) = (dir.path().join("bundle.zip"), dir.path().join("out"));
    fs::create_dir(&out).unwrap();
    let members = archive(&zip);
    Scene {
        _dir: dir,
        zip,
        out,
        members,
    }
}

impl Scene {
    fn run(&self, command: &mut Command) {
        let done = command.current_dir(&self.out).output().unwrap();
        assert!(
            done.status.success(),
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }

    fn unpacked(&self) {
        for (name, executable, content) in &self.members {
            let path = self.out.join(name);
            assert_eq!(fs::read(&path).unwrap(), *content, "{name}");
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o111 != 0, *executable, "{name}");
            assert_eq!(mode & 0o7000, 0, "{name}");
        }
        let all = self.members.len();
        assert_eq!(files(&self.out), all, "nothing else was unpacked");
    }
}

fn files(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            if entry.file_type().unwrap().is_dir() {
                files(&entry.path())
            } else {
                1
            }
        })
        .sum()
}

#[test]
fn unzip_takes_a_bundle() {
    if !super::has("unzip", &["-v"]) {
        return;
    }
    let scene = scene();
    scene.run(Command::new("unzip").arg("-tqq").arg(&scene.zip));
    scene.run(
        Command::new("unzip")
            .env("LC_ALL", "C.UTF-8")
            .arg("-qq")
            .arg(&scene.zip),
    );
    scene.unpacked();
}

#[test]
fn bsdtar_takes_a_bundle() {
    if !super::has("bsdtar", &["--version"]) {
        return;
    }
    let scene = scene();
    scene.run(
        Command::new("bsdtar")
            .env("LC_ALL", "C.UTF-8")
            .arg("-xf")
            .arg(&scene.zip),
    );
    scene.unpacked();
}

#[test]
fn python_takes_a_bundle() {
    if !super::has("/usr/bin/python3", &["--version"]) {
        return;
    }
    let scene = scene();
    let script = "
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    assert z.testzip() is None
    for i in z.infolist():
        assert i.compress_type == zipfile.ZIP_STORED and not i.is_dir()
        os.chmod(z.extract(i), i.external_attr >> 16)
";
    scene.run(
        Command::new("/usr/bin/python3")
            .args(["-c", script])
            .arg(&scene.zip),
    );
    scene.unpacked();
}
