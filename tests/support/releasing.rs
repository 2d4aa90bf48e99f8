//! Everything a release needs, on the caller's thread: for the program that is killed while it releases,
//! and for the tests that judge what it left.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "shared by a program and tests, neither of which uses all of it"
)]

use std::{error::Error, path::Path, sync::Arc};

use holdfast::{
    access::{Access, AccessError, Principal, PrincipalKind, PrincipalName},
    audit::Audit,
    control::Control,
    gate::{DEFAULT_MAX_AGE, Evidence, Gate, Mode, Probed, ProbedResolver, ProbedRoot},
    journal::{
        EventType, Journal, JournalError, NewEvent, NewSession, Once, RetryKey, Window,
        native::NativeJournal,
    },
    model::{
        AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Clock, Digest, FileName, Limits,
        ManualClock, Seq, SessionHandle, SessionId, Timestamp,
    },
    pinned::{Policy, Resolver},
    policy::NameRules,
    pool::Pool,
    receipt::{Answer, Ask, Decision, Ledger, Outcome, Released},
    seal::SealKey,
    store::{
        Store,
        layout::{DataDir, Filesystems},
        local::{LocalOptions, LocalStore},
        verified::Verifier,
    },
    transfer::{
        Attachments, HeldRoot, HostIdentity, Parts, Pools, Roots, Rules, TransferError, archive,
        decide,
        deliverable::{self, Address},
        live::{Live, LiveOptions},
        present::{self, File, Presentation, Presented},
        release::{self, Terms},
    },
};
use serde_json::{json, value::RawValue};

use crate::proven::proven;

/// The one session.
pub(crate) const SESSION: SessionHandle = SessionHandle::from_random([9; 16]);
/// When everything happens, in milliseconds.
const NOW: i64 = 1_790_000_000_000;

/// How a desk differs from the usual one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Hours after everything else happened.
    pub(crate) later: u32,
    /// What the session may hold, in bytes.
    pub(crate) bytes: u64,
}

impl Default for Circumstances {
    fn default() -> Self {
        Self {
            later: 0,
            bytes: 1 << 30,
        }
    }
}

/// The parts over `DIR/data`, with the workspace `DIR/ws` and its gate open.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) parts: Arc<Parts>,
    pub(crate) owner: Principal,
    pub(crate) host: Principal,
    live: Arc<Live>,
    runtime: tokio::runtime::Runtime,
    _data: DataDir,
}

impl Desk {
    /// Makes the data directory, and a session in which ordinary files leave at once and sensitive ones are
    /// asked about.
    pub(crate) fn make(dir: &Path) -> Result<(), Box<dyn Error>> {
        drop(DataDir::init_on(&dir.join("data"), Filesystems::Any)?);
        let desk = Self::open(dir, Circumstances::default())?;
        desk.begin(dir)
    }

    /// Makes the session, which may have been before.
    pub(crate) fn begin(&self, dir: &Path) -> Result<(), Box<dyn Error>> {
        self.parts.journal.create(NewSession {
            handle: SESSION,
            id: SessionId::parse("released")?,
            cwd: dir.join("ws").to_str().map(str::to_owned),
            host: self.host.id,
            owners: vec![self.owner.id],
            created_at: Timestamp::from_millis(NOW),
        })?;
        let mode = event("sandbox/mode", &json!({"mode": "workspace-write"}))?;
        self.parts.journal.append(SESSION, vec![mode], None)?;
        Ok(())
    }

    /// What a start does.
    pub(crate) fn recover(&self) {
        release::recover(&self.parts);
        self.runtime.block_on(release::sweep(&self.parts));
    }

    /// Removes the session, unless it was.
    pub(crate) fn remove(&self) -> Result<(), TransferError> {
        let grant = match self.parts.access.remove_session(&self.host, SESSION) {
            Err(AccessError::Hidden) => return Ok(()),
            grant => grant?,
        };
        self.runtime.block_on(self.live.remove(grant, &self.host))
    }

