//! Sessions and what is in them, for people and programs.

use http::Method;
use serde_json::{Value, json};

use super::{
    arguments::{Common, InSession, Session, SessionCreate},
    ask,
    beside::{principals, reach},
    client::Client,
    exit::{Exit, Failure},
    find::{self, string},
    output::{Output, line, shown, table},
    token::moment,
};
use crate::model::{ByteCount, PrincipalId};

/// `session create`, `session list` and `session delete`.
pub(super) async fn session(
    common: &Common,
    session: &Session,
    output: Output,
) -> Result<(), Failure> {
    match session {
        Session::Create(create) => make(common, create, output).await,
        Session::List { reach: how } => {
            let (client, _beside) = reach(common, how).await?;
            let sessions = find::sessions(&client).await?;
            output.print(&json!({ "sessions": sessions }), |_| {
                let rows: Vec<Vec<String>> = sessions
                    .iter()
                    .map(|row| {
                        vec![
                            shown(string(row, "session")),
                            row.get("lastSeq").cloned().unwrap_or_default().to_string(),
                            moment(row.get("createdAt")),
                            shown(string(row, "id")),
                        ]
                    })
                    .collect();
                table(&["SESSION", "LAST SEQ", "CREATED", "ID"], &rows)
            })
        }
        Session::Delete {
            session,
            reach: how,
        } => {
            let (client, _beside) = reach(common, how).await?;
            let handle = find::session(&client, session).await?;
            let path = format!("/v1/sessions/{handle}");
            ask(&client, Method::DELETE, &path).await?;
            output.print(&json!({ "session": handle, "deleted": true }), |_| {
                format!("session {handle} is deleted, with everything in it")
            })
        }
    }
}

async fn make(common: &Common, create: &SessionCreate, output: Output) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &create.reach).await?;
    let owners = owners(&client, &create.owners).await?;
    let mut form = json!({ "owners": owners });
    if let Some(fields) = form.as_object_mut() {
        for (key, value) in [("id", &create.id), ("cwd", &create.cwd)] {
            if let Some(value) = value {
                fields.insert(key.to_owned(), value.as_str().into());
            }
        }
    }
    let made = client
        .json(Method::POST, "/v1/sessions", Some(&form))
        .await?;
    output.print(&made, |made| string(made, "session").to_owned())
}

/// The ids of these principals. A name is looked up, which only the owner-only ways in allow.
pub(super) async fn owners(client: &Client, names: &[String]) -> Result<Vec<PrincipalId>, Failure> {
    let mut known: Option<Vec<Value>> = None;
    let mut ids = Vec::new();
    for name in names {
        if let Ok(id) = PrincipalId::parse(name) {
            ids.push(id);
            continue;
        }
        let rows = match known.take() {
            Some(rows) => rows,
            None => principals(client).await?,
        };
        let id = rows
            .iter()
            .find(|row| string(row, "name") == name)
            .and_then(|row| PrincipalId::parse(string(row, "id")).ok());
        known = Some(rows);
        ids.push(id.ok_or_else(|| {
            Failure::new(
                Exit::NotFound,
                format!("there is no principal `{}`", shown(name)),
            )
        })?);
    }
    Ok(ids)
}

/// `ls`.
pub(super) async fn list(common: &Common, at: &InSession, output: Output) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &at.reach).await?;
    let session = find::session(&client, &at.session).await?;
    let snapshot = find::whole_snapshot(&client, session).await?;
    let display = snapshot.get("display").cloned().unwrap_or_default();
    output.print(&display, |display| {
        let rows = |pointer| display.pointer(pointer).and_then(Value::as_array);
        let files: Vec<Vec<String>> = rows("/files")
            .into_iter()
            .flatten()
            .map(|row| {
                let bytes = row.get("bytes").and_then(Value::as_u64).unwrap_or_default();
                vec![
                    shown(string(row, "attachmentId")),
                    ByteCount::new(bytes).to_string(),
                    shown(string(row, "state")),
                    shown(string(row, "name")),
                ]
            })
            .collect();
        let mut text = table(&["ATTACHMENT", "SIZE", "STATE", "NAME"], &files);
        let presented: Vec<Vec<String>> = rows("/deliverables/items")
            .into_iter()
            .flatten()
            .map(|row| {
                let number = |key| row.get(key).cloned().unwrap_or_default().to_string();
                vec![
                    format!(
                        "{}/{}/{}",
                        number("logGeneration"),
                        number("seq"),
                        number("index")
                    ),
                    shown(string(row, "path")),
                    shown(string(row, "description")),
                ]
            })
            .collect();
        if !presented.is_empty() {
            let says = |key: &str| {
                let deliverables = display.get("deliverables");
                shown(deliverables.map(|d| string(d, key)).unwrap_or_default())
            };
            text.extend(["\npresented workspace files: ", &says("mode")]);
            let reason = says("reason");
            if !reason.is_empty() {
                text.extend([" (", &reason, ")"]);
            }
            text.push('\n');
            text.push_str(&table(&["ADDRESS", "PATH", "DESCRIPTION"], &presented));
        }
        text
    })
}

/// `snapshot`.
pub(super) async fn snapshot(common: &Common, at: &InSession) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &at.reach).await?;
    let session = find::session(&client, &at.session).await?;
    let snapshot = find::whole_snapshot(&client, session).await?;
    let text = serde_json::to_string_pretty(&snapshot)
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    line(text)
}
