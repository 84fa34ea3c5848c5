//! Whether the kernel of the agent's node holds what the agent may do: its processes in their frame, and its tree by covers.

use yoi_crds::Condition;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::pod::LastReport;
use yoi_crds::reason::{self, condition};

use super::yoipod_input::YoiPodInput;
use crate::observed_pod::{ObservedPod, PodPhase};
use crate::stored::Stored;
use crate::tree;

/// The condition ScopeEnforced; `None` while neither runtime nor node has said anything of the Pod that runs the agent.
pub(super) fn condition(
    input: &YoiPodInput<'_>,
    pod: Option<Stored<'_, ObservedPod>>,
    report: Option<&LastReport>,
) -> Option<ConditionValue> {
    let pod = pod?;
    if let Some(refused) = refused(input, pod) {
        return Some(refused);
    }
    let frame = frame(report?);
    if !pod.is_scoped || frame.status != ConditionStatus::True {
        return Some(frame);
    }
    // Of a tree that several Pods have, its condition is not about this one. A Pod runs only with its covers laid.
    let is_laid = tree::loan(input.yoipod.get()).is_some() && pod.phase == PodPhase::Running;
    match of_node(input) {
        covers if is_laid || covers.is_some_and(|covers| covers.status == ConditionStatus::True) => {
            let message = "every process of the agent is kept in its frame, and the node holds the agent's scope over its tree";
            Some(ConditionValue::yes(reason::COVERS_LAID, message))
        }
        Some(_) | None => {
            let message = "the agent runs, and its node has not said yet that it holds the agent's scope over its tree";
            Some(ConditionValue::unknown(reason::STARTING, message))
        }
    }
}

/// Why the node does not mount the tree by the scope of this Pod's agent.
pub(super) fn refused(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>) -> Option<ConditionValue> {
    let refused = of_node(input).filter(|_| pod.is_scoped).filter(|covers| covers.reason == reason::COVER_REFUSED)?;
    Some(ConditionValue::no(reason::COVER_REFUSED, format!("the node does not mount the tree by spec.scope: {}", refused.message)))
}

/// What the shim says of the covers of the tree.
fn of_node<'a>(input: &YoiPodInput<'a>) -> Option<&'a Condition> {
    find(input.workspace?.get().status.as_ref()?.conditions.as_slice(), condition::SCOPE_ENFORCED)
}

fn frame(report: &LastReport) -> ConditionValue {
    match report.scope.as_deref() {
        None => ConditionValue::unknown(
            reason::FRAME_NOT_REPORTED,
            "the agent's runtime is of an earlier version and does not say whether its processes are kept in their frame; restart the agent",
        ),
        Some("") => ConditionValue::yes(reason::FRAME_ENFORCED, "every process of the agent is kept in its frame"),
        Some(lacks) => ConditionValue::no(reason::FRAME_INCOMPLETE, lacks),
    }
}
