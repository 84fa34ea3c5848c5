//! Which Pod runs the agent: what makes it, and whether the one that exists stays.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::name::annotation;
use yoi_crds::pod::{MOST_RUNS, ManifestRef, PodRef};
use yoi_crds::reason::{self, condition};

use super::acceptance::Accepted;
use super::placement::Placement;
use super::session::SessionPlan;
use super::wanted::is_wanted;
use super::yoipod_input::YoiPodInput;
use super::{assets, create, loan, lost_tree, pod_spec, policy_valid, reader, rest, session};
use crate::conditions::value_of;
use crate::duration::time_left;
use crate::node_affinity::NodeChoice;
use crate::observed_pod::{ObservedPod, PodPhase};
use crate::settings::Settings;
use crate::step::Step;
use crate::stored::{Stored, delete_all};
use crate::{meta, names};

/// How long a Pod may wait for one of the nodes with the base, before one follows that may go to others.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a node that a Pod went to may take until its shim offers what the tree needs: a node that an autoscaler made has none at first.
const SHIM_PATIENCE: Duration = Duration::from_secs(120);
/// How long a Pod that failed stays after its creation, so that one that fails at once is not made again at once.
const PAUSE: Duration = Duration::from_secs(10);

/// Whether a Pod runs the agent.
pub(super) enum RunState<'a> {
    /// The spec asks for no Pod; `stopping` while one is still going down.
    NotWanted { stopping: bool },
    /// A Pod cannot be made yet.
    Waits(ConditionValue),
    /// This plan makes what the Pod needs, or the Pod; or a former Pod is going down first.
    Starting,
    /// The Pod exists.
    Exists(Stored<'a, ObservedPod>),
}

/// The fields of the status that a run changes.
#[derive(Clone, Default)]
pub(super) struct RunRecord {
    pub run_generation: Option<i64>,
    pub manifest: Option<ManifestRef>,
    pub pod: Option<PodRef>,
}

impl RunRecord {
    /// Without the manifest of the last run, which holds no longer: the status says so before a Pod with another one is made.
    fn renewed(self) -> Self {
        RunRecord { manifest: None, ..self }
    }
}

/// What to make and delete for the Pod, and what came of it.
pub(super) struct RunPlan<'a> {
    pub state: RunState<'a>,
    pub steps: Vec<Step>,
    pub record: RunRecord,
    /// The manifest of the Pod that this plan makes. The status names it once the Pod exists, in one write with the Pod.
    pub next_manifest: Option<ManifestRef>,
    pub requeue_after: Option<Duration>,
    /// No node with the base has room: the next Pod may go to any node that can make the tree. The status says so before that Pod is made.
    pub no_room: bool,
    /// The scheduler has found no node for the Pod for some time, and no other Pod follows that may go to more nodes.
    pub unschedulable: bool,
    /// The claim that the status names; see [`session::SessionPlan`].
    pub session_claim_name: Option<String>,
    /// Why no warm session claim is taken, in the round that decides it.
    pub cold: Option<String>,
}

impl<'a> RunPlan<'a> {
    fn new(state: RunState<'a>, steps: Vec<Step>, record: RunRecord) -> Self {
        RunPlan {
            state,
            steps,
            record,
            next_manifest: None,
            requeue_after: None,
            no_room: false,
            unschedulable: false,
            session_claim_name: None,
            cold: None,
        }
    }

    /// The steps of the session's claim come first.
    fn with_session(self, session: SessionPlan) -> Self {
        let SessionPlan { steps, claim_name, is_there: _, cold } = session;
        RunPlan { session_claim_name: claim_name, cold, ..self.after(steps) }
    }

    fn after(self, earlier: Vec<Step>) -> Self {
        RunPlan { steps: earlier.into_iter().chain(self.steps).collect(), ..self }
    }
}

