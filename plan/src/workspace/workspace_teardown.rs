//! The end of a workspace: in which order what it owns is deleted, and when it expires.

use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::name::finalizer;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus};

use super::workspace_input::{Consumer, WorkspaceInput};
use crate::conditions::{ConditionSet, namespace_terminating, value_of};
use crate::step::{Kind, Plan, Step};
use crate::stored::delete_all;
use crate::{duration, names};

/// The claim first (it waits for its Pods), then the volume, then the shim's finalizer, then the operator's.
pub(super) fn plan(input: &WorkspaceInput<'_>, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
    let workspace = input.workspace;
    let (claim, volume) = match &input.consumer {
        Consumer::Claim(claim) => (claim.own, claim.volume),
        Consumer::Agent(_) => (None, None),
    };
    let mut steps: Vec<Step> = Vec::new();
    steps.extend(claim.and_then(|claim| claim.delete()));
    if claim.is_none() {
        steps.extend(volume.and_then(|volume| volume.delete()));
    }
    steps.extend(delete_all(input.populators.iter().copied()));
    let everything_is_gone = claim.is_none() && volume.is_none() && input.populators.is_empty();
    let node_data = workspace.remove_finalizer(finalizer::NODE_DATA);
    match (node_data, workspace.node_name()) {
        _ if !everything_is_gone => {}
        // Without a node, no shim ever made anything.
        (Some(step), None) => steps.push(step),
        // Of a node that no longer exists, no shim will ever answer; NotReady is not enough for that. The status says so before, and with it an Event.
        (Some(step), Some(node)) if !input.nodes.exists(node) => {
            if find(workspace.conditions(), condition::READY).is_some_and(|c| c.reason == reason::NODE_LOST) {
                steps.push(step);
            }
        }
        (Some(_), Some(_)) => {}
        (None, _) => return Plan::only(release(input)),
    }
    if steps.is_empty() { Plan { status: Some(waiting_status(input, now)), ..Plan::nothing() } } else { Plan::only(steps) }
}

/// The last steps: the operator's finalizer goes.
fn release(input: &WorkspaceInput<'_>) -> Vec<Step> {
    let workspace = input.workspace;
    let Some(last) = workspace.remove_finalizer(finalizer::OPERATOR) else { return Vec::new() };
    let Consumer::Claim(_) = input.consumer else { return vec![last] };
    let confirm_gone = |kind, namespace: &str, name: String| Step::ConfirmGone {
        kind,
        namespace: namespace.to_owned(),
        name,
        of: workspace.uid().as_str().to_owned(),
    };
    vec![
        confirm_gone(Kind::Claim, workspace.namespace(), workspace.name().to_owned()),
        // A volume has no owner, so the garbage collector would not delete it.
        confirm_gone(Kind::Volume, "", names::volume(workspace.uid().as_str())),
        last,
    ]
}

/// The status of a workspace that is being deleted and waits for its Pods or its node. Ready has the reason that the shim gave in CleanedUp.
fn waiting_status(input: &WorkspaceInput<'_>, now: jiff::Timestamp) -> AgentWorkspaceStatus {
    let before = input.workspace.get().status.clone().unwrap_or_default();
    let mut conditions = ConditionSet::new(&before.conditions, input.workspace.meta().generation, now);
    let node = before.node_name.as_deref();
    let not_ready = node.filter(|node| input.nodes.0.get(*node).is_some_and(|node| node.not_ready_since.is_some()));
    let lost = node.filter(|node| !input.nodes.exists(node));
    match find(&before.conditions, condition::CLEANED_UP) {
        _ if let Some(node) = lost => {
            let message = format!("being deleted: node {node} no longer exists, and the tree on it is given up");
            conditions.set(condition::READY, ConditionValue::no(reason::NODE_LOST, message));
        }
        _ if let Some(node) = not_ready => {
            let message =
                format!("being deleted: the tree is on node {node}, which is not ready; delete the Node object if it is gone for good");
            conditions.set(condition::READY, ConditionValue::no(reason::NODE_NOT_READY, message));
        }
        Some(c) if c.status != ConditionStatus::True => {
            conditions.set(condition::READY, value_of(ConditionStatus::False, &c.reason, &c.message))
        }
        _ => conditions.set(
            condition::READY,
            ConditionValue::no(reason::WAITING_FOR_PODS, "being deleted: waits for Pods, then for the node to destroy the tree"),
        ),
    }
    kept_status(before.clone(), conditions)
}

/// The fields and the conditions of the operator as they are, but for what `conditions` say.
fn kept_status(before: AgentWorkspaceStatus, mut conditions: ConditionSet<'_>) -> AgentWorkspaceStatus {
    conditions.keep(&[condition::ACCEPTED, condition::SCHEDULED, condition::POPULATED, condition::BOUND]);
    let conditions = conditions.into_conditions();
    // The shim writes provider, volume and loans; claims are a step. The operator does not apply them.
    AgentWorkspaceStatus { conditions, provider: None, volume: None, claims: Vec::new(), loans: Vec::new(), ..before }
}

/// Nothing can be made in a namespace that is being deleted. A tree that is ready stays so for the Pods that have it.
pub(super) fn goes_with_its_namespace(input: &WorkspaceInput<'_>, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
    let (workspace, before) = (input.workspace, input.workspace.get().status.clone().unwrap_or_default());
    let mut conditions = ConditionSet::new(&before.conditions, workspace.meta().generation, now);
    if conditions.is_true(condition::READY) {
        conditions.keep(&[condition::READY]);
    } else {
        let then = "the tree is not made any more, and what there is of it goes with the namespace";
        conditions.set(condition::READY, namespace_terminating(workspace.namespace(), then));
    }
    Plan { status: Some(kept_status(before.clone(), conditions)), ..Plan::nothing() }
}

/// When `ttlAfterRelease` ends, once a Pod has used the workspace and the last one has released it.
pub(super) fn expires_at(workspace: &AgentWorkspace) -> Option<jiff::Timestamp> {
    let ttl = duration::parse(workspace.spec.ttl_after_release.as_deref()?).ok()?;
    let conditions = &workspace.status.as_ref()?.conditions;
    let in_use = find(conditions, condition::IN_USE).filter(|c| c.status == ConditionStatus::False)?;
    let since: jiff::Timestamp = in_use.last_transition_time.parse().ok()?;
    // InUse is False from the beginning. The reason Released says that the tree was used and released. An older shim did not set it; there, a transition
    // after the tree was made means the same, unless both fall into one second.
    let made: jiff::Timestamp = find(conditions, condition::PROVISIONED)?.last_transition_time.parse().ok()?;
    let released = in_use.reason == *reason::RELEASED || since > made;
    released.then(|| since.saturating_add(ttl).ok()).flatten()
}
