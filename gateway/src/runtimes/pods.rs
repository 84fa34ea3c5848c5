//! `POST /v1/pods`: the agents that the caller sees.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use yoi_crds::pod::DesiredState;
use yoi_plan::visibility::{Kin, visible_agents};
use yoi_wire::hub::{PodList, VisiblePod};

use super::RefusalResponse;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body;
use crate::identity::AuthenticatedAgent;

/// The body is empty, and is read all the same: HTTP/2 resets a request that was answered before its end, and some clients take the reset
/// for a failure.
pub async fn list(
    State(gateway): State<Arc<GatewayState>>,
    Extension(caller): Extension<AuthenticatedAgent>,
    nothing: Body,
) -> Result<Json<PodList>, RefusalResponse> {
    body::read(nothing).await.map_err(|error| RefusalResponse::of_body("a request for the list of agents", &error))?;
    let namespace = &caller.agent.namespace;
    let links = gateway.agents.peer_links_of(namespace, &caller.agent.name);
    let itself = gateway.agents.by_uid(&caller.agent.uid);
    let parent_uid = itself.as_ref().and_then(|itself| itself.spawned_by.as_ref()).map(|by| by.uid.as_str());
    let mut family = gateway.agents.children_of(&caller.agent.uid);
    family.extend(parent_uid.and_then(|uid| gateway.agents.by_uid(uid)));
    let family = family.iter().map(|record| Kin { agent: &record.name, parent_uid: record.spawned_by.as_ref().map(|by| by.uid.as_str()) });
    let pods = visible_agents(&caller.agent, parent_uid, links.iter().map(AsRef::as_ref), family).into_iter().map(|seen| {
        let record = gateway.agents.get(namespace, seen.name).filter(|record| seen.is(&record.name));
        let (live, state) = record.as_ref().map_or((false, "Missing".to_owned()), |record| state(&gateway, record));
        let session = record.as_ref().and_then(|record| record.gateway_status.session.as_ref()).map(|session| session.id.clone());
        let not_restorable = record.map_or_else(|| Some("it is gone".to_owned()), |record| record.not_restorable.clone());
        VisiblePod { name: seen.name.to_owned(), reasons: seen.reasons, live, state, session, not_restorable }
    });
    Ok(Json(PodList { pods: pods.collect() }))
}

/// Whether the agent is live, and its state: from `status.live`, or from the line to this replica.
pub(super) fn state(gateway: &GatewayState, record: &AgentRecord) -> (bool, String) {
    let line = gateway.lines.get(&record.name.uid).filter(|line| Some(&line.pod_uid) == record.pod_uid.as_ref());
    match (record.current_live(), line, record.desired) {
        (Some(live), _, _) => (true, live.activity.as_str().to_owned()),
        (None, Some(line), _) => (true, line.activity.as_str().to_owned()),
        (None, None, _) if record.may_be_woken => (false, "Resting".to_owned()),
        (None, None, DesiredState::Stopped) => (false, "Stopped".to_owned()),
        (None, None, DesiredState::Running | DesiredState::Suspended | DesiredState::Unknown) => (false, "Unreachable".to_owned()),
    }
}
