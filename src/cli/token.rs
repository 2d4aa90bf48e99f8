//! Principals and their tokens. Owner-only: there is no such thing on the public listener.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{
    arguments::{Common, Kind, Token, TokenCreate},
    ask,
    beside::{Beside, config, principals},
    client::{Client, segment},
    exit::{Exit, Failure},
    find::string,
    output::{Output, note, shown, table},
};
use crate::config::{SPAN_FORM, parse_span};

/// Makes, lists or revokes.
pub(super) async fn run(common: &Common, token: &Token, output: Output) -> Result<(), Failure> {
    let beside = Beside::open(&config(common)?)?;
    let client = beside.client(None, None)?;
    match token {
        Token::Create(create) => make(&client, create, output).await,
        Token::List => list(&client, output).await,
        Token::Revoke { id } => {
            let path = format!("/local/v1/tokens/{}", segment(id));
            ask(&client, Method::DELETE, &path).await?;
            output.print(&json!({"id": id, "revoked": true}), |_| {
                format!("token {} is revoked", shown(id))
            })
        }
    }
}

async fn make(client: &Client, create: &TokenCreate, output: Output) -> Result<(), Failure> {
    let life = parse_span(&create.expires)
        .filter(|life| *life >= Duration::from_secs(1))
        .ok_or_else(|| Failure::new(Exit::Usage, format!("--expires: {SPAN_FORM}")))?;
    let rows = principals(client).await?;
    let known = rows
        .iter()
        .find(|row| string(row, "name") == create.principal);
    match (known, create.kind.map(word)) {
        (Some(row), Some(kind)) if string(row, "kind") != kind => {
            let message = format!(
                "`{}` is there already, as {}",
                shown(&create.principal),
                string(row, "kind")
            );
            return Err(Failure::new(Exit::Refused, message));
        }
        (Some(_), _) => {}
        (None, Some(kind)) => {
            let form = json!({"kind": kind, "name": create.principal});
            client
                .json(Method::POST, "/local/v1/principals", Some(&form))
                .await?;
        }
        (None, None) => {
            let message = format!(
                "there is no principal `{}`; --kind makes it",
                shown(&create.principal)
            );
            return Err(Failure::new(Exit::NotFound, message));
        }
    }
    let form = json!({
        "principal": create.principal,
        "label": "holdfast token create",
        "lifeSeconds": life.as_secs(),
    });
    let made = client
        .json(Method::POST, "/local/v1/tokens", Some(&form))
        .await?;
    if output == Output::Text {
        note(format_args!(
            "token {} for `{}`, shown this once:",
            made.get("id").cloned().unwrap_or_default(),
            shown(&create.principal)
        ));
    }
    output.print(&made, |made| string(made, "token").to_owned())
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Operator => "operator",
        Kind::Host => "host",
        Kind::User => "user",
    }
}

async fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let people = principals(client).await?;
    let mut answer = ask(client, Method::GET, "/local/v1/tokens").await?;
    if let Some(Value::Array(rows)) = answer.get_mut("tokens") {
        for row in rows {
            let owner = people
                .iter()
                .find(|one| string(one, "id") == string(row, "principal"));
            let name = owner.map(|one| string(one, "name").to_owned());
            if let Some(fields) = row.as_object_mut() {
                fields.insert("name".to_owned(), name.into());
            }
        }
    }
    output.print(&answer, |answer| {
        let rows = answer.get("tokens").and_then(Value::as_array);
        let cell = |row: &Value, key: &str| match row.get(key) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => shown(text),
            Some(other) => other.to_string(),
        };
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .flatten()
            .map(|row| {
                ["id", "name", "label", "createdAt", "expiresAt", "revokedAt"]
                    .map(|key| match key {
                        "createdAt" | "expiresAt" | "revokedAt" => moment(row.get(key)),
                        key => cell(row, key),
                    })
                    .into()
            })
            .collect();
        table(
            &["ID", "NAME", "LABEL", "CREATED", "EXPIRES", "REVOKED"],
            &rows,
        )
    })
}

/// A time in milliseconds as people read it.
pub(super) fn moment(value: Option<&Value>) -> String {
    let moment = value
        .and_then(Value::as_u64)
        .and_then(|ms| std::time::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    moment.map_or_else(|| "-".to_owned(), httpdate::fmt_http_date)
}
