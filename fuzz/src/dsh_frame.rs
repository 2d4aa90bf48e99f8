//! Logs of a DSH home: plain lines and Zstandard frames.

use holdfast::{
    journal::dsh::{DshLimits, Encoding, LogName, read_log},
    model::ByteCount,
};

/// The first byte says the format and the encoding, the rest is the file. Any bytes are read or
/// refused with a reason; what is read is dense from 0; and a file that is cut anywhere reads as a
/// prefix of the whole one, or is refused.
pub fn check(data: &[u8]) {
    let Some((first, file)) = data.split_first() else {
        return;
    };
    let name = LogName {
        version: u32::from(first & 7),
        encoding: if first & 8 == 0 {
            Encoding::Plain
        } else {
            Encoding::Zstd
        },
    };
    assert_eq!(LogName::parse(name.file_name().as_bytes()), Some(name));
    let limits = DshLimits {
        line: ByteCount::kib(64),
        frame: ByteCount::mib(1),
        log: ByteCount::mib(2),
        rows: 10_000,
        references: 100,
        ..DshLimits::default()
    };
    let whole = match read_log(file, name, &limits) {
        Ok(whole) => whole,
        Err(why) => return assert!(!why.is_empty()),
    };
    for (seq, event) in (0..).zip(&whole.events) {
        assert_eq!(event.seq.get(), seq);
    }
    let step = (file.len() / 16).max(1);
    for cut in (0..file.len()).step_by(step) {
        if let Ok(part) = read_log(&file[..cut], name, &limits) {
            assert!(part.events.len() <= whole.events.len() || whole.ended.is_some());
            for (some, all) in part.events.iter().zip(&whole.events) {
                assert_eq!(some.data.get(), all.data.get(), "cut at {cut}");
            }
        }
    }
}
