//! Through nginx as a proxy, buffering and not: the same answers, and a cut is a cut.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use holdfast::model::Digest;

use crate::{
    doors::{DOORS, House},
    has,
    program::{Home, Server},
    proxy::{Hurt, Proxy},
    wire,
};

const SIZE: usize = 24 << 20;
const NAME: &str = "files.example";

/// A port nobody listens on at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A proxy of its own, in one process, with everything it writes below the home.
struct Nginx {
    child: Child,
    address: String,
}

impl Nginx {
    fn start(home: &Home, upstream: &str, buffering: &str) -> Self {
        for _ in 0..5 {
            let port = free_port();
            let dir = home.path().join(format!("nginx-{port}"));
            std::fs::create_dir(&dir).unwrap();
            let config = dir.join("nginx.conf");
            std::fs::write(
                &config,
                Self::config(&dir.display().to_string(), port, upstream, buffering),
            )
            .unwrap();
            let mut child = Command::new("nginx")
                .env("PATH", path())
                .arg("-p")
                .arg(&dir)
                .arg("-e")
                .arg(dir.join("error.log"))
                .arg("-c")
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let address = format!("127.0.0.1:{port}");
            for _ in 0..500 {
                if child.try_wait().unwrap().is_some() {
                    break; // Somebody else took the port.
                }
                if TcpStream::connect(&address).is_ok() {
                    return Self { child, address };
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            child.kill().ok();
            child.wait().unwrap();
            eprintln!(
                "{}",
                std::fs::read_to_string(dir.join("error.log")).unwrap_or_default()
            );
        }
        panic!("nginx does not start");
    }

    /// As in docs/proxy.md, but for the places where it writes.
    fn config(dir: &str, port: u16, upstream: &str, buffering: &str) -> String {
        format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;
            events {{ worker_connections 256; }}
            http {{
                access_log off;
                client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
                fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
                upstream holdfast {{ server {upstream}; keepalive 16; }}
                server {{
                    listen 127.0.0.1:{port};
                    server_name {NAME};
                    client_max_body_size 0;
                    location / {{
                        proxy_pass http://holdfast;
                        proxy_http_version 1.1;
                        proxy_set_header Host $host;
                        proxy_set_header Connection \"\";
                        proxy_buffering {buffering};
                        proxy_max_temp_file_size 0;
                        proxy_request_buffering off;
                    }}
                }}
            }}"
        )
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Where a user's PATH has no system administration programs, they are there all the same.
fn path() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

fn has_nginx() -> bool {
    let runs = Command::new("nginx")
        .arg("-v")
        .env("PATH", path())
        .output()
        .is_ok_and(|output| output.status.success());
    runs || has("nginx", &["-v"])
}

struct Scene {
    house: House,
    direct: String,
    admin: String,
    target: String,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        Self::start(&["--no-prove"])
    }

    /// With the workspace proven, so that receipts can be had.
    fn proven() -> Self {
        Self::start(&[])
    }

    fn start(options: &[&str]) -> Self {
        let (direct, admin) = (
            format!("127.0.0.1:{}", free_port()),
            format!("127.0.0.1:{}", free_port()),
        );
        let house = House::new(|home| {
            let mut command = home.command(&["up", "--json", "--listen", &direct]);
            command
                .args(options)
                .env("HOLDFAST_PUBLIC_URL", format!("http://{NAME}"))
                .env("HOLDFAST_ADMIN", &admin);
            Server::start(command, home.path().join("up.log"))
        });
        let mut content = vec![0; SIZE];
        for (index, word) in content.chunks_exact_mut(8).enumerate() {
            let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        let target = house.open(&DOORS[0], "large.bin", &content).target;
        Self {
            house,
            direct,
            admin,
            target,
            content,
        }
    }

    fn object(&self) -> PathBuf {
        let hex = Digest::of(&self.content).to_string();
        let objects = self.house.home.data().join("data/objects/sha256");
        objects.join(hex.get(..2).unwrap()).join(hex)
    }

    /// Sends a request as it stands, and reads the answer's head.
    fn open(&self, address: &str, fields: &[&str]) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut head = format!(
            "GET {} HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {}\r\n",
            self.target,
            self.house.token()
        );
        for field in fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        let mut read = Vec::new();
        let mut octet = [0];
        while !read.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut octet).unwrap();
            read.push(octet[0]);
        }
        (stream, String::from_utf8(read).unwrap())
    }

