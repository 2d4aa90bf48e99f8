//! Answers kept for a while, so that a request that comes again is answered and not done again.

use std::time::Duration;

use rusqlite::OptionalExtension;

use super::{ControlError, Tx};
use crate::model::Digest;

/// How long an answer is kept; a repeat after that is a new request.
const LIFE: Duration = Duration::from_hours(24);
/// The most expired answers removed with each new one.
const SWEEP: u32 = 16;

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// Nothing: the request is to be done.
    New,
    /// It came with the same body: this was its answer.
    Same(String),
    /// It came with another body.
    Other,
}

impl Tx<'_> {
    /// Looks `key` up among the keys of `scope` (one principal on one route).
    ///
    /// # Errors
    /// As the database fails.
    pub fn recall(&self, scope: &str, key: &str, body: &Digest) -> Result<Recalled, ControlError> {
        let known: Option<([u8; 32], String)> = self
            .prepare_cached(
                "SELECT body, answer FROM idem WHERE scope = ?1 AND key = ?2 AND at > ?3",
            )?
            .query_row((scope, key, self.oldest()), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        Ok(match known {
            None => Recalled::New,
            Some((known, answer)) if known == *body.as_bytes() => Recalled::Same(answer),
            Some(_) => Recalled::Other,
        })
    }

    /// Keeps the answer to the request of this key, in the transaction that does what it asks.
    ///
    /// # Errors
    /// As the database fails.
    pub fn keep(
        &self,
        scope: &str,
        key: &str,
        body: &Digest,
        answer: &str,
    ) -> Result<(), ControlError> {
        self.prepare_cached(
            "DELETE FROM idem WHERE id IN (SELECT id FROM idem WHERE at <= ?1 ORDER BY at LIMIT ?2)",
        )?
        .execute((self.oldest(), SWEEP))?;
        self.prepare_cached(
            "INSERT OR REPLACE INTO idem (scope, key, body, answer, at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((scope, key, body.as_bytes(), answer, self.now().as_millis()))?;
        Ok(())
    }

    /// Answers of this moment and before have expired.
    fn oldest(&self) -> i64 {
        let life = i64::try_from(LIFE.as_millis()).unwrap_or(i64::MAX);
        self.now().as_millis().saturating_sub(life)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::Arc, time::Duration};

    use super::{LIFE, Recalled};
    use crate::{
        control::{Control, ControlError},
        model::{Digest, ManualClock, Timestamp},
    };

    #[test]
    fn an_answer_is_recalled_for_its_key_and_body_until_it_expires() {
        let keep = tempfile::tempdir().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test directory")]
        let dir = File::open(keep.path()).unwrap();
        let clock = ManualClock::new(Timestamp::from_millis(0));
        let control = Control::open_inline(dir, Arc::new(clock.clone())).unwrap();
        let (body, other) = (Digest::of(b"body"), Digest::of(b"other"));
        let recall = |scope: &'static str, key: &'static str, body| {
            control
                .write::<_, ControlError, _>(move |tx| tx.recall(scope, key, &body))
                .unwrap()
        };
        let keep = |key: &'static str| {
            control
                .write::<_, ControlError, _>(move |tx| tx.keep("s", key, &body, key))
                .unwrap();
        };
        assert_eq!(recall("s", "k", body), Recalled::New);
        keep("k");
        assert_eq!(recall("s", "k", body), Recalled::Same("k".to_owned()));
        assert_eq!(recall("s", "k", other), Recalled::Other);
        assert_eq!(recall("another", "k", other), Recalled::New);
        clock.advance(LIFE.saturating_sub(Duration::from_millis(1)));
        keep("later");
        assert_eq!(recall("s", "k", body), Recalled::Same("k".to_owned()));
        clock.advance(Duration::from_millis(1));
        assert_eq!(recall("s", "k", other), Recalled::New);
        keep("last");
        let rows: i64 = control
            .read::<_, ControlError>(|conn| {
                Ok(conn.query_row("SELECT count(*) FROM idem", [], |row| row.get(0))?)
            })
            .unwrap();
        assert_eq!(rows, 2, "what has expired goes");
    }
}
