use crate::model::is_invisible;

/// What stands in place of a credential.
const HIDDEN: &str = "[redacted]";

/// Beginnings by which services mark their own tokens.
const MARKED: &[&str] = &[
    "hf_",
    "hft_",
    "sk-",
    "sk_",
    "pk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
    "npm_",
    "pypi-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "dop_v1_",
    "shpat_",
    "SG.",
];

/// Names whose value is a credential, in lower case.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "access-key",
    "private_key",
    "authorization",
    "credential",
    "credentials",
];

/// Schemes after which the next word is a credential, in lower case.
const SCHEMES: &[&str] = &["bearer", "basic"];

/// The shortest word that is taken for a drawn secret by its look alone.
const DRAWN: usize = 32;

/// Hides what looks like a credential. Too much is hidden rather than too little: a person who cannot
/// read what is asked cannot allow it.
pub(super) fn credentials(text: &str) -> String {
    let text = keys(text);
    let mut shown = String::with_capacity(text.len());
    // What the word before announced.
    let mut announced = false;
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let end = rest.find(is_gap).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let gap_end = after.find(|c| !is_gap(c)).unwrap_or(after.len());
        let (gap, after) = after.split_at(gap_end);
        if word.is_empty() {
            shown.push_str(gap);
        } else {
            let (out, next) = one_word(word, announced);
            announced = next;
            shown.push_str(&out);
            shown.push_str(gap);
        }
        rest = after;
    }
    shown
}

fn is_gap(c: char) -> bool {
    // What cannot be seen is no gap: it must not split a credential into innocent halves.
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '`' | ',' | ';' | '(' | ')' | '<' | '>' | '{' | '}'
        )
}

/// One word as it is shown, and whether it announces that the next one is a credential.
fn one_word(word: &str, announced: bool) -> (String, bool) {
    let plain: String = word.chars().filter(|c| !is_invisible(*c)).collect();
    let lower = plain.to_ascii_lowercase();
    if SCHEMES.contains(&lower.as_str()) {
        return (word.to_owned(), true);
    }
    // `name=value`, `name:value`, and `name:` before its value.
    if let Some(at) = plain.find(['=', ':']) {
        let (name, value) = plain.split_at(at);
        let mark: String = value.chars().take(1).collect();
        let value: String = value.chars().skip(1).collect();
        let named = is_credential_name(name);
        if named && value.is_empty() {
            return (word.to_owned(), true);
        }
        if named {
            return (
                format!("{name}{mark}{HIDDEN}"),
                SCHEMES.contains(&value.to_ascii_lowercase().as_str()),
            );
        }
        if let Some(shown) = without_userinfo(&plain) {
            return (shown, false);
        }
    }
    if announced && !plain.is_empty() && plain != "=" && plain != ":" {
        return (HIDDEN.to_owned(), false);
    }
    if announced {
        return (word.to_owned(), true);
    }
    if is_credential_name(&plain) && lower.starts_with("--") {
        return (word.to_owned(), true);
    }
    let parts = plain.split(['=', ':', '/', '?', '&', '@']);
    if parts.into_iter().any(looks_secret) {
        return (HIDDEN.to_owned(), false);
    }
    (word.to_owned(), false)
}

fn is_credential_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    NAMES.iter().any(|known| {
        name == *known
            || name.ends_with(&format!("_{known}"))
            || name.ends_with(&format!("-{known}"))
    })
}

/// A URL without the user and password before its host.
fn without_userinfo(word: &str) -> Option<String> {
    let (scheme, rest) = word.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (_userinfo, _host) = authority.rsplit_once('@')?;
    let after = rest.get(authority.rfind('@')?..)?;
    Some(format!("{scheme}://{HIDDEN}{after}"))
}

fn looks_secret(part: &str) -> bool {
    let part = part.trim_matches(|c: char| matches!(c, '.' | '!' | '[' | ']'));
    if MARKED
        .iter()
        .any(|mark| part.len() >= mark.len() + 8 && part.starts_with(mark))
    {
        return true;
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '-' | '.');
    let has = |test: fn(&char) -> bool| part.chars().any(|c| test(&c));
    part.len() >= DRAWN
        && part.chars().all(plain)
        && has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
}

/// Hides private keys in their armour, which spans lines and words.
fn keys(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN";
    const END: &str = "-----END";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, armour)) = rest.split_once(BEGIN) {
        shown.push_str(before);
        shown.push_str(HIDDEN);
        // Without an end everything that follows may belong to the key.
        rest = match armour.split_once(END) {
            Some((_key, after)) => after.split_once("-----").map_or("", |(_kind, after)| after),
            None => "",
        };
    }
    shown.push_str(rest);
    shown
}

