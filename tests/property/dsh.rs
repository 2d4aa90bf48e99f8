//! A DSH home's logs and names: any bytes are read, or refused with a reason.

use proptest::prelude::*;

#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/dsh_folder.rs"]
mod folder;
#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/dsh_frame.rs"]
mod frame;
#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/dsh_row.rs"]
mod row;

#[test]
fn the_corpora_of_dsh_homes_hold() {
    super::corpus::replay("dsh_folder", folder::check);
    super::corpus::replay("dsh_frame", frame::check);
    super::corpus::replay("dsh_row", row::check);
}

/// A log of rows, some of them no rows at all.
fn log() -> impl Strategy<Value = String> {
    let row = prop_oneof![
        8 => Just(r#"{"type":"turn/end","seq":N,"time":1,"data":{}}"#),
        8 => Just(r#"{"type":"x","seq":N,"time":1,"data":[1,{"a":"b"}]}"#),
        1 => Just(r#"{"type":"x","seq":99,"time":1,"data":{}}"#),
        1 => Just("{oops}"),
        1 => Just(""),
    ];
    prop::collection::vec(row, 0..12).prop_map(|rows| {
        let mut text =
            String::from("{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"createdAt\":1}\n");
        for (seq, row) in rows.iter().enumerate() {
            text.push_str(&row.replace('N', &seq.to_string()));
            text.push('\n');
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_folder_is_one_ids_or_nobodys(bytes in prop::collection::vec(any::<u8>(), 0..40), text in ".{0,20}") {
        folder::check(&bytes);
        folder::check(text.as_bytes());
    }

    #[test]
    fn a_log_cut_or_changed_anywhere_is_read_or_refused(
        log in log(),
        zstd in any::<bool>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = vec![if zstd { 11 } else { 3 }];
        if zstd {
            for line in log.split_inclusive('\n') {
                bytes.extend(zstd::bulk::compress(line.as_bytes(), 3).unwrap());
            }
        } else {
            bytes.extend(log.as_bytes());
        }
        frame::check(&bytes);
        let at = at.index(bytes.len() - 1) + 1;
        bytes[at] = byte;
        frame::check(&bytes);
        frame::check(&bytes[..at]);
    }

    #[test]
    fn any_line_is_a_row_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        row::check(&bytes);
    }
}
