use holdfast::{access::Grant, model::SessionHandle};

/// Keeps I1 and I9: a grant cannot be made, copied or read from a message outside `access`.
#[test]
fn a_grant_cannot_be_forged() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/api/forge/grant_*.rs");
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
