//! /healthz, /readyz and /metrics; and the parts without which the process is not alive.
//!
//! /healthz says no more than that the process is: it ends with the first of its parts that does.

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

/// The process ends rather than live on with a part that does not work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to go on: {part} ended{}", if *panicked { " by a panic" } else { "" })]
pub struct Ended {
    part: &'static str,
    panicked: bool,
}

/// Tasks that live until the world stops, by name.
#[derive(Default)]
pub struct Parts {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Parts {
    pub fn spawn(&mut self, part: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, part);
    }

    /// The first part that ends, although none should yet.
    pub async fn ended(&mut self) -> Ended {
        let (id, panicked) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, false),
            Some(Err(error)) => (error.id(), error.is_panic()),
            None => return Ended { part: "everything", panicked: false },
        };
        Ended { part: self.names.get(&id).copied().unwrap_or("a task"), panicked }
    }

    /// Until all have ended, as they do when the world has stopped.
    pub async fn rest(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Serves until the world stops.
pub async fn serve(world: Arc<World>, address: SocketAddr) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(world.clone());
    let listener = TcpListener::bind(address).await?;
    axum::serve(listener, router).with_graceful_shutdown(world.stop.clone().cancelled_owned()).await
}

/// Serves /healthz and /readyz of a shim that waits for its data root, until it is dropped.
pub async fn serve_waiting(listener: TcpListener) -> std::io::Result<()> {
    let not_ready = || async { (StatusCode::SERVICE_UNAVAILABLE, "the data root is not opened yet") };
    let router = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(not_ready));
    axum::serve(listener, router).await
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::future::pending;

    use super::super::tests::Stage;
    use super::super::{ShimError, doors};
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
        let Counts { registry, made, making: _, published, publishing: _, workspaces: _, volumes: _ } = Counts::default();
        drop(made.get_or_create(&Deed { provider: "Copy", outcome: "made" }));
        drop(published.get_or_create(&Outcome { outcome: "mounted" }));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert_eq!(rows(&text), page("yoi_shim"));
    }

    #[tokio::test]
    async fn a_part_that_panics_or_ends_ends_the_shim_with_its_name() {
        for panicked in [true, false] {
            let (stage, mut parts) = (Stage::new(), Parts::default());
            parts.spawn("the report of the node", pending());
            parts.spawn("the making door", async move { assert!(!panicked, "planted") });
            let (world, kubelet_dir) = (&stage.world, &stage.world.kubelet_dir);
            let folder = crate::args::driver_dir(kubelet_dir);
            std::fs::create_dir_all(kubelet_dir.join("plugins_registry")).unwrap();
            let ended = doors(world, &folder, kubelet_dir, tokio::spawn(pending()), &mut parts).await.unwrap_err();
            assert!(matches!(&ended, ShimError::Ended(e) if *e == Ended { part: "the making door", panicked }), "{ended}");
            // As at every end: the kubelet forgets the driver, and nobody makes anything more.
            assert!(world.stop.is_cancelled() && !kubelet_dir.join("plugins_registry/csi.yoi.dev-reg.sock").exists());
        }
    }

    #[tokio::test]
    async fn parts_that_end_once_the_world_stops_are_waited_for() {
        let (stage, mut parts) = (Stage::new(), Parts::default());
        parts.spawn("the making door", stage.world.stop.clone().cancelled_owned());
        stage.world.stop.cancel();
        parts.rest().await;
    }
}
