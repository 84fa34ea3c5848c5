//! Yoi on a cluster: two charts, and what is particular to a cluster of this machine.

use crate::cluster::{DataRoot, Kubectl, Programs, data_root_gibibytes};
use crate::command::{command, run};
use crate::images::References;
use crate::instance::{Instance, Node};
use crate::progress;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const NAMESPACE: &str = "yoi-system";
/// The chart's default for `shim.namespace`.
const SHIM_NAMESPACE: &str = "yoi-node";

/// Where the chart wants each image.
const CHART_IMAGES: [(&str, &str); 4] =
    [("image.operator", "operator"), ("image.gateway", "gateway"), ("image.shim", "agent-shim"), ("image.agent", "agent")];

/// A cluster as helm finds it, and what is particular to it.
pub struct InstallTarget {
    pub context: Option<String>,
    pub kubeconfig: Option<PathBuf>,
    pub kubectl: Kubectl,
    /// Values of the chart yoi-operator, as `helm --set` takes them.
    pub settings: Vec<String>,
}

impl InstallTarget {
    pub fn local(instance: Instance, programs: &Programs) -> Self {
        let kubectl = Kubectl::new(instance, &programs.kubernetes);
        Self { context: None, kubeconfig: Some(instance.kubeconfig()), kubectl, settings: settings(instance).to_vec() }
    }
}

/// Values of the chart yoi-operator that say where trees lie on the nodes of a local cluster.
pub fn settings(instance: Instance) -> [String; 4] {
    // Also where the machine's own disk is Btrfs: read-only subvolumes there would outlive `down`, and a file does not. One DaemonSet
    // serves all nodes, so where one has a file system of its own, no node gets the chart's.
    let nodes = Node::existing(instance);
    let size = size_of_trees(instance).unwrap_or_else(|| data_root_gibibytes(nodes.len()));
    let in_a_file = nodes.into_iter().all(|node| DataRoot::of(node) == DataRoot::Folder);
    [
        format!("shim.dataRoot={}", instance.path("yoi")),
        format!("shim.loopBtrfs.enabled={in_a_file}"),
        format!("shim.loopBtrfs.size={size}Gi"),
        // A Btrfs of a node is made with it and goes with it, so no older kernel will have to mount it.
        format!("shim.btrfs.simpleQuota={}", !in_a_file),
    ]
}

/// GiB of the file for trees, where somebody has set it.
fn size_of_trees(instance: Instance) -> Option<u64> {
    fs::read_to_string(instance.path(SIZE_OF_TREES)).ok()?.trim().parse().ok()
}

const SIZE_OF_TREES: &str = "trees-gibibytes";

/// Sets the size of the file for trees, once: half of what is free when `wanted` is absent, and at most 64 GiB.
///
/// # Errors
/// It has another size already.
pub fn set_size_of_trees(instance: Instance, wanted: Option<u64>) -> Result<()> {
    if let Some(size) = size_of_trees(instance) {
        if wanted.is_some_and(|wanted| wanted != size) {
            bail!("the file for trees has {size} GiB already, and keeps its size: leave --trees out");
        }
        return Ok(());
    }
    let disk = rustix::fs::statvfs(instance.state()).with_context(|| format!("failed to look at the disk of {instance}"))?;
    let free = (disk.f_bavail * disk.f_frsize) >> 30;
    let size = wanted.unwrap_or_else(|| (free / 2).clamp(1, 64));
    if size >= free {
        bail!("there is no room for {size} GiB of trees: {} has {free} GiB free", instance.state().display());
    }
    // Whole or not at all: a shorter number would be another size.
    let file = instance.path(SIZE_OF_TREES);
    fs::write(file.clone() + ".new", size.to_string())
        .and_then(|()| fs::rename(file.clone() + ".new", &file))
        .context("failed to write the size of trees")
}

/// Installs the charts below `source`.
pub fn charts(helm: &Path, source: &Path, target: &InstallTarget, references: &References) -> Result<()> {
    let step = progress::start("Install the charts");
    let upgrade = |release: &str, folder: &str| {
        let mut helm = command(helm, ["upgrade", "--install", release]);
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
    if target.context.is_none() {
        forget_unfinished(&target.kubectl)?;
    }
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

/// A helm that was killed leaves a revision that no other goes past. Only on a cluster of this machine, where nobody else is at it.
fn forget_unfinished(kubectl: &Kubectl) -> Result<()> {
    let unfinished = "owner=helm,status in (pending-install,pending-upgrade,pending-rollback)";
    kubectl.run(["--namespace", NAMESPACE, "delete", "secret", "--selector", unfinished, "--ignore-not-found"]).map(drop)
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
