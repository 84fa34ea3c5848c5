//! `yoipods/push`: asks for a push of what an agent has committed. The operator has a Pod made for it, and says in the status what became of it.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use yoi_crds::pod::RequestedPush;
use yoi_wire::bundle::{InnerState, check_branch_name};
use yoi_wire::push::{PushRequest, PushResponse, default_branch, head_line, is_hash};

use super::read::{ReaderWait, bad_query};
use super::target::AgentTarget;
use super::{ApiFailure, bad_answer};
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body;
use crate::commits::Commits;
use crate::front_proxy::User;
use crate::status::StatusChange;

/// `POST`. Sent twice, the second one finds the first one's push under way.
pub async fn push(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
    body: Body,
) -> Result<Json<PushResponse>, ApiFailure> {
    let record = target.resolve(&gateway, &user, "create", "push").await?;
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let Query(wait) = wait.map_err(bad_query)?;
    let bad = |message: String| ApiFailure::new(StatusCode::BAD_REQUEST, format!("YoiPod {namespace}/{name}: {message}")).about(name);
    // The content type is not checked, because `kubectl create --raw` sends none.
    let body = body::read(body).await.map_err(|error| bad(yoi_wire::error_chain(&error)))?;
    let body: &[u8] = if body.is_empty() { b"{}" } else { &body };
    let PushRequest { branch, expected } =
        serde_json::from_slice(body).map_err(|error| bad(format!("the body must be {{\"branch\": ...}}: {error}")))?;
    let branch = branch.unwrap_or_else(|| default_branch(name));
    check_branch_name(&branch).map_err(bad)?;
    if let Some(expected) = expected.as_ref().filter(|expected| !is_hash(expected)) {
        return Err(bad(format!("`{}` is no full commit, of which a branch can be expected to be at", expected.escape_debug())));
    }
    let head = Commits::of(&gateway, &record, wait).await?.head;
    head_line(&head).ok_or_else(|| bad_answer(&record, "what it says of its commits is not sound"))?;
    if let Some(unpublished) = head.inner_repositories.iter().find(|inner| matches!(inner.state, InnerState::Unpublished { .. })) {
        let message = format!("YoiPod {namespace}/{name}: nothing was pushed: {}", unpublished.sentence());
        return Err(ApiFailure::new(StatusCode::CONFLICT, message).about(name));
    }
    let answer = |id| PushResponse {
        id,
        branch: branch.clone(),
        commit: head.commit.clone(),
        base: head.base.clone(),
        commits: head.commits,
        uncommitted: head.uncommitted.clone(),
        inner_repositories: head.inner_repositories.clone(),
    };
    let Some(commit) = head.commit.clone().filter(|_| head.commits > 0) else { return Ok(Json(answer(None))) };
    let request = RequestedPush {
        id: uuid::Uuid::now_v7().to_string(),
        branch: branch.clone(),
        commit: commit.clone(),
        expected: expected.clone(),
        requested_at: String::new(),
    };
    gateway.readers.writer.write(&record.name, &StatusChange::RequestPush(Box::new(request))).await.map_err(|error| {
        tracing::warn!(object = %record.name, error = yoi_wire::error_chain(&error), "push not asked for");
        ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, format!("YoiPod {namespace}/{name}: {error}; try again")).about(name)
    })?;
    // That of this request, or the one that was under way before.
    let current = gateway.agents.by_uid(&record.name.uid).and_then(|record| record.push_under_way().cloned());
    let Some(current) = current else {
        let message = format!("YoiPod {namespace}/{name}: its push ended meanwhile; see kubectl describe yoipod {name} -n {namespace}");
        return Err(ApiFailure::new(StatusCode::CONFLICT, message).about(name));
    };
    if (&current.branch, &current.commit, &current.expected) != (&branch, &commit, &expected) {
        return Err(other_push(&record, &current));
    }
    tracing::info!(target: "audit", person = user.name, object = %record.name, uid = record.name.uid, branch, commit, push = current.id, "push request");
    Ok(Json(answer(Some(current.id))))
}

fn other_push(record: &AgentRecord, current: &RequestedPush) -> ApiFailure {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let RequestedPush { branch, commit, requested_at, .. } = current;
    let message = format!(
        "YoiPod {namespace}/{name}: a push of commit {commit} to branch {branch} is under way since {requested_at}, and one goes at a time: wait for it"
    );
    ApiFailure::new(StatusCode::CONFLICT, message).about(name)
}
