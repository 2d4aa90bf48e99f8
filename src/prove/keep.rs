#![forbid(unsafe_code)]

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
};

use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};

use crate::{
    gate::{MAX_SEALED, Probed},
    seal::SealKey,
};

/// The report's name in the data directory.
const REPORT: &str = "probe.json";
/// The report's name while it is written; one prober at a time writes it.
const UNDER_WAY: &str = ".probe.json.new";
/// The key's name in the data directory.
const KEY: &str = "seal.key";
const KEY_BYTES: usize = 32;

/// What a data directory keeps of an earlier probe.
#[derive(Debug, Default)]
pub struct Kept {
    /// The sealed file, to the byte.
    pub file: Option<Vec<u8>>,
    /// The key it should be sealed with.
    pub key: Option<SealKey>,
}

/// Reads what the data directory keeps. Nothing is judged here.
///
/// # Errors
/// As the system says; what is not there is no error, and neither is what is too large: that is cut,
/// and then no seal fits.
pub fn read(data: impl AsFd) -> io::Result<Kept> {
    let key = read_key(&data)?;
    let file = match open_plain(&data, REPORT, OFlags::RDONLY)? {
        Some(file) => {
            let mut bytes = Vec::new();
            file.take(MAX_SEALED).read_to_end(&mut bytes)?;
            Some(bytes)
        }
        None => None,
    };
    Ok(Kept { file, key })
}

/// The data directory's own key; drawn when it has none.
///
/// # Errors
/// As the system says.
pub fn key(data: impl AsFd) -> io::Result<SealKey> {
    if let Some(key) = read_key(&data)? {
        return Ok(key);
    }
    match Keeper::hold(&data) {
        Ok(keeper) => Ok(keeper.key),
        // Whoever probes now has drawn it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            read_key(&data)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error),
    }
}

/// The data directory's own key, if it has one.
///
/// # Errors
/// As the system says.
pub fn read_key(data: impl AsFd) -> io::Result<Option<SealKey>> {
    match open_plain(&data, KEY, OFlags::RDONLY)? {
        Some(file) => key_in(&file),
        None => Ok(None),
    }
}

/// The right to write a data directory's report. One process at a time has it, beside a server.
#[derive(Debug)]
pub struct Keeper {
    data: OwnedFd,
    key: SealKey,
    _lock: File,
}

impl Keeper {
    /// Takes the right, and draws the data directory's key when it has none.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] while another process probes; otherwise as the system says.
    pub fn hold(data: impl AsFd) -> io::Result<Self> {
        let data = data.as_fd().try_clone_to_owned()?;
        let Some(lock) = open_plain(&data, KEY, OFlags::RDWR | OFlags::CREATE)? else {
            return Err(io::Error::from(Errno::NOENT));
        };
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let key = match key_in(&lock)? {
            Some(key) => key,
            None => draw(&data, &lock)?,
        };
        Ok(Self {
            data,
            key,
            _lock: lock,
        })
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> BorrowedFd<'_> {
        self.data.as_fd()
    }

    /// Puts a report in the place of the one before, at once and durably.
    ///
    /// # Errors
    /// As the system says; the report before is then still there.
    pub fn save(&self, probed: &Probed) -> io::Result<()> {
        let text = probed.seal(&self.key)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.data, UNDER_WAY, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(fd);
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            rustix::fs::unlinkat(&self.data, UNDER_WAY, AtFlags::empty()).ok();
            return Err(error);
        }
        rustix::fs::renameat(&self.data, UNDER_WAY, &self.data, REPORT)?;
        rustix::fs::fsync(&self.data)?;
        Ok(())
    }
}

/// A plain file of the data directory; a link or anything else is refused.
fn open_plain(data: impl AsFd, name: &str, flags: OFlags) -> io::Result<Option<File>> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(data, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind == FileType::RegularFile {
        Ok(Some(file))
    } else {
        Err(io::Error::other(format!("{name} is no plain file")))
    }
}

/// The whole key; a file of another length holds none.
fn key_in(file: &File) -> io::Result<Option<SealKey>> {
    let mut bits = [0; KEY_BYTES + 1];
    let mut read = 0;
    while let Some(rest) = bits.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, u64::try_from(read).unwrap_or(u64::MAX))? {
            0 => break,
            more => read = read.saturating_add(more),
        }
    }
    match bits.split_first_chunk::<KEY_BYTES>() {
        Some((key, _)) if read == KEY_BYTES => Ok(Some(SealKey::new(*key))),
        Some(_) | None => Ok(None),
    }
}

fn draw(data: &OwnedFd, file: &File) -> io::Result<SealKey> {
    let mut bits = [0; KEY_BYTES];
    getrandom::fill(&mut bits).map_err(io::Error::other)?;
    file.set_len(0)?;
    file.write_all_at(&bits, 0)?;
    file.sync_all()?;
    rustix::fs::fsync(data)?;
    Ok(SealKey::new(bits))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test directory")]
mod tests {
    use std::{fs::File, io, os::unix::fs::symlink};

    use super::{KEY, Keeper, REPORT, UNDER_WAY, read};
    use crate::gate::Probed;

    fn probed(build: &str) -> Probed {
        Probed {
            build: build.into(),
            roots: vec![],
        }
    }

    #[test]
    fn what_is_saved_is_read_back_under_the_directory_s_own_key() {
        let dir = tempfile::tempdir().unwrap();
        let data = File::open(dir.path()).unwrap();
        let kept = read(&data).unwrap();
        assert!(kept.file.is_none() && kept.key.is_none());
        for build in ["one", "another"] {
            // What a killed prober left is in nobody's way.
            std::fs::write(dir.path().join(UNDER_WAY), "half").unwrap();
            Keeper::hold(&data).unwrap().save(&probed(build)).unwrap();
            let kept = read(&data).unwrap();
            let opened = Probed::open(&kept.file.unwrap(), &kept.key.unwrap());
            assert_eq!(opened, Ok(probed(build)));
        }
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "the report and the key");
    }

    #[test]
    fn one_prober_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let data = File::open(dir.path()).unwrap();
        let first = Keeper::hold(&data).unwrap();
        let second = Keeper::hold(&data).map(drop).map_err(|error| error.kind());
        assert_eq!(second, Err(io::ErrorKind::WouldBlock));
        drop(first);
        assert!(Keeper::hold(&data).is_ok());
    }

    #[test]
    fn links_are_not_followed_and_half_a_key_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let data = File::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("elsewhere"), [1; 32]).unwrap();
        symlink("elsewhere", dir.path().join(KEY)).unwrap();
        assert!(read(&data).is_err() && Keeper::hold(&data).is_err());
        std::fs::remove_file(dir.path().join(KEY)).unwrap();
        symlink("elsewhere", dir.path().join(REPORT)).unwrap();
        assert!(read(&data).is_err());
        std::fs::remove_file(dir.path().join(REPORT)).unwrap();
        for length in [0, 31, 33] {
            std::fs::write(dir.path().join(KEY), vec![1; length]).unwrap();
            assert!(read(&data).unwrap().key.is_none(), "{length}");
        }
        Keeper::hold(&data).unwrap();
        assert!(read(&data).unwrap().key.is_some(), "drawn anew");
    }
}
