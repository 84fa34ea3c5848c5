//! YoiPod: one agent, its tree, its session volume, and the Pod that runs it now.

mod home;
mod make;
pub mod manifest;
mod mounts;
pub mod pod_spec;
mod session;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::{ConditionStatus, ConditionValue};
use yoi_crds::name::{annotation, finalizer};
use yoi_crds::pod::{Completion, DesiredState, MOST_RUNS, ManifestRef, PodRef, WorkspaceRef};
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, YoiPod, YoiPodStatus, YoiProject};

use crate::conditions::ConditionSet;
use crate::meta::{self, controlled_by, deleting, name, target, uid};
use crate::nodes::Nodes;
use crate::settings::Settings;
use crate::step::{Kind, Plan, Step};
use crate::{names, restricted};
use home::Home;
pub use mounts::forget_volumes;
use mounts::manifest_of;
pub(crate) use mounts::tree_of;
pub use session::MADE_FOR;

#[derive(Clone, Debug)]
pub struct Observed {
    pub yoipod: Arc<YoiPod>,
    pub terminating: bool,
    pub project: Option<Arc<YoiProject>>,
    /// The one called [`workspace_name`].
    pub workspace: Option<Arc<AgentWorkspace>>,
    /// All YoiPods that name that workspace, this one among them.
    pub users: Vec<Arc<YoiPod>>,
    /// Bases of the project and of that workspace.
    pub bases: Vec<Arc<AgentWorkspace>>,
    /// What a template forks.
    pub parent: Option<Arc<AgentWorkspace>>,
    /// Agent Pods that bear this name.
    pub pods: Vec<Arc<Pod>>,
    /// The one called [`session_claim_name`], and its volume.
    pub session_claim: Option<Arc<PersistentVolumeClaim>>,
    pub session_volume: Option<Arc<PersistentVolume>>,
    /// ConfigMaps that bear this name.
    pub manifests: Vec<Arc<ConfigMap>>,
    pub nodes: Arc<Nodes>,
}

/// Name of the workspace that a YoiPod works in: the one that it names, else one of its own name.
#[must_use]
pub fn workspace_name(yoipod: &YoiPod) -> &str {
    let named = yoipod.spec.workspace.as_ref().and_then(|w| w.ref_.as_ref());
    named.map_or_else(|| name(&yoipod.metadata), |r| r.name.as_str())
}

#[must_use]
pub fn session_claim_name(yoipod: &YoiPod) -> String {
    yoipod.spec.session.claim_name.clone().unwrap_or_else(|| names::session_claim(name(&yoipod.metadata)))
}

/// Run generation that an agent's Pod was made for.
#[must_use]
pub fn run_generation(pod: &Pod) -> i64 {
    let said = meta::annotation(&pod.metadata, annotation::RUN_GENERATION).and_then(|g| g.parse().ok());
    // Whoever may make Pods here can write one; a number that no status can hold is none.
    said.filter(|g| (0..=MOST_RUNS).contains(g)).unwrap_or(0)
}

/// How long a Pod may wait for a node before another node gets the base.
const PATIENCE: Duration = Duration::from_secs(10);
/// A Pod that failed stays so long after its making, so that one that fails at once is not made again at once.
const PAUSE: Duration = Duration::from_secs(10);

#[must_use]
pub fn plan(seen: &Observed, settings: &Settings, now: jiff::Timestamp) -> Plan<YoiPodStatus> {
    let meta = &seen.yoipod.metadata;
    if deleting(meta) {
        return going(seen);
    }
    if seen.terminating {
        return Plan::nothing();
    }
    if let Some(step) = meta::missing_finalizers(Kind::YoiPod, meta, &[finalizer::OPERATOR]) {
        return Plan::only(vec![step]);
    }
    Round::new(seen, settings, now).plan()
}