/// `accepted` is why the spec is not accepted, or what a Pod is made from.
pub(super) fn plan<'a>(
    input: &YoiPodInput<'a>,
    accepted: Result<&Accepted<'_>, &ConditionValue>,
    settings: &Settings,
    now: jiff::Timestamp,
) -> RunPlan<'a> {
    let record = record_before(input);
    if !is_wanted(input, now) {
        let state = RunState::NotWanted { stopping: !input.own_pods.is_empty() };
        return RunPlan::new(state, delete_all(input.own_pods.iter().copied()), record).with_session(session::keep(input));
    }
    match (input.own_pods.split_first(), accepted) {
        (None, Err(why)) => RunPlan::new(RunState::Waits(why.clone()), Vec::new(), record).with_session(session::keep(input)),
        // One writer or one reader: some session volumes cannot be mounted by both, and what is read must not change meanwhile.
        (None, Ok(_)) if !input.readers.is_empty() => {
            RunPlan::new(RunState::Starting, Vec::new(), record).with_session(session::keep(input))
        }
        (None, Ok(accepted)) => {
            let is_renewed = accepted.is_renewed && record.manifest.is_some();
            let session = session::plan(input, Some(accepted), settings, now);
            let record = if is_renewed { record.renewed() } else { record };
            start(input, accepted, &session, settings, record, now).with_session(session)
        }
        (Some((newest, _)), Ok(_) | Err(_)) if let Some(session) = session::give_back(input, *newest) => {
            RunPlan::new(RunState::Starting, Vec::new(), record).with_session(session)
        }
        // What the spec no longer finds is not needed any more: there is a Pod.
        (Some((newest, older)), Ok(_) | Err(_)) => {
            let session = session::plan(input, accepted.ok(), settings, now);
            let older = delete_all(older.iter().copied());
            keep(input, *newest, accepted.ok(), settings, record, now).after(older).with_session(session)
        }
    }
}

/// What earlier plans wrote. When the Pod that the status names is gone, the next one is another run; the status says so before that Pod is made.
fn record_before(input: &YoiPodInput<'_>) -> RunRecord {
    let before = &input.before;
    let record = RunRecord { run_generation: before.run_generation, manifest: before.manifest.clone(), pod: before.pod.clone() };
    let exists = |pod: &PodRef| input.own_pods.iter().any(|own| own.uid().as_str() == pod.uid);
    if before.pod.as_ref().is_none_or(exists) {
        let stopped = rest::ended_by_stop(input, before.run_generation).filter(|_| before.pod.is_none());
        return RunRecord { run_generation: stopped.or(record.run_generation), ..record };
    }
    let next = before.run_generation.max(volume_run_generation(input)).unwrap_or(0).saturating_add(1).min(MOST_RUNS);
    RunRecord { run_generation: Some(next), pod: None, ..record }
}

/// The run generation that the session volume has seen, if it refused the last Pod for its lower one: a former agent used the volume.
fn volume_run_generation(input: &YoiPodInput<'_>) -> Option<i64> {
    let (report, pod) = (input.before.report.as_ref()?, input.before.pod.as_ref()?);
    // The report is about the volume that this Pod mounts, and no agent may bring its successor to the end of the numbers.
    report.volume_run_generation.filter(|seen| report.pod_uid == pod.uid && (0..MOST_RUNS).contains(seen))
}

