use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    App,
    extract::{Caller, InSession, Query},
    host::{Approval, Capabilities},
    permissions::PermissionBody,
    problem::Problem,
    sessions::last_seq,
};
use crate::{
    deliverable::{self, Capability, Item, Listing},
    gate::{Gate, GateClosed, Mode, Standing},
    journal::{Referenced, Window},
    model::{AttachmentKind, SessionHandle},
    store::{Objects, StoreError},
    transfer::{Parts, TransferError},
};

/// The session has no directory, or one in no root.
const NO_ROOT: &str = "no-root";

/// The most files and the most deliverables of one snapshot.
const MOST: u32 = 200;

/// Which part of the listings.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct SnapshotQuery {
    /// Files to pass over; none when absent.
    files_offset: Option<u64>,
    /// Deliverables to pass over; none when absent.
    deliverables_offset: Option<u64>,
}

/// What a session shows at one moment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotBody {
    /// The session's name in addresses.
    session: String,
    /// Its own id, as its host wrote it.
    id: String,
    /// When it was created, in milliseconds since the epoch.
    created_at: i64,
    /// The numbering of its seqs.
    log_generation: u32,
    /// The seq of its last event; -1 when it has none.
    last_seq: i64,
    /// The run of the service that made the snapshot.
    bridge_generation: u64,
    /// What can be asked of the service.
    capabilities: Capabilities,
    /// What the session runs under; null for one that is not ours to choose for.
    permission: Option<PermissionBody>,
    /// Questions that wait for an answer now; never any from the past.
    #[schema(value_type = Vec<Object>)]
    pending_interactions: Vec<serde_json::Value>,
    /// What can be downloaded and what was declared.
    display: Display,
}

/// What can be downloaded and what was declared.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Display {
    /// The attachments the log refers to: these can be downloaded.
    files: Vec<FileBody>,
    /// Whether there are more files after the last of these.
    files_have_more: bool,
    /// The paths the log declares: these are claims.
    deliverables: DeliverablesBody,
}

/// An attachment the session's log refers to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileBody {
    /// Its id.
    attachment_id: String,
    /// Its name, where it has one.
    name: Option<String>,
    /// Its length.
    bytes: u64,
    /// `file` or `image`.
    kind: &'static str,
    /// The inert type it is sent as.
    media_type: &'static str,
    /// The first event that refers to it.
    seq: u64,
    /// Where it can be downloaded.
    href: String,
    /// `available`; `lost`, `damaged` or `unavailable` when the store cannot give it.
    state: &'static str,
}

/// The paths the session's log declares.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeliverablesBody {
    /// `metadata-only` or `release`.
    mode: &'static str,
    /// Why the mode is `metadata-only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// How the gate stands for the root the session lies in.
    gate: GateBody,
    /// The declarations, in the log's order.
    items: Vec<DeliverableBody>,
    /// Whether there are more after the last of these.
    has_more: bool,
}

/// How the gate stands for one root.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GateBody {
    /// The root's name; none when the session lies in no root.
    root: Option<String>,
    /// `open` or `closed`.
    state: &'static str,
    /// Why it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// One declared path: a claim of an event, never a permission.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeliverableBody {
    /// The numbering of `seq`.
    log_generation: u32,
    /// The event that declares it.
    seq: u64,
    /// Its position in the event, from 0.
    index: u32,
    /// The declared path, escaped so that it is safe to show.
    path: String,
    /// What the presenter says of it; untrusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Why it could not be served even if contents were.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
}

