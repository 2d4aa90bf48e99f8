#![forbid(unsafe_code)]

use std::{thread, time::Duration};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{SeekFrom, seek},
    io::{Errno, fcntl_dupfd_cloexec, pread},
    time::{ClockId, clock_gettime},
};

use super::{
    Bounds, Evidence, Facts, Grade, HardLinks, Leases, PinnedError, Seam, Snapshot, Step,
    file::OpenFile,
    filesystem::Filesystem,
    flush::Work,
    lease::{Lease, Taken},
};
use crate::{
    model::{ByteCount, Digester},
    spool::SpoolWriter,
};

/// Bytes per read. A constant: nothing is sized from what a file claims.
const CHUNK: usize = 256 * 1024;

/// How long a read waits for a coarse clock to pass a file's last change.
const QUIET: Duration = Duration::from_millis(100);

impl OpenFile<'_> {
    /// Copies the file into an unlinked spool and hashes it on the way, in the best grade that the
    /// filesystem and the root's policy allow.
    ///
    /// The spool comes back with its length in bytes and its SHA-256. Blocks; call it from the file
    /// pool.
    ///
    /// # Errors
    /// [`PinnedError::OverLimit`] past the limit; [`PinnedError::Changed`] if length, times, names
    /// or owner moved between the first and the last look, or a lease broke (a rename moves the
    /// times too: refusing is intended); [`PinnedError::DeniedHardlink`] and
    /// [`PinnedError::DeniedOwner`] by policy; [`PinnedError::Busy`] when flushing took too long;
    /// [`PinnedError::Unsupported`] when no grade the policy accepts is possible here;
    /// [`PinnedError::Cancelled`] and [`PinnedError::Deadline`] between reads;
    /// [`PinnedError::Spool`] when the copy could not be written.
    ///
    /// # Source
    /// `statx(2)`, `pread(2)`, `fdatasync(2)`, `lseek(2)`, `ioctl_ficlone(2)`, leases of
    /// `fcntl(2)`. Keeps I4 and I11.
    pub fn copy_to<S: Seam>(
        self,
        mut spool: SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<Snapshot, PinnedError> {
        bounds.check()?;
        let (grade, facts) = self.copy_best(&mut spool, bounds, seam)?;
        let evidence = Evidence {
            resolver: self.resolver,
            grade,
            facts,
        };
        Ok(Snapshot::new(spool.finish(), evidence))
    }

    fn copy_best<S: Seam>(
        &self,
        spool: &mut SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<(Grade, Facts), PinnedError> {
        let root = self.place.root();
        let lowest = root.policy().stability;
        let filesystem = root.filesystem_of(&self.file)?;
        if filesystem.clones()
            && Filesystem::of(spool.file())? == filesystem
            && let Some(facts) = self.clone_to(spool, bounds, seam)?
        {
            return Ok((Grade::Clone, facts));
        }
        if lowest <= Grade::Lease && root.policy().leases == Leases::Try {
            match Lease::take(&self.file) {
                Taken::Held(lease) => {
                    let facts = self.copy_leased(&lease, spool, bounds, seam)?;
                    return Ok((Grade::Lease, facts));
                }
                Taken::Writers if lowest == Grade::Lease => {
                    return Err(PinnedError::Busy("somebody has the file open for writing"));
                }
                Taken::Writers | Taken::Impossible => {}
            }
        }
        if lowest <= Grade::Stamped && filesystem.stamps() {
            let facts = self.copy_stamped(spool, bounds, seam)?;
            return Ok((Grade::Stamped, facts));
        }
        if lowest <= Grade::DoubleRead {
            let facts = self.copy_twice(spool, bounds, seam)?;
            return Ok((Grade::DoubleRead, facts));
        }
        Err(PinnedError::Unsupported(
            "the filesystem cannot show that the file stood still as surely as the root asks",
        ))
    }

    /// An atomic copy; none when the two files cannot share blocks after all.
    fn clone_to<S: Seam>(
        &self,
        spool: &mut SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<Option<Facts>, PinnedError> {
        let before = self.first_look(seam)?;
        let work = Work::Clone {
            source: duplicate(&self.file)?,
            target: duplicate(spool.file())?,
        };
        match self.place.root().flusher().run(work, bounds)? {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY) => return Ok(None),
            Err(Errno::NOSPC | Errno::DQUOT) => {
                return Err(PinnedError::Spool(
                    std::io::Error::from(Errno::NOSPC).into(),
                ));
            }
            Err(errno) => return Err(PinnedError::from_errno("cloning a pinned file", errno)),
        }
        seam.at(Step::Cloned);
        // The bytes are those of one moment whatever happens to the file from here on; only its
        // names must have stood still until that moment.
        if self.place.root().policy().hard_links == HardLinks::Deny {
            self.last_look(&before)?;
        }
        spool.adopt(|| bounds.check())?;
        seam.at(Step::Copied);
        bounds.check()?;
        Ok(Some(Facts {
            size: spool.len(),
            ..before
        }))
    }

    /// Nobody can have the file open or mapped for writing while the lease is whole.
    fn copy_leased<S: Seam>(
        &self,
        lease: &Lease<'_>,
        spool: &mut SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<Facts, PinnedError> {
        seam.at(Step::Leased);
        let before = self.first_look(seam)?;
        // Asked between reads, so that whoever waits for the lease waits for one read at most.
        let whole = || lease.check().and_then(|()| bounds.check());
        self.copy(spool, bounds, seam, whole)?;
        seam.at(Step::Copied);
        whole()?;
        self.settle(&before, spool)
    }

    /// In this order: the first look; a wait for writes under way, which move the times when they
    /// begin; a flush, after which a store through a mapping moves them too; the reads; the last
    /// look. With the flush before the first look a writer could dirty the page in between and then
    /// store unseen.
    fn copy_stamped<S: Seam>(
        &self,
        spool: &mut SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<Facts, PinnedError> {
        let before = self.first_look(seam)?;
        if self.place.root().has_coarse_times() {
            wait_until_past(&before, bounds)?;
        }
        self.wait_for_writes()?;
        let work = Work::Flush(duplicate(&self.file)?);
        self.place
            .root()
            .flusher()
            .run(work, bounds)?
            .map_err(|errno| PinnedError::from_errno("flushing a pinned file", errno))?;
        seam.at(Step::Flushed);
        self.copy(spool, bounds, seam, || bounds.check())?;
        seam.at(Step::Copied);
        bounds.check()?;
        self.settle(&before, spool)
    }

    /// Two passes must agree. Evidence, where nothing better is to be had.
    fn copy_twice<S: Seam>(
        &self,
        spool: &mut SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
    ) -> Result<Facts, PinnedError> {
        let before = self.first_look(seam)?;
        self.wait_for_writes()?;
        self.copy(spool, bounds, seam, || bounds.check())?;
        let mut again = Digester::default();
        let mut buffer = vec![0; CHUNK];
        let mut offset = ByteCount::ZERO;
        loop {
            bounds.check()?;
            seam.at(Step::Again {
                offset: offset.get(),
            });
            let read = read_at(&self.file, &mut buffer, offset)?;
            if read.is_empty() || offset > spool.len() {
                break;
            }
            again.update(read);
            offset = offset.saturating_add(read.len().into());
        }
        seam.at(Step::Copied);
        bounds.check()?;
        if offset != spool.len() || again.finish() != spool.digest_so_far() {
            return Err(PinnedError::Changed("two passes over it differ"));
        }
        self.settle(&before, spool)
    }

    /// The facts to compare with, of a file the root's policy admits.
    fn first_look<S: Seam>(&self, seam: &mut S) -> Result<Facts, PinnedError> {
        let facts = Facts::of(&self.file)?;
        self.place.root().policy().admit(&facts)?;
        seam.at(Step::Stamped);
        self.place.confirm(facts.identity)?;
        seam.at(Step::Confirmed);
        Ok(facts)
    }

    fn last_look(&self, before: &Facts) -> Result<Facts, PinnedError> {
        let after = Facts::of(&self.file)?;
        if after != *before {
            return Err(PinnedError::Changed("its length, times or names moved"));
        }
        Ok(after)
    }

    fn settle(&self, before: &Facts, spool: &SpoolWriter) -> Result<Facts, PinnedError> {
        let after = self.last_look(before)?;
        if spool.len() != after.size {
            return Err(PinnedError::Changed("its length is not what it says"));
        }
        Ok(after)
    }

    /// Asking for a hole takes the inode's lock, which a write under way holds.
    fn wait_for_writes(&self) -> Result<(), PinnedError> {
        match seek(&self.file, SeekFrom::Hole(0)) {
            // `ENXIO`: the file is empty. `EINVAL`: the filesystem knows no holes, nor this lock.
            Ok(_) | Err(Errno::NXIO | Errno::INVAL) => Ok(()),
            Err(errno) => Err(PinnedError::from_errno("asking for a hole", errno)),
        }
    }

    /// Reads to the end, at most one byte past the limit.
    fn copy<S: Seam>(
        &self,
        spool: &mut SpoolWriter,
        bounds: &Bounds,
        seam: &mut S,
        between: impl Fn() -> Result<(), PinnedError>,
    ) -> Result<(), PinnedError> {
        let mut buffer = vec![0; CHUNK];
        loop {
            between()?;
            let offset = spool.len();
            seam.at(Step::Read {
                offset: offset.get(),
            });
            let left = bounds
                .limit
                .saturating_sub(offset)
                .saturating_add(ByteCount::new(1));
            let want = usize::try_from(left.get()).map_or(CHUNK, |left| left.min(CHUNK));
            let read = read_at(&self.file, &mut buffer[..want], offset)?;
            if read.is_empty() {
                return Ok(());
            }
            if ByteCount::from(read.len()) == left {
                return Err(PinnedError::OverLimit {
                    limit: bounds.limit,
                    size: None,
                });
            }
            spool.write(read)?;
        }
    }
}

fn read_at(file: impl AsFd, buffer: &mut [u8], offset: ByteCount) -> Result<&[u8], PinnedError> {
    let read = loop {
        match pread(&file, &mut *buffer, offset.get()) {
            Err(Errno::INTR) => {}
            result => break result,
        }
    }
    .map_err(|errno| PinnedError::from_errno("reading a pinned file", errno))?;
    Ok(&buffer[..read])
}

fn duplicate(fd: impl AsFd) -> Result<OwnedFd, PinnedError> {
    fcntl_dupfd_cloexec(fd, 0)
        .map_err(|errno| PinnedError::from_errno("duplicating a descriptor", errno))
}

/// Waits until a change made from now on is bound to leave another time than the last one did.
fn wait_until_past(facts: &Facts, bounds: &Bounds) -> Result<(), PinnedError> {
    let mut waited = Duration::ZERO;
    let tick = Duration::from_millis(2);
    loop {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let last = facts.changed;
        if (now.tv_sec, now.tv_nsec) > (last.seconds, last.nanoseconds.into()) {
            return Ok(());
        }
        bounds.check()?;
        if waited >= QUIET {
            return Err(PinnedError::Busy(
                "the file's last change lies in the future",
            ));
        }
        thread::sleep(tick);
        waited = waited.saturating_add(tick);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::wait_until_past;
    use crate::{
        model::{ByteCount, Cancel},
        pinned::{Bounds, Facts},
    };

    #[test]
    fn a_change_in_this_tick_is_waited_out_and_one_in_the_future_is_busy() {
        let bounds = Bounds::new(ByteCount::ZERO, Cancel::new());
        let dir = tempfile::tempfile().unwrap();
        let mut facts = Facts::of(&dir).unwrap();
        assert!(wait_until_past(&facts, &bounds).is_ok());
        facts.changed.seconds += 3600;
        let started = std::time::Instant::now();
        let class = wait_until_past(&facts, &bounds).map_err(|error| error.class());
        assert_eq!(class, Err("busy"));
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}
