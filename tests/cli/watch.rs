//! Asking people, and a person who answers, by the command line alone.

use std::{
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::program::Home;

/// A program whose output is read in the background; ended with the test.
struct Running {
    child: Child,
    said: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let mut out = child.stdout.take().unwrap();
        let kept = std::sync::Arc::clone(&said);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = out.read(&mut bytes) {
                kept.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Self { child, said }
    }

    fn until(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let said = self.said.lock().unwrap().clone();
            if said.contains(text) {
                return said;
            }
            assert!(
                start.elapsed() < Duration::from_mins(1),
                "no `{text}` in {said:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn type_in(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Watches at a terminal of its own.
fn watching(home: &Home, words: &str) -> Running {
    let program = home.command(&[]);
    let program = program.get_program().to_str().unwrap();
    let data = home.data();
    let line = format!(
        "stty -echo; '{program}' --data '{}' watch {words}",
        data.display()
    );
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]);
    Running::start(script)
}

#[test]
fn a_person_at_a_terminal_answers_what_a_host_asks() {
    let home = Home::new();
    let server = home.up();
    let session = server.text("session");
    let turn = home.file("turn", b"{\"type\":\"turn/start\",\"data\":{\"turn\":1}}\n");
    home.json(&["append", "-s", session, turn.to_str().unwrap()]);

    // Nobody is there yet.
    let alone = home.run(&["ask", "-s", session, "--tool", "shell"]);
    assert_eq!(alone.code, 7, "{alone:?}");
    assert!(alone.err.contains("unavailable"), "{alone:?}");

    let mut person = watching(&home, "--as you");
    // Present from the first acknowledgement on.
    let start = Instant::now();
    let ask = loop {
        let ask = [
            "--json",
            "ask",
            "-s",
            session,
            "--tool",
            "shell",
            "--reason",
            "cargo build",
        ];
        let mut ask = Running::start(home.command(&ask));
        std::thread::sleep(Duration::from_millis(500));
        if ask.child.try_wait().unwrap().is_none() {
            break ask;
        }
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "nobody is present"
        );
    };
    let shown = person.until("allow this once");
    assert!(shown.contains("tool      shell"), "{shown:?}");
    person.type_in("perhaps");
    person.until("`perhaps` is no answer");
    person.type_in("a");
    let told: Value = serde_json::from_str(&ask.until("}")).unwrap();
    assert_eq!(told["outcome"], "allowed-once");

    let question = [
        "ask",
        "-s",
        session,
        "--question",
        "Which?",
        "--option",
        "red",
        "--option",
        "blue",
    ];
    let asked = Running::start(home.command(&question));
    person.until("2 blue");
    person.type_in("2");
    asked.until("answered blue");

    // Programs get a line for each thing, and answer in other ways.
    let mut lines = home.command(&["--json", "watch", "--as", "you"]);
    lines.stdin(Stdio::null());
    let program = Running::start(lines);
    let _again = Running::start(home.command(&question));
    let line = program.until("question/requested");
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(line["data"]["questions"][0]["question"], "Which?");
}

#[test]
fn without_a_server_there_is_nobody_to_ask_or_to_answer() {
    let home = Home::new();
    home.up().stop();
    for words in [
        &["watch"][..],
        &["ask", "-s", "demo", "--question", "Which?"],
    ] {
        let done = home.run(words);
        assert_eq!(done.code, 6, "{done:?}");
        assert!(done.err.contains("no server runs"), "{done:?}");
    }
}
