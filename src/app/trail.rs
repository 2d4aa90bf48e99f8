//! The audit trail of the data directory: opened before anything is served, and its head kept where the
//! trail itself is not.

use std::{sync::Arc, time::Duration};

use rusqlite::OptionalExtension as _;
use std::os::fd::AsFd;

use super::AppError;
use crate::{
    audit::{Audit, Event, Head, Record},
    control::{Control, ControlError},
    model::Clock,
    seal::SealKey,
    transfer::Parts,
};

/// Where the trail stood, in the database.
const KEY: &str = "audit_head";
/// How often that is kept, and logged for whoever keeps logs elsewhere.
const EACH: Duration = Duration::from_hours(1);

/// Opens the trail, against where it stood by the database.
pub(super) fn open(
    data: impl AsFd,
    key: Arc<SealKey>,
    clock: Arc<dyn Clock>,
    control: &Control,
) -> Result<Audit, AppError> {
    let audit = Audit::open(data, key, clock, kept(control)?)?;
    match audit.trouble() {
        Some(trouble) => tracing::error!(
            trouble,
            "the audit trail is damaged: nothing is given out. `holdfast audit verify` says where; set the \
             directory `audit` aside to begin another"
        ),
        None => audit.note(Record::of(Event::Started)),
    }
    Ok(audit)
}

/// Where the trail stood when that was last kept.
pub(super) fn kept(control: &Control) -> Result<Option<Head>, ControlError> {
    let text: Option<String> = control.read(|conn| {
        let found = conn
            .query_row("SELECT value FROM meta WHERE key = ?1", [KEY], |row| {
                row.get(0)
            })
            .optional()?;
        Ok::<_, ControlError>(found)
    })?;
    text.map(|text| {
        Head::parse(&text).ok_or_else(|| ControlError::Corrupt(format!("meta.{KEY}").into()))
    })
    .transpose()
}

/// Keeps where the trail stands, and logs it. Blocks.
fn keep(control: &Control, audit: &Audit) {
    let head = audit.head();
    if head == Head::NONE {
        return;
    }
    let text = head.text();
    tracing::info!(head = %text, "the audit trail stands here");
    let put = "INSERT INTO meta (key, value) VALUES (?1, ?2)
               ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    let kept = control.write(move |tx| {
        tx.execute(put, [KEY, &text])?;
        Ok::<_, ControlError>(())
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "where the audit trail stands is not kept");
    }
}

/// Keeps the head hourly.
pub(super) async fn hourly(parts: &Arc<Parts>) {
    loop {
        tokio::time::sleep(EACH).await;
        let own = Arc::clone(parts);
        let keeping = move || keep(&own.control, &own.audit);
        if let Err(error) = parts.pools.control.run_in_turn(keeping).await {
            tracing::warn!(%error, "where the audit trail stands is not kept");
        }
    }
}

/// An orderly end: the last line is written, and where it stands is kept. Blocks.
pub(super) fn finish(control: &Control, audit: &Audit) {
    audit.note(Record::of(Event::Stopped));
    audit.finish();
    keep(control, audit);
}