/// Text as a person may be shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    /// Something of it is not shown.
    pub(super) truncated: bool,
    /// It had characters that hide or reorder text; they are shown as escapes.
    pub(super) deceptive: bool,
}

impl Shown {
    /// Hides credentials first, then makes hidden characters visible, then cuts at `most` bytes: a cut
    /// can never expose half of what is hidden.
    pub(super) fn of(text: &str, most: usize) -> Self {
        let mut shown = Self {
            text: String::new(),
            truncated: false,
            deceptive: false,
        };
        let mut lines = 0_usize;
        for c in credentials(text).chars() {
            let piece = if c == '\n' && lines < 2 {
                lines += 1;
                "\n".to_owned()
            } else {
                if c != '\n' {
                    lines = 0;
                }
                let hides = c == '\n' || c.is_control() || is_invisible(c);
                // Joiners are letters of some scripts, and blank lines are only long.
                shown.deceptive |= hides && !matches!(c, '\n' | '\t' | '\u{200c}' | '\u{200d}');
                if c == '\t' {
                    "  ".to_owned()
                } else if hides {
                    format!("\\u{{{:x}}}", u32::from(c))
                } else {
                    c.to_string()
                }
            };
            if shown.text.len() + piece.len() > most {
                shown.truncated = true;
                break;
            }
            shown.text.push_str(&piece);
        }
        shown
    }

    /// Whether anything but what stands for credentials can be read.
    pub(super) fn is_readable(&self) -> bool {
        self.text
            .replace(HIDDEN, "")
            .chars()
            .any(char::is_alphanumeric)
    }
}

#[cfg(test)]
mod tests {
    use super::{HIDDEN, Shown, credentials};

    #[test]
    fn credentials_are_hidden_and_ordinary_words_are_not() {
        let drawn = "a1".repeat(20);
        for (text, kept) in [
            ("delete the folder build/out", None),
            ("run cargo test in /srv/project", None),
            (
                "use ghp_0123456789abcdef to push",
                Some("ghp_0123456789abcdef"),
            ),
            ("curl -H 'Authorization: Bearer abc.def'", Some("abc.def")),
            ("mysql --password hunter2 db", Some("hunter2")),
            ("PGPASSWORD=x DB_PASSWORD=hunter2 psql", Some("hunter2")),
            ("token: hunter2", Some("hunter2")),
            ("git clone https://me:hunter2@host/repo", Some("hunter2")),
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY----- done",
                Some("abc"),
            ),
            ("-----BEGIN PRIVATE KEY-----\nabc", Some("abc")),
            (&format!("send {drawn}"), Some(drawn.as_str())),
            ("gh\u{200b}p_0123456789abcdef", Some("p_0123456789abcdef")),
        ] {
            let shown = credentials(text);
            match kept {
                None => assert_eq!(shown, text),
                Some(secret) => {
                    assert!(!shown.contains(secret), "{shown}");
                    assert!(shown.contains(HIDDEN), "{shown}");
                }
            }
        }
    }

    #[test]
    fn br_07_a_secret_across_the_cut_leaves_no_fragment() {
        let secret = "ghp_0123456789abcdefghijklmnop";
        for before in 0..64 {
            let text = format!("{} {secret} after", "x".repeat(before));
            let shown = Shown::of(&text, 48);
            assert!(!shown.text.contains("ghp_"), "{before}: {}", shown.text);
            assert!(!shown.text.contains("0123"), "{before}: {}", shown.text);
        }
    }

    #[test]
    fn br_09_hidden_characters_are_made_visible() {
        for (text, shown, deceptive) in [
            ("a\u{202e}b", "a\\u{202e}b", true),
            ("a\u{200b}b", "a\\u{200b}b", true),
            ("a\u{e0041}b", "a\\u{e0041}b", true),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb", true),
            ("a\rb", "a\\u{d}b", true),
            ("a\n\nb", "a\n\nb", false),
            ("a\n\n\n\nb", "a\n\n\\u{a}\\u{a}b", false),
            ("می\u{200c}خواهم", "می\\u{200c}خواهم", false),
        ] {
            let out = Shown::of(text, 4096);
            assert_eq!((out.text.as_str(), out.deceptive), (shown, deceptive));
        }
    }
}
