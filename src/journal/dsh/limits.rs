use crate::{journal::page::PAGE_BYTES, model::ByteCount};

/// Bounds on what is read of a DSH home (I11). What passes one is refused with a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DshLimits {
    /// The longest line of a log.
    pub line: ByteCount,
    /// How deep a line's JSON may nest.
    pub depth: usize,
    /// The base-2 logarithm of the largest Zstandard window, in bytes.
    pub window_log: u32,
    /// What one Zstandard frame may hold when decoded.
    pub frame: ByteCount,
    /// What a log may hold when decoded.
    pub log: ByteCount,
    /// The most lines of a log.
    pub rows: u64,
    /// The most references, and the most declared paths, of a log.
    pub references: usize,
    /// The most entries of a session's folder.
    pub folder_entries: usize,
    /// The most project folders, and the most session folders in one of them.
    pub folders: usize,
    /// What the events of one page may sum up to; fewer events are given than asked for.
    pub page: ByteCount,
    /// The most events in one page.
    pub page_events: usize,
    /// The most directories watched for changes; the others are looked at in turn.
    pub watches: usize,
    /// What all indexes of logs kept in memory may sum up to.
    pub cache: ByteCount,
}

impl Default for DshLimits {
    fn default() -> Self {
        Self {
            line: ByteCount::mib(16),
            depth: 100,
            // 8 MiB: what RFC 8878 asks every decoder to support, and four times what DSH writes.
            window_log: 23,
            frame: ByteCount::mib(512),
            log: ByteCount::gib(4),
            rows: 10_000_000,
            references: 100_000,
            folder_entries: 1_000,
            folders: 100_000,
            page: ByteCount::new(PAGE_BYTES),
            page_events: 200,
            watches: 16_384,
            cache: ByteCount::mib(128),
        }
    }
}
