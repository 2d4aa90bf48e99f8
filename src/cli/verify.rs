//! Downloads every attachment and checks it on this side, keeping nothing: what a download would
//! give is what is checked. Beside a server, every native session's log is read against its chain too.

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

/// How one session's log fared.
#[derive(Debug, Serialize)]
struct Log {
    session: SessionHandle,
    events: u64,
    ok: bool,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// How all of them fared.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    sessions: usize,
    attachments: usize,
    bad: usize,
    bad_logs: usize,
    checked: Vec<Checked>,
    /// The logs that have a chain and could be read against it, and those that could not be read.
    logs: Vec<Log>,
}

/// Checks one session, or every one the caller may see. Goes on after a bad one.
pub(super) async fn run(common: &Common, verify: &Verify, output: Output) -> Result<(), Failure> {
    let (client, beside) = reach(common, &verify.reach).await?;
    let sessions = match &verify.session {
        Some(session) => vec![find::session(&client, session).await?],
        None => find::sessions(&client)
            .await?
            .iter()
            .map(find::handle_of)
            .collect::<Result<_, _>>()?,
    };
    let (mut checked, mut logs) = (Vec::new(), Vec::new());
    for session in &sessions {
        if beside.is_some()
            && let Some(log) = log(&client, *session).await?
        {
            logs.push(log);
        }
        let files = match find::attachments(&client, *session).await {
            Err(fault) if fault.exit == Exit::Damaged => {
                if !logs.iter().any(|log| log.session == *session) {
                    logs.push(Log::bad(*session, fault));
                }
                continue;
            }
            files => files?,
        };
        for file in files {
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
    let damaged = logs.iter().any(|log| !log.ok).then_some(Exit::Damaged);
    let exit = checked
        .iter()
        .filter_map(|one| one.exit)
        .chain(damaged)
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
        bad_logs: logs.iter().filter(|log| !log.ok).count(),
        checked,
        logs,
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
                "{} of {} attachments and {} of {} logs failed",
                report.bad,
                report.attachments,
                report.bad_logs,
                report.logs.len()
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
    if report.logs.is_empty() {
        return text;
    }
    let bad: Vec<Vec<String>> = report
        .logs
        .iter()
        .filter(|log| !log.ok)
        .map(|log| {
            vec![
                log.session.to_string(),
                shown(log.why.as_deref().unwrap_or_default()),
            ]
        })
        .collect();
    let good: u64 = report.logs.iter().map(|log| log.events).sum();
    let line = format!(
        "{} logs: {} good with {good} events, {} bad\n",
        report.logs.len(),
        report.logs.len().saturating_sub(report.bad_logs),
        report.bad_logs,
    );
    text.push_str(&line);
    if !bad.is_empty() {
        text.push_str(&table(&["SESSION", "WHAT IS WRONG"], &bad));
    }
    text
}

impl Log {
    fn bad(session: SessionHandle, fault: Failure) -> Self {
        Self {
            session,
            events: 0,
            ok: false,
            why: Some(fault.message),
        }
    }
}

/// Has one session's log read against its chain; `None` when it has none.
async fn log(client: &Client, session: SessionHandle) -> Result<Option<Log>, Failure> {
    let path = format!("/local/v1/sessions/{session}/chain");
    match client.json(Method::GET, &path, None).await {
        Ok(found) if found["chained"] == true => Ok(Some(Log {
            session,
            events: found["events"].as_u64().unwrap_or_default(),
            ok: true,
            why: None,
        })),
        Ok(_a_home) => Ok(None),
        Err(fault) if fault.exit == Exit::Damaged => Ok(Some(Log::bad(session, fault))),
        Err(fault) => Err(fault),
    }
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
