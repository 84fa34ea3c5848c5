//! `/healthz`, `/readyz` and `/metrics`.
//!
//! `/healthz` reads the journal, on a thread like every other use of it. All else need not be asked: the process ends with the first of its
//! required tasks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::timeout;
use yoi_workspace::Uid;

use super::state::ShimState;
use yoi_wire::error_chain;

/// Less than the kubelet waits for the answer.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(8);

/// A shim that could not report its node for this long is not ready. It tries every minute, and every 5 seconds after a failure.
const UNREPORTED: Duration = Duration::from_secs(180);

/// Serves until [`ShimState::stop`] is cancelled.
pub async fn serve(state: Arc<ShimState>, listener: TcpListener) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(state.clone());
    axum::serve(listener, router).with_graceful_shutdown(state.stop.clone().cancelled_owned()).await
}

/// Serves `/healthz` and `/readyz` of a shim that waits for its data root, until the future is dropped.
pub async fn serve_waiting(listener: TcpListener) -> std::io::Result<()> {
    let not_ready = || async { (StatusCode::SERVICE_UNAVAILABLE, "the data root is not opened yet") };
    let router = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(not_ready));
    axum::serve(listener, router).await
}

/// A record that is never there is read like any other.
async fn healthy(State(state): State<Arc<ShimState>>) -> impl IntoResponse {
    match timeout(JOURNAL_TIMEOUT, state.record(Uid::from_bytes([0; 16]))).await {
        Ok(Ok(_)) => (StatusCode::OK, "ok".to_owned()),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, error_chain(&error)),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, format!("the journal was not read within {} s", JOURNAL_TIMEOUT.as_secs())),
    }
}

/// The operator takes a node whose shim is not ready for one that nothing is heard of.
async fn ready(State(state): State<Arc<ShimState>>) -> impl IntoResponse {
    let is_heard = state.reported_at().elapsed() < UNREPORTED;
    match (state.serving.load(Ordering::Relaxed), state.workspaces.is_synced(), is_heard) {
        (true, true, true) => (StatusCode::OK, "ok"),
        (false, _, _) => (StatusCode::SERVICE_UNAVAILABLE, "the CSI sockets are not open yet"),
        (true, false, _) => (StatusCode::SERVICE_UNAVAILABLE, "the workspaces of this node are not listed yet"),
        (true, true, false) => (StatusCode::SERVICE_UNAVAILABLE, "this node could not be reported for three minutes; the log says why"),
    }
}

async fn metrics(State(state): State<Arc<ShimState>>) -> impl IntoResponse {
    match state.metrics.encode(state.workspaces.count(), state.publish_records.all().len(), state.usages.exclusive_bytes()) {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], e.to_string()),
    }
}
