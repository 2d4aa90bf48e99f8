//! Homes, sources and their pieces.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast::{
    control::Control,
    home::DshHome,
    journal::{
        Event, JournalError, Source as _,
        dsh::{DshLimits, DshOwners, DshSource, project_folder, session_folder},
    },
    model::{AttachmentRef, Cancel, Digest, Limits, PrincipalId, SessionHandle, SystemClock},
    store::{Objects as _, StoreError, dsh::DshObjects, verified::Verifier},
};

use crate::skip::skipped;

/// The real homes and damaged logs. They lie beside the project and are not part of it.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/dsh")
}

/// Whether they are here; says so where they are not.
pub(crate) fn has_data() -> bool {
    let here = data().is_dir();
    if !here {
        skipped(
            1,
            "test of real DSH homes",
            "there is no ../shared/data/dsh",
        );
    }
    here
}

/// Who owns the homes of the tests.
pub(crate) fn owner() -> PrincipalId {
    PrincipalId::from_random([7; 16])
}

/// A database of its own, in which homes can be opened.
pub(crate) struct Bench {
    journal: tempfile::TempDir,
}

/// An opened home.
pub(crate) struct Open {
    pub(crate) source: Arc<DshSource>,
    pub(crate) objects: DshObjects,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            journal: tempfile::tempdir().unwrap(),
        }
    }

    /// The directory of the database.
    pub(crate) fn journal(&self) -> &Path {
        self.journal.path()
    }

    pub(crate) fn open(&self, home: DshHome) -> Open {
        self.open_with(home, DshLimits::default())
    }

    pub(crate) fn open_with(&self, home: DshHome, limits: DshLimits) -> Open {
        let dir = fs::File::open(self.journal.path()).unwrap();
        let control = Arc::new(Control::open_inline(dir, Arc::new(SystemClock)).unwrap());
        let home = Arc::new(home);
        let owners = DshOwners {
            owners: vec![owner()],
            host: None,
        };
        let source = DshSource::open(control, Arc::clone(&home), "home", owners, limits).unwrap();
        Open {
            source: Arc::new(source),
            objects: DshObjects::new(home),
        }
    }
}

impl Open {
    /// The session of this own id.
    pub(crate) fn handle(&self, own_id: &str) -> SessionHandle {
        self.source
            .handle_of(own_id)
            .unwrap_or_else(|| panic!("no session {own_id}"))
    }

    /// Every event of a session, read in pages of `size`.
    pub(crate) fn events(&self, own_id: &str, size: usize) -> Result<Vec<Event>, JournalError> {
        let session = self.handle(own_id);
        let mut all: Vec<Event> = Vec::new();
        let mut before = None;
        loop {
            let page = self.source.page(session, None, before, size)?;
            assert!(page.events.len() <= size);
            let first = page.events.first().map(|event| event.seq);
            all.splice(0..0, page.events);
            if !page.has_more {
                return Ok(all);
            }
            let first = first.expect("a page with older events is not empty");
            assert!(
                before.is_none_or(|before| first < before),
                "no page repeats"
            );
            before = Some(first);
        }
    }

    /// Opens, verifies and reads an attachment.
    pub(crate) fn read(&self, reference: &AttachmentRef) -> Result<Vec<u8>, StoreError> {
        let blob = self.objects.open(reference)?;
        let verified = Verifier::new(&Limits::default())?.verify(blob, &Cancel::new())?;
        let mut content = Vec::new();
        let mut blocks = verified.blocks(0..verified.len().get());
        while let Some(block) = blocks.next()? {
            content.extend_from_slice(&block);
        }
        Ok(content)
    }

    /// Why a session is refused.
    pub(crate) fn refusal(&self, own_id: &str) -> String {
        match self.source.session(self.handle(own_id)) {
            Err(JournalError::Corrupt(why)) => why,
            other => panic!("{own_id} is not refused: {other:?}"),
        }
    }
}

/// The only content of a home that can be told apart by a test: everything under it, as it lies.
pub(crate) fn snapshot(root: &Path) -> Vec<String> {
    fn walk(path: &Path, all: &mut Vec<String>) {
        let meta = fs::symlink_metadata(path).unwrap();
        let content = if meta.is_file() && meta.len() < 8 << 20 {
            Digest::of(&fs::read(path).unwrap()).to_string()
        } else {
            String::new()
        };
        all.push(format!(
            "{} {:o} {} {} {} {}.{:09} {}.{:09} {content}",
            path.display(),
            meta.mode(),
            meta.ino(),
            meta.nlink(),
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        ));
        if meta.is_dir() {
            let mut names: Vec<_> = fs::read_dir(path)
                .unwrap()
                .map(|e| e.unwrap().path())
                .collect();
            names.sort();
            for name in names {
                walk(&name, all);
            }
        }
    }
    let mut all = Vec::new();
    walk(root, &mut all);
    all
}

/// One frame, as DSH writes them.
pub(crate) fn frame(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A home under construction.
pub(crate) struct HomeBuilder {
    pub(crate) dir: tempfile::TempDir,
}

impl HomeBuilder {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sessions")).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn open(&self) -> DshHome {
        DshHome::open(self.path()).unwrap()
    }

    /// The folder of a session, made.
    pub(crate) fn folder(&self, id: &str, cwd: Option<&str>) -> PathBuf {
        let folder = self
            .path()
            .join("sessions")
            .join(project_folder(cwd).unwrap())
            .join(session_folder(id));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Writes a log file of these bytes.
    pub(crate) fn log(&self, id: &str, cwd: Option<&str>, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder(id, cwd).join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// A header line.
pub(crate) fn header(version: u32, id: &str, cwd: Option<&str>) -> String {
    let mut header = serde_json::json!({
        "type": "session", "version": version, "id": id, "createdAt": 1_790_000_000_000_i64,
        "isSeeded": false, "delegationDepth": 0,
    });
    if let Some(cwd) = cwd {
        header["cwd"] = cwd.into();
    }
    format!("{header}\n")
}

/// An event line.
pub(crate) fn event(seq: u64, kind: &str, data: &str) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"seq\":{seq},\"time\":{},\"data\":{data}}}\n",
        1000 + seq
    )
}
