//! What waits for an answer, in words, and an answer out of a typed line.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{find::string, output::shown, token::moment};
use crate::model::ByteCount;

/// What a typed line says.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// The whole answer, without the facts it repeats.
    Whole(Value),
    /// The reply to one question of a form.
    Reply(Value),
    /// Not now.
    Later,
    /// It cannot be taken for an answer; in words.
    Unclear(String),
}

/// The questions of a form.
pub(super) fn questions(item: &Value) -> &[Value] {
    let questions = item.get("questions").and_then(Value::as_array);
    questions.map_or(&[], Vec::as_slice)
}

fn options(question: &Value) -> &[Value] {
    let options = question.get("options").and_then(Value::as_array);
    options.map_or(&[], Vec::as_slice)
}

fn may_allow(item: &Value) -> bool {
    string(item, "kind") == "release" || item.get("canAllow").and_then(Value::as_bool) == Some(true)
}

/// What somebody is to decide on, in lines.
pub(super) fn of(item: &Value) -> String {
    let mut text = format!(
        "\n{} {} in session {}\n",
        shown(string(item, "kind")),
        shown(string(item, "requestId")),
        shown(string(item, "session")),
    );
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            // A String takes everything.
            writeln!(text, "  {name:<10}{}", shown(value)).ok();
        }
    };
    match string(item, "kind") {
        "release" => {
            // Everything in a session has no path, only the name of its archive.
            fact("file", string(item, "path"));
            fact("as", string(item, "name"));
            let bytes = item
                .get("bytes")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            fact("size", &ByteCount::new(bytes).to_string());
            fact("content", string(item, "attachmentId"));
            fact("copied", &moment(item.get("pinnedAt")));
            fact("grade", string(item, "grade"));
        }
        "question" => {}
        _ => {
            fact("tool", string(item, "toolName"));
            fact("why", string(item, "reason"));
            let told = item.get("displayReason").and_then(Value::as_object);
            for (language, reason) in told.into_iter().flatten() {
                fact(
                    "told",
                    &format!("{language}: {}", reason.as_str().unwrap_or_default()),
                );
            }
            fact("shown", string(item, "presentation"));
            fact("call", string(item, "callId"));
            if !may_allow(item) {
                fact(
                    "note",
                    "what would be allowed is not readable and whole: only no is possible",
                );
            }
        }
    }
    if item.get("expiresAt").is_some() {
        fact("until", &moment(item.get("expiresAt")));
    }
    text
}

/// What is asked for, where so many replies of a form are there.
pub(super) fn prompt(item: &Value, replies: usize) -> String {
    let Some(question) = questions(item).get(replies) else {
        return if may_allow(item) {
            "allow this once (a), reject (r, and why), or later (l)?".to_owned()
        } else {
            "reject (r, and why), or later (l)?".to_owned()
        };
    };
    let mut text = shown(string(question, "question"));
    let detail = string(question, "detail");
    if !detail.is_empty() {
        write!(text, "\n  {}", shown(detail)).ok();
    }
    for (index, option) in options(question).iter().enumerate() {
        let number = index.saturating_add(1);
        write!(text, "\n  {number} {}", shown(string(option, "label"))).ok();
        let description = string(option, "description");
        if !description.is_empty() {
            write!(text, " - {}", shown(description)).ok();
        }
    }
    let many = question.get("multiSelect").and_then(Value::as_bool) == Some(true);
    text.push_str(match (options(question).is_empty(), many) {
        (true, _) => "\nan answer, cancel (c), or later (l)?",
        (false, true) => "\nnumbers, such as 1,2, another answer, cancel (c), or later (l)?",
        (false, false) => "\na number, another answer, cancel (c), or later (l)?",
    });
    text
}

/// Takes a typed line for an answer.
pub(super) fn read(item: &Value, replies: usize, text: &str) -> Said {
    let text = text.trim();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    if text == "l" || text == "later" {
        return Said::Later;
    }
    if let Some(question) = questions(item).get(replies) {
        return if text == "c" || text == "cancel" {
            Said::Whole(json!({"cancel": true}))
        } else {
            reply(question, text)
        };
    }
    match word {
        "a" | "allow" if rest.is_empty() && may_allow(item) => {
            Said::Whole(json!({"decision": "allowed-once"}))
        }
        "r" | "reject" if rest.is_empty() || string(item, "kind") == "release" => {
            Said::Whole(json!({"decision": "rejected"}))
        }
        "r" | "reject" => Said::Whole(json!({"decision": "rejected", "note": rest.trim()})),
        _ => Said::Unclear(format!("`{}` is no answer", shown(text))),
    }
}

