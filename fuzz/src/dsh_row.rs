//! Rows of a DSH log.

use holdfast::journal::dsh::{DshLimits, Encoding, LogName, read_log};

/// Any line behind an honest header is an event, or a run of them, or ends the log, or refuses it;
/// what it gives is JSON again and reads the same a second time.
pub fn check(data: &[u8]) {
    for version in 0..=4 {
        let header = format!(
            "{{\"type\":\"session\",\"version\":{version},\"id\":\"s\",\"createdAt\":1}}\n"
        );
        let name = LogName {
            version,
            encoding: Encoding::Plain,
        };
        let line = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let file = [header.as_bytes(), line, b"\n"].concat();
        let Ok(log) = read_log(&file, name, &DshLimits::default()) else {
            continue;
        };
        assert_eq!(log.events.is_empty(), log.ended.is_some());
        for event in &log.events {
            let kind = serde_json::to_string(&event.kind).expect("text is JSON");
            let row = format!(
                "{{\"type\":{kind},\"seq\":0,\"time\":{},\"data\":{},\"ignorable\":{}}}",
                event.time, event.data, event.ignorable
            );
            let file = format!("{header}{row}\n");
            let again = read_log(file.as_bytes(), name, &DshLimits::default());
            let again = again.expect("a row written from what was read is read");
            assert_eq!(again.events.len(), 1, "{:?}: {row}", again.ended);
            assert_eq!(again.events[0].kind, event.kind);
            assert_eq!(again.events[0].time, event.time);
        }
    }
}
