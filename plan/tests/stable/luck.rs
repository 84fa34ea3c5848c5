//! Bad luck: machines, containers, shims, network policies, the namespace.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateWaiting, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::WorkspaceNode;
use yoi_crds::name::TOPOLOGY_NODE;
use yoi_plan::meta::{deleting, uid};
use yoi_plan::nodes::HOSTNAME;

use crate::cluster::{Cluster, Machine};
use crate::kubernetes::{contained, ended, is_agent, may_mount, node_of, over, phase};
use crate::node_side::offered;
use crate::people::Dice;

pub fn machine(c: &mut Cluster, title: &str) {
    let labels = [(HOSTNAME, format!("host-{title}")), (TOPOLOGY_NODE, title.to_owned()), ("zone", format!("z-{title}"))];
    let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let metadata = ObjectMeta { name: Some(title.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    c.born(Machine { metadata, alive: true, full: false });
}

pub fn strike(c: &mut Cluster, dice: &mut Dice) {
    match dice.roll(8) {
        0 | 1 => node(c, dice),
        2 | 3 => pod(c, dice),
        4..=6 => policy(c, dice),
        _ => shim(c, dice),
    }
}

/// Kubernetes has seen each claim of ours that is being deleted as it is, in use or not, and misses what comes after. It may do the same with other
/// people's, which are not ours to mend.
pub fn unheard(c: &mut Cluster) {
    let going = c.now.claims.values().filter(|x| deleting(&x.metadata) && c.ours.contains_key(uid(&x.metadata)));
    let going: Vec<_> = going.map(|x| (uid(&x.metadata).to_owned(), x.metadata.resource_version.clone())).collect();
    if !going.is_empty() {
        c.cover.feature("claim: Kubernetes misses the end of its last Pod");
    }
    c.unheard.extend(going);
}

fn node(c: &mut Cluster, dice: &mut Dice) {
    let title = dice.pick(&["n1", "n2", "n3"]).map(|n| (*n).to_owned()).expect("names");
    let there = c.get::<Machine>(&title).map(|m| m.alive);
    let feature = match (there, dice.roll(6)) {
        (None, _) if !c.disks.contains_key(&title) => {
            machine(c, &title);
            "node: comes"
        }
        (None, n) => {
            machine(c, &title);
            if n < 3 {
                "node: comes back with another UID and its disk"
            } else {
                c.disks.insert(title, std::collections::BTreeSet::new());
                "node: comes back with another UID and an empty disk"
            }
        }
        (Some(_), 0) => {
            c.disks.entry(title.clone()).or_default();
            c.purge::<Machine>(&title);
            "node: goes"
        }
        (Some(true), 1) => {
            c.change::<Machine>(&title, |m| m.alive = false);
            "node: not ready"
        }
        (Some(false), _) => {
            c.change::<Machine>(&title, |m| m.alive = true);
            "node: ready again"
        }
        (Some(true), _) => {
            c.change::<Machine>(&title, |m| m.full = !m.full);
            "node: full"
        }
    };
    c.cover.feature(feature);
}

fn pod(c: &mut Cluster, dice: &mut Dice) {
    let Some(title) = dice.pick(&c.names::<Pod>()).cloned() else { return };
    let pod = c.now.pods[&title].clone();
    let Some(node) = node_of(&pod).filter(|n| c.alive(n)) else { return };
    if over(&pod) || deleting(&pod.metadata) {
        return;
    }
    let reason = |word: &str| Some(word.to_owned());
    let (feature, status) = match (is_agent(&pod), dice.roll(4)) {
        (_, 0) => ("pod: evicted", contained(&pod, "Failed", ended(c.now(), 137))),
        (true, 1) if phase(&pod) == "Running" => ("pod: container ended", contained(&pod, "Running", ended(c.now(), 1))),
        (true, n) if phase(&pod) == "Pending" && may_mount(c, &pod, node) => {
            let word = if n == 1 { "ImagePullBackOff" } else { "CrashLoopBackOff" };
            let waiting = ContainerStateWaiting { reason: reason(word), message: reason("it waits") };
            ("pod: container waits", contained(&pod, "Running", ContainerState { waiting: Some(waiting), ..Default::default() }))
        }
        (false, _) if pod.metadata.owner_references.is_some() && may_mount(c, &pod, node) => {
            ("populator: fails", contained(&pod, "Failed", ended(c.now(), 128)))
        }
        _ => return,
    };
    c.cover.feature(feature);
    c.change::<Pod>(&title, |p| p.status = Some(status));
}

fn shim(c: &mut Cluster, dice: &mut Dice) {
    let Some(title) = dice.pick(&c.names::<WorkspaceNode>()).cloned() else { return };
    if dice.one_in(3) {
        c.cover.feature("node: its shim is gone");
        c.purge::<WorkspaceNode>(&title);
    } else {
        let ready = dice.one_in(2);
        if !ready {
            c.cover.feature("node: its shim offers nothing");
        }
        c.change::<WorkspaceNode>(&title, |o| o.status = Some(offered(&title, ready)));
    }
}

fn policy(c: &mut Cluster, dice: &mut Dice) {
    let mut torn = c.names::<NetworkPolicy>();
    // Both at once: plans become as long as they ever do.
    torn.truncate(if dice.one_in(3) { 1 } else { 2 });
    for title in torn {
        if dice.one_in(2) {
            c.cover.feature("network policy: deleted");
            c.purge::<NetworkPolicy>(&title);
        } else {
            c.cover.feature("network policy: opened");
            c.change::<NetworkPolicy>(&title, |p| p.spec = None);
        }
        c.torn.insert(title);
    }
}

/// Everything that can be mended is: what stays broken is the world as it is from now on.
pub fn peace(c: &mut Cluster, dice: &mut Dice) {
    let stays_dead = dice.one_in(20);
    for title in c.names::<Machine>() {
        if !c.alive(&title) && !stays_dead {
            c.change::<Machine>(&title, |m| m.alive = true);
        }
    }
    for title in c.names::<WorkspaceNode>() {
        if c.exists(&title) {
            c.change::<WorkspaceNode>(&title, |o| o.status = Some(offered(&title, true)));
        }
    }
    // Containers that failed come up in the end.
    for title in c.names::<Pod>() {
        let pod = c.now.pods[&title].clone();
        let up = is_agent(&pod) && phase(&pod) == "Running" && node_of(&pod).is_some_and(|n| c.alive(n));
        if up {
            c.change::<Pod>(&title, |p| p.status = Some(contained(&pod, "Running", crate::kubernetes::running())));
        }
    }
    if dice.one_in(8) {
        c.cover.feature("namespace: terminating");
        c.now.terminating = true;
    }
}
