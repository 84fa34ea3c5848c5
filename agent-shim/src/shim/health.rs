//! /healthz, /readyz and /metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use yoi_workspace::ProviderKind;

use super::mounting::NotMounted;
use super::world::World;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deed {
    provider: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

pub struct Counts {
    registry: Registry,
    made: Family<Deed, Counter>,
    making: Histogram,
    published: Family<Outcome, Counter>,
    publishing: Histogram,
    workspaces: Gauge,
    volumes: Gauge,
}

impl Default for Counts {
    fn default() -> Self {
        let buckets = || Histogram::new(exponential_buckets(0.001, 3.0, 12));
        let mut counts = Counts {
            registry: Registry::with_prefix("yoi_shim"),
            made: Family::default(),
            making: buckets(),
            published: Family::default(),
            publishing: buckets(),
            workspaces: Gauge::default(),
            volumes: Gauge::default(),
        };
        let r = &mut counts.registry;
        r.register("trees_made", "Trees made on this node", counts.made.clone());
        r.register("tree_making_seconds", "Time to make a tree, in seconds", counts.making.clone());
        r.register("publishes", "NodePublishVolume calls of the kubelet", counts.published.clone());
        r.register("publish_seconds", "Time of a NodePublishVolume, waiting included, in seconds", counts.publishing.clone());
        r.register("workspaces", "AgentWorkspaces of this node", counts.workspaces.clone());
        r.register("published_volumes", "Volumes that Pods have mounted", counts.volumes.clone());
        counts
    }
}

impl Counts {
    pub fn made(&self, provider: ProviderKind, done: bool, took: Duration) {
        let outcome = if done { "made" } else { "failed" };
        self.made.get_or_create(&Deed { provider: provider.as_str(), outcome }).inc();
        self.making.observe(took.as_secs_f64());
    }

    pub fn published(&self, done: &Result<(), NotMounted>, took: Duration) {
        let outcome = match done {
            Ok(()) => "mounted",
            Err(NotMounted::Closed(_)) => "refused",
            Err(NotMounted::NotYet(_)) => "not_yet",
            Err(NotMounted::Failed(_) | NotMounted::Unclear(_)) => "failed",
        };
        self.published.get_or_create(&Outcome { outcome }).inc();
        self.publishing.observe(took.as_secs_f64());
    }
}

/// Serves until the world stops.
pub async fn serve(world: Arc<World>, address: SocketAddr) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(world.clone());
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, router).with_graceful_shutdown(world.stop.clone().cancelled_owned()).await
}

/// Serves /healthz and /readyz of a shim that waits for its data root, until it is dropped.
pub async fn serve_waiting(address: SocketAddr) -> std::io::Result<()> {
    let not_ready = || async { (StatusCode::SERVICE_UNAVAILABLE, "the data root is not opened yet") };
    let router = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(not_ready));
    axum::serve(tokio::net::TcpListener::bind(address).await?, router).await
}

async fn ready(State(world): State<Arc<World>>) -> impl IntoResponse {
    match (world.open.load(Ordering::Relaxed), world.cache.is_synced()) {
        (true, true) => (StatusCode::OK, "ok"),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "the CSI sockets are not open yet"),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "the workspaces of this node are not listed yet"),
    }
}

async fn metrics(State(world): State<Arc<World>>) -> impl IntoResponse {
    let counts = &world.counts;
    counts.workspaces.set(i64::try_from(world.cache.len()).unwrap_or(i64::MAX));
    counts.volumes.set(i64::try_from(world.publications.all().len()).unwrap_or(i64::MAX));
    let mut text = String::new();
    match encode(&mut text, &counts.registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], e.to_string()),
    }
}
