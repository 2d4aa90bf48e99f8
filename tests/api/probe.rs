use holdfast::{
    access::{PrincipalKind, PrincipalName},
    gate::{Evidence, Mode, Probed, ProbedResolver, ProbedRoot},
    model::{ByteCount, Cancel, Digest, RelPath, SessionHandle},
    pinned::{Bounds, Policy, Resolver},
    seal::SealKey,
    spool::SpoolDir,
    transfer::TransferError,
};
use serde_json::{Value, json};

use crate::proven::proven;
use crate::support::{
    Options, Server,
    server::{Person, message},
};

/// A server with two roots, and a session of alice's in the first.
struct Two {
    server: Server,
    dir: tempfile::TempDir,
    session: String,
}

impl Two {
    fn start(gate: Mode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = |name: &'static str| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            (name, dir.path().join(name))
        };
        let server = Server::with(&Options {
            roots: vec![root("one"), root("two")],
            gate,
            ..Options::default()
        });
        let cwd = dir.path().join("one/deep");
        let form = json!({"cwd": cwd, "owners": [server.alice.who.id]});
        let made = server.post("/v1/sessions", &server.host, &form);
        let handle = made.json()["session"].as_str().unwrap().to_owned();
        Self {
            server,
            dir,
            session: format!("/v1/sessions/{handle}"),
        }
    }

    fn operator(&self) -> Person {
        let access = &self.server.parts.access;
        let name = PrincipalName::parse("operator").unwrap();
        let who = access
            .create_principal(PrincipalKind::Operator, name)
            .unwrap();
        let token = access.issue_token(who.id, "test", None).unwrap();
        Person {
            who,
            token: token.token.reveal(),
        }
    }

    /// Loads a report that speaks of the first root as it is.
    fn open_gate(&self) {
        let parts = &self.server.parts;
        let roots: Vec<_> = parts
            .roots
            .held()
            .map(|held| held.facts().unwrap())
            .collect();
        let key = SealKey::new([1; 32]);
        let made_at = u64::try_from(parts.clock.now().as_millis() / 1000).unwrap();
        let resolver = |resolver: Resolver| ProbedResolver {
            resolver: resolver.name().into(),
            report: proven(resolver, roots[0].host.clone(), "this", made_at),
        };
        let probed = Probed {
            build: "this".into(),
            roots: vec![ProbedRoot {
                name: roots[0].name.clone(),
                device: roots[0].device,
                inode: roots[0].inode,
                policy: roots[0].policy.to_string(),
                reports: Resolver::ALL.map(resolver).into(),
            }],
        };
        parts.gate.load(&Evidence {
            file: Some(probed.seal(&key).unwrap().as_bytes()),
            key: Some(&key),
            build: "this",
            sound: &Resolver::ALL,
            roots: &roots,
        });
    }

    fn deliverables(&self) -> Value {
        let path = format!("{}/snapshot", self.session);
        let answer = self.server.get(&path, &self.server.alice);
        answer.json()["display"]["deliverables"].clone()
    }
}

fn names(body: &Value) -> Vec<&str> {
    let roots = body["roots"].as_array().unwrap();
    roots
        .iter()
        .map(|root| root["root"].as_str().unwrap())
        .collect()
}

/// Keeps I14 and I15: the operator sees every root, an owner those its sessions lie in, a host none;
/// no path is in the answer, and a closed gate names its reason and what governs it.
#[test]
fn the_probe_is_shown_to_whom_it_concerns() {
    let two = Two::start(Mode::WhenProven);
    let server = &two.server;
    let operator = two.operator();
    for (who, expected) in [
        (&operator, &["one", "two"][..]),
        (&server.alice, &["one"]),
        (&server.bob, &[]),
    ] {
        let answer = server.get("/v1/probe", who);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(names(&answer.json()), expected);
        let path = two.dir.path().to_str().unwrap();
        assert!(!answer.text().contains(path), "{}", answer.text());
    }
    let answer = server.get("/v1/probe", &server.host);
    assert_eq!(
        (answer.status, answer.code()),
        (403, "forbidden".to_owned())
    );
    assert_eq!(server.ask("GET", "/v1/probe", None).status, 401);
    let body = server.get("/v1/probe", &server.alice).json();
    assert_eq!(body["mode"], "when-proven");
    assert_eq!(body["maxAge"], 7 * 24 * 3600);
    assert_eq!(
        body["roots"][0],
        json!({"root": "one", "state": "closed", "reason": "no-report",
               "remedy": "run `holdfast prove`", "resolvers": [], "probes": []})
    );
    let query = server.get("/v1/probe?root=two", &server.alice);
    assert_eq!(query.status, 400);
}

