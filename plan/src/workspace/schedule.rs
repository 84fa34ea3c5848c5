//! Which node makes the tree, and from what.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::name::label;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{ProjectSource, ProviderName, WorkspaceSource};
use yoi_crds::workspace::{Binding, Origin, OriginKind};
use yoi_crds::{AgentWorkspace, YoiProject};

use super::claim::ObservedClaim;
use super::workspace_input::{Consumer, Source, WorkspaceInput};
use crate::meta;
use crate::nodes::{Node, Nodes};
use crate::step::Step;
use crate::stored::{Object as _, Stored};
use crate::tree::base_set::{BaseSet, ObservedBase};
use crate::tree::progress::Progress;
use crate::yoipod::lost_node::parent_gone;

/// The node that makes the tree, and what it makes the tree from.
pub(super) struct Assignment {
    pub node: String,
    pub origin: Origin,
}

/// The assignment, or why there is none yet; the bases to make and delete until there is one, and the choice of node that is given back.
pub(super) struct Schedule {
    pub assignment: Result<Assignment, ConditionValue>,
    pub steps: Vec<Step>,
    /// A base may be stuck after so long, even if nothing changes.
    pub requeue_after: Option<Duration>,
}

impl Schedule {
    /// For a spec that is not accepted.
    pub(super) fn none() -> Self {
        Self::waits(ConditionValue::no(reason::INVALID_SPEC, "not accepted"), Vec::new())
    }

    fn waits(why: ConditionValue, steps: Vec<Step>) -> Self {
        Schedule { assignment: Err(why), steps, requeue_after: None }
    }

    fn assigned(node: &str, kind: OriginKind, source: Option<Stored<'_, AgentWorkspace>>) -> Self {
        let workspace_uid = source.map(|source| source.uid().as_str().to_owned());
        let is_of_project = |owner: &OwnerReference| kind == OriginKind::Base && owner.kind == YoiProject::KIND;
        let of_project = source.filter(|source| meta::controller(source.meta()).is_some_and(is_of_project)).map(|base| {
            let WorkspaceSource { git, host, empty, project: _, workspace: _ } = base.get().spec.source.clone();
            ProjectSource { git, host, empty }
        });
        let revision = match kind {
            OriginKind::Base => source.and_then(ObservedBase::new).and_then(ObservedBase::sealed_revision).map(str::to_owned),
            OriginKind::Fork => source.and_then(inherited_revision),
            OriginKind::Empty | OriginKind::Host | OriginKind::Unknown => None,
        };
        let assignment = Assignment { node: node.to_owned(), origin: Origin { kind, workspace_uid, source: of_project, revision } };
        Schedule { assignment: Ok(assignment), steps: Vec::new(), requeue_after: None }
    }

    /// For a base that begins as a clone of a former one. Its content is that of its own commit in the end, so the former's source is not told.
    fn begins_from(node: &str, former: ObservedBase<'_>) -> Self {
        let origin = Origin {
            kind: OriginKind::Base,
            workspace_uid: Some(former.workspace.uid().as_str().to_owned()),
            source: None,
            revision: former.sealed_revision().map(str::to_owned),
        };
        Schedule { assignment: Ok(Assignment { node: node.to_owned(), origin }), steps: Vec::new(), requeue_after: None }
    }
}

/// The commit that the parent of a fork was made from. It outlives the parent in the fork's status.
fn inherited_revision(parent: Stored<'_, AgentWorkspace>) -> Option<String> {
    parent.get().status.as_ref()?.origin.as_ref()?.revision.clone()
}

