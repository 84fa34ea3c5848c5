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
use yoi_wire::hub::{Refusal, RefusalReason, asked};

use crate::Hub;
use crate::deliver::MAX_BODY;
use crate::identity::IdentityError;
use refused::Refused;

pub fn router(hub: Arc<Hub>) -> Router {
    Router::new()
        .route(asked::LINE, get(line::open))
        .route(asked::REPORT, post(report::take))
        .route(asked::LIST_PODS, post(pods::list))
        .route(asked::SEND, post(send::send))
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
    let caller = hub.identities.of(yoi_line::bearer(request.headers())).await?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
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
