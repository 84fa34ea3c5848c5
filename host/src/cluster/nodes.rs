//! Single nodes of a cluster: added, removed, switched off and on, cut off, tainted.

use super::{Kubectl, Programs, addons, data_root, lock, network, settings, supervisor};
use crate::cluster::data_root::DataRoot;
use crate::command::wait;
use crate::instance::{Instance, Node};
use crate::{images, packages, progress};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Brings one more node up and joins it.
pub fn add(instance: Instance, data_root: Option<DataRoot>, programs: &Programs) -> Result<()> {
    let _lock = lock(instance)?;
    if supervisor::process(Node::first(instance)).is_none() {
        bail!("the cluster {instance} does not run");
    }
    let free = Node::possible(instance).find(|node| !node.folder().exists());
    let node = free.with_context(|| format!("failed to add a node: {instance} has {} of {0}", Node::MOST))?;
    let step = progress::start(format!("Add {node}"));
    prepare(node, data_root, programs)?;
    supervisor::start(node, programs, &step)?;
    addons::describe_nodes(instance, &programs.kubernetes)?;
    wait_ready(node, &programs.kubernetes)?;
    step.done(format!("{} at {}", node, node.address()));
    Ok(())
}

/// Writes what the node starts from, in a folder that may be new. Returns whether a node that runs already would have to be started again.
pub fn prepare(node: Node, data_root: Option<DataRoot>, programs: &Programs) -> Result<bool> {
    fs::create_dir_all(node.folder())?;
    if data_root == Some(DataRoot::Xfs) {
        packages::for_xfs()?;
    }
    data_root::prepare(node, data_root)?;
    settings::write(node, programs)
}

/// Removes the node from the cluster and from the machine. Objects that name it are Kubernetes' business.
pub fn remove(node: Node, programs: &Programs) -> Result<()> {
    let _lock = lock(node.instance)?;
    if node.is_first() || !node.folder().exists() {
        bail!(
            "failed to remove {node}: {}",
            if node.is_first() { "it is the control plane; use `cluster down`" } else { "it is not there" }
        );
    }
    let step = progress::start(format!("Remove {node}"));
    if supervisor::process(node).is_some() {
        supervisor::power_off(node)?;
    }
    Kubectl::new(node.instance, &programs.kubernetes).run(["delete", "node", &node.name(), "--ignore-not-found"])?;
    fs::remove_dir_all(node.folder()).with_context(|| format!("failed to remove {}", node.folder().display()))?;
    addons::describe_nodes(node.instance, &programs.kubernetes)?;
    step.done("");
    Ok(())
}

/// Ends all processes of the node, as when a machine is switched off.
pub fn stop(node: Node) -> Result<()> {
    let _lock = lock(node.instance)?;
    let step = progress::start(format!("Switch {node} off"));
    supervisor::power_off(node)?;
    step.done("");
    Ok(())
}

/// Starts a node that is off from what is on its disk.
pub fn start(node: Node, programs: &Programs) -> Result<()> {
    let _lock = lock(node.instance)?;
    if !node.folder().exists() {
        bail!("failed to start {node}: it is not there; use `cluster node add`");
    }
    if supervisor::process(node).is_some() {
        bail!("{node} runs already");
    }
    let step = progress::start(format!("Switch {node} on"));
    supervisor::start(node, programs, &step)?;
    step.done("");
    Ok(())
}

/// Switches the node off and on.
pub fn reboot(node: Node, programs: &Programs) -> Result<()> {
    let _lock = lock(node.instance)?;
    let step = progress::start(format!("Start {node} anew"));
    supervisor::power_off(node)?;
    supervisor::start(node, programs, &step)?;
    step.done("");
    Ok(())
}

/// Cuts the node's link. Its processes run on, and reach nothing but each other.
pub fn lose(node: Node) -> Result<()> {
    let _lock = lock(node.instance)?;
    supervisor::process(node).with_context(|| format!("{node} does not run"))?;
    network::cut(node)
}

/// Mends the link that [`lose`] cut.
pub fn restore(node: Node) -> Result<()> {
    let _lock = lock(node.instance)?;
    supervisor::process(node).with_context(|| format!("{node} does not run"))?;
    network::join(node)
}

/// Sets `taint`, written `KEY=VALUE:EFFECT` as kubectl takes it, or removes it.
pub fn taint(node: Node, taint: &str, remove: bool, programs: &Programs) -> Result<()> {
    let kubectl = Kubectl::new(node.instance, &programs.kubernetes);
    let end = if remove { "-" } else { "" };
    kubectl.run(["taint", "node", &node.name(), &format!("{taint}{end}"), if remove { "--overwrite=false" } else { "--overwrite" }])?;
    Ok(())
}

/// Waits until Kubernetes has the node's object, the kubelet says that it is Ready, and NetworkPolicies hold on it.
pub fn wait_ready(node: Node, programs: &Path) -> Result<()> {
    let kubectl = Kubectl::new(node.instance, programs);
    let name = node.name();
    wait(&format!("the node {name}"), Duration::from_secs(60), || kubectl.run(["get", "node", &name]).map(Some))?;
    kubectl.run(["wait", "--for=condition=Ready", "node", &name, "--timeout=120s"]).with_context(|| supervisor::see_logs(node))?;
    let enforced = || Ok(UnixStream::connect(node.path(supervisor::POLICIES_SOCKET)).ok());
    wait(&format!("NetworkPolicies that hold on {name}"), Duration::from_secs(120), enforced)
        .with_context(|| supervisor::see_logs(node))?;
    Ok(())
}

/// Imports the archives into every node that runs, and keeps them for those that do not.
pub fn import(instance: Instance, archives: &[images::Archive]) -> Result<()> {
    images::keep(instance, archives)?;
    let running: Vec<_> = Node::existing(instance).into_iter().filter(|node| supervisor::process(*node).is_some()).collect();
    let step = progress::start(format!("Import images into {} {}", running.len(), if running.len() == 1 { "node" } else { "nodes" }));
    let imported: Vec<_> = std::thread::scope(|scope| {
        let imports: Vec<_> = running.iter().map(|node| scope.spawn(|| images::import(*node, |line| step.line(line)))).collect();
        imports.into_iter().map(|import| import.join().unwrap_or_else(|_| bail!("an import panicked"))).collect()
    });
    let imported: std::collections::BTreeSet<String> = imported.into_iter().collect::<Result<Vec<_>>>()?.concat().into_iter().collect();
    let names: Vec<_> = imported.into_iter().collect();
    step.done(if names.is_empty() { "none was missing".to_owned() } else { names.join(", ") });
    Ok(())
}
