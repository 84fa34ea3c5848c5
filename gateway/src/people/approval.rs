//! `yoipods/approval`: the calls of an agent that wait for a person, and the answers. The runtime answers, and the gateway says who asks.
//!
//! It has a right of its own: who may steer an agent need not be the one who says yes to what its policy wants asked.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use yoi_wire::approval::ApprovalRequest;
use yoi_wire::hub::{Refusal, runtime_api};

use super::ApiFailure;
use super::read::{WhenStopped, read_from_runtime};
use super::runtime_client::RuntimeClient;
use super::target::AgentTarget;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body;
use crate::front_proxy::User;
use crate::metrics::ControlLabels;

/// What the runtime says of the request itself.
pub(super) const PASSED_ON: [StatusCode; 4] = [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::GONE];

pub async fn waiting(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", "approval").await?;
    let body = read_from_runtime(&gateway, &record, target.runtime_path(runtime_api::APPROVAL)?, WhenStopped::Nobody).await?;
    Ok(json(body))
}

pub async fn answer(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "create", "approval").await?;
    let bad = |why: String| ApiFailure::new(StatusCode::BAD_REQUEST, why).about(&record.name.name);
    // The content type is not checked, because `kubectl create --raw` sends none.
    let body = body::read(body).await.map_err(|error| bad(yoi_wire::error_chain(&error)))?;
    let request: ApprovalRequest = serde_json::from_slice(&body)
        .map_err(|error| bad(format!("the body must be {{\"call\": NUMBER, \"approve\": BOOLEAN, \"always\"?, \"because\"?}}: {error}")))?;
    let path = target.runtime_path(runtime_api::APPROVAL)?;
    let ask = Ask {
        method: Method::POST,
        path,
        body,
        when_lost: "may have taken the answer all the same: answer again, the first one counts",
        wakes_for: None,
    };
    let answer = ask_runtime(&gateway, &user, &record, &ask).await;
    let (action, outcome) = (if request.approve { "approve" } else { "deny" }, if answer.is_ok() { "Done" } else { "NoAnswer" });
    gateway.metrics.control_requests.get_or_create(&ControlLabels { action, answer: outcome }).inc();
    let AgentRecord { name, run_generation: run, .. } = &*record;
    let ApprovalRequest { call, always, .. } = request;
    tracing::info!(target: "audit", person = user.name, object = %name, uid = name.uid, run, action, call, always, outcome, "approval");
    answer.map(|bytes| json(Body::from(bytes)))
}

/// The answer of the runtime, as it stands.
pub(super) fn json(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// What is asked of a runtime in the name of a person. It has its effect once, however often it is asked.
pub(super) struct Ask {
    pub method: Method,
    pub path: String,
    pub body: Bytes,
    /// When the answer was lost: that it may have been done, and what to do then.
    pub when_lost: &'static str,
    /// What an agent that rests is woken for; `None`: it is not.
    pub wakes_for: Option<String>,
}

pub(super) async fn ask_runtime(gateway: &GatewayState, user: &User, record: &AgentRecord, ask: &Ask) -> Result<Bytes, ApiFailure> {
    let client = RuntimeClient::new(gateway, user, record, ask.when_lost).waking(ask.wakes_for.clone());
    let response = client.send(&ask.method, &ask.path, &ask.body).await?;
    let status = response.status();
    let Some(answer) = client.read(response.into_body()).await else { return Err(client.lost("gave no answer that can be read")) };
    if status.is_success() {
        return Ok(answer);
    }
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    Err(match serde_json::from_slice::<Refusal>(&answer) {
        // What the runtime says of the call and of the request is the answer to the person, too.
        Ok(refusal) if PASSED_ON.contains(&status) => {
            ApiFailure::new(status, format!("YoiPod {namespace}/{name}: {}", refusal.message)).about(name)
        }
        _ => client.refused(status, &answer),
    })
}
