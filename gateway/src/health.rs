//! Probes and metrics, in clear text.
//!
//! `/healthz` is always ok: the process ends as soon as one of its tasks does.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::Gateway;

pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready)).route("/metrics", get(metrics)).with_state(gateway)
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> (StatusCode, String) {
    let unready_reasons = gateway.unready_reasons();
    if unready_reasons.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, unready_reasons.join("; "))
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], gateway.metrics.text())
}
