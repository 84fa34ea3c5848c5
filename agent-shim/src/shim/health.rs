//! /healthz, /readyz and /metrics; and the tasks without which the process is not alive.
//!
//! /healthz says no more than that the process is: it ends with the first of its tasks that does.

use std::collections::HashMap;
use std::future::Future;
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
use tokio::net::TcpListener;
use tokio::task::{Id, JoinSet};
use yoi_workspace::ProviderKind;

use super::publishing::PublishFailure;
use super::state::ShimState;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TreeLabels {
    provider: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PublishLabels {
    outcome: &'static str,
}

pub struct ShimMetrics {
    registry: Registry,
    made: Family<TreeLabels, Counter>,
    making: Histogram,
    published: Family<PublishLabels, Counter>,
    publishing: Histogram,
    workspaces: Gauge,
    volumes: Gauge,
}

impl Default for ShimMetrics {
    fn default() -> Self {
        let buckets = || Histogram::new(exponential_buckets(0.001, 3.0, 12));
        let mut metrics = ShimMetrics {
            registry: Registry::with_prefix("yoi_shim"),
            made: Family::default(),
            making: buckets(),
            published: Family::default(),
            publishing: buckets(),
            workspaces: Gauge::default(),
            volumes: Gauge::default(),
        };
        let r = &mut metrics.registry;
        r.register("trees_made", "Trees made on this node", metrics.made.clone());
        r.register("tree_making_seconds", "Time to make a tree, in seconds", metrics.making.clone());
        r.register("publishes", "NodePublishVolume calls of the kubelet", metrics.published.clone());
        r.register("publish_seconds", "Time of a NodePublishVolume, waiting included, in seconds", metrics.publishing.clone());
        r.register("workspaces", "AgentWorkspaces of this node", metrics.workspaces.clone());
        r.register("published_volumes", "Volumes that Pods have mounted", metrics.volumes.clone());
        metrics
    }
}

impl ShimMetrics {
    pub fn made(&self, provider: ProviderKind, done: bool, took: Duration) {
        let outcome = if done { "made" } else { "failed" };
        self.made.get_or_create(&TreeLabels { provider: provider.as_str(), outcome }).inc();
        self.making.observe(took.as_secs_f64());
    }

    pub fn published(&self, done: &Result<(), PublishFailure>, took: Duration) {
        let outcome = match done {
            Ok(()) => "mounted",
            Err(PublishFailure::Denied(_)) => "refused",
            Err(PublishFailure::NotYet(_)) => "not_yet",
            Err(PublishFailure::Failed(_) | PublishFailure::Unclear(_)) => "failed",
        };
        self.published.get_or_create(&PublishLabels { outcome }).inc();
        self.publishing.observe(took.as_secs_f64());
    }
}

/// The process ends rather than live on with a part that does not work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to go on: {part} ended{}", if *panicked { " by a panic" } else { "" })]
pub struct TaskEnded {
    part: &'static str,
    panicked: bool,
}

/// Tasks that live until the state stops, by name.
#[derive(Default)]
pub struct RequiredTasks {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl RequiredTasks {
    pub fn spawn(&mut self, part: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, part);
    }

    /// The first part that ends, although none should yet.
    pub async fn ended(&mut self) -> TaskEnded {
        let (id, panicked) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, false),
            Some(Err(error)) => (error.id(), error.is_panic()),
            None => return TaskEnded { part: "everything", panicked: false },
        };
        TaskEnded { part: self.names.get(&id).copied().unwrap_or("a task"), panicked }
    }

    /// Until all have ended, as they do when the state has stopped.
    pub async fn rest(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Serves until the state stops.
pub async fn serve(state: Arc<ShimState>, address: SocketAddr) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(state.clone());
    let listener = TcpListener::bind(address).await?;
    axum::serve(listener, router).with_graceful_shutdown(state.stop.clone().cancelled_owned()).await
}

