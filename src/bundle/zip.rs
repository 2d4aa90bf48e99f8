use std::{io, os::unix::fs::FileExt as _};

use thiserror::Error;

use super::MemberName;
use crate::{
    model::{ByteCount, Cancel},
    spool::{Spool, SpoolError, SpoolWriter},
};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
/// The extra field that holds what does not fit 32 bits.
const ZIP_64: u16 = 0x0001;
/// What a 32-bit or 16-bit field says when the real value stands in the 64-bit form.
const ELSEWHERE_32: u32 = u32::MAX;
const ELSEWHERE_16: u16 = u16::MAX;
/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;
/// The first day the format knows: an archive says nothing about when it was made.
const DATE: u16 = (1 << 5) | 1;
/// Made on Unix, so that the mode bits count.
const MADE_BY: u16 = (3 << 8) | VERSION_64;
const VERSION: u16 = 20;
const VERSION_64: u16 = 45;
const BLOCK: usize = 256 * 1024;

/// Why an archive was not made.
#[derive(Debug, Error)]
pub enum ZipError {
    /// The archive would be larger than allowed, or the filesystem has no room.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// A member could not be read back.
    #[error("reading a member failed")]
    Read(#[source] io::Error),
    /// A member was not what it had been a moment before.
    #[error("a member changed while it was read")]
    Changed,
    /// Somebody no longer wants it.
    #[error("cancelled")]
    Cancelled,
}

/// Takes one block of a member.
pub type Take<'a> = dyn FnMut(&[u8]) -> Result<(), ZipError> + 'a;

/// Length and checksum of what went by.
#[derive(Default)]
struct Sum {
    len: u64,
    crc: crc32fast::Hasher,
}

impl Sum {
    fn take(&mut self, block: &[u8]) {
        self.len = self.len.saturating_add(ByteCount::from(block.len()).get());
        self.crc.update(block);
    }

    fn of(self, len: ByteCount) -> Result<u32, ZipError> {
        if self.len != len.get() {
            return Err(ZipError::Changed);
        }
        Ok(self.crc.finalize())
    }
}

/// A member that was written, as the directory at the end lists it.
#[derive(Clone, Debug)]
struct Entry {
    name: MemberName,
    executable: bool,
    crc: u32,
    len: u64,
    offset: u64,
}

/// An archive being written.
#[derive(Debug)]
pub struct ZipWriter {
    spool: SpoolWriter,
    entries: Vec<Entry>,
}

impl ZipWriter {
    /// Writes into an empty spool, whose limit is the archive's.
    #[must_use]
    pub fn new(spool: SpoolWriter) -> Self {
        Self {
            spool,
            entries: Vec::new(),
        }
    }

    /// Adds a finished spool's content. Blocks; `cancel` is asked between blocks.
    ///
    /// # Errors
    /// [`ZipError`]; the archive can only be dropped then.
    pub fn add(
        &mut self,
        name: MemberName,
        executable: bool,
        content: &Spool,
        cancel: &Cancel,
    ) -> Result<(), ZipError> {
        self.add_from(name, executable, content.len(), |take| {
            each_block(content, cancel, take)
        })
    }

