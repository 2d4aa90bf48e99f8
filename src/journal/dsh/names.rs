//! The folder and file names of a DSH sessions root.
//!
//! # Source
//! spec `DSH`, section 3, "Where".

/// The folder of sessions whose header has no `cwd`.
const NO_CWD: &str = "_no-cwd";
/// The longest slug between the dashes of a project folder.
const MAX_SLUG: usize = 251;

/// The project folder a session with this `cwd` lies in.
///
/// Lossy on purpose: separators run together and long ones are cut, so several directories may share
/// a folder. The empty directory has none.
#[must_use]
pub fn project_folder(cwd: Option<&str>) -> Option<String> {
    let Some(cwd) = cwd else {
        return Some(NO_CWD.to_owned());
    };
    if cwd.is_empty() {
        return None;
    }
    let mut slug = String::new();
    let mut in_separators = false;
    for unit in cwd.encode_utf16() {
        let separator = matches!(u8::try_from(unit), Ok(b'/' | b'\\' | b':'));
        if !separator {
            push_unit(&mut slug, unit);
        } else if !in_separators {
            slug.push('-');
        }
        in_separators = separator;
    }
    let slug = match slug.trim_start_matches('-') {
        "" => "root",
        slug => slug,
    };
    // Everything pushed is ASCII, so a cut falls between characters.
    let slug = slug.get(..MAX_SLUG).unwrap_or(slug);
    Some(format!("--{slug}--"))
}

/// The session folder of this id. No two ids share one.
#[must_use]
pub fn session_folder(id: &str) -> String {
    match id {
        "." => "~002E".to_owned(),
        ".." => "~002E~002E".to_owned(),
        id => id.encode_utf16().fold(String::new(), |mut folder, unit| {
            push_unit(&mut folder, unit);
            folder
        }),
    }
}

/// The id whose session folder this is, or `None` when it is nobody's.
#[must_use]
pub fn session_id(folder: &[u8]) -> Option<String> {
    let mut units = Vec::new();
    let mut rest = folder;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'~' {
            units.push(u16::from(*first));
            continue;
        }
        let (digits, tail) = rest.split_at_checked(4)?;
        rest = tail;
        units.push(u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
    }
    let id = String::from_utf16(&units).ok()?;
    // One spelling per id: lower-case digits, needless escapes and bare bytes are another's folder.
    (!id.is_empty() && session_folder(&id).as_bytes() == folder).then_some(id)
}

/// Writes a UTF-16 unit as itself where it is plain, else as `~` and four hexadecimal digits.
fn push_unit(folder: &mut String, unit: u16) {
    match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') => {
            folder.push(char::from(byte));
        }
        _ => {
            folder.push('~');
            // Highest digit first; a nibble always has one.
            let nibbles = [unit >> 12, unit >> 8, unit >> 4, unit].map(|part| u32::from(part & 15));
            let digits = nibbles
                .into_iter()
                .filter_map(|part| char::from_digit(part, 16));
            folder.extend(digits.map(|digit| digit.to_ascii_uppercase()));
        }
    }
}

/// How a log's bytes hold its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As they are.
    Plain,
    /// In Zstandard frames, one after the other.
    Zstd,
}

/// What a log file's name says: its format version and its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogName {
    /// The format version, which is the log generation.
    pub version: u32,
    /// The encoding.
    pub encoding: Encoding,
}

impl LogName {
    /// The name's meaning, or `None` for a lock, a temporary or anything else that is no log.
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?.strip_prefix("session")?;
        let (name, encoding) = match name.strip_suffix(".zstd") {
            Some(name) => (name, Encoding::Zstd),
            None => (name, Encoding::Plain),
        };
        let version = match name.strip_suffix(".jsonl")? {
            "" => 0,
            version => {
                let digits = version.strip_prefix(".v")?;
                let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
                digits.parse().ok().filter(|_| plain)?
            }
        };
        Some(Self { version, encoding })
    }

    /// The name itself.
    #[must_use]
    pub fn file_name(self) -> String {
        let version = match self.version {
            0 => String::new(),
            version => format!(".v{version}"),
        };
        let encoding = match self.encoding {
            Encoding::Plain => "",
            Encoding::Zstd => ".zstd",
        };
        format!("session{version}.jsonl{encoding}")
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoding, LogName, project_folder, session_folder, session_id};

    #[test]
    fn a_project_folder_is_made_of_its_directory() {
        for (cwd, folder) in [
            (None, "_no-cwd"),
            (
                Some("/workspaces/demo alpha/报告"),
                "--workspaces-demo~0020alpha-~62A5~544A--",
            ),
            (Some("/"), "--root--"),
            (Some(":::"), "--root--"),
            (Some(r"E:\pack-agent"), "--E-pack-agent--"),
            (Some("/a//b\\:c/"), "--a-b-c---"),
            (Some("/-a"), "--a--"),
            (Some("😀~"), "--~D83D~DE00~007E--"),
            (
                Some(&format!("/{}", "a".repeat(300))),
                &format!("--{}--", "a".repeat(251)),
            ),
        ] {
            assert_eq!(project_folder(cwd).as_deref(), Some(folder), "{cwd:?}");
        }
        assert_eq!(project_folder(Some("")), None);
    }

    #[test]
    fn a_session_folder_is_one_ids_and_is_read_back() {
        for (id, folder) in [
            ("session-1", "session-1"),
            (
                "子会话/../x y~1",
                "~5B50~4F1A~8BDD~002F..~002Fx~0020y~007E1",
            ),
            (".", "~002E"),
            ("..", "~002E~002E"),
            ("...", "..."),
            ("😀", "~D83D~DE00"),
        ] {
            assert_eq!(session_folder(id), folder, "{id:?}");
            assert_eq!(
                session_id(folder.as_bytes()).as_deref(),
                Some(id),
                "{folder}"
            );
        }
        for folder in [
            &b""[..],
            b".",
            b"..",
            b"~002f",
            b"~0061",
            b"~00",
            b"~+041",
            b"a b",
            b"\xff",
            b"~D83D",
            b"a~",
        ] {
            assert_eq!(session_id(folder), None, "{folder:?}");
        }
    }

    #[test]
    fn a_log_is_known_by_its_name_alone() {
        for (name, version, encoding) in [
            ("session.jsonl", 0, Encoding::Plain),
            ("session.jsonl.zstd", 0, Encoding::Zstd),
            ("session.v3.jsonl", 3, Encoding::Plain),
            ("session.v12.jsonl.zstd", 12, Encoding::Zstd),
        ] {
            let parsed = LogName { version, encoding };
            assert_eq!(LogName::parse(name.as_bytes()), Some(parsed), "{name}");
            assert_eq!(parsed.file_name(), name);
        }
        for name in [
            "session.lock",
            "session.v3.jsonl.tmp",
            "session.v03.jsonl",
            "session.v0.jsonl",
            "session.v.jsonl",
            "session.v+1.jsonl",
            "session.v99999999999.jsonl",
            "session.jsonl.zst",
            "Session.jsonl",
            "session",
        ] {
            assert_eq!(LogName::parse(name.as_bytes()), None, "{name}");
        }
    }
}
