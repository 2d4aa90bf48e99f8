use std::{collections::HashMap, time::Duration};

use crate::model::{Moment, PrincipalId, StreamHandle};

/// How long a stream counts as read after its last acknowledgement.
pub const PRESENCE: Duration = Duration::from_secs(35);

/// Who is known to read: streams that were acknowledged lately.
///
/// A stream that was only opened proves nothing: a write into a socket succeeds with nobody behind it.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence(HashMap<StreamHandle, Reader>);

#[derive(Clone, Copy, Debug)]
struct Reader {
    who: PrincipalId,
    acknowledged: Option<Moment>,
}

impl Presence {
    pub(super) fn opened(&mut self, stream: StreamHandle, who: PrincipalId) {
        let reader = Reader {
            who,
            acknowledged: None,
        };
        self.0.insert(stream, reader);
    }

    /// Whether `stream` is open and `who`'s.
    pub(super) fn acknowledge(
        &mut self,
        stream: StreamHandle,
        who: PrincipalId,
        now: Moment,
    ) -> bool {
        match self.0.get_mut(&stream) {
            Some(reader) if reader.who == who => {
                reader.acknowledged = Some(now);
                true
            }
            _ => false,
        }
    }

    pub(super) fn closed(&mut self, stream: StreamHandle) {
        self.0.remove(&stream);
    }

    /// Whether any of `anyone` is present.
    pub(super) fn any(&self, anyone: &[PrincipalId], now: Moment) -> bool {
        self.0.values().any(|reader| {
            anyone.contains(&reader.who)
                && reader
                    .acknowledged
                    .is_some_and(|at| now < at.after(PRESENCE))
        })
    }
}
