//! A whole server on loopback: data directory, database, store, parts, accept loop.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use holdfast::{
    access::{Access, Principal, PrincipalKind, PrincipalName},
    audit::Audit,
    control::Control,
    gate::{DEFAULT_MAX_AGE, Gate, Mode},
    http::{
        AllowedHosts, App,
        router::Public,
        server::{Listener, Traffic, serve},
    },
    journal::{Journal, native::NativeJournal},
    model::{ByteCount, Clock, Digest, Limits, ManualClock, Timestamp},
    pinned::Policy,
    policy::NameRules,
    receipt::Ledger,
    seal::SealKey,
    store::{
        Store,
        layout::{DataDir, Filesystems},
        local::{LocalOptions, LocalStore},
        verified::Verifier,
    },
    transfer::{
        Attachments, HeldRoot, HostIdentity, Parts, Pools, Roots, Rules,
        live::{Executors, LiveOptions},
    },
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::oneshot};

use super::{
    Answer, Client,
    recording::{Calls, RecordingJournal, RecordingStore},
};

/// Tests that count descriptors and tasks of the whole process run alone; all others beside each
/// other.
static QUIET: RwLock<()> = RwLock::new(());

#[derive(Debug)]
enum Presence {
    Beside {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

/// How a test's server differs from the usual one.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) limits: Limits,
    pub(crate) alone: bool,
    /// Roots by name.
    pub(crate) roots: Vec<(&'static str, PathBuf)>,
    pub(crate) gate: Mode,
    /// Whether interactions are put to people.
    pub(crate) interactive: bool,
    /// Who takes what is handed over.
    pub(crate) executors: Executors,
    /// The largest file a root lets out.
    pub(crate) max_file: ByteCount,
    /// Where the data directory lies, on whatever filesystem that is.
    pub(crate) disk: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits {
                // A test machine may be nearly full; the reserve has tests of its own.
                free_reserve: ByteCount::mib(1),
                ..Limits::default()
            },
            alone: false,
            roots: Vec::new(),
            gate: Mode::MetadataOnly,
            interactive: true,
            executors: Executors::None,
            max_file: ByteCount::kib(1),
            disk: None,
        }
    }
}

