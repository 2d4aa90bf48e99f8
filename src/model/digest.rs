use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The SHA-256 that names content.
///
/// Written as 64 lower-case hexadecimal digits; upper case is refused, so that one content has one
/// spelling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Why text is not a [`Digest`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a digest is 64 lower-case hexadecimal digits")]
pub struct ParseDigestError;

impl Digest {
    /// The digest with these 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Hashes `content` in one go.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        let mut digester = Digester::default();
        digester.update(content);
        digester.finish()
    }

    /// Parses 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`ParseDigestError`] for any other text, upper case included.
    pub fn parse(text: &str) -> Result<Self, ParseDigestError> {
        if text.len() != 64 {
            return Err(ParseDigestError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let [high, low] = pair else {
                return Err(ParseDigestError);
            };
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(bytes))
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

fn nibble(digit: u8) -> Result<u8, ParseDigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit.wrapping_sub(b'0')),
        b'a'..=b'f' => Ok(digit.wrapping_sub(b'a').wrapping_add(10)),
        _ => Err(ParseDigestError),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// A running SHA-256.
#[derive(Clone, Debug, Default)]
pub struct Digester(Sha256);

impl Digester {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes taken.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_read_back_from_its_text() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(Digest::parse(EMPTY), Ok(Digest::of(b"")));
    }

    #[test]
    fn another_spelling_is_refused() {
        for text in [
            "",
            "e3b0",
            &EMPTY.to_uppercase(),
            &format!("{EMPTY}0"),
            &EMPTY.replace('e', "g"),
        ] {
            assert!(Digest::parse(text).is_err(), "{text}");
        }
    }
}
