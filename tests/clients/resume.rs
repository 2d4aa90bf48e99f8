//! 64 MiB with interruptions, by the programs people have.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::Ordering,
};

use holdfast::model::Digest;

use crate::{
    has,
    program::{Home, Server},
    proxy::{Hurt, Proxy},
};

const SIZE: usize = 64 << 20;

/// A server with one large file, and a directory for the client.
struct Scene {
    home: Home,
    server: Server,
    path: String,
    digest: Digest,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let server = home.up();
        let mut content = vec![0; SIZE];
        for (index, word) in content.chunks_exact_mut(8).enumerate() {
            // No two pages alike, so that a splice at any offset shows.
            let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        let digest = Digest::of(&content);
        let file = home.file("large.bin", &content);
        let session = server.text("session").to_owned();
        let put = ["put", "--session", &session, "--reference"];
        let stored = home.json(&[&put[..], &[file.to_str().unwrap()]].concat());
        let id = stored["attachmentId"].as_str().unwrap();
        let path = format!("/v1/sessions/{session}/attachments/{id}");
        std::fs::remove_file(file).unwrap();
        let bearer = format!("Authorization: Bearer {}\n", server.text("token"));
        home.file("bearer", bearer.as_bytes());
        Self {
            home,
            server,
            path,
            digest,
        }
    }

    /// Where a download is cut after `limit` bytes, the first `times` times.
    fn cut(&self, limit: usize, times: usize) -> Proxy {
        Proxy::start(self.server.address(), Hurt::CutAfter(limit), times)
    }

    fn url(&self, proxy: &Proxy) -> String {
        format!("{}{}", proxy.url, self.path)
    }

    fn output(&self) -> PathBuf {
        self.home.path().join("out.bin")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(program)
            .args(arguments)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env_remove("http_proxy")
            .output()
            .unwrap()
    }

    fn is_whole(&self) -> bool {
        is(&self.output(), self.digest)
    }
}

fn is(path: &Path, digest: Digest) -> bool {
    Digest::of(&std::fs::read(path).unwrap()) == digest
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
    let scene = Scene::new();
    let proxy = scene.cut(20_000_000, 3);
    let url = scene.url(&proxy);
    let arguments = ["-fsS", "-H", "@bearer", "-C", "-", "-o", "out.bin", &url];
    assert_eq!(persist(|| scene.run("curl", &arguments)), 4);
    assert!(scene.is_whole());
    // Once more on the whole file: 416 says that nothing is missing.
    scene.run("curl", &arguments);
    scene.run(
        "curl",
        &["-sS", "-H", "@bearer", "-C", "-", "-o", "out.bin", &url],
    );
    assert!(scene.is_whole());
}

/// r08: a link is enough, and a resume is no use of its own.
#[test]
fn r08_curl_goes_on_by_a_ticket_of_one_use() {
    if !has("curl", &["--version"]) {
        return;
    }
    let scene = Scene::new();
    let session = scene.server.text("session");
    let ticket = scene
        .home
        .json(&["ticket", "create", "-s", session, "large.bin"]);
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
    let scene = Scene::new();
    let proxy = scene.cut(20_000_000, 3);
    let bearer = format!(
        "--header=Authorization: Bearer {}",
        scene.server.text("token")
    );
    let url = scene.url(&proxy);
    let arguments = ["-q", "-c", "-t", "1", "-O", "out.bin", &bearer, &url];
    assert_eq!(persist(|| scene.run("wget", &arguments)), 4);
    assert!(scene.is_whole());
    let again = scene.run("wget", &arguments);
    assert!(again.status.success() && scene.is_whole(), "{again:?}");
}

#[test]
fn aria2_fetches_in_four_pieces_at_once_through_cuts_and_checks_the_digest() {
    if !has("aria2c", &["--version"]) {
        return;
    }
    let scene = Scene::new();
    let proxy = scene.cut(5_000_000, 6);
    let bearer = format!(
        "--header=Authorization: Bearer {}",
        scene.server.text("token")
    );
    let url = scene.url(&proxy);
    let fetched = scene.run(
        "aria2c",
        &[
            "-q",
            "-x4",
            "-s4",
            "-k1M",
            "-o",
            "out.bin",
            "--no-conf",
            &bearer,
            &url,
        ],
    );
    assert!(fetched.status.success(), "{fetched:?}");
    assert!(scene.is_whole());
    assert!(proxy.downloads.load(Ordering::SeqCst) >= 7);
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
        let scene = Scene::new();
        let proxy = scene.cut(20_000_000, 3);
        let token = scene.server.text("token");
        let script = script.to_str().unwrap();
        let fetched = scene.run(
            python,
            &[script, library, &scene.url(&proxy), token, "out.bin"],
        );
        assert!(fetched.status.success(), "{fetched:?}");
        assert_eq!(fetched.stdout, b"4\n");
        assert!(scene.is_whole());
    }
}
