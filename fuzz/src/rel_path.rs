//! Paths beneath a root.

use holdfast::model::{MAX_COMPONENT, MAX_COMPONENTS, MAX_PATH, RelPath};

/// A path is kept byte for byte or refused by a rule, and its shown form loses nothing.
pub fn check(data: &[u8]) {
    let parsed = RelPath::parse(data);
    assert_eq!(parsed.is_ok(), is_plain(data), "{data:?}");
    let Ok(path) = parsed else { return };
    assert_eq!(path.as_bytes(), data);
    let components: Vec<&[u8]> = path.components().collect();
    assert_eq!(components.join(&b'/'), data);
    assert_eq!(components.last().copied(), Some(path.file_name()));
    let shown = path.to_string();
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    assert_eq!(read_back(&shown), data, "{shown:?}");
}

/// The rules again, in other words.
fn is_plain(data: &[u8]) -> bool {
    let mut length = 0;
    let mut slashes = 0;
    let mut dots_only = true;
    // A slash at the end closes the last component as it does every other.
    for &byte in data.iter().chain(b"/") {
        match byte {
            0 => return false,
            b'/' if length == 0 || length > MAX_COMPONENT || (dots_only && length < 3) => {
                return false;
            }
            b'/' => {
                slashes += 1;
                length = 0;
                dots_only = true;
            }
            _ => {
                length += 1;
                dots_only &= byte == b'.';
            }
        }
    }
    data.len() <= MAX_PATH && slashes <= MAX_COMPONENTS
}

/// The bytes a shown path stands for.
pub fn read_back(shown: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = shown.as_bytes();
    loop {
        match rest {
            [] => return bytes,
            [b'\\', b'\\', tail @ ..] => {
                bytes.push(b'\\');
                rest = tail;
            }
            [b'\\', b'x', high, low, tail @ ..] => {
                let digits = [*high, *low];
                let text = std::str::from_utf8(&digits).expect("two hexadecimal digits");
                bytes.push(u8::from_str_radix(text, 16).expect("two hexadecimal digits"));
                rest = tail;
            }
            [b'\\', ..] => unreachable!("a lone backslash in {shown:?}"),
            [byte, tail @ ..] => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
}
