use std::fmt;

use data_encoding::BASE64;
use thiserror::Error;

use super::{structured, trim_blanks};
use crate::model::Digest;

/// What a request says about digests in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing that could be read, or nothing about SHA-256.
    Unstated,
    /// SHA-256, please.
    Wanted,
    /// Not SHA-256: its weight is zero.
    Unwanted,
}

/// The value of `Repr-Digest` and `Content-Digest`: `sha-256=:…:`.
///
/// # Source
/// RFC 9530 sections 2 and 3; byte sequences of RFC 9651 section 3.3.5.
#[must_use]
pub fn repr_digest(digest: Digest) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "sha-256=:{}:", BASE64.encode_display(digest.as_bytes())))
}

/// The value of the old `Digest` field: `SHA-256=…`.
///
/// Sent only to those who ask for it with `Want-Digest`; a widespread download manager does, and
/// checks the file with it.
///
/// # Source
/// RFC 3230 section 4.3.2, with the name RFC 5843 registered.
#[must_use]
pub fn legacy_digest(digest: Digest) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "SHA-256={}", BASE64.encode_display(digest.as_bytes())))
}

/// Reads `Want-Repr-Digest` or `Want-Content-Digest`.
///
/// A malformed field is no wish; a weight of zero is a refusal; a weight that is not a whole number
/// from 0 to 10 says nothing.
///
/// # Source
/// RFC 9530 section 4; dictionaries of RFC 9651 section 4.2.2.
#[must_use]
pub fn wish<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Wish {
    let Some(members) = structured::dictionary(&joined(lines)) else {
        return Wish::Unstated;
    };
    match members.get("sha-256") {
        Some(structured::Item::Integer(0)) => Wish::Unwanted,
        Some(structured::Item::Integer(1..=10)) => Wish::Wanted,
        Some(
            structured::Item::Integer(_) | structured::Item::Bytes(_) | structured::Item::Other,
        )
        | None => Wish::Unstated,
    }
}

/// Reads the old `Want-Digest`: algorithms in any case, each with an optional `;q=`.
///
/// # Source
/// RFC 3230 section 4.3.1.
#[must_use]
pub fn wish_legacy<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Wish {
    let line = joined(lines);
    for element in line.split(|&b| b == b',') {
        let mut parts = element.split(|&b| b == b';').map(trim_blanks);
        if !parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(b"sha-256"))
        {
            continue;
        }
        return match parts.next() {
            None => Wish::Wanted,
            Some(weight) => weigh(weight),
        };
    }
    Wish::Unstated
}

/// Reads `q=0.5`: zero in any of its spellings is a refusal, and what is more than one, or has more
/// than three decimals, says nothing.
fn weigh(parameter: &[u8]) -> Wish {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else {
        return Wish::Unstated;
    };
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return Wish::Unstated,
    };
    let is_zero = decimals.iter().all(|&b| b == b'0');
    match whole {
        b'0' if is_zero => Wish::Unwanted,
        b'0' if decimals.iter().all(u8::is_ascii_digit) => Wish::Wanted,
        b'1' if is_zero => Wish::Wanted,
        _ => Wish::Unstated,
    }
}

/// Why what an upload claims about its digest cannot be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DigestFieldError {
    /// The field is not a dictionary.
    #[error("the digest field is not a dictionary of byte sequences")]
    Malformed,
    /// `sha-256` is there, but not as 32 bytes.
    #[error("the sha-256 member is not 32 bytes in base64")]
    NotSha256,
}

/// Reads the SHA-256 an upload's `Repr-Digest` or `Content-Digest` claims, if it claims one.
///
/// Other algorithms are passed over. A claim that cannot be read is an error, not silence: who sends
/// one relies on it being checked.
///
/// # Errors
/// [`DigestFieldError::Malformed`] when the field does not parse; [`DigestFieldError::NotSha256`]
/// when its `sha-256` is something else than 32 bytes.
///
/// # Source
/// RFC 9530 sections 2, 3 and 5.
pub fn claimed_digest<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<Digest>, DigestFieldError> {
    let line = joined(lines);
    if trim_blanks(&line).is_empty() {
        return Ok(None);
    }
    let members = structured::dictionary(&line).ok_or(DigestFieldError::Malformed)?;
    match members.get("sha-256") {
        None => Ok(None),
        Some(structured::Item::Bytes(bytes)) => match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(bytes) => Ok(Some(Digest::from_bytes(bytes))),
            Err(_) => Err(DigestFieldError::NotSha256),
        },
        Some(structured::Item::Integer(_) | structured::Item::Other) => {
            Err(DigestFieldError::NotSha256)
        }
    }
}

