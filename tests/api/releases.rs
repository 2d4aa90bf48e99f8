//! J2: from a declared path to the bytes somebody said yes to.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use holdfast::{
    gate::{Evidence, Mode, Probed, ProbedResolver, ProbedRoot},
    model::Clock as _,
    pinned::{Policy, Resolver},
    seal::SealKey,
};
use serde_json::{Value, json};

use crate::{
    proven::proven,
    skip,
    support::{Answer, Options, Server, server::Person},
};

/// A server with a workspace, and a session of alice's in it.
pub(crate) struct Scene {
    pub(crate) server: Server,
    /// Its handle.
    pub(crate) session: String,
    workspace: tempfile::TempDir,
}

impl Scene {
    /// With a gate that a report holds open.
    pub(crate) fn new() -> Self {
        Self::proven(Options::default())
    }

    /// As the options say otherwise, with a gate that a report holds open.
    pub(crate) fn proven(options: Options) -> Self {
        let scene = Self::of(Options {
            gate: Mode::WhenProven,
            ..options
        });
        let made_at = scene.server.clock.now().as_millis() / 1000;
        let held = scene.server.parts.roots.named("ws").unwrap();
        let facts = held.facts().unwrap();
        let policy = Policy::default();
        let report = |resolver: Resolver| ProbedResolver {
            resolver: resolver.name().to_owned(),
            report: proven(
                resolver,
                facts.host.clone(),
                "this",
                u64::try_from(made_at).unwrap(),
            ),
        };
        let probed = Probed {
            build: "this".to_owned(),
            roots: vec![ProbedRoot {
                name: "ws".to_owned(),
                device: facts.device,
                inode: facts.inode,
                policy: policy.to_string(),
                reports: Resolver::ALL.map(report).into(),
            }],
        };
        let key = SealKey::new([3; 32]);
        let file = probed.seal(&key).unwrap();
        scene.server.parts.gate.load(&Evidence {
            file: Some(file.as_bytes()),
            key: Some(&key),
            build: "this",
            sound: &Resolver::ALL,
            roots: std::slice::from_ref(&facts),
        });
        assert!(scene.server.parts.gate.proof("ws").is_ok());
        scene
    }

    pub(crate) fn with(gate: Mode) -> Self {
        Self::of(Options {
            gate,
            ..Options::default()
        })
    }

    fn of(options: Options) -> Self {
        let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let given = options.roots.first().map(|(_, path)| path.clone());
        let root = given.unwrap_or_else(|| workspace.path().to_owned());
        let server = Server::with(&Options {
            roots: vec![("ws", root.clone())],
            ..options
        });
        let session = Self::begin(&server, &root, None);
        Self {
            server,
            session,
            workspace,
        }
    }

    /// A session of alice's in a workspace, of this id where one is given: its handle.
    pub(crate) fn begin(server: &Server, root: &Path, id: Option<&str>) -> String {
        let form = json!({"id": id, "owners": [server.alice.who.id], "cwd": root});
        let made = server.post("/v1/sessions", &server.host, &form);
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["session"].as_str().unwrap().to_owned()
    }

    pub(crate) fn root(&self) -> &Path {
        self.workspace.path()
    }

    pub(crate) fn file(&self, path: &str, content: &[u8]) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The event that declares these paths, with whatever else an event may claim.
    pub(crate) fn present(&self, files: &Value) -> u64 {
        let event = json!({"type": "deliverables/presented",
            "data": {"turn": 1, "callId": "c", "files": files}});
        let target = format!("/v1/sessions/{}/events", self.session);
        let body = json!({ "events": [event] });
        let answer = self.server.post(&target, &self.server.host, &body);
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["lastSeq"].as_u64().unwrap()
    }

    pub(crate) fn item(&self, seq: u64, index: u32, verb: &str) -> String {
        format!(
            "/v1/sessions/{}/deliverables/3/{seq}/{index}/{verb}",
            self.session
        )
    }

    pub(crate) fn release(&self, seq: u64) -> Answer {
        let target = self.item(seq, 0, "release");
        let token = Some(self.server.alice.token.as_str());
        self.server.ask("POST", &target, token)
    }

    /// Declares one path and asks for it.
    pub(crate) fn ask_for(&self, path: &str) -> Answer {
        let seq = self.present(&json!([{ "path": path }]));
        self.release(seq)
    }

