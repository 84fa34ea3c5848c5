//! Which node makes the tree, and from what.

use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::name::label;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::ProviderName;
use yoi_crds::workspace::{Binding, Origin, OriginKind};
use yoi_crds::{AgentWorkspace, YoiProject};

use super::claim::ObservedClaim;
use super::workspace_input::{Consumer, Source, WorkspaceInput};
use crate::meta;
use crate::step::Step;
use crate::stored::Stored;
use crate::tree::base_set::BaseSet;

/// The node that makes the tree, and what it makes the tree from.
pub(super) struct Assignment {
    pub node: String,
    pub origin: Origin,
}

/// The assignment, or why there is none yet; and the bases to make and delete until there is one.
pub(super) struct Schedule {
    pub assignment: Result<Assignment, ConditionValue>,
    pub steps: Vec<Step>,
}

impl Schedule {
    /// For a spec that is not accepted.
    pub(super) fn none() -> Self {
        Self::waits(ConditionValue::no(reason::INVALID_SPEC, "not accepted"), Vec::new())
    }

    fn waits(why: ConditionValue, steps: Vec<Step>) -> Self {
        Schedule { assignment: Err(why), steps }
    }

    fn assigned(node: &str, kind: OriginKind, source: Option<Stored<'_, AgentWorkspace>>) -> Self {
        let workspace_uid = source.map(|source| source.uid().as_str().to_owned());
        let assignment = Assignment { node: node.to_owned(), origin: Origin { kind, workspace_uid } };
        Schedule { assignment: Ok(assignment), steps: Vec::new() }
    }
}

/// The value of the condition Scheduled.
pub(super) fn scheduled_condition(input: &WorkspaceInput<'_>, assignment: &Result<Assignment, ConditionValue>) -> ConditionValue {
    match assignment {
        Ok(Assignment { node, .. }) if input.nodes.exists(node) => ConditionValue::yes(reason::NODE_SELECTED, format!("on node {node}")),
        Ok(Assignment { node, .. }) => ConditionValue::no(
            reason::NODE_LOST,
            format!("node {node} no longer exists, and the tree was on it; delete the workspace to make a new one"),
        ),
        Err(why) => why.clone(),
    }
}

/// An assignment is made once. It changes only if its base is deleted before the tree is made from it.
pub(super) fn schedule(input: &WorkspaceInput<'_>) -> Schedule {
    if let (Some(node), Some(origin)) = (input.node_name, input.origin)
        && (input.workspace.is_true(condition::PROVISIONED) || !base_is_gone(input, origin))
    {
        return Schedule { assignment: Ok(Assignment { node: node.to_owned(), origin: origin.clone() }), steps: Vec::new() };
    }
    // A tree that is made from a source that this version does not know would lack that source's content.
    if let Source::Project { project: Some(project), .. } = &input.source
        && let Some(why) = project_unknown_field(*project)
    {
        return Schedule::waits(why, Vec::new());
    }
    let base_set = input.base_set();
    // The node chosen before may have begun to make the tree. It is kept, and the replacement base is made there.
    if let Some(node) = input.node_name.filter(|node| input.nodes.exists(node)) {
        return clone_on(node, base_set.as_ref());
    }
    // This workspace is itself a base: it starts empty, and its populator fills it.
    if let Some(base) = input.base {
        return Schedule::assigned(base.node, OriginKind::Empty, None);
    }
    if let Source::Fork { name: _, parent } = &input.source {
        return fork(input, *parent);
    }
    // The first base comes before any consumer, so that the consumer's Pod has a node to go to.
    let first = match (&input.source, &base_set) {
        (Source::Git(_), Some(base_set)) => first_base(base_set),
        // A project's own plan makes its first base.
        _ => Vec::new(),
    };
    let node = match choose_node(input, base_set.as_ref()) {
        Ok(node) => node,
        Err(why) => return Schedule::waits(why, first),
    };
    let clone = clone_on(&node, base_set.as_ref());
    let makes_base = first.iter().any(|step| matches!(step, Step::EnsureWorkspace(_)));
    let second = if makes_base { Vec::new() } else { clone.steps };
    Schedule { assignment: clone.assignment, steps: first.into_iter().chain(second).collect() }
}

fn base_is_gone(input: &WorkspaceInput<'_>, origin: &Origin) -> bool {
    let base = origin.workspace_uid.as_deref();
    origin.kind == OriginKind::Base && !input.bases.iter().any(|b| Some(b.workspace.uid().as_str()) == base)
}

fn project_unknown_field(project: Stored<'_, YoiProject>) -> Option<ConditionValue> {
    let field = project.spec.unknown_field()?;
    let why = format!("YoiProject {}: {field} says something that this version of Yoi does not know", project.name());
    Some(ConditionValue::no(reason::PROJECT_NOT_READY, why))
}

