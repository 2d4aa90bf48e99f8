//! Names to save under.

use proptest::prelude::*;

#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/disposition.rs"]
mod body;

#[test]
fn the_corpus_of_names_holds() {
    super::corpus::replay("disposition", body::check);
}

/// Names built from what rules are about, so that the rules meet each other.
fn name() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z0-9]{1,4}".boxed(),
        2 => "[. \u{a0}\u{3000}_-]{1,3}".boxed(),
        2 => "[<>:\"|?*\\\\/%;'=&$`]".boxed(),
        1 => "[\u{0}\r\n\t\u{7f}\u{85}\u{ad}\u{34f}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{feff}]".boxed(),
        1 => "[\u{300}-\u{345}\u{338}\u{5b0}\u{1100}-\u{1112}\u{1161}-\u{1175}\u{11a8}-\u{11c2}]".boxed(),
        1 => "[éßæłŁ½⁄…．／：；％＂＼Å\u{1f88}\u{37e}\u{1fef}\u{fb01}\u{fdfa}🎉报]".boxed(),
        2 => "%(2[ef5]|41|0[ad]|9b|4e|[0-9a-f]{2})".boxed(),
        1 => "(con|NUL|com1|LPT¹|aux|CONIN\\$)".boxed(),
        1 => "(\\.gitignore|\\.tar\\.gz|\\.txt)".boxed(),
        1 => (240_usize..260).prop_map(|n| "é".repeat(n)).boxed(),
        1 => (1_usize..300).prop_map(|n| " ".repeat(n)).boxed(),
        1 => any::<char>().prop_map(String::from).boxed(),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_name_is_safe_and_stays_as_it_is_and_comes_back(name in name()) {
        body::check(name.as_bytes());
    }

    #[test]
    fn bytes_that_are_no_text_are_safe_too(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..90), 0..5),
    ) {
        body::check(&pieces.concat());
    }
}