/// Keeps the Pod, or replaces it when it can no longer run the agent.
fn keep<'a>(
    input: &YoiPodInput<'a>,
    pod: Stored<'a, ObservedPod>,
    accepted: Option<&Accepted<'_>>,
    settings: &Settings,
    record: RunRecord,
    now: jiff::Timestamp,
) -> RunPlan<'a> {
    let tree = input.workspace.map(|workspace| workspace.uid());
    let is_former = pod.run_generation < record.run_generation.unwrap_or(0) || pod.tree() != tree;
    // A Pod that does not run yet waits for the tree; a tree that is being deleted is never mounted again, and waits for the Pod.
    let waits_for_ever = pod.phase != PodPhase::Running && input.workspace.is_some_and(|workspace| workspace.is_deleting());
    // Only a Pod of a higher run generation can use the session volume.
    let is_refused = volume_run_generation(input).is_some_and(|seen| seen >= pod.run_generation);
    let is_outdated = accepted.is_some_and(|accepted| is_outdated(input, pod, accepted, settings));
    if pod.is_deleting() || is_former || waits_for_ever || is_refused || is_outdated || rest::has_closed(input, pod) {
        let is_renewed = is_outdated && accepted.is_some_and(|accepted| accepted.project.is_some());
        let record = if is_renewed { record.renewed() } else { record };
        let no_room = was_no_room(input) && pod.tree() == tree && input.workspace.is_some_and(|workspace| workspace.node_name().is_none());
        return RunPlan { no_room, ..RunPlan::new(RunState::Starting, pod.delete().into_iter().collect(), record) };
    }
    let record = RunRecord {
        run_generation: Some(pod.run_generation),
        pod: Some(PodRef { name: pod.name().to_owned(), uid: pod.uid().as_str().to_owned() }),
        manifest: input.manifest_of(pod).map_or(record.manifest, |map| manifest_ref(map.get())),
    };
    let set_annotations = set_tokens(input, pod).into_iter().chain(rest::set_rest(input, pod));
    let left_out = accepted.and_then(|accepted| assets::leave_out(pod, accepted.resolved.assets.as_deref(), settings));
    let set_annotations = set_annotations.chain(policy_valid::set_policy(input, pod)).chain(left_out).collect();
    let plan = match pod.phase {
        PodPhase::Failed | PodPhase::Succeeded => replace(pod, record, now),
        PodPhase::Running | PodPhase::Other if trusts_former_gateway(input, pod, settings) => replace(pod, record, now),
        PodPhase::Running | PodPhase::Other => find_room(input, pod, accepted, settings, record, now),
    };
    plan.after(set_annotations)
}

/// A changed limit of tokens reaches the Pod that is there. A Pod of an earlier version shows its runtime none.
fn set_tokens(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>) -> Option<Step> {
    let (has, wanted) = (meta::annotation(pod.meta(), annotation::TOKENS)?, pod_spec::tokens(input.yoipod.get()));
    (has != wanted).then(|| Step::SetTokens { pod: pod.target(), tokens: wanted })
}

/// Whether spec or project have changed since the Pod was made in what does not reach it, and the agent is not ready: somebody fixes what it waits for. A ready agent keeps its
/// Pod, and takes a change at its next start.
fn is_outdated(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>, accepted: &Accepted<'_>, settings: &Settings) -> bool {
    let is_ready = input.before.report.as_ref().is_some_and(|report| report.pod_uid == pod.uid().as_str() && report.ready);
    let (Some(made_from), Some(workspace)) = (meta::annotation(pod.meta(), annotation::SETTINGS_DIGEST), input.workspace) else {
        return false;
    };
    let Some(path) = workspace.get().tree_path() else { return false };
    !is_ready && made_from != create::settings_digest(accepted, input.yoipod, path, settings)
}

fn manifest_ref(map: &ConfigMap) -> Option<ManifestRef> {
    let text = map.data.as_ref()?.get(yoi_wire::identity::MANIFEST_FILE)?;
    Some(ManifestRef { name: map.metadata.name.clone()?, digest: names::sha256(text.as_bytes()) })
}

/// The gateway's keys are of another CA than the one in the Pod's manifest: the Pod can dial no gateway any more, and nobody reaches it.
fn trusts_former_gateway(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>, settings: &Settings) -> bool {
    let map = input.manifest_of(pod);
    let text = map.as_ref().and_then(|map| map.data.as_ref()?.get(yoi_wire::identity::MANIFEST_FILE));
    let manifest = text.and_then(|text| serde_json::from_str::<yoi_wire::manifest::AgentManifest>(text).ok());
    manifest.is_some_and(|manifest| manifest.gateway.ca != settings.gateway.ca)
}

/// A Pod that was evicted, whose node was deleted, or that nobody can reach: another one takes its place.
fn replace<'a>(pod: Stored<'a, ObservedPod>, record: RunRecord, now: jiff::Timestamp) -> RunPlan<'a> {
    let made = pod.meta().creation_timestamp.as_ref().map_or(now, |t| t.0);
    let left = time_left(made, PAUSE, now);
    let steps = if left.is_none() { pod.delete().into_iter().collect() } else { Vec::new() };
    RunPlan { requeue_after: left, ..RunPlan::new(RunState::Exists(pod), steps, record) }
}