/// Serves /healthz and /readyz of a shim that waits for its data root, until it is dropped.
pub async fn serve_waiting(listener: TcpListener) -> std::io::Result<()> {
    let not_ready = || async { (StatusCode::SERVICE_UNAVAILABLE, "the data root is not opened yet") };
    let router = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(not_ready));
    axum::serve(listener, router).await
}

async fn ready(State(state): State<Arc<ShimState>>) -> impl IntoResponse {
    match (state.serving.load(Ordering::Relaxed), state.cache.is_synced()) {
        (true, true) => (StatusCode::OK, "ok"),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "the CSI sockets are not open yet"),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "the workspaces of this node are not listed yet"),
    }
}

async fn metrics(State(state): State<Arc<ShimState>>) -> impl IntoResponse {
    let metrics = &state.metrics;
    metrics.workspaces.set(i64::try_from(state.cache.len()).unwrap_or(i64::MAX));
    metrics.volumes.set(i64::try_from(state.publish_records.all().len()).unwrap_or(i64::MAX));
    let mut text = String::new();
    match encode(&mut text, &metrics.registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::future::pending;

    use super::super::csi_tests::TestShim;
    use super::super::{ShimError, serve_sockets};
    use super::*;

    /// The rows of `docs/metrics.md` for an OpenMetrics text.
    fn rows(text: &str) -> BTreeSet<String> {
        let kind = |name: &str| text.lines().find_map(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' '));
        let families = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        let row = |(name, help): (&str, &str)| format!("| `{name}` | {} | {} |", kind(name).unwrap(), help.trim_end_matches('.'));
        families.inspect(|(name, help)| assert!(help.len() > 1, "{name} does not say what it means")).map(row).collect()
    }

    fn page(prefix: &str) -> BTreeSet<String> {
        let page = include_str!("../../../docs/metrics.md");
        page.lines().filter(|line| line.starts_with(&format!("| `{prefix}_"))).map(str::to_owned).collect()
    }

    /// A family without a sample is not shown, so each has one here; a new field has to be named here, too.
    #[test]
    fn the_page_of_metrics_has_a_row_for_each_and_no_other() {
        let ShimMetrics { registry, made, making: _, published, publishing: _, workspaces: _, volumes: _ } = ShimMetrics::default();
        drop(made.get_or_create(&TreeLabels { provider: "Copy", outcome: "made" }));
        drop(published.get_or_create(&PublishLabels { outcome: "mounted" }));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert_eq!(rows(&text), page("yoi_shim"));
    }

    #[tokio::test]
    async fn a_part_that_panics_or_ends_ends_the_shim_with_its_name() {
        for panicked in [true, false] {
            let (shim, mut tasks) = (TestShim::new(), RequiredTasks::default());
            tasks.spawn("the report of the node", pending());
            tasks.spawn("the making door", async move { assert!(!panicked, "planted") });
            let (state, kubelet_dir) = (&shim.state, &shim.state.kubelet_dir);
            let folder = crate::args::driver_dir(kubelet_dir);
            std::fs::create_dir_all(kubelet_dir.join("plugins_registry")).unwrap();
            let ended = serve_sockets(state, &folder, kubelet_dir, tokio::spawn(pending()), &mut tasks).await.unwrap_err();
            assert!(matches!(&ended, ShimError::TaskEnded(e) if *e == TaskEnded { part: "the making door", panicked }), "{ended}");
            // As at every end: the kubelet forgets the driver, and nobody makes anything more.
            assert!(state.stop.is_cancelled() && !kubelet_dir.join("plugins_registry/csi.yoi.dev-reg.sock").exists());
        }
    }

    #[tokio::test]
    async fn parts_that_end_once_the_world_stops_are_waited_for() {
        let (shim, mut tasks) = (TestShim::new(), RequiredTasks::default());
        tasks.spawn("the making door", shim.state.stop.clone().cancelled_owned());
        shim.state.stop.cancel();
        tasks.rest().await;
    }
}
