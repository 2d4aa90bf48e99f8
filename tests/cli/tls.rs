//! Commands over TLS: to the right server, or not one byte.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::program::{Done, Home, Server, run};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

/// One that vouches for certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for these names, changed as `change` says, and its key.
    fn certify(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        Pair {
            cert: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    fn write(&self, home: &Home, name: &str) {
        home.file(name, self.0.pem().as_bytes());
    }
}

/// A certificate and its key, as PEM.
struct Pair {
    cert: String,
    key: String,
}

const HERE: [&str; 2] = ["localhost", "127.0.0.1"];

impl Pair {
    /// Puts both in their places, each at once and whole.
    fn install(&self, home: &Home) {
        replace(home, "cert.pem", &self.cert, 0o644);
        replace(home, "key.pem", &self.key, 0o600);
    }
}

fn replace(home: &Home, name: &str, text: &str, mode: u32) {
    let fresh = home.file("fresh.pem", text.as_bytes());
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::rename(&fresh, home.path().join(name)).unwrap();
}

struct Scene {
    home: Home,
    session: String,
    token: String,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let first = home.up();
        let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let file = home.file("r.bin", &content);
        let (session, token) = (first.text("session"), first.text("token"));
        let put = ["put", "-s", session, "--reference", file.to_str().unwrap()];
        home.json(&put);
        std::fs::create_dir(home.path().join("client")).unwrap();
        let (session, token) = (session.to_owned(), token.to_owned());
        first.stop();
        Self {
            home,
            session,
            token,
            content,
        }
    }

    /// A server that shows what was installed.
    fn serve(&self) -> Server {
        let serve = ["--json", "serve", "--allow-root", "--listen", "127.0.0.1:0"];
        let mut command = self.home.command(&serve);
        command
            .env("HOLDFAST_TLS_CERT", "cert.pem")
            .env("HOLDFAST_TLS_KEY", "key.pem");
        Server::start(command, self.home.path().join("serve.log"))
    }

    fn client(&self) -> PathBuf {
        self.home.path().join("client")
    }

    /// A command with the user's token, in a directory of its own, on a machine that trusts nobody.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(&["--json"]);
        command
            .args(arguments)
            .env("HOLDFAST_TOKEN", &self.token)
            .env("SSL_CERT_FILE", self.home.path().join("nobody.pem"))
            .env_remove("SSL_CERT_DIR")
            .current_dir(self.client());
        command
    }

    fn get(&self, url: &str, arguments: &[&str]) -> Done {
        let get = ["get", "-s", &self.session, "r.bin", "--url", url];
        run(self.command(&get).args(arguments))
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.client()).unwrap().count()
    }

    fn has_got(&self) -> bool {
        let got = self.client().join("r.bin");
        let is_whole = std::fs::read(&got).is_ok_and(|got| got == self.content);
        std::fs::remove_file(got).ok();
        is_whole
    }
}

#[test]
fn every_command_that_takes_a_url_speaks_tls_with_a_server_that_is_vouched_for() {
    let scene = Scene::new();
    let ours = Authority::new("ours");
    ours.write(&scene.home, "ours.pem");
    ours.certify(&HERE, |_| {}).install(&scene.home);
    let server = scene.serve();
    let url = server.text("url");
    let at = ["--url", url, "--cacert", "../ours.pem"];
    let session = scene.session.as_str();
    for words in [
        &["get", "-s", session, "r.bin"][..],
        &["session", "list"],
        &["ls", "-s", session],
        &["snapshot", "-s", session],
        &["verify"],
        &["ticket", "create", "-s", session, "r.bin"],
        &["ticket", "list"],
        &["decide", "-s", session],
    ] {
        let done = run(scene.command(words).args(at)).json();
        if words.starts_with(&["ticket", "create"]) {
            assert!(
                done["url"].as_str().unwrap().starts_with("https://"),
                "{done}"
            );
        }
    }
    assert!(scene.has_got());
    // By its other name, and on the platform's word.
    let by_name = url.replace("127.0.0.1", "localhost");
    let get = ["get", "-s", session, "r.bin", "--url", &by_name];
    let trusting = scene.home.path().join("ours.pem");
    let done = run(scene.command(&get).env("SSL_CERT_FILE", trusting));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(scene.has_got());
}

#[test]
fn a_server_that_is_not_vouched_for_gets_no_request_and_leaves_no_file() {
    let scene = Scene::new();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    ours.write(&scene.home, "ours.pem");
    theirs.write(&scene.home, "theirs.pem");
    let long_ago = |params: &mut CertificateParams| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    };
    let not_yet = |params: &mut CertificateParams| params.not_before = date_time_ymd(2999, 1, 1);
    let trusting = ["--cacert", "../ours.pem"];
    for (pair, trusting, says) in [
        (
            ours.certify(&["other.example"], |_| {}),
            &trusting[..],
            "another name",
        ),
        (
            theirs.certify(&HERE, |_| {}),
            &trusting,
            "none of the roots of --cacert vouches",
        ),
        (ours.certify(&HERE, long_ago), &trusting, "expired"),
        (ours.certify(&HERE, not_yet), &trusting, "not valid yet"),
        (
            ours.certify(&HERE, |_| {}),
            &["--cacert", "../theirs.pem"],
            "vouches",
        ),
    ] {
        pair.install(&scene.home);
        let server = scene.serve();
        let done = scene.get(server.text("url"), trusting);
        assert_eq!(done.code, 7, "{says}: {done:?}");
        assert!(done.err.contains(says), "{says}: {done:?}");
        assert!(done.err.contains("Nothing was sent"), "{done:?}");
        assert_eq!(scene.files(), 0, "{says}");
        assert!(!done.err.contains(&scene.token), "{done:?}");
    }
}

