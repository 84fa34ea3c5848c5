//! `GET /v1/push`: the commits that a pusher pushes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use yoi_wire::bundle::{BundleHead, InnerState};
use yoi_wire::push::{PushedQuery, head_line};

use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::commits::Commits;
use crate::identity::AuthenticatedAgent;
use crate::people::ReaderWait;

/// Without a name that the agent chose, because it comes into the YoiPod's status.
const UNPUBLISHED: &str = "the agent's commits name commits of submodules that none of the submodules' remotes has, as far as the agent's tree knows, so that \
     no clone could check them out: kubectl yoi push and pull name the submodules; let the agent push to their remotes first";

/// Whether what is to be pushed needs a commit of a submodule that only the agent has. A person's request names its commit, and was checked with it.
fn refuses(record: &AgentRecord, head: &BundleHead) -> bool {
    let is_head = record.push_under_way().is_none_or(|request| Some(&request.commit) == head.commit.as_ref());
    is_head && head.inner_repositories.iter().any(|inner| matches!(inner.state, InnerState::Unpublished { .. }))
}

/// Whether the branch is at the commit that is to be pushed.
fn is_there(record: &AgentRecord, head: &BundleHead, at: Option<&str>) -> bool {
    let wanted = record.push_under_way().map(|request| request.commit.as_str()).or(head.commit.as_deref());
    at.is_some() && at == wanted
}

/// Everything that the agent has committed: the Pod takes of it the commit that it was made for. So an agent that goes on meanwhile holds up nobody.
/// Nothing but the line about it when the branch is at that commit already.
pub async fn commits(
    State(gateway): State<Arc<GatewayState>>,
    Extension(caller): Extension<AuthenticatedAgent>,
    query: Result<Query<PushedQuery>, QueryRejection>,
) -> Response {
    // What is not understood has the whole bundle for its answer.
    let PushedQuery { at } = query.map(|Query(query)| query).unwrap_or_default();
    let Some(record) = gateway.agents.by_uid(&caller.agent.uid) else {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{} is gone, or not seen yet", caller.agent)).into_response();
    };
    match Commits::of_push(&gateway, &record, ReaderWait::default()).await {
        Ok(commits) if refuses(&record, &commits.head) => (StatusCode::CONFLICT, UNPUBLISHED.to_owned()).into_response(),
        Ok(commits) => match head_line(&commits.head) {
            Some(line) if is_there(&record, &commits.head, at.as_deref()) => Body::from(line).into_response(),
            Some(line) => commits.into_body(line).into_response(),
            None => (StatusCode::CONFLICT, "what the agent's runtime says of its commits is not sound".to_owned()).into_response(),
        },
        // A sentence alone, which a shell can read.
        Err(failure) => failure.into_plain().into_response(),
    }
}
