//! What a cluster brings besides its own parts: roles and Pod ranges on its nodes, cluster DNS, StorageClasses, the rights of what enforces NetworkPolicies.

use super::{Kubectl, supervisor};
use crate::command::wait;
use crate::images;
use crate::instance::{Instance, Node};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;
use yoi_crds::name::label;

pub fn apply(instance: Instance, programs: &Path) -> Result<()> {
    let kubectl = Kubectl::new(instance, programs);
    let fill = |text: &str| {
        text.replace("$DNS_ADDRESS", &instance.dns_address())
            .replace("$STORAGE", &instance.path("local-path"))
            .replace("$SHARED", &instance.path("shared"))
            .replace("$CONTROL_PLANE", CONTROL_PLANE)
            .replace("$COREDNS", images::COREDNS)
            .replace("$PROVISIONER", images::LOCAL_PATH)
            .replace("$BUSYBOX", images::BUSYBOX)
    };
    for manifests in [include_str!("addons/netpol.yaml"), include_str!("addons/dns.yaml"), include_str!("addons/storage.yaml")] {
        // The API server answers before the bootstrap roles and namespaces are all there.
        wait("accepted add-ons", Duration::from_secs(60), || kubectl.apply(&fill(manifests)).map(Some))?;
    }
    Ok(())
}

pub fn wait_ready(instance: Instance, programs: &Path) -> Result<()> {
    let kubectl = Kubectl::new(instance, programs);
    for (namespace, deployment) in [("kube-system", "coredns"), ("local-path-storage", "local-path-provisioner")] {
        let rollout = kubectl.run(["-n", namespace, "rollout", "status", "--timeout=120s", &format!("deployment/{deployment}")]);
        rollout.with_context(|| supervisor::see_logs(Node::first(instance)))?;
    }
    Ok(())
}

/// Label and taint that kubeadm sets.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Writes on the Node objects what a kubelet may not write itself: roles and Pod ranges. Where there are other nodes, the first is tainted.
pub fn describe_nodes(instance: Instance, programs: &Path) -> Result<()> {
    let kubectl = Kubectl::new(instance, programs);
    let nodes = Node::existing(instance);
    for node in &nodes {
        let name = node.name();
        let range = node.pod_range();
        let patch = serde_json::json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}).to_string();
        // The kubelet makes the object.
        let describe = || kubectl.run(["patch", "node", &name, "--type=merge", "-p", &patch]).map(Some);
        wait(&format!("the node {name}"), Duration::from_secs(60), describe).with_context(|| supervisor::see_logs(*node))?;
    }
    let first = Node::first(instance).name();
    kubectl.run(["label", "node", &first, &format!("{CONTROL_PLANE}="), "--overwrite"])?;
    // No DaemonSet shows that, which is where `kubectl yoi doctor` looks.
    kubectl.run(["label", "nodes", "--all", &format!("{}=kube-router", label::POLICIES_ENFORCED_BY), "--overwrite"])?;
    let taint = format!("{CONTROL_PLANE}:NoSchedule");
    if nodes.len() > 1 {
        kubectl.run(["taint", "node", &first, &taint, "--overwrite"])?;
    } else if kubectl.run(["get", "node", &first, "-o", "jsonpath={.spec.taints[*].key}"])?.contains(CONTROL_PLANE) {
        kubectl.run(["taint", "node", &first, &format!("{taint}-")])?;
    }
    Ok(())
}
