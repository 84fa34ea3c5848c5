//! A cluster's life: up (start, repair or reuse), status, down without a trace.
//!
//! Each node lives in its own pid, mount and network namespaces below one supervisor, so it can run on a machine that has its own
//! container runtime, and what it starts, mounts or configures ends with it.

mod addons;
mod cgroup;
mod data_root;
mod kubectl;
mod leftovers;
mod network;
pub mod nodes;
mod pki;
mod settings;
mod supervisor;

pub use data_root::{DataRoot, gibibytes as data_root_gibibytes};
pub use kubectl::Kubectl;
pub use leftovers::HostInventory;
pub use nodes::import;

use crate::command::{command, run, wait};
use crate::images::{self, Archive};
use crate::instance::{Instance, Node, ROOT};
use crate::progress;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// What `up` is asked for. None takes what is there, and for a new cluster one node on a [`DataRoot::Folder`].
#[derive(Clone, Copy, Default, clap::Args)]
pub struct Shape {
    /// How many nodes; with more than one, the first is a tainted control plane [default: those that are there, or 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(Node::MOST)))]
    pub nodes: Option<u8>,
    /// What the data roots of new nodes are on [default: folder]
    #[arg(long, value_enum)]
    pub data_root: Option<DataRoot>,
}

/// The programs of a cluster, compiled by whoever calls.
pub struct Programs {
    /// The folder of `yoi-cluster`, and of a `kubectl` that is the same file.
    pub kubernetes: PathBuf,
    /// Enforces NetworkPolicies on a node.
    pub netpol: PathBuf,
    pub helm: PathBuf,
}

/// The Kubernetes that the programs are.
pub const KUBERNETES: &str = "v1.34.4";

/// `archives`: what the bare cluster itself runs. The packages that it takes from the machine are there.
pub fn up(instance: Instance, shape: Shape, programs: &Programs, archives: &[Archive]) -> Result<()> {
    let _lock = lock(instance)?;
    let nodes = wanted_nodes(&Node::existing(instance), &Node::possible(instance).collect::<Vec<_>>(), shape.nodes)?;
    data_root::check(&nodes, shape.data_root)?;
    let step = progress::start(format!("Start the cluster {instance}"));
    fs::create_dir_all(instance.state())?;
    images::keep(instance, archives)?;
    let mut started = vec![];
    for node in &nodes {
        let changed = nodes::prepare(*node, shape.data_root.filter(|_| data_root::is_unset(*node)), programs)?;
        match supervisor::process(*node) {
            Some(_) if changed || !supervisor::has_started(*node) => supervisor::stop(&[*node])?,
            Some(_) => {
                network::prepare(instance)?;
                network::join(*node)?;
                images::import(*node, |line| step.line(line))?;
                continue;
            }
            None => {}
        }
        supervisor::start(*node, programs, &step)?;
        started.push(node.name());
    }
    addons::describe_nodes(instance, &programs.kubernetes)?;
    let address = format!("Kubernetes {} at https://{}:6443", KUBERNETES, Node::first(instance).address());
    step.done(if started.is_empty() { "it runs already".to_owned() } else { format!("{address}, started {}", started.join(", ")) });
    addons::apply(instance, &programs.kubernetes)?;
    link_program(instance, "kubectl", &programs.kubernetes.join("kubectl"))?;
    link_program(instance, "helm", &programs.helm)?;
    let step = progress::start("Wait until nodes, cluster DNS and storage answer");
    nodes.iter().try_for_each(|node| nodes::wait_ready(*node, &programs.kubernetes))?;
    addons::wait_ready(instance, &programs.kubernetes)?;
    step.done("");
    Ok(())
}

/// The nodes that are there, and as many more as are asked for.
fn wanted_nodes(existing: &[Node], possible: &[Node], count: Option<u8>) -> Result<Vec<Node>> {
    let count = count.map_or(existing.len().max(1), usize::from);
    if existing.len() > count {
        let names: Vec<_> = existing.iter().map(Node::to_string).collect();
        bail!("failed to make it {count}: there are {} nodes, {}; `cluster node remove` removes one", names.len(), names.join(", "));
    }
    let more = possible.iter().filter(|node| !existing.contains(node)).take(count - existing.len());
    let mut nodes: Vec<_> = existing.iter().chain(more).copied().collect();
    nodes.sort_unstable();
    Ok(nodes)
}

/// One folder for PATH, the same whatever is built anew.
pub fn link_program(instance: Instance, name: &str, program: &Path) -> Result<()> {
    let bin = instance.state().join("bin");
    fs::create_dir_all(&bin)?;
    let _ = fs::remove_file(bin.join(name));
    Ok(std::os::unix::fs::symlink(program, bin.join(name))?)
}