    /// Opens what [`Desk::make`] made. Nothing is recovered.
    pub(crate) fn open(dir: &Path, how: Circumstances) -> Result<Self, Box<dyn Error>> {
        let now = NOW + i64::from(how.later) * 3_600_000;
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(now)));
        let data = DataDir::open_on(&dir.join("data"), Filesystems::Any)?;
        let parts = Arc::new(parts(dir, &data, clock, how.bytes)?);
        let principal = |kind, name| -> Result<Principal, Box<dyn Error>> {
            let name = PrincipalName::parse(name)?;
            match parts.access.principal_named(&name) {
                Ok(known) => Ok(known),
                Err(_) => Ok(parts.access.create_principal(kind, name)?),
            }
        };
        Ok(Self {
            owner: principal(PrincipalKind::User, "owner")?,
            host: principal(PrincipalKind::Host, "host")?,
            live: Arc::new(Live::new(Arc::clone(&parts), LiveOptions::default())),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?,
            parts,
            _data: data,
        })
    }

    /// Keeps content the session has uploaded under this name.
    pub(crate) fn upload(&self, name: &str, content: &[u8]) {
        let limit = ByteCount::kib(64);
        let mut spool = self.parts.store.spool(None, limit).unwrap();
        spool.write(content).unwrap();
        let spool = spool.finish();
        let reference = AttachmentRef {
            id: AttachmentId::new(spool.digest()),
            name: Some(FileName::parse(name).unwrap()),
            bytes: ByteCount::from(content.len()),
            kind: AttachmentKind::File,
        };
        let kept = self.parts.store.commit(spool).unwrap();
        let now = self.parts.clock.now();
        let journal = &self.parts.journal;
        journal.record_upload(SESSION, &reference, now).unwrap();
        drop(kept);
    }

    /// Declares these paths: the event's seq.
    pub(crate) fn declare(&self, paths: &[&str]) -> Result<Seq, JournalError> {
        let files: Vec<_> = paths.iter().map(|path| json!({ "path": path })).collect();
        let data = json!({"turn": 1, "callId": "c", "files": files});
        let event = event("deliverables/presented", &data).unwrap();
        Ok(self.parts.journal.append(SESSION, vec![event], None)?.first)
    }

    /// The seq of the last event.
    pub(crate) fn last(&self) -> Seq {
        let next = self.parts.journal.session(SESSION).unwrap().next_seq;
        Seq::new(next.get() - 1)
    }

    /// Every path that was declared.
    pub(crate) fn declared(&self) -> Vec<String> {
        let window = Window {
            offset: 0,
            limit: 1000,
        };
        let all = match self.parts.journal.declared(SESSION, window) {
            Err(JournalError::NotFound) => Vec::new(),
            all => all.unwrap(),
        };
        all.into_iter().map(|one| one.presented.path).collect()
    }

    /// Releases the one file that was declared at `seq`.
    pub(crate) fn release(&self, seq: Seq, key: Option<&str>) -> Result<Released, TransferError> {
        let at = Address {
            session: SESSION,
            log_generation: self.parts.journal.session(SESSION)?.generation,
            seq,
            index: 0,
        };
        self.runtime.block_on(async {
            let located = deliverable::locate(&self.parts, &self.owner, at).await?;
            let terms = terms(&self.owner, key);
            release::release(&self.live, &self.parts, &self.owner, located, terms).await
        })
    }

    /// Releases everything in the session.
    pub(crate) fn archive(&self, key: &str) -> Result<Released, TransferError> {
        let once = terms(&self.owner, Some(key)).once;
        let (live, parts) = (&self.live, &self.parts);
        let archiving = archive::archive(live, parts, &self.owner, SESSION, once);
        self.runtime.block_on(archiving)
    }

    /// Presents these files and captures them, under this key.
    pub(crate) fn capture(&self, paths: &[&str], key: &str) -> Result<Presented, TransferError> {
        let files = paths.iter().map(|path| File {
            path: (*path).to_owned(),
            description: None,
        });
        let presentation = Presentation {
            turn: 1,
            call_id: "c".to_owned(),
            files: files.collect(),
            capture: true,
        };
        let terms = terms(&self.host, Some(key));
        let (live, parts) = (&self.live, &self.parts);
        let presenting = present::present(live, parts, &self.host, SESSION, presentation, terms);
        self.runtime.block_on(presenting)
    }

    /// Says so to the ask.
    pub(crate) fn decide(&self, ask: &Ask, decision: Decision) -> Result<Outcome, TransferError> {
        let answer = Answer {
            session: SESSION,
            handle: ask.handle,
            id: ask.draft.id,
            bytes: ask.draft.bytes,
            decision,
            who: self.owner.id,
        };
        self.runtime
            .block_on(decide::settle(&self.live, &self.parts, &self.owner, answer))
    }
}

