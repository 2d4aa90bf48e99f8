//! A look at everything the store holds: what is bad, what is missing, what nobody knows.
//!
//! Promises: content is read from the medium, not from memory; nothing is changed, moved or deleted;
//! memory does not grow with the size of an object (I11). Leaves to others: what to do about it.

use std::{fs::File, io};

use cap_std::fs::Dir;
use rustix::fs::Advice;

use super::{
    StoreError, layout,
    local::{LocalStore, hash_exactly},
};
use crate::model::{ByteCount, Cancel, Digest, Shown};

/// Something a survey found.
#[derive(Debug)]
pub enum Finding {
    /// Something refers to it, and it is not there.
    Missing {
        /// The object.
        digest: Digest,
        /// Its length as referred to.
        bytes: ByteCount,
    },
    /// Something else than a plain, singly named, read-only file stands in its place.
    NotAnObject {
        /// The object.
        digest: Digest,
    },
    /// It has another length than what refers to it says.
    Length {
        /// The object.
        digest: Digest,
        /// Its length as referred to.
        expected: ByteCount,
        /// Its length on disk.
        found: ByteCount,
    },
    /// Its content is not what its name says, twice in a row.
    Content {
        /// The object.
        digest: Digest,
    },
    /// It cannot be read, which says nothing about its content.
    Unreadable {
        /// The object.
        digest: Digest,
        /// What the system said.
        source: io::Error,
    },
    /// It is good, and nothing refers to it: an upload cut short by a crash leaves such a one.
    Unreferenced {
        /// The object.
        digest: Digest,
        /// Its length on disk.
        bytes: ByteCount,
    },
    /// Something that no store of ours put there.
    Foreign {
        /// Its name below `objects/sha256`, as lossless, terminal-safe text.
        name: String,
    },
}

impl Finding {
    /// Whether it means that content is lost or wrong.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Missing { .. }
            | Self::NotAnObject { .. }
            | Self::Length { .. }
            | Self::Content { .. }
            | Self::Unreadable { .. } => true,
            Self::Unreferenced { .. } | Self::Foreign { .. } => false,
        }
    }
}

/// What a survey went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Objects read and found good.
    pub good: u64,
    /// Their bytes.
    pub bytes: ByteCount,
    /// Findings that mean damage.
    pub damaged: u64,
    /// Other findings.
    pub noted: u64,
}

impl LocalStore {
    /// Reads every object from the medium and compares it with its name, one shard after another.
    ///
    /// `wanted` is asked once per shard for what is referred to there: digests that start with the
    /// given byte, with their lengths. `report` gets each finding as it is made. Uploads and
    /// downloads may go on meanwhile: an object that is new since `wanted` was asked shows as
    /// unreferenced. What was read is dropped from the page cache. Blocks; `cancel` is asked between
    /// objects.
    ///
    /// # Errors
    /// What `wanted` answers; [`StoreError::Cancelled`]; [`StoreError::Io`] when a shard cannot be
    /// listed. A bad object is a finding, not an error.
    ///
    /// # Source
    /// `posix_fadvise(2)`: reading through the page cache would find what was once written, not what
    /// the medium holds (`spec/store.md` 2.2 L).
    pub fn survey<E: From<StoreError>>(
        &self,
        mut wanted: impl FnMut(u8) -> Result<Vec<(Digest, ByteCount)>, E>,
        cancel: &Cancel,
        mut report: impl FnMut(Finding),
    ) -> Result<Survey, E> {
        let mut survey = Survey::default();
        let mut count = |finding: Finding, survey: &mut Survey| {
            if finding.is_damage() {
                survey.damaged += 1;
            } else {
                survey.noted += 1;
            }
            report(finding);
        };
        for name in names(self.objects())? {
            let known = std::str::from_utf8(&name)
                .is_ok_and(|name| (0..=u8::MAX).any(|first| name == layout::shard_name(first)));
            if !known {
                let name = Shown(&name).to_string();
                count(Finding::Foreign { name }, &mut survey);
            }
        }
        for first in 0..=u8::MAX {
            let mut wanted = wanted(first)?;
            wanted.sort_unstable();
            wanted.dedup();
            let shard = layout::open_shard(self.objects(), first)
                .map_err(|e| StoreError::from_layout("opening a shard", e))?;
            let mut held = Vec::new();
            for name in names(&shard)? {
                if let Some(digest) = digest_of(first, &name) {
                    held.push(digest);
                } else {
                    let name = format!("{}/{}", layout::shard_name(first), Shown(&name));
                    count(Finding::Foreign { name }, &mut survey);
                }
            }
            held.sort_unstable();
            drop(shard);
            for (digest, bytes) in &wanted {
                if held.binary_search(digest).is_err() {
                    let (digest, bytes) = (*digest, *bytes);
                    count(Finding::Missing { digest, bytes }, &mut survey);
                }
            }
            for digest in held {
                if cancel.is_fired() {
                    return Err(StoreError::Cancelled.into());
                }
                let expected = wanted
                    .binary_search_by_key(&digest, |(digest, _)| *digest)
                    .ok()
                    .and_then(|at| wanted.get(at))
                    .map(|(_, bytes)| *bytes);
                match self.look(digest, expected)? {
                    Look::Gone => {}
                    Look::Good(bytes) => {
                        survey.good += 1;
                        survey.bytes = survey.bytes.saturating_add(bytes);
                        if expected.is_none() {
                            count(Finding::Unreferenced { digest, bytes }, &mut survey);
                        }
                    }
                    Look::Bad(finding) => count(finding, &mut survey),
                }
            }
        }
        Ok(survey)
    }

