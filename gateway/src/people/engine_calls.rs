//! `yoipods/proxy/engine/...` by `POST`: calls of the engine that act. `tools/TOOL` runs a tool, and `events` gives a conversation an event. The runtime answers,
//! and the gateway says who asks.
//!
//! The API server asks for `create` of `yoipods/proxy` for all of them. Each kind needs a right of its own beside it, which the gateway asks for: `create` of
//! `yoipods/tools`, or of `yoipods/events`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use yoi_wire::engine_api::{ConversationQuery, EVENTS_RIGHT, MAX_CALL_BODY, RunTool, SUBRESOURCE, TOOLS_RIGHT, is_tool_name};
use yoi_wire::hub::{MAX_MESSAGE_BODY, Refusal, runtime_api};

use super::ApiFailure;
use super::approval::{PASSED_ON, json};
use super::read::bad_query;
use super::runtime_client::RuntimeClient;
use super::target::AgentTarget;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body::{self, BodyError};
use crate::front_proxy::User;
use crate::metrics::ControlLabels;

#[derive(Debug, Deserialize)]
pub struct ToolName {
    tool: String,
}

/// Only the id is looked at: the runtime says what it thinks of the rest.
#[derive(Debug, Deserialize)]
struct EventHead {
    id: uuid::Uuid,
}

type ConversationOf = Result<Query<ConversationQuery>, QueryRejection>;

/// Runs a tool. The answer may say that the call has not ended: whoever sends the same request again gets its end.
pub async fn run_tool(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Path(ToolName { tool }): Path<ToolName>,
    Extension(user): Extension<User>,
    of: ConversationOf,
    body: Body,
) -> Result<Response, ApiFailure> {
    let (record, target) = allowed(&gateway, &user, target, TOOLS_RIGHT, of).await?;
    if !is_tool_name(&tool) {
        let why = format!("{tool:?} is no name of a tool; kubectl yoi tools {} lists those that there are", record.name.name);
        return Err(bad(&record, why));
    }
    let body = read_body(&record, body, MAX_CALL_BODY).await?;
    let RunTool { id, .. } = serde_json::from_slice(&body).map_err(|error| {
        bad(&record, format!("the body must be {{\"id\": UUID, \"args\": {{...}}, \"waitSeconds\"?: NUMBER}}: {error}"))
    })?;
    let path = target.runtime_path(&format!("{}/{tool}", runtime_api::TOOLS))?;
    act(&gateway, &user, &record, Call { action: "runTool", what: &tool, id: &id, path: &path, body }).await
}

/// Gives a conversation an event.
pub async fn send_event(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    of: ConversationOf,
    body: Body,
) -> Result<Response, ApiFailure> {
    let (record, target) = allowed(&gateway, &user, target, EVENTS_RIGHT, of).await?;
    let body = read_body(&record, body, MAX_MESSAGE_BODY).await?;
    let EventHead { id } = serde_json::from_slice(&body)
        .map_err(|error| bad(&record, format!("the body must be {{\"id\": UUID, \"type\": TYPE, \"data\": {{...}}}}: {error}")))?;
    let path = target.runtime_path(runtime_api::EVENTS)?;
    act(&gateway, &user, &record, Call { action: "sendEvent", what: "", id: &id.to_string(), path: &path, body }).await
}

async fn allowed(
    gateway: &GatewayState,
    user: &User,
    target: AgentTarget,
    right: &'static str,
    of: ConversationOf,
) -> Result<(Arc<AgentRecord>, AgentTarget), ApiFailure> {
    target.resolve(gateway, user, "create", SUBRESOURCE).await?;
    let record = target.resolve(gateway, user, "create", right).await?;
    let Query(ConversationQuery { conversation }) = of.map_err(bad_query)?;
    Ok((record, AgentTarget { conversation, ..target }))
}

fn bad(record: &AgentRecord, why: String) -> ApiFailure {
    ApiFailure::new(StatusCode::BAD_REQUEST, why).about(&record.name.name)
}

async fn read_body(record: &AgentRecord, body: Body, most: usize) -> Result<Bytes, ApiFailure> {
    // The content type is not checked, because `kubectl create --raw` sends none.
    body::read_at_most(body, most).await.map_err(|error| match error {
        BodyError::TooLong => {
            let message = format!("the body has more than {most} bytes; put what is longer into a file of the agent's tree");
            ApiFailure::new(StatusCode::PAYLOAD_TOO_LARGE, message).about(&record.name.name)
        }
        BodyError::Broken(_) => bad(record, yoi_wire::error_chain(&error)),
    })
}

/// What is asked of the runtime. It has its effect once, however often it is asked.
struct Call<'a> {
    action: &'static str,
    what: &'a str,
    id: &'a str,
    path: &'a str,
    body: Bytes,
}

async fn act(gateway: &GatewayState, user: &User, record: &AgentRecord, call: Call<'_>) -> Result<Response, ApiFailure> {
    let Call { action, what, id, path, body } = call;
    let when_lost = "may have taken it all the same: ask again under the same id, and it is done once";
    let client = RuntimeClient::new(gateway, user, record, when_lost).waking(Some(format!("{action} of {}", user.name)));
    let answer = ask(&client, record, path, body).await;
    let outcome = if answer.is_ok() { "Done" } else { "NoAnswer" };
    gateway.metrics.control_requests.get_or_create(&ControlLabels { action, answer: outcome }).inc();
    let AgentRecord { name, run_generation: run, .. } = record;
    tracing::info!(target: "audit", person = user.name, object = %name, uid = name.uid, run, action, what, id, outcome, "engine call");
    answer.map(json)
}

/// The runtime's answer, of any length.
async fn ask(client: &RuntimeClient<'_>, record: &AgentRecord, path: &str, body: Bytes) -> Result<Body, ApiFailure> {
    let response = client.send(&Method::POST, path, &body).await?;
    let status = response.status();
    if status.is_success() {
        return Ok(Body::new(response.into_body()));
    }
    let answer = client.read(response.into_body()).await.unwrap_or_default();
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    Err(match serde_json::from_slice::<Refusal>(&answer) {
        // What the runtime says of the call is the answer to whoever asks, too.
        Ok(refusal) if PASSED_ON.contains(&status) => {
            ApiFailure::new(status, format!("YoiPod {namespace}/{name}: {}", refusal.message)).about(name)
        }
        _ => client.refused(status, &answer),
    })
}
