//! Finds a session and an attachment by what a person calls them.

use http::Method;
use serde_json::Value;

use super::{
    client::Client,
    exit::{Exit, Failure},
    output::{note, shown},
};
use crate::model::{AttachmentId, FileName, SessionHandle};

/// How many pages of a list are read before giving up.
const MAX_PAGES: usize = 100_000;

/// The session of this handle or own id.
pub(super) async fn session(client: &Client, text: &str) -> Result<SessionHandle, Failure> {
    if let Ok(handle) = SessionHandle::parse(text) {
        return Ok(handle);
    }
    let all = sessions(client).await?;
    let mut found = all.iter().filter(|row| string(row, "id") == text);
    match (found.next(), found.next()) {
        (Some(row), None) => handle_of(row),
        (None, _) => {
            let message = format!("no session `{}` that the caller may see", shown(text));
            Err(Failure::new(Exit::NotFound, message))
        }
        (Some(_), Some(_)) => {
            let message = format!(
                "several sessions are called `{}`: use a handle",
                shown(text)
            );
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

/// Every session the caller may see, newest first. Those whose log cannot be read are noted.
pub(super) async fn sessions(client: &Client) -> Result<Vec<Value>, Failure> {
    let mut all: Vec<Value> = Vec::new();
    let mut path = "/v1/sessions?limit=100".to_owned();
    for _ in 0..MAX_PAGES {
        let mut page = client.json(Method::GET, &path, None).await?;
        for damaged in rows(&mut page, "damaged") {
            let handle = damaged.as_str().map(shown).unwrap_or_default();
            note(format_args!(
                "{handle}: the log cannot be read; the operator can say more"
            ));
        }
        all.extend(rows(&mut page, "sessions"));
        let more = page
            .get("hasMore")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        match all.last() {
            Some(last) if more => {
                path = format!("/v1/sessions?limit=100&after={}", handle_of(last)?);
            }
            _ => return Ok(all),
        }
    }
    Err(Failure::new(Exit::Failed, "the list does not end"))
}

/// Takes the rows of one list out of an answer.
fn rows(answer: &mut Value, list: &str) -> Vec<Value> {
    match answer.get_mut(list).map(Value::take) {
        Some(Value::Array(rows)) => rows,
        _ => Vec::new(),
    }
}

/// The handle of a session's row.
pub(super) fn handle_of(row: &Value) -> Result<SessionHandle, Failure> {
    SessionHandle::parse(string(row, "session"))
        .map_err(|_odd| Failure::new(Exit::Failed, "the answer has a session without a handle"))
}

/// An attachment as a session lists it.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// Its id.
    pub(super) id: AttachmentId,
    /// Its name there.
    pub(super) name: Option<FileName>,
    /// Its length there, in bytes.
    pub(super) bytes: Option<u64>,
    /// Where it is, when that is not in a session.
    pub(super) href: Option<String>,
}

impl Listed {
    /// Its address in `session`.
    pub(super) fn path(&self, session: SessionHandle) -> String {
        if let Some(href) = &self.href {
            return href.clone();
        }
        let id = super::client::segment(&self.id.to_string());
        let name = self.name.as_ref().map_or_else(String::new, |name| {
            format!("?name={}", super::client::segment(name.as_str()))
        });
        format!("/v1/sessions/{session}/attachments/{id}{name}")
    }
}

/// Every attachment a session refers to, in the order of first reference.
pub(super) async fn attachments(
    client: &Client,
    session: SessionHandle,
) -> Result<Vec<Listed>, Failure> {
    let whole = whole_snapshot(client, session).await?;
    let files = whole.pointer("/display/files").and_then(Value::as_array);
    files.into_iter().flatten().map(listed).collect()
}

/// The session's snapshot with every page of both listings.
pub(super) async fn whole_snapshot(
    client: &Client,
    session: SessionHandle,
) -> Result<Value, Failure> {
    let mut whole = snapshot(client, session, 0, 0).await?;
    for _ in 0..MAX_PAGES {
        let more = |pointer| whole.pointer(pointer).and_then(Value::as_bool) == Some(true);
        let (files, paths) = (
            more("/display/filesHaveMore"),
            more("/display/deliverables/hasMore"),
        );
        if !files && !paths {
            return Ok(whole);
        }
        let count = |pointer| {
            whole
                .pointer(pointer)
                .and_then(Value::as_array)
                .map_or(0, Vec::len)
        };
        let (at_file, at_path) = (count(FILES), count(PATHS));
        let mut next = snapshot(client, session, at_file, at_path).await?;
        for (pointer, flag) in [
            (FILES, "/display/filesHaveMore"),
            (PATHS, "/display/deliverables/hasMore"),
        ] {
            let some = next.pointer_mut(pointer).map(Value::take);
            if let (Some(Value::Array(all)), Some(Value::Array(some))) =
                (whole.pointer_mut(pointer), some)
            {
                all.extend(some);
            }
            let has_more = next.pointer_mut(flag).map(Value::take);
            if let (Some(place), Some(has_more)) = (whole.pointer_mut(flag), has_more) {
                *place = has_more;
            }
        }
    }
    Err(Failure::new(Exit::Failed, "the listing does not end"))
}

const FILES: &str = "/display/files";
const PATHS: &str = "/display/deliverables/items";

async fn snapshot(
    client: &Client,
    session: SessionHandle,
    files: usize,
    paths: usize,
) -> Result<Value, Failure> {
    let query = format!("filesOffset={files}&deliverablesOffset={paths}");
    let path = format!("/v1/sessions/{session}/snapshot?{query}");
    client.json(Method::GET, &path, None).await
}

/// A file as a row states it.
pub(super) fn listed(row: &Value) -> Result<Listed, Failure> {
    let id = AttachmentId::parse(string(row, "attachmentId"))
        .map_err(|_odd| Failure::new(Exit::Failed, "the answer has a file without an id"))?;
    Ok(Listed {
        id,
        name: row
            .get("name")
            .and_then(Value::as_str)
            .and_then(|name| FileName::parse(name).ok()),
        bytes: row.get("bytes").and_then(Value::as_u64),
        href: None,
    })
}

/// What a receipt released.
pub(super) fn released(receipt: &Value) -> Result<Listed, Failure> {
    let statement = receipt.get("statement").unwrap_or(&Value::Null);
    Ok(Listed {
        href: Some(string(receipt, "href").to_owned()),
        ..listed(statement)?
    })
}

/// The attachment of this id or name. Of several of one name the latest is meant.
pub(super) async fn attachment(
    client: &Client,
    session: SessionHandle,
    text: &str,
) -> Result<Listed, Failure> {
    let all = attachments(client, session).await?;
    let id = AttachmentId::parse(text).ok();
    let found = all.into_iter().rev().find(|listed| match id {
        Some(id) => listed.id == id,
        None => listed
            .name
            .as_ref()
            .is_some_and(|name| name.as_str() == text),
    });
    found.ok_or_else(|| {
        let message = format!("the session refers to no attachment `{}`", shown(text));
        Failure::new(Exit::NotFound, message)
    })
}

/// A text of a JSON object, empty when it has none.
pub(super) fn string<'a>(row: &'a Value, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}
