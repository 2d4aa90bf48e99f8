//! TLS as an operator sets it up, by the programs people have.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use holdfast::model::Digest;
use rcgen::generate_simple_self_signed;
use rustix::process::Signal;

use crate::{
    has,
    program::{Home, Server},
    wire,
};

/// Writes a certificate of its own, and says where it may be had to trust it.
fn certify(home: &Home, trusted: &str) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let pair = generate_simple_self_signed(names).unwrap();
    let (cert, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    home.file(trusted, cert.as_bytes());
    mode(&home.file("cert.pem", cert.as_bytes()), 0o644);
    let key = home.file("key.pem", key.as_bytes());
    mode(&key, 0o600);
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn serve(home: &Home) -> Command {
    let mut command = home.command(&["--json", "serve", "--allow-root", "--listen", "127.0.0.1:0"]);
    command
        .env("HOLDFAST_TLS_CERT", "cert.pem")
        .env("HOLDFAST_TLS_KEY", "key.pem");
    command
}

struct Scene {
    home: Home,
    server: Server,
    path: String,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let first = home.up();
        let content: Vec<u8> = (0..8 << 20_u32)
            .map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let file = home.file("large.bin", &content);
        let session = first.text("session");
        let put = ["put", "--session", session, "--reference"];
        home.json(&[&put[..], &[file.to_str().unwrap()]].concat());
        let path = format!(
            "/v1/sessions/{session}/attachments/sha256:{}",
            Digest::of(&content)
        );
        let bearer = format!("Authorization: Bearer {}\n", first.text("token"));
        home.file("bearer", bearer.as_bytes());
        first.stop();
        certify(&home, "old.pem");
        let server = Server::start(serve(&home), home.path().join("serve.log"));
        Self {
            home,
            server,
            path,
            content,
        }
    }

    fn curl(&self, trusted: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command
            .current_dir(self.home.path())
            .args([
                "-fsS",
                "--noproxy",
                "*",
                "-H",
                "@bearer",
                "--cacert",
                trusted,
            ])
            .args(arguments)
            .arg(format!("{}{}", self.server.text("url"), self.path));
        command
    }

    fn reload(&self, said: &str) {
        let told = || {
            let log = self.server.log();
            let lines = log.lines().filter(|line| line.contains("certificate"));
            lines.filter(|line| line.contains(said)).count()
        };
        let before = told();
        self.server.signal(Signal::HUP);
        for _ in 0..500 {
            if told() > before {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("not said within 10 s: {said}: {}", self.server.log());
    }
}

#[test]
fn curl_downloads_by_tls_and_a_reload_cuts_nothing() {
    if !has("curl", &["--version"]) {
        return;
    }
    let scene = Scene::new();
    assert!(scene.server.text("url").starts_with("https://127.0.0.1:"));
    let mut running = scene
        .curl("old.pem", &["--limit-rate", "3M", "-o", "slow.bin"])
        .spawn()
        .unwrap();
    let started = scene.home.path().join("slow.bin");
    while !started.exists() {
        assert!(running.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Act: bad files first, then good ones.
    let key = scene.home.file("key.pem", b"no key");
    scene.reload("what was there stays");
    assert!(
        scene
            .curl("old.pem", &["-o", "/dev/null"])
            .status()
            .unwrap()
            .success()
    );
    certify(&scene.home, "new.pem");
    mode(&key, 0o644);
    scene.reload("what was there stays");
    mode(&key, 0o600);
    scene.reload("read again");
    // Assert
    let fresh = scene
        .curl("new.pem", &["-o", "fresh.bin"])
        .output()
        .unwrap();
    assert!(fresh.status.success(), "{fresh:?}");
    let refused = scene
        .curl("old.pem", &["-o", "/dev/null"])
        .output()
        .unwrap();
    assert_eq!(
        refused.status.code(),
        Some(60),
        "the old certificate is gone: {refused:?}"
    );
    assert!(running.wait().unwrap().success(), "what ran goes on");
    for file in ["slow.bin", "fresh.bin"] {
        assert!(
            std::fs::read(scene.home.path().join(file)).unwrap() == scene.content,
            "{file}"
        );
    }
    let log = scene.server.stop();
    assert!(!log.contains("PRIVATE"), "no key is logged");
}

#[test]
fn plain_http_to_the_tls_port_says_what_to_do() {
    let home = Home::new();
    certify(&home, "old.pem");
    home.run(&["init"]);
    let server = Server::start(serve(&home), home.path().join("serve.log"));
    let address = server
        .text("url")
        .strip_prefix("https://")
        .unwrap()
        .to_owned();
    let answer = wire::get(&address, "/v1/host", None, &[]);
    assert_eq!(answer.status, 400);
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.contains("https://"), "{text}");
}

#[test]
fn openssl_finds_the_two_versions_and_no_older_one() {
    if !has("openssl", &["version"]) {
        return;
    }
    let home = Home::new();
    certify(&home, "old.pem");
    home.run(&["init"]);
    let server = Server::start(serve(&home), home.path().join("serve.log"));
    let address = server
        .text("url")
        .strip_prefix("https://")
        .unwrap()
        .to_owned();
    let shake = |version: &str| -> Output {
        Command::new("openssl")
            .args([
                "s_client", "-connect", &address, "-CAfile", "old.pem", version,
            ])
            .args(["-verify_return_error", "-alpn", "h2,http/1.1"])
            .current_dir(home.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let shaken = shake(version);
        let said = String::from_utf8_lossy(&shaken.stdout).into_owned();
        assert!(shaken.status.success() && said.contains(name), "{said}");
        assert!(said.contains("ALPN protocol: http/1.1"), "{said}");
        assert!(said.contains("Verify return code: 0 (ok)") || said.contains("Verification: OK"));
    }
    let old = shake("-tls1_1");
    assert!(!old.status.success(), "{old:?}");
}

#[test]
fn bad_files_refuse_the_start_and_say_which_and_why() {
    let home = Home::new();
    home.run(&["init"]);
    certify(&home, "old.pem");
    let key = home.path().join("key.pem");
    let good = std::fs::read(&key).unwrap();
    let refused = |says: &str| {
        let done = crate::program::run(&mut serve(&home));
        assert_eq!(done.code, 3, "{done:?}");
        assert!(
            done.err.contains(says) && done.err.contains("key.pem"),
            "{says}: {done:?}"
        );
        assert!(!done.err.contains("BEGIN"), "{done:?}");
    };
    mode(&key, 0o644);
    refused("may be read by everybody");
    mode(&key, 0o600);
    std::fs::write(&key, &good[..good.len() / 2]).unwrap();
    refused("the key is no private key");
    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    refused("cannot be used together");
    std::fs::remove_file(&key).unwrap();
    refused("cannot read");
    let only = crate::program::run(serve(&home).env_remove("HOLDFAST_TLS_KEY"));
    assert_eq!(only.code, 3, "{only:?}");
    assert!(
        only.err.contains("`cert` and `key` go together"),
        "{only:?}"
    );
}
