//! Failures of machines, containers, shims, network policies and the namespace.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateWaiting, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::WorkspaceNode;
use yoi_crds::name::{TOPOLOGY_NODE, label};
use yoi_plan::meta::{deleting, label as label_of, uid};

use crate::cluster::{Cluster, Machine};
use crate::host_sources::{self, Folder};
use crate::kubernetes::{HOSTNAME, ended, is_agent, is_over, is_reader, may_mount, node_of, phase, pod_status};
use crate::node_side::offered;
use crate::users::Random;
use crate::{loans, looks, prepared, pushes};

pub fn machine(c: &mut Cluster, title: &str) {
    let labels = [(HOSTNAME, format!("host-{title}")), (TOPOLOGY_NODE, title.to_owned()), ("zone", format!("z-{title}"))];
    let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let metadata = ObjectMeta { name: Some(title.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let folder = if title == "n3" { Folder::Missing } else { Folder::Fine };
    c.create(Machine { metadata, alive: true, folder, ..Machine::default() });
}

pub fn fail(c: &mut Cluster, random: &mut Random) {
    match random.roll(13) {
        11 | 12 => host_sources::fail(c, random),
        0..=3 => node(c, random),
        4..=6 => pod(c, random),
        7..=9 => policy(c, random),
        _ => shim(c, random),
    }
}

/// From now on Kubernetes misses what happens to the claims of ours that are being deleted. It may miss other claims' events, too, but the operator does
/// nothing about those. A claim that stood ready and that no agent took had no Pod whose end could be missed.
pub fn missed_ends(c: &mut Cluster) {
    let had_pod = |x: &&Arc<PersistentVolumeClaim>| label_of(&x.metadata, label::WARM).is_none();
    let going = c.now.claims.values().filter(had_pod).filter(|x| deleting(&x.metadata) && c.ours.contains_key(uid(&x.metadata)));
    let going: Vec<_> = going.map(|x| (uid(&x.metadata).to_owned(), x.metadata.resource_version.clone())).collect();
    if !going.is_empty() {
        c.coverage.feature("claim: Kubernetes misses the end of its last Pod");
    }
    c.missed_ends.extend(going);
}

/// A node that no agent's shim runs on.
const WITHOUT_SHIM: &str = "n4";

fn node(c: &mut Cluster, random: &mut Random) {
    let title = random.pick(&["n1", "n1", "n2", "n2", "n3", "n3", WITHOUT_SHIM]).map(|n| (*n).to_owned()).expect("names");
    let there = c.get::<Machine>(&title).map(|m| (**m).clone());
    let feature = match (there, random.roll(10)) {
        (None, _) if !c.disks.contains_key(&title) => {
            machine(c, &title);
            if title == WITHOUT_SHIM {
                c.change::<Machine>(&title, |m| drop(m.metadata.labels.get_or_insert_default().insert("no-shim".into(), String::new())));
                "node: comes without a shim"
            } else {
                "node: comes"
            }
        }
        (None, n) => {
            machine(c, &title);
            if n < 5 {
                "node: comes back with another UID and its disk"
            } else {
                c.disks.insert(title, std::collections::BTreeSet::new());
                "node: comes back with another UID and an empty disk"
            }
        }
        (Some(_), 0) => {
            c.disks.entry(title.clone()).or_default();
            c.purge::<Machine>(&title);
            loans::follow(c);
            "node: goes"
        }
        (Some(machine), 1) if machine.alive => {
            let now = c.seconds;
            c.change::<Machine>(&title, |m| (m.alive, m.not_ready_since) = (false, Some(now)));
            "node: not ready"
        }
        (Some(machine), _) if !machine.alive => {
            c.change::<Machine>(&title, |m| (m.alive, m.not_ready_since) = (true, None));
            "node: ready again"
        }
        (Some(_), 2 | 3) => {
            c.change::<Machine>(&title, |m| m.cordoned = !m.cordoned);
            "node: cordoned"
        }
        (Some(_), 4) => {
            c.change::<Machine>(&title, |m| m.tainted = !m.tainted);
            "node: tainted"
        }
        (Some(_), 5) => {
            c.change::<Machine>(&title, |m| m.unpullable = !m.unpullable);
            "node: cannot pull an image"
        }
        (Some(_), 6) => {
            c.change::<Machine>(&title, |m| m.packed = !m.packed);
            "node: no room for any Pod"
        }
        (Some(_), _) => {
            c.change::<Machine>(&title, |m| m.full = !m.full);
            "node: full"
        }
    };
    c.coverage.feature(feature);
}

fn pod(c: &mut Cluster, random: &mut Random) {
    let Some(title) = random.pick(&c.names::<Pod>()).cloned() else { return };
    let pod = c.now.pods[&title].clone();
    let Some(node) = node_of(&pod).filter(|n| c.alive(n)) else { return };
    if is_over(&pod) || deleting(&pod.metadata) {
        return;
    }
    let reason = |word: &str| Some(word.to_owned());
    let (feature, status) = match (is_agent(&pod) || is_reader(&pod), random.roll(5)) {
        (_, 0) => ("pod: evicted", pod_status(&pod, "Failed", ended(c.now(), 137))),
        (true, 1) if phase(&pod) == "Running" => ("pod: container ended", pod_status(&pod, "Running", ended(c.now(), 1))),
        // The first start of its container, or another one, for which the image is pulled again.
        (true, n) if phase(&pod) == "Running" || phase(&pod) == "Pending" && may_mount(c, &pod, node) => {
            let word = match n {
                1 => "CrashLoopBackOff",
                2 => "InvalidImageName",
                3 => "ImagePullBackOff",
                _ => "CreateContainerConfigError",
            };
            let waiting = ContainerStateWaiting { reason: reason(word), message: reason("it waits") };
            ("pod: container waits", pod_status(&pod, "Running", ContainerState { waiting: Some(waiting), ..Default::default() }))
        }
        (false, _) if pod.metadata.owner_references.is_some() && !pushes::is_pusher(&pod) && may_mount(c, &pod, node) => {
            (if looks::is_look(&pod) { "look: fails" } else { "populator: fails" }, pod_status(&pod, "Failed", ended(c.now(), 128)))
        }
        _ => return,
    };
    c.coverage.feature(feature);
    if status.phase.as_deref() == Some("Failed") {
        prepared::spoil(c, &pod);
    }
    c.change::<Pod>(&title, |p| p.status = Some(status));
    loans::follow(c);
}

fn shim(c: &mut Cluster, random: &mut Random) {
    let Some(title) = random.pick(&c.names::<WorkspaceNode>()).cloned() else { return };
    if random.one_in(3) {
        c.coverage.feature("node: its shim is gone");
        c.purge::<WorkspaceNode>(&title);
    } else {
        let ready = random.one_in(2);
        if !ready {
            c.coverage.feature("node: its shim offers nothing");
        }
        let status = offered(c, &title, ready);
        c.change::<WorkspaceNode>(&title, |o| o.status = Some(status));
    }
}

fn policy(c: &mut Cluster, random: &mut Random) {
    let mut changed_policies = c.names::<NetworkPolicy>();
    // Both at once make the longest plans.
    changed_policies.truncate(if random.one_in(3) { 1 } else { 2 });
    for title in changed_policies {
        if random.one_in(2) {
            c.coverage.feature("network policy: deleted");
            c.purge::<NetworkPolicy>(&title);
        } else {
            c.coverage.feature("network policy: opened");
            c.change::<NetworkPolicy>(&title, |p| p.spec = None);
        }
        c.changed_policies.insert(title);
    }
}

/// Repairs what can be repaired. What is still broken stays so.
pub fn repair(c: &mut Cluster, random: &mut Random) {
    let stays_dead = random.one_in(20);
    for title in c.names::<Machine>() {
        if !c.alive(&title) && !stays_dead {
            c.change::<Machine>(&title, |m| (m.alive, m.not_ready_since) = (true, None));
        }
        // Cordons, taints and missing images may stay: other nodes must do.
        if random.one_in(3) {
            c.change::<Machine>(&title, |m| (m.cordoned, m.tainted, m.unpullable, m.packed) = (false, false, false, false));
        }
    }
    host_sources::repair(c, random);
    for title in c.names::<WorkspaceNode>() {
        if c.exists(&title) {
            let status = offered(c, &title, true);
            c.change::<WorkspaceNode>(&title, |o| o.status = Some(status));
        }
    }
    // Containers that failed start in the end.
    for title in c.names::<Pod>() {
        let pod = c.now.pods[&title].clone();
        let up = (is_agent(&pod) || is_reader(&pod)) && phase(&pod) == "Running" && node_of(&pod).is_some_and(|n| c.alive(n));
        if up {
            c.change::<Pod>(&title, |p| p.status = Some(pod_status(&pod, "Running", crate::kubernetes::running())));
        }
    }
    if random.one_in(8) {
        c.coverage.feature("namespace: terminating");
        c.now.terminating = true;
    }
}
