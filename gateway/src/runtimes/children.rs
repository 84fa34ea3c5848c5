//! `POST /v1/children/*`: what an agent asks of those that it has started, and to start one.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout_at};
use yoi_plan::children::not_a_child;
use yoi_wire::children::{
    ChildWords, DiffRequest, LoansRequest, LoansResponse, MAX_WAIT_SECONDS, MAX_WAITED, ReadRequest, SpawnRequest, SpawnResponse,
    StopRequest, StopResponse, WaitRequest, WaitResponse, WaitedChild, has_nothing_to_do,
};
use yoi_wire::entry::{AgentRef, ReadPosition};
use yoi_wire::hub::{Activity, DeliverRequest, MessageSender, Refusal, RefusalReason, SendRequest, SendResponse, TaskState, runtime_api};
use yoi_wire::people::DiffResponse;

use super::RefusalResponse;
use super::pods::state;
use super::refusal::read_json;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::child_words::{Words, is_token};
use crate::delivery::validate;
use crate::identity::AuthenticatedAgent;
use crate::people::{ReaderWait, WhenStopped, read_from_runtime};

/// The longest diff, in bytes: text and paths have limits of their own at the runtime.
const MAX_DIFF: usize = 6 << 20;

pub(super) type Gateway = State<Arc<GatewayState>>;
pub(super) type Answer<T> = Result<Json<T>, RefusalResponse>;

