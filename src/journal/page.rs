//! Where a page of history begins: the same whatever the source.

/// What the texts of one page sum up to before it ends, in bytes; one event is always returned.
pub(super) const PAGE_BYTES: u64 = 4 << 20;

/// Whether an event of this type is a message, at which a page may begin.
pub(super) fn is_message(kind: &str) -> bool {
    matches!(kind, "user/message" | "assistant/message")
}
