//! Presented files: what governs them, releasing one, deciding about its bytes.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use http::Method;
use serde_json::{Value, json};

use super::{
    arguments::{Common, Decide, Present, Presented, Release},
    ask,
    beside::{config, opening, reach},
    client::{Client, segment},
    exit::{Exit, Failure},
    find::{self, string},
    output::{Output, shown, table},
    token::moment,
};
use crate::{
    app,
    model::{ByteCount, SessionHandle},
    receipt,
};

/// The longest text that can be a receipt, in bytes.
const LONGEST: u64 = 64 << 10;

/// Asks for a file, or for everything; prints the receipt, or what somebody has to decide.
pub(super) async fn release(
    common: &Common,
    what: &Release,
    output: Output,
) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &what.at.reach).await?;
    let session = find::session(&client, &what.at.session).await?;
    let path = match &what.file {
        Some(file) => format!("{}/release", address(&client, session, file).await?),
        None => format!("/v1/sessions/{session}/archive"),
    };
    let wait = what.wait.map(|seconds| format!("?wait={seconds}"));
    let path = path + wait.as_deref().unwrap_or_default();
    let answer = ask(&client, Method::POST, &path).await?;
    output.print(&answer, |answer| {
        if answer.get("receipt").is_some() {
            issued(answer)
        } else {
            format!(
                "somebody has to decide about exactly these bytes:\n\n{}\n\
                 holdfast decide -s {} {} --allow\n",
                waiting(std::slice::from_ref(answer)),
                string(answer, "session"),
                string(answer, "requestId"),
            )
        }
    })
}

/// Presents files as the session's host; prints what became of each.
pub(super) async fn present(
    common: &Common,
    what: &Present,
    output: Output,
) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &what.at.reach).await?;
    let session = find::session(&client, &what.at.session).await?;
    let files: Vec<Value> = what
        .files
        .iter()
        .map(|path| json!({ "path": path }))
        .collect();
    let form = json!({"turn": what.turn, "callId": what.call, "capture": what.capture,
        "files": files});
    let wait = what.wait.map(|seconds| format!("?wait={seconds}"));
    let path = format!(
        "/v1/sessions/{session}/deliverables{}",
        wait.as_deref().unwrap_or_default()
    );
    let answer = client.json(Method::POST, &path, Some(&form)).await?;
    output.print(&answer, |answer| {
        let rows = answer.get("files").and_then(Value::as_array);
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .flatten()
            .zip(&what.files)
            .map(|(row, path)| {
                let released = row.pointer("/receipt/receipt").and_then(Value::as_str);
                let asked = row.pointer("/release/requestId").and_then(Value::as_str);
                vec![
                    shown(path),
                    shown(string(row, "outcome")),
                    shown(released.or(asked).unwrap_or("-")),
                ]
            })
            .collect();
        table(&["FILE", "OUTCOME", "ID"], &rows)
    })
}

/// Says which rule governs a file. Nothing is opened.
pub(super) async fn explain(
    common: &Common,
    file: &Presented,
    output: Output,
) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &file.at.reach).await?;
    let session = find::session(&client, &file.at.session).await?;
    let path = address(&client, session, &file.file).await?;
    let look = if file.look { "?look=true" } else { "" };
    let answer = ask(&client, Method::GET, &format!("{path}/explain{look}")).await?;
    output.print(&answer, |answer| {
        let rules = answer.get("rules").and_then(Value::as_array);
        let rows: Vec<Vec<String>> = rules
            .into_iter()
            .flatten()
            .map(|rule| {
                let passed = rule.get("passed").and_then(Value::as_bool) == Some(true);
                vec![
                    shown(string(rule, "rule")),
                    if passed { "passed" } else { "refuses" }.to_owned(),
                    shown(string(rule, "class")),
                    shown(string(rule, "setting")),
                    shown(string(rule, "remedy")),
                ]
            })
            .collect();
        let outcome = match string(answer, "outcome") {
            "release" => "it would be released",
            "ask" => "somebody would be asked about its bytes",
            _ => "it would be refused",
        };
        let header = ["RULE", "RESULT", "WHY", "SETTING", "WHAT TO DO"];
        let looked = if file.look {
            "it was looked at and not opened"
        } else {
            "nothing was opened"
        };
        format!("{}\n{outcome}; {looked}\n", table(&header, &rows))
    })
}

/// Says yes or no to what waits, about exactly the bytes it shows; without a choice, shows it.
pub(super) async fn decide(
    common: &Common,
    decide: &Decide,
    output: Output,
) -> Result<(), Failure> {
    let (client, _beside) = reach(common, &decide.at.reach).await?;
    let session = find::session(&client, &decide.at.session).await?;
    let path = format!("/v1/sessions/{session}/releases");
    let mut all = ask(&client, Method::GET, &path).await?;
    let pending = match all.get_mut("pendingReleases").map(Value::take) {
        Some(Value::Array(pending)) => pending,
        _ => Vec::new(),
    };
    let Some(id) = &decide.interaction else {
        return output.print(&json!({"pendingReleases": pending}), |_| waiting(&pending));
    };
    let one = pending.iter().find(|one| string(one, "requestId") == id);
    let Some(one) = one else {
        let message = format!("nothing called `{}` waits in this session", shown(id));
        return Err(Failure::new(Exit::NotFound, message));
    };
    let decision = match (decide.choice.allow, decide.choice.reject) {
        (true, false) => "allowed-once",
        (false, true) => "rejected",
        _ => return output.print(one, |one| waiting(std::slice::from_ref(one))),
    };
    let form = json!({
        "attachmentId": one.get("attachmentId"),
        "bytes": one.get("bytes"),
        "decision": decision,
    });
    let path = format!("{path}/{}/decision", segment(id));
    let answer = client.json(Method::POST, &path, Some(&form)).await?;
    output.print(&answer, |answer| match answer.get("receipt") {
        Some(released) => issued(released),
        None => format!("{} is rejected; its copy is no longer kept\n", shown(id)),
    })
}

