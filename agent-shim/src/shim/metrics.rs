//! The figures of `/metrics`.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use yoi_workspace::ProviderKind;

/// How a NodePublishVolume call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The volume is mounted.
    Mounted,
    /// The Pod may not mount the tree.
    Refused,
    /// The tree was not there in time.
    NotYet,
    /// The mount failed.
    Failed,
}

impl PublishOutcome {
    fn as_str(self) -> &'static str {
        match self {
            PublishOutcome::Mounted => "mounted",
            PublishOutcome::Refused => "refused",
            PublishOutcome::NotYet => "not_yet",
            PublishOutcome::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TreeLabels {
    provider: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PublishLabels {
    outcome: &'static str,
}

/// Counters, gauges and histograms of this process.
pub struct ShimMetrics {
    registry: Registry,
    made: Family<TreeLabels, Counter>,
    making: Histogram,
    published: Family<PublishLabels, Counter>,
    publishing: Histogram,
    workspaces: Gauge,
    volumes: Gauge,
    exclusive: Gauge,
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
            exclusive: Gauge::default(),
        };
        let r = &mut metrics.registry;
        r.register("trees_made", "Trees made on this node", metrics.made.clone());
        r.register("tree_making_seconds", "Time to make a tree, in seconds", metrics.making.clone());
        r.register("publishes", "NodePublishVolume calls of the kubelet", metrics.published.clone());
        r.register("publish_seconds", "Time of a NodePublishVolume, waiting included, in seconds", metrics.publishing.clone());
        r.register("workspaces", "AgentWorkspaces of this node", metrics.workspaces.clone());
        r.register("published_volumes", "Volumes that Pods have mounted", metrics.volumes.clone());
        r.register(
            "trees_exclusive_bytes",
            "What the trees of this node have for themselves on its disk, in bytes",
            metrics.exclusive.clone(),
        );
        metrics
    }
}

impl ShimMetrics {
    /// Counts one attempt to make a tree.
    pub fn count_tree_created(&self, provider: ProviderKind, done: bool, took: Duration) {
        let outcome = if done { "made" } else { "failed" };
        self.made.get_or_create(&TreeLabels { provider: provider.as_str(), outcome }).inc();
        self.making.observe(took.as_secs_f64());
    }

    /// Counts one NodePublishVolume call.
    pub fn count_publish(&self, outcome: PublishOutcome, took: Duration) {
        let outcome = outcome.as_str();
        self.published.get_or_create(&PublishLabels { outcome }).inc();
        self.publishing.observe(took.as_secs_f64());
    }

    /// All of them in the OpenMetrics text format. `workspaces`, `volumes` and `exclusive` bytes are counted by the caller at this moment.
    pub fn encode(&self, workspaces: usize, volumes: usize, exclusive: u64) -> Result<String, std::fmt::Error> {
        self.workspaces.set(i64::try_from(workspaces).unwrap_or(i64::MAX));
        self.volumes.set(i64::try_from(volumes).unwrap_or(i64::MAX));
        self.exclusive.set(i64::try_from(exclusive).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let ShimMetrics { registry, made, making: _, published, publishing: _, workspaces: _, volumes: _, exclusive: _ } =
            ShimMetrics::default();
        drop(made.get_or_create(&TreeLabels { provider: "Copy", outcome: "made" }));
        drop(published.get_or_create(&PublishLabels { outcome: "mounted" }));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert_eq!(rows(&text), page("yoi_shim"));
    }
}
