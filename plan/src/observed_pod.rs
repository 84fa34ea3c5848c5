//! What plans read of a Pod: of an agent's Pod, of one that reads a stopped agent, and of one that fills a base.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{self, Container, ContainerStatus, EnvVarSource, Pod, PodCondition, PodStatus, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::name::{annotation, label};
use yoi_crds::pod::MOST_RUNS;
use yoi_wire::identity::{VOLUME_KIND, VOLUME_SCOPED_TREE, VOLUME_WORKSPACE};

use crate::meta;
use crate::node_affinity::ObservedChoice;
use crate::stored::Uid;
use crate::yoipod::pod_spec;

/// A Pod without what no plan reads, which is most of its memory.
#[derive(Clone, Debug)]
pub struct ObservedPod {
    /// The Pod's metadata, unchanged.
    pub metadata: ObjectMeta,
    /// See [`run_generation`].
    pub(crate) run_generation: i64,
    tree: Option<String>,
    /// It sees its tree through covers.
    pub(crate) is_scoped: bool,
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
    /// The objects of its namespace that it does not start without, but for what plans make.
    pub(crate) references: Vec<Reference>,
}

/// An object that a Pod does not start without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub kind: ReferenceKind,
    pub name: String,
    pub used_by: Use,
}

/// Kind of a [`Reference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceKind {
    Secret,
    ConfigMap,
    Claim,
}

impl fmt::Display for ReferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReferenceKind::Secret => "Secret",
            ReferenceKind::ConfigMap => "ConfigMap",
            ReferenceKind::Claim => "PersistentVolumeClaim",
        })
    }
}

/// What a Pod needs a [`Reference`] for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A variable of a container, from this key.
    Variable {
        name: String,
        key: String,
    },
    Volume,
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
    /// When it was started last.
    started_at: Option<jiff::Timestamp>,
    /// What it said when it ended last, if its latest start is over.
    last_words: Option<String>,
    /// Of one that ends before the others start: its image, as the node's runtime names it.
    image_before_others: Option<String>,
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

    /// Whether it pushes what an agent has committed, and is no run of it.
    pub(crate) fn is_pusher(&self) -> bool {
        meta::label(&self.metadata, label::ROLE) == Some(label::ROLE_PUSHER)
    }

    /// Whether it may be a run of an agent.
    pub(crate) fn is_run(&self) -> bool {
        !self.is_reader() && !self.is_pusher()
    }

    /// UID of the workspace that it mounts.
    pub(crate) fn tree(&self) -> Option<Uid<'_>> {
        Uid::new(self.tree.as_deref()?)
    }

    /// How the container of this name ended, if it has.
    pub(crate) fn terminated(&self, name: &str) -> Option<&Terminated> {
        match self.container(name)? {
            ContainerState::Terminated(terminated) => Some(terminated),
            ContainerState::Running | ContainerState::Waiting { .. } => None,
        }
    }

    /// When the container of this name was started last; `None` when it never was.
    pub(crate) fn started_at(&self, name: &str) -> Option<jiff::Timestamp> {
        self.containers.iter().find(|container| container.name == name)?.started_at
    }

    /// Whether the kubelet has said that the container of this name was started at least once.
    pub(crate) fn was_started(&self, name: &str) -> bool {
        let container = self.containers.iter().find(|container| container.name == name);
        container.is_some_and(|of| match of.state {
            ContainerState::Running | ContainerState::Terminated(_) => true,
            // Of a container that was lost with its node the kubelet knows no times, but says so.
            ContainerState::Waiting { .. } => of.started_at.is_some() || of.last_words.is_some(),
        })
    }

    /// What the container of this name said when it ended last; `None` while it runs.
    pub(crate) fn last_words(&self, name: &str) -> Option<&str> {
        self.containers.iter().find(|container| container.name == name)?.last_words.as_deref()
    }

    /// Names of all containers of which something is reported.
    pub(crate) fn container_names(&self) -> impl Iterator<Item = &str> {
        self.containers.iter().map(|container| container.name.as_str())
    }

    /// The digest of the image of a container that ends before the others start; `None` where the node names none.
    pub(crate) fn image_digest(&self, name: &str) -> Option<&str> {
        let image = self.containers.iter().find(|container| container.name == name)?.image_before_others.as_deref()?;
        Some(image.rsplit_once('@').map_or(image, |(_, digest)| digest)).filter(|digest| digest.starts_with("sha256:"))
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
        let PodStatus { phase, reason, message, conditions, init_container_statuses, container_statuses, .. } = status.unwrap_or_default();
        let volumes = spec.volumes.as_deref().unwrap_or_default();
        ObservedPod {
            references: exact(references(&spec.containers, volumes)),
            metadata,
            run_generation,
            tree: tree(volumes).map(str::to_owned),
            is_scoped: attributes_of_tree(volumes).and_then(|of| of.get(VOLUME_KIND)).is_some_and(|kind| kind == VOLUME_SCOPED_TREE),
            manifest: manifest(volumes).map(str::to_owned),
            node: spec.node_name,
            scheduled_at: conditions.iter().flatten().find_map(scheduled_at),
            choice: ObservedChoice::new(spec.affinity.as_ref()),
            phase: PodPhase::new(phase.as_deref()),
            reason,
            message,
            unscheduled: conditions.into_iter().flatten().find_map(unscheduled),
            containers: {
                let before = init_container_statuses.into_iter().flatten().filter_map(|status| ObservedContainer::new(status, true));
                let others = container_statuses.into_iter().flatten().filter_map(|status| ObservedContainer::new(status, false));
                exact(before.chain(others))
            },
        }
    }
}

