//! Calls of the agent that wait for a person: the list, and the answers.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use yoi_wire::approval::{ApprovalRefusal, ApprovalRequest, WaitingCall, WaitingCalls};
use yoi_wire::conversation::MAIN;
use yoi_wire::hub::RefusalReason;

use super::control::user_of;
use super::{AgentState, refuse};

/// Answers with the calls that wait in any conversation.
pub(super) async fn waiting(State(api): State<AgentState>) -> Response {
    match calls(&api).await {
        Some(mut calls) => {
            calls.extend(api.conversations.waiting_calls().await);
            calls.sort_by(|a, b| a.since.cmp(&b.since));
            Json(WaitingCalls { calls }).into_response()
        }
        None => not_open(),
    }
}

/// Answers with the calls that wait in the conversation that `api` reaches.
pub(super) async fn waiting_in(api: &AgentState, name: &str) -> Response {
    let conversation = Some(name.to_owned()).filter(|name| name != MAIN);
    let of_it = |call| WaitingCall { conversation: conversation.clone(), ..call };
    match calls(api).await {
        Some(calls) => Json(WaitingCalls { calls: calls.into_iter().map(of_it).collect() }).into_response(),
        None => not_open(),
    }
}

async fn calls(api: &AgentState) -> Option<Vec<WaitingCall>> {
    let session = api.open_session.borrow().clone()?;
    session.waiting_calls().await
}

/// Takes the answer of a person. The answer that counts is in the log before it is told.
pub(super) async fn answer(
    State(api): State<AgentState>,
    headers: HeaderMap,
    request: Result<Json<ApprovalRequest>, JsonRejection>,
) -> Response {
    let request = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text()),
    };
    let Some(user) = user_of(&headers) else {
        return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, "the request does not say who asks");
    };
    let session = api.open_session.borrow().clone();
    let answered = match session {
        Some(session) => session.approve(user, request).await,
        None => None,
    };
    match answered {
        Some(Ok(response)) => Json(response).into_response(),
        Some(Err(ApprovalRefusal::Over(message))) => refuse(StatusCode::GONE, RefusalReason::Invalid, message),
        Some(Err(ApprovalRefusal::Unknown(message))) => refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, message),
        Some(Err(ApprovalRefusal::Invalid(message))) => refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, message),
        None => not_open(),
    }
}

fn not_open() -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open")
}
