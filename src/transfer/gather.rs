//! A directory as one archive: each file pinned, copied and shown to have stood still like any other, and
//! what had to be left out named in a manifest.
//!
//! Runs on the root's own threads. Every name is resolved anew from the root, so that whoever swaps one
//! meanwhile gets it left out, or what is pinned at that moment.

use serde::Serialize;

use super::{HeldRoot, TransferError};
use crate::{
    bundle::{Names, ZipError, ZipWriter},
    model::{AttachmentId, ByteCount, RelPath},
    pinned::{Bounds, Grade, PinnedError, Resolver, Snapshot},
    policy::NameClass,
    spool::{Spool, SpoolError},
    store::Store,
};

/// The most files and directories of one archive.
pub(super) const MOST_ENTRIES: usize = 10_000;
/// What the list of an archive is called in it.
const MANIFEST: &[u8] = b"holdfast-manifest.json";

/// Whether a file may leave, and whether somebody has to say so first; or the word for why not.
pub(super) type Judge<'a> = dyn Fn(&NameClass<'_>) -> Result<bool, &'static str> + 'a;

/// An archive of a directory.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) spool: Spool,
    /// The weakest of its files.
    pub(super) grade: Grade,
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
    grade: &'static str,
}

#[derive(Debug, Serialize)]
struct LeftOut {
    path: String,
    class: &'static str,
}

/// What is read, and how far.
pub(super) struct Gathering<'a> {
    pub(super) root: &'a HeldRoot,
    pub(super) resolver: Resolver,
    pub(super) store: &'a dyn Store,
    /// `limit` is each file's.
    pub(super) bounds: &'a Bounds,
    /// The largest archive.
    pub(super) ceiling: ByteCount,
    pub(super) judge: &'a Judge<'a>,
}

impl Gathering<'_> {
    /// Makes the archive of the directory at `top`.
    ///
    /// # Errors
    /// [`TransferError::TooManyEntries`] before anything is copied; [`TransferError::Spool`] when the
    /// archive would pass its ceiling or the disk is full; [`TransferError::Pinned`] for the directory
    /// itself, and when the caller went away.
    pub(super) fn run(&self, top: &RelPath) -> Result<Gathered, TransferError> {
        let mut manifest = Manifest::default();
        let files = self.survey(top, &mut manifest)?;
        let mut zip = ZipWriter::new(self.store.spool(None, self.ceiling)?);
        let mut names = Names::default();
        let listed = RelPath::parse(MANIFEST).map_err(PinnedError::InvalidPath)?;
        let manifest_name = names.take(&listed);
        let (mut grade, mut asks) = (None::<Grade>, false);
        for path in files {
            let beneath = below(top, &path)?;
            let (snapshot, asked) = match self.one(&path) {
                Ok(copied) => copied,
                Err(Stop::LeftOut(class)) => {
                    manifest.leave_out(&beneath, class);
                    continue;
                }
                Err(Stop::End(error)) => return Err(*error),
            };
            let (content, evidence) = snapshot.into_parts();
            let name = names.take(&beneath);
            manifest.files.push(Listed {
                path: beneath.to_string(),
                name: name.as_str().to_owned(),
                attachment_id: AttachmentId::new(content.digest()),
                bytes: content.len().get(),
                grade: evidence.grade.name(),
            });
            zip.add(
                name,
                evidence.facts.is_executable(),
                &content,
                &self.bounds.cancel,
            )
            .map_err(of_zip)?;
            asks |= asked;
            grade = Some(grade.map_or(evidence.grade, |grade| grade.min(evidence.grade)));
        }
        manifest
            .left_out
            .sort_by(|one, other| one.path.cmp(&other.path));
        let mut list = self.store.spool(None, self.ceiling)?;
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| of_zip(ZipError::Read(error.into())))?;
        list.write(&text)?;
        zip.add(manifest_name, false, &list.finish(), &self.bounds.cancel)
            .map_err(of_zip)?;
        Ok(Gathered {
            spool: zip.finish().map_err(of_zip)?,
            grade: grade.unwrap_or(Grade::Stamped),
            asks,
        })
    }

    /// The paths of everything that is no directory, in order; counted before anything is copied.
    fn survey(
        &self,
        top: &RelPath,
        manifest: &mut Manifest,
    ) -> Result<Vec<RelPath>, TransferError> {
        let (mut files, mut left) = (Vec::new(), MOST_ENTRIES);
        let mut directories = vec![top.clone()];
        while let Some(directory) = directories.pop() {
            if self.bounds.cancel.is_fired() {
                return Err(PinnedError::Cancelled.into());
            }
            let listing = match self.root.list(&directory, self.resolver, left) {
                Ok(listing) => listing,
                Err(error) if directory == *top => return Err(error.into()),
                Err(error) => {
                    manifest.leave_out(&below(top, &directory)?, final_class(error)?);
                    continue;
                }
            };
            if !listing.is_whole {
                return Err(TransferError::TooManyEntries { most: MOST_ENTRIES });
            }
            left = left.saturating_sub(listing.names.len());
            for (name, is_directory) in listing.names {
                let whole = [directory.as_bytes(), b"/", &name].concat();
                let Ok(path) = RelPath::parse(&whole) else {
                    let shown = String::from_utf8_lossy(&name).escape_default().to_string();
                    manifest.left_out.push(LeftOut {
                        path: shown,
                        class: "name_too_long",
                    });
                    continue;
                };
                if let NameClass::Denied(_) = self.root.rules().names.judge(&path, None) {
                    manifest.leave_out(&below(top, &path)?, "denied_name");
                } else if is_directory {
                    directories.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        Ok(files)
    }

    /// Copies one file.
    fn one(&self, path: &RelPath) -> Result<(Snapshot, bool), Stop> {
        let end = |error: TransferError| Stop::End(Box::new(error));
        let spool = self
            .store
            .spool(None, self.bounds.limit)
            .map_err(|error| end(error.into()))?;
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

impl Manifest {
    fn leave_out(&mut self, path: &RelPath, class: &'static str) {
        self.left_out.push(LeftOut {
            path: path.to_string(),
            class,
        });
    }
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

/// `path` as it is called below `top`.
fn below(top: &RelPath, path: &RelPath) -> Result<RelPath, TransferError> {
    let rest = path
        .as_bytes()
        .strip_prefix(top.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"/"))
        .unwrap_or(path.as_bytes());
    RelPath::parse(rest).map_err(|error| PinnedError::InvalidPath(error).into())
}

fn of_zip(error: ZipError) -> TransferError {
    match error {
        ZipError::Spool(error) => error.into(),
        ZipError::Read(source) => SpoolError::Io(source).into(),
        ZipError::Cancelled => PinnedError::Cancelled.into(),
    }
}
