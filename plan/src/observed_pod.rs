//! What plans read of a Pod: of an agent's Pod, of one that reads a stopped agent, and of one that fills a base.

use k8s_openapi::api::core::v1::{self, ContainerStatus, Pod, PodCondition, PodStatus, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::name::{annotation, label};
use yoi_crds::pod::MOST_RUNS;
use yoi_wire::identity::VOLUME_WORKSPACE;

use crate::meta;
use crate::node_affinity::ObservedChoice;
use crate::stored::Uid;

/// A Pod without what no plan reads, which is most of its memory.
#[derive(Clone, Debug)]
pub struct ObservedPod {
    /// The Pod's metadata, unchanged.
    pub metadata: ObjectMeta,
    /// See [`run_generation`].
    pub(crate) run_generation: i64,
    tree: Option<String>,
    /// Name of the ConfigMap that it mounts as its manifest.
    pub(crate) manifest: Option<String>,
    /// The node that the scheduler has chosen.
    pub(crate) node: Option<String>,
    /// When the scheduler chose that node.
    pub(crate) scheduled_at: Option<jiff::Timestamp>,
    pub(crate) choice: ObservedChoice,
    pub(crate) phase: PodPhase,
    /// `status.reason`.
    pub(crate) reason: Option<String>,
    /// `status.message`.
    pub(crate) message: Option<String>,
    pub(crate) unscheduled: Option<Unscheduled>,
    containers: Vec<ObservedContainer>,
}

/// The condition PodScheduled, when it is False.
#[derive(Clone, Debug)]
pub(crate) struct Unscheduled {
    pub message: Option<String>,
    /// Since when no node fits; `None` when the Pod waits for something else.
    pub no_node_since: Option<jiff::Timestamp>,
}

/// `status.phase` of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodPhase {
    Running,
    Succeeded,
    Failed,
    /// Pending, Unknown, or not reported yet.
    Other,
}

#[derive(Clone, Debug)]
struct ObservedContainer {
    name: String,
    state: ContainerState,
}

/// State of a container that the kubelet has reported.
#[derive(Clone, Debug)]
pub(crate) enum ContainerState {
    Running,
    Terminated(Terminated),
    Waiting { reason: Option<String>, message: Option<String> },
}

/// How a container ended.
#[derive(Clone, Debug)]
pub(crate) struct Terminated {
    pub exit_code: i32,
    pub message: Option<String>,
    pub finished_at: Option<jiff::Timestamp>,
}

impl ObservedPod {
    /// Whether it reads a stopped agent, and is no run of it.
    pub(crate) fn is_reader(&self) -> bool {
        meta::label(&self.metadata, label::ROLE) == Some(label::ROLE_READER)
    }

    /// UID of the workspace that it mounts.
    pub(crate) fn tree(&self) -> Option<Uid<'_>> {
        Uid::new(self.tree.as_deref()?)
    }

    /// State of the container of this name; `None` while nothing is reported of it.
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerState> {
        self.containers.iter().find(|container| container.name == name).map(|container| &container.state)
    }
}

impl From<Pod> for ObservedPod {
    fn from(pod: Pod) -> Self {
        let run_generation = run_generation(&pod);
        let Pod { metadata, spec, status } = pod;
        let spec = spec.unwrap_or_default();
        let PodStatus { phase, reason, message, conditions, container_statuses, .. } = status.unwrap_or_default();
        let volumes = spec.volumes.as_deref().unwrap_or_default();
        ObservedPod {
            metadata,
            run_generation,
            tree: tree(volumes).map(str::to_owned),
            manifest: manifest(volumes).map(str::to_owned),
            node: spec.node_name,
            scheduled_at: conditions.iter().flatten().find_map(scheduled_at),
            choice: ObservedChoice::new(spec.affinity.as_ref()),
            phase: PodPhase::new(phase.as_deref()),
            reason,
            message,
            unscheduled: conditions.into_iter().flatten().find_map(unscheduled),
            containers: container_statuses.into_iter().flatten().filter_map(ObservedContainer::new).collect(),
        }
    }
}

/// Run generation that an agent's Pod was made for; 0 when it bears none, or one that no status can hold.
#[must_use]
pub fn run_generation(pod: &Pod) -> i64 {
    // Whoever may make Pods here can write this annotation.
    let written = meta::annotation(&pod.metadata, annotation::RUN_GENERATION).and_then(|text| text.parse().ok());
    written.filter(|generation| (0..=MOST_RUNS).contains(generation)).unwrap_or(0)
}

fn tree(volumes: &[Volume]) -> Option<&str> {
    let attributes = volumes.iter().find(|v| v.name == "tree")?.csi.as_ref()?.volume_attributes.as_ref()?;
    attributes.get(VOLUME_WORKSPACE).map(String::as_str)
}

fn manifest(volumes: &[Volume]) -> Option<&str> {
    volumes.iter().find(|v| v.name == "manifest")?.config_map.as_ref().map(|c| c.name.as_str())
}

fn unscheduled(condition: PodCondition) -> Option<Unscheduled> {
    let PodCondition { type_, status, reason, message, last_transition_time, .. } = condition;
    let no_node_since = last_transition_time.filter(|_| reason.as_deref() == Some("Unschedulable")).map(|time| time.0);
    (type_ == "PodScheduled" && status == "False").then_some(Unscheduled { message, no_node_since })
}

fn scheduled_at(condition: &PodCondition) -> Option<jiff::Timestamp> {
    let is_scheduled = condition.type_ == "PodScheduled" && condition.status == "True";
    condition.last_transition_time.as_ref().filter(|_| is_scheduled).map(|time| time.0)
}

impl PodPhase {
    fn new(phase: Option<&str>) -> Self {
        match phase {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some(_) | None => PodPhase::Other,
        }
    }
}

impl ObservedContainer {
    fn new(status: ContainerStatus) -> Option<Self> {
        let v1::ContainerState { running, terminated, waiting } = status.state?;
        let state = match (running, terminated, waiting) {
            (Some(_), _, _) => ContainerState::Running,
            (None, Some(terminated), _) => ContainerState::Terminated(Terminated {
                exit_code: terminated.exit_code,
                message: terminated.message,
                finished_at: terminated.finished_at.map(|time| time.0),
            }),
            (None, None, Some(waiting)) => ContainerState::Waiting { reason: waiting.reason, message: waiting.message },
            (None, None, None) => return None,
        };
        Some(ObservedContainer { name: status.name, state })
    }
}
