//! Yoi on a cluster: images to its nodes, two charts, the example fleet.

mod existing_cluster;
mod fleet;

pub use existing_cluster::{ExistingCluster, existing};

use crate::build;
use crate::cluster::{self, Shape};
use crate::images::{self, References};
use crate::instance::{Instance, repository};
use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
pub use yoi_host::install::{InstallTarget, settings};

pub fn local(instance: Instance, shape: Shape) -> Result<()> {
    cluster::up(instance, shape)?;
    let built = images::build_for(instance)?;
    images::import_all(instance, &built)?;
    let target = target(instance)?;
    charts(&target, &built.references())?;
    let plugin = built.plugin()?;
    // By its second name it completes `kubectl yoi <TAB>`.
    for name in ["kubectl-yoi", "kubectl_complete-yoi"] {
        cluster::link_program(instance, name, plugin)?;
    }
    fleet::start(&target.kubectl, &References::new(), plugin)?;
    explain(instance);
    Ok(())
}

/// A cluster of this machine as helm finds it, with the folders of it from which trees may be made.
pub fn target(instance: Instance) -> Result<InstallTarget> {
    let mut target = InstallTarget::local(instance, &build::programs()?);
    target.settings.extend(host_sources(instance)?);
    Ok(target)
}

/// The chart's default for `shim.kubeletDir`.
const KUBELET_DIR: &str = "/var/lib/kubelet";

/// The folders of the nodes from which trees may be made: for people the clone that this program was built from, for tests a folder that they make.
fn host_sources(instance: Instance) -> Result<Vec<String>> {
    if instance == Instance::Yoi {
        let clone = clone_as_source(&[Path::new(&instance.path("yoi")), Path::new(KUBELET_DIR)])?;
        return Ok(clone.map_or_else(Vec::new, |path| host_source(0, "clone", &path, "*")));
    }
    let path = instance.host_source();
    Ok([host_source(0, "clone", &path, "*"), host_source(1, "elsewhere", &path, "a-namespace-that-there-is-not")].concat())
}

/// The clone that this program was built from: its owner can give agents a copy with all that is not committed. None if it is root's, because no
/// agent is root, or where the folder that contains it holds what the chart does not allow.
fn clone_as_source(never_inside: &[&Path]) -> Result<Option<String>> {
    let clone = repository().canonicalize().with_context(|| format!("failed to find {}", repository().display()))?;
    let is_roots = clone.metadata().with_context(|| format!("failed to ask for the owner of {}", clone.display()))?.uid() == 0;
    let parent = clone.parent().filter(|parent| parent.parent().is_some());
    let is_allowed = parent.is_some_and(|parent| !never_inside.iter().any(|folder| folder.starts_with(parent)));
    Ok(clone.to_str().filter(|_| is_allowed && !is_roots).map(str::to_owned))
}

fn host_source(index: usize, name: &str, path: &str, namespace: &str) -> Vec<String> {
    // Helm reads these as the ends of a value, or of a list.
    let path: String = path.chars().flat_map(|c| r",\{}".contains(c).then_some('\\').into_iter().chain([c])).collect();
    let entry = format!("shim.hostSources[{index}]");
    vec![format!("{entry}.name={name}"), format!("{entry}.path={path}"), format!("{entry}.namespaces[0]={namespace}")]
}

pub fn charts(target: &InstallTarget, references: &References) -> Result<()> {
    charts_of(repository(), target, references)
}

/// The charts of another copy of the sources.
pub fn charts_of(source: &Path, target: &InstallTarget, references: &References) -> Result<()> {
    yoi_host::install::charts(&build::tools()?.join("helm"), source, target, references)
}

fn explain(instance: Instance) {
    println!("\nYoi runs on a Kubernetes of its own on this machine, with an example fleet at work.\n");
    println!("  export KUBECONFIG={}\n  export PATH={}:$PATH", instance.kubeconfig().display(), instance.path("bin"));
    println!("\n  NetworkPolicies are enforced on this cluster. `cargo xtask down --name {instance}` removes all of it.");
    try_next(None);
}

/// `context`: the cluster's, where the kubeconfig's current one may be another.
fn try_next(context: Option<&str>) {
    println!("\nTry next:\n  {}", next(context).join("\n  "));
}

fn next(context: Option<&str>) -> [String; 3] {
    let at = context.map_or_else(String::new, |context| format!("--context {context} ")) + "-n " + fleet::NAMESPACE;
    [format!("kubectl {at} get yoipods,agentworkspaces"), format!("kubectl yoi {at} log alice"), format!("kubectl yoi {at} diff alice")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_try_next_is_tried_on_the_cluster_that_was_meant() {
        assert_eq!(next(None)[1], "kubectl yoi -n yoi-example log alice");
        assert_eq!(next(Some("kind-yoi"))[1], "kubectl yoi --context kind-yoi -n yoi-example log alice");
        assert!(next(Some("kind-yoi")).iter().all(|line| line.contains("--context kind-yoi ")));
    }
}
