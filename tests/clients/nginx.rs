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
    home: Home,
    server: Server,
    direct: String,
    admin: String,
    target: String,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let (direct, admin) = (
            format!("127.0.0.1:{}", free_port()),
            format!("127.0.0.1:{}", free_port()),
        );
        let mut command = home.command(&["--json", "up", "--no-prove", "--listen", &direct]);
        command
            .env("HOLDFAST_PUBLIC_URL", format!("http://{NAME}"))
            .env("HOLDFAST_ADMIN", &admin);
        let server = Server::start(command, home.path().join("up.log"));
        let mut content = vec![0; SIZE];
        for (index, word) in content.chunks_exact_mut(8).enumerate() {
            let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        let file = home.file("large.bin", &content);
        let session = server.text("session");
        let put = ["put", "--session", session, "--reference"];
        home.json(&[&put[..], &[file.to_str().unwrap()]].concat());
        let target = format!(
            "/v1/sessions/{session}/attachments/sha256:{}",
            Digest::of(&content)
        );
        let bearer = format!("Authorization: Bearer {}\n", server.text("token"));
        home.file("bearer", bearer.as_bytes());
        Self {
            home,
            server,
            direct,
            admin,
            target,
            content,
        }
    }

    fn object(&self) -> PathBuf {
        let hex = Digest::of(&self.content).to_string();
        let objects = self.home.data().join("data/objects/sha256");
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
            self.server.text("token")
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

/// A method, a target, a token, fields, and the status of the answer.
type Row<'a> = (&'a str, &'a str, Option<&'a str>, Vec<String>, u16);

/// The matrix of downloads: the same status, fields and octets, whatever stands between.
#[test]
#[expect(clippy::too_many_lines, reason = "one row per kind of answer")]
fn the_answers_through_nginx_are_the_answers() {
    if !has_nginx() {
        return;
    }
    let scene = Scene::new();
    let token = scene.server.text("token").to_owned();
    let proxies =
        ["on", "off"].map(|buffering| Nginx::start(&scene.home, &scene.direct, buffering));
    let tag = format!("\"{}\"", Digest::of(&scene.content));
    let absent = scene.target.replace(
        &Digest::of(&scene.content).to_string(),
        &Digest::of(b"x").to_string(),
    );
    let form = serde_json::json!({
        "session": scene.server.text("session"),
        "attachmentId": format!("sha256:{}", Digest::of(&scene.content)),
        "uses": 9,
    });
    let json = "Content-Type: application/json";
    let made = wire::request(
        &scene.direct,
        "POST",
        "/v1/tickets",
        Some(&token),
        &[json],
        form.to_string().as_bytes(),
    );
    let held = made.json()["href"].as_str().unwrap().to_owned();
    let me = Some(token.as_str());
    let rows: Vec<Row<'_>> = vec![
        ("GET", &scene.target, me, vec![], 200),
        ("HEAD", &scene.target, me, vec![], 200),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: bytes=0-0".into()],
            206,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: bytes=1000000-".into()],
            206,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: bytes=-5".into()],
            206,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: bytes=0-9,100-109,-3".into()],
            206,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: lines=1-2".into(), "Want-Digest: sha-256".into()],
            200,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: bytes=99999999-".into()],
            416,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: bytes=5-9".into(), format!("If-Range: {tag}")],
            206,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Range: bytes=5-9".into(), "If-Range: \"x\"".into()],
            200,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec![format!("If-None-Match: {tag}")],
            304,
        ),
        (
            "HEAD",
            &scene.target,
            me,
            vec![format!("If-None-Match: {tag}")],
            304,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["If-Match: \"x\"".into()],
            412,
        ),
        (
            "GET",
            &scene.target,
            me,
            vec!["Accept-Encoding: gzip".into()],
            200,
        ),
        ("GET", &scene.target, None, vec![], 401),
        ("GET", &absent, me, vec![], 404),
        (
            "GET",
            &absent,
            me,
            vec!["Sec-Fetch-Mode: navigate".into()],
            404,
        ),
        ("DELETE", &scene.target, me, vec![], 405),
        ("OPTIONS", &scene.target, me, vec![], 204),
    ];
    for (method, target, token, fields, status) in &rows {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let ask = |address: &str| wire::request(address, method, target, *token, &fields, b"");
        let direct = ask(&scene.direct);
        assert_eq!(direct.status, *status, "{method} {fields:?}");
        for proxy in &proxies {
            let through = ask(&proxy.address);
            assert!(
                seen(&through) == seen(&direct),
                "{method} {fields:?}: {:?} {:?}",
                through.head,
                direct.head
            );
        }
    }
    for fields in [&[][..], &["Range: bytes=7-"]] {
        let direct = wire::get(&scene.direct, &held, None, fields);
        assert!(direct.status < 300);
        for proxy in &proxies {
            let through = wire::get(&proxy.address, &held, None, fields);
            assert!(seen(&through) == seen(&direct), "{fields:?}");
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
        let nginx = Nginx::start(&scene.home, &scene.direct, buffering);
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
            Some(scene.server.text("token")),
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
        let nginx = Nginx::start(&scene.home, &scene.direct, buffering);
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
        let nginx = Nginx::start(&scene.home, &scene.direct, buffering);
        let bearer = format!(
            "--header=Authorization: Bearer {}",
            scene.server.text("token")
        );
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
                    .current_dir(scene.home.path())
                    .env("HOME", scene.home.path())
                    .env_remove("http_proxy")
                    .status()
                    .unwrap()
                    .success()
            });
            assert_eq!(tries, Some(3), "{program} {buffering}");
            let out = scene.home.path().join("out.bin");
            assert!(
                std::fs::read(&out).unwrap() == scene.content,
                "{program} {buffering}"
            );
            std::fs::remove_file(out).unwrap();
        }
    }
}