/// A principal with a token.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) who: Principal,
    pub(crate) token: String,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) parts: Arc<Parts>,
    pub(crate) clock: ManualClock,
    pub(crate) calls: Calls,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) app: App,
    /// The host program, and two users that know nothing of each other.
    pub(crate) host: Person,
    pub(crate) alice: Person,
    pub(crate) bob: Person,
    dir: tempfile::TempDir,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<()>>,
    _data: DataDir,
    _presence: Presence,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&Options::default())
    }

    pub(crate) fn with(options: &Options) -> Self {
        let presence = if options.alone {
            Presence::Alone {
                _guard: QUIET.write().unwrap_or_else(PoisonError::into_inner),
            }
        } else {
            Presence::Beside {
                _guard: QUIET.read().unwrap_or_else(PoisonError::into_inner),
            }
        };
        let usual = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = tempfile::tempdir_in(options.disk.as_deref().unwrap_or(usual)).unwrap();
        let data = data_dir(&dir.path().join("data"));
        let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
        let calls = Calls::default();
        let parts = Arc::new(parts(&data, options, &clock, &calls));
        let person = |kind, name: &str| {
            let name = PrincipalName::parse(name).unwrap();
            let who = parts.access.create_principal(kind, name).unwrap();
            let issued = parts.access.issue_token(who.id, "test", None).unwrap();
            Person {
                who,
                token: issued.token.reveal(),
            }
        };
        let host = person(PrincipalKind::Host, "host");
        let alice = person(PrincipalKind::User, "alice");
        let bob = person(PrincipalKind::User, "bob");
        let live = LiveOptions {
            interactive: options.interactive,
            executors: options.executors,
            ..LiveOptions::default()
        };
        let app = App::new(Arc::clone(&parts), AllowedHosts::default(), live);

        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let traffic = Arc::new(Traffic::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, served) = {
            let _inside = runtime.enter();
            let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
            let address = listener.address().unwrap();
            let (handler, traffic) = (Public::new(app.clone()), Arc::clone(&traffic));
            let limits = options.limits.clone();
            let served = runtime.spawn(async move {
                let stopped = async {
                    stopped.await.ok();
                };
                serve(listener, handler, &limits, traffic, stopped).await;
            });
            (address, served)
        };
        calls.take();
        Self {
            address,
            parts,
            clock,
            calls,
            traffic,
            app,
            host,
            alice,
            bob,
            dir,
            runtime: Some(runtime),
            stop: Some(stop),
            served: Some(served),
            _data: data,
            _presence: presence,
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own. `target` leaves as it is written.
    pub(crate) fn ask(&self, method: &str, target: &str, token: Option<&str>) -> Answer {
        self.ask_with(method, target, token, &[], b"")
    }

    pub(crate) fn ask_with(
        &self,
        method: &str,
        target: &str,
        token: Option<&str>,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.connect()
            .ask(&request(method, target, token, fields, Some(body)))
    }

    pub(crate) fn get(&self, target: &str, who: &Person) -> Answer {
        self.ask("GET", target, Some(&who.token))
    }

    pub(crate) fn post(&self, target: &str, who: &Person, body: &Value) -> Answer {
        let json = [("Content-Type", "application/json")];
        let body = body.to_string();
        self.ask_with("POST", target, Some(&who.token), &json, body.as_bytes())
    }

    /// A session of the host that `owners` may read: its address up to the handle.
    pub(crate) fn session(&self, owners: &[&Person]) -> String {
        let owners: Vec<String> = owners
            .iter()
            .map(|owner| owner.who.id.to_string())
            .collect();
        let form = json!({"cwd": "/workspaces/demo", "owners": owners});
        let answer = self.post("/v1/sessions", &self.host, &form);
        assert_eq!(answer.status, 201, "{}", answer.text());
        format!(
            "/v1/sessions/{}",
            answer.json()["session"].as_str().unwrap()
        )
    }

    pub(crate) fn upload(&self, session: &str, name: &str, who: &Person, content: &[u8]) -> Answer {
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
        let target = format!("{session}/attachments?name={name}");
        self.ask_with("POST", &target, Some(&who.token), &[], content)
    }

    /// Appends a message that refers to the content under `name`.
    pub(crate) fn refer(&self, session: &str, name: &str, content: &[u8]) -> Answer {
        let form = json!({"events": [message(name, content)]});
        self.post(&format!("{session}/events"), &self.host, &form)
    }

    /// Uploads content, refers to it, and returns the address it can be downloaded from.
    pub(crate) fn attach(&self, session: &str, name: &str, content: &[u8]) -> String {
        let answer = self.upload(session, name, &self.host, content);
        assert_eq!(answer.status, 201, "{}", answer.text());
        let answer = self.refer(session, name, content);
        assert_eq!(answer.status, 201, "{}", answer.text());
        format!("{session}/attachments/{}", id(content))
    }

    /// Where the store keeps content of this digest.
    pub(crate) fn object(&self, content: &[u8]) -> PathBuf {
        let hex = Digest::of(content).to_string();
        let dir = self.dir.path().join("data/objects/sha256").join(&hex[..2]);
        dir.join(hex)
    }

    pub(crate) fn data(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a future on the server's runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().unwrap().block_on(future)
    }

    /// Tasks the server's runtime holds now.
    pub(crate) fn tasks(&self) -> usize {
        self.runtime.as_ref().unwrap().metrics().num_alive_tasks()
    }

    /// Descriptors of this process that lead into the data directory and have no name there.
    pub(crate) fn unnamed(&self) -> usize {
        let inside = self.dir.path().to_string_lossy().into_owned();
        descriptors()
            .into_iter()
            .filter(|target| target.starts_with(&inside) && target.ends_with(" (deleted)"))
            .count()
    }

    /// Every object the store holds.
    pub(crate) fn objects(&self) -> usize {
        let shards = std::fs::read_dir(self.dir.path().join("data/objects/sha256")).unwrap();
        shards
            .map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count())
            .sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.block_on(async { self.app.live().dispose() });
            if let Some(served) = self.served.take() {
                let ended = async { tokio::time::timeout(Duration::from_secs(5), served).await };
                drop(runtime.block_on(ended));
            }
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
        // Its files are closed before the next test counts descriptors.
        self.parts.audit.finish();
    }
}

/// A fresh data directory: a copy of one that was made once, because making one flushes every part.
fn data_dir(path: &Path) -> DataDir {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        drop(DataDir::init(&dir.path().join("data")).unwrap());
        dir
    });
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([&made.path().join("data"), path])
        .status()
        .unwrap();
    assert!(copied.success());
    DataDir::open_on(path, Filesystems::Any).unwrap()
}

