use thiserror::Error;

use crate::{
    access::AccessError,
    approval::{AskError, DecideError},
    audit::Unavailable,
    deliverable::Refused,
    gate::GateClosed,
    handoff::HandoffError,
    journal::JournalError,
    model::{AttachmentId, ByteCount},
    permission::PermissionError,
    pinned::PinnedError,
    pool::PoolError,
    receipt::{self, LedgerError},
    spool::SpoolError,
    store::StoreError,
    stream::TooManyStreams,
};

/// Why a journey ended before its goal: the error of the part that ended it, and what only a journey
/// can find wrong.
#[derive(Debug, Error)]
pub enum TransferError {
    /// No grant was made.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The journal gave or took nothing.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The store gave or took nothing.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The upload's spool could not be made or filled.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The work found no place, or was lost.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Nothing was put to anybody.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// An answer changed nothing.
    #[error(transparent)]
    Decide(#[from] DecideError),
    /// Nothing was handed over.
    #[error(transparent)]
    Handoff(#[from] HandoffError),
    /// A permission was not chosen.
    #[error(transparent)]
    Permission(#[from] PermissionError),
    /// No stream was opened.
    #[error(transparent)]
    Streams(#[from] TooManyStreams),
    /// A frame was acknowledged that this stream was not handed.
    #[error("the stream was not handed this frame")]
    NotHanded,
    /// A decision's second audit row could not be written.
    #[error("the end of an interaction could not be audited")]
    Unaudited,
    /// A declared path leads out of its session's directory, or is none.
    #[error(transparent)]
    Outside(Refused),
    /// The session's directory lies in no root.
    #[error("the session's directory lies in no root")]
    NoRoot,
    /// Nothing proves that reads of the root are pinned.
    #[error("the gate of root `{root}` is closed: {closed}")]
    Gate {
        /// Why.
        closed: GateClosed,
        /// The root's name.
        root: String,
    },
    /// The file's name is one that never leaves.
    #[error("the name is denied by `{pattern}`")]
    NameDenied {
        /// The pattern that says so.
        pattern: String,
    },
    /// Somebody would have to say yes, and the session's permission is to ask nobody.
    #[error("the session asks nobody, so nobody can say yes")]
    NobodyAsked,
    /// A file, or what an archive would hold, has more bytes than this setting lets out.
    #[error("larger than {limit}")]
    TooLarge {
        /// How many bytes there are, where that is known.
        size: Option<ByteCount>,
        /// How many there may be.
        limit: ByteCount,
        /// What says so.
        setting: &'static str,
    },
    /// A directory has more in it than one archive may have.
    #[error("the directory has more than {most} entries")]
    TooManyEntries {
        /// How many that is.
        most: usize,
    },
    /// One of several files cannot be had; then none is.
    #[error("file {index}")]
    File {
        /// Which one, from 0.
        index: usize,
        /// Why.
        #[source]
        source: Box<TransferError>,
    },
    /// The file cannot be read as it has to be.
    #[error(transparent)]
    Pinned(#[from] PinnedError),
    /// Releases and receipts.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A decision about a release changed nothing.
    #[error(transparent)]
    Settle(#[from] receipt::DecideError),
    /// What would be given out could not be recorded.
    #[error(transparent)]
    Audit(#[from] Unavailable),
    /// The ticket a transfer went by was revoked, or its maker's right ended, under it.
    #[error("the ticket was withdrawn under the transfer")]
    Withdrawn,
    /// The sender stopped before its content ended.
    #[error("the content was cut off after {arrived}")]
    Cut {
        /// What had come.
        arrived: ByteCount,
    },
    /// The content is not as long as was announced.
    #[error("{arrived} arrived where {announced} were announced")]
    WrongLength {
        /// What was announced.
        announced: ByteCount,
        /// What came.
        arrived: ByteCount,
    },
    /// The content is not what the sender said it would be.
    #[error("the content is {found}, not {claimed}")]
    WrongDigest {
        /// What the sender said.
        claimed: AttachmentId,
        /// What came.
        found: AttachmentId,
    },
}
