//! `yoipods/conversations`: the conversations of an agent. They are listed by `GET`; `POST` and `DELETE` of one of them start and stop it.
//!
//! What is asked of one conversation is the subresource that is asked of an agent, with the conversation's name after it: `yoipods/control/NAME`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use yoi_wire::hub::runtime_api;

use super::ApiFailure;
use super::approval::{Ask, ask_runtime, json};
use super::read::{ReaderWait, WhenStopped, bad_query, read_from_runtime};
use super::target::AgentTarget;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::front_proxy::User;
use crate::metrics::ControlLabels;

pub async fn list(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", "conversations").await?;
    let Query(wait) = wait.map_err(bad_query)?;
    let body = read_from_runtime(&gateway, &record, runtime_api::CONVERSATIONS.to_owned(), WhenStopped::Reader(wait)).await?;
    Ok(json(body))
}

pub async fn start(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiFailure> {
    change(&gateway, &target, &user, Method::POST).await
}

pub async fn stop(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiFailure> {
    change(&gateway, &target, &user, Method::DELETE).await
}

async fn change(gateway: &GatewayState, target: &AgentTarget, user: &User, method: Method) -> Result<Response, ApiFailure> {
    let (verb, action) = if method == Method::POST { ("create", "startConversation") } else { ("delete", "stopConversation") };
    let record = target.resolve(gateway, user, verb, "conversations").await?;
    let Some(conversation) = &target.conversation else {
        return Err(ApiFailure::new(StatusCode::BAD_REQUEST, "the path names no conversation").about(&record.name.name));
    };
    let path = target.conversation_path(conversation, "")?;
    let wakes_for = (method == Method::POST).then(|| format!("{}, who started conversation {conversation}", user.name));
    let when_lost = "may have done it all the same: look at the list and ask again";
    let ask = Ask { method, path, body: Bytes::new(), when_lost, wakes_for };
    let answer = ask_runtime(gateway, user, &record, &ask).await;
    let outcome = if answer.is_ok() { "Done" } else { "NoAnswer" };
    gateway.metrics.control_requests.get_or_create(&ControlLabels { action, answer: outcome }).inc();
    let AgentRecord { name, run_generation: run, .. } = &*record;
    tracing::info!(target: "audit", person = user.name, object = %name, uid = name.uid, run, action, conversation, outcome, "conversation");
    answer.map(|bytes| json(Body::from(bytes)))
}