/// A list without room for more: most Pods have one container, and a list grows by four.
fn exact<T>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list: Vec<T> = all.into_iter().collect();
    list.shrink_to_fit();
    list
}

/// Run generation that an agent's Pod was made for; 0 when it bears none, or one that no status can hold.
#[must_use]
pub fn run_generation(pod: &Pod) -> i64 {
    // Whoever may make Pods here can write this annotation.
    let written = meta::annotation(&pod.metadata, annotation::RUN_GENERATION).and_then(|text| text.parse().ok());
    written.filter(|generation| (0..=MOST_RUNS).contains(generation)).unwrap_or(0)
}

fn attributes_of_tree(volumes: &[Volume]) -> Option<&BTreeMap<String, String>> {
    volumes.iter().find(|v| v.name == "tree")?.csi.as_ref()?.volume_attributes.as_ref()
}

fn tree(volumes: &[Volume]) -> Option<&str> {
    attributes_of_tree(volumes)?.get(VOLUME_WORKSPACE).map(String::as_str)
}

fn manifest(volumes: &[Volume]) -> Option<&str> {
    volumes.iter().find(|v| v.name == "manifest")?.config_map.as_ref().map(|c| c.name.as_str())
}

/// What the plan makes itself, the manifest and the session's claim, is left out.
fn references(containers: &[Container], volumes: &[Volume]) -> Vec<Reference> {
    let of_variable = |name: &str, from: &EnvVarSource| {
        let secret = from.secret_key_ref.as_ref().map(|r| (ReferenceKind::Secret, &r.name, &r.key, r.optional));
        let map = || from.config_map_key_ref.as_ref().map(|r| (ReferenceKind::ConfigMap, &r.name, &r.key, r.optional));
        let (kind, object, key, _) = secret.or_else(map).filter(|(.., optional)| *optional != Some(true))?;
        let used_by = Use::Variable { name: name.to_owned(), key: key.clone() };
        Some(Reference { kind, name: object.clone(), used_by })
    };
    let variables = containers.iter().flat_map(|container| container.env.iter().flatten());
    let of_variables = variables.filter_map(|variable| of_variable(&variable.name, variable.value_from.as_ref()?));
    let users = volumes.iter().filter(|volume| !pod_spec::VOLUMES.contains(&volume.name.as_str()));
    of_variables.chain(users.flat_map(of_volume)).collect()
}

fn of_volume(volume: &Volume) -> Vec<Reference> {
    let required = |optional: Option<bool>| optional != Some(true);
    let secret =
        volume.secret.as_ref().filter(|s| required(s.optional)).and_then(|s| Some((ReferenceKind::Secret, s.secret_name.clone()?)));
    let map = volume.config_map.as_ref().filter(|m| required(m.optional)).map(|m| (ReferenceKind::ConfigMap, m.name.clone()));
    let claim = volume.persistent_volume_claim.as_ref().map(|c| (ReferenceKind::Claim, c.claim_name.clone()));
    let sources = volume.projected.as_ref().and_then(|p| p.sources.as_deref()).unwrap_or_default();
    let projected = sources.iter().flat_map(|source| {
        let secret = source.secret.as_ref().filter(|s| required(s.optional)).map(|s| (ReferenceKind::Secret, s.name.clone()));
        let map = source.config_map.as_ref().filter(|m| required(m.optional)).map(|m| (ReferenceKind::ConfigMap, m.name.clone()));
        secret.into_iter().chain(map)
    });
    let all = secret.into_iter().chain(map).chain(claim).chain(projected);
    all.map(|(kind, name)| Reference { kind, name, used_by: Use::Volume }).collect()
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
    fn new(status: ContainerStatus, is_before: bool) -> Option<Self> {
        let former = status.last_state.and_then(|former| former.terminated);
        let image_before_others = is_before.then_some(status.image_id);
        let v1::ContainerState { running, terminated, waiting } = status.state?;
        let ended = terminated.as_ref().or(former.as_ref().filter(|_| running.is_none()));
        let started = running.as_ref().map(|running| &running.started_at).or(ended.map(|ended| &ended.started_at));
        let started_at = started.and_then(|time| time.as_ref()).map(|time| time.0);
        let last_words = ended.and_then(|ended| ended.message.clone());
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
        Some(ObservedContainer { name: status.name, state, started_at, last_words, image_before_others })
    }
}
