//! Indexes of logs that outlast the process: a cache, never believed over the log.
//!
//! Promises: an entry counts only when its seal is ours, it is of this very file (device, inode, times
//! and length), and the file's first and last bytes are those it was made of; everything else is
//! forgotten and made anew from the log. Leaves to others: what a log that has grown since adds
//! (`log`), and asking the log itself before anything is given out (`source`).

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use super::{
    lines::{LogFile, Place, ReadAt as _},
    log::{LogIndex, Mark},
    logs::{Found, Indexed},
    names::{Encoding, LogName},
    row::Header,
};
use crate::{
    beneath::Stamp,
    control::{Cache, Control, ControlError},
    journal::{Declared, JournalError, Presented, Referenced},
    model::{
        AttachmentId, AttachmentKind, AttachmentRef, ByteCount, FileName, LogGeneration, MediaType,
        Seq, SessionHandle, SessionId, Timestamp,
    },
    seal::SealKey,
};

/// The file, and what its tables are.
const FILE: &str = "dsh-index";
const VERSION: i32 = 1;
const SCHEMA: &str = "
CREATE TABLE logs (
    source TEXT NOT NULL,
    session TEXT NOT NULL,
    entry TEXT NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (source, session)
) STRICT, WITHOUT ROWID;
";
/// What the seal is over.
const KIND: &str = "holdfast dsh index 1";
/// Where the key of the seals is kept in the database.
const KEY: &str = "dsh_index_key";
/// The largest entry that is kept, in bytes. A log with more to say is read once per start.
const MAX_ENTRY: usize = 8 << 20;
/// How much of the file's start and end an entry answers for, in bytes.
const EDGE: u64 = 4 << 10;

/// The entries of one home.
#[derive(Debug)]
pub(crate) struct Shelf {
    cache: Cache,
    key: SealKey,
    source: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    project: String,
    version: u32,
    zstd: bool,
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, u64),
    changed: (i64, u64),
    /// Checksums of the first and the last bytes.
    edges: (u32, u32),
    outcome: Outcome,
}

#[derive(Deserialize, Serialize)]
enum Outcome {
    Refused(String),
    Log(StoredLog),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StoredLog {
    id: String,
    created_at: i64,
    cwd: Option<String>,
    next: u64,
    ended: Option<String>,
    /// Id, name, bytes, image, seq.
    references: Vec<StoredReference>,
    /// Seq, index, path, description.
    declared: Vec<(u64, u32, String, Option<String>)>,
    /// Offset, skip, seq, row, references, declared, checksum of what is before.
    marks: Vec<(u64, u64, u64, u64, usize, usize, u32)>,
}

type StoredReference = (AttachmentId, Option<FileName>, u64, Option<Image>, u64);
type Image = (String, u32, u32);

impl Shelf {
    /// The entries of the home that `control` knows as `source`.
    ///
    /// # Errors
    /// When the database cannot keep the key.
    pub(crate) fn open(control: &Control, source: &str) -> Result<Self, JournalError> {
        let mut drawn = [0; 32];
        getrandom::fill(&mut drawn).map_err(|error| JournalError::Io {
            action: "drawing a key",
            source: Box::new(error),
        })?;
        let read = |conn: &rusqlite::Connection| {
            conn.query_row("SELECT value FROM meta WHERE key = ?1", [KEY], |row| {
                row.get::<_, String>(0)
            })
            .optional()
        };
        let hex = |bytes: [u8; 32]| crate::model::Digest::from_bytes(bytes).to_string();
        let fresh = hex(drawn);
        let kept = match control.read(|conn| read(conn).map_err(ControlError::from))? {
            Some(kept) => kept,
            // Opened for reading only, it makes do with a key for this run.
            None if control.standing().is_err() => fresh,
            None => control.write(move |tx| -> Result<String, ControlError> {
                tx.execute(
                    "INSERT OR IGNORE INTO meta (key, value) VALUES (?1, ?2)",
                    [KEY, &fresh],
                )?;
                Ok(fresh)
            })?,
        };
        let key = crate::model::Digest::parse(&kept)
            .map_err(|_not_ours| ControlError::Corrupt(format!("meta.{KEY}").into()))?;
        Ok(Self {
            cache: control.cache(FILE, SCHEMA, VERSION),
            key: SealKey::new(*key.as_bytes()),
            source: source.to_owned(),
        })
    }

