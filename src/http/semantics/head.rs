use http::{HeaderName, Method, Uri, header};
use thiserror::Error;

use super::trim_blanks;

/// The most bytes of a request target that the HTTP library can hold.
const MAX_URI: usize = 65_534;

/// Why a head is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// It is not the head of an HTTP/1 request.
    #[error("the head is not one of an HTTP/1 request")]
    Syntax,
    /// It states its body's length wrongly, or in two ways.
    #[error("the body's length is stated wrongly, or twice in two ways")]
    Length,
    /// It states a transfer coding that is not `chunked`, or in HTTP/1.0.
    #[error("the transfer coding is not `chunked`, or the version knows none")]
    Coding,
    /// Its target is longer than any is.
    #[error("the target is too long")]
    TargetTooLong,
    /// It has more fields, or more bytes, than are read.
    #[error("the head is too large")]
    TooLarge,
}

/// Reads a head as the HTTP library will, so that what it would turn away without a word of ours is
/// turned away in our words. `bytes` may stop short; then it says whether they can still become a
/// head.
///
/// It is never more generous than the library, which reads the same bytes again.
///
/// # Errors
/// [`HeadError`].
///
/// # Source
/// RFC 9112 sections 3, 5 and 6.
pub fn check_head(bytes: &[u8], most_fields: usize) -> Result<(), HeadError> {
    let mut fields = vec![httparse::EMPTY_HEADER; most_fields];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(()),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(_) => return Err(HeadError::Syntax),
    }
    let target = request.path.unwrap_or_default();
    if target.len() > MAX_URI {
        return Err(HeadError::TargetTooLong);
    }
    let method = request.method.unwrap_or_default().as_bytes();
    if Uri::try_from(target).is_err() || Method::from_bytes(method).is_err() {
        return Err(HeadError::Syntax);
    }
    let mut length = None;
    let mut codings = 0_usize;
    let mut chunked = false;
    for field in request.headers.iter() {
        let name = HeaderName::try_from(field.name).map_err(|_not_a_name| HeadError::Syntax)?;
        let value = trim_blanks(field.value);
        if name == header::CONTENT_LENGTH {
            let stated = digits(value).ok_or(HeadError::Length)?;
            if *length.get_or_insert(stated) != stated {
                return Err(HeadError::Length);
            }
        } else if name == header::TRANSFER_ENCODING {
            codings = codings.saturating_add(1);
            let last = value.rsplit(|&b| b == b',').next().unwrap_or_default();
            chunked = trim_blanks(last).eq_ignore_ascii_case(b"chunked");
        }
    }
    if codings > 0 && (!chunked || request.version != Some(1)) {
        return Err(HeadError::Coding);
    }
    Ok(())
}

/// A length in digits alone, as the HTTP library can count it.
fn digits(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let length: u64 = digits.parse().ok().filter(|_| plain)?;
    // The two largest numbers have a meaning of their own there.
    (length < u64::MAX.saturating_sub(1)).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::{HeadError, check_head};

    #[test]
    fn a_head_is_taken_or_refused_for_its_reason() {
        let fields = "X: y\r\n".repeat(5);
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(())),
            ("\r\n\r\nGET / HTTP/1.0\r\n\r\n", Ok(())),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
                Ok(()),
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                Ok(()),
            ),
            ("G", Ok(())),
            ("GET / HTTP/1.1\r\nHost", Ok(())),
            ("", Ok(())),
            ("\u{16}\u{3}\u{1}", Err(HeadError::Syntax)),
            ("PRI * HTTP/2.0\r\n\r\n", Err(HeadError::Syntax)),
            ("GET / HTTP/1.1\r\n X: y\r\n\r\n", Err(HeadError::Syntax)),
            ("GET / HTTP/1.1\r\nX : y\r\n\r\n", Err(HeadError::Syntax)),
            ("GET a b HTTP/1.1\r\n\r\n", Err(HeadError::Syntax)),
            (
                "POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n",
                Err(HeadError::Length),
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
                Err(HeadError::Length),
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                Err(HeadError::Length),
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                Err(HeadError::Length),
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
                Err(HeadError::Coding),
            ),
            (
                "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
                Err(HeadError::Coding),
            ),
            (
                &format!("GET / HTTP/1.1\r\n{fields}\r\n"),
                Err(HeadError::TooLarge),
            ),
        ] {
            assert_eq!(check_head(head.as_bytes(), 4), expected, "{head:?}");
        }
    }
}
