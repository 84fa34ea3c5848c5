//! Commands in the node: its processes and its disks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result};
use yoi_e2e::local_cluster::LocalCluster;

/// A node: the first one, on which everything runs where there is no other, or another one.
#[derive(Clone)]
pub struct Node {
    cluster: LocalCluster,
    /// `None`: the first one.
    name: Option<String>,
    /// Path of the data root in the node.
    pub data_root: String,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub line: String,
}

/// A process, or a group of processes, that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Operator,
    Gateway,
    Shim,
    Mounter,
    Runtime,
    Tools,
    Kubelet,
    Containerd,
    ApiServer,
    Etcd,
}

impl Component {
    pub const ALL: [Component; 10] = [
        Component::Operator,
        Component::Gateway,
        Component::Shim,
        Component::Mounter,
        Component::Runtime,
        Component::Tools,
        Component::Kubelet,
        Component::Containerd,
        Component::ApiServer,
        Component::Etcd,
    ];

    /// Returns whether a process with this command line belongs to the component.
    fn matches(self, line: &str) -> bool {
        let node_part = |name: &str| line.split_whitespace().next().is_some_and(|p| p.ends_with("/yoi-cluster")) && line.contains(name);
        match self {
            Component::Operator => line.starts_with("/yoi-operator"),
            Component::Gateway => line.starts_with("/yoi-gateway"),
            Component::Shim => line.starts_with("/bin/yoi-agent-shim shim"),
            Component::Mounter => line.starts_with("/bin/yoi-agent-shim mounter"),
            Component::Runtime => line.starts_with("/yoi/bin/yoi-runtime"),
            // `Node::pids` finds them as descendants of runtimes.
            Component::Tools => false,
            Component::Kubelet => node_part(" kubelet "),
            Component::Containerd => line.split_whitespace().next().is_some_and(|p| p.ends_with("/containerd")),
            Component::ApiServer => node_part(" kube-apiserver "),
            Component::Etcd => node_part(" etcd "),
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Component::Operator => "operator",
            Component::Gateway => "gateway",
            Component::Shim => "shim",
            Component::Mounter => "mounter",
            Component::Runtime => "runtime",
            Component::Tools => "tools",
            Component::Kubelet => "kubelet",
            Component::Containerd => "containerd",
            Component::ApiServer => "API server",
            Component::Etcd => "etcd",
        })
    }
}

impl Node {
    pub fn from_environment() -> Result<Node> {
        let data_root = std::env::var("YOI_DATA_ROOT").context("YOI_DATA_ROOT is not set")?;
        Ok(Node { cluster: LocalCluster::from_environment()?, name: None, data_root })
    }

    /// Returns the nodes of the cluster by their names.
    pub async fn all() -> Result<BTreeMap<String, Node>> {
        let first = Node::from_environment()?;
        let names = first.cluster.node_names().await?;
        Ok(names.into_iter().map(|name| (name.clone(), Node { name: Some(name), ..first.clone() })).collect())
    }

    /// Runs a script in the node and returns its standard output. `$ROOT` is the data root.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub async fn sh(&self, script: &str) -> Result<String> {
        let with_root = format!("export ROOT='{}'\n{script}", self.data_root);
        let output = match &self.name {
            Some(name) => self.cluster.run_on_node(name, &with_root).await?,
            None => self.cluster.run_on_first_node(&with_root).await?,
        };
        Ok(output.exit_ok().with_context(|| format!("failed in the node: {script}"))?.out)
    }

    pub async fn processes(&self) -> Result<Vec<Process>> {
        let listed = self.sh("ps -eww -o pid=,ppid=,args=").await?;
        let process = |line: &str| {
            let mut words = line.split_whitespace();
            let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Process { pid, parent, line: words.collect::<Vec<_>>().join(" ") + " " })
        };
        Ok(listed.lines().filter_map(process).collect())
    }

    /// Returns the ids, in the node's PID namespace, of the processes of a component.
    pub async fn pids(&self, component: Component) -> Result<Vec<u32>> {
        let all = self.processes().await?;
        if component != Component::Tools {
            return Ok(all.iter().filter(|p| component.matches(&p.line)).map(|p| p.pid).collect());
        }
        let mut below: BTreeSet<u32> = all.iter().filter(|p| Component::Runtime.matches(&p.line)).map(|p| p.pid).collect();
        let runtimes = below.clone();
        loop {
            let more: Vec<u32> = all.iter().filter(|p| below.contains(&p.parent) && !below.contains(&p.pid)).map(|p| p.pid).collect();
            if more.is_empty() {
                return Ok(below.difference(&runtimes).copied().collect());
            }
            below.extend(more);
        }
    }

    /// Sends a signal. A process that has ended meanwhile is no error.
    pub async fn signal(&self, signal: &str, pids: &[u32]) -> Result<()> {
        if pids.is_empty() {
            return Ok(());
        }
        let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
        self.sh(&format!("kill -{signal} {} 2>/dev/null || true", pids.join(" "))).await.map(drop)
    }

    /// Kills the whole node and starts it again.
    pub async fn reboot(&self) -> Result<()> {
        self.cluster.reboot().await
    }

    /// Returns a sentence for each overlay of ours that has more than one super block, as the kernel shows them.
    pub async fn uppers_mounted_twice(&self) -> Result<Vec<String>> {
        let overlays = r#"awk '{ for (i = 7; i <= NF; i++) if ($i == "-") { if ($(i+1) == "overlay" && $(i+2) ~ /^yoi:/) print $(i+2), $3; next } }' \
            /proc/self/mountinfo | sort -u | cut -d ' ' -f 1 | uniq -d"#;
        let doubled = self.sh(overlays).await?;
        Ok(doubled.lines().map(|source| format!("the upper layer of {source} is mounted twice")).collect())
    }

    /// Returns a file of the tree of a workspace, by the workspace's UID, or an empty text when there is none. Of an overlay, only what was written.
    pub async fn file(&self, workspace: &str, path: &str) -> Result<String> {
        self.sh(&format!(
            "for base in \"$ROOT\" \"$ROOT/pool\"; do cat \"$base\"/trees/*/{workspace}/tree/{path} \"$base\"/trees/*/{workspace}/upper/{path} \
             2>/dev/null; done; true"
        ))
        .await
    }
}
