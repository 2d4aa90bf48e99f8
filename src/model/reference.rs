use super::{AttachmentId, ByteCount, FileName, MediaType};

/// An attachment as an event of a session's log refers to it.
///
/// The reference, not the caller, says which name and length belong to the content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentRef {
    /// The digest of the content.
    pub id: AttachmentId,
    /// The name; a file reference has one, an image reference may.
    pub name: Option<FileName>,
    /// The length the content must have, in bytes.
    pub bytes: ByteCount,
    /// What sort of reference it is.
    pub kind: AttachmentKind,
}

/// The two sorts of attachment reference (`spec/dsh.md` section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachmentKind {
    /// A file block: any content, no declared type.
    File,
    /// An image block: one of four inert types.
    Image {
        /// The declared type, from the closed list.
        media_type: MediaType,
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
}

impl AttachmentKind {
    /// The inert type a download of it is labelled with.
    #[must_use]
    pub const fn media_type(self) -> MediaType {
        match self {
            Self::File => MediaType::Octets,
            Self::Image { media_type, .. } => media_type,
        }
    }
}
