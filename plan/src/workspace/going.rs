//! The end of a workspace: in which order what it holds goes, and when its time is over.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::name::finalizer;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus};

use super::Observed;
use super::claim::tree_behind;
use crate::conditions::ConditionSet;
use crate::duration;
use crate::meta::{self, controlled_by, deleting, target, uid};
use crate::names;
use crate::step::{Kind, Plan, Step};

/// The claim first (it waits for its Pods), then the volume, then the shim's share, then ours.
pub(super) fn going(seen: &Observed, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
    let workspace = &seen.workspace;
    let meta = &workspace.metadata;
    let ours = |m: &ObjectMeta| controlled_by(m, uid(meta));
    let mut steps: Vec<Step> = Vec::new();
    let claim = seen.claim.as_ref().filter(|c| ours(&c.metadata));
    if let Some(claim) = claim.filter(|c| !deleting(&c.metadata)) {
        steps.push(Step::Delete(target(Kind::Claim, &claim.metadata)));
    }
    let volume = seen.volume.as_ref().filter(|v| tree_behind(v) == Some(uid(meta)));
    if let Some(volume) = volume.filter(|v| claim.is_none() && !deleting(&v.metadata)) {
        steps.push(Step::Delete(target(Kind::Volume, &volume.metadata)));
    }
    for pod in seen.populators.iter().filter(|p| !deleting(&p.metadata)) {
        steps.push(Step::Delete(target(Kind::Pod, &pod.metadata)));
    }
    let left = claim.is_some() || volume.is_some() || !seen.populators.is_empty();
    let node = workspace.status.as_ref().and_then(|s| s.node_name.as_deref());
    // Without a node no shim ever held anything. With a node that no longer exists, no shim will ever answer: NotReady is not enough for that.
    let nobody_cleans = node.is_none_or(|n| !seen.nodes.exists(n));
    let node_data = meta::without_finalizer(Kind::Workspace, meta, finalizer::NODE_DATA);
    if !left {
        match node_data {
            Some(step) if nobody_cleans => steps.push(step),
            Some(_) => {}
            None => {
                // A volume has no owner that it would go with.
                let last = meta::without_finalizer(Kind::Workspace, meta, finalizer::OPERATOR);
                if workspace.spec.claim && last.is_some() {
                    let gone = |kind, namespace: &str, name| Step::ConfirmGone {
                        kind,
                        namespace: namespace.to_owned(),
                        name,
                        of: uid(meta).to_owned(),
                    };
                    steps.push(gone(Kind::Claim, meta::namespace(meta), meta::name(meta).to_owned()));
                    steps.push(gone(Kind::Volume, "", names::volume(uid(meta))));
                }
                steps.extend(last);
            }
        }
    }
    if !steps.is_empty() || !left && meta::without_finalizer(Kind::Workspace, meta, finalizer::NODE_DATA).is_none() {
        return Plan::only(steps);
    }
    // Waiting for others: say for whom, by the shim's words where it has some.
    let before = workspace.status.clone().unwrap_or_default();
    let mut saying = ConditionSet::new(&before.conditions, meta.generation, now);
    match find(&before.conditions, condition::CLEANED_UP) {
        Some(c) if c.status != ConditionStatus::True => saying.repeat(condition::READY, ConditionStatus::False, &c.reason, &c.message),
        _ => saying.say(
            condition::READY,
            ConditionValue::no(reason::WAITING_FOR_PODS, "being deleted: waits for Pods, then for the node to destroy the tree"),
        ),
    }
    for type_ in [condition::ACCEPTED, condition::SCHEDULED, condition::POPULATED, condition::BOUND] {
        if let Some(c) = find(&before.conditions, type_) {
            saying.repeat(type_, c.status, &c.reason, &c.message);
        }
    }
    let status = AgentWorkspaceStatus { conditions: saying.done(), provider: None, volume: None, ..before };
    Plan { steps: Vec::new(), status: Some(status), requeue_after: None }
}

/// `ttlAfterRelease` after the last Pod let the claim go.
pub(super) fn expired(seen: &Observed, now: jiff::Timestamp) -> Option<Plan<AgentWorkspaceStatus>> {
    let due = released_until(&seen.workspace)?;
    (due <= now).then(|| Plan::only(vec![Step::Delete(target(Kind::Workspace, &seen.workspace.metadata))]))
}

/// When the workspace's time is over, once it has been used and let go.
pub(super) fn released_until(workspace: &AgentWorkspace) -> Option<jiff::Timestamp> {
    let ttl = duration::parse(workspace.spec.ttl_after_release.as_deref()?).ok()?;
    let conditions = &workspace.status.as_ref()?.conditions;
    let in_use = find(conditions, condition::IN_USE).filter(|c| c.status == ConditionStatus::False)?;
    let since: jiff::Timestamp = in_use.last_transition_time.parse().ok()?;
    // InUse is False from the making on. That somebody used the tree and let it go says the reason; a shim of a former version said it only by a
    // later time, which is none within the second in which the tree was made.
    let made: jiff::Timestamp = find(conditions, condition::PROVISIONED)?.last_transition_time.parse().ok()?;
    let released = in_use.reason == *reason::RELEASED || since > made;
    released.then(|| since.saturating_add(ttl).ok()).flatten()
}
