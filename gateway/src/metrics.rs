//! The metrics. Dashboards match on their names.

use std::collections::BTreeMap;

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use yoi_wire::entry::RefusalClass;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub listener: &'static str,
    pub route: String,
    pub code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DeliveryLabels {
    pub from: &'static str,
    pub outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ControlLabels {
    pub action: &'static str,
    pub answer: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    pub class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    pub outcome: &'static str,
}

pub struct GatewayMetrics {
    registry: Registry,
    pub lines: Gauge,
    pub agents_waiting: Gauge,
    pub agents_waiting_seconds: Gauge,
    pub requests: Family<RequestLabels, Counter>,
    pub deliveries: Family<DeliveryLabels, Counter>,
    pub delivery_seconds: Family<OutcomeLabels, Histogram>,
    pub token_reviews: Family<OutcomeLabels, Counter>,
    pub access_reviews: Family<OutcomeLabels, Counter>,
    pub status_writes: Family<OutcomeLabels, Counter>,
    pub attachments: Gauge,
    pub control_requests: Family<ControlLabels, Counter>,
    pub refused_calls: Family<RefusalLabels, Counter>,
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("yoi_gateway");
        let lines = Gauge::default();
        let agents_waiting = Gauge::default();
        let agents_waiting_seconds = Gauge::default();
        let requests = Family::default();
        let deliveries = Family::default();
        // From 1 ms to 16 s: an acknowledgement takes a flush of the target's disk, and its timeout is ten seconds.
        let delivery_seconds =
            Family::<OutcomeLabels, Histogram>::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 15)));
        let token_reviews = Family::default();
        let access_reviews = Family::default();
        let status_writes = Family::default();
        let attachments = Gauge::default();
        let control_requests = Family::default();
        let refused_calls = Family::default();
        registry.register("lines", "Lines of agents open at this replica", lines.clone());
        registry.register(
            "agents_waiting",
            "Agents with a line to this replica of which a call waits for a person, because the policy has it asked",
            agents_waiting.clone(),
        );
        registry.register(
            "agents_waiting_seconds",
            "How long the longest of these calls has waited, in seconds, as this replica knows it; 0 when none waits",
            agents_waiting_seconds.clone(),
        );
        registry.register("requests", "Requests by listener (runtimes or api), route and status code", requests.clone());
        registry.register("deliveries", "Messages by kind of sender and outcome (Sent, or the reason of the refusal)", deliveries.clone());
        registry.register(
            "delivery_seconds",
            "Time from a message's being read to its sender's answer, in seconds, by outcome: sent or refused",
            delivery_seconds.clone(),
        );
        registry.register("token_reviews", "Tokens checked: accepted, refused, answered from the cache (cached), or not checked because the API server did not answer (failed)", token_reviews.clone());
        registry.register("access_reviews", "Rights checked: allowed, denied, answered from the cache (cached), or not checked because the API server did not answer (failed)", access_reviews.clone());
        registry.register("status_writes", "Writes of YoiPod status: written, unchanged, or failed", status_writes.clone());
        registry.register(
            "attachments",
            "Clients that are attached to agents, or follow their events, through this replica",
            attachments.clone(),
        );
        registry.register(
            "control_requests",
            "What people asked of running agents, by action and answer (Done, or the reason why not)",
            control_requests.clone(),
        );
        registry.register(
            "refused_calls",
            "Calls of tools that agents reported as refused, by the class of the refusal; one whose report was not answered may count twice",
            refused_calls.clone(),
        );
        GatewayMetrics {
            registry,
            lines,
            agents_waiting,
            agents_waiting_seconds,
            requests,
            deliveries,
            delivery_seconds,
            token_reviews,
            access_reviews,
            status_writes,
            attachments,
            control_requests,
            refused_calls,
        }
    }
}

impl GatewayMetrics {
    /// The OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl GatewayMetrics {
    /// Adds what a runtime has reported. A class of another version counts as `refused`.
    pub fn count_refused(&self, calls: &BTreeMap<String, u64>) {
        for (class, count) in calls {
            let class: RefusalClass = serde_json::from_value(class.as_str().into()).unwrap_or(RefusalClass::Unknown);
            self.refused_calls.get_or_create(&RefusalLabels { class: class.word() }).inc_by(*count);
        }
    }
}

/// Adds one to the counter of this outcome.
pub fn count(family: &Family<OutcomeLabels, Counter>, outcome: &'static str) {
    family.get_or_create(&OutcomeLabels { outcome }).inc();
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
        let page = include_str!("../../docs/metrics.md");
        page.lines().filter(|line| line.starts_with(&format!("| `{prefix}_"))).map(str::to_owned).collect()
    }

    /// A family without a sample has no text, so each gets one. The destructuring makes a new field fail here.
    #[test]
    fn the_page_of_metrics_has_a_row_for_each_and_no_other() {
        let all = GatewayMetrics::default();
        let GatewayMetrics {
            registry: _,
            lines: _,
            agents_waiting: _,
            agents_waiting_seconds: _,
            requests,
            deliveries,
            delivery_seconds,
            token_reviews,
            access_reviews,
            status_writes,
            attachments: _,
            control_requests,
            refused_calls,
        } = &all;
        drop(refused_calls.get_or_create(&RefusalLabels { class: "tool_denied" }));
        drop(control_requests.get_or_create(&ControlLabels { action: "pause", answer: "Done" }));
        drop(requests.get_or_create(&RequestLabels { listener: "api", route: String::new(), code: 200 }));
        drop(deliveries.get_or_create(&DeliveryLabels { from: "person", outcome: "Sent".to_owned() }));
        drop(delivery_seconds.get_or_create(&OutcomeLabels { outcome: "sent" }));
        [token_reviews, access_reviews, status_writes].into_iter().for_each(|family| count(family, "failed"));
        let text = all.text();
        assert_eq!(rows(&text), page("yoi_gateway"));
    }
}
