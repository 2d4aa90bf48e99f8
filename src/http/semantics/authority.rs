use std::{fmt, net::Ipv6Addr};

use http::{HeaderMap, Uri, header};
use thiserror::Error;

use super::trim_blanks;

/// The longest request target, in bytes.
pub const MAX_TARGET: usize = 8 * 1024;
/// The longest name of a host: RFC 1035 section 2.3.4.
const MAX_NAME: usize = 255;

/// The host a request was addressed to, as its one `Host` field says.
///
/// Invariant: a lower-case name of letters, digits, `.`, `-` and `_`, or an IPv6 address in brackets.
/// Sound in form only: whether it is one of ours is for the fence against rebinding to say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

/// Why a request's target or `Host` is refused before anything else is looked at.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AuthorityError {
    /// The target is a URL, an authority or `*`; only a path is served.
    #[error("the request target is not a path")]
    Target,
    /// The target is longer than [`MAX_TARGET`].
    #[error("the request target is longer than {MAX_TARGET} bytes")]
    TargetTooLong,
    /// No `Host`, or more than one.
    #[error("a request has exactly one host field")]
    HostCount,
    /// A `Host` that is not a name or address with an optional port.
    #[error("the host field does not hold a host")]
    HostSyntax,
}

impl Host {
    /// Reads the one `Host` field of a request.
    ///
    /// # Errors
    /// [`AuthorityError::HostCount`] unless there is exactly one; [`AuthorityError::HostSyntax`] for
    /// user information, percent escapes, sub-delimiters, a wrong address or a wrong port.
    ///
    /// # Source
    /// RFC 9110 section 7.2, RFC 9112 section 3.2, RFC 3986 section 3.2.2. Stricter than the last:
    /// no registered name needs the rest of its alphabet.
    pub fn of(request: &HeaderMap) -> Result<Self, AuthorityError> {
        let mut lines = request.get_all(header::HOST).iter();
        match (lines.next(), lines.next()) {
            (Some(line), None) => Self::parse(trim_blanks(line.as_bytes())),
            _ => Err(AuthorityError::HostCount),
        }
    }

    fn parse(text: &[u8]) -> Result<Self, AuthorityError> {
        let text = std::str::from_utf8(text).ok();
        text.and_then(Self::split).ok_or(AuthorityError::HostSyntax)
    }

    fn split(text: &str) -> Option<Self> {
        let (name, rest) = if let Some(inner) = text.strip_prefix('[') {
            let (address, rest) = inner.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            (format!("[{address}]"), rest)
        } else {
            let (name, rest) = text.split_at_checked(text.find(':').unwrap_or(text.len()))?;
            let sound = (1..=MAX_NAME).contains(&name.len())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
            (sound.then(|| name.to_ascii_lowercase())?, rest)
        };
        let port = match rest.strip_prefix(':') {
            None | Some("") if matches!(rest, "" | ":") => None,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            None | Some(_) => return None,
        };
        Some(Self { name, port })
    }

    /// The name in lower case, or the address in brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port, where one was given.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Checks a request target: a path with an optional query, of bounded length.
///
/// # Errors
/// [`AuthorityError::Target`] for the absolute, authority and asterisk forms;
/// [`AuthorityError::TargetTooLong`] past [`MAX_TARGET`].
///
/// # Source
/// RFC 9112 section 3.2.
pub fn check_target(target: &Uri) -> Result<(), AuthorityError> {
    let whole = target.path_and_query().map_or("", |path| path.as_str());
    if whole.len() > MAX_TARGET {
        return Err(AuthorityError::TargetTooLong);
    }
    let path_alone = target.scheme().is_none() && target.authority().is_none();
    if path_alone && whole.starts_with('/') {
        Ok(())
    } else {
        Err(AuthorityError::Target)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Uri, header};

    use super::{AuthorityError, Host, MAX_TARGET, check_target};

    #[test]
    fn a_host_is_one_name_or_address_with_an_optional_port() {
        for (text, name, port) in [
            ("example.org", "example.org", None),
            ("EXAMPLE.org:8080", "example.org", Some(8080)),
            ("127.0.0.1:1", "127.0.0.1", Some(1)),
            ("[::1]:443", "[::1]", Some(443)),
            ("[0:0::1]", "[::1]", None),
            ("my_host:", "my_host", None),
            (" padded ", "padded", None),
        ] {
            let host = Host::parse(super::trim_blanks(text.as_bytes())).unwrap();
            assert_eq!((host.name(), host.port()), (name, port), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            ":80",
            "a b",
            "a,b",
            "user@host",
            "a/b",
            "a?b",
            "a#b",
            "a%41",
            "host:80a",
            "host:+1",
            "host:-1",
            "host:65536",
            "host:1:2",
            "[::1",
            "::1",
            "[::1]x",
            "[v1.x]",
            "[127.0.0.1]",
            "é",
            "a;b",
            "http://a",
            &"a".repeat(256),
        ] {
            let refused = Host::parse(text.as_bytes());
            assert_eq!(refused, Err(AuthorityError::HostSyntax), "{text}");
        }
    }

    #[test]
    fn a_request_has_exactly_one_host() {
        let mut request = HeaderMap::new();
        assert_eq!(Host::of(&request), Err(AuthorityError::HostCount));
        request.append(header::HOST, HeaderValue::from_static("a"));
        assert!(Host::of(&request).is_ok());
        request.append(header::HOST, HeaderValue::from_static("a"));
        assert_eq!(Host::of(&request), Err(AuthorityError::HostCount));
    }

    #[test]
    fn only_a_path_is_a_target() {
        let at_the_limit = format!("/{}", "a".repeat(MAX_TARGET - 1));
        for (target, expected) in [
            ("/", Ok(())),
            ("/a?b=c", Ok(())),
            ("//host/a", Ok(())),
            (at_the_limit.as_str(), Ok(())),
            (
                &format!("{at_the_limit}a"),
                Err(AuthorityError::TargetTooLong),
            ),
            ("http://host/a", Err(AuthorityError::Target)),
            ("host:443", Err(AuthorityError::Target)),
            ("*", Err(AuthorityError::Target)),
        ] {
            let uri: Uri = target.parse().unwrap();
            assert_eq!(check_target(&uri), expected, "{}", target.len());
        }
    }
}
