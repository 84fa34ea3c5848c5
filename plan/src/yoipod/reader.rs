//! The Pod by which people read an agent that has stopped: its session volume and its tree, both read-only. It takes no lock, calls no model and is no
//! run of the agent. The gateway asks for it when somebody wants log, diff or patch, and it goes when nobody has asked for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use yoi_crds::AgentWorkspace;
use yoi_crds::assets::Assets;
use yoi_crds::condition::ConditionValue;
use yoi_crds::name::annotation;
use yoi_crds::pod::{PodRef, PodSettings};
use yoi_crds::reason;
use yoi_wire::manifest::ReaderManifest;

use super::assets::ReadBy;
use super::run::{RunPlan, RunState, runtime};
use super::yoipod_input::{SessionClaim, YoiPodInput};
use super::{acceptance, assets, create, lost_node, reader_spec, yoipod_conditions};
use crate::duration::time_left;
use crate::node_affinity::NodeChoice;
use crate::observed_pod::{ObservedPod, PodPhase};
use crate::settings::Settings;
use crate::step::{Kind, Step};
use crate::stored::{Stored, delete_all};
use crate::tree::holder;
use crate::visibility::agent_ref;
use crate::{meta, names};

/// How long the Pod is wanted after a request.
const WANTED_FOR: Duration = Duration::from_secs(120);
/// How long a Pod that failed stays after its creation, so that one that fails at once is not made again at once.
const PAUSE: Duration = Duration::from_secs(10);

/// What to make and delete for the reader, and what came of it.
#[derive(Default)]
pub(super) struct ReaderPlan {
    pub steps: Vec<Step>,
    /// The Pod that may read, for the status.
    pub pod: Option<PodRef>,
    /// The condition ReaderReady; `None` while nobody asks for a reader.
    pub ready: Option<ConditionValue>,
    pub requeue_after: Option<Duration>,
}

impl ReaderPlan {
    fn waits(why: ConditionValue) -> Self {
        ReaderPlan { ready: Some(why), ..ReaderPlan::default() }
    }
}

/// What the Pod is made from.
struct Sources<'a> {
    tree: Option<Stored<'a, AgentWorkspace>>,
    claim: Stored<'a, PersistentVolumeClaim>,
    manifest: ReaderManifest,
    digest: String,
}

/// `run` is what the agent's own Pod needs: while there is one, or one is wanted, there is no reader.
pub(super) fn plan(input: &YoiPodInput<'_>, run: &RunPlan<'_>, settings: &Settings, now: jiff::Timestamp) -> ReaderPlan {
    let all_go = || delete_all(input.readers.iter().copied());
    let left = match run.state {
        RunState::NotWanted { .. } => time_wanted(input, now),
        RunState::Waits(_) | RunState::Starting | RunState::Exists(_) => None,
    };
    let Some(left) = left else { return ReaderPlan { steps: all_go(), ..ReaderPlan::default() } };
    let plan = match (&run.state, claim(input)) {
        (RunState::NotWanted { stopping: true }, _) => {
            let lost = input.own_pods.iter().find_map(|pod| lost_node::goes_down(input, *pod, "its session can be read"));
            let why = lost.unwrap_or_else(|| ConditionValue::no(reason::STOPPING, "the agent's own Pod is going down first"));
            ReaderPlan { steps: all_go(), ..ReaderPlan::waits(why) }
        }
        (_, Err(why)) => ReaderPlan { steps: all_go(), ..ReaderPlan::waits(why) },
        (_, Ok(claim)) => keep_or_make(input, &sources(input, claim, settings), settings, now),
    };
    ReaderPlan { requeue_after: plan.requeue_after.into_iter().chain([left]).min(), ..plan }
}

/// The step that has the reader gone before something else begins, in case it was made and is not observed yet.
pub(super) fn confirm_gone(input: &YoiPodInput<'_>) -> Option<Step> {
    input.before.reader.as_ref()?;
    let yoipod = input.yoipod;
    Some(Step::ConfirmGone {
        kind: Kind::Pod,
        namespace: yoipod.namespace().to_owned(),
        name: names::reader(yoipod.name()),
        of: yoipod.uid().as_str().to_owned(),
    })
}

/// How long the reader is wanted; `None` when it is not. A request from the future is nobody's, and would be wanted for ever.
fn time_wanted(input: &YoiPodInput<'_>, now: jiff::Timestamp) -> Option<Duration> {
    let requested_at = input.before.reader.as_ref()?.requested_at.as_deref()?;
    let left = time_left(requested_at.parse().ok()?, WANTED_FOR, now)?;
    (left <= 2 * WANTED_FOR).then_some(left)
}

