use thiserror::Error;

use crate::model::{Digest, PrincipalId};

/// The key by which a client marks a request and its repeats.
///
/// Invariant: 1..=255 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetryKey(Box<str>);

/// Text that is not a [`RetryKey`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a key is 1 to 255 visible ASCII characters")]
pub struct ParseRetryKeyError;

impl RetryKey {
    /// Takes a key as it stands.
    ///
    /// # Errors
    /// [`ParseRetryKeyError`] for an empty or long text, or one with other characters.
    pub fn parse(text: &[u8]) -> Result<Self, ParseRetryKeyError> {
        match std::str::from_utf8(text) {
            Ok(key) if (1..=255).contains(&key.len()) && text.iter().all(u8::is_ascii_graphic) => {
                Ok(Self(key.into()))
            }
            _ => Err(ParseRetryKeyError),
        }
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A request that may come again, and is to be done once.
#[derive(Clone, Debug)]
pub struct Once {
    /// Who asks; keys of different principals do not meet.
    pub who: PrincipalId,
    /// The key of the request and its repeats.
    pub key: RetryKey,
    /// The digest of all that is asked: another one under the same key is a mistake.
    pub asked: Digest,
}

#[cfg(test)]
mod tests {
    use super::RetryKey;

    #[test]
    fn a_key_is_short_and_visible() {
        assert_eq!(RetryKey::parse(b"\"a-1\"").unwrap().as_str(), "\"a-1\"");
        let long = [b'a'; 256];
        for text in [&b""[..], b"a b", b"a\n", b"\x7f", "é".as_bytes(), &long] {
            assert!(RetryKey::parse(text).is_err(), "{text:?}");
        }
    }
}
