//! What waits for an answer, as it comes; and the answers, where a person sits at a terminal.
//!
//! Promises: an answer repeats what was shown, so it is taken for exactly that; what came from elsewhere
//! is shown with its controls spelled out; nothing is answered by anything but a line that was typed.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _, IsTerminal as _},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    arguments::{Common, Watch},
    beside::reach,
    card,
    client::{Client, segment},
    exit::{Exit, Failure},
    find::{self, string},
    frames::{Frame, Frames},
    output::{Output, line, note, shown},
};
use crate::model::SessionHandle;

/// How often what was read is acknowledged, which is what makes somebody present.
const ACKNOWLEDGE: Duration = Duration::from_secs(12);
/// The first pause before a stream is opened again; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause before a stream is opened again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most that waits here; more than one person could answer.
const MOST: usize = 1024;

/// What waits, in the order it came, and how far the first of it is answered.
struct Desk {
    output: Output,
    /// Whether somebody can type an answer.
    asks: bool,
    only: Option<SessionHandle>,
    waiting: VecDeque<Value>,
    replies: Vec<Value>,
}

/// Shows what waits until it is told to stop.
pub(super) async fn run(common: &Common, watch: &Watch, output: Output) -> Result<(), Failure> {
    let (client, beside) = reach(common, &watch.reach).await?;
    if beside.as_ref().is_some_and(super::beside::Beside::is_alone) {
        let message = "no server runs on this directory, so nobody can ask anything";
        return Err(Failure::new(Exit::TryAgain, message));
    }
    let only = match &watch.session {
        Some(session) => Some(find::session(&client, session).await?),
        None => None,
    };
    let asks = output == Output::Text && io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut desk = Desk {
        output,
        asks,
        only,
        waiting: VecDeque::new(),
        replies: Vec::new(),
    };
    let mut typed = typed(asks);
    tokio::select! {
        done = desk.follow(&client, &mut typed) => done,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// The lines somebody types. The thread that reads them ends with the process.
fn typed(asks: bool) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    if asks {
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}

impl Desk {
    /// Reads the stream, and again after each cut.
    async fn follow(
        &mut self,
        client: &Client,
        typed: &mut mpsc::Receiver<String>,
    ) -> Result<(), Failure> {
        let (mut last, mut pause) = (None, FIRST_PAUSE);
        loop {
            match self.once(client, typed, &mut last, &mut pause).await {
                Err(fault) if fault.exit != Exit::TryAgain => return Err(fault),
                Err(fault) => note(format_args!("{}; trying again", fault.message)),
                Ok(()) => {}
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Reads one stream to its end.
    async fn once(
        &mut self,
        client: &Client,
        typed: &mut mpsc::Receiver<String>,
        last: &mut Option<String>,
        pause: &mut Duration,
    ) -> Result<(), Failure> {
        let mut frames = Frames::open(client, last.as_deref()).await?;
        let mut stream = None;
        let mut due = interval(ACKNOWLEDGE);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                frame = frames.next() => {
                    let Some(frame) = frame? else { return Ok(()) };
                    *pause = FIRST_PAUSE;
                    if let Some(id) = &frame.id {
                        *last = Some(id.clone());
                    }
                    if frame.event == "ready" {
                        stream = Some(string(&frame.data, "streamId").to_owned());
                    }
                    let is_live = frame.event == "live";
                    self.take(frame)?;
                    if is_live {
                        acknowledge(client, stream.as_deref(), last.as_deref()).await;
                    }
                }
                _ = due.tick() => {
                    acknowledge(client, stream.as_deref(), last.as_deref()).await;
                }
                Some(line) = typed.recv(), if self.asks => self.answer(client, &line).await?,
            }
        }
    }

    /// Shows what a frame tells.
    fn take(&mut self, frame: Frame) -> Result<(), Failure> {
        let session = string(&frame.data, "session").to_owned();
        let is_ours = self.only.is_none_or(|only| only.to_string() == session);
        match frame.event.as_str() {
            // A baseline says all that waits.
            "ready" => {
                self.waiting.clear();
                self.replies.clear();
            }
            "approval/requested" | "question/requested" | "release/requested" if is_ours => {
                self.put(&frame.event, frame.data)?;
            }
            "approval/resolved" | "question/resolved" | "release/resolved" if is_ours => {
                self.settled(&frame.event, &frame.data)?;
            }
            "stream/error" => note("the stream was too slow and begins anew"),
            _ => {}
        }
        Ok(())
    }

    /// Shows one more thing that waits.
    fn put(&mut self, event: &str, item: Value) -> Result<(), Failure> {
        let id = string(&item, "requestId");
        let is_known = |one: &Value| string(one, "requestId") == id;
        if self.waiting.iter().any(is_known) || self.waiting.len() >= MOST {
            return Ok(());
        }
        match self.output {
            Output::Json => line(json!({"event": event, "data": item}))?,
            Output::Text => line(card::of(&item))?,
        }
        self.waiting.push_back(item);
        if self.waiting.len() == 1 {
            self.prompt()?;
        }
        Ok(())
    }

    /// Something ended, here or elsewhere.
    fn settled(&mut self, event: &str, data: &Value) -> Result<(), Failure> {
        let id = string(data, "requestId");
        let was_first = self.forget(id);
        match self.output {
            Output::Json => line(json!({"event": event, "data": data}))?,
            Output::Text => line(format_args!(
                "{} is over: {}",
                shown(id),
                shown(string(data, "outcome"))
            ))?,
        }
        if was_first { self.prompt() } else { Ok(()) }
    }

    /// Takes an item off the desk; whether it was the one being answered.
    fn forget(&mut self, id: &str) -> bool {
        let first = self.waiting.front();
        let was_first = first.is_some_and(|first| string(first, "requestId") == id);
        self.waiting.retain(|one| string(one, "requestId") != id);
        if was_first {
            self.replies.clear();
        }
        was_first
    }

    /// Asks for the answer to the first of what waits.
    fn prompt(&self) -> Result<(), Failure> {
        match self.waiting.front() {
            Some(first) if self.asks => line(card::prompt(first, self.replies.len())),
            _ => Ok(()),
        }
    }

    /// Takes a typed line as the answer to what was asked last.
    async fn answer(&mut self, client: &Client, text: &str) -> Result<(), Failure> {
        let Some(first) = self.waiting.front().cloned() else {
            return Ok(());
        };
        match card::read(&first, self.replies.len(), text) {
            card::Said::Unclear(why) => {
                line(why)?;
                return self.prompt();
            }
            card::Said::Later => {
                self.waiting.rotate_left(1);
                self.replies.clear();
                return self.prompt();
            }
            card::Said::Reply(reply) => {
                self.replies.push(reply);
                if card::questions(&first).len() > self.replies.len() {
                    return self.prompt();
                }
                let answer = json!({"answers": self.replies});
                self.send(client, &first, answer).await?;
            }
            card::Said::Whole(answer) => self.send(client, &first, answer).await?,
        }
        self.forget(string(&first, "requestId"));
        self.prompt()
    }

    /// Sends an answer about exactly what was shown. A refusal is told and ends the matter here.
    async fn send(&self, client: &Client, item: &Value, answer: Value) -> Result<(), Failure> {
        let (session, id) = (string(item, "session"), string(item, "requestId"));
        let (room, facts): (_, &[&str]) = if string(item, "kind") == "release" {
            ("releases", &["attachmentId", "bytes"])
        } else {
            (
                "interactions",
                &[
                    "bridgeGeneration",
                    "hostId",
                    "session",
                    "requestId",
                    "turn",
                    "turnStartSeq",
                ],
            )
        };
        let mut form = answer;
        for fact in facts {
            if let (Some(form), Some(value)) = (form.as_object_mut(), item.get(*fact)) {
                form.insert((*fact).to_owned(), value.clone());
            }
        }
        let path = format!(
            "/v1/sessions/{}/{room}/{}/decision",
            segment(session),
            segment(id)
        );
        match client.json(Method::POST, &path, Some(&form)).await {
            Ok(taken) => line(format_args!(
                "{}: {}",
                shown(id),
                shown(string(&taken, "outcome"))
            )),
            Err(fault) => line(format_args!("{}: not taken: {}", shown(id), fault.message)),
        }
    }
}

/// Shows that the stream was read so far. One that is lost is made up for by the next.
async fn acknowledge(client: &Client, stream: Option<&str>, last: Option<&str>) {
    if let (Some(stream), Some(last)) = (stream, last) {
        let path = format!("/v1/streams/{}/ack", segment(stream));
        let form = json!({"lastEventId": last});
        drop(client.json(Method::POST, &path, Some(&form)).await);
    }
}
