//! What a refusal looks like: RFC 9457 problems with a stable code and fixed text.
//!
//! Promises: every error of the parts below has exactly one code, decided in one match without a
//! default arm (I15); the public text is a constant of the code, so no path, no text of the system
//! and nothing of another owner can reach it (I14). Details go to the log.

mod handoff;
mod page;
mod source;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

pub use page::page;

use crate::{
    access::AccessError,
    approval::{AskError, DecideError},
    control::ControlError,
    journal::JournalError,
    model::{ByteCount, RequestId},
    permission::PermissionError,
    pool::PoolError,
    spool::SpoolError,
    store::StoreError,
    stream::TooManyStreams,
    transfer::TransferError,
};

/// The stable name of a kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The request's syntax, or a value in it.
    Malformed,
    /// An answer is not the shape of one.
    MalformedDecision,
    /// An answer or an intent has a member it does not have.
    UnknownMember,
    /// No valid credential.
    Unauthenticated,
    /// The caller may see the object, and may not do this with it.
    Forbidden,
    /// A page of another origin made a browser send the request.
    ForeignOrigin,
    /// Absent, foreign, or never referenced: one answer on purpose.
    NotFound,
    /// No such interaction in this session, now or lately.
    InteractionUnknown,
    /// Referenced by the session, and gone from the store.
    ContentLost,
    /// The path does not have this method.
    MethodNotAllowed,
    /// A request did not arrive in time.
    Timeout,
    /// The host has a session of this id.
    SessionExists,
    /// The address was made for another numbering of the log.
    StaleGeneration,
    /// The log's next seq is not the expected one.
    SeqMismatch,
    /// The caller has as many tickets as it may have.
    TooManyTickets,
    /// The session has no open turn to ask in.
    NoOpenTurn,
    /// The same request is being done now.
    IdempotencyKeyInUse,
    /// An answer was made for another host.
    HostMismatch,
    /// The turn an interaction belongs to is over.
    StaleTurn,
    /// The agent that asked was replaced.
    AgentReplaced,
    /// The session asks nobody.
    PolicyNever,
    /// The ids of an answer do not belong together.
    CorrelationMismatch,
    /// Somebody answered first.
    AlreadyDecided,
    /// An interaction's lifetime is over.
    Expired,
    /// An interaction was taken back.
    Withdrawn,
    /// The session's files are names alone: nothing proves that reading them is safe.
    MetadataOnly,
    /// The declared file cannot be handed out; `class` says why.
    SourceRefused,
    /// There is no file of the declared path now.
    SourceMissing,
    /// The declared file was written to while it was copied.
    Changed,
    /// The host cannot make the kind of copy the root asks for.
    Unsupported,
    /// As many releases of the session wait as may.
    TooManyAsks,
    /// A precondition of the request does not hold.
    Precondition,
    /// A JSON body is larger than is read.
    TooLarge,
    /// A file is larger than one may be.
    OverLimit,
    /// The session's quota has no room.
    OverQuota,
    /// The request target is longer than is read.
    TargetTooLong,
    /// A request's head has more fields, or more bytes, than are read.
    HeadTooLarge,
    /// A body is not of a type that is read.
    UnsupportedMediaType,
    /// No requested range lies within the content.
    Range,
    /// The request was not meant for this host.
    Misdirected,
    /// An event refers to content that is not the session's.
    UnknownReference,
    /// A session names an owner that is nobody.
    UnknownOwner,
    /// An event breaks a bound.
    EventRefused,
    /// An idempotency key came before with another request.
    IdempotencyKeyReused,
    /// The decision is none of the choices.
    DecisionNotOffered,
    /// Nothing readable says what would be allowed.
    DetailsUnavailable,
    /// The agent that asks belongs to another agent.
    DelegatedCaller,
    /// Full access was chosen without a word about its risk.
    RiskNotAcknowledged,
    /// The content is not what its sender said.
    DigestMismatch,
    /// The content is not as long as its sender said.
    LengthMismatch,
    /// The stored content fails verification.
    Integrity,
    /// The log cannot be read, or takes nothing more.
    Journal,
    /// Something else failed.
    Internal,
    /// Nobody can answer here now.
    NotInteractive,
    /// More waits than is taken.
    Busy,
    /// A part is out of service.
    Unavailable,
    /// Nothing is given out that cannot be recorded.
    AuditUnavailable,
    /// The data filesystem is full.
    DiskFull,
    /// Nothing here takes what is handed over.
    ExecutorUnavailable,
    /// An executor is of a kind that is not taken.
    ExecutorKindRefused,
    /// An intent is not the one form there is.
    IntentInvalid,
    /// An intent's path is refused.
    PathRefused,
    /// An intent's read has no bound, or one that is none.
    BoundMissing,
    /// No such offer in this session, now or lately.
    OfferUnknown,
    /// An offer was used, declined, taken back, or overtaken.
    OfferRetired,
    /// An offer's time is over.
    OfferExpired,
    /// Something an offer is bound to is another by now.
    ScopeStale,
    /// The person said no.
    ConfirmationDeclined,
    /// Nobody could be asked to confirm.
    ConfirmationUnavailable,
    /// An offer was dispatched, and nobody knows what came of it.
    OutcomeUnknown,
    /// The handoff was ended.
    Disposed,
}

