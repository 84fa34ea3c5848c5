//! The port of the runtimes.

mod children;
mod evidence;
mod line;
mod pods;
mod push;
mod refusal;
mod report;
mod restore;
mod send;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::time::timeout;
use yoi_line::Connection;
use yoi_wire::hub::{Refusal, RefusalReason, gateway_api};

use crate::GatewayState;
use crate::identity::{IdentityError, PodRole};
use refusal::RefusalResponse;

/// Requests on one connection of a Pod that runs no agent.
const TRIES_WITHOUT_AGENT: u32 = 3;

pub fn router(gateway: Arc<GatewayState>) -> Router {
    Router::new()
        .route(gateway_api::LINE, get(line::open))
        .route(gateway_api::REPORT, post(report::receive))
        .route(gateway_api::LIST_PODS, post(pods::list))
        .route(gateway_api::SEND, post(send::send))
        .route(gateway_api::RESTORE, post(restore::restore))
        .route(gateway_api::SPAWN, post(children::spawn))
        .route(gateway_api::READ_CHILD, post(children::words))
        .route(gateway_api::DIFF_CHILD, post(children::diff))
        .route(gateway_api::CHILD_LOG, post(evidence::log))
        .route(gateway_api::CHILD_STATE, post(evidence::state))
        .route(gateway_api::CHILD_WORK, post(evidence::work))
        .route(gateway_api::SEND_CHILD, post(children::send))
        .route(gateway_api::WAIT_CHILDREN, post(children::wait))
        .route(gateway_api::STOP_CHILD, post(children::stop))
        .route(gateway_api::LOANS, post(children::loans))
        .route(gateway_api::PUSH, get(push::commits))
        .fallback(async || {
            let refusal = Refusal { reason: RefusalReason::Invalid, message: "the gateway serves no such path".to_owned() };
            (StatusCode::NOT_FOUND, Json(refusal))
        })
        .layer(middleware::from_fn_with_state(gateway.clone(), authenticate))
        .with_state(gateway)
}

/// Refuses every client whose token is not bound to the current Pod of an agent.
async fn authenticate(State(gateway): State<Arc<GatewayState>>, mut request: Request, next: Next) -> Result<Response, RefusalResponse> {
    let connection = request.extensions().get::<Connection>().cloned();
    let caller = match gateway.authenticator.authenticate(yoi_line::bearer(request.headers())).await {
        Ok(caller) => caller,
        Err(error) => {
            match (connection, &error) {
                (Some(connection), IdentityError::NoToken | IdentityError::Refused(_)) => connection.reject(),
                // A runtime whose Pod is not in its YoiPod's status yet may try again on the same connection, a few times.
                (Some(connection), IdentityError::NoAgent { .. }) => connection.refuse(TRIES_WITHOUT_AGENT),
                (Some(_), IdentityError::Review(_) | IdentityError::Lookup(_) | IdentityError::TimedOut(_)) | (None, _) => {}
            }
            return Err(error.into());
        }
    };
    if let Some(connection) = connection {
        connection.set_client(&caller.agent.uid);
    }
    let path = request.uri().path();
    let refused = match caller.role {
        PodRole::Agent => (path == gateway_api::PUSH).then_some("runs it, and pushes nothing"),
        PodRole::Reader => (path != gateway_api::LINE).then_some("reads what it has done, and may not act for it"),
        PodRole::Pusher => (path != gateway_api::PUSH).then_some("pushes what it has committed, and may not act for it"),
    };
    if let Some(refused) = refused {
        let message = format!("this Pod of agent {} {refused}", caller.agent.name);
        return Err(RefusalResponse { status: StatusCode::FORBIDDEN, refusal: Refusal { reason: RefusalReason::NotAnAgent, message } });
    }
    let agent = caller.agent.name.clone();
    let answer = async {
        let _permit = gateway.concurrency.acquire(&caller.agent.uid).await;
        request.extensions_mut().insert(caller);
        next.run(request).await
    };
    let within = gateway.settings.request_timeout;
    timeout(within, answer).await.map_err(|_| RefusalResponse {
        status: StatusCode::REQUEST_TIMEOUT,
        refusal: Refusal {
            reason: RefusalReason::Unreachable,
            message: format!("the request of {agent} was not done within {}", crate::seconds(within)),
        },
    })
}

impl From<IdentityError> for RefusalResponse {
    fn from(error: IdentityError) -> Self {
        let status = match &error {
            IdentityError::NoToken | IdentityError::Refused(_) => StatusCode::UNAUTHORIZED,
            IdentityError::NoAgent { .. } => StatusCode::FORBIDDEN,
            IdentityError::Review(_) | IdentityError::Lookup(_) | IdentityError::TimedOut(_) => {
                tracing::warn!(error = yoi_wire::error_chain(&error), "caller not authenticated");
                return RefusalResponse {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    refusal: Refusal { reason: RefusalReason::Unreachable, message: format!("{error}; try again") },
                };
            }
        };
        tracing::debug!(%error, "caller refused");
        RefusalResponse { status, refusal: Refusal { reason: RefusalReason::NotAnAgent, message: error.to_string() } }
    }
}
