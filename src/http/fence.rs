use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::{
    problem::{Code, Problem},
    semantics::{AuthorityError, Host},
};

/// The names under which this service may be asked: the fence against DNS rebinding.
///
/// A page of another site can make a browser connect to any address, loopback included, but not
/// choose what stands in `Host`. Ports are not part of the fence: a forwarded port is still ours.
#[derive(Clone, Debug)]
pub struct AllowedHosts {
    names: Vec<Box<str>>,
    /// What pages of ours may say they are from, besides the host they ask.
    origins: Vec<Host>,
}

/// What a browser says of where a request comes from.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Default for AllowedHosts {
    /// The loopback addresses and `localhost`.
    fn default() -> Self {
        Self {
            names: ["127.0.0.1", "[::1]", "localhost"].map(Into::into).into(),
            origins: Vec::new(),
        }
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
            let host = Host::of(&line)?;
            hosts.names.push(host.name().into());
            hosts.origins.push(host);
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
            Some(host) if self.names.iter().any(|known| **known == *host.name()) => Ok(()),
            _ => Err(Problem::new(Code::Misdirected)),
        }
    }

    /// Lets a request pass that no page of another origin made a browser send. There is nothing it would
    /// send by itself, no cookie and no password, so this is a second fence, not the first.
    ///
    /// # Errors
    /// The [`Problem`] of a request from elsewhere.
    ///
    /// # Source
    /// RFC 6454 section 7, W3C Fetch Metadata. Ports count here: another port is another's page.
    pub(super) fn admit_origin(
        &self,
        host: Option<&Host>,
        method: &Method,
        fields: &HeaderMap,
    ) -> Result<(), Problem> {
        let mut origins = fields.get_all(header::ORIGIN).iter();
        let own = match (origins.next(), origins.next()) {
            (None, _) => true,
            (Some(origin), None) => self.is_own(host, origin),
            (Some(_), Some(_)) => false,
        };
        // A link on another site may lead here, and changes nothing.
        let from_elsewhere = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
            && fields
                .get_all(SITE)
                .iter()
                .any(|site| site != "same-origin" && site != "none");
        if own && !from_elsewhere {
            Ok(())
        } else {
            Err(Problem::new(Code::ForeignOrigin))
        }
    }

    fn is_own(&self, host: Option<&Host>, origin: &HeaderValue) -> bool {
        let parsed = origin.to_str().ok().and_then(|text| {
            let (scheme, authority) = text.split_once("://")?;
            let usual = match scheme {
                "http" => 80,
                "https" => 443,
                _ => return None,
            };
            let mut line = HeaderMap::new();
            line.insert(header::HOST, HeaderValue::try_from(authority).ok()?);
            Some((Host::of(&line).ok()?, usual))
        });
        let Some((origin, usual)) = parsed else {
            return false;
        };
        let is = |host: &Host| {
            host.name() == origin.name()
                && host.port().unwrap_or(usual) == origin.port().unwrap_or(usual)
        };
        host.into_iter().chain(&self.origins).any(is)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, header};

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
    fn ht_02_an_origin_is_ours_by_name_and_port() {
        let hosts = AllowedHosts::with(["files.example"]).unwrap();
        for (host, origin, passes) in [
            ("127.0.0.1:7878", "http://127.0.0.1:7878", true),
            ("localhost", "http://localhost", true),
            ("localhost", "http://localhost:80", true),
            ("localhost:80", "http://localhost", true),
            // Behind a proxy that writes a `Host` of its own.
            ("127.0.0.1:7878", "https://files.example", true),
            ("127.0.0.1:7878", "https://files.example:444", false),
            ("127.0.0.1:7878", "http://127.0.0.1:3000", false),
            ("127.0.0.1:7878", "http://localhost:7878", false),
            ("localhost", "https://localhost.evil.example", false),
            ("localhost", "file://localhost", false),
            ("localhost", "null", false),
            ("localhost", "", false),
            ("localhost", "http://localhost/path", false),
            ("localhost", "http://user@localhost", false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(header::HOST, HeaderValue::from_static(host));
            let at = Host::of(&fields).unwrap();
            fields.insert(header::ORIGIN, HeaderValue::from_static(origin));
            let admitted = hosts.admit_origin(Some(&at), &Method::GET, &fields);
            assert_eq!(admitted.is_ok(), passes, "{origin} at {host}");
        }
    }

    #[test]
    fn a_name_that_is_no_host_is_refused_at_start() {
        for authority in ["", "https://files.example", "a b", "files.example:port"] {
            assert!(AllowedHosts::with([authority]).is_err(), "{authority}");
        }
    }
}