/// Several field lines as the one list they stand for: RFC 9110 section 5.3.
fn joined<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let lines: Vec<_> = lines.into_iter().collect();
    lines.join(&b", "[..])
}

#[cfg(test)]
mod tests {
    use super::{
        DigestFieldError, Wish, claimed_digest, legacy_digest, repr_digest, wish, wish_legacy,
    };
    use crate::model::Digest;

    #[test]
    fn a_digest_is_written_as_both_standards_write_it() {
        // RFC 9530 appendix B.1: the digest of the JSON object with a line feed.
        let digest = Digest::of(b"{\"hello\": \"world\"}\n");
        assert_eq!(
            repr_digest(digest).to_string(),
            "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
        );
        assert_eq!(
            legacy_digest(digest).to_string(),
            "SHA-256=RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg="
        );
    }

    #[test]
    fn a_weight_of_zero_means_no_and_a_malformed_wish_means_nothing() {
        for (lines, expected) in [
            (&["sha-256=10"][..], Wish::Wanted),
            (&["sha-256=1, sha-512=10"], Wish::Wanted),
            (&["sha-512=10", "sha-256=2"], Wish::Wanted),
            (&["sha-256=5;x=\"a, b\", y"], Wish::Wanted),
            (&["sha-256=0"], Wish::Unwanted),
            (&["sha-256=9, sha-256=0"], Wish::Unwanted),
            (&["sha-512=3"], Wish::Unstated),
            (&["sha-256=11"], Wish::Unstated),
            (&["sha-256=-1"], Wish::Unstated),
            (&["sha-256=0.5"], Wish::Unstated),
            (&["sha-256"], Wish::Unstated),
            (&["SHA-256=1"], Wish::Unstated),
            (&["sha-256=0,"], Wish::Unstated),
            (&["sha-256=0 sha-512=1"], Wish::Unstated),
            (&["\"sha-256\"=0"], Wish::Unstated),
            (&[""], Wish::Unstated),
            (&[], Wish::Unstated),
        ] {
            let read = wish(lines.iter().map(|line| line.as_bytes()));
            assert_eq!(read, expected, "{lines:?}");
        }
    }

    #[test]
    fn the_old_wish_is_read_as_download_managers_write_it() {
        for (line, expected) in [
            ("SHA-512;q=1, SHA-256;q=1, SHA;q=0.1", Wish::Wanted),
            ("sha-256", Wish::Wanted),
            ("SHA-256;q=0.3,sha;q=1", Wish::Wanted),
            ("SHA-256;q=0", Wish::Unwanted),
            ("SHA-256; q=0.000", Wish::Unwanted),
            ("SHA-256;q=1.000", Wish::Wanted),
            ("SHA-256;q=0.001", Wish::Wanted),
            ("SHA-256;q=x", Wish::Unstated),
            ("SHA-256;q=1.5", Wish::Unstated),
            ("SHA-256;q=2", Wish::Unstated),
            ("SHA-256;q=0.0001", Wish::Unstated),
            ("SHA-256;q=0.x", Wish::Unstated),
            ("SHA-256;q=", Wish::Unstated),
            ("MD5;q=0.3", Wish::Unstated),
            ("", Wish::Unstated),
        ] {
            assert_eq!(wish_legacy([line.as_bytes()]), expected, "{line}");
        }
    }

    #[test]
    fn what_an_upload_claims_is_read_or_refused() {
        let digest = Digest::of(b"content");
        let ours = repr_digest(digest).to_string();
        for (line, expected) in [
            (ours.clone(), Ok(Some(digest))),
            (format!("sha-512=:AAAA:, {ours};p=1"), Ok(Some(digest))),
            ("sha-512=:AAAA:".to_owned(), Ok(None)),
            (String::new(), Ok(None)),
            (
                "sha-256=:AAAA:".to_owned(),
                Err(DigestFieldError::NotSha256),
            ),
            ("sha-256=5".to_owned(), Err(DigestFieldError::NotSha256)),
            ("sha-256".to_owned(), Err(DigestFieldError::NotSha256)),
            (
                "sha-256=:****:".to_owned(),
                Err(DigestFieldError::Malformed),
            ),
            ("sha-256=:AAAA".to_owned(), Err(DigestFieldError::Malformed)),
            (
                format!("SHA-256={digest}"),
                Err(DigestFieldError::Malformed),
            ),
        ] {
            assert_eq!(claimed_digest([line.as_bytes()]), expected, "{line}");
        }
        assert_eq!(claimed_digest([]), Ok(None));
    }
}