/// Keeps I3: no field of an event, of a request or of a query opens the gate or says it is open.
#[test]
fn nothing_an_event_or_a_request_says_opens_the_gate() {
    let two = Two::start(Mode::WhenProven);
    let server = &two.server;
    let event = json!({"type": "deliverables/presented", "time": 1, "data": {
        "turn": 1, "callId": "c", "mode": "release", "gate": "open", "proof": {"resolvers": ["openat2"]},
        "files": [{"path": "a.txt", "mode": "release", "proven": true, "attachmentId": "sha256:00"}],
    }});
    let form = json!({"events": [event, message("x", b"never uploaded")], "gate": "open"});
    let refused = server.post(&format!("{}/events", two.session), &server.host, &form);
    assert_eq!(refused.status, 400, "no such field: {}", refused.text());
    let form = json!({"events": [event]});
    let taken = server.post(&format!("{}/events", two.session), &server.host, &form);
    assert_eq!(taken.status, 201, "{}", taken.text());
    let shown = two.deliverables();
    assert_eq!(shown["items"][0]["path"], "a.txt");
    assert_eq!(
        (&shown["mode"], &shown["reason"]),
        (&json!("metadata-only"), &json!("no-report"))
    );
    for query in [
        "?mode=release",
        "?proof=1",
        "?deliverables.mode=when-proven",
    ] {
        let path = format!("{}/snapshot{query}", two.session);
        assert_eq!(server.get(&path, &server.alice).status, 400, "{query}");
    }
    for root in ["one", "two"] {
        assert!(server.parts.gate.proof(root).is_err(), "{root}");
    }
}

/// Keeps I2, I3 and I10: a root is given out against a grant and a proof of that very root, and reads
/// plain files beneath it, whole.
#[test]
fn a_root_is_read_against_a_grant_and_a_proof() {
    let two = Two::start(Mode::WhenProven);
    let parts = &two.server.parts;
    let deep = two.dir.path().join("one/deep");
    std::fs::create_dir(&deep).unwrap();
    std::fs::write(deep.join("a.txt"), "inside").unwrap();
    std::fs::write(two.dir.path().join("secret"), "outside").unwrap();
    std::os::unix::fs::symlink("../../secret", deep.join("link")).unwrap();
    two.open_gate();
    let handle = two.session.strip_prefix("/v1/sessions/").unwrap();
    let handle = SessionHandle::parse(handle).unwrap();
    let grant = parts
        .access
        .read_session(&two.server.alice.who, handle)
        .unwrap();
    assert!(
        parts.gate.proof("two").is_err(),
        "the report speaks of one root"
    );
    let proof = parts.gate.proof("one").unwrap();
    let root = parts.roots.of(&grant, &proof).unwrap();
    let spools = SpoolDir::new(std::fs::File::open(two.server.data()).unwrap().into());
    for (path, expected) in [
        ("deep/a.txt", Ok("inside")),
        ("deep/link", Err("denied_symlink")),
        ("deep", Err("not_regular")),
        ("deep/none", Err("not_found")),
    ] {
        let limit = ByteCount::kib(1);
        let read = root.snapshot(
            &parts.gate,
            RelPath::parse(path.as_bytes()).unwrap(),
            spools.create(limit).unwrap(),
            Bounds::new(limit, Cancel::new()),
        );
        let read = two.server.block_on(read).map_err(|error| {
            let TransferError::Pinned(error) = error else {
                panic!("{error}");
            };
            error.class()
        });
        let digest = read.map(|snapshot| {
            assert_eq!(snapshot.evidence().resolver, Resolver::Openat2);
            snapshot.spool().digest()
        });
        let expected = expected.map(|text| Digest::of(text.as_bytes()));
        assert_eq!(digest, expected, "{path}");
    }
    let shown = two.deliverables();
    assert_eq!(shown["gate"], json!({"root": "one", "state": "open"}));
}

/// The snapshot says how the gate stands for the session's own root.
#[test]
fn a_snapshot_says_how_the_gate_stands_for_the_session_s_root() {
    let two = Two::start(Mode::WhenProven);
    let shown = two.deliverables();
    assert_eq!(
        shown["gate"],
        json!({"root": "one", "state": "closed", "reason": "no-report"})
    );
    // A sealed report that found no arena for this root.
    let key = SealKey::new([1; 32]);
    let probed = Probed {
        build: "this".into(),
        roots: vec![ProbedRoot {
            name: "one".into(),
            device: 0,
            inode: 0,
            policy: Policy::default().to_string(),
            reports: vec![],
        }],
    };
    let roots: Vec<_> = two
        .server
        .parts
        .roots
        .held()
        .map(|held| held.facts().unwrap())
        .collect();
    let file = probed.seal(&key).unwrap();
    two.server.parts.gate.load(&Evidence {
        file: Some(file.as_bytes()),
        key: Some(&key),
        build: "this",
        sound: &Resolver::ALL,
        roots: &roots,
    });
    let shown = two.deliverables();
    assert_eq!(shown["reason"], "no-arena");
    assert_eq!(shown["gate"]["reason"], "no-arena");
    let elsewhere = two.server.session(&[&two.server.alice]);
    let path = format!("{elsewhere}/snapshot");
    let answer = two.server.get(&path, &two.server.alice).json();
    let shown = &answer["display"]["deliverables"];
    assert_eq!(shown["reason"], "no-root");
    assert_eq!(
        shown["gate"],
        json!({"root": null, "state": "closed", "reason": "no-root"})
    );
}
