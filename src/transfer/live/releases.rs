//! What is told of releases: questions that wait, how they end, how far a copy is.

use std::sync::{Arc, PoisonError};

use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::Live;
use crate::{
    model::{PrincipalId, SessionHandle},
    receipt::{Answer, Ask, Decision, Ended, Outcome, Released},
    stream::Frame,
    transfer::progress::{About, Reached},
};

/// A release that waits for somebody's yes or no.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReleaseBody)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// What sort of question it is.
    kind: &'static str,
    /// Its id; no credential.
    request_id: String,
    /// The run of the service that shows it.
    bridge_generation: u64,
    /// The session.
    session: String,
    /// The event that declares the file.
    log_generation: u32,
    /// The event that declares the file. Of everything in the session: the seq its next event would have
    /// had.
    seq: u64,
    /// The position in the event; null for everything in the session.
    index: Option<u32>,
    /// The path beneath the root; untrusted text, escaped so that it is safe to show. Null for everything
    /// in the session.
    path: Option<String>,
    /// The name it would be handed out under.
    name: String,
    /// The content a yes releases, and nothing else.
    attachment_id: String,
    /// Its length.
    bytes: u64,
    /// How sure it is that the bytes were the file's content at one moment; null where no file was read.
    grade: Option<String>,
    /// When it was copied, in milliseconds since the epoch.
    pinned_at: i64,
    /// Who asked for it.
    asked_by: String,
    /// When the question was put.
    asked_at: i64,
    /// From when on whoever shows it should remind somebody: four fifths of its time are over.
    remind_at: i64,
    /// When it ends without an answer; the copy is then no longer kept.
    expires_at: i64,
    /// What may be decided.
    choices: [&'static str; 2],
}

impl Live {
    /// What people are shown of a release that waits.
    #[must_use]
    pub fn waiting(&self, ask: &Ask) -> Waiting {
        let draft = &ask.draft;
        let (item, reading) = (draft.item.as_ref(), draft.reading.as_ref());
        Waiting {
            kind: "release",
            request_id: ask.handle.to_string(),
            bridge_generation: self.parts.identity.bridge_generation,
            session: draft.session.to_string(),
            log_generation: draft.log_generation.get(),
            seq: draft.seq.get(),
            index: item.map(|item| item.index),
            path: item.map(|item| item.path.clone()),
            name: draft.name.to_string(),
            attachment_id: draft.id.to_string(),
            bytes: draft.bytes.get(),
            grade: reading.map(|reading| reading.grade.clone()),
            pinned_at: draft.pinned_at.as_millis(),
            asked_by: draft.asked_by.to_string(),
            asked_at: ask.asked_at.as_millis(),
            remind_at: ask.remind_at().as_millis(),
            expires_at: ask.expires_at.as_millis(),
            choices: [Decision::AllowedOnce.as_str(), Decision::Rejected.as_str()],
        }
    }

    /// Does one piece of work about a session's releases at a time, so that what it books is told in that
    /// order. Blocks.
    pub(in crate::transfer) fn in_line<T>(
        &self,
        session: SessionHandle,
        work: impl FnOnce() -> T,
    ) -> T {
        let line = {
            let mut lines = self.releases.lock().unwrap_or_else(PoisonError::into_inner);
            // Lines nobody stands in are forgotten.
            if lines.len() > 1024 {
                lines.retain(|_, line| Arc::strong_count(line) > 1);
            }
            Arc::clone(lines.entry(session).or_default())
        };
        let _mine = line.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Tells of questions that were put. Blocks.
    pub(in crate::transfer) fn tell_asked(&self, released: &[Released]) {
        for one in released {
            if let Released::Asked(ask) = one {
                self.tell(ask.draft.session, self.asked(ask));
            }
        }
    }

    /// Tells of questions that ended without an answer. Blocks.
    pub(in crate::transfer) fn tell_ended(&self, ended: &[Ended]) {
        for one in ended {
            self.tell(one.session, Self::over(one));
        }
    }

    /// The end of a question as a frame.
    pub(super) fn over(ended: &Ended) -> Frame {
        let data = json!({
            "session": ended.session, "requestId": ended.handle, "outcome": ended.outcome,
        });
        frame("release/resolved", &data)
    }

    /// Tells of a decision. Blocks.
    pub(in crate::transfer) fn tell_decided(&self, answer: &Answer, outcome: &Outcome) {
        let mut data = json!({
            "session": answer.session,
            "requestId": answer.handle,
            "outcome": answer.decision.as_str(),
        });
        if let (Outcome::Allowed(receipt), Some(data)) = (outcome, data.as_object_mut()) {
            data.insert("receipt".to_owned(), json!(receipt.statement.receipt));
        }
        self.tell(answer.session, frame("release/resolved", &data));
    }

    /// Tells the one who asked how far a release is.
    pub(in crate::transfer) fn tell_progress(
        &self,
        who: PrincipalId,
        about: About,
        reached: Reached,
    ) {
        let data = json!({
            "session": about.session,
            "logGeneration": about.log_generation.get(),
            "seq": about.seq.get(),
            "index": about.index,
            "files": reached.files,
            "ofFiles": reached.of_files,
            "bytes": reached.bytes,
        });
        let told = frame("release/progress", &data);
        self.state().hub.publish(&[who], told);
    }

    /// A question as a frame.
    pub(super) fn asked(&self, ask: &Ask) -> Frame {
        let data = serde_json::to_value(self.waiting(ask)).unwrap_or_default();
        frame("release/requested", &data)
    }

    fn tell(&self, session: SessionHandle, frame: Frame) {
        match self.parts.access.people(session) {
            Ok((mut audience, host)) => {
                audience.extend(host);
                self.state().hub.publish(&audience, frame);
            }
            Err(error) => tracing::warn!(%error, "what became of a release is not told"),
        }
    }
}

fn frame(event: &'static str, data: &serde_json::Value) -> Frame {
    Frame {
        event,
        data: data.to_string(),
        place: None,
    }
}
