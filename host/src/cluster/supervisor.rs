//! The supervisor of one node: started, ended, asked for.

use super::{Kubectl, Programs, cgroup, leftovers, network};
use crate::command::wait;
use crate::images;
use crate::instance::Node;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Exists once the node holds its images. The kubelet starts after that, because no registry has them.
pub const IMAGES_MARK: &str = "images-imported";

/// Accepts connections once the NetworkPolicies that there are hold on the node.
pub const POLICIES_SOCKET: &str = "netpol.sock";

/// Starts the node from what is on its disk, and imports the images that it lacks, each with a line of `step`. A first node's API server answers then.
pub fn start(node: Node, programs: &Programs, step: &Progress) -> Result<()> {
    // What a killed supervisor could not take away, and one that nobody wrote down.
    end_strays(node)?;
    network::disconnect(node)?;
    network::prepare(node.instance)?;
    cgroup::prepare(node)?;
    let log = fs::File::create(node.path("log/supervise.log"))?;
    let mut supervise = Command::new(programs.kubernetes.join("yoi-cluster"));
    supervise.arg("supervise").arg(node.path("supervise.json"));
    for stale in ["gate", "ready", "pid", IMAGES_MARK] {
        let _ = fs::remove_file(node.path(stale));
    }
    use std::os::unix::process::CommandExt;
    supervise.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/").process_group(0);
    let mut child = supervise.spawn().context("failed to start the supervisor")?;
    let inner = wait(&format!("the namespaces of {node}"), Duration::from_secs(10), || {
        check_alive(node, &mut child)?;
        Ok(process(node))
    })?;
    network::connect(node, inner)?;
    fs::write(node.path("gate"), "")?;
    wait(&format!("containerd of {node}"), Duration::from_secs(120), || {
        check_alive(node, &mut child)?;
        Ok(UnixStream::connect(node.containerd_socket()).ok())
    })
    .with_context(|| see_logs(node))?;
    images::import(node, |line| step.line(line))?;
    fs::write(node.path(IMAGES_MARK), "")?;
    wait(&format!("the parts of {node}"), Duration::from_secs(120), || {
        check_alive(node, &mut child)?;
        Ok(Path::new(&node.path("ready")).exists().then_some(()))
    })
    .with_context(|| see_logs(node))?;
    if node.is_first() {
        let kubectl = Kubectl::new(node.instance, &programs.kubernetes);
        let ready = || kubectl.run(["get", "--raw", "/readyz"]).map(|_| Some(()));
        wait("a ready API server", Duration::from_secs(120), ready).with_context(|| see_logs(node))?;
    }
    Ok(())
}

pub fn see_logs(node: Node) -> String {
    format!("see the logs in {}", node.path("log"))
}

fn check_alive(node: Node, child: &mut Child) -> Result<()> {
    if let Some(status) = child.try_wait()? {
        let log = fs::read_to_string(node.path("log/supervise.log")).unwrap_or_default();
        bail!("the supervisor of {node} ended ({status}): {}", log.trim());
    }
    Ok(())
}

/// The process that holds the node's namespaces, as the host sees it, when it lives.
pub fn process(node: Node) -> Option<u32> {
    processes(node).first().copied().filter(|pid| runs_here(node, *pid))
}

/// The inner and the outer half, as the supervisor wrote them down.
fn processes(node: Node) -> Vec<u32> {
    let text = fs::read_to_string(node.path("pid")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether the start came to its end, but for what the node does by itself.
pub fn has_started(node: Node) -> bool {
    Path::new(&node.path(IMAGES_MARK)).exists()
}

/// Ends supervisors of the node that no file names: whoever started one may have been killed right after.
fn end_strays(node: Node) -> Result<()> {
    let strays = || -> Vec<u32> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| runs_here(node, *pid)).collect()
    };
    for pid in strays() {
        let _ = kill_process(as_pid(pid)?, Signal::KILL);
    }
    wait(&format!("the end of an earlier supervisor of {node}"), Duration::from_secs(60), || Ok(strays().is_empty().then_some(())))
}

/// A process id read from a file may by now belong to another process.
fn runs_here(node: Node, pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).split('\0').any(|word| word == node.path("supervise.json"))
}

/// Ends the nodes in good order, all at the same time, and removes what is left of them outside of their folders.
pub fn stop(nodes: &[Node]) -> Result<()> {
    let running: Vec<_> = nodes.iter().filter_map(|node| Some((*node, process(*node)?))).collect();
    for (_, pid) in &running {
        let _ = kill_process(as_pid(*pid)?, Signal::TERM);
    }
    for (node, pid) in running {
        let gone = wait("the end of the supervisor", Duration::from_secs(90), || Ok((!runs_here(node, pid)).then_some(())));
        if gone.is_err() && runs_here(node, pid) {
            let _ = kill_process(as_pid(pid)?, Signal::KILL);
        }
    }
    nodes.iter().try_for_each(|node| clear(*node))
}

/// Ends the node's first process, and with it every other, as a loss of power ends a machine. Its disk stays.
pub fn power_off(node: Node) -> Result<()> {
    let inner = process(node).with_context(|| format!("{node} does not run"))?;
    let halves = processes(node);
    kill_process(as_pid(inner)?, Signal::KILL).with_context(|| format!("failed to end {node}"))?;
    // The outer half removes the file that names the inner one, which must not be the next one's.
    let alive = || halves.iter().any(|pid| runs_here(node, *pid));
    wait(&format!("the end of {node}"), Duration::from_secs(60), || Ok((!alive()).then_some(())))?;
    clear(node)
}

/// Removes what a node that ended has left on the machine outside of its folder.
fn clear(node: Node) -> Result<()> {
    end_strays(node)?;
    network::disconnect(node)?;
    cgroup::remove(node)?;
    if node.folder().exists() { leftovers::detach_loops(node) } else { Ok(()) }
}

fn as_pid(pid: u32) -> Result<Pid> {
    Pid::from_raw(i32::try_from(pid)?).context("failed to read a pid")
}
