//! The session that test programs write and the tests that judge them read: what its event at each
//! seq says follows from the seq.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "shared by programs and tests, none of which uses all of it"
)]

use std::{error::Error, fs::File, path::Path, sync::Arc};

use holdfast::{
    control::{Control, ControlError},
    journal::{Event, EventType, NewEvent, NewSession, native::NativeJournal},
    model::{
        AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest, FileName, JournalLimits,
        PrincipalId, SessionHandle, SessionId, SystemClock, Timestamp,
    },
};
use serde_json::{json, value::RawValue};

/// The session.
pub(crate) const HANDLE: SessionHandle = SessionHandle::from_random([7; 16]);

/// Its header.
pub(crate) fn header() -> NewSession {
    header_of(HANDLE)
}

/// The header of another session.
pub(crate) fn header_of(handle: SessionHandle) -> NewSession {
    NewSession {
        handle,
        id: SessionId::parse(&format!("of {handle}")).unwrap(),
        cwd: None,
        host: PrincipalId::from_random([1; 16]),
        owners: vec![PrincipalId::from_random([2; 16])],
        created_at: Timestamp::from_millis(1_790_000_000_000),
    }
}

/// What the upload that its event at `seq` refers to holds.
pub(crate) fn content_at(seq: u64) -> String {
    format!("content of {seq}")
}

/// The upload its event at `seq` refers to.
pub(crate) fn upload(seq: u64) -> AttachmentRef {
    let content = content_at(seq);
    AttachmentRef {
        id: AttachmentId::new(Digest::of(content.as_bytes())),
        name: Some(FileName::parse(&format!("{seq}.txt")).unwrap()),
        bytes: content.len().into(),
        kind: AttachmentKind::File,
    }
}

/// Its event at `seq`.
pub(crate) fn message(seq: u64) -> Vec<NewEvent> {
    let reference = upload(seq);
    let attachment = json!({
        "attachmentId": reference.id, "name": reference.name, "bytes": reference.bytes,
    });
    let text = "some text. ".repeat(20);
    let data = json!({"content": [
        {"type": "text", "text": text},
        {"type": "file", "attachment": attachment},
    ]});
    vec![NewEvent {
        kind: EventType::parse("user/message").unwrap(),
        time: Timestamp::from_millis(0),
        data: RawValue::from_string(data.to_string()).unwrap(),
        ignorable: false,
    }]
}

/// Whether this is its event at that seq.
pub(crate) fn is_right(event: &Event) -> bool {
    event.data.get() == message(event.seq.get())[0].data.get()
}

/// The journal in `dir`, writing on the caller's thread.
pub(crate) fn open_inline(dir: &Path) -> Result<NativeJournal, Box<dyn Error>> {
    let dir = File::open(dir)?;
    Ok(journal(Control::open_inline(dir, Arc::new(SystemClock))?))
}

/// The database in `dir`.
pub(crate) fn open(dir: &Path) -> Result<Control, ControlError> {
    Control::open(File::open(dir).unwrap(), Arc::new(SystemClock))
}

/// The journal in this database.
pub(crate) fn journal(control: Control) -> NativeJournal {
    shared(Arc::new(control))
}

/// The journal in this database, which others use too.
pub(crate) fn shared(control: Arc<Control>) -> NativeJournal {
    NativeJournal::new(control, JournalLimits::default(), ByteCount::gib(1))
}
