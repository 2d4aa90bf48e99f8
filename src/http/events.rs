use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{
    App,
    extract::{Caller, InSession, Json, Query, Retry},
    problem::Problem,
    sessions::in_bounds,
};
use crate::{
    approval::Policy,
    journal::{Appended, Event, EventType, JournalError, NewEvent, Once, Page},
    model::{ByteCount, Digest, Digester, LogGeneration, Seq, Timestamp},
    transfer::{TransferError, live::Standing},
};

/// Which events of the log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// The page ends before this seq; at the end of the log when absent.
    before_seq: Option<u64>,
    /// The numbering `beforeSeq` belongs to; refused when it is no longer the present one.
    log_generation: Option<u32>,
    /// The most events to return: 50 when absent, as many as a page may have with `maxMessages`.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// The most messages to return, each with what belongs to it: any number when absent.
    #[param(minimum = 1, maximum = 200)]
    max_messages: Option<u32>,
    /// Whether the last page says how the session stands at its end.
    #[serde(default)]
    projections: bool,
}

/// The most messages one page can be asked for.
const MOST_MESSAGES: u32 = 200;
/// How often a log that grows is read again for a page and what holds at its end.
const TRIES: usize = 16;

/// A contiguous run of events.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageBody {
    /// The numbering of the events' seqs.
    log_generation: u32,
    /// The events, oldest first.
    events: Vec<EventBody>,
    /// Whether there are older ones.
    has_more: bool,
    /// How the session stands after the last of the events, on the last page where it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    projections: Option<ProjectionsBody>,
}

/// How a session stands at one place of its log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProjectionsBody {
    /// The last event these follow from; -1 for an empty log.
    as_of_seq: i64,
    /// What follows.
    values: ProjectionValues,
}

/// What follows from a log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProjectionValues {
    /// Where the open turn starts; none between turns.
    open_turn_start_seq: Option<u64>,
    /// Whether approvals are put to people: `ask` or `never`.
    approval_policy: &'static str,
}

/// An event of a log.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventBody {
    /// Its position.
    seq: u64,
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// When it happened, in milliseconds since the epoch by its writer's clock.
    time: i64,
    /// Its payload, as it was written.
    #[schema(value_type = serde_json::Value)]
    data: Box<RawValue>,
    /// Whether a reader that does not know the type may pass over it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignorable: bool,
}

impl From<Event> for EventBody {
    fn from(event: Event) -> Self {
        Self {
            seq: event.seq.get(),
            kind: event.kind,
            time: event.time.as_millis(),
            data: event.data,
            ignorable: event.ignorable,
        }
    }
}

impl From<Page> for PageBody {
    fn from(page: Page) -> Self {
        Self {
            log_generation: page.generation.get(),
            events: page.events.into_iter().map(EventBody::from).collect(),
            has_more: page.has_more,
            projections: None,
        }
    }
}

/// Reads a page of the session's log, backwards from `beforeSeq` or from its end.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/events", tag = "sessions", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"), EventsQuery),
    responses((status = 200, description = "A page of events", body = PageBody)),
)]
pub(super) async fn page(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<EventsQuery>,
    InSession(session): InSession,
) -> Result<axum::Json<PageBody>, Problem> {
    let most = u32::try_from(app.parts.limits.journal.events_per_page).unwrap_or(u32::MAX);
    let messages = match query.max_messages {
        None => None,
        Some(_) => Some(in_bounds(query.max_messages, 1, MOST_MESSAGES)?),
    };
    let usual = if messages.is_some() {
        most
    } else {
        most.min(50)
    };
    let limit = usize::try_from(in_bounds(query.limit, usual, most)?).unwrap_or(usize::MAX);
    if query.projections && query.before_seq.is_some() {
        return Err(Problem::malformed(
            "`projections` go with the last page alone",
        ));
    }
    let generation = query.log_generation.map(LogGeneration::new);
    let before = query.before_seq.map(Seq::new);
    let (access, journal) = (app.parts.access.clone(), app.parts.journal.clone());
    let reading = move || {
        let grant = access.read_session(&caller.who, session)?;
        let read = || {
            let mut page = journal.page(grant.session(), generation, before, limit)?;
            if let Some(messages) = messages {
                page.keep_messages(usize::try_from(messages).unwrap_or(usize::MAX));
            }
            Ok::<_, TransferError>(page)
        };
        if !query.projections {
            return Ok::<_, TransferError>(PageBody::from(read()?));
        }
        for _ in 0..TRIES {
            let page = read()?;
            let next = page
                .events
                .last()
                .map_or(0, |event| event.seq.get().saturating_add(1));
            let standing = Standing::read(journal.as_ref(), grant.session())?;
            // What was read after the page holds at its end where nothing came in between.
            if journal.session(grant.session())?.next_seq.get() == next {
                return Ok(PageBody {
                    projections: Some(ProjectionsBody::of(&standing, next)),
                    ..PageBody::from(page)
                });
            }
        }
        Err(JournalError::Busy.into())
    };
    Ok(axum::Json(app.parts.pools.control.run(reading).await??))
}

