//! Kubernetes' own controllers, scheduler and kubelets. All are level triggered and do one small thing at a time.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    self, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, NodeAffinity,
    NodeCondition, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, NodeSpec, NodeStatus, ObjectReference, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeClaimStatus, PersistentVolumeSpec, Pod, PodCondition, PodStatus, Taint, VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use yoi_crds::condition::is_true;
use yoi_crds::name::{CLASS_IMMEDIATE, CLASS_LATE, annotation, label};
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod, YoiProject};
use yoi_plan::meta::{annotation as annotation_of, deleting, label as label_of, name, uid};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::workspace::claim::tree_behind;

use crate::cluster::{Cluster, Machine, Object, at};
use crate::{loans, looks, prepared, pushes, warm};

/// The label that session volumes are bound to a node by.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The StorageClass of session volumes that only one node reaches.
pub const LOCAL: &str = "local";

pub fn is_agent(pod: &Pod) -> bool {
    label_of(&pod.metadata, label::ROLE) == Some(label::ROLE_AGENT)
}

/// Whether it reads a stopped agent.
pub fn is_reader(pod: &Pod) -> bool {
    label_of(&pod.metadata, label::ROLE) == Some(label::ROLE_READER)
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

pub fn is_over(pod: &Pod) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn claim_names(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    volumes.iter().filter_map(|v| v.persistent_volume_claim.as_ref()).map(|c| c.claim_name.clone()).collect()
}

/// UID of the workspace whose tree this Pod mounts, or will.
pub fn mounts(c: &Cluster, pod: &Pod) -> Option<String> {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let inline = volumes.iter().find_map(|v| v.csi.as_ref()?.volume_attributes.as_ref()?.get(yoi_wire::identity::VOLUME_WORKSPACE));
    let claimed = || {
        let volume = |claim: String| c.get::<PersistentVolumeClaim>(&claim)?.spec.as_ref()?.volume_name.clone();
        claim_names(pod).into_iter().find_map(|claim| tree_behind(c.get::<PersistentVolume>(&volume(claim)?)?).map(str::to_owned))
    };
    inline.cloned().or_else(claimed)
}

/// UIDs of the trees that Pods have mounted.
pub fn mounted(c: &Cluster) -> BTreeSet<String> {
    c.now.pods.values().filter(|p| phase(p) == "Running").filter_map(|p| mounts(c, p)).collect()
}

/// The nodes as the operator's plan knows them.
pub fn nodes(
    machines: &BTreeMap<String, std::sync::Arc<Machine>>,
    offers: &BTreeMap<String, std::sync::Arc<yoi_crds::WorkspaceNode>>,
) -> Nodes {
    Nodes(machines.iter().map(|(n, m)| (n.clone(), Node::new(&node(m), offers.get(n).cloned()))).collect())
}

/// The Node of a machine, as far as plans read it.
fn node(machine: &Machine) -> v1::Node {
    let taint = Taint { key: "example.com/others".into(), effect: "NoSchedule".into(), ..Taint::default() };
    let ready = NodeCondition {
        type_: "Ready".into(),
        status: if machine.alive { "True" } else { "Unknown" }.into(),
        last_transition_time: machine.not_ready_since.map(|since| Time(at(since))),
        ..NodeCondition::default()
    };
    v1::Node {
        metadata: machine.metadata.clone(),
        spec: Some(NodeSpec {
            unschedulable: machine.cordoned.then_some(true),
            taints: machine.tainted.then(|| vec![taint]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus { conditions: Some(vec![ready]), ..NodeStatus::default() }),
    }
}

pub fn everyone(c: &mut Cluster) {
    namespace_controller(c);
    collect_garbage(c);
    pod_collector(c);
    warm::bind(c);
    volumes(c);
    scheduler(c);
    kubelets(c);
    loans::follow(c);
}

fn namespace_controller(c: &mut Cluster) {
    fn all<K: Object>(c: &mut Cluster) {
        c.names::<K>().iter().for_each(|n| c.remove::<K>(n));
    }
    if c.now.terminating {
        all::<YoiProject>(c);
        all::<AgentWorkspace>(c);
        all::<YoiPod>(c);
        all::<YoiPeer>(c);
        all::<Pod>(c);
        all::<PersistentVolumeClaim>(c);
        all::<k8s_openapi::api::core::v1::ConfigMap>(c);
        all::<k8s_openapi::api::networking::v1::NetworkPolicy>(c);
    }
}

/// The garbage collector: deletes objects whose owner is gone.
fn collect_garbage(c: &mut Cluster) {
    let mut alive: BTreeSet<String> = BTreeSet::new();
    alive.extend(c.now.projects.values().map(|o| uid(&o.metadata).to_owned()));
    alive.extend(c.now.workspaces.values().map(|o| uid(&o.metadata).to_owned()));
    alive.extend(c.now.yoipods.values().map(|o| uid(&o.metadata).to_owned()));
    fn sweep<K: Object>(c: &mut Cluster, alive: &BTreeSet<String>) {
        let orphan = |m: &ObjectMeta| m.owner_references.iter().flatten().any(|o| !alive.contains(&o.uid)) && !deleting(m);
        let names: Vec<String> = K::all(&c.now).iter().filter(|(_, o)| orphan(o.meta())).map(|(n, _)| n.clone()).collect();
        names.iter().for_each(|n| c.remove::<K>(n));
    }
    sweep::<AgentWorkspace>(c, &alive);
    sweep::<Pod>(c, &alive);
    sweep::<PersistentVolumeClaim>(c, &alive);
    sweep::<k8s_openapi::api::core::v1::ConfigMap>(c, &alive);
}

/// Deletes Pods of nodes that no longer exist.
fn pod_collector(c: &mut Cluster) {
    let lost: Vec<String> = c.now.pods.iter().filter(|(_, p)| node_of(p).is_some_and(|n| !c.exists(n))).map(|(n, _)| n.clone()).collect();
    lost.iter().for_each(|n| c.purge::<Pod>(n));
}

/// Protects, binds and deletes claims and volumes.
pub fn volumes(c: &mut Cluster) {
    for title in c.names::<PersistentVolumeClaim>() {
        let claim = c.now.claims[&title].clone();
        let used = is_used(c, &title);
        if deleting(&claim.metadata) {
            // This controller looks at a claim only when it hears of an event.
            let missed_ends = c.missed_ends.get(uid(&claim.metadata)) == Some(&claim.metadata.resource_version);
            if !used && !missed_ends {
                c.purge::<PersistentVolumeClaim>(&title);
            }
            continue;
        }
        let bound = claim.spec.as_ref().and_then(|s| s.volume_name.clone());
        if let Some(volume) = bound {
            let lost = !c.now.volumes.contains_key(&volume);
            let reported = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost");
            if lost && !reported {
                c.change::<PersistentVolumeClaim>(&title, |c| c.status = claim_status("Lost"));
            }
            continue;
        }
        let mine = |v: &PersistentVolume| {
            let of = v.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).and_then(|r| r.uid.as_deref());
            of == Some(uid(&claim.metadata)) && !deleting(&v.metadata)
        };
        let volume = c.now.volumes.values().find(|v| mine(v)).map(|v| name(&v.metadata).to_owned());
        if let Some(volume) = volume {
            c.change::<PersistentVolumeClaim>(&title, |c| {
                c.spec.get_or_insert_default().volume_name = Some(volume);
                c.status = claim_status("Bound");
            });
        }
    }
    for title in c.names::<PersistentVolume>() {
        let volume = c.now.volumes[&title].clone();
        let spec = volume.spec.as_ref().expect("a spec");
        let claim = spec.claim_ref.as_ref().and_then(|r| r.uid.clone()).unwrap_or_default();
        let owner = c.now.claims.values().find(|x| uid(&x.metadata) == claim);
        let bound = owner.is_some_and(|x| x.spec.as_ref().and_then(|s| s.volume_name.as_deref()) == Some(&title));
        let reclaimed = owner.is_none() && spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
        if deleting(&volume.metadata) && !bound || reclaimed {
            c.purge::<PersistentVolume>(&title);
        }
    }
}

/// Whether a Pod that has a node and has not ended uses the claim.
pub fn is_used(c: &Cluster, claim: &str) -> bool {
    c.now.pods.values().any(|p| !is_over(p) && node_of(p).is_some() && claim_names(p).iter().any(|n| n == claim))
}

fn claim_status(phase: &str) -> Option<PersistentVolumeClaimStatus> {
    Some(PersistentVolumeClaimStatus { phase: Some(phase.to_owned()), ..Default::default() })
}

/// Makes a volume for a session claim, as the cluster's own provisioner does.
pub fn provision(c: &mut Cluster, claim: &PersistentVolumeClaim, node: &str) {
    let class = claim.spec.as_ref().and_then(|s| s.storage_class_name.clone());
    let local = class.as_deref() == Some(LOCAL);
    c.coverage.feature(if local { "session volume: local to a node" } else { "session volume: of the network" });
    let here = NodeSelectorRequirement { key: HOSTNAME.into(), operator: "In".into(), values: Some(vec![format!("host-{node}")]) };
    let affinity = VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm { match_expressions: Some(vec![here]), ..Default::default() }],
        }),
    };
    let of = ObjectReference { uid: claim.metadata.uid.clone(), name: claim.metadata.name.clone(), ..Default::default() };
    let spec = PersistentVolumeSpec {
        claim_ref: Some(of),
        node_affinity: local.then_some(affinity),
        persistent_volume_reclaim_policy: Some("Delete".into()),
        storage_class_name: class,
        ..Default::default()
    };
    let finalizers = Some(vec!["kubernetes.io/pv-protection".to_owned()]);
    let metadata = ObjectMeta { name: Some(format!("pvc-{}", uid(&claim.metadata))), finalizers, ..Default::default() };
    c.create(PersistentVolume { metadata, spec: Some(spec), status: None });
}

