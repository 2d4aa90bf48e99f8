//! What every backend must do, as a suite that each of them runs.
//!
//! A backend's test makes a [`Rig`] (or a [`StoreRig`] where it takes content) and hands it to
//! [`objects`] (and [`store`]). A property that does not hold panics with its name. Compiled for
//! tests alone.

#![expect(
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    reason = "a test suite: it spoils files by name, and a broken promise is a panic"
)]

use std::{
    fmt,
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use bytes::Bytes;

use super::{
    CommitOutcome, Objects, Store, StoreError, Stored,
    verified::{Verified, Verifier},
};
use crate::model::{
    AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Cancel, Digest, FileName, Limits,
};

/// A way to spoil a stored object behind the backend's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// It is gone.
    Removed,
    /// A link to the same content stands in its place.
    Link,
    /// A link to nothing stands in its place.
    DanglingLink,
    /// A FIFO stands in its place; whoever opens it waits for ever.
    Fifo,
    /// A directory with something in it stands in its place.
    Directory,
    /// Its last byte is gone.
    Truncated,
    /// It is empty.
    Emptied,
    /// One byte follows its content.
    Grown,
    /// One bit at this offset is flipped.
    Flipped(u64),
    /// Another file of the same length stands in its place.
    Replaced,
}

impl Spoil {
    /// Every way to spoil content of `len` bytes, which is at least one.
    #[must_use]
    pub fn all(len: u64) -> Vec<Self> {
        vec![
            Self::Removed,
            Self::Link,
            Self::DanglingLink,
            Self::Fifo,
            Self::Directory,
            Self::Truncated,
            Self::Emptied,
            Self::Grown,
            Self::Flipped(0),
            Self::Flipped(len / 2),
            Self::Flipped(len.saturating_sub(1)),
            Self::Replaced,
        ]
    }

    /// Whether a descriptor opened before keeps reading the old content.
    #[must_use]
    pub fn leaves_the_file_alone(self) -> bool {
        match self {
            Self::Removed
            | Self::Link
            | Self::DanglingLink
            | Self::Fifo
            | Self::Directory
            | Self::Replaced
            | Self::Grown => true,
            Self::Truncated | Self::Emptied | Self::Flipped(_) => false,
        }
    }

    /// Spoils the object that is the file at `path`; for backends that keep files.
    pub fn file(self, path: &Path) {
        match self {
            Self::Removed => remove(path),
            Self::Link => {
                let away = path.with_extension("away");
                fs::rename(path, &away).expect("the object can be moved away");
                symlink(&away, path).expect("a link can be made");
            }
            Self::DanglingLink => {
                remove(path);
                symlink("nowhere", path).expect("a link can be made");
            }
            Self::Fifo => {
                remove(path);
                let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
                rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0)
                    .expect("a FIFO can be made");
            }
            Self::Directory => {
                remove(path);
                fs::create_dir(path).expect("a directory can be made");
                fs::write(path.join("in it"), b"").expect("a file can be made");
            }
            Self::Truncated => change(path, |file, len| file.set_len(len - 1)),
            Self::Emptied => change(path, |file, _| file.set_len(0)),
            Self::Grown => change(path, |file, len| file.write_all_at(b"!", len)),
            Self::Flipped(at) => change(path, |file, _| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at)?;
                file.write_all_at(&[byte[0] ^ 1], at)
            }),
            Self::Replaced => {
                let before = fs::metadata(path).expect("the object is there");
                let len = usize::try_from(before.len()).expect("a small object");
                remove(path);
                fs::write(path, vec![b'#'; len]).expect("a file can be made");
                fs::set_permissions(path, before.permissions()).expect("it is ours");
            }
        }
    }
}

fn remove(path: &Path) {
    fs::remove_file(path).expect("the object can be removed");
}

/// Changes the file itself, keeping its mode.
fn change(path: &Path, how: impl FnOnce(&File, u64) -> std::io::Result<()>) {
    let before = fs::metadata(path).expect("the object is there");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("it can be opened");
    how(&file, before.len()).expect("it can be changed");
    fs::set_permissions(path, before.permissions()).expect("it is ours");
}

/// A fresh backend with the power to spoil what it holds.
pub trait Rig {
    /// The backend.
    fn objects(&self) -> &dyn Objects;

    /// Puts `content` there by whatever means, under `name` where names matter.
    fn place(&self, content: &[u8], name: &FileName) -> AttachmentRef;

    /// Spoils the object; `false` when this backend's objects cannot be spoilt so.
    fn spoil(&self, reference: &AttachmentRef, how: Spoil) -> bool;
}

