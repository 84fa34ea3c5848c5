//! Which nodes a Pod may go to, by their names: as an affinity of the Pod, and read back from it.
//!
//! The affinity matches the field `metadata.name`. The label `kubernetes.io/hostname` is not unique: a node can bear another one's.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
};

const NAME_FIELD: &str = "metadata.name";
/// What Pods of an earlier version are bound to nodes by.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The highest weight of a preference.
const MOST_WEIGHT: i32 = 100;

/// The nodes that a Pod may go to. Its node selector and the nodes' taints count beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeChoice {
    /// One of these.
    Only(Vec<String>),
    /// Every node but those to avoid, also one that joins later.
    Any { preferred: Vec<String>, avoided: Vec<String> },
}

impl NodeChoice {
    pub(crate) fn affinity(&self) -> Affinity {
        let (required, preferred) = match self {
            NodeChoice::Only(nodes) => (nodes.iter().map(|node| term(vec![by_name("In", node)])).collect(), Vec::new()),
            NodeChoice::Any { preferred, avoided } => {
                let not_these: Vec<_> = avoided.iter().map(|node| by_name("NotIn", node)).collect();
                let prefer = |node: &String| PreferredSchedulingTerm { weight: MOST_WEIGHT, preference: term(vec![by_name("In", node)]) };
                // A term without requirements matches no node.
                (if not_these.is_empty() { Vec::new() } else { vec![term(not_these)] }, preferred.iter().map(prefer).collect())
            }
        };
        let required = NodeSelector { node_selector_terms: required };
        Affinity {
            node_affinity: Some(NodeAffinity {
                required_during_scheduling_ignored_during_execution: (!required.node_selector_terms.is_empty()).then_some(required),
                preferred_during_scheduling_ignored_during_execution: (!preferred.is_empty()).then_some(preferred),
            }),
            ..Affinity::default()
        }
    }
}

fn term(requirements: Vec<NodeSelectorRequirement>) -> NodeSelectorTerm {
    NodeSelectorTerm { match_expressions: None, match_fields: Some(requirements) }
}

/// Kubernetes takes exactly one value for the name.
fn by_name(operator: &str, node: &str) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: NAME_FIELD.to_owned(), operator: operator.to_owned(), values: Some(vec![node.to_owned()]) }
}

/// What a Pod's affinity says about nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedChoice {
    /// It may go to certain nodes only.
    pub is_bound: bool,
    /// Names of the nodes that it must not go to.
    pub avoided: BTreeSet<String>,
}

impl ObservedChoice {
    pub(crate) fn new(affinity: Option<&Affinity>) -> Self {
        let required = affinity.and_then(|a| a.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.map(|selector| selector.node_selector_terms.as_slice()).unwrap_or_default();
        let mut choice = ObservedChoice::default();
        for term in terms {
            let fields = term.match_fields.iter().flatten().filter(|r| r.key == NAME_FIELD);
            let labels = term.match_expressions.iter().flatten().filter(|r| r.key == HOSTNAME);
            for requirement in fields.chain(labels) {
                match requirement.operator.as_str() {
                    "In" => choice.is_bound = true,
                    "NotIn" => choice.avoided.extend(requirement.values.iter().flatten().cloned()),
                    _ => {}
                }
            }
        }
        choice
    }
}
