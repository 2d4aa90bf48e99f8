//! Repeatable numbers: the same seed gives the same attack order and the same contents.

#![forbid(unsafe_code)]

/// `SplitMix64`: small, fast, and good enough to vary timing; nothing here is a secret.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// A seed nobody chose, for runs that were given none; it is printed with the result.
#[must_use]
pub fn fresh_seed() -> u64 {
    // A machine without random numbers still gets a valid, if predictable, probe.
    // 53 bits: readers of JSON that know only floating point numbers must not change it.
    getrandom::u64().unwrap_or(1) >> 11
}
