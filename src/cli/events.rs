//! Appends events, one JSON object a line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
};

use http::Method;
use serde_json::{Value, json};

use super::{
    client::Client,
    exit::{Exit, Failure},
    find::Listed,
};
use crate::model::{Clock as _, SessionHandle, SystemClock};

/// The longest line that is read, in bytes; the server's own limit is what decides.
const MAX_LINE: u64 = 16 << 20;
/// The most events and bytes that go into one request.
const MAX_EVENTS: usize = 200;
const MAX_BYTES: usize = 2 << 20;

/// Reads events from a file, or from standard input for `-` or nothing.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<Value>, Failure> {
    match file {
        None => parse(io::stdin().lock(), "standard input"),
        Some(path) if path.as_os_str() == "-" => parse(io::stdin().lock(), "standard input"),
        Some(path) => {
            #[expect(
                clippy::disallowed_methods,
                reason = "the person names a file of their own, by a path of their own"
            )]
            let file = File::open(path).map_err(|error| Failure::io(path.display(), &error))?;
            parse(BufReader::new(file), &path.display().to_string())
        }
    }
}

fn parse(mut from: impl BufRead, called: &str) -> Result<Vec<Value>, Failure> {
    let mut events = Vec::new();
    for number in 1_usize.. {
        let mut line = String::new();
        let read = (&mut from).take(MAX_LINE).read_line(&mut line);
        if read.map_err(|error| Failure::io(called, &error))? == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::new(Exit::Usage, format!("{called}:{number}: {why}"))
        };
        let mut event: Value = serde_json::from_str(&line).map_err(|error| wrong(&error))?;
        let Some(fields) = event.as_object_mut() else {
            return Err(wrong(&"an event is a JSON object"));
        };
        // The server wants the host's time; a person at a terminal means now.
        let now = SystemClock.now().as_millis();
        fields.entry("time").or_insert_with(|| now.into());
        events.push(event);
    }
    if events.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            format!("{called}: there is no event"),
        ));
    }
    Ok(events)
}

/// Appends `events`: all that fit into one request together, so that a failure in the middle of a
/// long list leaves the requests before it appended, and says so.
pub(super) async fn append(
    client: &Client,
    session: SessionHandle,
    events: Vec<Value>,
    expected: Option<u64>,
) -> Result<Value, Failure> {
    let path = format!("/v1/sessions/{session}/events");
    let mut expected = expected;
    let mut last: Option<Value> = None;
    let mut first: Option<Value> = None;
    let mut events = events.into_iter().peekable();
    while events.peek().is_some() {
        let mut batch = Vec::new();
        let mut bytes = 0_usize;
        while batch.len() < MAX_EVENTS
            && bytes < MAX_BYTES
            && let Some(event) = events.next()
        {
            bytes = bytes.saturating_add(event.to_string().len());
            batch.push(event);
        }
        let mut body = json!({ "events": batch });
        if let Some(seq) = expected
            && let Some(fields) = body.as_object_mut()
        {
            fields.insert("expectedSeq".to_owned(), seq.into());
        }
        let appended = client.json(Method::POST, &path, Some(&body)).await;
        let appended = appended.map_err(|mut failure| {
            if let Some(last) = &last {
                failure.message = format!("after seq {last}: {}", failure.message);
            }
            failure
        })?;
        let seq = appended.get("lastSeq").cloned();
        // What follows belongs behind what was just appended, and nowhere else.
        expected = seq
            .as_ref()
            .and_then(Value::as_u64)
            .and_then(|seq| seq.checked_add(1));
        first = first.or_else(|| appended.get("firstSeq").cloned());
        last = seq;
        if events.peek().is_none() {
            let mut appended = appended;
            if let (Some(fields), Some(first)) = (appended.as_object_mut(), first.clone()) {
                fields.insert("firstSeq".to_owned(), first);
            }
            return Ok(appended);
        }
    }
    Err(Failure::new(Exit::Usage, "there is no event"))
}

/// A message of the user that refers to an uploaded file.
pub(super) fn message(text: &str, file: &Listed) -> Value {
    let now = SystemClock.now().as_millis();
    json!({
        "type": "user/message",
        "time": now,
        "data": {
            "id": format!("message-{now}"),
            "role": "user",
            "content": [
                {"type": "text", "text": text},
                {"type": "file", "attachment": {
                    "attachmentId": file.id,
                    "name": file.name,
                    "bytes": file.bytes,
                }},
            ],
            "source": {"kind": "user"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::{Exit, parse};

    #[test]
    fn events_are_read_a_line_each_and_a_bad_line_is_named() {
        let text = "{\"type\":\"a\",\"time\":1,\"data\":{}}\n\n{\"type\":\"b\",\"data\":{}}\n";
        let events = parse(text.as_bytes(), "x").unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0]["time"], 1);
        assert!(events[1]["time"].is_i64(), "a missing time is now");
        for (text, expected) in [
            ("{}\nnonsense\n", "x:2: "),
            ("[]\n", "x:1: an event is a JSON object"),
            ("\n", "x: there is no event"),
        ] {
            let failure = parse(text.as_bytes(), "x").unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
    }
}
