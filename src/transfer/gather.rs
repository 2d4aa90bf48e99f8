//! Many files as one archive: each pinned, copied and shown to have stood still like any other, and what had
//! to be left out named in a manifest.
//!
//! Files are read on the root's own threads. Every name is resolved anew from the root, so that whoever swaps
//! one meanwhile gets it left out, or what is pinned at that moment.

use serde::Serialize;

use super::{HeldRoot, TransferError, progress::Progress};
use crate::{
    bundle::{MemberName, Names, ZipError, ZipWriter},
    model::{AttachmentId, ByteCount, Cancel, Digest, RelPath, Shown},
    pinned::{Bounds, Grade, Kind, PinnedError, Resolver, Snapshot},
    policy::NameClass,
    spool::{Spool, SpoolError},
    store::{Blob, Store, StoreError, verified::Verified},
};

/// The most files and directories of one archive.
pub(super) const MOST_ENTRIES: usize = 10_000;
/// What the list of an archive is called in it.
const MANIFEST: &[u8] = b"holdfast-manifest.json";

/// Whether a file may leave, and whether somebody has to say so first; or the word for why not.
pub(super) type Judge<'a> = dyn Fn(&NameClass<'_>) -> Result<bool, &'static str> + 'a;

/// A finished archive.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) spool: Spool,
    /// The weakest of the files that were read from a workspace, if there is one.
    pub(super) grade: Option<Grade>,
    /// Whether somebody has to decide about one of its files.
    pub(super) asks: bool,
}

/// The list in an archive.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    files: Vec<Listed>,
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    path: String,
    name: String,
    attachment_id: AttachmentId,
    bytes: u64,
    /// None for what was never in a workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    grade: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct LeftOut {
    path: String,
    class: &'static str,
}

/// An archive being made.
#[derive(Debug)]
pub(super) struct Archive {
    zip: ZipWriter,
    names: Names,
    listed_as: MemberName,
    manifest: Manifest,
    ceiling: ByteCount,
    grade: Option<Grade>,
    asks: bool,
}

impl Archive {
    /// Begins one of `ceiling` bytes at most.
    pub(super) fn begin(store: &dyn Store, ceiling: ByteCount) -> Result<Self, TransferError> {
        let mut names = Names::default();
        let listed = RelPath::parse(MANIFEST).map_err(PinnedError::InvalidPath)?;
        Ok(Self {
            zip: ZipWriter::new(store.spool(None, ceiling)?),
            listed_as: names.take(&listed),
            names,
            manifest: Manifest::default(),
            ceiling,
            grade: None,
            asks: false,
        })
    }

    /// Notes that something is not in it, and why.
    pub(super) fn leave_out(&mut self, path: &impl ToString, class: &'static str) {
        self.manifest.left_out.push(LeftOut {
            path: path.to_string(),
            class,
        });
    }

    /// The weakest of the files that were read from a workspace so far, if there is one.
    pub(super) fn grade(&self) -> Option<Grade> {
        self.grade
    }

    /// Lists a member, and gives it its name.
    fn list(
        &mut self,
        path: &RelPath,
        digest: Digest,
        bytes: ByteCount,
        grade: Option<&'static str>,
    ) -> MemberName {
        let name = self.names.take(path);
        self.manifest.files.push(Listed {
            path: path.to_string(),
            name: name.as_str().to_owned(),
            attachment_id: AttachmentId::new(digest),
            bytes: bytes.get(),
            grade,
        });
        name
    }

    /// Adds the copy of a workspace's file.
    fn add(
        &mut self,
        path: &RelPath,
        snapshot: Snapshot,
        asks: bool,
        cancel: &Cancel,
    ) -> Result<(), TransferError> {
        let (content, evidence) = snapshot.into_parts();
        let grade = Some(evidence.grade.name());
        let name = self.list(path, content.digest(), content.len(), grade);
        self.zip
            .add(name, evidence.facts.is_executable(), &content, cancel)
            .map_err(of_zip)?;
        self.asks |= asks;
        let weakest = self.grade.unwrap_or(evidence.grade);
        self.grade = Some(weakest.min(evidence.grade));
        Ok(())
    }