    pub(crate) fn decide(&self, who: &Person, ask: &Value, decision: &str) -> Answer {
        let target = format!(
            "/v1/sessions/{}/releases/{}/decision",
            self.session,
            ask["requestId"].as_str().unwrap()
        );
        let body = json!({"attachmentId": ask["attachmentId"], "bytes": ask["bytes"],
            "decision": decision});
        self.server.post(&target, who, &body)
    }

    /// Everything that waits.
    pub(crate) fn pending(&self) -> Vec<Value> {
        let target = format!("/v1/sessions/{}/releases", self.session);
        let answer = self.server.get(&target, &self.server.alice);
        answer.json()["pendingReleases"].as_array().unwrap().clone()
    }
}

#[test]
fn a_declared_file_is_pinned_decided_on_and_downloaded() {
    let scene = Scene::new();
    scene.file("out/report.txt", b"what was found");
    let asked = scene.ask_for("out/report.txt");
    assert_eq!(asked.status, 202, "{}", asked.text());
    let ask = asked.json();
    assert_eq!(ask["path"], "out/report.txt");
    assert_eq!(ask["bytes"], 14);
    assert_eq!(scene.pending(), std::slice::from_ref(&ask));
    let decided = scene.decide(&scene.server.alice, &ask, "allowed-once");
    assert_eq!(decided.status, 200, "{}", decided.text());
    let receipt = &decided.json()["receipt"];
    let statement = &receipt["statement"];
    assert_eq!(statement["attachmentId"], ask["attachmentId"]);
    assert_eq!(statement["decidedBy"], json!(scene.server.alice.who.id));
    let href = receipt["href"].as_str().unwrap();
    let got = scene.server.get(href, &scene.server.alice);
    assert_eq!(
        (got.status, got.body.as_slice()),
        (200, &b"what was found"[..])
    );
    let disposition = got.field("content-disposition").unwrap();
    assert_eq!(disposition, "attachment; filename=\"report.txt\"");
    assert!(scene.pending().is_empty());
    let shown = scene
        .server
        .get(href.strip_suffix("/content").unwrap(), &scene.server.alice);
    assert_eq!(&shown.json(), receipt);
}

/// FR-01: content, inode and ancestor are swapped between the question and the answer; what was shown
/// is what arrives. Keeps I7.
#[test]
fn fr_01_what_was_decided_on_arrives_whatever_becomes_of_the_file() {
    let scene = Scene::new();
    let root = scene.root().to_owned();
    std::fs::create_dir(root.join("elsewhere")).unwrap();
    std::fs::write(root.join("elsewhere/f"), b"outside!").unwrap();
    for (n, swap) in [0, 1, 2].into_iter().enumerate() {
        let path = format!("d{n}/f");
        scene.file(&path, b"approved");
        let ask = scene.ask_for(&path).json();
        let (file, dir) = (root.join(&path), root.join(format!("d{n}")));
        match swap {
            0 => std::fs::write(&file, b"changed!").unwrap(),
            1 => {
                std::fs::remove_file(&file).unwrap();
                std::fs::write(&file, b"another!").unwrap();
            }
            _ => {
                std::fs::remove_dir_all(&dir).unwrap();
                std::os::unix::fs::symlink("elsewhere", &dir).unwrap();
            }
        }
        let decided = scene
            .decide(&scene.server.alice, &ask, "allowed-once")
            .json();
        let href = decided["receipt"]["href"].as_str().unwrap();
        let got = scene.server.get(href, &scene.server.alice);
        assert_eq!(got.body, b"approved", "{swap}");
    }
}

/// FR-02 and FR-03: no decision opens what is closed. Keeps I3.
#[test]
fn fr_03_with_a_closed_gate_nothing_is_asked_and_nothing_released() {
    let scene = Scene::with(Mode::MetadataOnly);
    scene.file("a.txt", b"text");
    let seq = scene.present(&json!([{"path": "a.txt"}]));
    scene.server.calls.take();
    let refused = scene.release(seq);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (409, "metadata-only")
    );
    assert_eq!(refused.json()["class"], "not-enabled");
    assert_eq!(refused.json()["setting"], "deliverables.mode");
    let calls = scene.server.calls.take();
    assert!(
        calls.iter().all(|call| !call.starts_with("store.")),
        "{calls:?}"
    );
    assert!(scene.pending().is_empty());
    let forged = json!({"requestId": "i_00000000000000000000000000000000",
        "attachmentId": crate::support::server::id(b"text"), "bytes": 4});
    let decided = scene.decide(&scene.server.alice, &forged, "allowed-once");
    assert_eq!(
        (decided.status, decided.code().as_str()),
        (404, "interaction-unknown")
    );
}

