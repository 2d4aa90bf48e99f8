use std::fmt;

use serde::{Deserialize, Serialize};

/// A number of bytes; never a bare integer, so that a length is not taken for a count or a seq.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ByteCount(u64);

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` bytes.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// `n` × 1024 bytes.
    #[must_use]
    pub const fn kib(n: u32) -> Self {
        Self::times(n, 1 << 10)
    }

    /// `n` × 1024² bytes.
    #[must_use]
    pub const fn mib(n: u32) -> Self {
        Self::times(n, 1 << 20)
    }

    /// `n` × 1024³ bytes.
    #[must_use]
    pub const fn gib(n: u32) -> Self {
        Self::times(n, 1 << 30)
    }

    #[expect(
        clippy::as_conversions,
        reason = "widening u32 to u64 in a const fn; cannot lose bits"
    )]
    const fn times(n: u32, unit: u64) -> Self {
        Self((n as u64).saturating_mul(unit))
    }

    /// The number itself, in bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sum, or `None` past 64 bits.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The sum, stopping at the largest value.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, stopping at zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<usize> for ByteCount {
    fn from(n: usize) -> Self {
        // A usize always fits: Holdfast builds for 64-bit targets, and saturation refuses the rest.
        Self(u64::try_from(n).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for ByteCount {
    /// Exact below 1 KiB, otherwise one decimal and a binary unit.
    #[expect(
        clippy::as_conversions,
        clippy::cast_precision_loss,
        reason = "shown to people with one decimal; exact values are printed by get()"
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = "KiB";
        for next in UNITS.iter().skip(1) {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        write!(f, "{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::ByteCount;

    #[test]
    fn a_size_is_shown_with_a_binary_unit() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 30, "1.0 GiB"),
            (5 << 40, "5.0 TiB"),
        ] {
            assert_eq!(ByteCount::new(bytes).to_string(), shown, "{bytes}");
        }
    }
}
