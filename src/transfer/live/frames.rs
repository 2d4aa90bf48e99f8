use serde::Serialize;
use serde_json::json;

use super::Told;
use crate::{
    approval::{Choice, Matter, Pending, Question, Settled},
    journal::NewEvent,
    model::{LogGeneration, Seq, SessionHandle, Timestamp},
    stream::Frame,
};

/// What a host tells of a session outside its log.
#[derive(Clone, Debug)]
pub enum Signal {
    /// Whether its agent runs.
    Running(bool),
    /// A failure that has no place in a turn.
    AgentError(String),
    /// It is over, and shown no more.
    Removed,
}

/// What a person is shown of an interaction: the same bytes each time.
#[must_use]
pub(super) fn item(pending: &Pending, host: &str, generation: u64) -> serde_json::Value {
    let mut item = json!({
        "kind": pending.matter.kind(),
        "requestId": pending.id,
        "bridgeGeneration": generation,
        "hostId": host,
        "session": pending.session,
        "approvalId": pending.audit,
    });
    let mut put = |key: &str, value: serde_json::Value| {
        if let Some(item) = item.as_object_mut() {
            item.insert(key.to_owned(), value);
        }
    };
    if let Some(turn) = pending.turn {
        put("turn", json!(turn.number));
        put("turnStartSeq", json!(turn.start.get()));
    }
    if let Some(at) = pending.expires_at {
        put("expiresAt", json!(at.as_millis()));
    }
    match &pending.matter {
        Matter::Approval(card) => {
            put("toolName", json!(card.tool));
            if let Some(call) = &card.call {
                put("callId", json!(call));
            }
            if let Some(reason) = &card.reason {
                put("reason", json!(reason));
            }
            if !card.display_reason.is_empty() {
                put("displayReason", json!(card.display_reason));
            }
            if let Some(text) = &card.presentation {
                put("presentation", json!(text));
            }
            put("canAllow", json!(card.can_allow));
            put("truncated", json!(card.truncated));
            let choices: &[&str] = if card.can_allow {
                &["allowed-once", "rejected"]
            } else {
                &["rejected"]
            };
            put("choices", json!(choices));
        }
        Matter::Questions(questions) => {
            let questions: Vec<_> = questions.iter().map(question).collect();
            put("questions", json!(questions));
        }
    }
    item
}

fn question(question: &Question) -> serde_json::Value {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        id: &'a str,
        question: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        header: Option<&'a str>,
        options: Vec<serde_json::Value>,
        multi_select: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        intent: Option<serde_json::Value>,
    }
    let option = |choice: &Choice| match &choice.description {
        Some(description) => json!({"label": choice.label, "description": description}),
        None => json!({"label": choice.label}),
    };
    json!(Body {
        id: &question.id,
        question: &question.question,
        detail: question.detail.as_deref(),
        header: question.header.as_deref(),
        options: question.options.iter().map(option).collect(),
        multi_select: question.multi_select,
        intent: question
            .approve
            .as_ref()
            .map(|approve| json!({"kind": "plan-review", "approve": approve})),
    })
}

pub(super) fn requested(pending: &Pending, host: &str, generation: u64) -> Frame {
    Frame {
        event: match pending.matter {
            Matter::Approval(_) => "approval/requested",
            Matter::Questions(_) => "question/requested",
        },
        data: item(pending, host, generation).to_string(),
        place: None,
    }
}

pub(super) fn resolved(settled: &Settled) -> Frame {
    let event = if settled.kind == "approval" {
        "approval/resolved"
    } else {
        "question/resolved"
    };
    let data = json!({
        "session": settled.session,
        "requestId": settled.id,
        "approvalId": settled.audit,
        "outcome": settled.outcome.as_str(),
        "cause": settled.cause.as_str(),
    });
    Frame {
        event,
        data: data.to_string(),
        place: None,
    }
}

pub(super) fn appended(session: SessionHandle, seq: Seq, event: &NewEvent) -> Frame {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        session: SessionHandle,
        log_generation: u32,
        event: Event<'a>,
    }
    #[derive(Serialize)]
    struct Event<'a> {
        seq: u64,
        #[serde(rename = "type")]
        kind: &'a str,
        time: Timestamp,
        data: &'a serde_json::value::RawValue,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        ignorable: bool,
    }
    let body = Body {
        session,
        log_generation: LogGeneration::NATIVE.get(),
        event: Event {
            seq: seq.get(),
            kind: event.kind.as_str(),
            time: event.time,
            data: &event.data,
            ignorable: event.ignorable,
        },
    };
    Frame {
        event: "session/event",
        data: serde_json::to_string(&body).unwrap_or_default(),
        place: Some((session, seq)),
    }
}

pub(super) fn subscribed(session: SessionHandle, last_seq: i64, generation: u32) -> Frame {
    let data = json!({"session": session, "lastSeq": last_seq, "logGeneration": generation});
    Frame {
        event: "session/subscribed",
        data: data.to_string(),
        place: None,
    }
}

pub(super) fn signal(session: SessionHandle, signal: &Signal) -> Frame {
    let (event, data) = match signal {
        Signal::Running(running) => (
            "host/session-status",
            json!({"session": session, "running": running}),
        ),
        Signal::AgentError(message) => (
            "host/agent-error",
            json!({"session": session, "message": message}),
        ),
        Signal::Removed => ("host/session-removed", json!({"session": session})),
    };
    Frame {
        event,
        data: data.to_string(),
        place: None,
    }
}

pub(super) fn added(session: SessionHandle) -> Frame {
    Frame {
        event: "host/session-added",
        data: json!({"session": session}).to_string(),
        place: None,
    }
}

impl Told {
    /// Whether nothing more will be told.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Settled(_) | Self::Unaudited)
    }
}