/// The fixed public text of a code.
#[derive(Clone, Copy, Debug)]
struct Text {
    status: StatusCode,
    title: &'static str,
    /// What it means and what to do next.
    detail: &'static str,
    /// Whether the same request may succeed later.
    retryable: bool,
}

/// Facts of the caller's own request or object that help it to do better: for those entitled to the
/// object alone. Everything else of an error stays in the log.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Which part of the request is meant, or what is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which of several files is meant, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The kind of refusal, where a code has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'static str>,
    /// The setting that governs the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<&'static str>,
    /// The bytes there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The most bytes allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The bytes in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// The log's next seq.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_seq: Option<u64>,
    /// The log's present generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_generation: Option<u32>,
    /// The service's present run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_generation: Option<u64>,
    /// What ended an interaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// The fact that is another by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
    /// What was decided first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_outcome: Option<&'static str>,
}

/// A problem on its way to the outer layer, which knows the request's id and writes the body.
#[derive(Clone, Debug)]
pub struct Problem(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: Code,
    facts: Facts,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// The body of a problem (`application/problem+json`); [`page()`] shows the same to a person.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemBody {
    /// The kind of problem, as a URI: `urn:holdfast:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words, the same for every problem of the kind.
    pub title: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// What it means and what to do next, the same for every problem of the kind.
    pub detail: &'static str,
    /// The occurrence: the request's id.
    pub instance: String,
    /// The kind as a word that does not change.
    pub code: Code,
    /// The request's id, to quote to the operator.
    pub request_id: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Facts about the caller's own request or object.
    #[serde(flatten)]
    pub facts: Facts,
}

