use std::{collections::BTreeSet, sync::Arc};

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    App,
    extract::{Caller, NoQuery},
    problem::Problem,
};
use crate::{
    access::{Principal, ProbeView},
    gate::{Gate, Probed, Standing},
    journal::JournalError,
    pinned::Resolver,
    transfer::{Parts, TransferError},
};

/// Sessions asked for at once, and the most that are asked for: whoever has more sees the roots of the
/// newest.
const PAGE: u32 = 200;
const PAGES: usize = 25;

/// Whether reads of workspace files are proven here, root by root.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProbeBody {
    /// What the configuration asks for: `metadata-only` or `when-proven`.
    mode: &'static str,
    /// How old a report may be, in seconds.
    max_age: u64,
    /// The roots the caller has to do with.
    roots: Vec<RootBody>,
}

/// How the gate stands for one root.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RootBody {
    /// The root's name; never a path.
    root: String,
    /// `open` or `closed`.
    state: &'static str,
    /// Why it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The setting or command that governs the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
    /// The resolvers that may be used, the stronger first.
    resolvers: Vec<&'static str>,
    /// When the report behind an open gate was made, in milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    proven_at: Option<i64>,
    /// From when on it is too old, in milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    /// The latest report whose seal fitted, one a resolver, whatever it says.
    probes: Vec<ResolverBody>,
}

/// What the prober found with one resolver.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResolverBody {
    /// Its name.
    resolver: String,
    /// `proven`, `broken` or `inconclusive`, judged now.
    conclusion: &'static str,
    /// The report, as `docs/fsprobe-report.schema.json` describes it.
    #[schema(value_type = Object)]
    report: Value,
}

/// Says whether reads of workspace files are proven here, with the report behind it.
#[utoipa::path(
    get, path = "/v1/probe", tag = "host", security(("bearer" = [])),
    responses((status = 200, description = "The gate now, and the latest report", body = ProbeBody)),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    _no_query: NoQuery,
) -> Result<axum::Json<ProbeBody>, Problem> {
    let parts = Arc::clone(&app.parts);
    let asking = move || {
        let own = match parts.access.probe_view(&caller.who)? {
            ProbeView::Every => None,
            ProbeView::Own => Some(own_roots(&parts, &caller.who)?),
        };
        let gate = &parts.gate;
        let probed = gate.probed();
        let is_shown = |name: &str| own.as_ref().is_none_or(|own| own.contains(name));
        let roots = parts.roots.held().map(crate::transfer::HeldRoot::name);
        Ok::<_, TransferError>(ProbeBody {
            mode: gate.mode().name(),
            max_age: gate.max_age().as_secs(),
            roots: roots
                .filter(|name| is_shown(name))
                .map(|name| RootBody::of(name, gate, probed.as_deref()))
                .collect(),
        })
    };
    Ok(axum::Json(app.parts.pools.control.run(asking).await??))
}

/// The roots in which a session of the caller lies.
fn own_roots(parts: &Parts, who: &Principal) -> Result<BTreeSet<String>, TransferError> {
    let mut own = BTreeSet::new();
    let mut after = None;
    for _ in 0..PAGES {
        let page = parts.access.sessions(who, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for handle in page {
            let session = match parts.journal.session(handle) {
                Ok(session) => session,
                // Gone since it was listed, or not to be read: then it shows nothing.
                Err(JournalError::NotFound | JournalError::Corrupt(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let root = session
                .cwd
                .as_deref()
                .and_then(|cwd| parts.roots.around(cwd));
            own.extend(root.map(str::to_owned));
        }
    }
    Ok(own)
}

impl RootBody {
    fn of(name: &str, gate: &Gate, probed: Option<&Probed>) -> Self {
        let found = probed.and_then(|probed| probed.root(name));
        let reports = found.map_or(&[][..], |found| &found.reports);
        let mut body = Self {
            root: name.to_owned(),
            state: "closed",
            reason: None,
            remedy: None,
            resolvers: Vec::new(),
            proven_at: None,
            until: None,
            probes: reports
                .iter()
                .map(|one| ResolverBody {
                    resolver: one.resolver.clone(),
                    conclusion: one.report.conclude().0.name(),
                    report: serde_json::to_value(&one.report).unwrap_or_default(),
                })
                .collect(),
        };
        match gate.standing(name) {
            Standing::Open {
                resolvers,
                made_at,
                until,
            } => {
                body.state = "open";
                body.resolvers = resolvers.into_iter().map(Resolver::name).collect();
                body.proven_at = Some(made_at.as_millis());
                body.until = Some(until.as_millis());
            }
            Standing::Closed(closed) => {
                body.reason = Some(closed.code());
                body.remedy = Some(closed.remedy());
            }
        }
        body
    }
}
