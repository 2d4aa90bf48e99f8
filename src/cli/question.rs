//! Asks a session's people as a host does, and waits for what they say.

use http::Method;
use serde_json::{Value, json};

use super::{
    arguments::{Ask, Common},
    beside::reach,
    client::segment,
    exit::{Exit, Failure},
    find::{self, string},
    output::{Output, note, shown},
};

/// How long one request waits for the end; the next goes on.
const WAIT_SECONDS: u64 = 50;

/// Puts an approval or a question, and waits until it has ended. A no, or nobody, is a refusal.
pub(super) async fn run(common: &Common, ask: &Ask, output: Output) -> Result<(), Failure> {
    let (client, beside) = reach(common, &ask.at.reach).await?;
    if beside.as_ref().is_some_and(super::beside::Beside::is_alone) {
        let message = "no server runs on this directory, so nobody can answer";
        return Err(Failure::new(Exit::TryAgain, message));
    }
    let session = find::session(&client, &ask.at.session).await?;
    let form = match (&ask.what.tool, &ask.what.question) {
        (Some(tool), _) => json!({
            "kind": "approval", "agent": ask.agent, "toolName": tool, "reason": ask.reason,
        }),
        (None, question) => {
            let options: Vec<_> = ask
                .options
                .iter()
                .map(|label| json!({"label": label}))
                .collect();
            let question = json!({"id": "q", "question": question, "options": options});
            json!({"kind": "question", "agent": ask.agent, "questions": [question]})
        }
    };
    let room = format!("/v1/sessions/{session}/interactions");
    let asked = client.json(Method::POST, &room, Some(&form)).await?;
    let id = string(&asked, "requestId");
    note(format_args!("{} waits for an answer", shown(id)));
    let path = format!("{room}/{}?waitSeconds={WAIT_SECONDS}", segment(id));
    let told = loop {
        let told = client.json(Method::GET, &path, None).await?;
        if string(&told, "state") != "pending" {
            break told;
        }
    };
    output.print(&told, said)?;
    match string(&told, "outcome") {
        "allowed-once" | "answered" => Ok(()),
        other => Err(Failure::new(
            Exit::Refused,
            format!("{}: {}", shown(id), shown(other)),
        )),
    }
}

fn said(told: &Value) -> String {
    let answers = told.get("answers").and_then(Value::as_array);
    let mut words = vec![shown(string(told, "outcome"))];
    for answer in answers.into_iter().flatten() {
        let selected = answer.get("selected").and_then(Value::as_array);
        let selected = selected.into_iter().flatten().filter_map(Value::as_str);
        words.extend(selected.map(shown));
        words.extend(answer.get("custom").and_then(Value::as_str).map(shown));
    }
    let note = string(told, "note");
    if !note.is_empty() {
        words.push(shown(note));
    }
    words.join(" ")
}