    fn look(&self, digest: Digest, expected: Option<ByteCount>) -> Result<Look, StoreError> {
        let (file, found) = match self.open_whatever(digest) {
            Ok(opened) => opened,
            // Collected or set aside since the shard was listed.
            Err(StoreError::NotFound(_)) => return Ok(Look::Gone),
            Err(StoreError::NotAnObject(_)) => {
                return Ok(Look::Bad(Finding::NotAnObject { digest }));
            }
            Err(StoreError::Io { source, .. }) => {
                return Ok(Look::Bad(Finding::Unreadable { digest, source }));
            }
            Err(other) => return Err(other),
        };
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            let finding = Finding::Length {
                digest,
                expected,
                found,
            };
            return Ok(Look::Bad(finding));
        }
        // Twice, because one wrong read is not yet a wrong medium.
        for _ in 0..2 {
            match hash_from_medium(&file, found) {
                Ok(content) if content == Some(digest) => return Ok(Look::Good(found)),
                Ok(_) => {}
                Err(source) => return Ok(Look::Bad(Finding::Unreadable { digest, source })),
            }
        }
        Ok(Look::Bad(Finding::Content { digest }))
    }
}

enum Look {
    Good(ByteCount),
    Bad(Finding),
    Gone,
}

/// Drops what memory holds of the file, reads it, and drops it again.
fn hash_from_medium(file: &File, len: ByteCount) -> io::Result<Option<Digest>> {
    let forget = || rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
    forget()?;
    let digest = hash_exactly(file, len)?;
    forget()?;
    Ok(digest)
}

/// The names in a directory, as bytes.
fn names(dir: &Dir) -> Result<Vec<Vec<u8>>, StoreError> {
    use std::os::unix::ffi::OsStringExt as _;
    let failed = |error| StoreError::from_io("listing a shard", error);
    dir.entries()
        .map_err(failed)?
        .map(|entry| Ok(entry.map_err(failed)?.file_name().into_vec()))
        .collect()
}

