use std::fmt;

use percent_encoding::percent_decode_str;
use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

use super::Digest;

/// The longest name, in bytes of UTF-8. One component of a path holds 255 on any usual system, and
/// clients add to the name while they write: Chromium `.crdownload`, and ` (1)` beside another of it.
/// Without that room it does not save the file at all.
const MAX_BYTES: usize = 240;
/// The longest extension kept when a name is cut, in bytes with its dot.
const MAX_EXTENSION: usize = 17;
/// What a name with nothing usable in it becomes.
const NAMELESS: &str = "download";
/// Dot files that configure nothing which runs; any other leading dot gets a `_` before it.
const HARMLESS_DOT_FILES: [&str; 8] = [
    ".dockerignore",
    ".editorconfig",
    ".gitattributes",
    ".gitignore",
    ".gitkeep",
    ".nojekyll",
    ".npmignore",
    ".prettierignore",
];
/// Stems Windows takes for devices, whatever follows the first dot. `COM1` and the like are counted
/// with [`is_device`].
const DEVICES: [&str; 7] = ["AUX", "CLOCK$", "CON", "CONIN$", "CONOUT$", "NUL", "PRN"];

/// A name that is safe to save under on Linux, macOS and Windows.
///
/// Invariant: one component of 1..=240 bytes, in NFC, without control characters, bidirectional
/// controls, other invisible characters, or any of `<>:"|?*\/`; no blank at either end, no trailing
/// dot, no leading `-`; a leading dot only on harmless files; not a Windows device; and none of this
/// again once `%41` and its like are decoded, which some clients do once too often. Making a safe name
/// of a safe name changes nothing.
///
/// # Source
/// `docs/decisions/names.md`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SaveName(String);

