//! Keyed tags of an object's blocks, and the blocks they are of.

use std::fs::File;

use highway::{HighwayHash as _, HighwayHasher, Key};
use rustix::io::Errno;

use crate::{
    model::{ByteCount, Digest},
    store::StoreError,
};

/// The length of a block, except in objects so large that their tags would pass [`MOST_TAGS`].
pub(super) const BLOCK: u64 = 256 * 1024;
/// Blocks grow up to this length, and no further.
const LARGEST_BLOCK: u64 = 4 * 1024 * 1024;
/// The most tags an object has while its blocks can still grow: 1 MiB of them.
const MOST_TAGS: u64 = 65_536;
/// What an entry is charged beside its tags.
pub(super) const ENTRY: usize = 256;

pub(super) type Tag = [u64; 2];

/// The keyed tags of an object's blocks.
pub(super) struct Tags {
    pub(super) block: u64,
    pub(super) tags: Box<[Tag]>,
}

impl Tags {
    pub(super) fn cost(&self) -> usize {
        ENTRY.saturating_add(size_of_val(&*self.tags))
    }
}

/// The block length for content of `len` bytes: the tags stay within 1 MiB up to 256 GiB.
pub(super) fn block_for(len: u64) -> u64 {
    let mut block = BLOCK;
    while block < LARGEST_BLOCK && len.div_ceil(block) > MOST_TAGS {
        block *= 2;
    }
    block
}

pub(super) fn tag_of(key: &Key, block: &[u8]) -> Tag {
    HighwayHasher::new(*key).hash128(block)
}

/// Reads exactly `want` bytes, at most a block; fewer are there only if somebody cut the file.
pub(super) fn read_block(
    file: &File,
    digest: Digest,
    offset: u64,
    want: u64,
    buffer: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let want = usize::try_from(want.min(LARGEST_BLOCK)).unwrap_or_default();
    buffer.clear();
    buffer.reserve_exact(want);
    while buffer.len() < want {
        let at = offset.saturating_add(ByteCount::from(buffer.len()).get());
        match rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), at) {
            Ok(0) => return Err(StoreError::Changed(digest)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(StoreError::from_io("reading an object", errno.into())),
        }
    }
    buffer.truncate(want);
    Ok(())
}
