//! The end of a project: it stays as long as something names it. Its agents need its defaults when they start again, and its bases when somebody asks what
//! they changed.

use yoi_crds::YoiProject;
use yoi_crds::YoiProjectStatus;
use yoi_crds::condition::ConditionValue;
use yoi_crds::name::finalizer;
use yoi_crds::reason::{self, condition};

use super::{Observed, sync};
use crate::conditions::{ConditionSet, namespace_terminating};
use crate::step::Plan;
use crate::stored::Stored;
use crate::warm;

/// Names in a message; of more there is only the number.
const MOST_NAMES: usize = 5;

/// When nothing names the project any more, its finalizer goes, and the garbage collector deletes the bases.
pub(super) fn plan(project: Stored<'_, YoiProject>, seen: &Observed, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let agents: Vec<&str> = Stored::all(&seen.agents).into_iter().map(Stored::name).collect();
    let trees = Stored::all(&seen.trees).into_iter();
    // The tree of an agent goes with its agent.
    let trees: Vec<&str> = trees.map(Stored::name).filter(|tree| !agents.contains(tree)).collect();
    if agents.is_empty() && trees.is_empty() {
        // Somebody may have written the shim's finalizer here, and no shim looks at projects.
        let steps = project.remove_finalizer(finalizer::OPERATOR).or_else(|| project.remove_finalizer(finalizer::NODE_DATA));
        return Plan::only(steps.into_iter().collect());
    }
    if !project.has_finalizer(finalizer::OPERATOR) {
        return Plan::nothing();
    }
    // The namespace takes its agents with it, so nobody need delete them.
    let ready = if seen.terminating {
        let then = format!("the project goes when {} no longer exist", names_of(&agents, &trees));
        namespace_terminating(project.namespace(), &then)
    } else {
        ConditionValue::no(reason::WAITING_FOR_AGENTS, waits_for(project.namespace(), &agents, &trees))
    };
    let warm = project.status.as_ref().and_then(|status| status.warm.as_deref());
    Plan { steps: warm::teardown(project, warm, &seen.warm), ..with_ready(project, ready, now) }
}

/// Nothing to do but to say so. The other conditions and fields stay as they are.
pub(super) fn with_ready(project: Stored<'_, YoiProject>, ready: ConditionValue, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
    let before = project.status.clone().unwrap_or_default();
    let mut conditions = ConditionSet::new(&before.conditions, project.meta().generation, now);
    conditions.keep(&[condition::SOURCE_READY, condition::SEALED, condition::REFRESHED]);
    conditions.set(condition::READY, ready);
    let status = YoiProjectStatus {
        observed_generation: project.meta().generation,
        sync: sync::own_fields(before.sync.clone()),
        conditions: conditions.into_conditions(),
        ..before.clone()
    };
    Plan { steps: Vec::new(), status: Some(status), requeue_after: None }
}

fn names_of(agents: &[&str], trees: &[&str]) -> String {
    let named = |kind: &str, names: &[&str]| {
        let more = names.len().saturating_sub(MOST_NAMES);
        let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
        let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!names.is_empty()).then(|| format!("{kind}{} {shown}{rest}", if names.len() == 1 { "" } else { "s" }))
    };
    let what: Vec<String> = [named("YoiPod", agents), named("AgentWorkspace", trees)].into_iter().flatten().collect();
    what.join(" and ")
}

fn waits_for(namespace: &str, agents: &[&str], trees: &[&str]) -> String {
    let command = |verb: &str, names: &[&str]| {
        let names = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(" ");
        (!names.is_empty()).then(|| format!("`kubectl yoi {verb} {names} -n {namespace}`"))
    };
    let commands: Vec<String> = [command("rm", agents), command("workspace rm", trees)].into_iter().flatten().collect();
    format!(
        "being deleted: it stays until {} no longer exist; those that have a tree go on, and nothing new begins from it. What deleting them would \
         lose: {}",
        names_of(agents, trees),
        commands.join(", ")
    )
}
