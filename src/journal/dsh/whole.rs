use super::{
    limits::DshLimits,
    log::{Log, LogFault},
    names::LogName,
};
use crate::{
    journal::{Event, Referenced},
    model::{LogGeneration, SessionId, Timestamp},
};

/// A whole log, read from memory.
#[derive(Clone, Debug)]
pub struct WholeLog {
    /// The session's own id.
    pub id: SessionId,
    /// When it was created.
    pub created_at: Timestamp,
    /// The directory its declared paths are relative to.
    pub cwd: Option<String>,
    /// The numbering of its seqs.
    pub generation: LogGeneration,
    /// Its events, oldest first.
    pub events: Vec<Event>,
    /// What they refer to, once per content and name.
    pub references: Vec<Referenced>,
    /// Why it ends before its last line, if it does.
    pub ended: Option<String>,
}

/// Reads the bytes of a log file of this name, by the rules for one in a home.
///
/// # Errors
/// Why it is refused, with the row.
pub fn read_log(bytes: &[u8], name: LogName, limits: &DshLimits) -> Result<WholeLog, String> {
    let limits = DshLimits {
        // The events are asked for all at once; the bytes they come from are in memory already.
        page: limits.log,
        ..limits.clone()
    };
    let log = Log {
        file: &bytes,
        name,
        len: u64::try_from(bytes.len()).map_err(|error| error.to_string())?,
        limits: &limits,
    };
    let refused = |fault| match fault {
        LogFault::Damaged(why) => why,
        LogFault::Moved => "its rows are not what they were".to_owned(),
        LogFault::Io(error) => error.to_string(),
    };
    let index = log.index().map_err(refused)?;
    let events = log.events(&index, 0, index.next_seq().get());
    Ok(WholeLog {
        events: events.map_err(refused)?,
        references: index.references().to_vec(),
        ended: index.ended().map(str::to_owned),
        generation: index.generation(),
        id: index.header.id,
        created_at: index.header.created_at,
        cwd: index.header.cwd,
    })
}
