//! An answer as octets, where the HTTP library is not there to write it.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, Limited};

use crate::model::{Clock as _, SystemClock};

/// The largest body such an answer has; a problem is far smaller.
const MOST: usize = 16 * 1024;

/// The whole answer, which is the last of its connection.
pub(super) async fn last(response: Response<Body>) -> Vec<u8> {
    let (mut head, body) = response.into_parts();
    let body = match Limited::new(body, MOST).collect().await {
        Ok(body) => body.to_bytes(),
        // No refusal has such a body; the status says what there is to say.
        Err(_) => Bytes::new(),
    };
    let now = u64::try_from(SystemClock.now().as_millis()).unwrap_or_default();
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(now));
    for (name, value) in [
        (header::CONTENT_LENGTH, HeaderValue::from(body.len())),
        (header::CONNECTION, HeaderValue::from_static("close")),
        (
            header::DATE,
            HeaderValue::try_from(date).unwrap_or(HeaderValue::from_static("")),
        ),
    ] {
        head.headers.insert(name, value);
    }
    let reason = head.status.canonical_reason().unwrap_or_default();
    let mut octets = format!("HTTP/1.1 {} {reason}\r\n", head.status.as_str()).into_bytes();
    for (name, value) in &head.headers {
        octets.extend_from_slice(name.as_str().as_bytes());
        octets.extend_from_slice(b": ");
        octets.extend_from_slice(value.as_bytes());
        octets.extend_from_slice(b"\r\n");
    }
    octets.extend_from_slice(b"\r\n");
    octets.extend_from_slice(&body);
    octets
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Response;

    use super::last;

    #[tokio::test]
    async fn the_octets_are_an_answer_of_stated_length_that_closes() {
        let response = Response::builder()
            .status(431)
            .header("x-a", "b")
            .body(Body::from("why"))
            .unwrap();
        let octets = String::from_utf8(last(response).await).unwrap();
        let (head, body) = octets.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<_> = head.split("\r\n").collect();
        let date = lines.pop().unwrap();
        assert!(
            date.starts_with("date: ") && date.ends_with(" GMT"),
            "{date}"
        );
        assert_eq!(
            lines,
            [
                "HTTP/1.1 431 Request Header Fields Too Large",
                "x-a: b",
                "content-length: 3",
                "connection: close"
            ]
        );
        assert_eq!(body, "why");
    }
}