pub async fn spawn(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<SpawnResponse> {
    let request: SpawnRequest = read_json("a request for a child", body).await?;
    let outcome = gateway.children.spawn(&caller, &request).await;
    let reason = outcome.as_ref().err().map(|refusal| refusal.reason);
    tracing::info!(target: "audit", object = %caller.agent, uid = caller.agent.uid, refused = ?reason, "child asked for");
    Ok(Json(outcome?))
}

/// What the caller has lent. What its log has as back is forgotten.
pub async fn loans(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<LoansResponse> {
    let request: LoansRequest = read_json("a request for loans", body).await?;
    Ok(Json(gateway.children.loans(&caller, &request).await?))
}

pub async fn stop(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<StopResponse> {
    let StopRequest { name } = read_json("a request to stop a child", body).await?;
    let child = child(&gateway, &caller, &name).await?;
    Ok(Json(gateway.children.stop(&child).await?))
}

/// A child that has stopped or does not answer is no error: the answer says so, and the position is as it was.
pub async fn words(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<ChildWords> {
    let ReadRequest { name, after } = read_json("a request for a child's words", body).await?;
    let child = child(&gateway, &caller, &name).await?;
    // Another agent had the name.
    let after = after.filter(|after| after.uid == child.name.uid);
    let mut path = format!("{}?follow=false", runtime_api::LOG);
    if let Some(after) = &after {
        if !is_token(&after.token) {
            let message = "the position is none: read the child from its beginning".to_owned();
            return Err(Refusal { reason: RefusalReason::Invalid, message }.into());
        }
        path.push_str(&format!("&after={}", after.token));
    }
    // Before the log is read: who is idle by now has said nothing after what is read.
    let ChildState { state, why: unready } = ChildState::of(&gateway, &child);
    let words = match read_from_runtime(&gateway, &child, path, WhenStopped::Reader(ReaderWait::default())).await {
        Ok(log) => Words::read(log).await,
        Err(failure) => Words { broken: Some(failure.into_plain().1), ..Words::default() },
    };
    let Words { text, token, more, broken } = words;
    let position = token.map(|token| ReadPosition { agent: name, uid: child.name.uid.clone(), token }).or(after);
    Ok(Json(ChildWords { text, position, more, state, why: unready.or(broken) }))
}

pub async fn diff(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<DiffResponse> {
    let DiffRequest { name, since } = read_json("a request for a child's diff", body).await?;
    let child = child(&gateway, &caller, &name).await?;
    let path = format!("{}?since={}", runtime_api::DIFF, since.as_str());
    let unreachable = |message: String| RefusalResponse::from(Refusal { reason: RefusalReason::Unreachable, message });
    let body = read_from_runtime(&gateway, &child, path, WhenStopped::Reader(ReaderWait::default())).await;
    let body = body.map_err(|failure| unreachable(failure.into_plain().1))?;
    let diff =
        Limited::new(body, MAX_DIFF).collect().await.map_err(|error| unreachable(format!("the diff of {name} broke off: {error}")))?;
    let diff =
        serde_json::from_slice(&diff.to_bytes()).map_err(|error| unreachable(format!("the diff of {name} cannot be read: {error}")))?;
    Ok(Json(diff))
}

/// Only to an idle child, which is asked itself: what its status says of that is old.
pub async fn send(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<SendResponse> {
    let SendRequest { to, message_id, text, conversation: _ } = read_json("a message", body).await?;
    let from = MessageSender { agent: Some(caller.agent.clone()), person: None };
    let refused = |target: Option<&AgentRecord>, refusal: &Refusal| {
        gateway.delivery.audit(&from, &caller.agent.namespace, &to, target, &message_id, Err(refusal));
    };
    let child = child(&gateway, &caller, &to).await.inspect_err(|refusal| refused(None, refusal))?;
    validate(&message_id, &text).inspect_err(|invalid| refused(Some(&child), &Refusal::from(*invalid)))?;
    if !has_done_its_task(&child) {
        let message = format!("{to} has not done its task yet; nothing was sent");
        let refusal = Refusal { reason: RefusalReason::AlreadyRunning, message };
        refused(Some(&child), &refusal);
        return Err(refusal.into());
    }
    let message = DeliverRequest { message_id, from, text, only_when_idle: true, weak: false };
    Ok(Json(gateway.delivery.deliver(&child, runtime_api::INBOX, &message).await?))
}

/// A name that is no child's is refused at once; a child that is deleted meanwhile is missing.
pub async fn wait(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<WaitResponse> {
    let WaitRequest { names, all, seconds } = read_json("a request to wait for children", body).await?;
    if names.is_empty() || names.len() > MAX_WAITED {
        let message = format!("name 1 to {MAX_WAITED} children to wait for");
        return Err(Refusal { reason: RefusalReason::Invalid, message }.into());
    }
    let mut children = Vec::new();
    for name in &names {
        children.push(child(&gateway, &caller, name).await?.name.clone());
    }
    let end = Instant::now() + Duration::from_secs(seconds.min(MAX_WAIT_SECONDS));
    let (mut agents, mut lines) = (gateway.agents.version(), gateway.lines.version());
    loop {
        agents.mark_unchanged();
        lines.mark_unchanged();
        let children: Vec<WaitedChild> = children.iter().map(|child| waited(&gateway, child)).collect();
        let mut ended = children.iter().map(|child| has_nothing_to_do(&child.state));
        let met = if all { ended.all(|ended| ended) } else { ended.any(|ended| ended) };
        let changed = async {
            tokio::select! { _ = agents.changed() => {}, _ = lines.changed() => {} }
        };
        if met || timeout_at(end, changed).await.is_err() {
            return Ok(Json(WaitResponse { met, children }));
        }
    }
}

fn waited(gateway: &GatewayState, child: &AgentRef) -> WaitedChild {
    let Some(record) = gateway.agents.by_uid(&child.uid) else {
        return WaitedChild { name: child.name.clone(), state: "Missing".to_owned(), why: None };
    };
    let ChildState { state, why } = ChildState::of(gateway, &record);
    WaitedChild { name: child.name.clone(), state, why }
}

/// How a child is, as its parent is told.
pub(super) struct ChildState {
    pub state: String,
    /// Why it is not Ready, of one that is not live.
    pub why: Option<String>,
}

impl ChildState {
    pub fn of(gateway: &GatewayState, child: &AgentRecord) -> Self {
        let (live, state) = state(gateway, child);
        let why = child.unready.as_ref().map(|(_, message)| message.clone()).filter(|_| !live);
        // A runtime is idle for a moment before it takes up its task.
        let state = if state == Activity::Idle.as_str() && !has_done_its_task(child) { "Starting".to_owned() } else { state };
        ChildState { state, why }
    }
}

/// Every child has a task.
fn has_done_its_task(child: &AgentRecord) -> bool {
    let state = child.gateway_status.task.as_ref().and_then(|task| task.state.known());
    matches!(state, Some(TaskState::Succeeded | TaskState::Failed))
}

/// The child of this name, by the UID that it bears in `spec.spawnedBy`.
pub(super) async fn child(gateway: &GatewayState, caller: &AuthenticatedAgent, name: &str) -> Result<Arc<AgentRecord>, Refusal> {
    let find = || {
        let record = gateway.agents.get(&caller.agent.namespace, name)?;
        let is_child = record.spawned_by.as_ref().is_some_and(|by| by.uid == caller.agent.uid);
        is_child.then_some(record)
    };
    let found = match find() {
        None if gateway.children.look_again(&caller.agent, name).await => find(),
        found => found,
    };
    found.ok_or_else(|| not_a_child(name))
}
