//! A browser of its own for a test, driven over the `WebDriver` protocol (W3C) and, where that has no
//! word for it, by commands of the `DevTools` protocol.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::{skip, wire};

/// What keeps the browser to itself: no window, no traffic but the test's.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1000,900",
];

/// How long a command may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_mins(1);

/// Chromium with an empty profile; ends with the test.
#[derive(Debug)]
pub(crate) struct Browser {
    driver: Child,
    _out: BufReader<ChildStdout>,
    address: String,
    session: String,
    dir: tempfile::TempDir,
}

/// Whether there is a browser here; a missing one is reported.
pub(crate) fn is_here() -> bool {
    ["chromium", "chromedriver"].iter().all(|program| {
        let runs = Command::new(program)
            .arg("--version")
            .stderr(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success());
        if !runs {
            skip::skipped(1, program, "it is not installed (`cargo xtask setup`)");
        }
        runs
    })
}

impl Browser {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("HOME", dir.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.path().join("driver.log")).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(driver.stdout.take().unwrap());
        let mut line = String::new();
        let port: u16 = loop {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "chromedriver ended");
            let port = line.trim_end().strip_suffix('.').and_then(|text| {
                let (_, port) = text.rsplit_once("successfully on port ")?;
                port.parse().ok()
            });
            if let Some(port) = port {
                break port;
            }
        };
        let mut browser = Self {
            driver,
            _out: out,
            address: format!("127.0.0.1:{port}"),
            session: String::new(),
            dir,
        };
        let profile = format!("--user-data-dir={}", browser.dir.path().join("p").display());
        let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([profile.as_str()]).collect();
        let downloads = browser.dir.path().join("downloads");
        fs::create_dir(&downloads).unwrap();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {
                "args": arguments,
                "prefs": {
                    "download.default_directory": downloads,
                    "download.prompt_for_download": false,
                    "safebrowsing.enabled": false,
                    "profile.default_content_setting_values.automatic_downloads": 1,
                },
            },
        }}});
        let made = browser.ask("POST", "/session", &wanted);
        browser
            .session
            .push_str(made["sessionId"].as_str().unwrap());
        browser
    }

    /// The value of an answer; an error of the driver is a failure of the test.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_ask(method, path, body)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn try_ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let answer = read(&mut stream);
        let value = answer.json()["value"].take();
        if answer.status == 200 {
            Ok(value)
        } else {
            Err(value)
        }
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Goes to an address that has a page.
    pub(crate) fn open(&self, url: &str) {
        self.command("/url", &json!({ "url": url }));
    }

    /// Goes to an address that may turn out to be a download, which the driver calls an error.
    pub(crate) fn try_open(&self, url: &str) {
        let path = format!("/session/{}/url", self.session);
        self.try_ask("POST", &path, &json!({ "url": url })).ok();
    }

    /// Runs a script in the page and returns what it returns, after its promises.
    pub(crate) fn run(&self, script: &str, arguments: &Value) -> Value {
        let wrapped = format!(
            "const done = arguments[arguments.length - 1];
             (async (...args) => {{ {script} }})(...arguments)
                 .then((value) => done({{ value }}), (error) => done({{ error: String(error) }}));"
        );
        let asked = json!({"script": wrapped, "args": arguments});
        let mut result = self.command("/execute/async", &asked);
        assert_eq!(result.get("error"), None, "{script}");
        result["value"].take()
    }

    /// A command of the `DevTools` protocol.
    pub(crate) fn tool(&self, command: &str, parameters: &Value) -> Value {
        self.command(
            "/goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        )
    }

    /// Sends these fields with every request from now on.
    pub(crate) fn send_always(&self, fields: &Value) {
        let headers = json!({ "headers": fields });
        self.tool("Network.setExtraHTTPHeaders", &headers);
    }

    /// Clicks the first element of this selector as a person would.
    pub(crate) fn click(&self, selector: &str) {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = self.command("/element", &wanted);
        let id = found.as_object().unwrap().values().next().unwrap();
        let path = format!("/element/{}/click", id.as_str().unwrap());
        self.command(&path, &json!({}));
    }

    /// What the window shows, as PNG in base64.
    pub(crate) fn screenshot(&self) -> String {
        let path = format!("/session/{}/screenshot", self.session);
        let shot = self.ask("GET", &path, &json!({}));
        shot.as_str().unwrap().to_owned()
    }

    /// The downloads, waited for until there are `count` and all are finished.
    pub(crate) fn finished(&self, count: usize) -> Vec<PathBuf> {
        let start = Instant::now();
        loop {
            let all = self.begun();
            // What it calls a download before it knows the name, and before it has all of it.
            let finished = |path: &Path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                !name.starts_with(".org.chromium.") && !name.ends_with(".crdownload")
            };
            if all.len() >= count && all.iter().all(|path| finished(path)) {
                return all;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{count} downloads were to finish: {all:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Every download there is, finished or not.
    pub(crate) fn begun(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path().join("downloads")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// Reads an answer by its length: the browser inherits the socket, so that it does not close.
fn read(stream: &mut TcpStream) -> wire::Answer {
    let (mut octets, mut block) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let read = stream.read(&mut block).unwrap();
        octets.extend_from_slice(&block[..read]);
        if octets.windows(4).any(|four| four == b"\r\n\r\n") {
            let answer = wire::parse(&octets);
            let length = answer.field("content-length").unwrap();
            if read == 0 || answer.body.len() >= length.parse().unwrap() {
                return answer;
            }
        }
        assert!(read > 0, "the driver has gone");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            let path = format!("/session/{}", self.session);
            self.try_ask("DELETE", &path, &json!({})).ok();
        }
        // Driver and browser are a group of their own.
        let group = Pid::from_child(&self.driver);
        rustix::process::kill_process_group(group, Signal::KILL).ok();
        self.driver.wait().ok();
    }
}
