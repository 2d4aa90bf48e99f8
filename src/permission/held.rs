use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::Choice;
use crate::{
    control::{Control, ControlError},
    model::SessionHandle,
};

/// What is held for a session, and how often that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The choice that waits for a prompted turn.
    pub choice: Option<Choice>,
    /// How many choices were made.
    pub revision: u64,
}

/// The choices that wait, in the one database: they outlast the process.
#[derive(Clone, Debug)]
pub struct HeldChoices(Arc<Control>);

impl HeldChoices {
    /// Those in `control`.
    #[must_use]
    pub fn new(control: Arc<Control>) -> Self {
        Self(control)
    }

    /// What is held for the session. Blocks.
    ///
    /// # Errors
    /// As the database fails.
    pub fn of(&self, session: SessionHandle) -> Result<Held, ControlError> {
        self.0.read(|conn| read(conn, session))
    }

    /// Holds `choice`, or nothing any more, and counts it. Returns after it is durable.
    ///
    /// # Errors
    /// As the database fails.
    pub fn set(&self, session: SessionHandle, choice: Option<Choice>) -> Result<(), ControlError> {
        self.0.write(move |tx| {
            tx.prepare_cached(
                "INSERT INTO permissions (session, held, revision)
                 SELECT id, ?2, 1 FROM sessions WHERE handle = ?1
                 ON CONFLICT (session) DO UPDATE
                 SET held = excluded.held, revision = revision + 1",
            )?
            .execute((session.to_string(), choice.map(Choice::as_str)))?;
            Ok(())
        })
    }
}

fn read(conn: &Connection, session: SessionHandle) -> Result<Held, ControlError> {
    let row: Option<(Option<String>, i64)> = conn
        .prepare_cached(
            "SELECT held, revision FROM permissions JOIN sessions ON sessions.id = session
             WHERE handle = ?1",
        )?
        .query_row([session.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((held, revision)) = row else {
        return Ok(Held::default());
    };
    let damaged = || ControlError::Corrupt("permissions".into());
    Ok(Held {
        choice: held
            .map(|word| Choice::parse(&word).ok_or_else(damaged))
            .transpose()?,
        revision: u64::try_from(revision).map_err(|_negative| damaged())?,
    })
}