impl SaveName {
    /// The safe name nearest to `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let clean: String = last_component(name)
            .chars()
            .filter(|&c| !is_invisible(c))
            .nfc()
            .map(|c| if is_reserved(c) { '_' } else { c })
            .collect();
        let mut safe = fit(&clean);
        if safe.is_empty() {
            safe.push_str(NAMELESS);
        }
        if needs_prefix(&safe) {
            safe = fit(&format!("_{safe}"));
        }
        if hides_another(&safe) {
            safe = safe.replace('%', "_");
        }
        Self(safe)
    }

    /// The safe name of a file whose name on disk is `name`.
    ///
    /// What is not UTF-8 is shown with U+FFFD; eight digits of the content's digest then keep two
    /// such names apart.
    #[must_use]
    pub fn of_bytes(name: &[u8], digest: Digest) -> Self {
        if let Ok(name) = std::str::from_utf8(name) {
            return Self::new(name);
        }
        let shown = Self::new(&String::from_utf8_lossy(name));
        let (stem, extension) = split(&shown.0);
        let mark: String = digest.to_string().chars().take(8).collect();
        let room = MAX_BYTES.saturating_sub(extension.len().saturating_add(9));
        Self::new(&format!("{}-{mark}{extension}", cut(stem, room)))
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in printable ASCII, without `"`, `\`, `%` or `;`, so that no reader of
    /// `filename="…"` can see more than a name in it. Itself a safe name.
    #[must_use]
    pub fn ascii(&self) -> String {
        let mut ascii = String::with_capacity(self.0.len());
        for c in self.0.chars() {
            transliterate(c, &mut ascii);
        }
        Self::new(&ascii).0
    }
}

impl fmt::Display for SaveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The last component that is not empty, by the separators of both families of systems.
fn last_component(name: &str) -> &str {
    name.rsplit(['/', '\\'])
        .find(|component| !component.is_empty())
        .unwrap_or("")
}

/// Characters that show nothing or reorder what is shown: control characters, line and paragraph
/// separators, and all of `Default_Ignorable_Code_Point`, in which the bidirectional controls lie.
///
/// # Source
/// `DerivedCoreProperties.txt` of Unicode 16.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// What Windows does not take in a name; it covers what the others do not.
const fn is_reserved(c: char) -> bool {
    matches!(c, '<' | '>' | ':' | '"' | '|' | '?' | '*' | '\\' | '/')
}

/// Blanks off both ends, dots off the end, and no more than [`MAX_BYTES`].
fn fit(name: &str) -> String {
    let trimmed = trim_end(name.trim_start());
    if trimmed.len() <= MAX_BYTES {
        return trimmed.to_owned();
    }
    let (stem, extension) = split(trimmed);
    let room = MAX_BYTES.saturating_sub(extension.len());
    let fitted = format!("{}{extension}", cut(stem, room));
    trim_end(&fitted).to_owned()
}

fn trim_end(name: &str) -> &str {
    name.trim_end_matches(|c: char| c == '.' || c.is_whitespace())
}

/// The stem, and a short extension with its dot, if there is one.
fn split(name: &str) -> (&str, &str) {
    match name.rfind('.').and_then(|dot| name.split_at_checked(dot)) {
        Some((stem, extension)) if !stem.is_empty() && extension.len() <= MAX_EXTENSION => {
            (stem, extension)
        }
        _ => (name, ""),
    }
}

/// At most `room` bytes of `text`, whole characters only.
fn cut(text: &str, room: usize) -> &str {
    text.get(..text.floor_char_boundary(room)).unwrap_or(text)
}

fn needs_prefix(name: &str) -> bool {
    name.starts_with('-')
        || (name.starts_with('.') && !HARMLESS_DOT_FILES.contains(&name))
        || is_device(name)
}

/// Whether decoding percent escapes once more, as a widespread client does, gives a name that is not
/// safe. Each decoding is shorter, so that the question ends.
fn hides_another(name: &str) -> bool {
    let decoded = percent_decode_str(name).collect::<Vec<_>>();
    if decoded == name.as_bytes() {
        return false;
    }
    match std::str::from_utf8(&decoded) {
        Ok(decoded) => SaveName::new(decoded).0 != decoded,
        Err(_) => true,
    }
}

/// Whether Windows opens a device for this name: the part before the first dot counts, blanks at
/// its end do not.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end();
    let upper = stem.to_ascii_uppercase();
    if DEVICES.contains(&upper.as_str()) {
        return true;
    }
    let port = upper
        .strip_prefix("COM")
        .or_else(|| upper.strip_prefix("LPT"));
    port.is_some_and(|number| {
        let mut digits = number.chars();
        matches!(digits.next(), Some('0'..='9' | '¹' | '²' | '³')) && digits.next().is_none()
    })
}

/// Adds the ASCII form of `c`: itself, what it decomposes to, a customary spelling, or `_`.
fn transliterate(c: char, ascii: &mut String) {
    if c.is_ascii() {
        ascii.push(match c {
            '"' | '\\' | '%' | ';' => '_',
            c => c,
        });
        return;
    }
    if is_combining_mark(c) {
        return;
    }
    let customary = match c {
        'ß' => "ss",
        'ẞ' => "SS",
        'æ' => "ae",
        'Æ' => "AE",
        'œ' => "oe",
        'Œ' => "OE",
        'ø' => "o",
        'Ø' => "O",
        'đ' | 'ð' => "d",
        'Đ' | 'Ð' => "D",
        'ł' => "l",
        'Ł' => "L",
        'ı' => "i",
        'þ' => "th",
        'Þ' => "Th",
        '‘' | '’' | '‚' | '“' | '”' | '„' | '′' => "'",
        '‐' | '‑' | '‒' | '–' | '—' | '―' | '−' => "-",
        _ => "",
    };
    if !customary.is_empty() {
        ascii.push_str(customary);
        return;
    }
    let before = ascii.len();
    for part in std::iter::once(c).nfkd() {
        match part {
            '0'..='9' | 'A'..='Z' | 'a'..='z' | ' ' | '.' | '-' | '_' | '(' | ')' => {
                ascii.push(part);
            }
            part if is_combining_mark(part) => {}
            _ => {
                ascii.truncate(before);
                break;
            }
        }
    }
    if ascii.len() == before {
        ascii.push('_');
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, SaveName};
    use crate::model::Digest;

    #[test]
    fn a_name_is_made_safe_and_an_honest_one_is_left_alone() {
        for (name, safe) in [
            ("report.md", "report.md"),
            ("Bericht (endgültig) 2.pdf", "Bericht (endgültig) 2.pdf"),
            ("报告.md", "报告.md"),
            ("a, b.txt", "a, b.txt"),
            ("100%.txt", "100%.txt"),
            ("party🎉.png", "party🎉.png"),
            // Paths of either family.
            ("/etc/passwd", "passwd"),
            ("..\\..\\evil.exe", "evil.exe"),
            ("C:\\x\\y.txt", "y.txt"),
            ("a/b/", "b"),
            ("../..", NAMELESS),
            // Invisible or reordering.
            ("a\r\nSet-Cookie: x", "aSet-Cookie_ x"),
            ("a\u{0}b\u{7f}c\u{85}", "abc"),
            ("inno\u{202e}gpj.exe", "innogpj.exe"),
            ("\u{2066}a\u{2069}\u{200b}\u{feff}\u{ad}", "a"),
            ("a\u{2028}b\u{2029}", "ab"),
            ("\u{e0041}\u{e007f}x", "x"),
            // NFC, also where something invisible stood between.
            ("e\u{301}.txt", "é.txt"),
            ("e\u{34f}\u{301}.txt", "é.txt"),
            // Reserved.
            ("a<b>c:d|e?f*g", "a_b_c_d_e_f_g"),
            // Ends.
            ("  x  ", "x"),
            ("\u{3000}x\u{a0}", "x"),
            ("x. . .", "x"),
            ("...", NAMELESS),
            ("", NAMELESS),
            (" ", NAMELESS),
            // Starts.
            ("-rf", "_-rf"),
            (".bashrc", "_.bashrc"),
            ("..x", "_..x"),
            (".gitignore", ".gitignore"),
        ] {
            assert_eq!(SaveName::new(name).as_str(), safe, "{name:?}");
        }
    }

    const NAMELESS: &str = super::NAMELESS;

    #[test]
    fn a_client_that_decodes_once_too_often_gets_a_safe_name_too() {
        for (name, safe) in [
            ("my%20file.txt", "my%20file.txt"),
            ("100%.txt", "100%.txt"),
            ("%2ebashrc", "_2ebashrc"),
            ("%252ebashrc", "_252ebashrc"),
            ("a%2f..%2fb", "a_2f.._2fb"),
            ("%4eUL.txt", "_4eUL.txt"),
            ("a%0d%0ab", "a_0d_0ab"),
            ("a%9bb", "a_9bb"),
            ("x%2e", "x_2e"),
        ] {
            assert_eq!(SaveName::new(name).as_str(), safe, "{name}");
        }
    }

    #[test]
    fn n05_a_name_windows_would_write_elsewhere_is_adjusted() {
        for (name, safe) in [
            ("NUL.bin", "_NUL.bin"),
            ("con", "_con"),
            ("Aux .tar.gz", "_Aux .tar.gz"),
            ("com1.txt", "_com1.txt"),
            ("LPT³", "_LPT³"),
            ("conin$", "_conin$"),
            ("console.log", "console.log"),
            ("com10.txt", "com10.txt"),
            ("x.txt.", "x.txt"),
            ("x.txt ", "x.txt"),
        ] {
            assert_eq!(SaveName::new(name).as_str(), safe, "{name}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_keeps_a_short_extension() {
        let long = SaveName::new(&format!("{}.txt", "é".repeat(300)));
        assert_eq!(long.as_str(), format!("{}.txt", "é".repeat(118)));
        let no_extension = SaveName::new(&format!("a.{}", "b".repeat(300)));
        assert_eq!(no_extension.as_str().len(), MAX_BYTES);
        // There is room for the prefix.
        let dash = SaveName::new(&format!("-{}", "a".repeat(239)));
        assert_eq!(dash.as_str(), format!("_-{}", "a".repeat(238)));
        // A cut that would leave a device does not.
        let device = SaveName::new(&format!("CON{}x", " ".repeat(300)));
        assert_eq!(device.as_str(), "_CON");
    }

    #[test]
    fn names_that_are_not_utf_8_do_not_meet() {
        let one = SaveName::of_bytes(b"caf\xe9.txt", Digest::of(b"one"));
        let two = SaveName::of_bytes(b"caf\xe8.txt", Digest::of(b"two"));
        assert_eq!(one.as_str(), "caf\u{fffd}-7692c3ad.txt");
        assert_ne!(one, two);
        let plain = SaveName::of_bytes("café.txt".as_bytes(), Digest::of(b"one"));
        assert_eq!(plain.as_str(), "café.txt");
        let long = SaveName::of_bytes(&[0xff; 400], Digest::of(b"one"));
        assert!(long.as_str().ends_with("-7692c3ad"), "{long}");
    }
}
