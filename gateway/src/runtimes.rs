//! The door of the runtimes.

mod line;
mod pods;
mod refused;
mod report;
mod send;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::time::timeout;
use yoi_line::Connection;
use yoi_wire::hub::{Refusal, RefusalReason, gateway_api};

use crate::Hub;
use crate::deliver::MAX_BODY;
use crate::identity::IdentityError;
use refused::Refused;

pub fn router(hub: Arc<Hub>) -> Router {
    Router::new()
        .route(gateway_api::LINE, get(line::open))
        .route(gateway_api::REPORT, post(report::take))
        .route(gateway_api::LIST_PODS, post(pods::list))
        .route(gateway_api::SEND, post(send::send))
        .fallback(async || {
            let refusal = Refusal { reason: RefusalReason::Invalid, message: "the gateway serves no such path".to_owned() };
            (StatusCode::NOT_FOUND, Json(refusal))
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(hub.clone(), identify))
        .with_state(hub)
}

/// Lets nobody in whose token does not belong to a current agent's Pod.
async fn identify(State(hub): State<Arc<Hub>>, mut request: Request, next: Next) -> Result<Response, Refused> {
    let guest = request.extensions().get::<Connection>().cloned();
    let caller = match hub.identities.of(yoi_line::bearer(request.headers())).await {
        Ok(caller) => caller,
        Err(error) => {
            // A runtime whose Pod the operator has not written down yet may ask again.
            if let (Some(guest), IdentityError::NoToken | IdentityError::Refused(_)) = (guest, &error) {
                guest.reject();
            }
            return Err(error.into());
        }
    };
    if let Some(guest) = guest {
        guest.authenticated_as(&caller.agent.uid);
    }
    let agent = caller.agent.name.clone();
    let answer = async {
        let _turn = hub.turns.wait(&caller.agent.uid).await;
        request.extensions_mut().insert(caller);
        next.run(request).await
    };
    let within = hub.settings.request_within;
    timeout(within, answer).await.map_err(|_| Refused {
        status: StatusCode::REQUEST_TIMEOUT,
        refusal: Refusal {
            reason: RefusalReason::Unreachable,
            message: format!("the request of {agent} was not done within {}", crate::seconds(within)),
        },
    })
}

impl From<IdentityError> for Refused {
    fn from(error: IdentityError) -> Self {
        let status = match &error {
            IdentityError::NoToken | IdentityError::Refused(_) => StatusCode::UNAUTHORIZED,
            IdentityError::NoAgent { .. } => StatusCode::FORBIDDEN,
            IdentityError::Review(_) | IdentityError::Lookup(_) | IdentityError::TimedOut(_) => {
                tracing::warn!(error = crate::chain(&error), "caller not judged");
                return Refused {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    refusal: Refusal { reason: RefusalReason::Unreachable, message: format!("{error}; try again") },
                };
            }
        };
        tracing::debug!(%error, "caller refused");
        Refused { status, refusal: Refusal { reason: RefusalReason::NotAnAgent, message: error.to_string() } }
    }
}