/// Nodes that have room for this Pod now and that it may go to, those that it prefers first.
fn fitting(c: &Cluster, pod: &Pod) -> Vec<String> {
    let spec = pod.spec.as_ref().expect("a spec");
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.clone()).unwrap_or_default();
    let NodeAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    } = affinity;
    let tolerates = spec.tolerations.iter().flatten().any(|t| t.operator.as_deref() == Some("Exists") && t.key.is_none());
    let agent = is_agent(pod);
    let reach = nodes(&c.now.machines, &c.now.offers);
    let claims: Vec<_> = claim_names(pod).iter().filter_map(|n| c.get::<PersistentVolumeClaim>(n).cloned()).collect();
    let volumes: Vec<_> = claims.iter().filter_map(|x| c.get::<PersistentVolume>(x.spec.as_ref()?.volume_name.as_ref()?)).collect();
    let fits = |m: &Machine| {
        let labels = m.metadata.labels.as_ref().expect("labels");
        let selected = spec.node_selector.iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
        let named = required.as_ref().is_none_or(|r| r.node_selector_terms.iter().any(|t| names_node(t, name(&m.metadata))));
        let room = !(m.packed || agent && m.full);
        m.alive
            && (tolerates || !m.cordoned && !m.tainted)
            && selected
            && named
            && room
            && volumes.iter().all(|v| reach.reaches(name(&m.metadata), v))
    };
    let mut found: Vec<String> = c.now.machines.values().filter(|m| fits(m)).map(|m| name(&m.metadata).to_owned()).collect();
    // Among equal nodes the scheduler picks by chance. It often makes the same choice again, and not for ever.
    let chance = crate::users::Random(c.counter / 256).roll(found.len().max(1) as u64);
    let turn = usize::try_from(chance).expect("small");
    found.rotate_left(turn);
    found.sort_by_key(|n| !preferred.iter().flatten().any(|p| names_node(&p.preference, n)));
    found
}