    /// Whether there is an entry for the session.
    pub(crate) fn has(&self, session: SessionHandle) -> bool {
        let row = (&self.source, session.to_string());
        let found = self.cache.with(|conn| {
            conn.prepare_cached("SELECT 1 FROM logs WHERE source = ?1 AND session = ?2")?
                .exists(row)
        });
        found == Some(true)
    }

    /// What is known of this very file, or of what it was before it grew.
    pub(crate) fn load(
        &self,
        session: SessionHandle,
        found: &Found,
        file: &LogFile,
    ) -> Option<Indexed> {
        let row = (&self.source, session.to_string());
        let (text, seal): (String, Vec<u8>) = self
            .cache
            .with(|conn| {
                conn.prepare_cached(
                    "SELECT entry, seal FROM logs WHERE source = ?1 AND session = ?2",
                )?
                .query_row(row, |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
            })
            .flatten()?;
        let made = self
            .key
            .fits(KIND, &self.sealed(session, &text), &seal)
            .then(|| restore(&text, found, file))
            .flatten();
        if made.is_none() {
            self.forget(&[session]);
        }
        made
    }

    /// Keeps what was found of a log.
    pub(crate) fn save(&self, session: SessionHandle, indexed: &Indexed, file: &LogFile) {
        let Some(text) = store(indexed, file).filter(|text| text.len() <= MAX_ENTRY) else {
            self.forget(&[session]);
            return;
        };
        let seal = self.key.seal(KIND, &self.sealed(session, &text));
        self.cache.with(|conn| {
            conn.prepare_cached(
                "INSERT INTO logs (source, session, entry, seal) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET entry = excluded.entry, seal = excluded.seal",
            )?
            .execute(params![self.source, session.to_string(), text, seal])
        });
    }

    /// Forgets what was kept of these sessions.
    pub(crate) fn forget(&self, sessions: &[SessionHandle]) {
        if sessions.is_empty() {
            return;
        }
        self.cache.with(|conn| {
            let mut one =
                conn.prepare_cached("DELETE FROM logs WHERE source = ?1 AND session = ?2")?;
            for session in sessions {
                one.execute((&self.source, session.to_string()))?;
            }
            Ok(())
        });
    }

    fn sealed(&self, session: SessionHandle, text: &str) -> Vec<u8> {
        format!("{}\0{session}\0{text}", self.source).into_bytes()
    }
}

/// Checksums of the first and last bytes of a file of this length.
fn edges(file: &LogFile, len: u64) -> Option<(u32, u32)> {
    let sum = |from: u64, to: u64| {
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).ok()?];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = from.saturating_add(ByteCount::from(filled).get());
            match file.read_at(rest, at).ok()? {
                0 => return None,
                n => filled = filled.saturating_add(n),
            }
        }
        Some(crc32fast::hash(&bytes))
    };
    Some((sum(0, len.min(EDGE))?, sum(len.saturating_sub(EDGE), len)?))
}

fn store(indexed: &Indexed, file: &LogFile) -> Option<String> {
    let stamp = indexed.stamp;
    let outcome = match &indexed.outcome {
        Err(why) => Outcome::Refused(why.to_string()),
        Ok(index) => Outcome::Log(StoredLog {
            id: index.header.id.as_str().to_owned(),
            created_at: index.header.created_at.as_millis(),
            cwd: index.header.cwd.clone(),
            next: index.next,
            ended: index.ended.clone(),
            references: index
                .references
                .iter()
                .map(|at| {
                    let one = &at.reference;
                    let image = match one.kind {
                        AttachmentKind::File => None,
                        AttachmentKind::Image {
                            media_type,
                            width,
                            height,
                        } => Some((media_type.as_str().to_owned(), width, height)),
                    };
                    (
                        one.id,
                        one.name.clone(),
                        one.bytes.get(),
                        image,
                        at.seq.get(),
                    )
                })
                .collect(),
            declared: index
                .declared
                .iter()
                .map(|at| {
                    let Presented { path, description } = at.presented.clone();
                    (at.seq.get(), at.index, path, description)
                })
                .collect(),
            marks: index
                .marks
                .iter()
                .map(|mark| {
                    (
                        mark.place.offset,
                        mark.place.skip,
                        mark.seq,
                        mark.row,
                        mark.references,
                        mark.declared,
                        mark.before,
                    )
                })
                .collect(),
        }),
    };
    let entry = Entry {
        project: String::from_utf8(indexed.found.project.to_vec()).ok()?,
        version: indexed.found.name.version,
        zstd: indexed.found.name.encoding == Encoding::Zstd,
        device: stamp.device,
        inode: stamp.inode,
        len: stamp.len,
        modified: stamp.modified,
        changed: stamp.changed,
        edges: edges(file, stamp.len)?,
        outcome,
    };
    serde_json::to_string(&entry).ok()
}