/// Shows the session: what can be downloaded, what was declared, and where its log stands.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/snapshot", tag = "sessions", security(("bearer" = [])),
    params(("session" = String, Path, description = "The session's handle"), SnapshotQuery),
    responses((status = 200, description = "The session now", body = SnapshotBody)),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<SnapshotQuery>,
    InSession(handle): InSession,
) -> Result<axum::Json<SnapshotBody>, Problem> {
    let (access, journal) = (app.parts.access.clone(), app.parts.journal.clone());
    let live = Arc::clone(&app.live);
    let (session, owners, selected, mut referenced, mut declared) = app
        .parts
        .pools
        .control
        .run(move || {
            let grant = access.read_session(&caller.who, handle)?;
            let window = |offset: Option<u64>| Window {
                offset: offset.unwrap_or_default(),
                limit: MOST + 1,
            };
            let session = journal.session(grant.session())?;
            let files = journal.references(grant.session(), window(query.files_offset))?;
            let paths = journal.declared(grant.session(), window(query.deliverables_offset))?;
            let (owners, _host) = access.people(handle)?;
            let ours = access.is_native(&grant)?;
            let selected = ours.then(|| live.selected(handle)).transpose()?;
            Ok::<_, TransferError>((session, owners, selected, files, paths))
        })
        .await??;
    let most = usize::try_from(MOST).unwrap_or(usize::MAX);
    let files_have_more = referenced.len() > most;
    referenced.truncate(most);
    let deliverables_have_more = declared.len() > most;
    declared.truncate(most);
    let objects = app.parts.attachments.of(handle);
    let files = app
        .parts
        .pools
        .files
        .run(move || {
            referenced
                .iter()
                .map(|one| FileBody::of(&session_href(handle), one, objects.as_ref()))
                .collect::<Vec<_>>()
        })
        .await?;
    let cwd = session.cwd.as_deref();
    let root = cwd.and_then(|cwd| app.parts.roots.around(cwd).map(str::to_owned));
    let listing = deliverable::list(
        &declared,
        session.cwd.as_deref(),
        may_do(&app.parts, root.as_deref()),
    );
    let pending = app.live.pending(handle);
    Ok(axum::Json(SnapshotBody {
        session: session.handle.to_string(),
        id: session.id.to_string(),
        created_at: session.created_at.as_millis(),
        log_generation: session.generation.get(),
        last_seq: last_seq(&session),
        bridge_generation: app.parts.identity.bridge_generation,
        capabilities: Capabilities::with(&app.live, Approval::in_session(&app.live, &owners)),
        permission: selected.map(PermissionBody::from),
        pending_interactions: pending.iter().map(|one| app.live.shown(one)).collect(),
        display: Display {
            files,
            files_have_more,
            deliverables: DeliverablesBody {
                gate: GateBody::of(&app.parts.gate, root),
                ..DeliverablesBody::of(listing, deliverables_have_more)
            },
        },
    }))
}

impl FileBody {
    /// A reference with what the store says of it now. One object lost or damaged marks its own row
    /// and no other; a download verifies again.
    fn of(session: &str, one: &Referenced, objects: &dyn Objects) -> Self {
        let reference = &one.reference;
        let name = reference.name.as_ref().map(ToString::to_string);
        let mut href = format!("{session}/attachments/{}", reference.id);
        if let Some(name) = &name {
            href.push_str("?name=");
            href.extend(percent_encoding::utf8_percent_encode(
                name,
                percent_encoding::NON_ALPHANUMERIC,
            ));
        }
        Self {
            attachment_id: reference.id.to_string(),
            bytes: reference.bytes.get(),
            kind: match reference.kind {
                AttachmentKind::File => "file",
                AttachmentKind::Image { .. } => "image",
            },
            media_type: reference.kind.media_type().as_str(),
            seq: one.seq.get(),
            state: match objects.open(reference) {
                Ok(_opened) => "available",
                Err(StoreError::NotFound(_)) => "lost",
                Err(StoreError::NotAnObject(_) | StoreError::LengthMismatch { .. }) => "damaged",
                Err(error) => {
                    tracing::warn!(%error, "an attachment cannot be examined");
                    "unavailable"
                }
            },
            name,
            href,
        }
    }
}

impl DeliverablesBody {
    fn of(listing: Listing, has_more: bool) -> Self {
        Self {
            mode: listing.capability.mode(),
            reason: match listing.capability {
                Capability::MetadataOnly { reason } => Some(reason),
                Capability::Release => None,
            },
            gate: GateBody::default(),
            items: listing
                .items
                .into_iter()
                .map(DeliverableBody::from)
                .collect(),
            has_more,
        }
    }
}

impl From<Item> for DeliverableBody {
    fn from(item: Item) -> Self {
        Self {
            log_generation: item.generation.get(),
            seq: item.seq.get(),
            index: item.index,
            path: item.path,
            description: item.description,
            refused: item.refused.map(deliverable::Refused::code),
        }
    }
}

impl GateBody {
    fn of(gate: &Gate, root: Option<String>) -> Self {
        let closed = root.as_deref().map(|root| gate.standing(root));
        let (state, reason) = match closed {
            None => ("closed", Some(NO_ROOT)),
            Some(Standing::Open { .. }) => ("open", None),
            Some(Standing::Closed(closed)) => ("closed", Some(closed.code())),
        };
        Self {
            root,
            state,
            reason,
        }
    }
}

/// What may be done with the declared paths of a session that lies in `root`.
fn may_do(parts: &Parts, root: Option<&str>) -> Capability {
    let closed = |reason| Capability::MetadataOnly { reason };
    if parts.gate.mode() == Mode::MetadataOnly {
        return closed(GateClosed::NotEnabled.code());
    }
    let Some(root) = root else {
        return closed(NO_ROOT);
    };
    match parts.gate.proof(root) {
        Ok(_proof) => Capability::Release,
        Err(reason) => closed(reason.code()),
    }
}

fn session_href(session: SessionHandle) -> String {
    format!("/v1/sessions/{session}")
}