fn parts(data: &DataDir, options: &Options, clock: &ManualClock, calls: &Calls) -> Parts {
    let limits = &options.limits;
    let roots = options.roots.iter().map(|(name, path)| {
        let rules = Rules {
            names: NameRules::new(&[], true, &[], ByteCount::mib(1)).unwrap(),
            max_file: options.max_file,
        };
        HeldRoot::open(name, path, Policy::default(), rules).unwrap()
    });
    let roots = Roots::serve(roots.collect()).unwrap();
    let manual: Arc<dyn Clock> = Arc::new(clock.clone());
    let gate = Gate::new(options.gate, DEFAULT_MAX_AGE, manual);
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let control = Arc::new(Control::open(data.journal(), Arc::clone(&clock)).unwrap());
    let native = NativeJournal::new(
        Arc::clone(&control),
        limits.journal.clone(),
        limits.session_bytes,
    );
    let journal: Arc<dyn Journal> = Arc::new(RecordingJournal {
        inner: Arc::new(native),
        calls: calls.clone(),
    });
    let local = LocalOptions {
        free_reserve: limits.free_reserve,
        clock: Arc::clone(&clock),
        ..LocalOptions::default()
    };
    let store: Arc<dyn Store> = Arc::new(RecordingStore {
        inner: Arc::new(LocalStore::open(data, local).unwrap()),
        calls: calls.clone(),
    });
    let identity = HostIdentity::start(&control, [7; 16]).unwrap();
    let key = Arc::new(SealKey::new([7; 32]));
    let audit = match options.disk {
        // Where each page counts, no thread writes beside the test.
        Some(_) => Audit::nowhere(Arc::clone(&clock)),
        None => Audit::open(data.dir(), Arc::clone(&key), Arc::clone(&clock), None).unwrap(),
    };
    let ledger = Ledger::new(Arc::clone(&control), key, identity.instance.clone());
    Parts {
        access: Arc::new(Access::new(
            Arc::clone(&control),
            journal.clone(),
            Arc::clone(&clock),
        )),
        identity,
        control,
        journal,
        attachments: Arc::new(Attachments::new(Arc::clone(&store))),
        store,
        verifier: Arc::new(Verifier::new(limits).unwrap()),
        gate: Arc::new(gate),
        ledger: Arc::new(ledger),
        audit: Arc::new(audit),
        roots: Arc::new(roots),
        pools: Pools::new(2).unwrap(),
        limits: Arc::new(limits.clone()),
        clock,
    }
}

/// The octets of a request; `body` of `None` leaves out its length too.
pub(crate) fn request(
    method: &str,
    target: &str,
    token: Option<&str>,
    fields: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    if let Some(token) = token {
        text.extend(["Authorization: Bearer ", token, "\r\n"]);
    }
    for (name, value) in fields {
        text.extend([name, ": ", value, "\r\n"]);
    }
    if let Some(body) = body.filter(|body| !body.is_empty() || method == "POST") {
        text.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
    }
    text.push_str("\r\n");
    let mut octets = text.into_bytes();
    octets.extend_from_slice(body.unwrap_or_default());
    octets
}

/// The id of content.
pub(crate) fn id(content: &[u8]) -> String {
    format!("sha256:{}", Digest::of(content))
}

/// A message with one file block.
pub(crate) fn message(name: &str, content: &[u8]) -> Value {
    let attachment = json!({"attachmentId": id(content), "name": name, "bytes": content.len()});
    json!({"type": "user/message", "time": 1_700_000_000_000_i64, "data": {
        "id": "m1", "role": "user", "source": {"kind": "user"},
        "content": [{"type": "file", "attachment": attachment}],
    }})
}

/// What every descriptor of this process leads to, but for the database: it keeps as many readers open as ever
/// read at once, eight at most.
pub(crate) fn descriptors() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| !target.contains("/journal/db"))
        .collect()
}

/// Content of which no two blocks are alike, quick to make.
pub(crate) fn content(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let noise: Vec<u8> = (0..4096)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        })
        .collect();
    let mut content = noise.repeat(bytes.div_ceil(noise.len()));
    for (n, block) in content.chunks_exact_mut(noise.len()).enumerate() {
        block[..8].copy_from_slice(&(n as u64).to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// Waits until `reached`, or fails with `what`.
pub(crate) fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if reached() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within 10 s: {what}");
}
