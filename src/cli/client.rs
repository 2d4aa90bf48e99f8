//! Talks to a server: over the network, over the socket in the data directory, or, when no server
//! runs, to the same router in this process. There is one way in for all three (I10).

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{
    exit::{Exit, Failure},
    trust::Trust,
};
use crate::http::local::{ACTING, Local};

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a peer may make no progress.
pub(super) const STALL: Duration = Duration::from_mins(2);
/// The largest JSON answer that is read, in bytes.
const MAX_JSON: usize = 64 << 20;
/// The host the socket and the in-process router go by.
const LOCAL_HOST: &str = "localhost";
/// What needs no escape in a segment of a path or in a query's value.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// A server on the network.
#[derive(Debug)]
pub(super) struct Network {
    uri: Uri,
    /// Whom TLS is spoken with, and whose word is taken for it; none is plain HTTP.
    trust: Option<Trust>,
}

impl Network {
    /// Reads the URL of a server. Blocks where certificates have to be read.
    pub(super) fn parse(url: &str, cacert: Option<&Path>) -> Result<Self, Failure> {
        let usage = |why: &str| Failure::new(Exit::Usage, format!("--url: {why}"));
        let uri: Uri = url.parse().map_err(|_odd| usage("not a URL"))?;
        let is_plain = uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
            && !uri.authority().is_some_and(|it| it.as_str().contains('@'));
        let trust = match uri.scheme_str() {
            Some("http") if is_plain && cacert.is_some() => {
                return Err(usage(
                    "--cacert is for https://; nothing vouches for http://",
                ));
            }
            Some("http") if is_plain => None,
            Some("https") if is_plain => Some(Trust::in_server(host(&uri), cacert)?),
            _ => {
                return Err(usage(
                    "an http:// or https:// address without a user and a query is needed",
                ));
            }
        };
        Ok(Self { uri, trust })
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let plain = if self.trust.is_some() { 443 } else { 80 };
        let port = self.uri.port_u16().unwrap_or(plain);
        let stream = within(CONNECT, TcpStream::connect((host(&self.uri), port))).await?;
        match &self.trust {
            None => over(stream, request).await,
            Some(trust) => match timeout(CONNECT, trust.greet(stream)).await {
                Ok(stream) => over(stream?, request).await,
                Err(_elapsed) => Err(unreachable("it does not speak TLS in time")),
            },
        }
    }
}

/// The host of an address, an IPv6 one without its brackets.
fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_matches(['[', ']'])
}

/// Where requests go.
#[derive(Debug)]
pub(super) enum Transport {
    /// A server on the network.
    Network(Network),
    /// The server that has the data directory.
    Socket(PathBuf),
    /// No server: the router over the data directory that this process holds.
    Here(Local),
}

/// A server and the caller's standing with it.
#[derive(Debug)]
pub(super) struct Client {
    transport: Transport,
    /// The `Authorization` field, marked so that it is never shown.
    authorization: Option<header::HeaderValue>,
    /// The principal to act as, where the transport itself is the proof.
    acting: Option<header::HeaderValue>,
}

impl Client {
    /// A client that shows `token`, or acts as `acting` where no token is needed.
    pub(super) fn new(
        transport: Transport,
        token: Option<&str>,
        acting: Option<&str>,
    ) -> Result<Self, Failure> {
        let field = |text: &str, what| {
            header::HeaderValue::from_str(text)
                .map_err(|_odd| Failure::new(Exit::Usage, format!("{what} has odd characters")))
        };
        let authorization = token
            .map(|token| field(&format!("Bearer {token}"), "the token"))
            .transpose()?
            .map(|mut value| {
                value.set_sensitive(true);
                value
            });
        let acting = acting
            .map(|name| field(&segment(name), "the name"))
            .transpose()?;
        Ok(Self {
            transport,
            authorization,
            acting,
        })
    }

    /// A request for `path`, which begins with a slash and is escaped already.
    pub(super) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let (prefix, host) = match &self.transport {
            Transport::Network(Network { uri, .. }) => (
                uri.path().trim_end_matches('/'),
                uri.authority().map_or("", http::uri::Authority::as_str),
            ),
            Transport::Socket(_) | Transport::Here(_) => ("", LOCAL_HOST),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header(header::HOST, host)
            .header(
                header::USER_AGENT,
                concat!("holdfast/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        if let Some(acting) = &self.acting {
            request = request.header(ACTING, acting.clone());
        }
        request
    }

    /// Sends `request` and returns the answer's head with its body still to be read.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        match &self.transport {
            Transport::Here(local) => Ok(local.ask(request).await),
            Transport::Socket(path) => {
                let stream = within(CONNECT, UnixStream::connect(path)).await?;
                over(stream, request).await
            }
            Transport::Network(server) => server.send(request).await,
        }
    }

    /// Sends a JSON request and reads a JSON answer; a problem becomes a failure.
    pub(super) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let request = self.request(method, path);
        let request = match body {
            Some(body) => request
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        }
        .map_err(|error| Failure::of(Exit::Usage, &error))?;
        let response = timeout(STALL, self.send(request))
            .await
            .map_err(stalled)??;
        read_json(succeeded(response).await?).await
    }
}

