use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::model::{Digest, Moment};

/// How many answers are kept, and for how long. What they answered lives in memory alone, and so do
/// they.
const MOST: usize = 4096;
const KEPT: Duration = Duration::from_hours(24);
/// The longest answer that is kept, in bytes.
const LONGEST: usize = 4096;

/// Answers to requests that may come again and whose effect lives in memory alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Replays(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    answers: HashMap<(String, String), Entry>,
    oldest: VecDeque<(Moment, (String, String))>,
}

#[derive(Debug)]
struct Entry {
    asked: Digest,
    answer: Option<(u16, String)>,
}

/// What is known of a key.
#[derive(Debug)]
pub enum Replay {
    /// Nothing: the request is to be done, and this kept while it is.
    New(Running),
    /// It came with the same body: its status and body were these.
    Same(u16, String),
    /// It came with another body.
    Other,
    /// It is being done now.
    InHand,
}

/// A request that is being done; dropped without an answer, its key is free again.
#[derive(Debug)]
pub struct Running {
    known: Replays,
    key: Option<(String, String)>,
}

impl Replays {
    pub(super) fn begin(&self, scope: String, key: String, asked: Digest, now: Moment) -> Replay {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((since, _)) = known.oldest.front() {
            if known.oldest.len() < MOST && now < since.after(KEPT) {
                break;
            }
            if let Some((_, key)) = known.oldest.pop_front() {
                known.answers.remove(&key);
            }
        }
        let key = (scope, key);
        match known.answers.get(&key) {
            Some(entry) if entry.asked != asked => return Replay::Other,
            Some(Entry {
                answer: Some((status, body)),
                ..
            }) => return Replay::Same(*status, body.clone()),
            Some(_) => return Replay::InHand,
            None => {}
        }
        let entry = Entry {
            asked,
            answer: None,
        };
        known.answers.insert(key.clone(), entry);
        known.oldest.push_back((now, key.clone()));
        Replay::New(Running {
            known: self.clone(),
            key: Some(key),
        })
    }
}

impl Running {
    /// Keeps the answer.
    pub fn finish(mut self, status: u16, body: &str) {
        if body.len() > LONGEST {
            return;
        }
        let mut known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = self.key.take().and_then(|key| known.answers.get_mut(&key)) {
            entry.answer = Some((status, body.to_owned()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let mut known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.answers.remove(&key);
            known.oldest.retain(|(_, one)| *one != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, MOST, Replay, Replays};
    use crate::model::{Digest, Moment};

    #[test]
    fn a_key_is_answered_once_and_then_again_the_same() {
        let replays = Replays::default();
        let begin = |scope: &str, body: &[u8], now| {
            replays.begin(scope.to_owned(), "k".to_owned(), Digest::of(body), now)
        };
        let now = Moment::default();
        let Replay::New(running) = begin("alice", b"a", now) else {
            panic!("not new")
        };
        assert!(matches!(begin("alice", b"a", now), Replay::InHand));
        assert!(matches!(begin("alice", b"b", now), Replay::Other));
        assert!(matches!(begin("bob", b"b", now), Replay::New(_)));
        running.finish(200, "yes");
        let Replay::Same(200, body) = begin("alice", b"a", now) else {
            panic!("not the same")
        };
        assert_eq!(body, "yes");
        assert!(matches!(
            begin("alice", b"a", now.after(KEPT)),
            Replay::New(_)
        ));
    }

    /// Keeps I11.
    #[test]
    fn keys_are_bounded_and_one_that_failed_is_free() {
        let replays = Replays::default();
        let begin =
            |key: String| replays.begin("s".to_owned(), key, Digest::of(b""), Moment::default());
        drop(begin("failed".to_owned()));
        assert!(matches!(begin("failed".to_owned()), Replay::New(_)));
        for n in 0..MOST * 2 {
            if let Replay::New(running) = begin(n.to_string()) {
                running.finish(200, "");
            }
        }
        let known = replays.0.lock().unwrap();
        assert!(known.answers.len() <= MOST && known.oldest.len() <= MOST);
    }
}