    fn metric(&self, name: &str) -> u64 {
        let answer = wire::get(&self.admin, "/metrics", None, &[]);
        let text = String::from_utf8(answer.body).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
            .parse()
            .unwrap()
    }
}

/// What a client sees of an answer: not who was on the way, when, and under which id.
fn seen(answer: &wire::Answer) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let id = answer.field("x-request-id").unwrap_or_default().to_owned();
    let mut fields: Vec<_> = answer
        .head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .filter(|(name, _)| {
            !["date", "server", "connection", "x-request-id"].contains(&name.as_str())
        })
        .collect();
    fields.sort();
    let body = match String::from_utf8(answer.body.clone()) {
        Ok(text) => text.replace(&id, "<id>").into_bytes(),
        Err(other) => other.into_bytes(),
    };
    (answer.status, fields, body)
}

/// A method, fields, and the status of the answer.
type Row<'a> = (&'a str, &'a [&'a str], u16);

/// The matrix of downloads by every door: the same status, fields and octets, whatever stands between.
#[test]
fn the_answers_through_nginx_are_the_answers() {
    if !has_nginx() {
        return;
    }
    let scene = Scene::proven();
    let proxies =
        ["on", "off"].map(|buffering| Nginx::start(&scene.house.home, &scene.direct, buffering));
    let same = |method: &str, target: &str, token, fields: &[&str], status| {
        let ask = |address: &str| wire::request(address, method, target, token, fields, b"");
        let direct = ask(&scene.direct);
        assert_eq!(direct.status, status, "{method} {target} {fields:?}");
        for proxy in &proxies {
            let through = ask(&proxy.address);
            assert!(
                seen(&through) == seen(&direct),
                "{method} {target} {fields:?}: {:?} {:?}",
                through.head,
                direct.head
            );
        }
    };
    for door in &DOORS {
        let behind = scene.house.open(door, "large.bin", &scene.content);
        let target = behind.target;
        let tag = format!("\"{}\"", Digest::of(&behind.bytes));
        let (known, resumed) = (format!("If-None-Match: {tag}"), format!("If-Range: {tag}"));
        let rows: &[Row<'_>] = &[
            ("GET", &[], 200),
            ("HEAD", &[], 200),
            ("HEAD", &["Range: bytes=0-9"], 200),
            ("GET", &["Range: bytes=0-0"], 206),
            ("GET", &["Range: bytes=1000000-"], 206),
            ("GET", &["Range: bytes=-5"], 206),
            ("GET", &["Range: bytes=0-9,100-109,-3"], 206),
            ("GET", &["Range: lines=1-2", "Want-Digest: sha-256"], 200),
            (
                "GET",
                &["Range: bytes=5-9", "Want-Repr-Digest: sha-256=0"],
                206,
            ),
            ("GET", &["Range: bytes=99999999-"], 416),
            ("GET", &["Range: bytes=5-9", &resumed], 206),
            ("GET", &["Range: bytes=5-9", "If-Range: \"x\""], 200),
            ("GET", &[&known], 304),
            ("HEAD", &[&known], 304),
            ("GET", &["If-Match: \"x\""], 412),
            ("GET", &["Accept-Encoding: gzip"], 200),
            ("GET", &["Accept-Encoding: gzip", "Range: bytes=7-"], 206),
            ("DELETE", &[], 405),
            ("OPTIONS", &[], 204),
        ];
        let token = Some(scene.house.token()).filter(|_| door.needs_token);
        for (method, fields, status) in rows {
            same(method, &target, token, fields, *status);
        }
        // Where nothing is, and where nothing is for this caller.
        let (before, last) = target.split_at(target.len() - 9);
        let absent = format!(
            "{before}{}",
            last.replace(|c: char| c.is_ascii_hexdigit(), "0")
        );
        for fields in [&[][..], &["Sec-Fetch-Mode: navigate"]] {
            same("GET", &absent, token, fields, 404);
            if door.needs_token {
                same("GET", &target, None, fields, 401);
            }
        }
    }
}

