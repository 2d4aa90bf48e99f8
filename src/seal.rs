//! Seals: evidence that a text was written by whoever holds this data directory's key.
//!
//! Promises: a text of one kind never passes for one of another; comparing takes the same time
//! whatever differs; the key is never shown (I14). Leaves to others: what a text says, and where the
//! key is kept.

#![forbid(unsafe_code)]

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The data directory's own key.
pub struct SealKey([u8; 32]);

/// HMAC-SHA-256 of a text, for its kind.
pub type Seal = [u8; 32];

impl SealKey {
    /// The key made of these bits.
    #[must_use]
    pub const fn new(bits: [u8; 32]) -> Self {
        Self(bits)
    }

    /// The seal of a text of this kind.
    #[must_use]
    pub fn seal(&self, kind: &str, text: &[u8]) -> Seal {
        self.over(kind, text).finalize().into_bytes().into()
    }

    /// Whether `seal` is the seal of this text, as a text of this kind.
    #[must_use]
    pub fn fits(&self, kind: &str, text: &[u8], seal: &[u8]) -> bool {
        self.over(kind, text).verify_slice(seal).is_ok()
    }

    fn over(&self, kind: &str, text: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(kind.as_bytes());
        mac.update(b"\0");
        mac.update(text);
        mac
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::SealKey;

    #[test]
    fn a_seal_fits_its_text_its_kind_and_its_key_alone() {
        let key = SealKey::new([1; 32]);
        let seal = key.seal("receipt", b"text");
        assert!(key.fits("receipt", b"text", &seal));
        assert!(!key.fits("receipt", b"text.", &seal));
        assert!(!key.fits("probe", b"text", &seal));
        assert!(!key.fits("receip", b"t\0text", &seal));
        assert!(!SealKey::new([2; 32]).fits("receipt", b"text", &seal));
        assert!(!key.fits("receipt", b"text", &seal[..31]));
        assert_eq!(format!("{key:?}"), "SealKey(..)");
    }
}
