use serde::Deserialize;

use super::HandoffError;
use crate::model::is_invisible;

/// The most bytes an intent may ask for.
pub const MAX_BYTES: u64 = 1 << 20;
const MAX_PATH: usize = 1024;
const MAX_COMPONENTS: usize = 32;
const MAX_COMPONENT: usize = 255;

/// A bounded read of one file by a relative path: the one thing that can be asked for.
///
/// Invariant: the path would need no normalising; it is compared and digested as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    path: String,
    max_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Form {
    version: u64,
    kind: String,
    path: String,
    max_bytes: Option<serde_json::Value>,
}

impl Intent {
    /// Reads an intent. Nothing is repaired.
    ///
    /// # Errors
    /// [`HandoffError`] with the rule that was broken.
    pub fn parse(json: &[u8]) -> Result<Self, HandoffError> {
        let form: Form = serde_json::from_slice(json).map_err(|error| {
            if error.to_string().starts_with("unknown field") {
                HandoffError::UnknownMember
            } else {
                HandoffError::IntentInvalid
            }
        })?;
        if form.version != 1 || form.kind != "read-file" {
            return Err(HandoffError::IntentInvalid);
        }
        if !is_plain(&form.path) {
            return Err(HandoffError::PathRefused);
        }
        let bound = form.max_bytes.as_ref().and_then(serde_json::Value::as_u64);
        match bound {
            Some(max_bytes) if (1..=MAX_BYTES).contains(&max_bytes) => Ok(Self {
                path: form.path,
                max_bytes,
            }),
            _ => Err(HandoffError::BoundMissing),
        }
    }

    /// The path, as it was sent.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The most bytes to read.
    #[must_use]
    pub const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// What a person is told.
    #[must_use]
    pub fn plan(&self) -> String {
        format!(
            "the assistant wants at most {} bytes of `{}` from your computer; nothing was read",
            self.max_bytes, self.path
        )
    }
}

fn is_plain(path: &str) -> bool {
    let device = |part: &str| {
        let stem = part
            .split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_uppercase();
        let numbered = |name: &str| {
            stem.strip_prefix(name)
                .is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|b| b.is_ascii_digit()))
        };
        matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
    };
    let lower = path.to_ascii_lowercase();
    let encoded = ["%2f", "%5c", "%2e", "%00"];
    let component = |part: &str| {
        (1..=MAX_COMPONENT).contains(&part.len())
            && !matches!(part, "." | "..")
            && !part.starts_with([' ', '~'])
            && !part.ends_with([' ', '.'])
            && !part
                .chars()
                .any(|c| is_invisible(c) || matches!(c, '\\' | ':'))
            && !device(part)
    };
    (1..=MAX_PATH).contains(&path.len())
        && path.split('/').count() <= MAX_COMPONENTS
        && path.split('/').all(component)
        && !encoded.iter().any(|bad| lower.contains(bad))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Intent;
    use crate::handoff::HandoffError;

    fn parse(value: &serde_json::Value) -> Result<Intent, HandoffError> {
        Intent::parse(value.to_string().as_bytes())
    }

    fn read(path: &str) -> Result<Intent, HandoffError> {
        parse(&json!({"version": 1, "kind": "read-file", "path": path, "maxBytes": 10}))
    }

    #[test]
    fn ho_04_a_path_is_plain_or_refused() {
        for path in ["a", "a/b.txt", "src/über/文件", ".hidden", "a b", "%41"] {
            assert!(read(path).is_ok(), "{path}");
        }
        let long = "a".repeat(1025);
        let deep = ["a"; 33].join("/");
        let wide = "a".repeat(256);
        for path in [
            "",
            "/a",
            "a/",
            "a//b",
            "..",
            "../a",
            "a/../b",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "a\\b",
            "C:",
            "C:/a",
            "C:\\a",
            "\\\\host\\share",
            "http://x/y",
            "file:a",
            "a%2fb",
            "a%2Fb",
            "%2e%2e/a",
            "a\0b",
            "a\u{7f}",
            "a\nb",
            " a",
            "a ",
            "a./b",
            "a.",
            "~/a",
            "~root/a",
            "a\u{202e}b",
            "a\u{200b}",
            "NUL",
            "com1.txt",
            "a/aux",
            &long,
            &deep,
            &wide,
        ] {
            assert_eq!(read(path), Err(HandoffError::PathRefused), "{path:?}");
        }
        let surrogate = br#"{"version":1,"kind":"read-file","path":"a\ud800","maxBytes":10}"#;
        assert_eq!(Intent::parse(surrogate), Err(HandoffError::IntentInvalid));
    }

    #[test]
    fn ho_05_a_read_has_a_bound() {
        for bound in [
            json!(0),
            json!(-1),
            json!(1_000_000_000),
            json!(1.0),
            json!("10"),
            json!(null),
            json!(true),
            json!(1_048_577),
        ] {
            let intent = json!({"version": 1, "kind": "read-file", "path": "a", "maxBytes": bound});
            assert_eq!(parse(&intent), Err(HandoffError::BoundMissing), "{bound}");
        }
        let without = json!({"version": 1, "kind": "read-file", "path": "a"});
        assert_eq!(parse(&without), Err(HandoffError::BoundMissing));
    }

    #[test]
    fn ho_06_an_intent_is_closed() {
        for member in [
            "credentials",
            "permissions",
            "env",
            "cwd",
            "approved",
            "__proto__",
        ] {
            let mut intent = json!({"version": 1, "kind": "read-file", "path": "a", "maxBytes": 1});
            intent[member] = json!(true);
            assert_eq!(parse(&intent), Err(HandoffError::UnknownMember), "{member}");
        }
        let twice = br#"{"version":1,"kind":"read-file","path":"a","path":"b","maxBytes":1}"#;
        assert_eq!(Intent::parse(twice), Err(HandoffError::IntentInvalid));
        for (version, kind) in [(2, "read-file"), (1, "write-file"), (1, "exec")] {
            let intent = json!({"version": version, "kind": kind, "path": "a", "maxBytes": 1});
            assert_eq!(parse(&intent), Err(HandoffError::IntentInvalid));
        }
    }
}