fn digest_of(first: u8, name: &[u8]) -> Option<Digest> {
    let digest = Digest::parse(std::str::from_utf8(name).ok()?).ok()?;
    (digest.as_bytes()[0] == first).then_some(digest)
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "tests build their own directories"
    )]

    use std::{fs, path::Path};

    use super::{Finding, Survey};
    use crate::{
        model::{ByteCount, Cancel, Digest},
        store::{
            Store as _, StoreError,
            conformance::Spoil,
            layout::{DataDir, Filesystems},
            local::{LocalOptions, LocalStore},
        },
    };

    fn put(store: &LocalStore, content: &[u8]) -> (Digest, ByteCount) {
        let mut spool = store.spool(None, ByteCount::mib(1)).unwrap();
        spool.write(content).unwrap();
        let stored = store.commit(spool.finish()).unwrap();
        (stored.digest(), stored.len())
    }

    /// The shard of an object and the object.
    fn place(path: &Path, digest: Digest) -> std::path::PathBuf {
        let name = digest.to_string();
        path.join("objects/sha256")
            .join(name.split_at(2).0)
            .join(&name)
    }

    fn of_shard(wanted: &[(Digest, ByteCount)], first: u8) -> Vec<(Digest, ByteCount)> {
        let here = |(digest, _): &&(Digest, ByteCount)| digest.as_bytes()[0] == first;
        wanted.iter().filter(here).copied().collect()
    }

    /// One word per finding, with the start of the digest's content it is about.
    fn word(finding: &Finding) -> &'static str {
        match finding {
            Finding::Missing { .. } => "missing",
            Finding::NotAnObject { .. } => "not an object",
            Finding::Length { .. } => "length",
            Finding::Content { .. } => "content",
            Finding::Unreadable { .. } => "unreadable",
            Finding::Unreferenced { .. } => "unreferenced",
            Finding::Foreign { .. } => "foreign",
        }
    }

    #[test]
    fn a_survey_finds_each_kind_of_damage_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let data = DataDir::init_on(&path, Filesystems::Any).unwrap();
        let options = LocalOptions {
            free_reserve: ByteCount::ZERO,
            ..LocalOptions::default()
        };
        let store = LocalStore::open(&data, options).unwrap();
        let mut wanted: Vec<_> = (0..20u8).map(|i| put(&store, &[i; 1000])).collect();
        let spoilt = [
            (Spoil::Removed, "missing"),
            (Spoil::Link, "not an object"),
            (Spoil::Fifo, "not an object"),
            (Spoil::Directory, "not an object"),
            (Spoil::Truncated, "length"),
            (Spoil::Grown, "length"),
            (Spoil::Flipped(999), "content"),
            (Spoil::Replaced, "content"),
        ];
        let mut expected = Vec::new();
        for ((how, word), (digest, _)) in spoilt.into_iter().zip(&wanted) {
            how.file(&place(&path, *digest));
            expected.push(word);
        }
        // The link's target stands beside it under a foreign name.
        expected.push("foreign");
        fs::write(path.join("objects/sha256/ab/stra\x1b[31mnge"), b"").unwrap();
        expected.push("foreign");
        let forgotten = wanted.pop().unwrap();
        expected.push("unreferenced");
        let mut found = Vec::new();
        let before = fs::read_dir(path.join("quarantine")).unwrap().count();
        let survey = store
            .survey::<StoreError>(
                |first| Ok(of_shard(&wanted, first)),
                &Cancel::new(),
                |finding| found.push(finding),
            )
            .unwrap();
        let mut words: Vec<_> = found.iter().map(word).collect();
        words.sort_unstable();
        expected.sort_unstable();
        assert_eq!(words, expected, "{found:?}");
        let expected = Survey {
            good: 12,
            bytes: ByteCount::new(12_000),
            damaged: 8,
            noted: 3,
        };
        assert_eq!(survey, expected);
        assert!(found.iter().any(|f| matches!(f,
            Finding::Unreferenced { digest, .. } if *digest == forgotten.0)));
        assert!(found.iter().any(|f| matches!(f,
            Finding::Foreign { name } if name.ends_with("/stra\\x1b[31mnge"))));
        let after = fs::read_dir(path.join("quarantine")).unwrap().count();
        assert_eq!((before, after), (0, 0));
    }

    #[test]
    fn a_cancelled_survey_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::init_on(&dir.path().join("data"), Filesystems::Any).unwrap();
        let store = LocalStore::open(&data, LocalOptions::default()).unwrap();
        let mut spool = data.staging().create(ByteCount::new(1)).unwrap();
        spool.write(b"x").unwrap();
        store.commit(spool.finish()).unwrap();
        let cancel = Cancel::new();
        cancel.fire();
        let result = store.survey::<StoreError>(|_| Ok(Vec::new()), &cancel, |_| ());
        assert!(matches!(result, Err(StoreError::Cancelled)));
    }
}
