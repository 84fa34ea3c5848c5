//! `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use yoi_crds::YoiProject;

use crate::api_writes::ApiWrites;
use crate::lease::LeaderStatus;
use crate::triggers::is_ready;
use crate::watch_caches::WatchCaches;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReady {
    kind: String,
    ready: bool,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByBound {
    bound: bool,
}

#[derive(Clone)]
pub struct Metrics {
    reconciles: Family<OfKind, Counter>,
    errors: Family<OfKind, Counter>,
    seconds: Family<OfKind, Histogram>,
    objects: Family<ByReady, Gauge>,
    leader: Gauge,
    failing: Gauge,
    warm: Family<ByBound, Gauge>,
    warm_taken: Counter,
    /// The client counts them.
    pub writes: ApiWrites,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let reconciles = Family::<OfKind, Counter>::default();
        let errors = Family::<OfKind, Counter>::default();
        let seconds = Family::<OfKind, Histogram>::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 14)));
        let objects = Family::<ByReady, Gauge>::default();
        let leader = Gauge::default();
        let failing = Gauge::default();
        let warm = Family::<ByBound, Gauge>::default();
        let warm_taken = Counter::default();
        let writes = ApiWrites::default();
        let mut registry = Registry::with_prefix("yoi_operator");
        registry.register(
            "reconciles",
            "How often the operator looked at an object and decided what to do, by kind of object",
            reconciles.clone(),
        );
        registry.register("reconcile_errors", "How often such a look ended in an error, by kind of object; it is tried again after a pause. Looks that only came too early are left out", errors.clone());
        registry.register(
            "reconcile_seconds",
            "How long a look took with everything that it did, in seconds, by kind of object",
            seconds.clone(),
        );
        registry.register("objects", "How many objects there are, by kind and by whether their condition Ready is True", objects.clone());
        registry.register("leader", "1 while this process is the one replica that acts, 0 while it stands by", leader.clone());
        registry.register("objects_failing", "How many objects the last look at ended in an error", failing.clone());
        registry.register(
            "warm_session_claims",
            "How many session claims stand ready for agents that are still to come, and how many of those are not bound yet",
            warm.clone(),
        );
        registry.register("warm_session_claims_taken", "How many agents have taken such a claim", warm_taken.clone());
        registry.register(
            "api_writes",
            "Requests to the API server that change something, by resource (with /status for a status) and verb; refused ones are counted too",
            writes.clone(),
        );
        Metrics { reconciles, errors, seconds, objects, leader, failing, warm, warm_taken, writes, registry: Arc::new(registry) }
    }
}

/// Observes the duration of a reconcile when it is dropped.
pub struct Timer {
    seconds: Family<OfKind, Histogram>,
    kind: OfKind,
    since: Instant,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.seconds.get_or_create(&self.kind).observe(self.since.elapsed().as_secs_f64());
    }
}

impl Metrics {
    #[must_use]
    pub fn reconcile(&self, kind: &str, since: Instant) -> Timer {
        let kind = OfKind { kind: kind.to_owned() };
        self.reconciles.get_or_create(&kind).inc();
        Timer { seconds: self.seconds.clone(), kind, since }
    }

