//! Values that stand for a passed check cannot be made, copied or read from anywhere: each file in
//! `forged` tries to, and must not compile, with the error beside it.

use holdfast::{access::Grant, model::SessionHandle};

/// Keeps I2, I3, I4 and I9: `Grant`, `PinningProof` and `Verified` have one maker each.
#[test]
fn a_passed_check_cannot_be_forged() {
    trybuild::TestCases::new().compile_fail("tests/types/forged/*.rs");
}

/// Compiles only while no grant can be read from a message: with a second way to be `Readable` the
/// compiler could not tell which one is meant.
#[test]
fn a_grant_cannot_be_read_from_a_message() {
    trait Readable<Way> {
        fn settled() {}
    }
    struct Anything;
    struct Message;
    impl<T> Readable<Anything> for T {}
    impl<T: serde::de::DeserializeOwned> Readable<Message> for T {}
    <Grant<SessionHandle> as Readable<_>>::settled();
    <Grant<()> as Readable<_>>::settled();
}