    /// Adds verified content of a store; each block is checked once more as it is read. Blocks.
    pub(super) fn add_stored(
        &mut self,
        path: &RelPath,
        content: &Verified<Blob>,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<(), TransferError> {
        let len = content.len();
        let name = self.list(path, content.digest(), len, None);
        self.zip.add_from(name, false, len, |take| {
            let mut blocks = content.blocks(0..len.get());
            while let Some(block) = blocks.next()? {
                if cancel.is_fired() {
                    return Err(StoreError::Cancelled.into());
                }
                take(&block).map_err(of_zip)?;
                progress.read_bytes(ByteCount::from(block.len()).get());
            }
            Ok::<_, TransferError>(())
        })
    }

    /// Writes the list and ends the archive.
    pub(super) fn finish(
        mut self,
        store: &dyn Store,
        cancel: &Cancel,
    ) -> Result<Gathered, TransferError> {
        self.manifest
            .left_out
            .sort_by(|one, other| one.path.cmp(&other.path));
        let mut list = store.spool(None, self.ceiling)?;
        let text = serde_json::to_vec_pretty(&self.manifest)
            .map_err(|error| of_zip(ZipError::Read(error.into())))?;
        list.write(&text)?;
        self.zip
            .add(self.listed_as, false, &list.finish(), cancel)
            .map_err(of_zip)?;
        Ok(Gathered {
            spool: self.zip.finish().map_err(of_zip)?,
            grade: self.grade,
            asks: self.asks,
        })
    }
}

/// What is read, and how far.
pub(super) struct Gathering<'a> {
    pub(super) root: &'a HeldRoot,
    pub(super) resolver: Resolver,
    pub(super) store: &'a dyn Store,
    /// `limit` is each file's.
    pub(super) bounds: &'a Bounds,
    pub(super) judge: &'a Judge<'a>,
    pub(super) progress: &'a Progress,
}

/// Something to be gathered: where it lies, and what it is called in the archive; nothing for what
/// the archive is of, whose files are called as they are below it.
pub(super) struct Wanted {
    pub(super) path: RelPath,
    pub(super) member: Option<RelPath>,
}

/// Files there are, by their names in the archive, and how many bytes they said they have.
#[derive(Default)]
struct Survey {
    files: Vec<(RelPath, RelPath)>,
    bytes: ByteCount,
}

