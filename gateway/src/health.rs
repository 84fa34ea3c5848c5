//! Probes and metrics, in clear text, each on a port of its own: no client of the metrics can take the room of the kubelet's probes.
//!
//! `/healthz` is always ok: the process ends as soon as one of its tasks does.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::GatewayState;

pub fn probes(gateway: Arc<GatewayState>) -> Router {
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready)).with_state(gateway)
}

pub fn metrics(gateway: Arc<GatewayState>) -> Router {
    Router::new().route("/metrics", get(metrics_text)).with_state(gateway)
}

async fn ready(State(gateway): State<Arc<GatewayState>>) -> (StatusCode, String) {
    let unready_reasons = gateway.unready_reasons();
    if unready_reasons.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, unready_reasons.join("; "))
    }
}

async fn metrics_text(State(gateway): State<Arc<GatewayState>>) -> impl IntoResponse {
    let (waiting, longest) = gateway.lines.waiting_agents();
    gateway.metrics.agents_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    gateway.metrics.agents_waiting_seconds.set(i64::try_from(longest.as_secs()).unwrap_or(i64::MAX));
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], gateway.metrics.text())
}
