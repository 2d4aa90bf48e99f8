//! The event stream as a command reads it: one frame after another, bounded.

use std::time::Duration;

use axum::body::Body;
use http::{Method, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::timeout;

use super::{
    client::{Client, STALL, stalled, succeeded},
    exit::{Exit, Failure},
};

/// The longest frame, in bytes.
const LONGEST: usize = 4 << 20;
/// How long a silent stream is believed in; heartbeats come every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// One frame.
#[derive(Debug)]
pub(super) struct Frame {
    /// Where it stands in the caller's order.
    pub(super) id: Option<String>,
    /// What it tells.
    pub(super) event: String,
    /// What it says of it.
    pub(super) data: Value,
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Frames {
    body: Body,
    octets: Vec<u8>,
}

impl Frames {
    /// Opens a stream, after the last frame that was read where there is one.
    pub(super) async fn open(client: &Client, last: Option<&str>) -> Result<Self, Failure> {
        let mut request = client
            .request(Method::GET, "/v1/events")
            .header(header::ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request
            .body(Body::empty())
            .map_err(|error| Failure::of(Exit::Usage, &error))?;
        let response = timeout(STALL, client.send(request))
            .await
            .map_err(stalled)??;
        Ok(Self {
            body: succeeded(response).await?.into_body(),
            octets: Vec::new(),
        })
    }

    /// The next frame; none when the stream ended. Nothing is lost when it is given up on meanwhile.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, Failure> {
        loop {
            if let Some(end) = self.octets.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.octets.drain(..end.saturating_add(2)).collect();
                if let Some(frame) = parse(&block)? {
                    return Ok(Some(frame));
                }
                continue;
            }
            if self.octets.len() > LONGEST {
                return Err(odd("a frame longer than any of the service's"));
            }
            let more = timeout(SILENCE, self.body.frame()).await;
            match more.map_err(|_silent| Failure::new(Exit::TryAgain, "the stream fell silent"))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::of(Exit::TryAgain, &error)),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.octets.extend_from_slice(bytes);
                    }
                }
            }
        }
    }
}

fn odd(why: &str) -> Failure {
    Failure::new(Exit::TryAgain, format!("the stream has {why}"))
}

/// A block of lines as a frame; a comment is none.
fn parse(block: &[u8]) -> Result<Option<Frame>, Failure> {
    let text = std::str::from_utf8(block).map_err(|_other| odd("a frame that is not text"))?;
    let (mut id, mut event, mut data) = (None, None, String::new());
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => id = Some(value.to_owned()),
            "event" => event = Some(value.to_owned()),
            "data" => data.push_str(value),
            _ => {}
        }
    }
    let Some(event) = event else {
        return Ok(None);
    };
    let data = serde_json::from_str(&data).map_err(|_odd| odd("a frame that is not JSON"))?;
    Ok(Some(Frame { id, event, data }))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_frame_is_its_fields_and_a_heartbeat_is_none() {
        let frame = parse(b"id: 1.7\nevent: live\ndata: {\"a\":1}\n\n")
            .unwrap()
            .unwrap();
        assert_eq!(
            (frame.id.as_deref(), frame.event.as_str()),
            (Some("1.7"), "live")
        );
        assert_eq!(frame.data["a"], 1);
        assert!(parse(b": heartbeat\n\n").unwrap().is_none());
        assert!(parse(b"event: x\ndata: no json\n\n").is_err());
        assert!(parse(b"event: \xff\n\n").is_err());
    }
}