fn restore(text: &str, found: &Found, file: &LogFile) -> Option<Indexed> {
    let entry: Entry = serde_json::from_str(text).ok()?;
    let name = LogName {
        version: entry.version,
        encoding: if entry.zstd {
            Encoding::Zstd
        } else {
            Encoding::Plain
        },
    };
    let stamp = Stamp {
        device: entry.device,
        inode: entry.inode,
        len: entry.len,
        modified: entry.modified,
        changed: entry.changed,
    };
    let same = entry.project.as_bytes() == &*found.project
        && name == found.name
        && stamp.same_file(&file.stamp)
        // What moved and is no longer was not appended to.
        && (stamp == file.stamp || stamp.len < file.stamp.len)
        && edges(file, stamp.len)? == entry.edges;
    if !same {
        return None;
    }
    let outcome = match entry.outcome {
        Outcome::Refused(why) => Err(why.into()),
        Outcome::Log(log) => Ok(std::sync::Arc::new(log.restore(name)?)),
    };
    Some(Indexed {
        found: found.clone(),
        stamp,
        settled: true,
        outcome,
    })
}

impl StoredLog {
    fn restore(self, name: LogName) -> Option<LogIndex> {
        let header = Header {
            version: name.version,
            id: SessionId::parse(&self.id).ok()?,
            created_at: Timestamp::from_millis(self.created_at),
            cwd: self.cwd,
        };
        let mut index = LogIndex::new(header, name);
        index.restored = true;
        index.next = self.next;
        index.ended = self.ended;
        for (id, name, bytes, image, seq) in self.references {
            let kind = match image {
                None => AttachmentKind::File,
                Some((media_type, width, height)) => AttachmentKind::Image {
                    media_type: MediaType::of_image(&media_type)?,
                    width,
                    height,
                },
            };
            let bytes = ByteCount::new(bytes);
            let reference = AttachmentRef {
                id,
                name,
                bytes,
                kind,
            };
            index.refer(reference, Seq::new(seq));
        }
        let generation = LogGeneration::new(name.version);
        index.declared = self
            .declared
            .into_iter()
            .map(|(seq, index, path, description)| Declared {
                generation,
                seq: Seq::new(seq),
                index,
                presented: Presented { path, description },
            })
            .collect();
        index.marks = self
            .marks
            .into_iter()
            .map(
                |(offset, skip, seq, row, references, declared, before)| Mark {
                    place: Place { offset, skip },
                    seq,
                    row,
                    references,
                    declared,
                    before,
                },
            )
            .collect();
        Some(index)
    }
}

/// For the one who reads the log to see whether it says what an entry says.
pub(crate) fn agrees(
    event: &crate::journal::Event,
    format: u32,
    reference: Option<&Referenced>,
    declared: Option<&Declared>,
) -> Result<bool, JournalError> {
    use crate::journal::references;
    let data = serde_json::from_str(event.data.get())
        .map_err(|error| JournalError::Corrupt(error.to_string()))?;
    let found = references::extract(&event.kind, &data, format, usize::MAX).unwrap_or_default();
    let refers = reference.is_none_or(|at| {
        found
            .references
            .iter()
            .any(|located| located.reference == at.reference)
    });
    let presents = declared.is_none_or(|at| {
        references::presented(&event.kind, &data)
            .iter()
            .any(|(index, presented)| (*index, presented) == (at.index, &at.presented))
    });
    Ok(refers && presents)
}
