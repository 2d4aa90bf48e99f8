//! Values that stand for a passed check cannot be made, copied or read from anywhere: each file in
//! `forged` tries to, and must not compile, with the error beside it.

/// Keeps I2, I3, I4 and I9: `Grant`, `PinningProof` and `Verified` have one maker each.
#[test]
fn a_passed_check_cannot_be_forged() {
    trybuild::TestCases::new().compile_fail("tests/types/forged/*.rs");
}