/// The Pod first: whatever it holds is free before the name is.
fn going(seen: &Observed) -> Plan<YoiPodStatus> {
    let meta = &seen.yoipod.metadata;
    let held = meta.finalizers.iter().flatten().any(|f| f == finalizer::OPERATOR);
    let mine: Vec<_> = seen.pods.iter().filter(|p| controlled_by(&p.metadata, uid(meta))).collect();
    let mut steps: Vec<Step> =
        mine.iter().filter(|p| !deleting(&p.metadata)).map(|p| Step::Delete(target(Kind::Pod, &p.metadata))).collect();
    if mine.is_empty() && held {
        steps.extend(session::settle_last(seen));
        let run = seen.yoipod.status.as_ref().and_then(|s| s.run_generation);
        steps.extend(run.map(|run| Step::ConfirmGone {
            kind: Kind::Pod,
            namespace: meta::namespace(meta).to_owned(),
            name: names::pod(name(meta), run),
            of: uid(meta).to_owned(),
        }));
        steps.extend(meta::without_finalizer(Kind::YoiPod, meta, finalizer::OPERATOR));
    }
    if mine.is_empty() && !held {
        // A name of ours that somebody wrote here: no shim ever looks at a YoiPod, so nobody else would take it off.
        steps.extend(meta::without_finalizer(Kind::YoiPod, meta, finalizer::NODE_DATA));
    }
    Plan::only(steps)
}

/// What the Pod's side of a round came to.
enum Run {
    /// The spec asks for no Pod; true while one is still going down.
    Unwanted { stopping: bool },
    /// Something must come first.
    Waits(ConditionValue),
    /// Asked for in this round, or going down to be followed by another.
    Coming,
    /// It is there.
    Is(Arc<Pod>),
}

struct Round<'a> {
    seen: &'a Observed,
    settings: &'a Settings,
    now: jiff::Timestamp,
    before: YoiPodStatus,
    status: YoiPodStatus,
    steps: Vec<Step>,
    requeue_after: Option<Duration>,
}

impl<'a> Round<'a> {
    fn new(seen: &'a Observed, settings: &'a Settings, now: jiff::Timestamp) -> Self {
        let before = seen.yoipod.status.clone().unwrap_or_default();
        // The operator's share only; the gateway's stays what it is because it is not in here.
        let status = YoiPodStatus {
            observed_generation: seen.yoipod.metadata.generation,
            run_generation: before.run_generation,
            manifest: before.manifest.clone(),
            pod: before.pod.clone(),
            workspace: Some(WorkspaceRef {
                name: workspace_name(&seen.yoipod).to_owned(),
                node_name: seen.workspace.as_ref().and_then(|w| w.status.as_ref()?.node_name.clone()),
            }),
            session_claim_name: Some(session_claim_name(&seen.yoipod)),
            ..YoiPodStatus::default()
        };
        Round { seen, settings, now, before, status, steps: Vec::new(), requeue_after: None }
    }