/// The address of a presented file, by its place in the log or by its path.
async fn address(client: &Client, session: SessionHandle, file: &str) -> Result<String, Failure> {
    let place = match place(file) {
        Some(place) => place,
        None => named(client, session, file).await?,
    };
    Ok(format!("/v1/sessions/{session}/deliverables/{place}"))
}

/// `3/1/0` as it stands in addresses.
fn place(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let is_place = parts.len() == 3 && parts.iter().all(|part| part.parse::<u64>().is_ok());
    is_place.then(|| text.to_owned())
}

/// The latest declaration of a path.
async fn named(client: &Client, session: SessionHandle, path: &str) -> Result<String, Failure> {
    let whole = find::whole_snapshot(client, session).await?;
    let items = whole
        .pointer("/display/deliverables/items")
        .and_then(Value::as_array);
    let mut latest = items.into_iter().flatten().rev();
    let found = latest.find(|item| string(item, "path") == path);
    let number = |item: &Value, key| item.get(key).and_then(Value::as_u64).unwrap_or_default();
    found
        .map(|item| {
            format!(
                "{}/{}/{}",
                number(item, "logGeneration"),
                number(item, "seq"),
                number(item, "index")
            )
        })
        .ok_or_else(|| {
            let message = format!("the session presents no file `{}`", shown(path));
            Failure::new(Exit::NotFound, message)
        })
}

/// The listed attachment a receipt's content is downloaded as.
pub(super) async fn content(client: &Client, receipt: &str) -> Result<find::Listed, Failure> {
    let path = format!("/v1/receipts/{}", segment(receipt));
    let answer = ask(client, Method::GET, &path).await?;
    find::released(&answer)
}

fn issued(answer: &Value) -> String {
    let said = |key| {
        let statement = answer.get("statement");
        statement.map(|it| string(it, key)).unwrap_or_default()
    };
    let bytes = answer.pointer("/statement/bytes").and_then(Value::as_u64);
    format!(
        "released: {} ({}, {})\nreceipt {}; holdfast get -s {} {} downloads it\n",
        shown(of_path(said("path"), said("name"))),
        ByteCount::new(bytes.unwrap_or_default()),
        shown(said("attachmentId")),
        shown(string(answer, "receipt")),
        shown(said("session")),
        shown(string(answer, "receipt")),
    )
}

/// What was read is called by its path, and everything in a session by the name of its archive.
fn of_path<'a>(path: &'a str, name: &'a str) -> &'a str {
    if path.is_empty() { name } else { path }
}

fn waiting(all: &[Value]) -> String {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let bytes = one.get("bytes").and_then(Value::as_u64).unwrap_or_default();
            vec![
                shown(string(one, "requestId")),
                shown(of_path(string(one, "path"), string(one, "name"))),
                ByteCount::new(bytes).to_string(),
                shown(string(one, "attachmentId")),
                moment(one.get("expiresAt")),
            ]
        })
        .collect();
    table(&["ID", "FILE", "SIZE", "CONTENT", "EXPIRES"], &rows)
}

/// Checks the seal of a receipt with the data directory's own key, beside a server or without one.
pub(super) fn verify(common: &Common, file: &Path, output: Output) -> Result<(), Failure> {
    let text = read(file)?;
    let key = app::seal_key(&config(common)?).map_err(|error| opening(&error))?;
    let fits = key.is_some_and(|key| receipt::check(&text, &key).is_ok());
    if !fits {
        let message = "the seal does not fit: this installation issued no such receipt, or it was \
                       edited";
        return Err(Failure::new(Exit::Damaged, message));
    }
    output.print(&json!({"fits": true}), |_| {
        "the seal fits: this installation issued the receipt\n".to_owned()
    })
}

/// A receipt's text; a longer one is none.
fn read(file: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::io("reading the receipt", &error);
    let source: Box<dyn io::Read> = if file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(open(file).map_err(failed)?)
    };
    let mut text = String::new();
    source
        .take(LONGEST)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

#[expect(clippy::disallowed_methods, reason = "the file a person names")]
fn open(file: &Path) -> io::Result<File> {
    File::open(file)
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_place_is_three_numbers() {
        assert_eq!(place("3/1/0").as_deref(), Some("3/1/0"));
        for path in ["a/1/0", "3/1", "3/1/0/0", "notes/plan.md", ""] {
            assert_eq!(place(path), None, "{path}");
        }
    }
}