/// Keeps a Pod that can get its tree. One that finds no room among the nodes with the base makes way for one that may go to any node that can make the
/// tree; one on a node that cannot make it, for one that avoids that node. Each of these Pods is another one because of what is observed of the nodes, so
/// while nothing changes there, there are at most as many as nodes. One that waits, and that no node would take which it avoids, stays.
fn find_room<'a>(
    input: &YoiPodInput<'a>,
    pod: Stored<'a, ObservedPod>,
    accepted: Option<&Accepted<'_>>,
    settings: &Settings,
    record: RunRecord,
    now: jiff::Timestamp,
) -> RunPlan<'a> {
    let stays = RunPlan::new(RunState::Exists(pod), Vec::new(), record);
    let Some(workspace) = input.workspace else { return stays };
    let placement = Placement::new(input, workspace, None, now);
    let unscheduled_since = pod.unscheduled.as_ref().and_then(|unscheduled| unscheduled.no_node_since).filter(|_| pod.node.is_none());
    if !placement.is_open() {
        let left = unscheduled_since.map(|since| time_left(since, PATIENCE, now));
        return RunPlan { requeue_after: left.flatten(), unschedulable: left == Some(None), ..stays };
    }
    let gives_way = || pod.delete().into_iter().collect::<Vec<Step>>();
    let runtime = placement.nodes().and_then(|nodes| runtime(input, settings, &nodes));
    match (pod.node.as_deref(), unscheduled_since, runtime) {
        (None, Some(since), runtime) => {
            let stays = RunPlan { no_room: was_no_room(input), ..stays };
            if let Some(left) = time_left(since, PATIENCE, now) {
                return RunPlan { requeue_after: Some(left), ..stays };
            }
            let wanted = accepted.map(|accepted| &accepted.resolved.pod);
            let may_take = |node: &str| wanted.is_none_or(|wanted| input.nodes.may_take(node, wanted));
            let is_avoided_for_nothing =
                |digest: &str| pod.choice.avoided.iter().any(|node| may_take(node) && placement.can_make(node, digest));
            let is_too_narrow =
                if pod.choice.is_bound { stays.no_room } else { runtime.is_ok_and(|(digest, _)| is_avoided_for_nothing(&digest)) };
            let steps = if is_too_narrow { gives_way() } else { Vec::new() };
            RunPlan { steps, no_room: true, unschedulable: !pod.choice.is_bound && !is_too_narrow, ..stays }
        }
        (Some(node), _, Ok((digest, able))) if input.nodes.exists(node) => {
            if placement.can_make(node, &digest) {
                return RunPlan { requeue_after: placement.recheck(node), ..stays };
            }
            if placement.is_stuck_on(node) {
                let is_better_elsewhere = able.iter().any(|other| *other != node);
                return RunPlan { steps: if is_better_elsewhere { gives_way() } else { Vec::new() }, ..stays };
            }
            let left = time_left(pod.scheduled_at.unwrap_or(now), SHIM_PATIENCE, now);
            RunPlan { steps: if left.is_none() { gives_way() } else { Vec::new() }, requeue_after: left, ..stays }
        }
        (Some(_), _, _) | (None, None, _) => stays,
    }
}

/// Whether an earlier plan found that no node with the base has room.
fn was_no_room(input: &YoiPodInput<'_>) -> bool {
    find(&input.before.conditions, condition::WORKSPACE_READY).is_some_and(|c| c.reason == reason::NO_ROOM)
}

