//! Where the crash tests release, and what a start finds there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use holdfast::{
    control::ControlError,
    model::{AttachmentKind, AttachmentRef, Cancel, ReceiptHandle},
    receipt::{Ask, Draft},
};

use crate::{
    disk::{Disk, Kind},
    releasing::{Circumstances, Desk, SESSION},
    store::scratch,
    trace::{Program, release_tool},
};

/// A data directory with a workspace.
pub(crate) struct Place {
    /// Whose power can be cut, where it lies on one of its own.
    disk: Option<Disk>,
    path: PathBuf,
    how: Circumstances,
    _dirs: [tempfile::TempDir; 2],
}

/// What a start finds.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) receipts: BTreeSet<String>,
    /// The path of each receipt.
    pub(crate) paths: Vec<String>,
    pub(crate) asks: Vec<Ask>,
    /// Every path that was declared.
    pub(crate) declared: Vec<String>,
}

impl Place {
    pub(crate) fn new(how: Circumstances) -> Self {
        let dir = scratch();
        Self::at(dir.path().to_owned(), how, None, dir)
    }

    /// On a disk of its own.
    pub(crate) fn on(kind: Kind, how: Circumstances) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(kind, dir.path(), "disk");
        let place = Self::at(disk.path().to_owned(), how, Some(disk), dir);
        let synced = Command::new("sync").arg("-f").arg(place.path()).status();
        assert!(synced.unwrap().success(), "what was made is on the disk");
        place
    }

    fn at(path: PathBuf, how: Circumstances, disk: Option<Disk>, dir: tempfile::TempDir) -> Self {
        // In memory files do not show that they stood still.
        let workspace = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::os::unix::fs::symlink(workspace.path(), path.join("ws")).unwrap();
        Desk::make(&path).unwrap();
        Self {
            disk,
            path,
            how,
            _dirs: [dir, workspace],
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts the power of its disk and starts that again.
    pub(crate) fn power_cut(&mut self) {
        let disk = self.disk.as_mut().unwrap();
        disk.cut();
        disk.pull_out();
        disk.plug_in();
    }

    /// The desk at the usual time.
    pub(crate) fn desk(&self) -> Desk {
        Desk::open(self.path(), Circumstances::default()).expect("a restart needs no help")
    }

    pub(crate) fn file(&self, path: &str, content: &str) {
        let path = self.path().join("ws").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The tool with these words, the directory after the first.
    pub(crate) fn tool(&self, command: &str, rest: &[&str]) -> Program {
        let (later, bytes) = (self.how.later.to_string(), self.how.bytes.to_string());
        let dir = self.path().to_str().unwrap();
        let all = ["--later", &later, "--bytes", &bytes, command, dir];
        release_tool([&all[..], rest].concat())
    }

    /// What lies in the store.
    pub(crate) fn objects(&self) -> BTreeSet<String> {
        let shards = fs::read_dir(self.path().join("data/objects/sha256")).unwrap();
        let objects = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
        let names = objects.map(|object| object.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// Starts again and judges: before anything is recovered every receipt and every ask has its bytes;
    /// afterwards all bytes have an owner too, and nothing waits to be cleared away.
    pub(crate) fn restart(&self, when: &str) -> Standing {
        let desk = Desk::open(self.path(), self.how).expect("a restart needs no help");
        desk.parts
            .control
            .standing()
            .expect("a restart needs no help");
        let before = standing(&desk, when);
        desk.recover();
        let recovered = standing(&desk, when);
        assert_eq!(before.receipts, recovered.receipts, "{when}");
        assert_eq!(before.asks, recovered.asks, "{when}");
        assert_eq!(self.objects(), needed(&desk), "bytes and owners {when}");
        let unclaimed = column(&desk, "SELECT 'x' FROM unclaimed");
        assert_eq!(unclaimed.len(), 0, "claims {when}");
        let leaving = column(
            &desk,
            "SELECT handle FROM sessions WHERE source = 'removed'",
        );
        assert_eq!(leaving.len(), 0, "removed sessions {when}");
        let staging = fs::read_dir(self.path().join("data/staging")).unwrap();
        assert_eq!(staging.count(), 0, "staging {when}");
        recovered
    }
}

/// What there is; every receipt and every ask of it has its bytes.
fn standing(desk: &Desk, when: &str) -> Standing {
    let receipts = column(
        desk,
        "SELECT handle FROM receipts WHERE session IN
             (SELECT id FROM sessions WHERE source <> 'removed')",
    );
    let mut paths = Vec::new();
    for handle in &receipts {
        let handle = ReceiptHandle::parse(handle).unwrap();
        let statement = desk.parts.ledger.receipt(handle).unwrap().statement;
        is_whole(desk, &statement.released, when);
        paths.push(statement.released.path().unwrap().to_owned());
    }
    let asks = desk.parts.ledger.asks(SESSION).unwrap();
    for ask in &asks {
        is_whole(desk, &ask.draft, when);
    }
    Standing {
        receipts,
        paths,
        asks,
        declared: desk.declared(),
    }
}

/// Keeps I5: the bytes are there, whole.
fn is_whole(desk: &Desk, draft: &Draft, when: &str) {
    let reference = AttachmentRef {
        id: draft.id,
        name: None,
        bytes: draft.bytes,
        kind: AttachmentKind::File,
    };
    let blob = desk.parts.store.open(&reference);
    let whole = blob.and_then(|blob| desk.parts.verifier.verify(blob, &Cancel::new()));
    assert!(whole.is_ok(), "{draft:?} {when}: {whole:?}");
}

/// What the database says that somebody needs.
pub(crate) fn needed(desk: &Desk) -> BTreeSet<String> {
    let now = desk.parts.clock.now().as_millis();
    let sql = format!(
        "SELECT lower(hex(digest)) FROM uploads UNION SELECT lower(hex(digest)) FROM refs
         UNION SELECT lower(hex(digest)) FROM receipts
         UNION SELECT lower(hex(digest)) FROM asks WHERE outcome IS NULL AND expires_at > {now}"
    );
    column(desk, &sql)
}

fn column(desk: &Desk, sql: &str) -> BTreeSet<String> {
    let rows = desk.parts.control.read(|conn| {
        let mut all = conn.prepare(sql)?;
        let rows = all.query_map([], |row| row.get(0))?;
        rows.collect::<Result<_, _>>().map_err(ControlError::from)
    });
    rows.unwrap()
}
