//! Yoi on a cluster: images to its nodes, two charts, the example fleet.

mod existing_cluster;
mod fleet;

pub use existing_cluster::{ExistingCluster, existing};

use crate::cluster::{self, DataRoot, Kubectl, Shape, data_root_gibibytes};
use crate::command::{command, run};
use crate::images::{self, References};
use crate::instance::{Instance, Node, repository};
use crate::{build, progress};
use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NAMESPACE: &str = "yoi-system";
/// The chart's default for `shim.namespace`.
const SHIM_NAMESPACE: &str = "yoi-node";

/// Where the chart wants each image.
const CHART_IMAGES: [(&str, &str); 4] =
    [("image.operator", "operator"), ("image.gateway", "gateway"), ("image.shim", "agent-shim"), ("image.agent", "agent")];

pub fn local(instance: Instance, shape: Shape) -> Result<()> {
    cluster::up(instance, shape)?;
    let built = images::build_for(instance)?;
    images::import_all(instance, &built)?;
    let target = InstallTarget::local(instance)?;
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

/// A cluster as helm finds it, and what is particular to it.
pub struct InstallTarget {
    context: Option<String>,
    kubeconfig: Option<PathBuf>,
    kubectl: Kubectl,
    settings: Vec<String>,
}

impl InstallTarget {
    pub fn local(instance: Instance) -> Result<Self> {
        let mut settings = settings(instance).to_vec();
        settings.extend(host_sources(instance)?);
        let kubectl = Kubectl::new(instance, &build::kubernetes()?);
        Ok(Self { context: None, kubeconfig: Some(instance.kubeconfig()), kubectl, settings })
    }
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

/// Values of the chart yoi-operator that say where trees lie on the nodes of a local cluster.
pub fn settings(instance: Instance) -> [String; 4] {
    // Also where the machine's own disk is Btrfs: read-only subvolumes there would outlive `down`, and a file does not. One DaemonSet
    // serves all nodes, so where one has a file system of its own, no node gets the chart's.
    let nodes = Node::existing(instance);
    let size = data_root_gibibytes(nodes.len());
    let in_a_file = nodes.into_iter().all(|node| DataRoot::of(node) == DataRoot::Folder);
    [
        format!("shim.dataRoot={}", instance.path("yoi")),
        format!("shim.loopBtrfs.enabled={in_a_file}"),
        format!("shim.loopBtrfs.size={size}Gi"),
        // A Btrfs of a node is made with it and goes with it, so no older kernel will have to mount it.
        format!("shim.btrfs.simpleQuota={}", !in_a_file),
    ]
}

pub fn charts(target: &InstallTarget, references: &References) -> Result<()> {
    charts_of(repository(), target, references)
}

/// The charts of another copy of the sources.
pub fn charts_of(source: &Path, target: &InstallTarget, references: &References) -> Result<()> {
    let helm = build::tools()?.join("helm");
    let step = progress::start("Install the charts");
    let upgrade = |release: &str, folder: &str| {
        let mut helm = command(&helm, ["upgrade", "--install", release]);
        helm.arg(source.join(folder)).args(["--namespace", NAMESPACE, "--create-namespace", "--timeout", "3m", "--wait"]);
        if let Some(context) = &target.context {
            helm.args(["--kube-context", context]);
        }
        if let Some(file) = &target.kubeconfig {
            helm.env("KUBECONFIG", file);
        }
        helm
    };
    // Helm makes a namespace without labels; ours holds only Pods that pass restricted, and the cluster shall hold us to that.
    target.kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}}}"
    ))?;
    // The CRDs may be there already from `kubectl apply -f crds/`.
    run(upgrade("yoi-crds", "charts/yoi-crds").arg("--take-ownership"))?;
    step.progress("yoi-operator");
    let mut operator = upgrade("yoi-operator", "charts/yoi-operator");
    for setting in &target.settings {
        operator.args(["--set", setting]);
    }
    // A tag that is made of digits is no number.
    for setting in image_settings(references)? {
        operator.args(["--set-string", &setting]);
    }
    run(&mut operator)
        .with_context(|| format!("{}\n{}", target.kubectl.diagnostics(NAMESPACE), target.kubectl.diagnostics(SHIM_NAMESPACE)))?;
    step.done("");
    Ok(())
}

fn image_settings(references: &References) -> Result<Vec<String>> {
    let mut settings = vec![];
    for (value, image) in CHART_IMAGES {
        let reference = references.get(image).with_context(|| format!("the image {image} was not built"))?;
        let (repository, tag) = reference.rsplit_once(':').context("a reference has a tag")?;
        settings.extend([format!("{value}.repository={repository}"), format!("{value}.tag={tag}")]);
    }
    Ok(settings)
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