    /// Adds what `read` hands over, block by block. It is called twice: length and checksum stand before
    /// the content, so that readers that do not seek know them.
    ///
    /// # Errors
    /// What `read` says; [`ZipError::Changed`] when it hands over other bytes than `len`, or others the
    /// second time. The archive can only be dropped then.
    pub fn add_from<E: From<ZipError>>(
        &mut self,
        name: MemberName,
        executable: bool,
        len: ByteCount,
        mut read: impl FnMut(&mut Take<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut crc = Sum::default();
        read(&mut |block| {
            crc.take(block);
            Ok(())
        })?;
        let crc = crc.of(len)?;
        let entry = Entry {
            name,
            executable,
            crc,
            len: len.get(),
            offset: self.spool.len().get(),
        };
        self.spool.write(&entry.local()).map_err(ZipError::from)?;
        let (spool, mut written) = (&mut self.spool, Sum::default());
        read(&mut |block| {
            written.take(block);
            Ok(spool.write(block)?)
        })?;
        if written.of(len)? != crc {
            return Err(ZipError::Changed.into());
        }
        self.entries.push(entry);
        Ok(())
    }

    /// How many bytes the archive would have if it ended now.
    #[must_use]
    pub fn len(&self) -> ByteCount {
        let central: usize = self.entries.iter().map(|entry| entry.central().len()).sum();
        let (start, central) = (self.spool.len(), ByteCount::from(central));
        let end = End {
            entries: self.entries.len(),
            start: start.get(),
            len: central.get(),
        };
        start
            .saturating_add(central)
            .saturating_add(end.bytes().len().into())
    }

    /// Whether nothing was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes the directory and ends the archive.
    ///
    /// # Errors
    /// [`ZipError::Spool`].
    pub fn finish(mut self) -> Result<Spool, ZipError> {
        let start = self.spool.len().get();
        for entry in &self.entries {
            self.spool.write(&entry.central())?;
        }
        let end = End {
            entries: self.entries.len(),
            start,
            len: self.spool.len().get().saturating_sub(start),
        };
        self.spool.write(&end.bytes())?;
        Ok(self.spool.finish())
    }
}

/// Reads a spool from its start to its length, block by block.
fn each_block(content: &Spool, cancel: &Cancel, take: &mut Take<'_>) -> Result<(), ZipError> {
    let mut buffer = vec![0; BLOCK];
    let mut at = 0_u64;
    while at < content.len().get() {
        if cancel.is_fired() {
            return Err(ZipError::Cancelled);
        }
        let left = content.len().get().saturating_sub(at);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
        let block = buffer.get_mut(..wanted).unwrap_or_default();
        content
            .file()
            .read_exact_at(block, at)
            .map_err(ZipError::Read)?;
        take(block)?;
        at = at.saturating_add(ByteCount::from(wanted).get());
    }
    Ok(())
}

/// Fields one after the other, least octet first.
#[derive(Default)]
struct Record(Vec<u8>);

impl Record {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// The value for a 32-bit field, and whether it has to stand in the 64-bit form instead.
fn narrow(value: u64) -> (u32, bool) {
    match u32::try_from(value) {
        Ok(narrow) if narrow != ELSEWHERE_32 => (narrow, false),
        Ok(_) | Err(_) => (ELSEWHERE_32, true),
    }
}

fn length(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).unwrap_or(ELSEWHERE_16)
}

impl Entry {
    /// What both headers say alike, up to the length of the name.
    fn common(&self, record: Record, wide: bool) -> Record {
        let (len, _) = narrow(self.len);
        record
            .u16(if wide { VERSION_64 } else { VERSION })
            .u16(FLAGS)
            .u16(0) // stored
            .u16(0) // midnight
            .u16(DATE)
            .u32(self.crc)
            .u32(len)
            .u32(len)
            .u16(length(self.name.as_bytes()))
    }

    fn local(&self) -> Vec<u8> {
        let (_, wide) = narrow(self.len);
        let extra = if wide {
            Record::default()
                .u16(ZIP_64)
                .u16(16)
                .u64(self.len)
                .u64(self.len)
                .0
        } else {
            Vec::new()
        };
        self.common(Record::default().u32(LOCAL), wide)
            .u16(length(&extra))
            .bytes(self.name.as_bytes())
            .bytes(&extra)
            .0
    }

    fn central(&self) -> Vec<u8> {
        let (_, wide_len) = narrow(self.len);
        let (offset, wide_offset) = narrow(self.offset);
        let mut values = Record::default();
        if wide_len {
            values = values.u64(self.len).u64(self.len);
        }
        if wide_offset {
            values = values.u64(self.offset);
        }
        let extra = if values.0.is_empty() {
            Vec::new()
        } else {
            Record::default()
                .u16(ZIP_64)
                .u16(length(&values.0))
                .bytes(&values.0)
                .0
        };
        let mode: u32 = if self.executable {
            0o100_755
        } else {
            0o100_644
        };
        self.common(
            Record::default().u32(CENTRAL).u16(MADE_BY),
            !extra.is_empty(),
        )
        .u16(length(&extra))
        .u16(0) // no comment
        .u16(0) // the first disk
        .u16(0) // no text
        .u32(mode << 16)
        .u32(offset)
        .bytes(self.name.as_bytes())
        .bytes(&extra)
        .0
    }
}

/// The end of an archive.
struct End {
    entries: usize,
    start: u64,
    len: u64,
}

impl End {
    fn bytes(&self) -> Vec<u8> {
        let (start, wide_start) = narrow(self.start);
        let (len, wide_len) = narrow(self.len);
        let entries = u16::try_from(self.entries).unwrap_or(ELSEWHERE_16);
        let mut record = Record::default();
        if wide_start || wide_len || entries == ELSEWHERE_16 {
            let entries = u64::try_from(self.entries).unwrap_or(u64::MAX);
            let here = self.start.saturating_add(self.len);
            record = record
                .u32(END_64)
                .u64(44) // what follows of this record
                .u16(MADE_BY)
                .u16(VERSION_64)
                .u32(0)
                .u32(0)
                .u64(entries)
                .u64(entries)
                .u64(self.len)
                .u64(self.start)
                .u32(LOCATOR_64)
                .u32(0)
                .u64(here)
                .u32(1);
        }
        record
            .u32(END)
            .u16(0)
            .u16(0)
            .u16(entries)
            .u16(entries)
            .u32(len)
            .u32(start)
            .u16(0) // no comment
            .0
    }
}

#[cfg(test)]
mod tests {
    use super::{END_64, End, Entry, LOCATOR_64, VERSION, VERSION_64, ZipWriter};
    use crate::{
        bundle::{MemberName, Names},
        model::{ByteCount, Cancel, Digest},
        spool::{Spool, SpoolDir, SpoolError},
    };