    fn meta(&self) -> &'a ObjectMeta {
        &self.seen.yoipod.metadata
    }

    fn plan(mut self) -> Plan<YoiPodStatus> {
        let before = self.before.conditions.clone();
        let mut saying = ConditionSet::new(&before, self.meta().generation, self.now);
        let accepted = verdict::accepted(self.seen);
        let ok = accepted.status == ConditionStatus::True;
        let run = self.run(ok.then_some(()).ok_or_else(|| accepted.clone()));
        self.discard_manifests();
        saying.say(condition::ACCEPTED, accepted);
        verdict::say(&mut saying, self.seen, &self.status, &run);
        self.status.conditions = saying.done();
        Plan { steps: self.steps, status: Some(self.status), requeue_after: self.requeue_after }
    }

    fn wanted(&self) -> bool {
        match self.seen.yoipod.spec.desired_state {
            DesiredState::Stopped => false,
            // What runs goes on; nothing new is made of a spec that is not accepted.
            DesiredState::Unknown => true,
            DesiredState::Running => self.seen.yoipod.spec.completion != Completion::Stop || !verdict::task_done(self.seen),
        }
    }

    fn look_again(&mut self, after: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(after, |other| other.min(after)));
    }

    fn run(&mut self, accepted: Result<(), ConditionValue>) -> Run {
        let mut mine: Vec<Arc<Pod>> = self.seen.pods.iter().filter(|p| controlled_by(&p.metadata, uid(self.meta()))).cloned().collect();
        mine.sort_by_key(|p| std::cmp::Reverse(run_generation(p)));
        // The Pod that was this agent is gone: the next one is another run. Said before that one is made.
        if self.before.pod.as_ref().is_some_and(|was| !mine.iter().any(|p| uid(&p.metadata) == was.uid)) {
            self.status.pod = None;
            self.status.run_generation = Some(self.before.run_generation.unwrap_or(0).saturating_add(1).min(MOST_RUNS));
        }
        if !self.wanted() {
            self.delete(&mine);
            return Run::Unwanted { stopping: !mine.is_empty() };
        }
        // Where there is a Pod, what the spec no longer finds is not needed any more.
        if let (Err(why), true) = (accepted, mine.is_empty()) {
            return Run::Waits(why);
        }
        self.keep_session();
        match mine.split_first() {
            None => self.start(),
            Some((newest, older)) => {
                self.delete(older);
                self.keep(newest)
            }
        }
    }

    fn delete(&mut self, pods: &[Arc<Pod>]) {
        self.steps.extend(pods.iter().filter(|p| !deleting(&p.metadata)).map(|p| Step::Delete(target(Kind::Pod, &p.metadata))));
    }

    fn keep(&mut self, pod: &Arc<Pod>) -> Run {
        let generation = run_generation(pod);
        if deleting(&pod.metadata) {
            return Run::Coming;
        }
        let tree = self.seen.workspace.as_ref().map(|w| uid(&w.metadata));
        if generation < self.status.run_generation.unwrap_or(0) || tree_of(pod) != tree {
            // Made by a former round that knew less, or for a tree that is no more.
            self.delete(std::slice::from_ref(pod));
            return Run::Coming;
        }
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        if phase != Some("Running") && self.seen.workspace.as_ref().is_some_and(|w| deleting(&w.metadata)) {
            // It would wait for a tree that nobody gives it any more, and the tree for it.
            self.delete(std::slice::from_ref(pod));
            return Run::Coming;
        }
        self.status.run_generation = Some(generation);
        self.status.pod = Some(PodRef { name: name(&pod.metadata).to_owned(), uid: uid(&pod.metadata).to_owned() });
        if let Some(map) = manifest_of(pod).and_then(|m| self.seen.manifests.iter().find(|c| name(&c.metadata) == m)) {
            self.status.manifest = manifest_ref(map);
        }
        match phase {
            Some("Failed" | "Succeeded") => self.replace(pod),
            _ if self.trusts_a_former_gateway(pod) => self.replace(pod),
            _ => self.find_room(pod),
        }
    }

    /// The gateway has keys of another CA than the one that the Pod was told: it can dial no gateway any more, and nobody reaches it.
    fn trusts_a_former_gateway(&self, pod: &Pod) -> bool {
        let mounted = manifest_of(pod).and_then(|m| self.seen.manifests.iter().find(|c| name(&c.metadata) == m));
        let text = mounted.and_then(|map| map.data.as_ref()?.get(yoi_wire::identity::MANIFEST_FILE));
        let told = text.and_then(|text| serde_json::from_str::<yoi_wire::manifest::AgentManifest>(text).ok());
        told.is_some_and(|manifest| manifest.gateway.ca != self.settings.gateway.ca)
    }

    /// Evicted, or its node went: another one takes its place.
    fn replace(&mut self, pod: &Arc<Pod>) -> Run {
        let made = pod.metadata.creation_timestamp.as_ref().map_or(self.now, |t| t.0);
        let left = Duration::try_from(made.saturating_add(PAUSE).unwrap_or(self.now).duration_since(self.now)).unwrap_or(Duration::ZERO);
        if left.is_zero() {
            self.delete(std::slice::from_ref(pod));
        } else {
            self.look_again(left);
        }
        Run::Is(Arc::clone(pod))
    }

    /// A Pod that no node with the base has room for: other nodes get the base, and then a Pod that may go there.
    fn find_room(&mut self, pod: &Arc<Pod>) -> Run {
        let here = Run::Is(Arc::clone(pod));
        let (Some(workspace), Some(since)) = (self.seen.workspace.as_deref(), unschedulable_since(pod)) else { return here };
        if workspace.status.as_ref().is_some_and(|s| s.node_name.is_some()) {
            return here;
        }
        let due = since.saturating_add(PATIENCE).unwrap_or(self.now);
        let left = Duration::try_from(due.duration_since(self.now)).unwrap_or(Duration::ZERO);
        if !left.is_zero() {
            self.look_again(left);
            return here;
        }
        let home = Home::new(self.seen, workspace);
        let allowed = restricted::allowed_hostnames(pod.spec.as_ref().and_then(|s| s.affinity.as_ref()));
        let selector = pod.spec.as_ref().and_then(|s| s.node_selector.as_ref());
        // A base where the Pod's own selector forbids it to go would help nobody, and the next one would follow it.
        let fits = |n: &str| self.seen.nodes.bears(n, selector);
        let new = |n: &String| fits(n) && !allowed.contains(&self.seen.nodes.hostname(n).as_str());
        if home.nodes().is_ok_and(|nodes| nodes.iter().any(new)) {
            self.delete(std::slice::from_ref(pod));
        } else {
            self.steps.extend(home.another_base(fits));
        }
        here
    }

    /// Whatever the first Pod needs, in the order in which it needs it.
    fn start(&mut self) -> Run {
        if self.status.run_generation.is_none() {
            self.status.run_generation = Some(1);
        }
        let Some(workspace) = self.seen.workspace.clone() else {
            self.steps.push(self.make_workspace());
            return Run::Coming;
        };
        if deleting(&workspace.metadata) {
            let going = format!("AgentWorkspace {} is being deleted; it must be gone first", name(&workspace.metadata));
            return Run::Waits(ConditionValue::no(reason::CREATING, going));
        }
        let home = Home::new(self.seen, &workspace);
        let nodes = match home.nodes() {
            Ok(nodes) => nodes,
            Err(why) => {
                self.steps.extend(home.base_for_session());
                return Run::Waits(why);
            }
        };
        let generation = self.status.run_generation.unwrap_or(1);
        // The generation stands in the status before a Pod bears it; and a Pod can only be bound to a claim that exists.
        if self.before.run_generation != Some(generation) || self.seen.session_claim.is_none() || self.before.pod.is_some() {
            return Run::Coming;
        }
        let Some(digest) = self.seen.nodes.runtime_digest(self.settings.runtime_digest.as_deref(), &nodes) else {
            let why = "no node with the tree offers a yoi-runtime binary; see `kubectl get workspacenodes -o yaml`, status.runtimeDigests";
            return Run::Waits(ConditionValue::no(reason::NO_ELIGIBLE_NODE, why));
        };
        let able: Vec<&String> = nodes.iter().filter(|n| self.seen.nodes.0.get(*n).is_some_and(|n| n.has_runtime(&digest))).collect();
        if able.is_empty() {
            let why = format!("no node with the tree offers yoi-runtime {digest}; the yoi-agent-shim Pods may be of another version");
            return Run::Waits(ConditionValue::no(reason::NO_ELIGIBLE_NODE, why));
        }
        let hostnames = able.into_iter().map(|n| self.seen.nodes.hostname(n)).collect();
        self.make_pod(&workspace, generation, &digest, hostnames);
        Run::Coming
    }

    /// Manifests that no Pod of ours mounts and the status does not name.
    fn discard_manifests(&mut self) {
        let kept = |map: &ConfigMap| {
            let title = name(&map.metadata);
            self.status.manifest.as_ref().is_some_and(|m| m.name == title) || self.seen.pods.iter().any(|p| manifest_of(p) == Some(title))
        };
        let stale =
            self.seen.manifests.iter().filter(|m| controlled_by(&m.metadata, uid(self.meta())) && !deleting(&m.metadata) && !kept(m));
        let steps: Vec<Step> = stale.map(|m| Step::Delete(target(Kind::ConfigMap, &m.metadata))).collect();
        // First: what comes after may be refused for long, and each change of the spec would leave one more.
        self.steps.splice(0..0, steps);
    }
}

fn manifest_ref(map: &ConfigMap) -> Option<ManifestRef> {
    let text = map.data.as_ref()?.get(yoi_wire::identity::MANIFEST_FILE)?;
    Some(ManifestRef { name: name(&map.metadata).to_owned(), digest: names::sha256(text.as_bytes()) })
}

fn unschedulable_since(pod: &Pod) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let c = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable"))?;
    c.last_transition_time.as_ref().map(|t| t.0)
}