#[test]
fn trust_that_cannot_be_had_is_a_slip_of_the_command_line() {
    let scene = Scene::new();
    Authority::new("ours")
        .certify(&HERE, |_| {})
        .install(&scene.home);
    let server = scene.serve();
    let url = server.text("url");
    let plain = url.replace("https://", "http://");
    scene.home.file("empty.pem", b"");
    scene.home.file(
        "odd.pem",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    for (url, arguments, code, says) in [
        (url, &["--cacert", "../empty.pem"][..], 2, "no certificate"),
        (url, &["--cacert", "../odd.pem"], 2, "cannot be read"),
        (url, &["--cacert", "../absent.pem"], 4, "absent.pem"),
        (url, &["--cacert", "/dev/zero"], 2, "not a file"),
        (url, &[], 3, "lists no roots"),
        (
            &plain,
            &["--cacert", "../cert.pem"],
            2,
            "nothing vouches for http://",
        ),
        (&plain, &[], 7, "https://"),
        ("https://user@localhost", &[], 2, "without a user"),
        ("https:///x", &[], 2, "--url"),
        ("ftp://localhost", &[], 2, "--url"),
    ] {
        let done = scene.get(url, arguments);
        assert_eq!(done.code, code, "{url} {arguments:?}: {done:?}");
        assert!(done.err.contains(says), "{url} {arguments:?}: {done:?}");
    }
    assert_eq!(scene.files(), 0);
}

#[test]
fn a_server_that_speaks_no_tls_is_told_from_one_that_is_not_there() {
    let scene = Scene::new();
    Authority::new("ours").write(&scene.home, "ours.pem");
    let plain = scene.home.up();
    let url = plain.text("url").replace("http://", "https://");
    let done = scene.get(&url, &["--cacert", "../ours.pem"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.err.contains("does not speak TLS"), "{done:?}");
    plain.stop();
    let done = scene.get(&url, &["--cacert", "../ours.pem"]);
    assert_eq!(done.code, 6, "{done:?}");
    assert_eq!(scene.files(), 0);
}

/// How often the certificate was read again, in vain and to good effect.
fn read_again(server: &Server) -> (usize, usize) {
    let log = server.log();
    let of = |said: &str| {
        let lines = log.lines().filter(|line| line.contains("certificate"));
        lines.filter(|line| line.contains(said)).count()
    };
    let in_vain = of("not read again: what was there stays");
    (in_vain, of("read again") - in_vain)
}

fn until(server: &Server, expected: (usize, usize)) {
    for _ in 0..1500 {
        if read_again(server) == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not within 30 s: {expected:?}: {}", server.log());
}

#[test]
fn a_certificate_that_changes_is_shown_without_being_asked_and_half_a_pair_is_not() {
    let scene = Scene::new();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    old.write(&scene.home, "old.pem");
    new.write(&scene.home, "new.pem");
    old.certify(&HERE, |_| {}).install(&scene.home);
    let server = scene.serve();
    let url = server.text("url");
    let get = |trusted: &str| scene.get(url, &["--force", "--cacert", trusted]).code;
    assert_eq!(get("../old.pem"), 0);
    // Half of the new pair: its certificate alone, then half of its key as well.
    let pair = new.certify(&HERE, |_| {});
    replace(&scene.home, "cert.pem", &pair.cert, 0o644);
    until(&server, (1, 0));
    assert_eq!(get("../old.pem"), 0);
    replace(&scene.home, "key.pem", pair.key.split_at(60).0, 0o600);
    until(&server, (2, 0));
    assert_eq!(get("../old.pem"), 0);
    // The rest of it, written in place.
    std::fs::write(scene.home.path().join("key.pem"), &pair.key).unwrap();
    until(&server, (2, 1));
    assert_eq!((get("../new.pem"), get("../old.pem")), (0, 7));
    // By links, as programs that renew certificates and keep the old ones do.
    let next = old.certify(&HERE, |_| {});
    link(scene.home.path(), "cert", &next.cert);
    link(scene.home.path(), "key", &next.key);
    for _ in 0..1500 {
        if get("../old.pem") == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((get("../old.pem"), get("../new.pem")), (0, 7));
    let log = server.stop();
    assert!(!log.contains("PRIVATE"), "no key is logged");
}

/// Puts a link to a file with this text in the place of `name`, in one step.
fn link(home: &Path, name: &str, text: &str) {
    let target = home.join(format!("{name}-2.pem"));
    std::fs::write(&target, text).unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    let fresh = home.join("fresh-link");
    std::os::unix::fs::symlink(&target, &fresh).unwrap();
    std::fs::rename(&fresh, home.join(format!("{name}.pem"))).unwrap();
}
