//! The request of a person to merge another agent's work into the tree.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use yoi_wire::hub::RefusalReason;

use super::bundle::check_idle;
use super::{AgentState, ReadState, refuse};

/// Merges only between runs: what a run is about to write is its own.
pub(super) async fn post_merge(State((read, agent)): State<(ReadState, AgentState)>, work: Body) -> Response {
    if let Err(response) = check_idle(&agent, "merged") {
        return *response;
    }
    if read.tree.is_none() {
        return refuse(StatusCode::NOT_FOUND, RefusalReason::NotGit, "the agent has no tree");
    }
    match agent.merger.merge(work.into_data_stream()).await {
        Ok(outcome) => Json(outcome).into_response(),
        Err(refusal) => {
            let status = match refusal.reason {
                RefusalReason::NotGit | RefusalReason::Invalid => StatusCode::CONFLICT,
                _ => StatusCode::BAD_GATEWAY,
            };
            refuse(status, refusal.reason, refusal.message)
        }
    }
}