/// The claim that holds the agent's session, or why there is none.
fn claim<'a>(input: &YoiPodInput<'a>) -> Result<Stored<'a, PersistentVolumeClaim>, ConditionValue> {
    let title = &input.session_claim_name;
    match input.session_claim {
        SessionClaim::Own(Some(claim)) | SessionClaim::Named(Some(claim)) if claim.is_deleting() => {
            Err(ConditionValue::no(reason::NO_SESSION, format!("claim {title}, which holds the session, is being deleted")))
        }
        SessionClaim::Own(Some(claim)) | SessionClaim::Named(Some(claim)) => Ok(claim),
        SessionClaim::Named(None) => {
            Err(ConditionValue::no(reason::SOURCE_NOT_FOUND, format!("PersistentVolumeClaim {title} does not exist")))
        }
        SessionClaim::Own(None) | SessionClaim::Former(_) | SessionClaim::Undecided | SessionClaim::Chosen(_) => {
            Err(ConditionValue::no(reason::NO_SESSION, "the agent has never run, so there is nothing to read"))
        }
    }
}

fn sources<'a>(input: &YoiPodInput<'a>, claim: Stored<'a, PersistentVolumeClaim>, settings: &Settings) -> Sources<'a> {
    let tree = readable_tree(input);
    let manifest = ReaderManifest {
        agent: agent_ref(input.yoipod.get()),
        path: tree.and_then(|tree| tree.get().tree_path()).map(str::to_owned),
        assets: assets::wire(assets_of(input).as_deref(), settings, ReadBy::Reader),
        gateway: settings.gateway.clone(),
    };
    let tree_uid = tree.map(|tree| tree.uid().as_str());
    // Serializing these types does not fail; if it did, no Pod would be replaced for it.
    let text = serde_json::to_vec(&(&manifest, tree_uid, claim.uid().as_str(), &settings.populator_image)).unwrap_or_default();
    Sources { tree, claim, manifest, digest: names::sha256(&text) }
}

/// The tree that the reader shows beside the session: it stands on its node, has a path, and is this agent's.
fn readable_tree<'a>(input: &YoiPodInput<'a>) -> Option<Stored<'a, AgentWorkspace>> {
    let workspace =
        input.workspace.filter(|workspace| !workspace.is_deleting() && !workspace.spec.claim && workspace.spec.base.is_none())?;
    let node = workspace.provisioned_on().filter(|node| input.nodes.exists(node));
    let is_own = holder(workspace, &input.users).is_some_and(|holder| holder.uid() == input.yoipod.uid());
    node.filter(|_| is_own && workspace.get().tree_path().is_some()).map(|_| workspace)
}

fn keep_or_make(input: &YoiPodInput<'_>, sources: &Sources<'_>, settings: &Settings, now: jiff::Timestamp) -> ReaderPlan {
    let Some(&pod) = input.readers.first() else { return make(input, sources, settings) };
    let title = pod.name();
    if pod.is_deleting() || meta::annotation(pod.meta(), annotation::SETTINGS_DIGEST) != Some(sources.digest.as_str()) {
        let why = ConditionValue::no(reason::STARTING, format!("Pod {title} is going down; another one follows"));
        return ReaderPlan { steps: pod.delete().into_iter().collect(), ..ReaderPlan::waits(why) };
    }
    if let Some(node) = lost_node::not_ready(input, pod) {
        let message = format!("node {node} is not ready, and Pod {title}, which reads the session, is on it");
        return ReaderPlan::waits(ConditionValue::no(reason::NODE_NOT_READY, message));
    }
    let record = Some(PodRef { name: title.to_owned(), uid: pod.uid().as_str().to_owned() });
    match (pod.phase, yoipod_conditions::not_running(pod, reader_spec::CONTAINER, false)) {
        (PodPhase::Failed | PodPhase::Succeeded, why) => {
            let why = failed(why.map_or_else(|| format!("Pod {title} has ended"), |why| why.message));
            let left = time_left(created(pod, now), PAUSE, now);
            let steps = if left.is_none() { pod.delete().into_iter().collect() } else { Vec::new() };
            ReaderPlan { steps, requeue_after: left, ..ReaderPlan::waits(why) }
        }
        (PodPhase::Running | PodPhase::Other, Some(mut why)) => {
            if let Some(tree) = lost_node::closed(input, pod) {
                why.message = format!("{tree}. {}", why.message);
            }
            let why = if why.reason == reason::POD_NOT_RUNNING { failed(why.message) } else { why };
            ReaderPlan { pod: record, ..ReaderPlan::waits(why) }
        }
        (PodPhase::Running | PodPhase::Other, None) if sources.tree.is_some() && has_no_frame(input) => {
            let message = format!(
                "Pod {title} serves the log until two minutes after the last request, and neither diff nor commits: the node's kernel keeps no process in a \
                 frame, so git is not run in what a stopped agent left"
            );
            ReaderPlan { pod: record, ..ReaderPlan::waits(ConditionValue::yes(reason::READER_WITHOUT_GIT, message)) }
        }
        (PodPhase::Running | PodPhase::Other, None) => {
            let message = format!("Pod {title} serves log, diff and patch until two minutes after the last request");
            ReaderPlan { pod: record, ..ReaderPlan::waits(ConditionValue::yes(reason::ALL_MET, message)) }
        }
    }
}