/// Whether the term lets a node of this name through. Ours name nodes and nothing else.
fn names_node(term: &NodeSelectorTerm, node: &str) -> bool {
    let fields = term.match_fields.as_ref().expect("fields");
    assert!(term.match_expressions.is_none() && !fields.is_empty(), "{term:?}");
    fields.iter().all(|r| {
        let values = r.values.as_deref().unwrap_or_default();
        assert!(r.key == "metadata.name" && values.len() == 1, "the API server refuses {r:?}");
        (r.operator == "In") == (values[0] == node)
    })
}

fn scheduled(status: &str, reason: Option<&str>, now: jiff::Timestamp) -> PodStatus {
    let condition = PodCondition {
        type_: "PodScheduled".into(),
        status: status.into(),
        reason: reason.map(str::to_owned),
        message: reason.map(|_| "0 nodes are available".to_owned()),
        last_transition_time: Some(Time(now)),
        ..Default::default()
    };
    PodStatus { phase: Some("Pending".into()), conditions: Some(vec![condition]), ..Default::default() }
}

fn scheduler(c: &mut Cluster) {
    for title in c.names::<Pod>() {
        let pod = c.now.pods[&title].clone();
        if node_of(&pod).is_some() || deleting(&pod.metadata) {
            continue;
        }
        let claims: Vec<_> = claim_names(&pod).iter().map(|n| c.get::<PersistentVolumeClaim>(n).cloned()).collect();
        if claims.iter().any(|x| x.as_ref().is_none_or(|x| deleting(&x.metadata))) {
            continue;
        }
        let mut chosen = fitting(c, &pod).into_iter().next();
        let no_room = chosen.is_none();
        // Volumes that bind with their first Pod, and those that bind on their own.
        for claim in claims.into_iter().flatten().filter(|x| x.spec.as_ref().is_none_or(|s| s.volume_name.is_none())) {
            let class = claim.spec.as_ref().and_then(|s| s.storage_class_name.as_deref());
            match (class, chosen.clone()) {
                (Some(CLASS_IMMEDIATE), _) | (_, None) => chosen = None,
                (Some(CLASS_LATE), Some(node)) => {
                    if annotation_of(&claim.metadata, annotation::SELECTED_NODE).is_none() {
                        let title = name(&claim.metadata).to_owned();
                        let annotations = |c: &mut PersistentVolumeClaim| {
                            c.metadata.annotations.get_or_insert_default().insert(annotation::SELECTED_NODE.to_owned(), node)
                        };
                        c.change::<PersistentVolumeClaim>(&title, |c| drop(annotations(c)));
                    }
                    chosen = None;
                }
                (_, Some(node)) => provision(c, &claim, &node),
            }
        }
        let now = c.now();
        match chosen {
            Some(node) => c.change::<Pod>(&title, |p| {
                p.spec.get_or_insert_default().node_name = Some(node);
                p.status = Some(scheduled("True", None, now));
            }),
            None if pod.status.is_none() => {
                c.coverage.feature("pod: no room");
                if label_of(&pod.metadata, label::ROLE) == Some(label::ROLE_POPULATOR) && no_room {
                    c.coverage.feature("populator: no node fits");
                }
                c.change::<Pod>(&title, |p| p.status = Some(scheduled("False", Some("Unschedulable"), now)));
            }
            None => {}
        }
    }
}

