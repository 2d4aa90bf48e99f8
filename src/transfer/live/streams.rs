use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::json;
use tokio::sync::Notify;

use super::{Live, frames};
use crate::{
    access::{AccessError, Principal, random_bits},
    approval::{Matter, Pending},
    model::{PrincipalId, Seq, SessionHandle, StreamHandle},
    stream::{Frame, LastId, Next},
    transfer::TransferError,
};

/// How long a reader that gets nothing else waits for a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The most sessions a stream begins by naming; frames come for all of them.
const NAMED: u32 = 200;

/// An open stream. Ends with this value.
#[derive(Debug)]
pub struct Reader {
    live: Arc<Live>,
    stream: StreamHandle,
    who: PrincipalId,
    wake: Arc<Notify>,
    baseline: VecDeque<(Option<u64>, Frame)>,
    /// Up to where the baseline shows each log.
    shown: HashMap<SessionHandle, Seq>,
    generation: u64,
    over: bool,
}

/// What is sent next.
#[derive(Debug)]
pub enum Sent {
    /// A frame, and its id where it stands in an order that can be gone on with.
    Frame {
        /// `generation.number`.
        id: Option<String>,
        /// Its type.
        event: &'static str,
        /// Its JSON, on one line.
        data: String,
    },
    /// A sign of life.
    Heartbeat,
}

impl Live {
    /// Opens a stream of everything the caller may see: a baseline first, then what happens.
    ///
    /// # Errors
    /// [`TransferError::Streams`] when it has as many as it may; otherwise as the database fails.
    pub async fn open(
        self: &Arc<Self>,
        who: Principal,
        last: Option<&str>,
    ) -> Result<Reader, TransferError> {
        let stream = StreamHandle::from_random(random_bits()?);
        let bits = u128::from_be_bytes(random_bits()?).to_be_bytes();
        let drawn = u32::from_be_bytes([bits[0], bits[1], bits[2], bits[3]]);
        let known = last.and_then(LastId::parse);
        let id = who.id;
        let opened = self.with(|state, now| {
            let opened = state.hub.open(stream, id, known, drawn, now)?;
            state.bridge.opened(stream, id);
            Ok::<_, crate::stream::TooManyStreams>(opened)
        })?;
        let generation = self.parts.identity.bridge_generation;
        // From here on it closes when dropped.
        let mut reader = Reader {
            live: Arc::clone(self),
            stream,
            who: id,
            wake: opened.wake,
            baseline: VecDeque::new(),
            shown: HashMap::new(),
            generation,
            over: false,
        };
        let (access, journal) = (self.parts.access.clone(), self.parts.journal.clone());
        let ledger = self.parts.ledger.clone();
        // What happens from now on waits in the queue; what the logs hold by now is in the baseline.
        let (sessions, asks) = self
            .blocking(move || {
                let (mut standing, mut asks) = (Vec::new(), Vec::new());
                for session in access.sessions(&who, None, NAMED)? {
                    if let Ok(session) = journal.session(session) {
                        asks.extend(ledger.asks(session.handle)?);
                        standing.push(session);
                    }
                }
                Ok((standing, asks))
            })
            .await?;
        let pending = self.with(|state, now| {
            let mut all = Vec::new();
            for session in &sessions {
                all.extend(state.bridge.pending(session.handle, now));
            }
            all
        });
        let host = &self.parts.identity.instance;
        let ready = json!({
            "streamId": stream,
            "bridgeGeneration": generation,
            "hostInstanceId": host,
            "resumed": opened.resumed,
        });
        reader.begin(Some(opened.number), "ready", &ready);
        if last.is_some() && !opened.resumed {
            reader.begin(None, "reset", &json!({"bridgeGeneration": generation}));
        }
        for session in &sessions {
            let next = session.next_seq.get();
            let last = i64::try_from(next).map_or(i64::MAX, |next| next.saturating_sub(1));
            let frame = frames::subscribed(session.handle, last, session.generation.get());
            reader.baseline.push_back((None, frame));
            // One that goes on gets every event since, whatever the log holds by now.
            if next > 0 && !opened.resumed {
                reader.shown.insert(session.handle, Seq::new(next - 1));
            }
        }
        let is_form = |item: &&Pending| matches!(item.matter, Matter::Questions(_));
        let (forms, approvals): (Vec<_>, Vec<_>) = pending.iter().partition(is_form);
        for item in forms.into_iter().chain(approvals) {
            let frame = frames::requested(item, host, generation);
            reader.baseline.push_back((None, frame));
        }
        for ask in &asks {
            reader.baseline.push_back((None, self.asked(ask)));
        }
        reader.begin(None, "live", &json!({"bridgeGeneration": generation}));
        Ok(reader)
    }

    /// Takes a reader's word that it has read up to `last`: the proof that somebody is there.
    ///
    /// # Errors
    /// [`AccessError::Hidden`] for a stream that is not the caller's, or not open;
    /// [`TransferError::NotHanded`] for a frame this stream was not handed.
    pub fn acknowledge(
        self: &Arc<Self>,
        who: PrincipalId,
        stream: StreamHandle,
        last: &str,
    ) -> Result<(), TransferError> {
        self.with(|state, now| {
            if !state.hub.is_open(stream, who) {
                return Err(AccessError::Hidden.into());
            }
            let handed =
                LastId::parse(last).is_some_and(|last| state.hub.was_handed(stream, who, last));
            if !handed {
                return Err(TransferError::NotHanded);
            }
            if state.bridge.acknowledged(stream, who, now) {
                Ok(())
            } else {
                Err(AccessError::Hidden.into())
            }
        })
    }
}

impl Reader {
    fn begin(&mut self, id: Option<u64>, event: &'static str, data: &serde_json::Value) {
        let frame = Frame {
            event,
            data: data.to_string(),
            place: None,
        };
        self.baseline.push_back((id, frame));
    }

    /// What is to be sent next; none when the stream is over.
    pub async fn next(&mut self) -> Option<Sent> {
        if let Some((id, frame)) = self.baseline.pop_front() {
            return Some(self.sent(id, frame.event, frame.data));
        }
        if self.over {
            return None;
        }
        loop {
            // Asked for before looking, so that what comes between the two is not missed.
            let wake = Arc::clone(&self.wake);
            let woken = wake.notified();
            let next = self.live.state().hub.next(self.stream, self.who);
            match next {
                Next::Frame(number, frame) => {
                    let shown = frame.place.is_some_and(|(session, seq)| {
                        self.shown.get(&session).is_some_and(|last| seq <= *last)
                    });
                    if !shown {
                        return Some(self.sent(Some(number), frame.event, frame.data.clone()));
                    }
                }
                Next::Wait => {
                    if tokio::time::timeout(HEARTBEAT, woken).await.is_err() {
                        return Some(Sent::Heartbeat);
                    }
                }
                Next::Lost => {
                    self.over = true;
                    let data = json!({"code": "reader-too-slow"}).to_string();
                    return Some(self.sent(None, "stream/error", data));
                }
                Next::Ended => return None,
            }
        }
    }

    fn sent(&self, id: Option<u64>, event: &'static str, data: String) -> Sent {
        Sent::Frame {
            id: id.map(|number| format!("{}.{number}", self.generation)),
            event,
            data,
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let (stream, who) = (self.stream, self.who);
        self.live.close(stream, who);
    }
}

impl Live {
    fn close(self: &Arc<Self>, stream: StreamHandle, who: PrincipalId) {
        self.with(|state, now| {
            state.hub.close(stream, who, now);
            state.bridge.closed(stream, now);
        });
    }
}
