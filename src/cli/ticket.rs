//! Tickets of the caller.

use std::{net::IpAddr, time::Duration};

use http::Method;
use serde_json::{Value, json};

use super::{
    arguments::{Common, Ticket, TicketCreate},
    ask,
    beside::{config, reach},
    client::segment,
    exit::{Exit, Failure},
    find::{self, string},
    output::{Output, note, shown, table},
    serve,
    token::moment,
};
use crate::config::{Config, SPAN_FORM, parse_span};

/// Makes, lists or revokes.
pub(super) async fn run(common: &Common, ticket: &Ticket, output: Output) -> Result<(), Failure> {
    match ticket {
        Ticket::Create(create) => make(common, create, output).await,
        Ticket::List { reach: how } => {
            let (client, _beside) = reach(common, how).await?;
            let all = ask(&client, Method::GET, "/v1/tickets").await?;
            output.print(&all, rows)
        }
        Ticket::Revoke { id, reach: how } => {
            let (client, _beside) = reach(common, how).await?;
            let path = format!("/v1/tickets/{}", segment(id));
            ask(&client, Method::DELETE, &path).await?;
            output.print(&json!({"ticket": id, "revoked": true}), |_| {
                format!("ticket {} is revoked", shown(id))
            })
        }
    }
}

async fn make(common: &Common, create: &TicketCreate, output: Output) -> Result<(), Failure> {
    let life = parse_span(&create.expires)
        .filter(|life| *life >= Duration::from_secs(1))
        .ok_or_else(|| Failure::new(Exit::Usage, format!("--expires: {SPAN_FORM}")))?;
    let (client, _beside) = reach(common, &create.at.reach).await?;
    let session = find::session(&client, &create.at.session).await?;
    let file = find::attachment(&client, session, &create.attachment).await?;
    let form = json!({
        "session": session,
        "attachmentId": file.id,
        "name": file.name,
        "lifeSeconds": life.as_secs(),
        "uses": create.uses,
    });
    let mut made = client
        .json(Method::POST, "/v1/tickets", Some(&form))
        .await?;
    let base = match &create.at.reach.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => public(&config(common)?),
    };
    let url = format!("{base}{}", string(&made, "href"));
    if let Some(fields) = made.as_object_mut() {
        fields.insert("url".to_owned(), url.into());
    }
    if output == Output::Text {
        note(format_args!(
            "ticket {}, until {}; its address is shown this once:",
            shown(string(&made, "ticket")),
            moment(made.get("expiresAt")),
        ));
    }
    output.print(&made, |made| string(made, "url").to_owned())
}

/// Where clients reach the service of this configuration.
fn public(config: &Config) -> String {
    let mut address = config.listen;
    if address.ip().is_unspecified() {
        // Everywhere is no address; here is one of them.
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        });
    }
    serve::url(config, address)
}

fn rows(all: &Value) -> String {
    let all = all.get("tickets").and_then(Value::as_array);
    let number = |row: &Value, key| row.get(key).and_then(Value::as_u64).unwrap_or_default();
    let rows: Vec<Vec<String>> = all
        .into_iter()
        .flatten()
        .map(|row| {
            vec![
                shown(string(row, "ticket")),
                format!("{} of {}", number(row, "opened"), number(row, "uses")),
                moment(row.get("expiresAt")),
                shown(string(row, "session")),
                shown(string(row, "name")),
            ]
        })
        .collect();
    table(&["ID", "USED", "EXPIRES", "SESSION", "NAME"], &rows)
}