    fn spools() -> SpoolDir {
        let dir = std::env::temp_dir();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        SpoolDir::new(rustix::fs::open(dir, flags, rustix::fs::Mode::empty()).unwrap())
    }

    fn content(bytes: &[u8]) -> Spool {
        let mut spool = spools().create(ByteCount::mib(4)).unwrap();
        spool.write(bytes).unwrap();
        spool.finish()
    }

    fn archive(limit: ByteCount) -> ZipWriter {
        ZipWriter::new(spools().create(limit).unwrap())
    }

    fn name(text: &str) -> MemberName {
        let path = crate::model::RelPath::parse(text.as_bytes()).unwrap();
        Names::default().take(&path)
    }

    fn has(bytes: &[u8], signature: u32) -> bool {
        let signature = signature.to_le_bytes();
        bytes.windows(4).any(|window| window == signature)
    }

    #[test]
    fn the_same_files_make_the_same_archive_of_the_length_told_before() {
        let make = || {
            let mut archive = archive(ByteCount::mib(1));
            for (path, bytes) in [("a.txt", &b"one"[..]), ("d/b.bin", &[0; 7_000])] {
                let spool = content(bytes);
                archive
                    .add(name(path), false, &spool, &Cancel::new())
                    .unwrap();
            }
            let told = archive.len();
            let spool = archive.finish().unwrap();
            assert_eq!(told, spool.len());
            spool.digest()
        };
        assert_eq!(make(), make());
    }

    #[test]
    fn an_archive_past_its_limit_is_refused_not_cut() {
        let mut archive = archive(ByteCount::kib(1));
        let spool = content(&[7; 2048]);
        let refused = archive.add(name("a"), false, &spool, &Cancel::new());
        assert!(matches!(
            refused,
            Err(super::ZipError::Spool(SpoolError::OverLimit { .. }))
        ));
    }

    #[test]
    fn a_cancelled_archive_ends_between_blocks() {
        let cancel = Cancel::new();
        cancel.fire();
        let refused = archive(ByteCount::mib(1)).add(name("a"), false, &content(b"x"), &cancel);
        assert!(matches!(refused, Err(super::ZipError::Cancelled)));
    }

    /// Z04: the 64-bit forms stand where a value needs them and nowhere else.
    #[test]
    fn z04_sixty_four_bits_only_where_they_are_needed() {
        let four_gib = u64::from(u32::MAX);
        for (len, offset, local, central) in [
            (10, 10, false, false),
            (four_gib - 1, four_gib - 1, false, false),
            (four_gib, 10, true, true),
            (10, four_gib, false, true),
            (four_gib + 1, four_gib + 1, true, true),
        ] {
            let entry = Entry {
                name: name("a"),
                executable: false,
                crc: 7,
                len,
                offset,
            };
            let [l, c] = [entry.local(), entry.central()];
            let version = |wide| if wide { VERSION_64 } else { VERSION }.to_le_bytes();
            assert_eq!(
                (l.len() > 31, &l[4..6]),
                (local, &version(local)[..]),
                "{len} {offset}"
            );
            assert_eq!(
                (c.len() > 47, &c[6..8]),
                (central, &version(central)[..]),
                "{len} {offset}"
            );
        }
        for (entries, start, wide) in [
            (10, 10, false),
            (65_534, four_gib - 1, false),
            (65_535, 10, true),
            (10, four_gib, true),
        ] {
            let end = End {
                entries,
                start,
                len: 100,
            }
            .bytes();
            assert_eq!(
                has(&end, END_64) && has(&end, LOCATOR_64),
                wide,
                "{entries} {start}"
            );
        }
    }

    /// Z06: members are 0644 or 0755 and nothing else.
    #[test]
    fn z06_the_executable_bit_is_kept_and_no_other() {
        for (executable, mode) in [(false, 0o100_644_u32), (true, 0o100_755)] {
            let entry = Entry {
                name: name("a"),
                executable,
                crc: 0,
                len: 0,
                offset: 0,
            };
            assert_eq!(entry.central()[38..42], (mode << 16).to_le_bytes());
        }
    }

    #[test]
    fn an_empty_archive_is_one() {
        let spool = archive(ByteCount::kib(1)).finish().unwrap();
        assert_eq!(spool.len(), ByteCount::new(22));
        assert_ne!(spool.digest(), Digest::of(b""));
    }
}
