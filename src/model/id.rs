use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use super::{Digest, ParseDigestError};

/// Why text is not an id.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ParseIdError {
    /// The text does not start with the id's prefix.
    #[error("the id does not start with `{0}`")]
    Prefix(&'static str),
    /// The part after the prefix is not what the id needs.
    #[error("the id is not {0}")]
    Form(&'static str),
}

/// The id of immutable content: `sha256:` and 64 lower-case hexadecimal digits.
///
/// Knowing one is not a right to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(Digest);

impl AttachmentId {
    const PREFIX: &'static str = "sha256:";

    /// The id of the content with this digest.
    #[must_use]
    pub const fn new(digest: Digest) -> Self {
        Self(digest)
    }

    /// Parses `sha256:` and 64 lower-case hexadecimal digits; a bare digest is refused.
    ///
    /// # Errors
    /// [`ParseIdError`] with the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, ParseIdError> {
        let digits = text
            .strip_prefix(Self::PREFIX)
            .ok_or(ParseIdError::Prefix(Self::PREFIX))?;
        Digest::parse(digits).map(Self).map_err(|ParseDigestError| {
            ParseIdError::Form("64 lower-case hexadecimal digits after the prefix")
        })
    }

    /// The digest the id names.
    #[must_use]
    pub const fn digest(self) -> Digest {
        self.0
    }
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

/// Declares a handle the server issues: a prefix and 128 random bits as 32 lower-case hexadecimal
/// digits. Handles say nothing about what they name and are the only ids in our addresses.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// The handle of these 128 bits, which the caller drew at random.
            #[must_use]
            pub const fn from_random(bits: [u8; 16]) -> Self {
                Self(bits)
            }

            /// Parses the prefix and 32 lower-case hexadecimal digits.
            ///
            /// # Errors
            /// [`ParseIdError`] with the part that is wrong.
            pub fn parse(text: &str) -> Result<Self, ParseIdError> {
                let digits = text.strip_prefix($prefix).ok_or(ParseIdError::Prefix($prefix))?;
                parse_bits(digits).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        text_form!($name);
    )*};
}

/// Serializes a type by its text and reads it back through its `parse`.
macro_rules! text_form {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(de::Error::custom)
            }
        }
    };
}

fn parse_bits(digits: &str) -> Result<[u8; 16], ParseIdError> {
    const FORM: ParseIdError = ParseIdError::Form("32 lower-case hexadecimal digits");
    if digits.len() != 32
        || !digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    {
        return Err(FORM);
    }
    u128::from_str_radix(digits, 16)
        .map(u128::to_be_bytes)
        .map_err(|_not_hex| FORM)
}

text_form!(AttachmentId);

handles! {
    /// The server's name for a session in addresses.
    SessionHandle = "s_";
    /// The server's name for a receipt in addresses.
    ReceiptHandle = "r_";
    /// The id of something somebody is asked: an approval, a question, the release of a file.
    InteractionHandle = "i_";
    /// The public id of a ticket: for listing and revoking, never for downloading.
    TicketHandle = "t_";
    /// The name of one open event stream.
    StreamHandle = "e_";
    /// The id of a principal.
    PrincipalId = "p_";
    /// The id of one request, in its answer and in the log.
    RequestId = "q_";
}

/// A session's own id, as its source wrote it: any script, slashes and dots included.
///
/// Invariant: 1..=512 bytes, no control characters. Appears in bodies, never in addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Box<str>);

impl SessionId {
    const FORM: ParseIdError = ParseIdError::Form("1 to 512 bytes without control characters");

    /// Takes an id as it stands.
    ///
    /// # Errors
    /// [`ParseIdError::Form`] when it is empty, longer than 512 bytes, or has control characters.
    pub fn parse(text: &str) -> Result<Self, ParseIdError> {
        if text.is_empty() || text.len() > 512 || text.chars().any(char::is_control) {
            return Err(Self::FORM);
        }
        Ok(Self(text.into()))
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_form!(SessionId);

#[cfg(test)]
mod tests {
    use super::{AttachmentId, SessionHandle, SessionId};
    use crate::model::Digest;

    #[test]
    fn an_attachment_id_has_one_spelling() {
        let id = AttachmentId::new(Digest::of(b"x"));
        assert_eq!(AttachmentId::parse(&id.to_string()), Ok(id));
        for text in [
            id.digest().to_string(),
            id.to_string().to_uppercase(),
            format!("sha256:{}", id.digest().to_string().to_uppercase()),
            format!("sha512:{}", id.digest()),
            "sha256:../../etc/passwd".to_owned(),
        ] {
            assert!(AttachmentId::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_handle_is_read_back_and_another_kind_is_refused() {
        let handle = SessionHandle::from_random([7; 16]);
        assert_eq!(SessionHandle::parse(&handle.to_string()), Ok(handle));
        for text in [
            "s_",
            "s_07",
            "r_07070707070707070707070707070707",
            "s_+7070707070707070707070707070707",
        ] {
            assert!(SessionHandle::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_session_id_may_be_in_any_script_but_has_no_controls() {
        assert!(SessionId::parse("decoys/子会话 #3").is_ok());
        for text in ["", "a\nb", "a\u{85}b", &"x".repeat(513)] {
            assert!(SessionId::parse(text).is_err(), "{text:?}");
        }
    }
}
