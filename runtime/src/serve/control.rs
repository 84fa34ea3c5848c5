//! Requests of people to the agent, and what it has used.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use yoi_wire::control::{ControlAction, ControlReason, ControlRefusal, ControlRequest, ControlResponse, USER_HEADER};
use yoi_wire::hub::{MAX_MESSAGE_TEXT, RefusalReason};

use super::{AgentState, parts, refuse, too_long};

/// Answers 200 to every request that is one, refused or not; 400 to anything else.
pub(super) async fn control(
    State(api): State<AgentState>,
    headers: HeaderMap,
    request: Result<Json<serde_json::Value>, JsonRejection>,
) -> Response {
    let mut value = match request {
        Ok(Json(value)) => value,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => return too_long(None),
        Err(rejection) => return invalid(String::new(), rejection.body_text()),
    };
    let id = value["id"].as_str().unwrap_or_default().to_owned();
    let left_out = match parts::replace(&mut value) {
        Ok(left_out) => left_out,
        Err(message) => return invalid(id, message),
    };
    let request: ControlRequest = match serde_json::from_value(value) {
        Ok(request) => request,
        Err(error) => return invalid(id, format!("the request is not one that this version knows: {error}")),
    };
    let Some(user) = user_of(&headers) else {
        return invalid(id, "the request does not say who asks".to_owned());
    };
    if let ControlAction::Run { text } = &request.action
        && text.len() > MAX_MESSAGE_TEXT
    {
        return too_long(Some(text.len()));
    }
    let session = api.open_session.borrow().clone();
    let answered = match session {
        Some(session) => session.ask(user, request).await,
        None => None,
    };
    match answered {
        Some(mut response) => {
            if let Some(done) = &mut response.done {
                parts::warn(done, &left_out);
            }
            Json(response).into_response()
        }
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open"),
    }
}

/// The authenticated user name of the person who asks.
pub(super) fn user_of(headers: &HeaderMap) -> Option<String> {
    headers.get(USER_HEADER).and_then(|user| percent_decoded(user.as_bytes())).filter(|user| !user.is_empty())
}

fn invalid(id: String, message: String) -> Response {
    let refused = Some(ControlRefusal { reason: ControlReason::Invalid, message });
    (StatusCode::BAD_REQUEST, Json(ControlResponse { id, done: None, refused })).into_response()
}

/// The text whose non-ASCII bytes and `%` stand as `%XX`; `None` when it is no UTF-8.
fn percent_decoded(given: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(given.len());
    let mut rest = given;
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::percent_decoded;

    #[test]
    fn a_users_name_comes_back_from_the_header() {
        for (given, name) in [("jane", "jane"), ("j%C3%A9", "jé"), ("50%", "50%"), ("%zz", "%zz"), ("%25", "%")] {
            assert_eq!(percent_decoded(given.as_bytes()).as_deref(), Some(name));
        }
        assert_eq!(percent_decoded(b"%FF"), None);
    }
}