fn terms(who: &Principal, key: Option<&str>) -> Terms {
    let once = key.map(|key| Once {
        who: who.id,
        key: RetryKey::parse(key.as_bytes()).unwrap(),
        asked: Digest::of(key.as_bytes()),
    });
    Terms {
        once,
        ..Terms::default()
    }
}

fn event(kind: &str, data: &serde_json::Value) -> Result<NewEvent, Box<dyn Error>> {
    Ok(NewEvent {
        kind: EventType::parse(kind)?,
        time: Timestamp::from_millis(NOW),
        data: RawValue::from_string(data.to_string())?,
        ignorable: false,
    })
}

fn parts(
    dir: &Path,
    data: &DataDir,
    clock: Arc<dyn Clock>,
    bytes: u64,
) -> Result<Parts, Box<dyn Error>> {
    let limits = Limits {
        session_bytes: ByteCount::new(bytes),
        releases_waiting: 1000,
        ..Limits::default()
    };
    let rules = Rules {
        names: NameRules::new(&[], true, &[], ByteCount::mib(1))?,
        max_file: ByteCount::mib(16),
    };
    let held = HeldRoot::open("ws", &dir.join("ws"), Policy::default(), rules)?;
    let roots = Arc::new(Roots::serve_inline(vec![held]));
    let gate = Arc::new(open_gate(&roots, Arc::clone(&clock))?);
    let control = Arc::new(Control::open_inline(data.journal(), Arc::clone(&clock))?);
    let journal: Arc<dyn Journal> = Arc::new(NativeJournal::new(
        Arc::clone(&control),
        limits.journal.clone(),
        limits.session_bytes,
    ));
    let local = LocalOptions {
        free_reserve: ByteCount::ZERO,
        clock: Arc::clone(&clock),
        ..LocalOptions::default()
    };
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(data, local)?);
    let identity = HostIdentity {
        instance: "h_1".to_owned(),
        bridge_generation: 1,
    };
    let key = Arc::new(SealKey::new([7; 32]));
    let ledger = Ledger::new(Arc::clone(&control), key, identity.instance.clone());
    Ok(Parts {
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
        verifier: Arc::new(Verifier::new(&limits)?),
        gate,
        // Its thread would make system calls of its own.
        audit: Arc::new(Audit::nowhere(Arc::clone(&clock))),
        ledger: Arc::new(ledger),
        roots,
        pools: Pools {
            control: Pool::inline(),
            files: Pool::inline(),
            store: Pool::inline(),
        },
        limits: Arc::new(limits),
        clock,
    })
}

/// A gate that a report holds open.
fn open_gate(roots: &Roots, clock: Arc<dyn Clock>) -> Result<Gate, Box<dyn Error>> {
    let made_at = u64::try_from(clock.now().as_millis() / 1000)?;
    let gate = Gate::new(Mode::WhenProven, DEFAULT_MAX_AGE, clock);
    let facts = roots.named("ws").ok_or("no root")?.facts()?;
    let report = |resolver: Resolver| ProbedResolver {
        resolver: resolver.name().to_owned(),
        report: proven(resolver, facts.host.clone(), "this", made_at),
    };
    let probed = Probed {
        build: "this".to_owned(),
        roots: vec![ProbedRoot {
            name: "ws".to_owned(),
            device: facts.device,
            inode: facts.inode,
            policy: Policy::default().to_string(),
            reports: Resolver::ALL.map(report).into(),
        }],
    };
    let key = SealKey::new([3; 32]);
    let file = probed.seal(&key)?;
    gate.load(&Evidence {
        file: Some(file.as_bytes()),
        key: Some(&key),
        build: "this",
        sound: &Resolver::ALL,
        roots: std::slice::from_ref(&facts),
    });
    Ok(gate)
}