/// A rig whose backend takes content.
pub trait StoreRig: Rig {
    /// The backend.
    fn store(&self) -> &dyn Store;

    /// How many bad objects were set aside and kept.
    fn set_aside(&self) -> usize;
}

/// Content of `len` bytes that does not repeat from block to block.
#[must_use]
pub fn content(len: u64) -> Vec<u8> {
    (0..len)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)).to_le_bytes()[0])
        .collect()
}

fn name() -> FileName {
    FileName::parse("report.txt").expect("a plain name")
}

fn verified(rig: &dyn Rig, reference: &AttachmentRef) -> Result<Verified<super::Blob>, StoreError> {
    let blob = rig.objects().open(reference)?;
    Verifier::new(&Limits::default())?.verify(blob, &Cancel::new())
}

fn read(rig: &dyn Rig, reference: &AttachmentRef) -> Result<Vec<u8>, StoreError> {
    let mut blocks = verified(rig, reference)?.blocks(0..u64::MAX);
    let mut all = Vec::new();
    while let Some(block) = blocks.next()? {
        all.extend_from_slice(&block);
    }
    Ok(all)
}

/// What everything that holds objects must do.
pub fn objects<R: Rig>(make: impl Fn() -> R) {
    what_is_there_is_read(&make());
    what_is_absent_is_not_found(&make());
    another_length_gives_no_byte(&make());
    let content = content(600_000);
    for how in Spoil::all(600_000) {
        spoilt_before_the_request_gives_no_byte(&make(), &content, how);
        spoilt_during_a_transfer_gives_no_wrong_byte(&make(), &content, how);
    }
}

fn what_is_there_is_read(rig: &dyn Rig) {
    for len in [0, 1, 262_144, 262_145, 600_000] {
        let content = content(len);
        let reference = rig.place(&content, &name());
        let got = read(rig, &reference);
        assert!(
            matches!(&got, Ok(got) if *got == content),
            "what is there is read: {len} bytes: {:?}",
            got.err()
        );
    }
}

fn what_is_absent_is_not_found(rig: &dyn Rig) {
    let reference = AttachmentRef {
        id: AttachmentId::new(Digest::of(b"never placed")),
        name: Some(name()),
        bytes: ByteCount::new(12),
        kind: AttachmentKind::File,
    };
    let result = rig.objects().open(&reference);
    assert!(
        matches!(result, Err(StoreError::NotFound(_))),
        "what is absent is not found: {result:?}"
    );
}

fn another_length_gives_no_byte(rig: &dyn Rig) {
    let reference = rig.place(b"four", &name());
    for bytes in [0, 3, 5, u64::MAX] {
        let wrong = AttachmentRef {
            bytes: ByteCount::new(bytes),
            ..reference.clone()
        };
        let result = rig.objects().open(&wrong);
        assert!(
            matches!(result, Err(StoreError::LengthMismatch { .. })),
            "another length gives no byte: {bytes}: {result:?}"
        );
    }
}

/// Keeps I4.
fn spoilt_before_the_request_gives_no_byte(rig: &dyn Rig, content: &[u8], how: Spoil) {
    let reference = rig.place(content, &name());
    if !rig.spoil(&reference, how) {
        return;
    }
    let result = verified(rig, &reference);
    assert!(
        matches!(
            result,
            Err(StoreError::NotFound(_)
                | StoreError::NotAnObject(_)
                | StoreError::LengthMismatch { .. }
                | StoreError::DigestMismatch(_))
        ),
        "spoilt before the request gives no byte: {how:?}: {result:?}"
    );
}

