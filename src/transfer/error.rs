use thiserror::Error;

use crate::{
    access::AccessError,
    approval::{AskError, DecideError},
    journal::JournalError,
    model::{AttachmentId, ByteCount},
    permission::PermissionError,
    pool::PoolError,
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
