//! The few calls for which no safe wrapper exists, each behind one.

#![expect(
    unsafe_code,
    reason = "a shared mapping and the tracer's start have no safe wrapper"
)]

use std::{os::fd::AsFd, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags};

/// A writable shared mapping of a file of our own, through which it can be changed unseen.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is only written through `&mut self`.
unsafe impl Send for SharedMapping {}

impl SharedMapping {
    /// Maps the first `len` bytes of `file`, which must be at least that long and stay so.
    pub(crate) fn new(file: impl AsFd, len: usize) -> std::io::Result<Self> {
        // SAFETY: a fresh mapping at an address the kernel picks overlaps nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Stores `bytes` at `offset`; what does not fit is left out.
    pub(crate) fn store(&mut self, offset: usize, bytes: &[u8]) {
        let room = self.len.saturating_sub(offset);
        let count = bytes.len().min(room);
        // SAFETY: `offset + count` is within the mapping, which lives as long as `self`; the source
        // is an ordinary slice and cannot overlap it. Other processes may look at the same pages,
        // which is the point; we never read them back.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.start.as_ptr().wrapping_add(offset),
                count,
            );
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, unmapped once.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "the mapping was ours");
    }
}
