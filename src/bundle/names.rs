use std::collections::{HashMap, hash_map::Entry};

use unicode_normalization::UnicodeNormalization as _;

use crate::model::{Digest, RelPath, SaveName};

/// The path of a member.
///
/// Invariant: relative, `/` between components, each a [`SaveName`]; so never absolute, never `..`,
/// no drive, no device, at most `u16::MAX` bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberName(String);

impl MemberName {
    /// The path's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The names one archive has given, so that no two members meet: not by letters of another case, not
/// by other spellings of one character, not as a file where another member needs a directory.
#[derive(Debug, Default)]
pub struct Names {
    /// Folded path to what stands there.
    taken: HashMap<String, Kind>,
    /// Folded path to the last number given to a name that wanted to stand there.
    numbers: HashMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// So much of a stem stays that a number fits after it.
const MAX_STEM: usize = 200;

impl Names {
    /// The safe and free name nearest to `path`.
    pub fn take(&mut self, path: &RelPath) -> MemberName {
        let mut components: Vec<String> = path
            .components()
            .map(|component| {
                SaveName::of_bytes(component, Digest::of(component))
                    .as_str()
                    .to_owned()
            })
            .collect();
        let last = components.pop().unwrap_or_default();
        let mut directory = String::new();
        for component in components {
            let name = self.free(&directory, &component, Kind::Directory);
            directory.push_str(&name);
            directory.push('/');
        }
        let name = self.free(&directory, &last, Kind::File);
        MemberName(directory + &name)
    }

    /// A name in `directory` at which nothing of another kind stands, and for a file nothing at all.
    fn free(&mut self, directory: &str, wanted: &str, kind: Kind) -> String {
        if self.claim(directory, wanted, kind) {
            return wanted.to_owned();
        }
        let (stem, extension) = match wanted.rsplit_once('.') {
            Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
            Some(_) | None => (wanted, String::new()),
        };
        let stem = stem
            .get(..stem.floor_char_boundary(MAX_STEM))
            .unwrap_or(stem);
        let at = fold(&format!("{directory}{wanted}"));
        loop {
            let number = self.numbers.entry(at.clone()).or_insert(1);
            *number = number.saturating_add(1);
            let name = format!("{stem} ({number}){extension}");
            let name = SaveName::new(&name).as_str().to_owned();
            if self.claim(directory, &name, kind) {
                return name;
            }
        }
    }

    /// Takes a place, or says that something stands there.
    fn claim(&mut self, directory: &str, name: &str, kind: Kind) -> bool {
        match self.taken.entry(fold(&format!("{directory}{name}"))) {
            Entry::Occupied(taken) => kind == Kind::Directory && *taken.get() == Kind::Directory,
            Entry::Vacant(free) => {
                free.insert(kind);
                true
            }
        }
    }
}

/// What case-blind and normalising filesystems take for the same name.
fn fold(path: &str) -> String {
    path.nfkc().flat_map(char::to_lowercase).nfkc().collect()
}

#[cfg(test)]
mod tests {
    use super::Names;
    use crate::model::RelPath;

    fn all(paths: &[&[u8]]) -> Vec<String> {
        let mut names = Names::default();
        paths
            .iter()
            .map(|path| {
                let path = RelPath::parse(path).unwrap();
                names.take(&path).as_str().to_owned()
            })
            .collect()
    }

    /// Z10: members never meet and never leave where they are unpacked.
    #[test]
    fn z10_names_are_safe_and_never_meet() {
        let names = all(&[
            b"a/b.txt",
            b"a/B.TXT",
            b"a/b.txt/c",
            b"A",
            b"C:\\Windows\\x",
            b"con",
            b"x/.. /y",
            b"-rf",
            "caf\u{e9}".as_bytes(),
            "cafe\u{301}".as_bytes(),
            b"\xff\xfe",
            b"\xff\xfd",
        ]);
        assert_eq!(names[0], "a/b.txt");
        assert_eq!(names[1], "a/B (2).TXT");
        assert_eq!(names[2], "a/b (2).txt/c".replace("b (2)", "b (3)"));
        assert_eq!(names[3], "A (2)");
        let mut folded: Vec<String> = names.iter().map(|name| super::fold(name)).collect();
        folded.sort();
        folded.dedup();
        assert_eq!(folded.len(), names.len(), "{names:?}");
        for name in &names {
            assert!(
                !name.starts_with('/') && !name.contains('\\') && !name.contains(':'),
                "{name}"
            );
            assert!(
                name.split('/').all(|part| !matches!(part, "" | "." | "..")),
                "{name}"
            );
        }
    }

    #[test]
    fn many_names_that_meet_are_all_told_apart() {
        let long = [b'x'; 255];
        let names = all(&[&long[..]; 500]);
        let apart: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(apart.len(), names.len());
        assert!(names.iter().all(|name| name.len() <= 255));
    }

    #[test]
    fn files_of_one_directory_stay_in_one() {
        assert_eq!(all(&[b"d/a", b"d/b", b"D/c"]), ["d/a", "d/b", "D/c"]);
    }
}