/// Makes what the first Pod needs, in order, and then the Pod.
fn start<'a>(
    input: &YoiPodInput<'a>,
    accepted: &Accepted<'_>,
    session: &SessionPlan,
    settings: &Settings,
    record: RunRecord,
    now: jiff::Timestamp,
) -> RunPlan<'a> {
    // Before its first Pod the status names no number: the first one is known, and one write names it with that Pod.
    let generation = record.run_generation.unwrap_or(names::FIRST_RUN);
    let waits = |why, steps| RunPlan::new(RunState::Waits(why), steps, record.clone());
    if let Some(lost) = lost_tree::why(input) {
        return waits(lost, Vec::new());
    }
    let Some(workspace) = input.workspace else {
        // A YoiPod without a tree is accepted only with its project.
        let Some(project) = accepted.project else { return RunPlan::new(RunState::Starting, Vec::new(), record) };
        let workspace = create::workspace(input, project);
        return RunPlan::new(RunState::Starting, vec![Step::EnsureWorkspace(Box::new(workspace))], record);
    };
    if workspace.is_deleting() {
        let message = format!("AgentWorkspace {} is being deleted; it must be gone first", workspace.name());
        return waits(ConditionValue::no(reason::CREATING, message), Vec::new());
    }
    if let Some(why) = loan::waits(input, now) {
        return waits(why, Vec::new());
    }
    let placement = Placement::new(input, workspace, Some(&accepted.resolved.pod), now);
    let no_room = was_no_room(input) && placement.is_open();
    let nodes = match placement.nodes() {
        Ok(nodes) => nodes,
        Err(why) => return waits(why, placement.base_for_session().into_iter().collect()),
    };
    let Some(tree) = create::ShownTree::new(workspace) else {
        return waits(no_path_yet(workspace), Vec::new());
    };
    // The status names the run generation before another Pod than the first bears it, and a Pod can only use a claim that exists.
    let is_recorded = input.before.run_generation == record.run_generation && input.before.pod.is_none();
    if !is_recorded || !session.is_there {
        return RunPlan { no_room, ..RunPlan::new(RunState::Starting, Vec::new(), record) };
    }
    let (runtime_digest, able) = match runtime(input, settings, &nodes) {
        Ok(found) => found,
        Err(why) => return waits(why, Vec::new()),
    };
    // A Pod that only nodes with the base may take, and whose own settings allow none of these, would wait for nothing.
    let is_free = no_room || (placement.is_open() && !able.iter().any(|node| placement.is_selected(node)));
    let able: Vec<String> = able.into_iter().map(str::to_owned).collect();
    let choice = if is_free {
        let avoided = input.nodes.0.keys().filter(|node| !placement.can_make(node, &runtime_digest)).cloned().collect();
        NodeChoice::Any { preferred: able, avoided }
    } else {
        NodeChoice::Only(able)
    };
    let created = create::pod(input, accepted, tree, settings, generation, &runtime_digest, choice);
    let steps = reader::confirm_gone(input).into_iter().chain(created.steps).collect();
    RunPlan { no_room, next_manifest: Some(created.manifest), ..RunPlan::new(RunState::Starting, steps, record) }
}

/// Why it is not known where a tree shows: what keeps the operator from making the tree, else that it has not seen the workspace yet.
fn no_path_yet(workspace: Stored<'_, AgentWorkspace>) -> ConditionValue {
    match find(workspace.conditions(), condition::READY) {
        Some(ready) => value_of(ConditionStatus::False, &ready.reason, &ready.message),
        None => {
            let message = format!("the operator has not written yet where AgentWorkspace {} shows", workspace.name());
            ConditionValue::no(reason::CREATING, message)
        }
    }
}

/// The digest of the runtime that the Pod runs, and those of `nodes` that offer it; or why there is none.
pub(super) fn runtime<'a>(
    input: &YoiPodInput<'_>,
    settings: &Settings,
    nodes: &[&'a str],
) -> Result<(String, Vec<&'a str>), ConditionValue> {
    let none = |why: String| ConditionValue::no(reason::NO_ELIGIBLE_NODE, why);
    let Some(digest) = input.nodes.runtime_digest(settings.runtime_digest.as_deref(), nodes) else {
        let why = "no node with the tree offers a yoi-runtime binary; see `kubectl get workspacenodes -o yaml`, status.runtimeDigests";
        return Err(none(why.to_owned()));
    };
    let able = nodes.iter().copied().filter(|node| input.nodes.0.get(*node).is_some_and(|node| node.has_runtime(&digest)));
    let able: Vec<&str> = able.collect();
    if able.is_empty() {
        return Err(none(format!("no node with the tree offers yoi-runtime {digest}; the yoi-agent-shim Pods may be of another version")));
    }
    Ok((digest, able))
}
