//! A shared, writable mapping of a file: the way to change it that no write call shows.
#![expect(unsafe_code, reason = "mapping a file has no safe wrapper")]

use std::{fs::OpenOptions, os::fd::AsRawFd as _, path::Path, ptr};

pub(crate) struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    pub(crate) fn of(path: &Path) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        // SAFETY: a fresh mapping at an address the kernel chooses; the file is open.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self {
            start: start.cast(),
            length,
        }
    }

    /// Stores `content` from the mapping's start on.
    pub(crate) fn store(&self, content: &[u8]) {
        self.store_at(0, content);
    }

    /// Stores `content` from `offset` on.
    pub(crate) fn store_at(&self, offset: usize, content: &[u8]) {
        assert!(content.len() <= self.length && offset <= self.length - content.len());
        // SAFETY: the mapping goes on past `offset` for at least as long as `content`, and nothing in
        // this process holds a reference into it.
        unsafe {
            ptr::copy_nonoverlapping(content.as_ptr(), self.start.add(offset), content.len());
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, which nothing refers to any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