/// Numbers of options, or an answer of one's own.
fn reply(question: &Value, text: &str) -> Said {
    if text.is_empty() {
        return Said::Unclear("an empty line is no answer".to_owned());
    }
    let (id, options) = (string(question, "id"), options(question));
    let numbers: Option<Vec<usize>> = text
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect();
    let Some(numbers) = numbers.filter(|_| !options.is_empty()) else {
        return Said::Reply(json!({"id": id, "selected": [], "custom": text}));
    };
    let many = question.get("multiSelect").and_then(Value::as_bool) == Some(true);
    let labels: Option<Vec<&str>> = numbers
        .iter()
        .map(|number| Some(string(options.get(number.checked_sub(1)?)?, "label")))
        .collect();
    match labels {
        Some(labels) if many || labels.len() == 1 => {
            Said::Reply(json!({"id": id, "selected": labels}))
        }
        Some(_several) => Said::Unclear("one of them, not several".to_owned()),
        None => Said::Unclear(format!("the numbers are 1 to {}", options.len())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Said, of, prompt, read};

    #[test]
    fn a_yes_is_typed_and_only_where_there_is_something_to_allow() {
        let mut item = json!({"kind": "approval", "requestId": "i_1", "toolName": "shell",
            "reason": "cargo\u{1b}[2J build", "canAllow": true});
        let yes = Said::Whole(json!({"decision": "allowed-once"}));
        assert_eq!(read(&item, 0, "a"), yes);
        assert_eq!(read(&item, 0, " allow "), yes);
        for text in ["", "y", "yes", "allow all", "a 1", "allowed-once"] {
            assert!(matches!(read(&item, 0, text), Said::Unclear(_)), "{text}");
        }
        let no = json!({"decision": "rejected", "note": "not now"});
        assert_eq!(read(&item, 0, "r not now"), Said::Whole(no));
        assert_eq!(read(&item, 0, "l"), Said::Later);
        assert!(!of(&item).contains('\u{1b}'));
        item["canAllow"] = json!(false);
        assert!(matches!(read(&item, 0, "a"), Said::Unclear(_)));
        assert!(!prompt(&item, 0).contains("allow"));
        assert!(of(&item).contains("only no is possible"));
    }

    #[test]
    fn a_form_is_answered_by_numbers_or_in_ones_own_words() {
        let item = json!({"kind": "question", "questions": [
            {"id": "q", "question": "Which?", "multiSelect": true,
                "options": [{"label": "red"}, {"label": "blue"}]},
            {"id": "p", "question": "Where?", "options": [{"label": "here"}, {"label": "there"}]},
            {"id": "w", "question": "Why?", "options": []},
        ]});
        let reply = |value| Said::Reply(value);
        assert_eq!(
            read(&item, 0, "2, 1"),
            reply(json!({"id": "q", "selected": ["blue", "red"]}))
        );
        assert_eq!(
            read(&item, 0, "green"),
            reply(json!({"id": "q", "selected": [], "custom": "green"}))
        );
        assert!(matches!(read(&item, 0, "3"), Said::Unclear(_)));
        assert!(matches!(read(&item, 1, "1,2"), Said::Unclear(_)));
        assert_eq!(
            read(&item, 2, "7"),
            reply(json!({"id": "w", "selected": [], "custom": "7"}))
        );
        assert_eq!(read(&item, 2, "c"), Said::Whole(json!({"cancel": true})));
        assert!(prompt(&item, 0).contains("1 red"));
    }

    #[test]
    fn a_release_shows_exactly_what_would_leave() {
        let item = json!({"kind": "release", "path": "out/a", "name": "a", "bytes": 2048,
            "attachmentId": "sha256:00", "grade": "stamped", "pinnedAt": 0, "expiresAt": 1000});
        let text = of(&item);
        for part in ["out/a", "2.0 KiB", "sha256:00", "stamped", "1970"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(
            read(&item, 0, "r no"),
            Said::Whole(json!({"decision": "rejected"}))
        );
    }
}