    pub fn failing(&self, objects: usize) {
        self.failing.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    pub fn count_error(&self, kind: &str) {
        self.errors.get_or_create(&OfKind { kind: kind.to_owned() }).inc();
    }

    pub fn count_warm_taken(&self) {
        self.warm_taken.inc();
    }

    /// Counts the objects in the caches at each scrape, so that no count can drift.
    fn count(&self, caches: &WatchCaches) {
        let listed = |project: &Arc<YoiProject>| project.status.as_ref().and_then(|status| status.warm.clone()).unwrap_or_default().claims;
        let is_bound = |(namespace, name): (String, String)| caches.claims.get(&namespace, &name).is_some_and(|claim| claim.is_bound());
        let named = |project: &Arc<YoiProject>| {
            let namespace = project.metadata.namespace.clone().unwrap_or_default();
            listed(project).into_iter().map(move |claim| (namespace.clone(), claim.name)).collect::<Vec<_>>()
        };
        let warm: Vec<bool> = caches.projects.all().iter().flat_map(named).map(is_bound).collect();
        for bound in [true, false] {
            let count = warm.iter().filter(|is_bound| **is_bound == bound).count();
            self.warm.get_or_create(&ByBound { bound }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let set = |kind: &str, states: Vec<bool>| {
            for ready in [true, false] {
                let count = states.iter().filter(|s| **s == ready).count();
                self.objects.get_or_create(&ByReady { kind: kind.to_owned(), ready }).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        };
        let ready_status = |c: Option<&Vec<yoi_crds::Condition>>| is_ready(c.map(Vec::as_slice));
        set("YoiProject", caches.projects.all().iter().map(|o| ready_status(o.status.as_ref().map(|s| &s.conditions))).collect());
        set("AgentWorkspace", caches.workspaces.all().iter().map(|o| ready_status(o.status.as_ref().map(|s| &s.conditions))).collect());
        set("YoiPod", caches.yoipods.all().iter().map(|o| ready_status(o.status.as_ref().map(|s| &s.conditions))).collect());
        set("YoiPeer", caches.peers.all().iter().map(|o| ready_status(o.status.as_ref().map(|s| &s.conditions))).collect());
    }
}

#[derive(Clone)]
pub struct Health {
    pub metrics: Metrics,
    pub caches: Arc<WatchCaches>,
    pub leader_status: watch::Receiver<LeaderStatus>,
}

/// The lease loop publishes its status at least this often.
const SILENCE: Duration = Duration::from_secs(30);

impl Health {
    pub fn routes(self) -> Router {
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).route("/metrics", get(metrics)).with_state(self)
    }
}

/// Fails when the lease loop hangs: such a process would block its successor.
async fn healthz(State(health): State<Health>) -> Response {
    let leader_status = *health.leader_status.borrow();
    if leader_status.at.elapsed() > SILENCE {
        return (StatusCode::SERVICE_UNAVAILABLE, "the lease loop is silent\n").into_response();
    }
    "ok\n".into_response()
}

async fn readyz(State(health): State<Health>) -> Response {
    let leader_status = *health.leader_status.borrow();
    if leader_status.at.elapsed() > SILENCE {
        return (StatusCode::SERVICE_UNAVAILABLE, "the lease loop is silent\n").into_response();
    }
    if !leader_status.leader {
        return "standby\n".into_response();
    }
    let missing = health.caches.not_ready();
    if missing.is_empty() {
        return "leader\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not listed yet: {}\n", missing.join(", "))).into_response()
}

async fn metrics(State(health): State<Health>) -> Response {
    health.metrics.leader.set(i64::from(health.leader_status.borrow().leader));
    health.metrics.count(&health.caches);
    let mut text = String::new();
    match encode(&mut text, &health.metrics.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("failed to encode metrics: {error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api_writes;

    /// The rows of `docs/metrics.md` for an OpenMetrics text.
    fn rows(text: &str) -> BTreeSet<String> {
        let kind = |name: &str| text.lines().find_map(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' '));
        let families = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        let row = |(name, help): (&str, &str)| format!("| `{name}` | {} | {} |", kind(name).unwrap(), help.trim_end_matches('.'));
        families.inspect(|(name, help)| assert!(help.len() > 1, "{name} does not say what it means")).map(row).collect()
    }

    fn page(prefix: &str) -> BTreeSet<String> {
        let page = include_str!("../../docs/metrics.md");
        page.lines().filter(|line| line.starts_with(&format!("| `{prefix}_"))).map(str::to_owned).collect()
    }

    /// A family without a sample is not shown, so each has one here; a new field has to be named here, too.
    #[test]
    fn the_page_of_metrics_has_a_row_for_each_and_no_other() {
        let Metrics { reconciles, errors, seconds, objects, leader: _, failing: _, warm, warm_taken: _, writes, registry } =
            Metrics::default();
        let of_kind = OfKind { kind: "YoiPod".to_owned() };
        drop((reconciles.get_or_create(&of_kind), errors.get_or_create(&of_kind), seconds.get_or_create(&of_kind)));
        drop(objects.get_or_create(&ByReady { kind: "YoiPod".to_owned(), ready: true }));
        drop(warm.get_or_create(&ByBound { bound: true }));
        api_writes::count(&writes, &axum::http::Request::post("/api/v1/namespaces/n/pods").body(()).unwrap());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert_eq!(rows(&text), page("yoi_operator"));
    }
}
