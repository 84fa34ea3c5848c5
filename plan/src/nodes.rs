//! The cluster's nodes: which providers and runtimes each offers, whether Pods can start there, and which volumes they can use there.

pub mod heartbeat;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{self, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, Taint, Toleration};
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::node::OfferedHostSource;
use yoi_crds::pod::PodSettings;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::ProviderName;

/// How many nodes a message names.
const MOST_NAMED: usize = 8;

/// The cluster's nodes, by name. A node that is not in here does not exist.
#[derive(Clone, Debug, Default)]
pub struct Nodes(pub BTreeMap<String, Node>);

/// What is known of one node. [`Self::default`] is a ready node without labels and without a shim.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// Since when its condition Ready is not True; `None` when it is, or is not reported yet.
    pub not_ready_since: Option<jiff::Timestamp>,
    /// What its shim reports; absent while no shim has reported.
    pub offer: Option<Arc<WorkspaceNode>>,
}

impl Node {
    /// What plans read of the Node, and of the WorkspaceNode of its name.
    #[must_use]
    pub fn new(node: &v1::Node, offer: Option<Arc<WorkspaceNode>>) -> Self {
        let spec = node.spec.as_ref();
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let not_ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status != "True");
        Node {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            not_ready_since: not_ready.map(|c| c.last_transition_time.as_ref().map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0)),
            offer,
        }
    }

    /// Why the scheduler sends no Pod with these tolerations here, as the end of a sentence about the node; `None` when it may.
    #[must_use]
    pub fn refusal(&self, tolerations: &[Toleration]) -> Option<String> {
        if self.not_ready_since.is_some() {
            return Some("is not ready".to_owned());
        }
        if self.cordoned {
            return Some("is cordoned".to_owned());
        }
        let is_tolerated = |taint: &Taint| tolerations.iter().any(|toleration| tolerates(toleration, taint));
        self.taints.iter().find(|taint| keeps_pods_away(taint) && !is_tolerated(taint)).map(|taint| {
            let value = taint.value.as_deref().filter(|value| !value.is_empty()).map(|value| format!("={value}")).unwrap_or_default();
            format!("has the taint {}{value}:{}", taint.key, taint.effect)
        })
    }

    /// Its Ready condition and its cordon allow Pods; its taints may be tolerated.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.not_ready_since.is_none() && !self.cordoned
    }

    fn free(&self) -> i64 {
        self.offer.as_ref().and_then(|o| o.status.as_ref()).and_then(|s| s.capacity.as_ref()).map_or(0, |c| c.free_bytes)
    }

    fn offers(&self, provider: ProviderName) -> bool {
        let Some(status) = self.offer.as_ref().and_then(|o| o.status.as_ref()) else { return false };
        // A shim may leave Ready out.
        let down = find(&status.conditions, condition::READY).is_some_and(|c| c.status != ConditionStatus::True);
        !down
            && status
                .providers
                .iter()
                .any(|p| p.available && provider != ProviderName::Unknown && (provider == ProviderName::Auto || p.name == provider))
    }

    /// Why it does not offer this provider. `None` for a node without a shim.
    fn why_not(&self, provider: ProviderName) -> Option<String> {
        let status = self.offer.as_ref()?.status.as_ref();
        let down = status.and_then(|s| find(&s.conditions, condition::READY)).filter(|c| c.status != ConditionStatus::True);
        let offer = status.and_then(|s| s.providers.iter().find(|p| p.name == provider));
        Some(match (down, offer) {
            (Some(ready), _) => ready.message.clone(),
            (None, Some(offer)) => offer.reason.clone(),
            (None, None) => "not offered".to_owned(),
        })
    }

    /// What its shim says of the folder with this name, if objects of the namespace may name it.
    fn host_source(&self, source: &str, namespace: &str) -> Option<&OfferedHostSource> {
        let status = self.offer.as_ref()?.status.as_ref()?;
        status.host_sources.iter().find(|offered| offered.name == source && offered.is_for(namespace))
    }

    /// Since when nothing is heard of its shim, and in which words; see [`heartbeat`].
    #[must_use]
    pub fn silent_since(&self) -> Option<(jiff::Timestamp, &str)> {
        let ready = find(&self.offer.as_ref()?.status.as_ref()?.conditions, condition::READY)?;
        let since = ready.last_transition_time.parse().unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        (ready.status == ConditionStatus::Unknown).then_some((since, ready.message.as_str()))
    }

    /// Whether the node offers the runtime of this digest, in lower-case hex.
    #[must_use]
    pub fn has_runtime(&self, digest: &str) -> bool {
        self.offer.as_ref().and_then(|o| o.status.as_ref()).is_some_and(|s| s.runtime_digests.iter().any(|d| d == digest))
    }
}