/// FR-05: after a no the copy has left the store.
#[test]
fn fr_05_after_a_no_nothing_of_the_copy_is_kept() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    let ask = scene.ask_for("a.txt").json();
    assert_eq!(scene.server.objects(), 1);
    let decided = scene.decide(&scene.server.alice, &ask, "rejected");
    assert_eq!(decided.status, 200);
    assert!(decided.json().get("receipt").is_none());
    assert_eq!(scene.server.objects(), 0);
    let again = scene.decide(&scene.server.alice, &ask, "allowed-once");
    assert_eq!(
        (again.status, again.code().as_str()),
        (410, "already-decided")
    );
    assert_eq!(again.json()["recordedOutcome"], "rejected");
    // Content that something else needs stays.
    let target = format!("/v1/sessions/{}", scene.session);
    scene.server.attach(&target, "same.txt", b"text");
    let ask = scene.ask_for("a.txt").json();
    scene.decide(&scene.server.alice, &ask, "rejected");
    assert_eq!(scene.server.objects(), 1);
}

/// FR-10: what an event says beside the path upgrades nothing.
#[test]
fn fr_10_forged_members_of_an_event_change_nothing() {
    let scene = Scene::with(Mode::MetadataOnly);
    scene.file("a.txt", b"text");
    let id = crate::support::server::id(b"text");
    let seq = scene.present(&json!([{"path": "a.txt", "attachmentId": id, "bytes": 4,
        "approved": true, "url": "https://example.org/", "mode": "release"}]));
    assert_eq!(scene.release(seq).code(), "metadata-only");
    let target = format!("/v1/sessions/{}/attachments/{id}", scene.session);
    assert_eq!(scene.server.get(&target, &scene.server.alice).status, 404);
}

/// Every kind of file that must not leave, each with its class and what governs it. Keeps I2 and I15.
#[test]
fn s13_s17_s20_f01_p01_each_refusal_names_its_rule_and_its_setting() {
    let scene = Scene::new();
    let root = scene.root().to_owned();
    scene.file("a.txt", b"inside");
    let outside = scene.server.data().join("secret.txt");
    std::fs::write(&outside, b"outside").unwrap();
    std::os::unix::fs::symlink(&outside, root.join("out")).unwrap();
    std::os::unix::fs::symlink("a.txt", root.join("in")).unwrap();
    std::os::unix::fs::symlink(".", root.join("dir")).unwrap();
    scene.file("linked", b"two names");
    std::fs::hard_link(root.join("linked"), root.join("linked2")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), fifo, mode, 0).unwrap();
    scene.file(".env", b"TOKEN=x");
    scene.file("keys/server.key", b"-----BEGIN");
    scene.file("large", &[7; 2048]);
    for (path, status, code, class, setting) in [
        (
            "out",
            422,
            "source-refused",
            "denied_symlink",
            Some("root.links"),
        ),
        (
            "in",
            422,
            "source-refused",
            "denied_symlink",
            Some("root.links"),
        ),
        (
            "dir/a.txt",
            422,
            "source-refused",
            "denied_symlink",
            Some("root.links"),
        ),
        (
            "linked",
            422,
            "source-refused",
            "denied_hardlink",
            Some("root.hardlinks"),
        ),
        ("pipe", 422, "source-refused", "not_regular", None),
        (".", 422, "source-refused", "invalid-path", None),
        ("../secret.txt", 422, "source-refused", "outside-root", None),
        (
            outside.to_str().unwrap(),
            422,
            "source-refused",
            "outside-root",
            None,
        ),
        (
            ".env",
            422,
            "source-refused",
            "denied_name",
            Some("root.deny"),
        ),
        (
            "keys/server.key",
            422,
            "source-refused",
            "denied_name",
            Some("root.deny"),
        ),
        ("missing", 404, "source-missing", "not_found", None),
        ("a.txt/x", 404, "source-missing", "not_found", None),
        (
            "large",
            413,
            "over-limit",
            "too_large",
            Some("root.max_file"),
        ),
    ] {
        let answer = scene.ask_for(path);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{path}"
        );
        let body = answer.json();
        assert_eq!(body["class"], class, "{path}");
        assert_eq!(
            body.get("setting").and_then(Value::as_str),
            setting,
            "{path}"
        );
        let text = answer.text();
        assert!(!text.contains(root.to_str().unwrap()), "{text}");
    }
    assert_eq!(scene.server.objects(), 0);
    assert!(scene.pending().is_empty());
}

