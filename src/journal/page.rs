//! Where a page of history begins: the same whatever the source.

use super::Page;

/// What the texts of one page sum up to before it ends, in bytes; one event is always returned.
pub(super) const PAGE_BYTES: u64 = 4 << 20;

/// Whether an event of this type is a message, at which a page may begin.
pub(super) fn is_message(kind: &str) -> bool {
    matches!(kind, "user/message" | "assistant/message")
}

impl Page {
    /// Leaves the newest `most` messages with what belongs to them; the older part is for the next page.
    /// A copy that a replacement carries is no message: it stands inside another event.
    pub fn keep_messages(&mut self, most: usize) {
        let mut messages = self.events.iter().enumerate().rev();
        let cut = messages
            .by_ref()
            .filter(|(_, event)| is_message(&event.kind))
            .map(|(at, _)| at)
            .nth(most.saturating_sub(1));
        // What comes before the first message of a log belongs to its first page.
        let is_last = cut.is_some_and(|cut| {
            !self.has_more
                && !self
                    .events
                    .iter()
                    .take(cut)
                    .any(|event| is_message(&event.kind))
        });
        if let Some(cut) = cut.filter(|cut| *cut > 0 && !is_last) {
            self.events.drain(..cut);
            self.has_more = true;
        }
    }
}
