//! What a cluster brings besides its own parts: cluster DNS, and a default StorageClass.

use super::Kubectl;
use crate::command::wait;
use crate::images;
use crate::instance::Instance;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

pub fn apply(instance: Instance, programs: &Path) -> Result<()> {
    let kubectl = Kubectl::new(instance, programs);
    let fill = |text: &str| {
        text.replace("$DNS_ADDRESS", &instance.dns_address())
            .replace("$STORAGE", &instance.path("local-path"))
            .replace("$COREDNS", images::COREDNS)
            .replace("$PROVISIONER", images::LOCAL_PATH)
            .replace("$BUSYBOX", images::BUSYBOX)
    };
    for manifests in [include_str!("addons/dns.yaml"), include_str!("addons/storage.yaml")] {
        // The API server answers before the bootstrap roles and namespaces are all there.
        wait("accepted add-ons", Duration::from_secs(60), || kubectl.apply(&fill(manifests)).map(Some))?;
    }
    Ok(())
}

pub fn wait_ready(instance: Instance, programs: &Path) -> Result<()> {
    let kubectl = Kubectl::new(instance, programs);
    wait("the node", Duration::from_secs(60), || kubectl.run(["get", "node", &instance.node_name()]).map(Some))?;
    kubectl.run(["wait", "--for=condition=Ready", "node", "--all", "--timeout=120s"])?;
    for (namespace, deployment) in [("kube-system", "coredns"), ("local-path-storage", "local-path-provisioner")] {
        let rollout = kubectl.run(["-n", namespace, "rollout", "status", "--timeout=120s", &format!("deployment/{deployment}")]);
        rollout.with_context(|| format!("see the logs in {}", instance.path("log")))?;
    }
    Ok(())
}
