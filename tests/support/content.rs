//! Content that test programs and the tests that judge them make from a number.

/// `len` bytes that differ from seed to seed and never repeat within an object.
pub(crate) fn content(seed: u64, len: u64) -> Vec<u8> {
    // SplitMix64: every step is a bijection of the counter, so no two words of one run are alike.
    let word = |i: u64| {
        let mut z = seed
            .wrapping_mul(0xd134_2543_de82_ef95)
            .wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|i| word(i).to_le_bytes())
        .collect();
    bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    bytes
}
