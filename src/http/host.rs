use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use crate::{
    model::PrincipalId,
    transfer::live::{Executors, Live},
};

/// The version of the wire protocol under `/v1`.
const PROTOCOL_VERSION: u32 = 1;

/// Which service this is and what it can do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostBody {
    /// The program.
    name: &'static str,
    /// The program's version.
    version: &'static str,
    /// The version of the wire protocol under `/v1`.
    protocol_version: u32,
    /// This installation: the same after every restart, never reused.
    host_instance_id: String,
    /// This run: grows with every start.
    bridge_generation: u64,
    /// What can be asked of it.
    capabilities: Capabilities,
}

/// What the service can do; what it cannot comes with the reason.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Capabilities {
    /// Whether prompts are taken: never, the agent loop stays with the host program.
    composer: bool,
    /// Whether and how questions can be answered here.
    approval: Approval,
    /// Whether anything is run on the caller's machine: never.
    local_handoff: bool,
    /// Why not.
    local_handoff_details: LocalHandoff,
}

/// Whether and how questions can be answered here.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Approval {
    /// Whether a decision sent now would reach anything.
    interactive: bool,
    /// Why not: `off`, `nobody-present`, or `per-session` where no session is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl Approval {
    /// As things are in a session these people own.
    pub(super) fn in_session(live: &Live, owners: &[PrincipalId]) -> Self {
        let interactive = live.interactive(owners);
        Self {
            interactive,
            reason: match (interactive, live.is_on()) {
                (true, _) => None,
                (false, true) => Some("nobody-present"),
                (false, false) => Some("off"),
            },
        }
    }

    /// As far as it can be said without a session.
    fn in_general(live: &Live) -> Self {
        Self {
            interactive: false,
            reason: Some(if live.is_on() { "per-session" } else { "off" }),
        }
    }
}

/// Why nothing is handed to the caller's machine.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocalHandoff {
    /// `executor-unavailable`, or `simulation-only` where the protocol can be tried with a simulator.
    reason: &'static str,
    /// Whether anything would be run there: never.
    executes_locally: bool,
}

impl Capabilities {
    /// What this service can do, with what was found about approvals.
    pub(super) const fn with(live: &Live, approval: Approval) -> Self {
        Self {
            composer: false,
            approval,
            local_handoff: false,
            local_handoff_details: LocalHandoff::of(live),
        }
    }
}

impl LocalHandoff {
    /// As the service is set up.
    pub(super) const fn of(live: &Live) -> Self {
        Self {
            reason: match live.executors() {
                Executors::None => "executor-unavailable",
                Executors::Simulator => "simulation-only",
            },
            executes_locally: false,
        }
    }
}

/// Says which service this is and what it can do.
#[utoipa::path(
    get, path = "/v1/host", tag = "host",
    responses((status = 200, description = "This service", body = HostBody)),
)]
pub(super) async fn describe(State(app): State<App>) -> Json<HostBody> {
    let identity = &app.parts.identity;
    Json(HostBody {
        name: "holdfast",
        version: env!("CARGO_PKG_VERSION"),
        protocol_version: PROTOCOL_VERSION,
        host_instance_id: identity.instance.clone(),
        bridge_generation: identity.bridge_generation,
        capabilities: Capabilities::with(&app.live, Approval::in_general(&app.live)),
    })
}
