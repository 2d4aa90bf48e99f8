//! Names to save under, and the header that carries them.

use holdfast::{
    http::semantics::attachment,
    model::{Digest, SaveName},
};

/// A name of any bytes becomes a safe one, stays the same from then on, and comes back from the
/// header whole.
pub fn check(data: &[u8]) {
    let name = SaveName::of_bytes(data, Digest::of(data));
    assert_safe(name.as_str());
    assert_eq!(SaveName::new(name.as_str()), name, "twice changes nothing");
    let ascii = name.ascii();
    assert_safe(&ascii);
    assert!(ascii.is_ascii());
    assert!(!ascii.contains(['"', '\\', '%', ';']), "{ascii:?}");
    assert_eq!(SaveName::new(&ascii).ascii(), ascii);
    // Some clients decode once too often.
    let decoded = String::from_utf8(unescaped(name.as_str())).expect("still text");
    assert_safe(&decoded);
    let header = attachment(&name).to_string();
    assert!(
        header.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "{header:?}"
    );
    let (plain, extended) = read_back(&header);
    assert_eq!(plain, ascii);
    assert_eq!(extended.is_none(), ascii == name.as_str());
    assert_eq!(extended.unwrap_or(plain), name.as_str());
}

/// The rules again, in other words.
fn assert_safe(name: &str) {
    assert!((1..=240).contains(&name.len()), "{} bytes", name.len());
    assert!(!name.chars().any(char::is_control), "{name:?}");
    assert!(
        !name.contains(['<', '>', ':', '"', '|', '?', '*', '\\', '/']),
        "{name:?}"
    );
    let reordering = ['\u{61c}', '\u{200e}', '\u{200f}'];
    assert!(!name.contains(reordering), "{name:?}");
    assert!(!name.contains(|c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')));
    assert!(!name.contains(['\u{200b}', '\u{feff}', '\u{ad}', '\u{2028}', '\u{2029}']));
    assert_eq!(name.trim(), name);
    assert!(!name.ends_with('.') && !name.starts_with('-'), "{name:?}");
    let dot_file = name.strip_prefix('.').unwrap_or("");
    assert!(
        dot_file.bytes().all(|byte| byte.is_ascii_lowercase()),
        "{name:?}"
    );
    let stem = name
        .split('.')
        .next()
        .unwrap_or("")
        .trim_end()
        .to_uppercase();
    let device = match stem.as_str() {
        "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$" | "CLOCK$" => true,
        port => {
            (port.starts_with("COM") || port.starts_with("LPT"))
                && port.chars().count() == 4
                && port.ends_with(|c: char| c.is_ascii_digit() || "¹²³".contains(c))
        }
    };
    assert!(!device, "{name:?}");
}

/// Every `%41` as the byte it stands for, everything else as it is.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let plain = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = digits
            .filter(plain)
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        (bytes, rest) = match value.filter(|_| byte == b'%') {
            Some(value) => ([&bytes[..], &[value]].concat(), &tail[2..]),
            None => ([&bytes[..], &[byte]].concat(), tail),
        };
    }
    bytes
}

/// Reads the header as a client does: one `filename`, at most one `filename*`, nothing else.
pub fn read_back(header: &str) -> (String, Option<String>) {
    let rest = header
        .strip_prefix("attachment; filename=\"")
        .expect("an attachment");
    let (plain, rest) = rest.split_once('"').expect("a quoted name");
    if rest.is_empty() {
        return (plain.to_owned(), None);
    }
    let encoded = rest
        .strip_prefix("; filename*=UTF-8''")
        .expect("the second form");
    let mut bytes = Vec::new();
    let mut left = encoded.bytes();
    while let Some(byte) = left.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [left.next().expect("a digit"), left.next().expect("a digit")];
                let text = std::str::from_utf8(&digits).expect("digits");
                u8::from_str_radix(text, 16).expect("digits")
            }
            byte => {
                let plain = byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte);
                assert!(plain, "{byte:#x} stands for itself");
                byte
            }
        });
    }
    (
        plain.to_owned(),
        Some(String::from_utf8(bytes).expect("UTF-8")),
    )
}