impl Code {
    /// The code's word.
    #[must_use]
    pub fn as_str(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            _ => String::new(),
        }
    }

    /// The status of the code's answers.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.text().status
    }

    #[expect(clippy::too_many_lines, reason = "one table of texts, read as one")]
    const fn text(self) -> Text {
        use StatusCode as S;
        const fn no(status: StatusCode, title: &'static str, detail: &'static str) -> Text {
            Text {
                status,
                title,
                detail,
                retryable: false,
            }
        }
        const fn later(status: StatusCode, title: &'static str, detail: &'static str) -> Text {
            Text {
                status,
                title,
                detail,
                retryable: true,
            }
        }
        match self {
            Self::Malformed => no(
                S::BAD_REQUEST,
                "the request is malformed",
                "Correct what `reason` names; /openapi.json has the shape of every request.",
            ),
            Self::MalformedDecision => no(
                S::BAD_REQUEST,
                "not an answer",
                "Send the identity fields of the interaction with a decision, or with answers; nothing \
                 was consumed. /openapi.json has the shape.",
            ),
            Self::UnknownMember => no(
                S::BAD_REQUEST,
                "a member that cannot be there",
                "Leave out what `reason` names: answers and intents are closed, and no member beside \
                 theirs says or grants anything. Nothing was consumed.",
            ),
            Self::Unauthenticated => no(
                S::UNAUTHORIZED,
                "a valid token is needed",
                "Send `Authorization: Bearer` with a token that has neither ended nor been revoked; \
                 sign in again for a new one.",
            ),
            Self::Forbidden => no(
                S::FORBIDDEN,
                "not allowed for this caller",
                "You may see this, but your kind of principal may not do this with it; ask its host \
                 or the operator.",
            ),
            Self::ForeignOrigin => no(
                S::FORBIDDEN,
                "from a page of another origin",
                "A page may ask only the service it came from; behind a proxy, `public_url` must be the \
                 address people use. Nothing was done.",
            ),
            Self::NotFound => no(
                S::NOT_FOUND,
                "nothing here for you",
                "Nothing of this address exists, or it is not yours to see. Check the address and the \
                 token; an attachment can be downloaded once an event of its session refers to it, and \
                 a download link ends with its time, its uses or its maker's right: ask for another.",
            ),
            Self::InteractionUnknown => no(
                S::NOT_FOUND,
                "no such interaction",
                "Nothing of this id waits or lately waited in this session; read the session's \
                 interactions again.",
            ),
            Self::ContentLost => no(
                S::NOT_FOUND,
                "the content is lost",
                "The session refers to this content and the store no longer has it. Uploading the \
                 same bytes again restores it.",
            ),
            Self::MethodNotAllowed => no(
                S::METHOD_NOT_ALLOWED,
                "no such method here",
                "Use one of the methods in the `Allow` field.",
            ),
            Self::Timeout => later(
                S::REQUEST_TIMEOUT,
                "the request did not arrive in time",
                "Nothing of it was kept; send it again.",
            ),
            Self::SessionExists => no(
                S::CONFLICT,
                "a session of this id exists",
                "Use the existing session, or choose another id.",
            ),
            Self::StaleGeneration => no(
                S::CONFLICT,
                "made for another generation",
                "The address was made for another generation of the log, or the answer for another run \
                 of the service; read the session again and use its present `logGeneration` or \
                 `bridgeGeneration`.",
            ),
            Self::SeqMismatch => no(
                S::CONFLICT,
                "the log is elsewhere",
                "Another append came first; read the events from `nextSeq` on and decide again. \
                 Nothing was appended.",
            ),
            Self::TooManyTickets => no(
                S::CONFLICT,
                "too many tickets",
                "You have as many tickets as you may; the operator governs this by `setting`. Revoke \
                 one with DELETE /v1/tickets/{ticket}, or wait until one ends.",
            ),
            Self::MetadataOnly => no(
                S::CONFLICT,
                "names alone",
                "Files of this workspace are listed and not handed out, because nothing proves on \
                 this host that reading them is safe; `class` is the gate's reason and `reason` what \
                 the operator can do. Nothing was opened.",
            ),
            Self::SourceRefused => no(
                S::UNPROCESSABLE_ENTITY,
                "the file cannot be handed out",
                "`class` names the rule and, where an operator can change it, `setting` the switch. \
                 No byte of the file was given to anybody.",
            ),
            Self::SourceMissing => no(
                S::NOT_FOUND,
                "the file is not there now",
                "The session declared this path, and no file stands at it. Ask for it to be made \
                 again.",
            ),
            Self::Changed => later(
                S::CONFLICT,
                "the file is being written",
                "It changed while it was copied, so nothing was taken. Try again when its writer \
                 has finished.",
            ),
            Self::Unsupported => no(
                S::NOT_IMPLEMENTED,
                "no such copy on this host",
                "The root asks for a kind of copy its filesystem or kernel cannot make; the operator \
                 governs this by `setting`.",
            ),
            Self::TooManyAsks => later(
                S::CONFLICT,
                "too much to decide",
                "As many releases of the session wait for a decision as may; the operator governs \
                 this by `setting`. Decide one first.",
            ),
            Self::NoOpenTurn => no(
                S::CONFLICT,
                "no turn is open",
                "An approval belongs to a turn: append `turn/start` first. Nothing was appended.",
            ),
            Self::IdempotencyKeyInUse => later(
                S::CONFLICT,
                "the same request is being done",
                "The first request of this `Idempotency-Key` has no answer yet; ask again for it.",
            ),
            Self::HostMismatch => no(
                S::CONFLICT,
                "the answer is for another host",
                "Read the interaction from this host and answer that one. Nothing was consumed.",
            ),
            Self::StaleTurn => no(
                S::CONFLICT,
                "the turn is another",
                "The turn this belongs to is over; what is asked now stands in the session's \
                 interactions.",
            ),
            Self::AgentReplaced => no(
                S::CONFLICT,
                "the agent was replaced",
                "The agent that asked is gone, and nobody waits for this answer.",
            ),
            Self::PolicyNever => no(
                S::CONFLICT,
                "the session asks nobody",
                "Its approval policy became `never`, which refused this; choose another permission \
                 first if it is to be asked again.",
            ),
            Self::CorrelationMismatch => no(
                S::CONFLICT,
                "ids that do not belong together",
                "The ids of the answer are of different interactions; repeat those of one. Nothing was \
                 consumed.",
            ),
            Self::AlreadyDecided => no(
                S::GONE,
                "decided already",
                "Somebody answered first; `recordedOutcome` is what was decided.",
            ),
            Self::Expired => no(
                S::GONE,
                "its time is over",
                "Nobody answered within its lifetime; the host may ask again.",
            ),
            Self::Withdrawn => no(
                S::GONE,
                "taken back",
                "It was withdrawn before an answer came, for the reason in `cause`; the host may ask \
                 again.",
            ),
            Self::Precondition => no(
                S::PRECONDITION_FAILED,
                "a precondition does not hold",
                "The content is not the one your precondition names.",
            ),
            Self::TooLarge => no(
                S::PAYLOAD_TOO_LARGE,
                "the body is too large",
                "Split the request so that its body stays below `limitBytes`.",
            ),
            Self::OverLimit => no(
                S::PAYLOAD_TOO_LARGE,
                "the file is too large",
                "A file may have at most `limitBytes`; the operator governs this by `setting`. \
                 Nothing was kept.",
            ),
            Self::OverQuota => no(
                S::PAYLOAD_TOO_LARGE,
                "the session's quota has no room",
                "The session may hold at most `limitBytes` and holds `usedBytes`; the operator \
                 governs this by `setting`. Nothing was kept.",
            ),
            Self::TargetTooLong => no(
                S::URI_TOO_LONG,
                "the request target is too long",
                "Shorten the address; no address of this service is longer than 8 KiB.",
            ),
            Self::HeadTooLarge => no(
                S::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the request's head is too large",
                "Send fewer and shorter header fields; the operator governs how many and how long by \
                 `setting`.",
            ),
            Self::UnsupportedMediaType => no(
                S::UNSUPPORTED_MEDIA_TYPE,
                "the body is not JSON",
                "Send the body as `Content-Type: application/json`.",
            ),
            Self::Range => no(
                S::RANGE_NOT_SATISFIABLE,
                "no such range",
                "The content has fewer bytes than the range starts at; `Content-Range` has its \
                 length. A complete copy needs no more bytes.",
            ),
            Self::Misdirected => no(
                S::MISDIRECTED_REQUEST,
                "not the host that was asked for",
                "The `Host` field must name this service once: a loopback address, `localhost`, or \
                 the host of its `public_url`.",
            ),
            Self::UnknownReference => no(
                S::UNPROCESSABLE_ENTITY,
                "the session has no such content",
                "An event may refer to content only after it was uploaded to this session under the \
                 same name and length. Upload it here first; nothing was appended.",
            ),
            Self::UnknownOwner => no(
                S::UNPROCESSABLE_ENTITY,
                "no such owner",
                "Every owner must be the id of a user the operator has made; no session was created.",
            ),
            Self::EventRefused => no(
                S::UNPROCESSABLE_ENTITY,
                "an event breaks a rule",
                "Correct the event as `reason` says; nothing was appended.",
            ),
            Self::IdempotencyKeyReused => no(
                S::UNPROCESSABLE_ENTITY,
                "the key was used for another request",
                "An `Idempotency-Key` marks one request and its repeats, which must be the same; \
                 draw a new key for a new request. Nothing was changed.",
            ),
            Self::DecisionNotOffered => no(
                S::UNPROCESSABLE_ENTITY,
                "not one of the choices",
                "Send one of the interaction's `choices`. Nothing was consumed.",
            ),
            Self::DetailsUnavailable => no(
                S::UNPROCESSABLE_ENTITY,
                "nothing readable to allow",
                "What would be allowed cannot be shown whole, so it can only be rejected. Nothing was \
                 consumed.",
            ),
            Self::DelegatedCaller => no(
                S::UNPROCESSABLE_ENTITY,
                "the agent belongs to another agent",
                "Only an agent that nobody owns may ask a person; let its owner ask.",
            ),
            Self::RiskNotAcknowledged => no(
                S::UNPROCESSABLE_ENTITY,
                "the risk was not acknowledged",
                "Full access takes confinement away and asks nobody; send `acknowledgeRisk: true` once \
                 the person was told. Nothing was changed.",
            ),
            Self::DigestMismatch => no(
                S::UNPROCESSABLE_ENTITY,
                "the digest is another",
                "What arrived, or what is offered, has another SHA-256 than the request states; nothing \
                 was kept or done. Send it again, or correct the digest.",
            ),
            Self::LengthMismatch => no(
                S::BAD_REQUEST,
                "the content was cut off",
                "Fewer or more bytes arrived than were announced; nothing was kept. Send it again.",
            ),
            Self::Integrity => no(
                S::INTERNAL_SERVER_ERROR,
                "the stored content is damaged",
                "The bytes in the store are not the ones this address names, so none are sent. Tell \
                 the operator the request id; uploading the same bytes again heals it.",
            ),
            Self::Journal => no(
                S::INTERNAL_SERVER_ERROR,
                "the log cannot be used",
                "The session's log is damaged, or a flush failed and nothing more is taken until the \
                 service restarts. Tell the operator the request id.",
            ),
            Self::Internal => no(
                S::INTERNAL_SERVER_ERROR,
                "something failed here",
                "The failure is not yours. Tell the operator the request id.",
            ),
            Self::NotInteractive => later(
                S::SERVICE_UNAVAILABLE,
                "nobody can answer here now",
                "Interactions are off here (`interactions.enabled`), or nobody who may decide is \
                 present: open the event stream and acknowledge it.",
            ),
            Self::Busy => later(
                S::SERVICE_UNAVAILABLE,
                "too much at once",
                "Try again after the time in `Retry-After`.",
            ),
            Self::Unavailable => later(
                S::SERVICE_UNAVAILABLE,
                "out of service",
                "A part of the service takes nothing until the operator has looked at it. Tell the \
                 operator the request id.",
            ),
            Self::AuditUnavailable => later(
                S::SERVICE_UNAVAILABLE,
                "the audit trail takes no records",
                "Nothing is given out that cannot be recorded. Try again after the time in `Retry-After`; where that \
                 does not help, the operator looks at the log and at `holdfast audit verify`.",
            ),
            Self::DiskFull => later(
                S::INSUFFICIENT_STORAGE,
                "no space left",
                "The data filesystem is full or down to its reserve; nothing was kept. Try again once \
                 the operator has made room.",
            ),
            Self::ExecutorUnavailable => no(
                S::CONFLICT,
                "nothing here takes it",
                "No executor is connected to this service, and no member of a request makes one. Nothing was looked \
                 at and nothing was done.",
            ),
            Self::ExecutorKindRefused => no(
                S::UNPROCESSABLE_ENTITY,
                "not a simulation",
                "The only kind of executor that is taken is `simulation`.",
            ),
            Self::IntentInvalid => no(
                S::UNPROCESSABLE_ENTITY,
                "not an intent",
                "An intent is `version` 1, `kind` `read-file`, a relative `path` and `maxBytes`. Nothing was \
                 offered.",
            ),
            Self::PathRefused => no(
                S::UNPROCESSABLE_ENTITY,
                "the path is refused",
                "Send a relative path that needs no normalising: no `.` or `..`, no backslash, colon or hidden \
                 character. Nothing was offered.",
            ),
            Self::BoundMissing => no(
                S::UNPROCESSABLE_ENTITY,
                "the read has no bound",
                "Send `maxBytes` as a whole number from 1 to 1048576. Nothing was offered.",
            ),
            Self::OfferUnknown => no(
                S::NOT_FOUND,
                "no such offer",
                "Nothing of this number stands or lately stood in this session; read its handoff again.",
            ),
            Self::OfferRetired => no(
                S::GONE,
                "the offer is over",
                "It was used, declined, taken back or overtaken, or is being decided on; make another.",
            ),
            Self::OfferExpired => no(
                S::GONE,
                "the offer's time is over",
                "Make another and confirm it in time.",
            ),
            Self::ScopeStale => no(
                S::CONFLICT,
                "the offer was made under other facts",
                "`field` says which fact is another by now; make an offer under the present ones. Nothing was done.",
            ),
            Self::ConfirmationDeclined => no(
                S::CONFLICT,
                "not confirmed",
                "The person said no. Nothing was done.",
            ),
            Self::ConfirmationUnavailable => no(
                S::CONFLICT,
                "nobody could confirm",
                "Nobody who may decide is present, or nobody answered; open the event stream, acknowledge it, and \
                 make another offer. Nothing was done.",
            ),
            Self::OutcomeUnknown => no(
                S::CONFLICT,
                "nobody knows what came of it",
                "The offer was dispatched once and its receipt says that the outcome is unknown; it is never tried \
                 again.",
            ),
            Self::Disposed => later(
                S::SERVICE_UNAVAILABLE,
                "the service ends",
                "Make an offer once it has started again.",
            ),
        }
    }
}

