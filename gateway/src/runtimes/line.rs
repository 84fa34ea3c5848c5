//! `GET /v1/line`: the runtime dials, and serves on the connection after the upgrade.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use yoi_line::{KeepAlive, LineHandle, accept_upgrade};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{Refusal, RefusalReason};

use super::RefusalResponse;
use crate::GatewayState;
use crate::identity::{AuthenticatedAgent, PodRole};
use crate::notices::after_line;
use crate::open_lines::OpenLine;

pub async fn open(
    State(gateway): State<Arc<GatewayState>>,
    Extension(caller): Extension<AuthenticatedAgent>,
    request: Request,
) -> Result<Response, RefusalResponse> {
    if gateway.stopping.is_cancelled() {
        // The runtime has lines to the other replicas. It dials this address again only while DNS names it.
        let message = "this gateway is stopping".to_owned();
        return Err(Refusal { reason: RefusalReason::Unreachable, message }.into());
    }
    let (response, accepted) = accept_upgrade(request, KeepAlive::default()).map_err(|error| RefusalResponse {
        status: error.status(),
        refusal: Refusal { reason: RefusalReason::Invalid, message: error.to_string() },
    })?;
    tokio::spawn(async move {
        let AuthenticatedAgent { agent, pod_uid, run_generation: run, role } = caller;
        let handle = match accepted.await {
            Ok(handle) => handle,
            Err(error) => {
                let error = yoi_wire::error_chain(&error);
                return tracing::debug!(object = %agent, uid = agent.uid, run, pod_uid, error, "line not opened");
            }
        };
        if role == PodRole::Reader {
            return serve_reader(&gateway, agent, pod_uid, handle).await;
        }
        match gateway.lines.open(agent.clone(), pod_uid.clone(), run, handle.clone()) {
            Ok(line) => {
                tracing::info!(object = %agent, uid = agent.uid, run, pod_uid, "line open");
                gateway.metrics.lines.set(gateway.lines.count() as i64);
                if gateway.stopping.is_cancelled() {
                    // The stop came after the check above; the line may have missed `close_all`.
                    line.handle.close();
                }
                // Changes of the agent since the token review found no line to reconcile.
                gateway.liveness.reconcile(&line.agent.uid);
                let before = gateway.agents.by_uid(&agent.uid);
                gateway.liveness.clone().on_line_closed(line).await;
                after_line(&gateway, before, &pod_uid).await;
            }
            Err(error) => {
                tracing::info!(object = %agent, uid = agent.uid, run, pod_uid, %error, "line of a former Pod refused");
                handle.close();
            }
        }
    });
    Ok(response)
}

/// Takes the line of a reader until it ends. Its agent stays stopped.
async fn serve_reader(gateway: &GatewayState, agent: AgentRef, pod_uid: String, handle: LineHandle) {
    // All readers of an agent are of the same run, so that the newest line wins.
    let Ok(line) = gateway.readers.lines.open(agent, pod_uid, 0, handle) else { return };
    let OpenLine { agent, pod_uid, .. } = &line;
    tracing::info!(object = %agent, uid = agent.uid, pod_uid, "line of a reader open");
    if gateway.stopping.is_cancelled() {
        line.handle.close();
    }
    let end = line.handle.closed().await;
    gateway.readers.lines.remove(&line);
    tracing::info!(object = %agent, uid = agent.uid, pod_uid, ?end, "line of a reader ended");
}
