use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};
use thiserror::Error;

/// The longest name, in UTF-16 units: what a reference of any DSH kind can carry.
const MAX_UNITS: usize = 255;

/// The name an attachment was given, as its reference carries it.
///
/// Invariant: one path component without separators or control characters, not `.` or `..`, no white
/// space at either end, 1..=255 UTF-16 units. It may still be unkind to a terminal or to Windows:
/// what a client is told to save as is decided by `http::semantics::disposition`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FileName(Box<str>);

/// Why text is not a [`FileName`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ParseFileNameError {
    /// There is no name.
    #[error("the name is empty, `.` or `..`")]
    Empty,
    /// A `/` or `\`.
    #[error("the name has a path separator")]
    Separator,
    /// U+0000..U+001F or U+007F.
    #[error("the name has a control character")]
    Control,
    /// White space before or after the name.
    #[error("the name starts or ends with white space")]
    Blank,
    /// More than 255 UTF-16 units.
    #[error("the name is longer than {MAX_UNITS} UTF-16 units")]
    TooLong,
}

impl FileName {
    /// Takes a name as it stands; nothing is trimmed, cut or replaced.
    ///
    /// # Errors
    /// The first rule the text breaks.
    ///
    /// # Source
    /// The rule for image names of a DSH home (`spec/dsh.md` section 2), the wider of its two.
    pub fn parse(text: &str) -> Result<Self, ParseFileNameError> {
        match text {
            "" | "." | ".." => Err(ParseFileNameError::Empty),
            text if text.contains(['/', '\\']) => Err(ParseFileNameError::Separator),
            text if text.chars().any(|c| c.is_ascii_control()) => Err(ParseFileNameError::Control),
            text if text.trim() != text => Err(ParseFileNameError::Blank),
            text if text.encode_utf16().count() > MAX_UNITS => Err(ParseFileNameError::TooLong),
            text => Ok(Self(text.into())),
        }
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for FileName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{FileName, ParseFileNameError};

    #[test]
    fn a_name_that_is_a_path_or_hides_something_is_refused() {
        for (name, why) in [
            ("", ParseFileNameError::Empty),
            ("..", ParseFileNameError::Empty),
            ("a/b", ParseFileNameError::Separator),
            ("a\\b", ParseFileNameError::Separator),
            ("a\r\nb", ParseFileNameError::Control),
            ("\u{7f}", ParseFileNameError::Control),
            (" a", ParseFileNameError::Blank),
            ("a\u{a0}", ParseFileNameError::Blank),
            (&"é".repeat(256), ParseFileNameError::TooLong),
        ] {
            assert_eq!(FileName::parse(name), Err(why), "{name:?}");
        }
    }

    #[test]
    fn an_awkward_but_honest_name_is_kept() {
        for name in [
            "报告.md",
            "a\"; filename=evil.html",
            "NUL.bin",
            "x.txt.",
            "\u{202e}gpj.exe",
        ] {
            assert_eq!(
                FileName::parse(name).as_ref().map(FileName::as_str),
                Ok(name)
            );
        }
    }
}