impl Problem {
    /// A problem of this code, with nothing to add.
    #[must_use]
    pub fn new(code: Code) -> Self {
        let mut problem = Self(Box::new(Parts {
            code,
            facts: Facts::default(),
            fields: Vec::new(),
        }));
        if code == Code::Unauthenticated {
            let challenge = HeaderValue::from_static("Bearer realm=\"holdfast\"");
            problem = problem.with_field(header::WWW_AUTHENTICATE, challenge);
        }
        if code == Code::Busy || code == Code::AuditUnavailable {
            problem = problem.with_field(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        problem
    }

    /// A request that cannot be taken; `reason` names the part and may quote the request itself.
    #[must_use]
    pub fn malformed(reason: impl Into<String>) -> Self {
        Self::new(Code::Malformed).with_facts(Facts {
            reason: Some(bounded(reason.into())),
            ..Facts::default()
        })
    }

    /// The same problem with facts for the caller.
    #[must_use]
    pub fn with_facts(mut self, facts: Facts) -> Self {
        self.0.facts = facts;
        self
    }

    /// The same problem with a header field.
    #[must_use]
    pub fn with_field(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.fields.push((name, value));
        self
    }

    /// The problem's code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.0.code
    }

    /// The problem's body, for the request of this id.
    #[must_use]
    pub fn body(&self, request: RequestId) -> ProblemBody {
        let text = self.0.code.text();
        ProblemBody {
            kind: format!("urn:holdfast:problem:{}", self.0.code.as_str()),
            title: text.title,
            status: text.status.as_u16(),
            detail: text.detail,
            instance: request.to_string(),
            code: self.0.code,
            request_id: request.to_string(),
            retryable: text.retryable,
            facts: self.0.facts.clone(),
        }
    }
}

/// The longest reason that is sent: it may quote the caller's own text.
const MAX_REASON: usize = 240;

fn bounded(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(MAX_REASON) {
        reason.truncate(end);
    }
    reason
}

impl IntoResponse for Problem {
    /// The status and fields; the outer layer writes the body, because it knows the request's id.
    fn into_response(self) -> Response {
        let mut response = self.0.code.status().into_response();
        for (name, value) in &self.0.fields {
            response.headers_mut().append(name, value.clone());
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<TransferError> for Problem {
    /// The one place where an error of the parts becomes an answer.
    fn from(error: TransferError) -> Self {
        let problem = Self::of(&error);
        let code = problem.0.code;
        let status = code.status();
        if status.is_server_error() {
            tracing::error!(code = code.as_str(), error = %Chain(&error), "a request failed");
        } else {
            tracing::debug!(code = code.as_str(), error = %Chain(&error), "a request was refused");
        }
        problem
    }
}

impl Problem {
    fn of(error: &TransferError) -> Self {
        use TransferError as T;
        match error {
            T::Access(error) => Self::of_access(error),
            T::Journal(error) => Self::of_journal(error),
            T::Store(error) => Self::new(match error {
                StoreError::NotFound(_) => Code::ContentLost,
                StoreError::NotAnObject(_)
                | StoreError::LengthMismatch { .. }
                | StoreError::DigestMismatch(_)
                | StoreError::Changed(_) => Code::Integrity,
                StoreError::Cancelled => Code::LengthMismatch,
                StoreError::Full(_) => return Self::disk_full(),
                StoreError::Degraded => Code::Unavailable,
                StoreError::Resource(_) | StoreError::Busy(_) => Code::Busy,
                StoreError::OverLimit { limit } => return Self::over_limit(*limit),
                StoreError::Unsupported(_) | StoreError::Io { .. } => Code::Internal,
            }),
            T::Spool(error) => match error {
                SpoolError::OverLimit { limit } => Self::over_limit(*limit),
                SpoolError::Full(_) => Self::disk_full(),
                SpoolError::Resource(_) => Self::new(Code::Busy),
                SpoolError::Unsupported(_) | SpoolError::Io(_) => Self::new(Code::Internal),
            },
            T::Pool(PoolError::Busy) | T::Streams(TooManyStreams) => Self::new(Code::Busy),
            T::Pool(PoolError::Gone) => Self::new(Code::Internal),
            T::Outside(refused) => Self::of_outside(*refused),
            T::NoRoot => Self::no_root(),
            T::Gate { closed, .. } => Self::of_gate(*closed),
            T::NameDenied { pattern } => Self::name_denied(pattern),
            T::NobodyAsked => Self::new(Code::PolicyNever),
            T::TooManyEntries { most } => Self::new(Code::OverLimit).with_facts(Facts {
                reason: Some(format!("an archive has {most} entries at most")),
                ..Facts::default()
            }),
            T::TooLarge {
                size,
                limit,
                setting,
            } => Self::of_too_large(*limit, *size, setting),
            T::File { index, source } => {
                let mut problem = Self::of(source);
                problem.0.facts.index = Some(*index);
                problem
            }
            T::Pinned(error) => Self::of_pinned(error),
            T::Ledger(error) => Self::of_ledger(error),
            T::Settle(error) => Self::of_settle(error),
            T::Audit(_) => Self::new(Code::AuditUnavailable),
            T::Withdrawn => Self::new(Code::NotFound),
            T::Ask(error) => Self::of_ask(*error),
            T::Decide(error) => Self::of_decide(*error),
            T::Permission(error) => Self::of_permission(error),
            T::Handoff(error) => Self::of_handoff(*error),
            T::NotHanded => Self::malformed("`lastEventId` is no frame this stream was handed"),
            T::Unaudited => Self::new(Code::Journal),
            T::Cut { .. } | T::WrongLength { .. } => Self::new(Code::LengthMismatch),
            T::WrongDigest { .. } => Self::new(Code::DigestMismatch),
        }
    }

    fn of_ask(error: AskError) -> Self {
        match error {
            AskError::NoOpenTurn => Self::new(Code::NoOpenTurn),
            AskError::DelegatedCaller => Self::new(Code::DelegatedCaller),
            AskError::Refused(reason) => Self::malformed(reason),
            AskError::Full => Self::new(Code::Busy),
        }
    }

    fn of_permission(error: &PermissionError) -> Self {
        match error {
            PermissionError::Unknown => Self::malformed("`value` is none of the options"),
            PermissionError::RiskNotAcknowledged => Self::new(Code::RiskNotAcknowledged),
            PermissionError::OtherRevision => Self::new(Code::Precondition),
            PermissionError::Control(error) => Self::of_control(error),
            PermissionError::Journal(error) => Self::of_journal(error),
        }
    }

    /// One code for each row: they must stay distinguishable.
    fn of_decide(error: DecideError) -> Self {
        let with = |code, facts| Self::new(code).with_facts(facts);
        match error {
            DecideError::Unknown | DecideError::ForeignSession => {
                Self::new(Code::InteractionUnknown)
            }
            DecideError::AlreadyDecided { recorded } => with(
                Code::AlreadyDecided,
                Facts {
                    recorded_outcome: Some(recorded.as_str()),
                    ..Facts::default()
                },
            ),
            DecideError::Expired => Self::new(Code::Expired),
            DecideError::Withdrawn { cause } => with(
                Code::Withdrawn,
                Facts {
                    cause: Some(cause.as_str()),
                    ..Facts::default()
                },
            ),
            DecideError::StaleGeneration => Self::new(Code::StaleGeneration),
            DecideError::HostMismatch => Self::new(Code::HostMismatch),
            DecideError::StaleTurn => Self::new(Code::StaleTurn),
            DecideError::AgentReplaced => Self::new(Code::AgentReplaced),
            DecideError::PolicyNever => Self::new(Code::PolicyNever),
            DecideError::Correlation => Self::new(Code::CorrelationMismatch),
            DecideError::NotOffered => Self::new(Code::DecisionNotOffered),
            DecideError::DetailsUnavailable => Self::new(Code::DetailsUnavailable),
            DecideError::NotInteractive => Self::new(Code::NotInteractive),
            DecideError::BadAnswer(reason) => with(
                Code::MalformedDecision,
                Facts {
                    reason: Some(reason.to_owned()),
                    ..Facts::default()
                },
            ),
        }
    }

    fn over_limit(limit: ByteCount) -> Self {
        Self::new(Code::OverLimit).with_facts(Facts {
            limit_bytes: Some(limit.get()),
            setting: Some("limits.file"),
            ..Facts::default()
        })
    }

    fn disk_full() -> Self {
        Self::new(Code::DiskFull).with_facts(Facts {
            setting: Some("limits.free_reserve"),
            ..Facts::default()
        })
    }

    fn of_control(error: &ControlError) -> Self {
        Self::new(match error {
            ControlError::Busy | ControlError::Undone => Code::Busy,
            ControlError::Full => Code::DiskFull,
            ControlError::NotDurable | ControlError::ReadOnly(_) => Code::Unavailable,
            ControlError::Damaged(_) | ControlError::Newer { .. } | ControlError::Corrupt(_) => {
                Code::Journal
            }
            ControlError::Panicked | ControlError::Sql { .. } | ControlError::Io { .. } => {
                Code::Internal
            }
        })
    }

    fn of_access(error: &AccessError) -> Self {
        match error {
            AccessError::Unauthenticated => Self::new(Code::Unauthenticated),
            AccessError::Hidden => Self::new(Code::NotFound),
            AccessError::Denied => Self::new(Code::Forbidden),
            AccessError::TooManyTickets { most } => {
                Self::new(Code::TooManyTickets).with_facts(Facts {
                    reason: Some(format!("{most} tickets are kept for one principal")),
                    setting: Some("limits.tickets_per_principal"),
                    ..Facts::default()
                })
            }
            AccessError::UnknownOwner => Self::new(Code::UnknownOwner),
            AccessError::Refused(reason) => Self::malformed(*reason),
            AccessError::Journal(error) => Self::of_journal(error),
            AccessError::Unavailable(error) => Self::of_control(error),
            AccessError::NoEntropy(_) => Self::new(Code::Internal),
        }
    }

    fn of_journal(error: &JournalError) -> Self {
        match error {
            JournalError::NotFound => Self::new(Code::NotFound),
            JournalError::Exists => Self::new(Code::SessionExists),
            JournalError::StaleGeneration { present, .. } => Self::new(Code::StaleGeneration)
                .with_facts(Facts {
                    log_generation: Some(present.get()),
                    ..Facts::default()
                }),
            JournalError::SeqMismatch { present, .. } => {
                Self::new(Code::SeqMismatch).with_facts(Facts {
                    next_seq: Some(present.get()),
                    ..Facts::default()
                })
            }
            JournalError::UnknownReference(_) => Self::new(Code::UnknownReference),
            JournalError::KeyReused => Self::new(Code::IdempotencyKeyReused),
            JournalError::Refused(reason) => Self::new(Code::EventRefused).with_facts(Facts {
                reason: Some(bounded(reason.clone())),
                ..Facts::default()
            }),
            JournalError::OverQuota { used, limit, .. } => {
                Self::new(Code::OverQuota).with_facts(Facts {
                    limit_bytes: Some(limit.get()),
                    used_bytes: Some(used.get()),
                    setting: Some("limits.session_bytes"),
                    ..Facts::default()
                })
            }
            // Says which row, and what is wrong with it; only those who may read the log get here.
            JournalError::Corrupt(reason) => Self::new(Code::Journal).with_facts(Facts {
                reason: Some(bounded(reason.clone())),
                ..Facts::default()
            }),
            JournalError::NotDurable => Self::new(Code::Journal),
            JournalError::Full => Self::new(Code::DiskFull),
            JournalError::Busy => Self::new(Code::Busy),
            JournalError::Io { .. } => Self::new(Code::Internal),
        }
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        TransferError::Access(error).into()
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        TransferError::Journal(error).into()
    }
}

impl From<PoolError> for Problem {
    fn from(error: PoolError) -> Self {
        TransferError::Pool(error).into()
    }
}

/// An error and its causes in one line, for the log.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