/// Deletes lost bases, and makes one while none can be cloned from.
fn first_base(base_set: &BaseSet<'_>) -> Vec<Step> {
    let mut steps = base_set.delete_lost();
    if base_set.living().next().is_none() {
        steps.extend(base_set.make_next(|_| true));
    }
    steps
}

/// The tree is made on `node`, from the sealed base there; without a base set it starts empty.
fn clone_on(node: &str, base_set: Option<&BaseSet<'_>>) -> Schedule {
    let Some(base_set) = base_set else { return Schedule::assigned(node, OriginKind::Empty, None) };
    match base_set.on(node) {
        Some(base) if base.is_sealed() => Schedule::assigned(node, OriginKind::Base, Some(base.workspace)),
        Some(base) => {
            let ready = find(base.workspace.conditions(), condition::READY);
            let why = ready.map(|c| format!(": {}", c.message)).unwrap_or_default();
            let message = format!("node {node} was chosen and its base {} is not sealed yet{why}", base.workspace.name());
            Schedule::waits(ConditionValue::no(reason::POPULATING, message), Vec::new())
        }
        None => {
            let message = format!("node {node} was chosen and gets a base first");
            Schedule::waits(ConditionValue::no(reason::POPULATING, message), base_set.make_on(node).into_iter().collect())
        }
    }
}

/// The node, by who will mount the tree.
fn choose_node(input: &WorkspaceInput<'_>, base_set: Option<&BaseSet<'_>>) -> Result<String, ConditionValue> {
    let provider: ProviderName = base_set.map_or(input.workspace.spec.provider, |base_set| base_set.provider);
    let eligible = input.nodes.eligible(provider);
    if eligible.is_empty() {
        return Err(ConditionValue::no(reason::NO_ELIGIBLE_NODE, input.nodes.none_eligible(provider)));
    }
    let (chosen, waits_for) = match &input.consumer {
        Consumer::Agent(pod) => (pod.and_then(|pod| pod.get().node.as_deref()), "waits for the YoiPod's Pod to get a node"),
        Consumer::Claim(claim) => {
            let chosen = match input.workspace.spec.binding {
                Binding::WaitForConsumer | Binding::Unknown => claim.selected_node,
                Binding::Immediate => best_node(&eligible, base_set),
            };
            (chosen, "waits for the first Pod that uses the claim")
        }
    };
    match chosen {
        Some(node) if eligible.contains(&node) => Ok(node.to_owned()),
        Some(node) => Err(ConditionValue::no(
            reason::NO_ELIGIBLE_NODE,
            format!(
                "node {node} was chosen by the scheduler, and its WorkspaceNode is missing or offers no fitting provider; check the yoi-agent-shim Pod there"
            ),
        )),
        None => Err(ConditionValue::no(reason::WAITING_FOR_CONSUMER, waits_for)),
    }
}

/// The first eligible node that holds a sealed base; else the first.
fn best_node<'a>(eligible: &[&'a str], base_set: Option<&BaseSet<'_>>) -> Option<&'a str> {
    let sealed = base_set.map(BaseSet::sealed_nodes).unwrap_or_default();
    eligible.iter().find(|node| sealed.contains(node)).or(eligible.first()).copied()
}

/// A fork is made where its parent is, once its parent has a tree.
fn fork(input: &WorkspaceInput<'_>, parent: Option<Stored<'_, AgentWorkspace>>) -> Schedule {
    let waits = |reason, message: String| Schedule::waits(ConditionValue::no(reason, message), Vec::new());
    let Some(parent) = parent else { return waits(reason::SOURCE_NOT_FOUND, "the parent does not exist".to_owned()) };
    let Some(node) = parent.provisioned_on() else {
        return waits(reason::SOURCE_NOT_SEALED, format!("AgentWorkspace {} has no tree yet", parent.name()));
    };
    let consumer_node = match &input.consumer {
        // The copy must be of this moment, so it is made at once. A Pod that was sent to another node already cannot have it.
        Consumer::Claim(ObservedClaim { selected_node, .. }) if input.workspace.spec.binding == Binding::WaitForConsumer => *selected_node,
        Consumer::Claim(_) => None,
        // A YoiPod's own tree is made where its Pod runs, so its Pod gets a node first.
        Consumer::Agent(pod) if meta::label(input.workspace.meta(), label::YOIPOD).is_some() => {
            match pod.and_then(|pod| pod.get().node.as_deref()) {
                Some(node) => Some(node),
                None => return waits(reason::WAITING_FOR_CONSUMER, "waits for the YoiPod's Pod to get a node".to_owned()),
            }
        }
        Consumer::Agent(_) => None,
    };
    match consumer_node.filter(|on| *on != node) {
        Some(on) => {
            waits(reason::PARENT_ON_OTHER_NODE, format!("a fork must be on its parent's node {node}, and the Pod that uses it is on {on}"))
        }
        None => Schedule::assigned(node, OriginKind::Fork, Some(parent)),
    }
}
