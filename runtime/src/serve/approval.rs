//! Calls of the agent that wait for a person: the list, and the answers.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use yoi_wire::approval::{ApprovalRefusal, ApprovalRequest, WaitingCalls};
use yoi_wire::hub::RefusalReason;

use super::control::user_of;
use super::{AgentState, refuse};

/// Answers with the calls that wait.
pub(super) async fn waiting(State(api): State<AgentState>) -> Response {
    let session = api.open_session.borrow().clone();
    let calls = match session {
        Some(session) => session.waiting_calls().await,
        None => None,
    };
    match calls {
        Some(calls) => Json(WaitingCalls { calls }).into_response(),
        None => not_open(),
    }
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
