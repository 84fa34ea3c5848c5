//! Which nodes a Pod may go to, by their names: as an affinity of the Pod, and read back from it.
//!
//! The affinity matches the field `metadata.name`. The label `kubernetes.io/hostname` is not unique: a node can bear another one's.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
};

const NAME_FIELD: &str = "metadata.name";
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
    /// The affinity of a Pod: what `user` asks for, and one of these nodes. Kubernetes takes a node that fits one of the required terms, so each of the
    /// user's is joined with each of ours.
    pub(crate) fn affinity(&self, user: Option<&Affinity>) -> Affinity {
        let user = user.cloned().unwrap_or_default();
        let of_nodes = user.node_affinity.unwrap_or_default();
        let own: Vec<Vec<NodeSelectorRequirement>> = match self {
            NodeChoice::Only(nodes) => nodes.iter().map(|node| vec![by_name("In", node)]).collect(),
            NodeChoice::Any { preferred: _, avoided } => vec![avoided.iter().map(|node| by_name("NotIn", node)).collect()],
        };
        let users = of_nodes.required_during_scheduling_ignored_during_execution.map(|selector| selector.node_selector_terms);
        let users = users.filter(|terms| !terms.is_empty()).unwrap_or_else(|| vec![NodeSelectorTerm::default()]);
        let required: Vec<NodeSelectorTerm> = users.iter().flat_map(|user| own.iter().map(|own| join(user, own))).collect();
        // A term without requirements matches no node.
        let is_free = required.iter().all(|term| term.match_fields.is_none() && term.match_expressions.is_none());
        let preferred: &[String] = match self {
            NodeChoice::Only(_) => &[],
            NodeChoice::Any { preferred, avoided: _ } => preferred,
        };
        let prefer = |node: &String| PreferredSchedulingTerm {
            weight: MOST_WEIGHT,
            preference: join(&NodeSelectorTerm::default(), &[by_name("In", node)]),
        };
        let users = of_nodes.preferred_during_scheduling_ignored_during_execution.unwrap_or_default();
        let preferred: Vec<_> = users.into_iter().chain(preferred.iter().map(prefer)).collect();
        Affinity {
            node_affinity: Some(NodeAffinity {
                required_during_scheduling_ignored_during_execution: (!is_free).then_some(NodeSelector { node_selector_terms: required }),
                preferred_during_scheduling_ignored_during_execution: (!preferred.is_empty()).then_some(preferred),
            }),
            ..user
        }
    }
}

/// A term that asks for both. The user's terms have no fields by the schema.
fn join(user: &NodeSelectorTerm, own: &[NodeSelectorRequirement]) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: user.match_expressions.clone().filter(|all| !all.is_empty()),
        match_fields: (!own.is_empty()).then(|| own.to_vec()),
    }
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
            // Labels, that of the hostname too, are what the user asks for.
            for requirement in term.match_fields.iter().flatten().filter(|r| r.key == NAME_FIELD) {
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