/// An origin that an earlier round has written; with the commit, where that was of a version that did not write it for a fork.
fn settled(input: &WorkspaceInput<'_>, origin: &Origin) -> Origin {
    let mut origin = origin.clone();
    if let Source::Fork { parent: Some(parent), .. } = &input.source
        && origin.kind == OriginKind::Fork
        && origin.revision.is_none()
        && origin.workspace_uid.as_deref() == Some(parent.uid().as_str())
    {
        origin.revision = inherited_revision(*parent);
    }
    origin
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

/// An assignment is made once. It changes only if its base is deleted before the tree is made from it, or if a base cannot begin as a clone.
pub(super) fn schedule(input: &WorkspaceInput<'_>, now: jiff::Timestamp) -> Schedule {
    let mut schedule = assign(input, now);
    if let Source::Project { revision: Some(_), .. } = &input.source
        && let Some(base_set) = input.base_set()
    {
        let origin = input.origin.and_then(|origin| origin.workspace_uid.as_deref());
        schedule.steps.extend(base_set.delete_former_of(input.workspace, origin));
    }
    schedule
}

fn assign(input: &WorkspaceInput<'_>, now: jiff::Timestamp) -> Schedule {
    if let (Some(node), Some(origin)) = (input.node_name, input.settled_origin()) {
        let assignment = Assignment { node: node.to_owned(), origin: settled(input, origin) };
        return Schedule { assignment: Ok(assignment), steps: Vec::new(), requeue_after: None };
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
        return clone_on(node, base_set.as_ref(), first_content(input));
    }
    // This workspace is itself a base. It begins as a clone of the one before it where that spares work; else it starts empty, or is taken from a folder
    // of its node. Its populator fills it.
    if let Some(base) = input.base {
        return match base.to_begin_from(&input.bases, input.nodes) {
            Some(former) => Schedule::begins_from(base.node, former),
            None => Schedule::assigned(base.node, first_content(input), None),
        };
    }
    if let Source::Fork { name: _, parent } = &input.source {
        return fork(input, *parent);
    }
    // The first base comes before any consumer, so that the consumer's Pod has a node to go to. A project's own plan makes that of the project.
    let own = base_set.as_ref().filter(|base_set| base_set.is_of(input.workspace.uid()));
    let (first, requeue_after) = own.map_or_else(|| (Vec::new(), None), |base_set| base_set.first_base(now));
    let makes_base = first.iter().any(|step| matches!(step, Step::EnsureWorkspace(_)));
    let chosen = match choose_node(input, base_set.as_ref(), now) {
        Ok(node) => clone_for_consumer(input, &node, base_set.as_ref(), now),
        Err(NoNode { why, give_back }) => Schedule::waits(why, give_back.map(|step| *step).into_iter().collect()),
    };
    let more = chosen.steps.into_iter().filter(|step| !makes_base || !matches!(step, Step::EnsureWorkspace(_)));
    let requeue_after = requeue_after.into_iter().chain(chosen.requeue_after).min();
    // Before a consumer is there, somebody wants to read that its tree cannot be fetched.
    let failed = own.filter(|base_set| base_set.sealed_nodes().is_empty()).map(|base_set| base_set.not_populated(now));
    let failed = failed.filter(|why| why.reason == reason::POPULATE_FAILED || why.reason == reason::PREPARE_FAILED);
    let assignment = chosen.assignment.map_err(|why| failed.unwrap_or(why));
    Schedule { assignment, steps: first.into_iter().chain(more).collect(), requeue_after }
}

/// What a tree begins with that is not made from another.
fn first_content(input: &WorkspaceInput<'_>) -> OriginKind {
    match &input.source {
        Source::Host(_) => OriginKind::Host,
        Source::Project { .. } | Source::Fork { .. } | Source::Git(_) | Source::Empty => OriginKind::Empty,
    }
}

fn project_unknown_field(project: Stored<'_, YoiProject>) -> Option<ConditionValue> {
    let field = project.spec.unknown_field()?;
    let why = format!("YoiProject {}: {field} says something that this version of Yoi does not know", project.name());
    Some(ConditionValue::no(reason::PROJECT_NOT_READY, why))
}

/// The tree is made on `node`, from the sealed base there; without a base set it starts as `first` says.
fn clone_on(node: &str, base_set: Option<&BaseSet<'_>>, first: OriginKind) -> Schedule {
    let Some(base_set) = base_set else { return Schedule::assigned(node, first, None) };
    match base_set.on(node) {
        Some(base) if base.is_sealed() => Schedule::assigned(node, OriginKind::Base, Some(base.workspace)),
        Some(base) => {
            let conditions = base.workspace.conditions();
            let why = find(conditions, condition::READY).map(|c| format!(": {}", c.message)).unwrap_or_default();
            let message = format!("node {node} was chosen and its base {} is not sealed yet{why}", base.workspace.name());
            let is_stuck = find(conditions, condition::POPULATED).is_some_and(|c| c.reason == reason::POPULATOR_NOT_RUNNING);
            let reason = if is_stuck { reason::POPULATOR_NOT_RUNNING } else { reason::POPULATING };
            Schedule::waits(ConditionValue::no(reason, message), Vec::new())
        }
        None if base_set.taken_on().is_some_and(|taken| taken != node) => {
            let taken = base_set.taken_on().unwrap_or_default();
            let message = format!(
                "node {node} was chosen, and the source was taken on node {taken} by now; delete the workspace to make it anew there"
            );
            Schedule::waits(ConditionValue::no(reason::NO_ELIGIBLE_NODE, message), Vec::new())
        }
        None => {
            let message = format!("node {node} was chosen and gets a base first");
            Schedule::waits(ConditionValue::no(reason::POPULATING, message), base_set.make_where_consumer_is(node).into_iter().collect())
        }
    }
}

/// Like [`clone_on`]; but where the base on `node` is stuck and another node holds the base, a late claim's scheduler chooses again.
fn clone_for_consumer(input: &WorkspaceInput<'_>, node: &str, base_set: Option<&BaseSet<'_>>, now: jiff::Timestamp) -> Schedule {
    let schedule = clone_on(node, base_set, first_content(input));
    let Some((base_set, base)) = base_set.and_then(|base_set| Some((base_set, base_set.on(node)?))) else { return schedule };
    match base_set.progress(base, now) {
        Progress::Sealed => schedule,
        Progress::UnderWay(requeue_after) => Schedule { requeue_after, ..schedule },
        Progress::Stuck(_) => {
            let steps = schedule.steps.into_iter().chain(give_back(input, &base_set.sealed_nodes())).collect();
            Schedule { steps, ..schedule }
        }
    }
}

/// Why no node is chosen, and the step, if any, that gives the scheduler's choice back.
struct NoNode {
    why: ConditionValue,
    give_back: Option<Box<Step>>,
}

/// The node, by who will mount the tree.
fn choose_node(input: &WorkspaceInput<'_>, base_set: Option<&BaseSet<'_>>, now: jiff::Timestamp) -> Result<String, NoNode> {
    let waits = |why, message: String| Err(NoNode { why: ConditionValue::no(why, message), give_back: None });
    let provider: ProviderName = base_set.map_or(input.workspace.spec.provider, |base_set| base_set.provider);
    let mut eligible = input.nodes.eligible(provider);
    if eligible.is_empty() {
        return waits(reason::NO_ELIGIBLE_NODE, input.nodes.none_eligible(provider));
    }
    eligible.retain(|node| base_set.is_none_or(|base_set| base_set.may_be_on(node)));
    if eligible.is_empty()
        && let Some(why) = base_set.and_then(BaseSet::no_node_for_trees)
    {
        return Err(NoNode { why, give_back: None });
    }
    let (chosen, waits_for) = match &input.consumer {
        Consumer::Agent(pod) => (pod.and_then(|pod| pod.get().node.as_deref()), "waits for the YoiPod's Pod to get a node"),
        Consumer::Claim(claim) => match input.workspace.spec.binding {
            Binding::WaitForConsumer | Binding::Unknown => (claim.selected_node, "waits for the first Pod that uses the claim"),
            Binding::Immediate => match best_node(input.nodes, provider, base_set, now) {
                Some(node) => return Ok(node.to_owned()),
                None => {
                    let why = base_set.map(|base_set| base_set.not_populated(now));
                    let why = why.unwrap_or_else(|| ConditionValue::no(reason::POPULATING, "waits until the source is sealed on a node"));
                    return Err(NoNode { why, give_back: None });
                }
            },
        },
    };
    match chosen {
        Some(node) if eligible.contains(&node) => Ok(node.to_owned()),
        Some(node) => {
            let give_back = give_back(input, &eligible).map(Box::new);
            let then = match (&give_back, base_set.and_then(BaseSet::taken_on)) {
                (Some(_), _) => "the scheduler chooses again".to_owned(),
                (None, Some(_)) => "delete the Pod, so that the next one goes there".to_owned(),
                (None, None) => format!(
                    "check the yoi-agent-shim Pod there, or let the Pod go to a node that can make the tree: {}",
                    eligible.join(", ")
                ),
            };
            let why = match base_set.and_then(BaseSet::taken_on) {
                Some(taken) => format!("the source was taken on node {taken}"),
                None => "its WorkspaceNode is missing or offers no fitting provider".to_owned(),
            };
            let message = format!("node {node} was chosen by the scheduler, and {why}; {then}");
            Err(NoNode { why: ConditionValue::no(reason::NO_ELIGIBLE_NODE, message), give_back })
        }
        None => waits(reason::WAITING_FOR_CONSUMER, waits_for.to_owned()),
    }
}

/// How often a claim's choice of node is given back, beside once for each node that can make the tree. The scheduler picks among equal nodes by chance,
/// and for a Pod that can only go to this node it picks the same one for ever.
const MOST_GIVEN_BACK: u32 = 8;

/// The step that has the scheduler choose another node for a late claim; `None` when it chose none, when none of `others` takes Pods, or when it was
/// asked too often.
fn give_back(input: &WorkspaceInput<'_>, others: &[&str]) -> Option<Step> {
    let Consumer::Claim(claim) = &input.consumer else { return None };
    if input.workspace.spec.binding == Binding::Immediate {
        return None;
    }
    let is_open = |node: &&str| Some(*node) != claim.selected_node && input.nodes.0.get(*node).is_some_and(Node::is_open);
    let others = u32::try_from(others.iter().copied().filter(is_open).count()).unwrap_or(u32::MAX);
    if others == 0 || claim.times_given_back() >= MOST_GIVEN_BACK.saturating_add(others) {
        return None;
    }
    claim.unselect_node()
}

/// The node of a tree whose consumer comes later: one that holds a sealed base and takes Pods. When all that hold one take none, another node gets a base.
/// `None` while there is a source and no base of it is sealed. A tree without a source needs only a node that takes Pods, if there is one.
fn best_node<'a>(nodes: &'a Nodes, provider: ProviderName, base_set: Option<&BaseSet<'_>>, now: jiff::Timestamp) -> Option<&'a str> {
    let may_be_on = |node: &&str| base_set.is_none_or(|base_set| base_set.may_be_on(node));
    let eligible: Vec<&str> = nodes.eligible(provider).into_iter().filter(may_be_on).collect();
    // The Pods that come to use the tree are not known.
    let for_pods: Vec<&str> = nodes.eligible_for_pods(provider, &[]).into_iter().filter(may_be_on).collect();
    let Some(base_set) = base_set else { return for_pods.first().or(eligible.first()).copied() };
    let sealed = base_set.sealed_nodes();
    if sealed.is_empty() {
        return None;
    }
    let is_under_way = |node: &&&str| base_set.on(node).is_some_and(|base| matches!(base_set.progress(base, now), Progress::UnderWay(_)));
    let with_sealed = for_pods.iter().find(|node| sealed.contains(node));
    let with_base = with_sealed.or_else(|| for_pods.iter().find(is_under_way));
    let free = || for_pods.iter().find(|node| base_set.on(node).is_none());
    with_base.or_else(free).or_else(|| eligible.iter().find(|node| sealed.contains(node))).copied()
}

/// A fork is made where its parent is, once its parent has a tree.
fn fork(input: &WorkspaceInput<'_>, parent: Option<Stored<'_, AgentWorkspace>>) -> Schedule {
    let waits = |reason, message: String| Schedule::waits(ConditionValue::no(reason, message), Vec::new());
    let Some(parent) = parent else { return waits(reason::SOURCE_NOT_FOUND, "the parent does not exist".to_owned()) };
    let Some(node) = parent.provisioned_on() else {
        return waits(reason::SOURCE_NOT_SEALED, format!("AgentWorkspace {} has no tree yet", parent.name()));
    };
    if !input.nodes.exists(node) {
        return waits(reason::NODE_LOST, parent_gone(parent.name(), node));
    }
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
            // Without a choice, the tree is made at once, and its volume sends the Pod there.
            let steps = give_back(input, &[node]).into_iter().collect();
            let message = format!("a fork must be on its parent's node {node}, and the Pod that uses it is on {on}");
            Schedule::waits(ConditionValue::no(reason::PARENT_ON_OTHER_NODE, message), steps)
        }
        None => Schedule::assigned(node, OriginKind::Fork, Some(parent)),
    }
}