/// Keeps I9: for somebody else's session there is nothing, whatever is asked.
#[test]
fn a_foreign_receipt_and_a_foreign_question_look_like_absent_ones() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    let ask = scene.ask_for("a.txt").json();
    let refused = scene.decide(&scene.server.bob, &ask, "allowed-once");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (404, "not-found")
    );
    // The host runs what would be decided about.
    let refused = scene.decide(&scene.server.host, &ask, "allowed-once");
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "forbidden")
    );
    let decided = scene
        .decide(&scene.server.alice, &ask, "allowed-once")
        .json();
    let receipt = decided["receipt"]["receipt"].as_str().unwrap();
    for tail in ["", "/content"] {
        for method in ["GET", "HEAD"] {
            let ask = |receipt: &str| {
                let target = format!("/v1/receipts/{receipt}{tail}");
                scene
                    .server
                    .ask(method, &target, Some(&scene.server.bob.token))
            };
            let absent = ask("r_00000000000000000000000000000000");
            assert_eq!(absent.status, 404);
            for other in [receipt, "not-a-handle"] {
                assert_eq!(
                    ask(other).masked(),
                    absent.masked(),
                    "{method} {tail} {other}"
                );
            }
        }
    }
}

/// Keeps I7: an answer about other bytes, or by other members, settles nothing.
#[test]
fn an_answer_names_exactly_what_it_is_about() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    let ask = scene.ask_for("a.txt").json();
    for (key, value) in [
        ("bytes", json!(5)),
        ("attachmentId", json!(crate::support::server::id(b"texu"))),
    ] {
        let mut other = ask.clone();
        other[key] = value;
        let answer = scene.decide(&scene.server.alice, &other, "allowed-once");
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (409, "correlation-mismatch")
        );
    }
    let target = format!(
        "/v1/sessions/{}/releases/{}/decision",
        scene.session,
        ask["requestId"].as_str().unwrap()
    );
    for body in [
        json!({"approved": true}),
        json!({"attachmentId": ask["attachmentId"], "bytes": 4, "decision": "allowed-once",
            "approved": true}),
        json!({"attachmentId": ask["attachmentId"], "bytes": 4, "decision": "allow"}),
        json!({"attachmentId": ask["attachmentId"], "bytes": 4}),
    ] {
        let answer = scene.server.post(&target, &scene.server.alice, &body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "malformed"),
            "{body}"
        );
    }
    assert_eq!(scene.server.get(&target, &scene.server.alice).status, 405);
    assert_eq!(scene.pending().len(), 1, "it still waits");
}

/// Sets a flag when it is dropped.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// I02: a file that is written all the time is refused, or it is one of its contents.
#[test]
fn i02_a_file_that_is_rewritten_is_never_torn() {
    let scene = Scene::new();
    let states = [vec![b'a'; 1000], vec![b'b'; 1000]];
    scene.file("busy", &states[0]);
    let path = scene.root().join("busy");
    let stop = AtomicBool::new(false);
    let contents = states
        .clone()
        .map(|state| crate::support::server::id(&state));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            for state in states.iter().cycle() {
                std::os::unix::fs::FileExt::write_all_at(&file, state, 0).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        // Also when an assertion fails here: the writer would go on for ever.
        let _stop = SetOnDrop(&stop);
        let (mut torn, mut changed) = (0, 0);
        for _ in 0..50 {
            let answer = scene.ask_for("busy");
            if answer.status == 202 {
                let id = answer.json()["attachmentId"].as_str().unwrap().to_owned();
                torn += usize::from(!contents.contains(&id));
            } else {
                assert!(
                    ["changed", "busy"].contains(&answer.code().as_str()),
                    "{}",
                    answer.text()
                );
                changed += 1;
            }
        }
        assert_eq!(torn, 0);
        assert!(changed > 0, "the writer was there");
    });
    // Once it pauses, it is taken.
    let answer = scene.ask_for("busy");
    assert_eq!(answer.status, 202, "{}", answer.text());
}