/// Keeps I4.
fn spoilt_during_a_transfer_gives_no_wrong_byte(rig: &dyn Rig, content: &[u8], how: Spoil) {
    let reference = rig.place(content, &name());
    let verified = verified(rig, &reference).expect("it was placed");
    let mut blocks = verified.blocks(0..u64::MAX);
    let first = blocks
        .next()
        .expect("it is whole")
        .expect("it is not empty");
    let mut got = first.to_vec();
    if !rig.spoil(&reference, how) {
        return;
    }
    let end = loop {
        match blocks.next() {
            Ok(Some(block)) => got.extend_from_slice(&Bytes::clone(&block)),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert!(
        content.starts_with(&got),
        "spoilt during a transfer gives no wrong byte: {how:?}"
    );
    match end {
        Ok(()) => assert!(got == content, "short, but ended as if whole: {how:?}"),
        Err(StoreError::Changed(_)) => {
            assert!(!how.leaves_the_file_alone(), "cut without need: {how:?}");
        }
        Err(other) => panic_with(&how, &other),
    }
}

/// What everything that takes content must do.
pub fn store<R: StoreRig + Sync>(make: impl Fn() -> R) {
    what_is_committed_is_durable_and_read_back(&make());
    the_same_bytes_from_many_at_once_are_one_object(&make());
    the_same_bytes_from_many_at_once_heal_once(&make());
    content_over_the_limit_is_refused(&make());
    let content = content(300_000);
    for how in Spoil::all(300_000) {
        the_same_bytes_heal_a_spoilt_object(&make(), &content, how);
    }
}

fn put(store: &dyn Store, content: &[u8]) -> Result<Stored, StoreError> {
    let mut spool = store.spool(None, ByteCount::mib(16))?;
    for piece in content.chunks(100_000) {
        spool.write(piece)?;
    }
    store.commit(spool.finish())
}

fn reference_to(content: &[u8]) -> AttachmentRef {
    AttachmentRef {
        id: AttachmentId::new(Digest::of(content)),
        name: None,
        bytes: content.len().into(),
        kind: AttachmentKind::File,
    }
}

fn committed(rig: &impl StoreRig, content: &[u8], what: impl fmt::Debug) -> CommitOutcome {
    let stored = put(rig.store(), content);
    let stored = stored.unwrap_or_else(|error| panic_with(&what, &error));
    assert_eq!(stored.digest(), Digest::of(content), "{what:?}");
    assert_eq!(stored.len(), content.len().into(), "{what:?}");
    stored.outcome()
}

#[expect(clippy::panic, reason = "a broken promise is a panic")]
fn panic_with(what: &dyn fmt::Debug, error: &StoreError) -> ! {
    panic!("{what:?}: {error:?}")
}

fn what_is_committed_is_durable_and_read_back(rig: &impl StoreRig) {
    for len in [0, 1, 262_144, 600_000] {
        let content = content(len);
        assert_eq!(committed(rig, &content, len), CommitOutcome::Created);
        assert_eq!(committed(rig, &content, len), CommitOutcome::Deduplicated);
        let got = read(rig, &reference_to(&content));
        assert!(matches!(&got, Ok(got) if *got == content), "{len}");
    }
    assert_eq!(rig.set_aside(), 0, "a good copy is never set aside");
}

/// Keeps I5 and I12, as no other store we know of does (`spec/store.md` 0.1).
fn the_same_bytes_heal_a_spoilt_object(rig: &impl StoreRig, content: &[u8], how: Spoil) {
    committed(rig, content, how);
    let reference = reference_to(content);
    if !rig.spoil(&reference, how) {
        return;
    }
    let (expected, aside) = if how == Spoil::Removed {
        (CommitOutcome::Created, 0)
    } else {
        (CommitOutcome::Healed, 1)
    };
    assert_eq!(committed(rig, content, how), expected, "{how:?}");
    assert_eq!(rig.set_aside(), aside, "the bad copy is kept: {how:?}");
    let got = read(rig, &reference);
    assert!(matches!(&got, Ok(got) if got == content), "{how:?}");
}

fn the_same_bytes_from_many_at_once_are_one_object<R: StoreRig + Sync>(rig: &R) {
    let content = content(300_000);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| committed(rig, &content, "many at once")))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .collect()
    });
    let created = outcomes.iter().filter(|o| **o == CommitOutcome::Created);
    assert_eq!(created.count(), 1, "{outcomes:?}");
    assert_eq!(rig.set_aside(), 0, "a good copy is never set aside");
    assert!(read(rig, &reference_to(&content)).is_ok_and(|got| got == content));
}

fn the_same_bytes_from_many_at_once_heal_once<R: StoreRig + Sync>(rig: &R) {
    let content = content(300_000);
    committed(rig, &content, "before");
    if !rig.spoil(&reference_to(&content), Spoil::Flipped(150_000)) {
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| committed(rig, &content, "many at once heal"));
        }
    });
    assert_eq!(rig.set_aside(), 1, "one bad copy is set aside once");
    assert!(read(rig, &reference_to(&content)).is_ok_and(|got| got == content));
}

fn content_over_the_limit_is_refused(rig: &impl StoreRig) {
    let limit = ByteCount::new(10);
    let declared = rig.store().spool(Some(ByteCount::new(11)), limit);
    assert!(
        matches!(declared, Err(StoreError::OverLimit { .. })),
        "a declared length over the limit is refused: {declared:?}"
    );
    let mut spool = rig.store().spool(None, limit).expect("there is room");
    assert!(spool.write(&[0; 11]).is_err(), "one byte more is refused");
}