/// Keeps I4: content that changes on its way through is cut, and the one behind the proxy sees it.
#[test]
fn damage_under_way_reaches_the_client_as_a_short_answer() {
    if !has_nginx() {
        return;
    }
    for buffering in ["on", "off"] {
        let scene = Scene::new();
        let nginx = Nginx::start(&scene.house.home, &scene.direct, buffering);
        let (mut stream, head) = scene.open(&nginx.address, &[]);
        assert!(
            head.contains(&format!("Content-Length: {SIZE}"))
                || head.contains(&format!("content-length: {SIZE}")),
            "{head}"
        );
        let mut body = vec![0; 1000];
        stream.read_exact(&mut body).unwrap();
        // The last block changes while most of the file has not been sent.
        let object = scene.object();
        std::fs::set_permissions(&object, std::fs::Permissions::from_mode(0o600)).unwrap();
        let file = std::fs::File::options().write(true).open(&object).unwrap();
        file.write_all_at(b"!", SIZE as u64 - 1).unwrap();
        let ended = stream.read_to_end(&mut body);
        assert!(
            body.len() < SIZE,
            "{buffering}: {} bytes, {ended:?}",
            body.len()
        );
        assert!(
            scene.content.starts_with(&body),
            "{buffering}: not one wrong byte"
        );
        let again = wire::get(
            &nginx.address,
            &scene.target,
            Some(scene.house.token()),
            &[],
        );
        assert_eq!(again.status, 500, "{buffering}");
    }
}

/// Who hangs up behind the proxy ends the work done for it.
#[test]
fn a_client_that_hangs_up_behind_the_proxy_ends_its_transfer() {
    if !has_nginx() {
        return;
    }
    let scene = Scene::new();
    for (nth, buffering) in ["on", "off"].into_iter().enumerate() {
        let nginx = Nginx::start(&scene.house.home, &scene.direct, buffering);
        let (mut stream, _) = scene.open(&nginx.address, &[]);
        stream.read_exact(&mut [0; 1000]).unwrap();
        drop(stream);
        let cut = u64::try_from(nth).unwrap() + 1;
        for _ in 0..1000 {
            if scene.metric("holdfast_downloads_cut_total") >= cut {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(
            scene.metric("holdfast_downloads_cut_total"),
            cut,
            "{buffering}"
        );
    }
}

/// r09 through a proxy: interruptions, and the right bytes in the end.
#[test]
fn curl_and_wget_go_on_through_nginx_where_they_were_cut() {
    if !has_nginx() || !has("curl", &["--version"]) || !has("wget", &["--version"]) {
        return;
    }
    let scene = Scene::new();
    for buffering in ["on", "off"] {
        let nginx = Nginx::start(&scene.house.home, &scene.direct, buffering);
        let bearer = format!("--header=Authorization: Bearer {}", scene.house.token());
        let host = format!("Host: {NAME}");
        let wget_host = format!("--header={host}");
        let programs: [(&str, Vec<&str>); 2] = [
            (
                "curl",
                vec![
                    "-fsS", "-H", "@bearer", "-H", &host, "-C", "-", "-o", "out.bin",
                ],
            ),
            (
                "wget",
                vec!["-q", "-c", "-t", "1", "-O", "out.bin", &bearer, &wget_host],
            ),
        ];
        for (program, arguments) in &programs {
            let proxy = Proxy::start(&nginx.address, Hurt::CutAfter(9_000_000), 2);
            let url = format!("{}{}", proxy.url, scene.target);
            let tries = (1..=6).find(|_| {
                Command::new(program)
                    .args(arguments)
                    .arg(&url)
                    .current_dir(scene.house.home.path())
                    .env("HOME", scene.house.home.path())
                    .env_remove("http_proxy")
                    .status()
                    .unwrap()
                    .success()
            });
            assert_eq!(tries, Some(3), "{program} {buffering}");
            let out = scene.house.home.path().join("out.bin");
            assert!(
                std::fs::read(&out).unwrap() == scene.content,
                "{program} {buffering}"
            );
            std::fs::remove_file(out).unwrap();
        }
    }
}