/// Ends the nodes that run. What is on their disks stays.
pub fn stop(instance: Instance) -> Result<()> {
    let _lock = lock(instance)?;
    let step = progress::start(format!("Stop the cluster {instance}"));
    supervisor::stop(&Node::existing(instance))?;
    step.done("");
    Ok(())
}

pub fn down(instance: Instance) -> Result<()> {
    let _lock = lock(instance)?;
    let step = progress::start(format!("Remove the cluster {instance}"));
    let nodes = Node::existing(instance);
    supervisor::stop(&nodes)?;
    network::remove(instance)?;
    // A node whose folder somebody removed by hand.
    Node::possible(instance).filter(|node| !nodes.contains(node)).try_for_each(cgroup::remove)?;
    if instance.state().exists() {
        if let Some(mount) = leftovers::mounts_below(&instance.state())?.first() {
            bail!("failed to remove {}: {mount} is still mounted there", instance.state().display());
        }
        // Trees are in their data root's own file system, of which only the file is here; their read-only subvolumes would resist.
        fs::remove_dir_all(instance.state()).with_context(|| format!("failed to remove {}", instance.state().display()))?;
    }
    if Instance::ALL.into_iter().all(|other| !other.state().exists()) {
        settings::remove_mount_points();
    }
    let _ = fs::remove_file(lock_file(instance));
    // It is empty when this was the last cluster.
    let _ = fs::remove_dir(ROOT);
    step.done("");
    Ok(())
}

/// `programs`: gives the folder of kubectl, and is not asked where nothing runs.
pub fn status(instance: Instance, programs: impl FnOnce() -> Result<PathBuf>) -> Result<()> {
    let nodes = Node::existing(instance);
    if nodes.is_empty() {
        println!("{instance}: not there");
        return Ok(());
    }
    println!("{instance}: API https://{}:6443\n  KUBECONFIG={}", Node::first(instance).address(), instance.kubeconfig().display());
    for node in &nodes {
        let state = match supervisor::process(*node) {
            Some(pid) if network::is_joined(*node) => format!("process {pid}"),
            Some(pid) => format!("process {pid}, lost: its link is cut"),
            None => "off (its disk is kept; `up` or `node start` starts it again)".to_owned(),
        };
        println!("  {node}: {state}, logs {}", node.path("log"));
    }
    if supervisor::process(Node::first(instance)).is_some() {
        let kubectl = Kubectl::new(instance, &programs()?);
        print!("{}", kubectl.run(["get", "nodes,pods", "-A", "-o", "wide"])?);
    }
    Ok(())
}

pub fn exec(node: Node, words: &[String]) -> Result<ExitCode> {
    let pid = supervisor::process(node).with_context(|| format!("{node} does not run"))?;
    let mut enter = Command::new("nsenter");
    let status = enter.args(["-t", &pid.to_string(), "-m", "-n", "-p", "--"]).args(words).status().context("failed to start nsenter")?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

/// One program at a time may change an instance.
fn lock(instance: Instance) -> Result<fs::File> {
    if !rustix::process::geteuid().is_root() {
        bail!("a change of a node needs root: run this again with sudo");
    }
    let path = lock_file(instance);
    wait("the end of another program that changes this cluster", Duration::from_secs(1200), || {
        fs::create_dir_all(ROOT)?;
        let file = fs::File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // Whoever had it before may have removed it with the cluster, and a third one made a new one.
        let is_there = path.metadata().is_ok_and(|about| file.metadata().is_ok_and(|own| own.ino() == about.ino()));
        Ok(is_there.then_some(file))
    })
}

fn lock_file(instance: Instance) -> PathBuf {
    Path::new(ROOT).join(format!("{instance}.lock"))
}

fn ip(line: &str) -> Result<()> {
    run(&mut command("ip", line.split_whitespace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_grows_to_the_count_that_is_asked_for_and_never_shrinks_by_itself() {
        let possible: Vec<_> = Node::possible(Instance::YoiTest).collect();
        let wanted = |existing: &[Node], count| wanted_nodes(existing, &possible, count).map(|nodes| nodes.len());
        assert_eq!(wanted(&[], None).unwrap(), 1);
        assert_eq!(wanted(&[], Some(3)).unwrap(), 3);
        assert_eq!(wanted(&possible[..3], None).unwrap(), 3);
        let refused = wanted(&possible[..3], Some(2)).unwrap_err().to_string();
        assert!(refused.contains("yoi-test-node-3") && refused.contains("node remove"), "{refused}");
        // The second was removed: its place is taken again.
        assert_eq!(wanted_nodes(&[possible[0], possible[2]], &possible, Some(3)).unwrap(), possible[..3]);
    }
}
