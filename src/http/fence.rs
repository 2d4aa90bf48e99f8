use http::{HeaderMap, HeaderValue, header};

use super::{
    problem::{Code, Problem},
    semantics::{AuthorityError, Host},
};

/// The names under which this service may be asked: the fence against DNS rebinding.
///
/// A page of another site can make a browser connect to any address, loopback included, but not
/// choose what stands in `Host`. Ports are not part of the fence: a forwarded port is still ours.
#[derive(Clone, Debug)]
pub struct AllowedHosts(Vec<Box<str>>);

impl Default for AllowedHosts {
    /// The loopback addresses and `localhost`.
    fn default() -> Self {
        Self(["127.0.0.1", "[::1]", "localhost"].map(Into::into).into())
    }
}

impl AllowedHosts {
    /// The loopback names, and the host of each of `authorities`, such as that of a public URL.
    ///
    /// # Errors
    /// [`AuthorityError`] when one is not `host` or `host:port`.
    pub fn with<'a>(
        authorities: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, AuthorityError> {
        let mut hosts = Self::default();
        for authority in authorities {
            let mut line = HeaderMap::new();
            let value = HeaderValue::try_from(authority)
                .map_err(|_not_a_field| AuthorityError::HostSyntax)?;
            line.insert(header::HOST, value);
            hosts.0.push(Host::of(&line)?.name().into());
        }
        Ok(hosts)
    }

    /// Lets a request pass that was addressed to one of our names.
    ///
    /// # Errors
    /// The [`Problem`] of a misdirected request.
    pub(super) fn admit(&self, host: Option<&Host>) -> Result<(), Problem> {
        // The accept loop checks the field's form; without its word nothing passes.
        match host {
            Some(host) if self.0.iter().any(|known| **known == *host.name()) => Ok(()),
            _ => Err(Problem::new(Code::Misdirected)),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::AllowedHosts;
    use crate::http::semantics::Host;

    #[test]
    fn only_a_host_that_is_ours_passes() {
        let hosts = AllowedHosts::with(["Files.Example:8443"]).unwrap();
        for (line, passes) in [
            ("127.0.0.1:7878", true),
            ("LOCALHOST", true),
            ("[::1]:80", true),
            ("files.example", true),
            ("files.example:443", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.nip.io", false),
            ("localhost.", false),
            ("127.0.0.2", false),
            ("0.0.0.0", false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(header::HOST, HeaderValue::from_static(line));
            let host = Host::of(&fields).unwrap();
            assert_eq!(hosts.admit(Some(&host)).is_ok(), passes, "{line}");
        }
        assert!(hosts.admit(None).is_err(), "unknown is not ours");
    }

    #[test]
    fn a_name_that_is_no_host_is_refused_at_start() {
        for authority in ["", "https://files.example", "a b", "files.example:port"] {
            assert!(AllowedHosts::with([authority]).is_err(), "{authority}");
        }
    }
}
