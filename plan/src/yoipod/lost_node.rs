//! Nodes that are gone or do not answer, and what is said of an agent that needs one of them. What a Pod there says of itself holds no more, and the words
//! of the scheduler name no node.

use yoi_crds::condition::ConditionValue;
use yoi_crds::reason;

use super::acceptance;
use super::yoipod_input::YoiPodInput;
use crate::observed_pod::ObservedPod;
use crate::stored::Stored;
use crate::tree::TreeSource;

/// The Pod's node, if it is not ready.
pub(super) fn not_ready<'a>(input: &YoiPodInput<'_>, pod: Stored<'a, ObservedPod>) -> Option<&'a str> {
    let node = pod.get().node.as_deref()?;
    input.nodes.0.get(node)?.not_ready_since.map(|_| node)
}

/// A Pod that cannot end, because its node does not say that it has. `then` is what comes after it.
pub(super) fn goes_down(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>, then: &str) -> Option<ConditionValue> {
    let node = not_ready(input, pod)?;
    let message = format!(
        "Pod {} is going down with node {node}, which is not ready; {then} when the node answers, or when its Node is deleted",
        pod.name()
    );
    Some(ConditionValue::no(reason::NODE_NOT_READY, message))
}

/// The tree that a Pod needs on its node.
enum NeededTree<'a> {
    Own {
        node: &'a str,
    },
    /// That of the workspace `name`, which this one is to be a fork of.
    Parent {
        name: &'a str,
        node: &'a str,
    },
}

fn needed_tree<'a>(input: &YoiPodInput<'a>) -> Option<NeededTree<'a>> {
    let workspace = input.workspace?;
    if let Some(node) = workspace.node_name() {
        return Some(NeededTree::Own { node });
    }
    let TreeSource::Fork(name) = TreeSource::new(&workspace.get().spec.source) else { return None };
    Some(NeededTree::Parent { name, node: input.parent?.provisioned_on()? })
}

/// Why no Pod of the agent ever gets a node: the tree that it needs is gone with its node.
pub(super) fn gone(input: &YoiPodInput<'_>) -> Option<ConditionValue> {
    let needed = needed_tree(input)?;
    let (NeededTree::Own { node } | NeededTree::Parent { node, .. }) = needed;
    if input.nodes.exists(node) {
        return None;
    }
    Some(match needed {
        NeededTree::Own { .. } => own_gone(input, node),
        NeededTree::Parent { name, .. } => ConditionValue::no(reason::NODE_LOST, parent_gone(name, node)),
    })
}

/// That tree and session are gone with one node, if they are.
pub(super) fn all_gone(input: &YoiPodInput<'_>) -> Option<ConditionValue> {
    let node = input.workspace?.node_name().filter(|node| !input.nodes.exists(node))?;
    Some(own_gone(input, node)).filter(|gone| gone.reason == reason::TREE_AND_SESSION_LOST)
}

/// The agent's tree is gone with its node. A session volume that only that node could use went with it, and no new tree helps then.
pub(super) fn own_gone(input: &YoiPodInput<'_>, node: &str) -> ConditionValue {
    let lost_volume = input.session_volume.filter(|volume| input.nodes.reaching(volume.get()).is_empty());
    match lost_volume {
        None => ConditionValue::no(reason::NODE_LOST, format!("node {node} no longer exists, and the tree was on it")),
        Some(volume) => {
            let message = format!(
                "node {node} no longer exists, and with it went the tree, and the session on volume {}: nothing of the agent is left",
                volume.name()
            );
            ConditionValue::no(reason::TREE_AND_SESSION_LOST, message)
        }
    }
}

/// Why a fork of the workspace `parent` can never be made.
pub(crate) fn parent_gone(parent: &str, node: &str) -> String {
    format!("node {node} no longer exists, and with it went the tree of AgentWorkspace {parent}, of which a fork was to be made")
}

/// What keeps a Pod without a node from the one where the tree is that it needs; `None` when that node takes Pods, or when there is no such tree.
pub(super) fn closed(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>) -> Option<String> {
    let needed = needed_tree(input).filter(|_| pod.node.is_none())?;
    let (NeededTree::Own { node } | NeededTree::Parent { node, .. }) = needed;
    let resolved = acceptance::resolve(input).ok()?;
    let refusal = input.nodes.0.get(node)?.refusal(&resolved.pod.tolerations)?;
    let what = match needed {
        NeededTree::Own { .. } => "the tree".to_owned(),
        NeededTree::Parent { name, .. } => format!("the tree of AgentWorkspace {name}, of which a fork is made,"),
    };
    Some(format!("{what} is on node {node}, and node {node} {refusal}"))
}
