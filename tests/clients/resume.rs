//! 64 MiB with interruptions, by the programs people have.

use std::{
    path::Path,
    process::{Command, Output},
    sync::{Arc, atomic::Ordering},
};

use holdfast::model::Digest;

use crate::{
    doors::{DOORS, Door, House},
    has,
    proxy::{Hurt, Proxy},
};

const SIZE: usize = 64 << 20;

/// One large file behind a door, and a directory for the client.
struct Scene {
    house: Arc<House>,
    dir: tempfile::TempDir,
    door: &'static Door,
    path: String,
    digest: Digest,
}

impl Scene {
    /// One for each door, one after the other.
    fn each() -> impl Iterator<Item = Self> {
        let house = House::shared();
        let content = content();
        DOORS.iter().map(move |door| {
            let behind = house.open(door, "large.bin", &content);
            let digest = Digest::of(&behind.bytes);
            let path = behind.target;
            Self {
                house: Arc::clone(&house),
                dir: tempfile::tempdir().unwrap(),
                door,
                path,
                digest,
            }
        })
    }

    /// Where a download is cut after `limit` bytes, the first `times` times.
    fn cut(&self, limit: usize, times: usize) -> Proxy {
        let server = self.house.server.address();
        Proxy::start(server, Hurt::CutAfter(limit), times)
    }

    fn url(&self, proxy: &Proxy) -> String {
        format!("{}{}", proxy.url, self.path)
    }

    /// A field for a command line, where the door wants one.
    fn header(&self, option: &str) -> Vec<String> {
        let field = format!("Authorization: Bearer {}", self.house.token());
        let all = vec![format!("{option}{field}")];
        all.into_iter().filter(|_| self.door.needs_token).collect()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(program)
            .args(arguments)
            .args(match program {
                "curl" => self.header("-H"),
                "wget" | "aria2c" => self.header("--header="),
                _ => Vec::new(),
            })
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env_remove("http_proxy")
            .output()
            .unwrap()
    }

    fn is_whole(&self) -> bool {
        Digest::of(&std::fs::read(self.dir.path().join("out.bin")).unwrap()) == self.digest
    }
}

fn content() -> Vec<u8> {
    let mut content = vec![0; SIZE];
    for (index, word) in content.chunks_exact_mut(8).enumerate() {
        // No two pages alike, so that a splice at any offset shows.
        let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    content
}

/// Repeats a command until it succeeds, as a person does.
fn persist(mut attempt: impl FnMut() -> Output) -> usize {
    for tries in 1..=10 {
        if attempt().status.success() {
            return tries;
        }
    }
    panic!("{:?}", attempt());
}

/// Keeps I4. r09: the rest of a file comes from the right offset.
#[test]
fn r09_curl_goes_on_where_it_was_cut_and_a_whole_file_is_not_hurt() {
    if !has("curl", &["--version"]) {
        return;
    }
    for scene in Scene::each() {
        let proxy = scene.cut(20_000_000, 3);
        let url = scene.url(&proxy);
        let arguments = ["-fsS", "-C", "-", "-o", "out.bin", &url];
        assert_eq!(
            persist(|| scene.run("curl", &arguments)),
            4,
            "{}",
            scene.door.name
        );
        assert!(scene.is_whole(), "{}", scene.door.name);
        // Once more on the whole file: 416 says that nothing is missing.
        scene.run("curl", &arguments);
        scene.run("curl", &["-sS", "-C", "-", "-o", "out.bin", &url]);
        assert!(scene.is_whole(), "{}", scene.door.name);
    }
}

/// r08: a link is enough, and a resume is no use of its own.
#[test]
fn r08_curl_goes_on_by_a_ticket_of_one_use() {
    if !has("curl", &["--version"]) {
        return;
    }
    let scene = Scene::each().next().unwrap();
    let session = scene.house.server.text("session");
    let id = format!("sha256:{}", scene.digest);
    let create = ["ticket", "create", "-s", session, &id];
    let ticket = scene.house.home.json(&create);
    let proxy = scene.cut(20_000_000, 2);
    let url = format!("{}{}", proxy.url, ticket["href"].as_str().unwrap());
    let arguments = ["-fsS", "-C", "-", "-o", "out.bin", &url];
    assert_eq!(persist(|| scene.run("curl", &arguments)), 3);
    assert!(scene.is_whole());
    let again = scene.run("curl", &["-fsS", "-o", "again.bin", &url]);
    assert_eq!(again.status.code(), Some(22), "used up: {again:?}");
}

#[test]
fn wget_goes_on_where_it_was_cut() {
    if !has("wget", &["--version"]) {
        return;
    }
    for scene in Scene::each() {
        let proxy = scene.cut(20_000_000, 3);
        let url = scene.url(&proxy);
        let arguments = ["-q", "-c", "-t", "1", "-O", "out.bin", &url];
        assert_eq!(
            persist(|| scene.run("wget", &arguments)),
            4,
            "{}",
            scene.door.name
        );
        assert!(scene.is_whole(), "{}", scene.door.name);
        let again = scene.run("wget", &arguments);
        assert!(again.status.success() && scene.is_whole(), "{again:?}");
    }
}

#[test]
fn aria2_fetches_in_four_pieces_at_once_through_cuts_and_checks_the_digest() {
    if !has("aria2c", &["--version"]) {
        return;
    }
    for scene in Scene::each() {
        let proxy = scene.cut(5_000_000, 6);
        let url = scene.url(&proxy);
        let pieces = ["-q", "-x4", "-s4", "-k1M", "-o", "out.bin", "--no-conf"];
        let fetched = scene.run("aria2c", &[&pieces[..], &[&url]].concat());
        assert!(fetched.status.success(), "{}: {fetched:?}", scene.door.name);
        assert!(scene.is_whole(), "{}", scene.door.name);
        assert!(proxy.downloads.load(Ordering::SeqCst) >= 7);
    }
}

#[test]
fn python_programs_go_on_with_if_range_and_check_repr_digest() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/resume.py");
    for library in ["requests", "httpx"] {
        // The system's own interpreter has what the system's packages bring.
        let import = format!("import {library}");
        let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(|python| {
            Command::new(python)
                .args(["-c", &import])
                .output()
                .is_ok_and(|output| output.status.success())
        }) else {
            crate::skip::skipped(1, library, "it is not installed (`cargo xtask setup`)");
            continue;
        };
        for scene in Scene::each() {
            let proxy = scene.cut(20_000_000, 3);
            let (url, token) = (scene.url(&proxy), scene.house.token());
            let script = script.to_str().unwrap();
            let fetched = scene.run(python, &[script, library, &url, token, "out.bin"]);
            assert!(fetched.status.success(), "{}: {fetched:?}", scene.door.name);
            assert_eq!(fetched.stdout, b"4\n", "{}", scene.door.name);
            assert!(scene.is_whole(), "{}", scene.door.name);
        }
    }
}
