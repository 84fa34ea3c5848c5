//! The node's cgroup, in every hierarchy: the parts of the node in `system`, the Pods in what kubelet makes beside it.

use crate::command::wait;
use crate::instance::{Instance, Node};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

pub fn is_v2() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// The root of every hierarchy in which the node gets a cgroup.
fn hierarchies() -> Result<Vec<PathBuf>> {
    if is_v2() {
        return Ok(vec![ROOT.into()]);
    }
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let rows = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() > 2 && (row[2] == "cgroup" || row[2] == "cgroup2") && row[1].starts_with(ROOT));
    // Combined controllers show up under several names that are links to one folder; mounts name each once.
    Ok(rows.map(|row| row[1].into()).collect())
}

pub fn prepare(node: Node) -> Result<()> {
    for root in hierarchies()? {
        let own = root.join(node.cgroup());
        fs::create_dir_all(&own).with_context(|| format!("failed to make {}", own.display()))?;
        if is_v2() {
            delegate(&root)?;
            delegate(&own)?;
        }
        inherit_cpuset(&root, &own)?;
        let system = own.join("system");
        fs::create_dir_all(&system)?;
        inherit_cpuset(&own, &system)?;
    }
    Ok(())
}

fn delegate(cgroup: &Path) -> Result<()> {
    let controllers = fs::read_to_string(cgroup.join("cgroup.controllers"))?;
    for controller in controllers.split_whitespace() {
        // A controller that cannot be passed on (rt tasks, a leaf's own processes) is one limit less, not a failure.
        let _ = fs::write(cgroup.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    Ok(())
}

/// On v1 a new cpuset is empty, and nothing may join it.
fn inherit_cpuset(parent: &Path, child: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if !is_v2() && child.join(file).exists() && fs::read_to_string(child.join(file))?.trim().is_empty() {
            fs::write(child.join(file), fs::read_to_string(parent.join(file))?).with_context(|| format!("failed to fill {file}"))?;
        }
    }
    Ok(())
}

/// The files through which the supervisor joins.
pub fn procs(node: Node) -> Result<Vec<String>> {
    Ok(hierarchies()?.iter().map(|root| root.join(node.cgroup()).join("system/cgroup.procs").display().to_string()).collect())
}

/// Waits for the last process to go, deepest cgroup first.
pub fn remove(node: Node) -> Result<()> {
    for root in hierarchies()? {
        let own = root.join(node.cgroup());
        wait(&format!("an empty {}", own.display()), Duration::from_secs(60), || Ok(remove_below(&own).is_ok().then_some(())))?;
    }
    Ok(())
}

fn remove_below(cgroup: &Path) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(cgroup) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Every cgroup of the instance's nodes, for the count of what is left.
pub fn all(instance: Instance) -> Vec<String> {
    let roots = hierarchies().unwrap_or_default();
    let own = roots.iter().flat_map(|root| Node::possible(instance).map(|node| root.join(node.cgroup())));
    own.filter(|own| own.exists()).map(|own| own.display().to_string()).collect()
}