pub fn ended(now: jiff::Timestamp, code: i32) -> ContainerState {
    let terminated = ContainerStateTerminated { exit_code: code, finished_at: Some(Time(now)), ..Default::default() };
    ContainerState { terminated: Some(terminated), ..Default::default() }
}

pub fn pod_status(pod: &Pod, phase: &str, state: ContainerState) -> PodStatus {
    let container = match label_of(&pod.metadata, label::ROLE) {
        Some(label::ROLE_POPULATOR) if looks::is_look(pod) => "look",
        Some(label::ROLE_POPULATOR) => "populate",
        Some(label::ROLE_PREPARE) => "prepare",
        Some(label::ROLE_READER) => "reader",
        Some(label::ROLE_PUSHER) => "push",
        _ => "agent",
    };
    let container = ContainerStatus { name: container.to_owned(), state: Some(state), ..Default::default() };
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone());
    PodStatus { phase: Some(phase.to_owned()), conditions, container_statuses: Some(vec![container]), ..Default::default() }
}

pub fn running() -> ContainerState {
    ContainerState { running: Some(ContainerStateRunning::default()), ..Default::default() }
}

fn kubelets(c: &mut Cluster) {
    for title in c.names::<Pod>() {
        let pod = c.now.pods[&title].clone();
        let Some(node) = node_of(&pod).map(str::to_owned) else {
            if deleting(&pod.metadata) {
                c.purge::<Pod>(&title);
            }
            continue;
        };
        if !c.alive(&node) {
            continue;
        }
        if deleting(&pod.metadata) {
            c.purge::<Pod>(&title);
            continue;
        }
        if prepared::is_prepare(&pod) && phase(&pod) == "Running" {
            prepared::run(c, &pod);
            continue;
        }
        if pushes::is_pusher(&pod) && phase(&pod) == "Running" {
            pushes::run(c, &pod);
            continue;
        }
        if phase(&pod) != "Pending" || !may_mount(c, &pod, &node) {
            continue;
        }
        let role = label_of(&pod.metadata, label::ROLE);
        let filled = role == Some(label::ROLE_POPULATOR);
        if (filled || prepared::is_prepare(&pod) || pushes::is_pusher(&pod)) && c.now.machines[&node].unpullable {
            let waiting = ContainerStateWaiting { reason: Some("ImagePullBackOff".into()), message: Some("no such image".into()) };
            let status = pod_status(&pod, "Pending", ContainerState { waiting: Some(waiting), ..Default::default() });
            if pod.status.as_ref() != Some(&status) {
                c.coverage.feature("populator: its image cannot be pulled");
                c.change::<Pod>(&title, |p| p.status = Some(status));
            }
            continue;
        }
        if prepared::is_prepare(&pod) {
            prepared::run(c, &pod);
            continue;
        }
        if looks::is_look(&pod) {
            looks::run(c, &pod);
            continue;
        }
        if pushes::is_pusher(&pod) {
            pushes::run(c, &pod);
            continue;
        }
        if filled {
            looks::fetched(c, &pod);
            prepared::filled(c, &pod);
        }
        let status = if filled { pod_status(&pod, "Succeeded", ended(c.now(), 0)) } else { pod_status(&pod, "Running", running()) };
        c.change::<Pod>(&title, |p| p.status = Some(status));
        loans::follow(c);
    }
}

/// Whether the shim mounts the Pod's tree.
pub fn may_mount(c: &Cluster, pod: &Pod, node: &str) -> bool {
    // A reader shows the session alone where the tree is gone.
    let Some(tree) = mounts(c, pod) else { return is_reader(pod) || looks::is_look(pod) || pushes::is_pusher(pod) };
    if is_agent(pod) && loans::works_by_loan(c, pod) {
        return loans::holder_may_mount(c, pod, &tree) && loans::node_of_tree(c, &tree).as_deref() == Some(node);
    }
    let status = c.now.workspaces.values().find(|w| uid(&w.metadata) == tree).and_then(|w| w.status.as_ref());
    let inline = claim_names(pod).is_empty() || is_agent(pod) || is_reader(pod);
    status.is_some_and(|s| {
        let chosen = if is_reader(pod) { &s.reader_pod_uid } else { &s.pod_uid };
        let named = !inline || chosen.as_deref() == Some(uid(&pod.metadata));
        named && s.node_name.as_deref() == Some(node) && is_true(&s.conditions, condition::PROVISIONED)
    })
}
