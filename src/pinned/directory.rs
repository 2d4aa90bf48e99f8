#![forbid(unsafe_code)]

use rustix::fs::{Dir, FileType};

use super::{Facts, PinnedError, PinnedFile};

/// The names in a directory at one moment, in the order of their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Each name, and whether the directory says that it is a directory. What stands at a name later is
    /// for whoever pins it.
    pub names: Vec<(Box<[u8]>, bool)>,
    /// Whether these are all of them.
    pub is_whole: bool,
}

impl PinnedFile<'_> {
    /// Lists a pinned directory, at most `most` names; nothing in it is opened.
    ///
    /// # Errors
    /// [`PinnedError::Changed`] when it is no directory, or another was opened;
    /// [`PinnedError::PermissionDenied`]; [`PinnedError::Resource`].
    ///
    /// # Source
    /// `open(2)` of `/proc/self/fd/N`, `getdents64(2)`. Keeps I2.
    pub fn list(self, most: usize) -> Result<Listing, PinnedError> {
        let facts = Facts::of(&self.handle)?;
        if facts.kind != FileType::Directory {
            return Err(PinnedError::Changed("it is no directory"));
        }
        let failed = |errno| PinnedError::from_errno("listing a pinned directory", errno);
        let opened = self
            .place
            .root()
            .proc_fd()
            .reopen(&self.handle)
            .map_err(failed)?;
        if Facts::of(&opened)?.identity != facts.identity {
            return Err(PinnedError::Changed("another directory was opened"));
        }
        let mut listing = Listing {
            names: Vec::new(),
            is_whole: true,
        };
        for entry in Dir::read_from(&opened).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if listing.names.len() >= most {
                listing.is_whole = false;
                break;
            }
            let is_directory = entry.file_type() == FileType::Directory;
            listing.names.push((name.into(), is_directory));
        }
        listing.names.sort_unstable();
        Ok(listing)
    }
}
