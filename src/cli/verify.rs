//! Downloads every attachment and checks it on this side, keeping nothing: what a download would
//! give is what is checked.

use axum::body::Body;
use http::Method;
use http_body_util::BodyExt as _;
use serde::Serialize;
use tokio::time::timeout;

use super::{
    arguments::{Common, Verify},
    beside::reach,
    client::{Client, STALL, stalled, succeeded},
    exit::{Exit, Failure},
    find::{self, Listed},
    output::{Output, shown, table},
};
use crate::model::{AttachmentId, Digester, SessionHandle};

/// How one attachment fared.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    session: SessionHandle,
    attachment_id: AttachmentId,
    name: Option<String>,
    bytes: Option<u64>,
    ok: bool,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip)]
    exit: Option<Exit>,
}

/// How all of them fared.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    sessions: usize,
    attachments: usize,
    bad: usize,
    checked: Vec<Checked>,
}

/// Checks one session, or every one the caller may see. Goes on after a bad one.
pub(super) async fn run(common: &Common, verify: &Verify, output: Output) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &verify.reach).await?;
    let sessions = match &verify.session {
        Some(session) => vec![find::session(&client, session).await?],
        None => find::sessions(&client)
            .await?
            .iter()
            .map(find::handle_of)
            .collect::<Result<_, _>>()?,
    };
    let mut checked = Vec::new();
    for session in &sessions {
        for file in find::attachments(&client, *session).await? {
            let fault = check(&client, *session, &file).await.err();
            checked.push(Checked {
                session: *session,
                attachment_id: file.id,
                name: file.name.map(|name| name.as_str().to_owned()),
                bytes: file.bytes,
                ok: fault.is_none(),
                exit: fault.as_ref().map(|fault| fault.exit),
                why: fault.map(|fault| fault.message),
            });
        }
    }
    let exit = checked
        .iter()
        .filter_map(|one| one.exit)
        .max_by_key(|exit| match exit {
            Exit::Damaged => 3,
            // Referenced and not to be had: for the one who verifies, that is damage too.
            Exit::NotFound => 2,
            Exit::Failed | Exit::Usage | Exit::Configuration | Exit::TryAgain | Exit::Refused => 1,
        });
    let report = Report {
        sessions: sessions.len(),
        attachments: checked.len(),
        bad: checked.iter().filter(|one| !one.ok).count(),
        checked,
    };
    output.print(&report, text)?;
    match exit {
        None => Ok(()),
        Some(exit) => {
            let exit = if exit == Exit::NotFound {
                Exit::Damaged
            } else {
                exit
            };
            let message = format!(
                "{} of {} attachments failed",
                report.bad, report.attachments
            );
            Err(Failure::new(exit, message))
        }
    }
}

fn text(report: &Report) -> String {
    let bad: Vec<Vec<String>> = report
        .checked
        .iter()
        .filter(|one| !one.ok)
        .map(|one| {
            vec![
                one.session.to_string(),
                one.attachment_id.to_string(),
                shown(one.why.as_deref().unwrap_or_default()),
            ]
        })
        .collect();
    let mut text = format!(
        "{} attachments in {} sessions: {} good, {} bad\n",
        report.attachments,
        report.sessions,
        report.attachments.saturating_sub(report.bad),
        report.bad,
    );
    if !bad.is_empty() {
        text.push_str(&table(&["SESSION", "ATTACHMENT", "WHAT IS WRONG"], &bad));
    }
    text
}

/// Downloads one attachment into nothing but a hash.
async fn check(client: &Client, session: SessionHandle, file: &Listed) -> Result<(), Failure> {
    let request = client
        .request(Method::GET, &file.path(session))
        .body(Body::empty())
        .map_err(|error| Failure::of(Exit::Usage, &error))?;
    let response = timeout(STALL, client.send(request))
        .await
        .map_err(stalled)??;
    let mut body = succeeded(response).await?.into_body();
    let mut digester = Digester::default();
    let mut length = 0_u64;
    while let Some(frame) = timeout(STALL, body.frame()).await.map_err(stalled)? {
        let frame = frame.map_err(|error| {
            Failure::new(Exit::Damaged, format!("cut after {length} bytes: {error}"))
        })?;
        if let Some(bytes) = frame.data_ref() {
            digester.update(bytes);
            length = length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        }
    }
    if file.bytes.is_some_and(|stated| stated != length) || digester.finish() != file.id.digest() {
        return Err(Failure::new(
            Exit::Damaged,
            format!("{length} other bytes arrived"),
        ));
    }
    Ok(())
}
