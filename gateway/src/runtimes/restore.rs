//! `POST /v1/restore`: starts a stopped child or peer again, on its session and its tree.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use tokio::time::{Instant, timeout_at};
use yoi_crds::reason;
use yoi_plan::restore::{check, not_visible};
use yoi_plan::visibility::{Kin, may_send, visible_agents, yoipeer_name};
use yoi_plan::yoipod::may_be_woken;
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{Refusal, RefusalReason, RestoreRequest, RestoreResponse, VisibilityReason};

use super::children::{Answer, Gateway};
use super::pods::state;
use super::refusal::read_json;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::identity::AuthenticatedAgent;
use crate::restorer::gone;

pub async fn restore(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<RestoreResponse> {
    let RestoreRequest { name } = read_json("a request to restore an agent", body).await?;
    let target = target(&gateway, &caller, &name).await?;
    let outcome = start(&gateway, &caller.agent, &target).await;
    let refused = outcome.as_ref().err().map(|refusal| reason_name(refusal.reason));
    tracing::info!(target: "audit", object = %target.name, uid = target.name.uid, agent = %caller.agent, refused, "restore asked for");
    outcome?;
    let state = wait_until_up(&gateway, &target.name).await?;
    Ok(Json(RestoreResponse { agent: target.name.clone(), state }))
}

/// The child or peer of this name. Every other name has one answer, whether or not an agent bears it.
async fn target(gateway: &GatewayState, caller: &AuthenticatedAgent, name: &str) -> Result<Arc<AgentRecord>, Refusal> {
    let found = match find(gateway, caller, name) {
        None if gateway.children.look_again(&caller.agent, name).await => find(gateway, caller, name),
        found => found,
    };
    found.unwrap_or_else(|| Err(not_visible(name)))
}

fn find(gateway: &GatewayState, caller: &AuthenticatedAgent, name: &str) -> Option<Result<Arc<AgentRecord>, Refusal>> {
    let namespace = &caller.agent.namespace;
    let links = gateway.agents.peer_links_of(namespace, &caller.agent.name);
    let children = gateway.agents.children_of(&caller.agent.uid);
    let kin = children.iter().map(|record| Kin { agent: &record.name, parent_uid: record.spawned_by.as_ref().map(|by| by.uid.as_str()) });
    let seen = visible_agents(&caller.agent, None, links.iter().map(AsRef::as_ref), kin);
    let seen = seen.into_iter().find(|seen| seen.name == name && !seen.reasons.contains(&VisibilityReason::Itself))?;
    let Some(record) = gateway.agents.get(namespace, name).filter(|record| seen.is(&record.name)) else { return Some(Err(gone(name))) };
    if seen.reasons.contains(&VisibilityReason::Child) {
        return Some(Ok(record));
    }
    let link = gateway.agents.peer_link(namespace, &yoipeer_name(&caller.agent.name, name));
    Some(may_send(&caller.agent, name, link.as_deref(), Some(&record.name.uid)).map(|()| record))
}

async fn start(gateway: &GatewayState, caller: &AgentRef, target: &AgentRecord) -> Result<(), Refusal> {
    let object = gateway.restorer.object(&target.name).await?;
    let (live, activity) = state(gateway, target);
    check(&object, live.then_some(activity.as_str()))?;
    if may_be_woken(&object) {
        return gateway.delivery.line_to(target, Some(&format!("agent {}, which restores it", caller.name))).await.map(drop);
    }
    gateway.restorer.start(&object).await
}

/// Waits for the line of its new Pod. One whose container has ended is not waited for, and one without a line in time is stopped again.
async fn wait_until_up(gateway: &GatewayState, agent: &AgentRef) -> Result<String, Refusal> {
    let within = gateway.settings.restore_wait;
    let end = Instant::now() + within;
    let not_up = |message: String| Refusal { reason: RefusalReason::NotUp, message };
    let (mut agents, mut lines) = (gateway.agents.version(), gateway.lines.version());
    loop {
        agents.mark_unchanged();
        lines.mark_unchanged();
        let record = gateway.agents.by_uid(&agent.uid).ok_or_else(|| gone(&agent.name))?;
        if let (true, state) = state(gateway, &record) {
            return Ok(state);
        }
        let unready = record.unready.as_ref();
        if let Some((_, message)) = unready.filter(|(reason, _)| *reason == reason::POD_NOT_RUNNING.as_str()) {
            return Err(not_up(format!("{} was started and did not come up: {message}", agent.name)));
        }
        let changed = async {
            tokio::select! { _ = agents.changed() => {}, _ = lines.changed() => {} }
        };
        if timeout_at(end, changed).await.is_err() {
            gateway.restorer.stop_again(agent).await;
            let why = unready.map(|(reason, message)| format!(" ({reason}: {message})")).unwrap_or_default();
            return Err(not_up(format!("{} had no line within {}{why}, and was stopped again", agent.name, crate::seconds(within))));
        }
    }
}

fn reason_name(reason: RefusalReason) -> String {
    serde_json::to_value(reason).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