/// Keeps I15: the owner is told which rule governs a file, and nothing is opened for that.
#[test]
fn explain_names_the_rules_and_opens_nothing() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    for (path, outcome, rule, class) in [
        ("a.txt", "ask", "permission", None),
        (".env", "refuse", "name", Some("denied_name")),
        ("../x", "refuse", "path", Some("outside-root")),
        // It is not looked for.
        ("missing", "ask", "permission", None),
    ] {
        let seq = scene.present(&json!([{ "path": path }]));
        scene.server.calls.take();
        let answer = scene
            .server
            .get(&scene.item(seq, 0, "explain"), &scene.server.alice);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let body = answer.json();
        assert_eq!(body["outcome"], outcome, "{path}");
        let last = body["rules"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["rule"], last.get("class").and_then(Value::as_str)),
            (&json!(rule), class),
            "{path}"
        );
        let calls = scene.server.calls.take();
        assert!(
            calls.iter().all(|call| !call.starts_with("store.")),
            "{calls:?}"
        );
    }
}

/// Keeps I15: a dry run says what a release then comes to, with the same class and setting, and reads nothing.
#[test]
fn explain_that_looks_says_what_a_release_then_comes_to() {
    let scene = Scene::new();
    let root = scene.root();
    scene.file("a.txt", b"text");
    scene.file("dir/a.txt", b"text");
    scene.file("large", &[7; 2048]);
    scene.file("one", b"two names");
    std::fs::hard_link(root.join("one"), root.join("linked")).unwrap();
    std::os::unix::fs::symlink("a.txt", root.join("link")).unwrap();
    let fifo = std::process::Command::new("mkfifo")
        .arg(root.join("pipe"))
        .status();
    assert!(fifo.unwrap().success());
    for path in [
        "a.txt", "dir", "large", "linked", "link", "pipe", "missing", "a.txt/x",
    ] {
        let seq = scene.present(&json!([{ "path": path }]));
        let target = scene.item(seq, 0, "explain?look=true");
        let told = scene.server.get(&target, &scene.server.alice);
        assert_eq!(told.status, 200, "{path}: {}", told.text());
        let told = told.json();
        let last = told["rules"].as_array().unwrap().last().unwrap();
        assert_eq!(last["rule"], "file", "{path}: {told}");
        let released = scene.release(seq);
        if released.status == 202 {
            assert_eq!(told["outcome"], "ask", "{path}: {told}");
            continue;
        }
        let problem = released.json();
        assert_eq!(told["outcome"], "refuse", "{path}: {told}");
        for (rule, fact) in [("class", "class"), ("setting", "setting")] {
            let said = problem.get(fact).unwrap_or(&Value::Null);
            if path != "large" || fact != "class" {
                assert_eq!(last.get(rule).unwrap_or(&Value::Null), said, "{path}");
            }
        }
        assert!(last["remedy"].is_string(), "{path}: {told}");
    }
    // Opening it would break the lease somebody holds.
    let lease = std::process::Command::new("python3")
        .args([
            "-c",
            "import fcntl,os,signal,sys\n\
             signal.signal(signal.SIGIO, lambda *_: os._exit(7))\n\
             f=os.open(sys.argv[1], os.O_RDWR)\n\
             fcntl.fcntl(f, 1024, fcntl.F_WRLCK)\n\
             print('held', flush=True)\n\
             sys.stdin.read()",
        ])
        .arg(root.join("a.txt"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut holder) = lease else {
        return skip::skipped(1, "explain", "python3 is not here");
    };
    let mut held = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut held).unwrap();
    let seq = scene.present(&json!([{"path": "a.txt"}]));
    let target = scene.item(seq, 0, "explain?look=true");
    let told = scene.server.get(&target, &scene.server.alice).json();
    assert_eq!(told["outcome"], "ask", "{told}");
    drop(holder.stdin.take());
    let status = holder.wait().unwrap();
    assert_eq!(status.code(), Some(0), "somebody opened the file");
}

/// Keeps I1: only a place in the log names a file.
#[test]
fn only_the_place_of_a_declaration_is_an_address() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    let seq = scene.present(&json!([{"path": "a.txt"}]));
    let session = &scene.session;
    for place in [
        format!("3/{seq}/1"),
        format!("3/{}/0", seq + 1),
        format!("3/0{seq}/0"),
        format!("3/+{seq}/0"),
        format!("3/{seq}/-0"),
        "3/18446744073709551616/0".to_owned(),
        "a.txt".to_owned(),
    ] {
        let target = format!("/v1/sessions/{session}/deliverables/{place}/release");
        let answer = scene
            .server
            .ask("POST", &target, Some(&scene.server.alice.token));
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "not-found"),
            "{place}"
        );
    }
    let target = format!("/v1/sessions/{session}/deliverables/2/{seq}/0/release");
    let answer = scene
        .server
        .ask("POST", &target, Some(&scene.server.alice.token));
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (409, "stale-generation")
    );
    let target = format!("{}?path=other", scene.item(seq, 0, "release"));
    let answer = scene
        .server
        .ask("POST", &target, Some(&scene.server.alice.token));
    assert_eq!(answer.status, 400);
}

