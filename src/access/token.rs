use std::fmt;

use subtle::ConstantTimeEq;

use super::AccessError;
use crate::model::{Digest, PrincipalId, Redacted, Timestamp};

/// Declares a secret we hand out once and keep only as a fingerprint: a prefix, by which scanners of
/// leaked secrets know it, and 256 random bits as 64 lower-case hexadecimal digits.
macro_rules! secrets {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// Its `Debug` does not show it.
        #[derive(Debug)]
        pub struct $name(Redacted<[u8; 32]>);

        impl $name {
            /// Draws a new one.
            pub(super) fn draw() -> Result<Self, AccessError> {
                random_bits().map(|bits| Self(Redacted::new(bits)))
            }

            /// Reads one; any other text is `None`.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                let digits = text.strip_prefix($prefix)?;
                let bits = Digest::parse(digits).ok()?;
                Some(Self(Redacted::new(*bits.as_bytes())))
            }

            /// What is stored in its place.
            pub(super) fn fingerprint(&self) -> Fingerprint {
                Fingerprint(Digest::of(self.reveal().as_bytes()))
            }

            /// The secret's text: a call of this is a decision that the place may see it.
            #[must_use]
            pub fn reveal(&self) -> String {
                format!("{}{}", $prefix, Digest::from_bytes(*self.0.reveal()))
            }
        }
    )*};
}

secrets! {
    /// A bearer token.
    Token = "hf_";
    /// A one-time sign-in code.
    LoginCode = "hl_";
    /// What a ticket's address ends in.
    TicketSecret = "ht_";
}

/// A secret as the database knows it: its SHA-256, enough for 256 random bits.
#[derive(Clone, Copy)]
pub(super) struct Fingerprint(Digest);

impl Fingerprint {
    /// The bytes to store and to look up by.
    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Whether `stored` is this fingerprint, in time that does not depend on where they differ.
    pub(super) fn is(&self, stored: &[u8]) -> bool {
        self.as_bytes().as_slice().ct_eq(stored).into()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint")
    }
}

/// The public number of a token, for listing and revoking; no use for signing in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenNumber(i64);

impl TokenNumber {
    /// The token of this number.
    #[must_use]
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for TokenNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A token that was just made; the secret is not shown again.
#[derive(Debug)]
pub struct Issued {
    /// The secret.
    pub token: Token,
    /// The token's public number.
    pub number: TokenNumber,
    /// When it ends; `None` for one that lasts until it is revoked.
    pub expires_at: Option<Timestamp>,
}

/// A token as it is listed: everything but the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// Its public number.
    pub number: TokenNumber,
    /// Whose it is.
    pub principal: PrincipalId,
    /// What it was made for, in its maker's words.
    pub label: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; `None` for one that lasts until it is revoked.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// Draws `N` random bytes from the system.
pub(crate) fn random_bits<const N: usize>() -> Result<[u8; N], AccessError> {
    let mut bits = [0; N];
    getrandom::fill(&mut bits).map_err(AccessError::NoEntropy)?;
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::{LoginCode, Token};

    #[test]
    fn a_token_is_read_back_and_another_secret_is_not_a_token() {
        let token = Token::draw().unwrap();
        let text = token.reveal();
        assert_eq!(text.len(), 3 + 64);
        assert_eq!(Token::parse(&text).unwrap().reveal(), text);
        let code = LoginCode::draw().unwrap().reveal();
        for other in [
            code,
            text.to_uppercase(),
            text.chars().take(66).collect(),
            String::new(),
        ] {
            assert!(Token::parse(&other).is_none(), "{other}");
        }
    }

    /// Keeps I14.
    #[test]
    fn a_token_does_not_show_itself() {
        let token = Token::draw().unwrap();
        let shown = format!("{token:?} {:?}", token.fingerprint());
        assert!(
            !shown.contains(token.reveal().trim_start_matches("hf_")),
            "{shown}"
        );
    }

    #[test]
    fn a_fingerprint_knows_its_own_bytes_only() {
        let token = Token::draw().unwrap();
        let own = *token.fingerprint().as_bytes();
        assert!(token.fingerprint().is(&own));
        assert!(!token.fingerprint().is(&own[..31]));
        assert!(
            !token
                .fingerprint()
                .is(Token::draw().unwrap().fingerprint().as_bytes())
        );
    }
}
