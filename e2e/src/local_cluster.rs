//! The machine below the cluster: its nodes, run and changed by `cargo xtask cluster`.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::program::{self, CommandOutput};

/// The local cluster that the tests run on.
#[derive(Clone)]
pub struct LocalCluster {
    xtask: String,
    name: String,
}

impl LocalCluster {
    /// Returns the cluster that the environment of `cargo xtask test` names.
    ///
    /// # Errors
    /// When that environment is missing.
    pub fn from_environment() -> Result<LocalCluster> {
        let read = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set: run these tests by `cargo xtask test`"));
        Ok(LocalCluster { xtask: read("YOI_XTASK")?, name: read("YOI_CLUSTER")? })
    }

    /// Name of the cluster, such as `yoi-test`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, args: &[&str]) -> Result<CommandOutput> {
        program::run(&self.xtask, &[&["cluster"], args].concat(), &[], None).await
    }

    /// Runs `cargo xtask cluster node` with these words.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub async fn node(&self, args: &[&str]) -> Result<()> {
        self.run(&[&["node"], args].concat()).await?.exit_ok().map(drop)
    }

    /// Runs a script in the first node, which runs the API server and etcd.
    ///
    /// # Errors
    /// When it cannot be run. Another exit code than 0 is no error here.
    pub async fn run_on_first_node(&self, script: &str) -> Result<CommandOutput> {
        self.run(&["exec", "--name", &self.name, "--", "sh", "-uc", script]).await
    }

    /// Ends all nodes as a loss of power does, and starts them again.
    ///
    /// # Errors
    /// When that fails, with its output.
    pub async fn reboot(&self) -> Result<()> {
        self.run(&["reboot", "--name", &self.name]).await?.exit_ok().map(drop)
    }

    /// Runs a script in a node: its processes, mounts and network.
    ///
    /// # Errors
    /// When it cannot be run. Another exit code than 0 is no error here.
    pub async fn run_on_node(&self, node: &str, script: &str) -> Result<CommandOutput> {
        self.run(&["exec", "--node", node, "--", "sh", "-uc", script]).await
    }

    /// Runs a script in every node of the cluster; returns what each printed.
    ///
    /// # Errors
    /// When it fails in one of them, with its output.
    pub async fn run_on_every_node(&self, script: &str) -> Result<Vec<(String, String)>> {
        let mut outputs = Vec::new();
        for node in self.nodes().await? {
            let name = node.name_any();
            let output = self.run_on_node(&name, script).await?.exit_ok().with_context(|| format!("failed in {name}: {script}"))?;
            outputs.push((name, output.out));
        }
        Ok(outputs)
    }

    /// Returns the names of the nodes that Pods are scheduled to, in their order: those without a taint.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn workers(&self) -> Result<Vec<String>> {
        let untainted = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_none_or(Vec::is_empty);
        Ok(self.nodes().await?.iter().filter(|node| untainted(node)).map(ResourceExt::name_any).collect())
    }

    /// Returns the names of all nodes, in their order.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn node_names(&self) -> Result<Vec<String>> {
        Ok(self.nodes().await?.iter().map(ResourceExt::name_any).collect())
    }

    /// Tests make Node objects without a machine, too; those are left out.
    async fn nodes(&self) -> Result<Vec<Node>> {
        let nodes = Api::<Node>::all(Client::try_default().await?).list(&ListParams::default()).await?.items;
        Ok(nodes.into_iter().filter(|node| node.name_any().starts_with(&format!("{}-node", self.name))).collect())
    }
}

/// Returns the UIDs of the trees on the nodes' disks.
///
/// # Errors
/// When a disk cannot be read.
pub async fn tree_uids() -> Result<BTreeSet<String>> {
    let root = std::env::var("YOI_DATA_ROOT")?;
    // Names only: what is looked at may be destroyed meanwhile.
    let list = format!("for tree in {root}/trees/*/* {root}/pool/trees/*/*; do echo \"${{tree##*/}}\"; done");
    let found = LocalCluster::from_environment()?.run_on_every_node(&list).await?;
    // A pattern that matches nothing stays as it is.
    Ok(found.iter().flat_map(|(_, listed)| listed.lines()).filter(|name| *name != "*").map(str::to_owned).collect())
}