/// The preset table of the permission select: who is asked, and what stays because nobody is.
#[test]
fn the_session_s_permission_decides_what_is_asked() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    scene.file(".config", b"text");
    scene.file(".env", b"text");
    let events = format!("/v1/sessions/{}/events", scene.session);
    let turn = json!({"events": [{"type": "turn/start", "data": {"turn": 1}}]});
    assert_eq!(
        scene.server.post(&events, &scene.server.host, &turn).status,
        201
    );
    for (value, ordinary, sensitive) in [
        ("read-only", (202, ""), (202, "")),
        ("workspace-write", (201, ""), (202, "")),
        ("danger-full-access", (201, ""), (409, "policy-never")),
    ] {
        let target = format!("/v1/sessions/{}/permission", scene.session);
        let body = json!({"value": value, "acknowledgeRisk": true}).to_string();
        let json = [("Content-Type", "application/json")];
        let token = Some(scene.server.alice.token.as_str());
        let put = scene
            .server
            .ask_with("PUT", &target, token, &json, body.as_bytes());
        assert_eq!(put.status, 200, "{}", put.text());
        for (path, expected) in [
            ("a.txt", ordinary),
            (".config", sensitive),
            (".env", (422, "source-refused")),
        ] {
            let answer = scene.ask_for(path);
            let code = if answer.status < 300 {
                String::new()
            } else {
                answer.code()
            };
            assert_eq!((answer.status, code.as_str()), expected, "{value} {path}");
        }
    }
}

/// The host that runs a session does not say what leaves it.
#[test]
fn a_host_cannot_release_what_its_session_declares() {
    let scene = Scene::new();
    scene.file("a.txt", b"text");
    let seq = scene.present(&json!([{"path": "a.txt"}]));
    for (method, verb) in [("POST", "release"), ("GET", "explain")] {
        let token = Some(scene.server.host.token.as_str());
        let answer = scene.server.ask(method, &scene.item(seq, 0, verb), token);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "forbidden"),
            "{verb}"
        );
    }
    assert!(scene.pending().is_empty());
}

/// A ticket opens what a receipt released, to whoever may have that receipt. Keeps I1 and I9.
#[test]
fn a_ticket_opens_what_a_receipt_of_one_s_own_session_released() {
    let scene = Scene::new();
    let server = &scene.server;
    scene.file("a.txt", b"text");
    let ask = scene.ask_for("a.txt").json();
    let decided = scene.decide(&server.alice, &ask, "allowed-once").json();
    let wish = |session: &str, id: &Value| json!({"session": session, "attachmentId": id, "receipt": decided["receipt"]["receipt"]});
    let made = server.post(
        "/v1/tickets",
        &server.alice,
        &wish(&scene.session, &ask["attachmentId"]),
    );
    assert_eq!(made.status, 201, "{}", made.text());
    let href = made.json()["href"].as_str().unwrap().to_owned();
    let got = server.ask("GET", &href, None);
    assert_eq!((got.status, got.body.as_slice()), (200, &b"text"[..]));
    assert_eq!(server.ask("GET", &href, None).status, 404, "it had one use");
    // Another content, another's session, and without the receipt: nothing.
    let bobs = server.session(&[&server.bob]);
    let bobs = bobs.strip_prefix("/v1/sessions/").unwrap();
    let other = json!(crate::support::server::id(b"other"));
    let without = json!({"session": scene.session, "attachmentId": ask["attachmentId"]});
    for (who, wish) in [
        (&server.alice, wish(&scene.session, &other)),
        (&server.bob, wish(bobs, &ask["attachmentId"])),
        (&server.bob, wish(&scene.session, &ask["attachmentId"])),
        (&server.alice, without),
    ] {
        let refused = server.post("/v1/tickets", who, &wish);
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (404, "not-found"),
            "{wish}"
        );
    }
}