/// Kubernetes lets every Pod with a request for memory tolerate memory pressure, and a populator has one.
fn keeps_pods_away(taint: &Taint) -> bool {
    taint.key != "node.kubernetes.io/memory-pressure" && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// As in the scheduler: an absent effect is every effect, and Exists without a key is every taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |field: &'_ Option<String>| field.clone().filter(|text| !text.is_empty());
    let (key, effect) = (given(&toleration.key), given(&toleration.effect));
    let fits = match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => key.is_none_or(|key| key == taint.key),
        "" | "Equal" => {
            key.as_ref() == Some(&taint.key) && toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or("")
        }
        _ => false,
    };
    fits && effect.is_none_or(|effect| effect == taint.effect)
}

impl Nodes {
    /// NotReady nodes exist.
    #[must_use]
    pub fn exists(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// Nodes that can make a tree with this provider, best first: most free bytes, then by name.
    #[must_use]
    pub fn eligible(&self, provider: ProviderName) -> Vec<&str> {
        let mut found: Vec<(&String, &Node)> = self.0.iter().filter(|(_, n)| n.offers(provider)).collect();
        found.sort_by(|a, b| b.1.free().cmp(&a.1.free()).then_with(|| a.0.cmp(b.0)));
        found.into_iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Whether the node can make a tree with this provider.
    #[must_use]
    pub fn is_eligible(&self, node: &str, provider: ProviderName) -> bool {
        self.0.get(node).is_some_and(|node| node.offers(provider))
    }

    /// The provider that Auto takes on the node.
    #[must_use]
    pub fn best_provider(&self, node: &str) -> Option<ProviderName> {
        let node = self.0.get(node)?;
        ProviderName::OFFERED.into_iter().find(|name| node.offers(*name))
    }

    /// Those of [`Self::eligible`] where a Pod with these tolerations can start.
    #[must_use]
    pub fn eligible_for_pods(&self, provider: ProviderName, tolerations: &[Toleration]) -> Vec<&str> {
        let mut found = self.eligible(provider);
        found.retain(|node| self.0.get(*node).is_some_and(|node| node.refusal(tolerations).is_none()));
        found
    }

    /// Why [`Self::eligible_for_pods`] is empty: each node with its reason, or what to check.
    #[must_use]
    pub fn none_eligible_for_pods(&self, provider: ProviderName, tolerations: &[Toleration]) -> String {
        let eligible = self.eligible(provider);
        if eligible.is_empty() {
            return self.none_eligible(provider);
        }
        let named = eligible.iter().filter_map(|name| Some(format!("node {name} {}", self.0.get(*name)?.refusal(tolerations)?)));
        let sentence = "no node that offers a fitting provider can run the Pod that fetches the source";
        format!("{sentence}: {}", join_sentences(named))
    }

    /// Nodes that have this folder for objects of the namespace. While none has it, those that list it: their shims say what is wrong with it.
    #[must_use]
    pub fn with_host_source(&self, source: &str, namespace: &str) -> Vec<&str> {
        let having = |available: bool| {
            let has = move |node: &Node| node.host_source(source, namespace).is_some_and(|found| found.available || !available);
            self.0.iter().filter(move |(_, node)| has(node)).map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        Some(having(true)).filter(|found| !found.is_empty()).unwrap_or_else(|| having(false))
    }

    /// Where this folder lies on the node, if it is for objects of the namespace. Empty while the node's shim does not say it.
    #[must_use]
    pub fn host_source_path(&self, node: &str, source: &str, namespace: &str) -> Option<&str> {
        Some(self.0.get(node)?.host_source(source, namespace)?.path.as_str())
    }

    /// The condition of an object that names a folder which no node lists for its namespace. The words do not tell whether another namespace has it.
    /// `None` while no shim has reported.
    #[must_use]
    pub fn host_source_forbidden(&self, source: &str, namespace: &str) -> Option<ConditionValue> {
        let is_listed = self.0.values().any(|node| node.host_source(source, namespace).is_some());
        let is_known = self.0.values().any(|node| node.offer.is_some());
        let why = || format!("no node lists a host source {source} for namespace {namespace}");
        (is_known && !is_listed).then(|| ConditionValue::no(reason::SOURCE_FORBIDDEN, why()))
    }

    /// Why [`Self::eligible`] is empty, and what to check.
    #[must_use]
    pub fn none_eligible(&self, provider: ProviderName) -> String {
        if self.0.values().all(|n| n.offer.is_none()) {
            return "no node runs the Yoi node agent: there is no WorkspaceNode; check that the DaemonSet yoi-agent-shim has running Pods \
                    (its nodeSelector and tolerations) and `kubectl get workspacenodes`"
                .to_owned();
        }
        match provider {
            ProviderName::Auto => {
                "no WorkspaceNode has an available provider; see `kubectl describe workspacenodes` for the reasons".to_owned()
            }
            ProviderName::Zfs
            | ProviderName::Btrfs
            | ProviderName::Overlay
            | ProviderName::Reflink
            | ProviderName::Copy
            | ProviderName::Unknown => {
                let why =
                    join_sentences(self.0.iter().filter_map(|(name, node)| Some(format!("node {name}: {}", node.why_not(provider)?))));
                format!("no WorkspaceNode offers provider {provider}, and a named provider has no fallback: {why}")
            }
        }
    }

    /// Digest of the runtime that agents on `candidates` run: `configured`, else the one that most of them list first (the highest among equals).
    /// A shim lists its own first, and then older ones that Pods still run. `None` when no candidate lists any.
    #[must_use]
    pub fn runtime_digest(&self, configured: Option<&str>, candidates: &[&str]) -> Option<String> {
        if let Some(digest) = configured {
            return Some(digest.to_owned());
        }
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for node in candidates.iter().filter_map(|name| self.0.get(*name)) {
            if let Some(own) = node.offer.as_ref().and_then(|o| o.status.as_ref()?.runtime_digests.first()) {
                *count.entry(own).or_default() += 1;
            }
        }
        count.into_iter().max_by_key(|(digest, n)| (*n, *digest)).map(|(digest, _)| digest.to_owned())
    }

    /// Names of the nodes whose Pods can use this volume, sorted.
    #[must_use]
    pub fn reaching(&self, volume: &PersistentVolume) -> Vec<&str> {
        self.0.keys().map(String::as_str).filter(|node| self.reaches(node, volume)).collect()
    }

    /// Whether a Pod's node selector and the required part of its node affinity allow the node.
    #[must_use]
    pub fn is_allowed_by(&self, node: &str, pod: &PodSettings) -> bool {
        let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        let labels = self.0.get(node).map(|n| &n.labels);
        let has_labels = pod.node_selector.iter().all(|(key, value)| labels.is_some_and(|l| l.get(key) == Some(value)));
        has_labels && required.is_none_or(|selector| labels.is_some_and(|labels| selector_matches(selector, node, labels)))
    }

    /// Whether the scheduler may send a Pod with these settings to the node, if there is room.
    pub(crate) fn may_take(&self, node: &str, pod: &PodSettings) -> bool {
        let refuses = self.0.get(node).is_none_or(|found| found.refusal(&pod.tolerations).is_some());
        !refuses && self.is_allowed_by(node, pod)
    }

    /// Whether Pods on this node can use this volume.
    #[must_use]
    pub fn reaches(&self, node: &str, volume: &PersistentVolume) -> bool {
        let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref()).and_then(|a| a.required.as_ref());
        match affinity {
            None => true,
            Some(selector) => self.0.get(node).is_some_and(|n| selector_matches(selector, node, &n.labels)),
        }
    }
}

/// The first sentences, with semicolons, and how many more there are.
pub(crate) fn join_sentences(sentences: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = sentences.collect();
    let more = all.len().saturating_sub(MOST_NAMED);
    all.truncate(MOST_NAMED);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join("; ")
}

fn selector_matches(selector: &NodeSelector, node: &str, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node, labels))
}

/// An empty term matches nothing, as in the scheduler.
fn term_matches(term: &NodeSelectorTerm, node: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|r| requirement_holds(r, labels.get(&r.key).map(String::as_str)))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement_holds(r, Some(node)))
}

fn requirement_holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |v: &str| requirement.values.as_deref().unwrap_or_default().iter().any(|x| x == v);
    let number = || value.and_then(|v| v.parse::<i64>().ok());
    let bound = || requirement.values.as_deref().unwrap_or_default().first().and_then(|v| v.parse::<i64>().ok());
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => matches!((number(), bound()), (Some(n), Some(b)) if n > b),
        "Lt" => matches!((number(), bound()), (Some(n), Some(b)) if n < b),
        // An operator that this version does not know may allow the node, so the scheduler decides.
        _ => true,
    }
}
