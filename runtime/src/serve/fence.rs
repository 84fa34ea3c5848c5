//! Paths of the tree that are lent: who could still write there is ended.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use yoi_wire::fence::FenceRequest;
use yoi_wire::hub::RefusalReason;

use super::{AgentState, ReadState, refuse};
use crate::fence::{fence, sentence};

/// The most paths of one request: those of a loan's rules.
const MAX_PATHS: usize = 64;
/// Why the notice stands in the log.
const HOLDERS_ENDED: &str = "HoldersEnded";

pub(super) async fn post(
    State((read, agent)): State<(ReadState, AgentState)>,
    request: Result<Json<FenceRequest>, JsonRejection>,
) -> Response {
    let request = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, rejection.body_text()),
    };
    if request.paths.is_empty() || request.paths.len() > MAX_PATHS {
        return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, format!("a loan has 1 to {MAX_PATHS} paths"));
    }
    let Some(tree) = read.tree else { return refuse(StatusCode::CONFLICT, RefusalReason::Invalid, "there is no tree") };
    let asked = request.clone();
    let response = match tokio::task::spawn_blocking(move || fence(&tree, &asked)).await {
        Ok(response) => response,
        Err(error) => {
            let message = format!("the look at the agent's processes has broken off: {error}");
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed, message);
        }
    };
    let (loan, ended, left) = (&request.loan, response.ended.len(), response.left.len());
    tracing::info!(loan, ended, left, fenced = response.fenced, refused = response.refused.is_some(), "paths that are lent are fenced");
    if !response.ended.is_empty() {
        let session = agent.open_session.borrow().clone();
        if let Some(session) = session {
            session.notice(HOLDERS_ENDED, sentence(&request, &response.ended)).await;
        }
    }
    Json(response).into_response()
}
