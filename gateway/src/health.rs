//! Probes and metrics, in clear text.
//!
//! Alive says no more than that the process is: it ends with the first of its parts that does.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::Hub;

pub fn router(hub: Arc<Hub>) -> Router {
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready)).route("/metrics", get(metrics)).with_state(hub)
}

async fn ready(State(hub): State<Arc<Hub>>) -> (StatusCode, String) {
    let lacks = hub.lacks();
    if lacks.is_empty() { (StatusCode::OK, "ok".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, lacks.join("; ")) }
}

async fn metrics(State(hub): State<Arc<Hub>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], hub.metrics.text())
}