/// A text as one segment of a path or as the value of a query.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Reads a whole JSON body; an empty one is `null`.
pub(super) async fn read_json(response: Response<Body>) -> Result<Value, Failure> {
    let body = timeout(
        STALL,
        Limited::new(response.into_body(), MAX_JSON).collect(),
    );
    let bytes = match body.await.map_err(stalled)? {
        Ok(collected) => collected.to_bytes(),
        Err(error) => {
            let message = format!("reading the answer: {error}");
            return Err(Failure::new(Exit::TryAgain, message));
        }
    };
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not JSON: {error}")))
}

/// The answer itself when its status says that it is one, else the problem as a failure.
pub(super) async fn succeeded(response: Response<Body>) -> Result<Response<Body>, Failure> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let problem = read_json(response).await.unwrap_or_default();
    Err(problem_failure(status, &problem))
}

fn problem_failure(status: StatusCode, problem: &Value) -> Failure {
    let text = |key| problem.get(key).and_then(Value::as_str);
    let code = text("code").unwrap_or_default();
    let exit = match (status, code) {
        (_, "integrity") => Exit::Damaged,
        // With a reason it names the row that is wrong; without one a flush failed.
        (_, "journal") if text("reason").is_some() => Exit::Damaged,
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND, _) => {
            Exit::NotFound
        }
        (
            StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT,
            _,
        ) => Exit::TryAgain,
        (status, _) if status.is_server_error() && status != StatusCode::INSUFFICIENT_STORAGE => {
            Exit::Failed
        }
        _ => Exit::Refused,
    };
    let mut message = super::output::shown(text("title").unwrap_or("refused"));
    if let Some(detail) = text("detail") {
        message.extend([": ", &super::output::shown(detail)]);
    }
    message.extend([" (", status.as_str()]);
    if !code.is_empty() {
        message.extend([", ", &super::output::shown(code)]);
    }
    // The facts of the refusal: which setting, which limit, and the id the operator asks for.
    for fact in [
        "index",
        "class",
        "reason",
        "setting",
        "sizeBytes",
        "limitBytes",
        "usedBytes",
        "nextSeq",
        "requestId",
    ] {
        match problem.get(fact) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => {
                message.extend(["; ", fact, " ", &super::output::shown(text)]);
            }
            Some(other) => message.extend(["; ", fact, " ", &other.to_string()]),
        }
    }
    message.push(')');
    Failure::new(exit, message)
}

/// Sends over a fresh connection, which ends with the answer's body.
async fn over<S>(stream: S, request: Request<Body>) -> Result<Response<Body>, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| Failure::of(Exit::TryAgain, &error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    // Whatever ends the connection is seen by the one who reads the answer.
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(response.map(Body::new))
}

async fn within<T>(
    limit: Duration,
    connecting: impl Future<Output = std::io::Result<T>>,
) -> Result<T, Failure> {
    match timeout(limit, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(unreachable(&error.to_string())),
        Err(_elapsed) => Err(unreachable("it does not answer")),
    }
}

/// For a server there is no way to at this moment.
pub(super) fn unreachable(why: &str) -> Failure {
    let message = format!("the server cannot be reached: {why}");
    Failure::new(Exit::TryAgain, message)
}

/// For a peer that stands still.
pub(super) fn stalled(_elapsed: tokio::time::error::Elapsed) -> Failure {
    Failure::new(Exit::TryAgain, "the server stands still")
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::json;

    use super::{Exit, problem_failure};

    #[test]
    fn a_problem_ends_with_the_code_of_its_kind() {
        for (status, code, exit) in [
            (401, "unauthenticated", Exit::NotFound),
            (404, "not-found", Exit::NotFound),
            (409, "metadata-only", Exit::Refused),
            (413, "over-limit", Exit::Refused),
            (507, "disk-full", Exit::Refused),
            (500, "integrity", Exit::Damaged),
            (500, "internal", Exit::Failed),
            (503, "busy", Exit::TryAgain),
            (429, "busy", Exit::TryAgain),
        ] {
            let problem = json!({"title": "t", "code": code});
            let status = StatusCode::from_u16(status).unwrap();
            let failure = problem_failure(status, &problem);
            assert_eq!(failure.exit, exit, "{status} {code}");
        }
    }
}
