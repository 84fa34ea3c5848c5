//! `GET /v1/push`: the commits that a pusher pushes.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use yoi_wire::push::head_line;

use crate::GatewayState;
use crate::commits::Commits;
use crate::identity::AuthenticatedAgent;
use crate::people::ReaderWait;

/// Everything that the agent has committed: the Pod takes of it the commit that it was made for. So an agent that goes on meanwhile holds up nobody.
pub async fn commits(State(gateway): State<Arc<GatewayState>>, Extension(caller): Extension<AuthenticatedAgent>) -> Response {
    let Some(record) = gateway.agents.by_uid(&caller.agent.uid) else {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{} is gone, or not seen yet", caller.agent)).into_response();
    };
    match Commits::of(&gateway, &record, ReaderWait::default()).await {
        Ok(commits) => match head_line(&commits.head) {
            Some(line) => commits.into_body(line).into_response(),
            None => (StatusCode::CONFLICT, "what the agent's runtime says of its commits is not sound".to_owned()).into_response(),
        },
        // A sentence alone, which a shell can read.
        Err(failure) => failure.into_plain().into_response(),
    }
}
