use std::fmt::{self, Write as _};

use thiserror::Error;

/// The longest component, in bytes (`NAME_MAX`).
pub const MAX_COMPONENT: usize = 255;
/// The longest path, in bytes (`PATH_MAX` less the terminator).
pub const MAX_PATH: usize = 4095;
/// The most components a path may have.
pub const MAX_COMPONENTS: usize = 128;

/// A path below a root.
///
/// Invariant: one or more `/`-separated components of 1..=255 bytes, none `.` or `..`, no NUL, at
/// most 4,095 bytes and 128 components in all. Holds bytes: names on disk need not be UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Box<[u8]>);

/// Why bytes are not a [`RelPath`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ParsePathError {
    /// There is nothing to name.
    #[error("the path is empty")]
    Empty,
    /// A leading `/`.
    #[error("the path is absolute")]
    Absolute,
    /// A `.` or `..` component.
    #[error("the path has a `.` or `..` component")]
    DotComponent,
    /// Two slashes in a row.
    #[error("the path has an empty component")]
    EmptyComponent,
    /// A slash at the end.
    #[error("the path ends in a slash")]
    TrailingSlash,
    /// A NUL byte.
    #[error("the path has a NUL byte")]
    Nul,
    /// A component of more than 255 bytes.
    #[error("a component is longer than {MAX_COMPONENT} bytes")]
    ComponentTooLong,
    /// More than 4,095 bytes.
    #[error("the path is longer than {MAX_PATH} bytes")]
    TooLong,
    /// More than 128 components.
    #[error("the path has more than {MAX_COMPONENTS} components")]
    TooDeep,
}

impl RelPath {
    /// Nothing is trimmed, collapsed, or decoded: what does not parse is refused.
    ///
    /// # Errors
    /// The first rule the bytes break, in the order NUL, empty, absolute, length, components.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParsePathError> {
        if bytes.contains(&0) {
            return Err(ParsePathError::Nul);
        }
        match bytes.first() {
            None => return Err(ParsePathError::Empty),
            Some(b'/') => return Err(ParsePathError::Absolute),
            Some(_) => {}
        }
        if bytes.len() > MAX_PATH {
            return Err(ParsePathError::TooLong);
        }
        if bytes.ends_with(b"/") {
            return Err(ParsePathError::TrailingSlash);
        }
        for component in bytes.split(|&byte| byte == b'/') {
            match component {
                b"" => return Err(ParsePathError::EmptyComponent),
                b"." | b".." => return Err(ParsePathError::DotComponent),
                long if long.len() > MAX_COMPONENT => return Err(ParsePathError::ComponentTooLong),
                _ => {}
            }
        }
        if bytes.split(|&byte| byte == b'/').count() > MAX_COMPONENTS {
            return Err(ParsePathError::TooDeep);
        }
        Ok(Self(bytes.into()))
    }

    /// The path's bytes, without a leading or trailing slash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The components in order, at least one.
    #[must_use]
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/')
    }

    /// The last component.
    #[must_use]
    pub fn file_name(&self) -> &[u8] {
        self.components().next_back().unwrap_or(&self.0)
    }
}

impl fmt::Display for RelPath {
    /// As [`Shown`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}

/// Any bytes as lossless text: printable UTF-8 as it is, a backslash doubled, every other byte as
/// `\xNN`. Control and bidirectional-format characters are escaped, so the text is safe in a
/// terminal.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character == '\\' {
                    f.write_str("\\\\")?;
                } else if character.is_control() || is_format(character) {
                    let mut buffer = [0; 4];
                    for byte in character.encode_utf8(&mut buffer).bytes() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                } else {
                    f.write_char(character)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Characters that change how the text around them is shown: bidirectional controls, line and
/// paragraph separators, zero-width marks.
fn is_format(character: char) -> bool {
    matches!(character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::{ParsePathError, RelPath};

    #[test]
    fn a_path_that_could_leave_the_root_or_mean_two_things_is_refused() {
        let deep = ["a"; 129].join("/");
        let long = vec!["a".repeat(255); 17].join("/");
        for (path, why) in [
            ("", ParsePathError::Empty),
            ("/", ParsePathError::Absolute),
            ("/etc/passwd", ParsePathError::Absolute),
            (".", ParsePathError::DotComponent),
            ("a/../b", ParsePathError::DotComponent),
            ("a/./b", ParsePathError::DotComponent),
            ("..", ParsePathError::DotComponent),
            ("a//b", ParsePathError::EmptyComponent),
            ("a/", ParsePathError::TrailingSlash),
            ("a\0b", ParsePathError::Nul),
            ("\0", ParsePathError::Nul),
            (&"a".repeat(256), ParsePathError::ComponentTooLong),
            (&deep, ParsePathError::TooDeep),
            (&long, ParsePathError::TooLong),
        ] {
            assert_eq!(RelPath::parse(path.as_bytes()), Err(why), "{path:?}");
        }
    }

    #[test]
    fn odd_but_honest_names_are_kept_byte_for_byte() {
        for path in [
            &b"a"[..],
            b"a b/c",
            b"...",
            b"..a/.b",
            b"\xff\xfe/x",
            "报告/x".as_bytes(),
            b"-rf",
        ] {
            let parsed = RelPath::parse(path).map(|p| p.as_bytes().to_vec());
            assert_eq!(parsed.as_deref(), Ok(path));
        }
    }

    #[test]
    fn the_shown_form_is_lossless_and_safe_in_a_terminal() {
        for (path, shown) in [
            (&b"a\\b"[..], r"a\\b"),
            (b"a\xffb", r"a\xffb"),
            (b"a\x1b[2J", r"a\x1b[2J"),
            ("a\u{202e}b".as_bytes(), r"a\xe2\x80\xaeb"),
            ("报告".as_bytes(), "报告"),
        ] {
            assert_eq!(
                RelPath::parse(path).map(|p| p.to_string()).as_deref(),
                Ok(shown)
            );
        }
    }
}