impl Gathering<'_> {
    /// Adds everything that is wanted, directories with what is in them. `most` entries and the
    /// archive's ceiling are compared with what there is before anything is copied; `besides` is
    /// what else will be in it.
    ///
    /// # Errors
    /// [`TransferError::TooManyEntries`] and [`TransferError::TooLarge`] before anything is copied;
    /// [`TransferError::Spool`] when the archive passes its ceiling all the same or the disk is full;
    /// [`TransferError::Pinned`] for the directory an archive is of, and when the caller went away.
    pub(super) fn run(
        &self,
        wanted: Vec<Wanted>,
        archive: &mut Archive,
        most: usize,
        besides: ByteCount,
    ) -> Result<(), TransferError> {
        let mut survey = Survey::default();
        let mut left = most.saturating_sub(wanted.len());
        for one in wanted {
            let class = self.root.rules().names.judge(&one.path, None);
            match ((self.judge)(&class), &one.member) {
                (Err(class), Some(member)) => archive.leave_out(&member, class),
                (asks, _) => {
                    archive.asks |= asks == Ok(true);
                    self.survey(one, archive, &mut survey, &mut left, most)?;
                }
            }
        }
        let size = survey.bytes.saturating_add(besides);
        if size > archive.ceiling {
            return Err(TransferError::TooLarge {
                size: Some(size),
                limit: archive.ceiling,
                setting: "limits.file",
            });
        }
        let by_member = |one: &(RelPath, RelPath), other: &(RelPath, RelPath)| {
            one.1.as_bytes().cmp(other.1.as_bytes())
        };
        survey.files.sort_unstable_by(by_member);
        self.progress.expect(survey.files.len());
        for (path, member) in survey.files {
            match self.one(&path) {
                Ok((snapshot, asks)) => {
                    archive.add(&member, snapshot, asks, &self.bounds.cancel)?;
                }
                Err(Stop::LeftOut(class)) => archive.leave_out(&member, class),
                Err(Stop::End(error)) => return Err(*error),
            }
            self.progress.file_done();
        }
        Ok(())
    }

    /// Looks at what is wanted, and at everything in it; opens no file.
    fn survey(
        &self,
        wanted: Wanted,
        archive: &mut Archive,
        survey: &mut Survey,
        left: &mut usize,
        most: usize,
    ) -> Result<(), TransferError> {
        let mut open = vec![wanted];
        while let Some(Wanted { path, member }) = open.pop() {
            if self.bounds.cancel.is_fired() {
                return Err(PinnedError::Cancelled.into());
            }
            let looked = match &member {
                Some(_) => self.look(&path),
                // What the archive is of is a directory, and nothing without it.
                None => Err(PinnedError::NotRegular(Kind::Directory)),
            };
            let error = match (looked, &member) {
                (Ok(bytes), Some(member)) => {
                    survey.bytes = survey.bytes.saturating_add(bytes);
                    survey.files.push((path, member.clone()));
                    continue;
                }
                (Err(PinnedError::NotRegular(Kind::Directory)), _) => {
                    match self.root.list(&path, self.resolver, *left) {
                        Ok(listing) if listing.is_whole => {
                            *left = left.saturating_sub(listing.names.len());
                            for (name, _) in listing.names {
                                self.within(&path, member.as_ref(), &name, archive, &mut open);
                            }
                            continue;
                        }
                        Ok(_) => return Err(TransferError::TooManyEntries { most }),
                        Err(error) => error,
                    }
                }
                (Err(error), _) => error,
                (Ok(_), None) => continue,
            };
            match member {
                Some(member) => archive.leave_out(&member, final_class(error)?),
                None => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Notes one name of a directory as wanted, unless it never leaves.
    fn within(
        &self,
        directory: &RelPath,
        member: Option<&RelPath>,
        name: &[u8],
        archive: &mut Archive,
        open: &mut Vec<Wanted>,
    ) {
        let path = RelPath::parse(&[directory.as_bytes(), b"/", name].concat());
        let called = match member {
            Some(member) => [member.as_bytes(), b"/", name].concat(),
            None => name.to_vec(),
        };
        let (Ok(path), Ok(member)) = (path, RelPath::parse(&called)) else {
            return archive.leave_out(&Shown(&called), "name_too_long");
        };
        match self.root.rules().names.judge(&path, None) {
            NameClass::Denied(_) => archive.leave_out(&member, "denied_name"),
            NameClass::Ordinary | NameClass::Sensitive(_) => open.push(Wanted {
                path,
                member: Some(member),
            }),
        }
    }

    /// How many bytes a file says it has; opens nothing.
    fn look(&self, path: &RelPath) -> Result<ByteCount, PinnedError> {
        self.root.look(path, self.resolver, self.bounds.limit)
    }

    /// Copies one file.
    fn one(&self, path: &RelPath) -> Result<(Snapshot, bool), Stop> {
        let end = |error: TransferError| Stop::End(Box::new(error));
        let spool = self
            .store
            .spool(None, self.bounds.limit)
            .map_err(|error| end(error.into()))?
            .counted(self.progress.bytes());
        let snapshot = self
            .root
            .copy(path, self.resolver, spool, self.bounds)
            .map_err(|error| match final_class(error) {
                Ok(class) => Stop::LeftOut(class),
                Err(error) => end(error),
            })?;
        let class = self
            .root
            .rules()
            .names
            .judge(path, Some(snapshot.spool().len()));
        let asks = (self.judge)(&class).map_err(Stop::LeftOut)?;
        Ok((snapshot, asks))
    }
}

/// Why a file is not in an archive, or why there is none.
enum Stop {
    LeftOut(&'static str),
    End(Box<TransferError>),
}

/// The class of an error that concerns one file; the error where it ends the whole.
fn final_class(error: PinnedError) -> Result<&'static str, TransferError> {
    match error {
        PinnedError::Cancelled
        | PinnedError::Deadline
        | PinnedError::Resource(_)
        | PinnedError::Spool(_)
        | PinnedError::Unsupported(_)
        | PinnedError::Io { .. } => Err(error.into()),
        PinnedError::InvalidPath(_)
        | PinnedError::NameTooLong
        | PinnedError::NotFound
        | PinnedError::DeniedSymlink
        | PinnedError::DeniedMagicLink
        | PinnedError::DeniedEscape
        | PinnedError::DeniedMount
        | PinnedError::SymlinkLoop
        | PinnedError::NotRegular(_)
        | PinnedError::DeniedHardlink
        | PinnedError::DeniedOwner
        | PinnedError::OverLimit { .. }
        | PinnedError::Changed(_)
        | PinnedError::Busy(_)
        | PinnedError::PermissionDenied
        | PinnedError::RootReplaced => Ok(error.class()),
    }
}

fn of_zip(error: ZipError) -> TransferError {
    match error {
        ZipError::Spool(error) => error.into(),
        ZipError::Read(source) => SpoolError::Io(source).into(),
        ZipError::Changed => PinnedError::Changed("its copy changed").into(),
        ZipError::Cancelled => PinnedError::Cancelled.into(),
    }
}

/// For what is read into an archive block by block.
impl From<ZipError> for TransferError {
    fn from(error: ZipError) -> Self {
        of_zip(error)
    }
}