impl ProjectionsBody {
    fn of(standing: &Standing, next: u64) -> Self {
        Self {
            as_of_seq: i64::try_from(next).unwrap_or(i64::MAX).saturating_sub(1),
            values: ProjectionValues {
                open_turn_start_seq: standing.turn.map(|turn| turn.start.get()),
                approval_policy: match standing.policy {
                    Policy::Ask => "ask",
                    Policy::Never => "never",
                },
            },
        }
    }
}

/// Events to be appended: all of them or none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct AppendForm {
    /// The seq the first of them must get; any when absent.
    expected_seq: Option<u64>,
    /// The events, in order.
    events: Vec<EventForm>,
}

/// An event to be appended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventForm {
    /// Its type: 1 to 128 letters, digits, `_`, `.`, `-` and `/`.
    #[serde(rename = "type")]
    kind: String,
    /// When it happened, in milliseconds since the epoch; now when absent.
    time: Option<i64>,
    /// Its payload, kept to the byte.
    #[schema(value_type = serde_json::Value)]
    data: Box<RawValue>,
    /// Whether a reader that does not know the type may pass over it.
    #[serde(default)]
    ignorable: bool,
}

impl AppendForm {
    /// A digest of all that is asked. A time that is left out is part of it as such: the repeat of a
    /// request is made at another time.
    fn asked(&self) -> Digest {
        let mut digester = Digester::default();
        let mut take = |bytes: &[u8]| {
            digester.update(&ByteCount::from(bytes.len()).get().to_be_bytes());
            digester.update(bytes);
        };
        take(format!("{:?}", self.expected_seq).as_bytes());
        for event in &self.events {
            take(event.kind.as_bytes());
            take(format!("{:?}", event.time).as_bytes());
            take(event.data.get().as_bytes());
            take(&[u8::from(event.ignorable)]);
        }
        digester.finish()
    }
}

/// What an append made durable.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppendedBody {
    /// The numbering of the seqs.
    log_generation: u32,
    /// The seq of the first event.
    first_seq: u64,
    /// The seq of the last event.
    last_seq: u64,
    /// The head of the session's hash chain after the last event: 64 hexadecimal digits.
    head: String,
}

impl From<Appended> for AppendedBody {
    fn from(appended: Appended) -> Self {
        Self {
            log_generation: appended.generation.get(),
            first_seq: appended.first.get(),
            last_seq: appended.last.get(),
            head: appended.head.to_string(),
        }
    }
}

/// Appends events to the session's log; answers once they are durable.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/events", tag = "sessions", security(("bearer" = [])),
    params(
        ("session" = String, Path, description = "The session's handle"),
        (
            "Idempotency-Key" = Option<String>, Header,
            description = "1 to 255 visible ASCII characters drawn by the client. A repeat under the \
                           same key within a day is answered as the first was and appends nothing",
        ),
    ),
    request_body = AppendForm,
    responses((status = 201, description = "Durable", body = AppendedBody)),
)]
pub(super) async fn append(
    State(app): State<App>,
    caller: Caller,
    InSession(session): InSession,
    Retry(key): Retry,
    Json(form): Json<AppendForm>,
) -> Result<Response, Problem> {
    let now = app.parts.clock.now();
    let once = key.map(|key| Once {
        who: caller.who.id,
        key,
        asked: form.asked(),
    });
    let events = form
        .events
        .into_iter()
        .enumerate()
        .map(|(index, event)| {
            let kind = EventType::parse(&event.kind)
                .map_err(|error| Problem::malformed(format!("events[{index}].type: {error}")))?;
            Ok(NewEvent {
                kind,
                time: event.time.map_or(now, Timestamp::from_millis),
                data: event.data,
                ignorable: event.ignorable,
            })
        })
        .collect::<Result<Vec<_>, Problem>>()?;
    let grant = app
        .granted(move |access| access.append_to_session(&caller.who, session))
        .await?;
    let expected = form.expected_seq.map(Seq::new);
    let appended = app
        .live
        .append(grant.session(), events, expected, once)
        .await?;
    Ok((
        StatusCode::CREATED,
        axum::Json(AppendedBody::from(appended)),
    )
        .into_response())
}