/// What the agent's own runtime has said of the node where its tree is, and the reader with it.
fn has_no_frame(input: &YoiPodInput<'_>) -> bool {
    input.before.report.as_ref().is_some_and(|report| report.has_frame == Some(false))
}

fn failed(why: String) -> ConditionValue {
    ConditionValue::no(reason::READER_FAILED, why)
}

fn created(pod: Stored<'_, ObservedPod>, now: jiff::Timestamp) -> jiff::Timestamp {
    pod.meta().creation_timestamp.as_ref().map_or(now, |at| at.0)
}

fn make(input: &YoiPodInput<'_>, sources: &Sources<'_>, settings: &Settings) -> ReaderPlan {
    let nodes = match nodes(input, sources) {
        Ok(nodes) => nodes,
        Err(why) => return ReaderPlan::waits(why),
    };
    let (runtime_digest, able) = match runtime(input, settings, &nodes) {
        Ok(found) => found,
        Err(why) => return ReaderPlan::waits(why),
    };
    let able: Vec<String> = able.into_iter().map(str::to_owned).collect();
    let pod = reader_spec::pod(reader_spec::ReaderContext {
        yoipod: input.yoipod,
        tree: sources.tree,
        owner: create::tree_owner(input, input.project),
        pod: pod_settings(input),
        assets: assets_of(input),
        manifest: &sources.manifest,
        claim: sources.claim.name(),
        runtime_digest: &runtime_digest,
        nodes: NodeChoice::Only(able),
        annotations: BTreeMap::from([(annotation::SETTINGS_DIGEST.to_owned(), sources.digest.clone())]),
        settings,
    });
    let why = ConditionValue::no(reason::STARTING, "the Pod that reads the session is being made");
    ReaderPlan { steps: vec![Step::EnsurePod(Box::new(pod))], ..ReaderPlan::waits(why) }
}

/// The nodes that the reader may go to: the tree's, else every one that takes Pods. The session volume can be reached from there.
fn nodes<'a>(input: &YoiPodInput<'a>, sources: &Sources<'a>) -> Result<Vec<&'a str>, ConditionValue> {
    let all = input.nodes.0.iter();
    let tree_on = sources.tree.and_then(|tree| tree.provisioned_on());
    if let Some(node) = tree_on.filter(|node| input.nodes.0.get(*node).is_some_and(|node| node.not_ready_since.is_some())) {
        let message = format!("the tree is on node {node}, which is not ready; it and the session can be read when the node answers");
        return Err(ConditionValue::no(reason::NODE_NOT_READY, message));
    }
    let candidates: Vec<&str> = match tree_on {
        Some(node) => vec![node],
        None => all.filter(|(_, node)| node.is_open()).map(|(name, _)| name.as_str()).collect(),
    };
    let Some(volume) = input.session_volume else { return Ok(candidates) };
    let reached: Vec<&str> = candidates.iter().copied().filter(|node| input.nodes.reaches(node, volume.get())).collect();
    if reached.is_empty() {
        let message = format!("volume {} of the session cannot be reached from {}", volume.name(), candidates.join(", "));
        return Err(ConditionValue::no(reason::SESSION_TOPOLOGY_CONFLICT, message));
    }
    Ok(reached)
}

/// How the agent would read its assets at its next start.
fn assets_of(input: &YoiPodInput<'_>) -> Option<Box<Assets>> {
    acceptance::resolve(input).ok()?.assets
}

/// The agent's Pod settings, as far as they can be known: what is missing for a start does not keep people from reading.
fn pod_settings(input: &YoiPodInput<'_>) -> PodSettings {
    acceptance::resolve(input).map_or_else(|_| input.yoipod.get().spec.pod.clone(), |resolved| resolved.pod)
}
