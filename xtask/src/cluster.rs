//! One node's life: up (start, repair or reuse), status, down without a trace.
//!
//! The node lives in its own pid, mount and network namespaces below one supervisor, so it can run on a machine that has its own
//! container runtime, and what it starts, mounts or configures ends with it.

mod addons;
mod cgroup;
mod leftovers;
mod network;
mod node;
mod pki;

pub use leftovers::HostInventory;

use crate::command::{capture, command, run, wait};
use crate::instance::{Instance, ROOT, cache};
use crate::{build, images, packages, progress};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

pub fn up(instance: Instance) -> Result<()> {
    packages::for_cluster()?;
    let programs = build::kubernetes()?;
    let _lock = lock(instance)?;
    let step = progress::start(format!("Start the cluster {instance}"));
    let prepared = node::prepare(instance, &programs)?;
    match supervisor(instance) {
        Some(_) if prepared.changed => {
            stop(instance)?;
            start(instance, &programs)?;
            step.done("its settings changed, so it was started again");
        }
        Some(_) => step.done("it runs already"),
        None => {
            // What a killed supervisor could not take away.
            network::remove(instance)?;
            start(instance, &programs)?;
            step.done(format!("Kubernetes {} at https://{}:6443", build::KUBERNETES, instance.node_address()));
        }
    }
    let tar = images::cluster_archives()?;
    images::import(instance, &tar)?;
    addons::apply(instance, &programs)?;
    link_program(instance, "kubectl", &programs.join("kubectl"))?;
    link_program(instance, "helm", &build::tools()?.join("helm"))?;
    let step = progress::start("Wait until the node, cluster DNS and storage answer");
    addons::wait_ready(instance, &programs)?;
    step.done("");
    Ok(())
}

pub fn explain(instance: Instance) {
    println!("\nThe cluster {instance} is up.\n  export KUBECONFIG={}", instance.kubeconfig().display());
    println!("  export PATH={}:$PATH   # kubectl and helm", instance.path("bin"));
    println!("  NetworkPolicies are stored and not enforced here; use kind with its own network or a real cluster to see them act.");
    println!(
        "  `cargo xtask cluster exec --name {instance} -- bash` enters the node; `cargo xtask down --name {instance}` removes all of it."
    );
}

/// One folder for PATH, the same whatever is built anew.
pub fn link_program(instance: Instance, name: &str, program: &Path) -> Result<()> {
    let bin = instance.state().join("bin");
    fs::create_dir_all(&bin)?;
    let _ = fs::remove_file(bin.join(name));
    Ok(std::os::unix::fs::symlink(program, bin.join(name))?)
}

fn start(instance: Instance, programs: &Path) -> Result<()> {
    cgroup::prepare(instance)?;
    let log = fs::File::create(instance.path("log/supervise.log"))?;
    let mut supervise = Command::new(programs.join("yoi-cluster"));
    supervise.arg("supervise").arg(instance.path("supervise.json"));
    for stale in ["gate", "ready", "pid"] {
        let _ = fs::remove_file(instance.path(stale));
    }
    use std::os::unix::process::CommandExt;
    supervise.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/").process_group(0);
    let mut child = supervise.spawn().context("failed to start the supervisor")?;
    let mut alive = |instance: Instance| -> Result<()> {
        if let Some(status) = child.try_wait()? {
            let said = fs::read_to_string(instance.path("log/supervise.log")).unwrap_or_default();
            bail!("the supervisor ended ({status}): {}", said.trim());
        }
        Ok(())
    };
    let inner = wait("the node's namespaces", Duration::from_secs(10), || {
        alive(instance)?;
        Ok(supervisor(instance))
    })?;
    network::connect(instance, inner)?;
    fs::write(instance.path("gate"), "")?;
    wait("the parts of the node", Duration::from_secs(120), || {
        alive(instance)?;
        Ok(Path::new(&instance.path("ready")).exists().then_some(()))
    })
    .with_context(|| format!("see the logs in {}", instance.path("log")))?;
    let kubectl = Kubectl::new(instance, programs);
    let ready = || kubectl.run(["get", "--raw", "/readyz"]).map(|_| Some(()));
    wait("a ready API server", Duration::from_secs(120), ready).with_context(|| format!("see the logs in {}", instance.path("log")))
}

/// The process that holds the node's namespaces, as the host sees it, when it lives.
fn supervisor(instance: Instance) -> Option<u32> {
    let pid = fs::read_to_string(instance.path("pid")).ok()?.split_whitespace().next()?.parse().ok()?;
    runs_here(instance, pid).then_some(pid)
}

/// A process id read from a file may by now belong to another process.
fn runs_here(instance: Instance, pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).split('\0').any(|word| word == instance.path("supervise.json"))
}

fn stop(instance: Instance) -> Result<()> {
    if let Some(pid) = supervisor(instance) {
        let process = rustix::process::Pid::from_raw(pid as i32).context("failed to read the supervisor's pid")?;
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let gone = wait("the end of the supervisor", Duration::from_secs(90), || Ok((!runs_here(instance, pid)).then_some(())));
        if gone.is_err() && runs_here(instance, pid) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
    network::remove(instance)?;
    cgroup::remove(instance)
}

/// Ends the node's first process, as a loss of power ends a machine, and starts it again from what is on disk.
pub fn reboot(instance: Instance) -> Result<()> {
    let programs = build::kubernetes()?;
    let _lock = lock(instance)?;
    let inner = supervisor(instance).with_context(|| format!("the cluster {instance} does not run"))?;
    let outer = fs::read_to_string(instance.path("pid"))?.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
    let step = progress::start(format!("Start the node of {instance} anew"));
    let process = rustix::process::Pid::from_raw(inner as i32).context("failed to read the node's pid")?;
    rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
    // The outer half removes the file that names the inner one, which must not be the next one's.
    let alive = || [Some(inner), outer].into_iter().flatten().any(|pid| runs_here(instance, pid));
    wait("the end of the node", Duration::from_secs(60), || Ok((!alive()).then_some(())))?;
    network::remove(instance)?;
    cgroup::remove(instance)?;
    leftovers::detach_loops(instance)?;
    start(instance, &programs)?;
    step.done("");
    Ok(())
}

pub fn down(instance: Instance) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("removing a node needs root");
    }
    let _lock = lock(instance)?;
    let step = progress::start(format!("Remove the cluster {instance}"));
    stop(instance)?;
    leftovers::detach_loops(instance)?;
    if instance.state().exists() {
        if let Some(mount) = leftovers::mounts_below(&instance.state())?.first() {
            bail!("failed to remove {}: {mount} is still mounted there", instance.state().display());
        }
        // Trees are in the data root's own file system, of which only the file is here; their read-only subvolumes would resist.
        fs::remove_dir_all(instance.state()).with_context(|| format!("failed to remove {}", instance.state().display()))?;
    }
    if Instance::ALL.into_iter().all(|other| !other.state().exists()) {
        node::remove_mount_points();
        let _ = fs::remove_dir(ROOT);
    }
    step.done("");
    Ok(())
}

pub fn status(instance: Instance) -> Result<()> {
    let Some(pid) = supervisor(instance) else {
        println!("{instance}: not running{}", if instance.state().exists() { " (its state is kept; `up` starts it again)" } else { "" });
        return Ok(());
    };
    println!("{instance}: process {pid}, API https://{}:6443", instance.node_address());
    println!("  KUBECONFIG={}\n  logs {}", instance.kubeconfig().display(), instance.path("log"));
    let kubectl = Kubectl::new(instance, &build::kubernetes()?);
    print!("{}", kubectl.run(["get", "nodes,pods", "-A", "-o", "wide"])?);
    Ok(())
}

pub fn exec(instance: Instance, words: &[String]) -> Result<ExitCode> {
    let pid = supervisor(instance).with_context(|| format!("the cluster {instance} does not run"))?;
    let mut enter = Command::new("nsenter");
    let status = enter.args(["-t", &pid.to_string(), "-m", "-n", "-p", "--"]).args(words).status().context("failed to start nsenter")?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

/// kubectl as the administrator of one cluster.
pub struct Kubectl {
    program: PathBuf,
    target: [OsString; 2],
}

impl Kubectl {
    pub fn new(instance: Instance, programs: &Path) -> Self {
        Self { program: programs.join("kubectl"), target: ["--kubeconfig".into(), instance.kubeconfig().into()] }
    }

    pub fn of_context(programs: &Path, context: &str) -> Self {
        Self { program: programs.join("kubectl"), target: ["--context".into(), context.into()] }
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut kubectl = command(&self.program, &self.target);
        kubectl.args(args);
        kubectl
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        capture(&mut self.command(args))
    }

    /// Pods and Events of a namespace, for an error message.
    pub fn diagnostics(&self, namespace: &str) -> String {
        let ask = |words: &[&str]| self.run(["--namespace", namespace].iter().chain(words)).unwrap_or_else(|error| format!("{error:#}\n"));
        let mut text = format!("{namespace}:\n{}", ask(&["get", "pods", "-o", "wide"]));
        let events = ask(&[
            "get",
            "events",
            "--sort-by=.lastTimestamp",
            "-o",
            "custom-columns=OBJECT:.involvedObject.name,REASON:.reason,TEXT:.message",
        ]);
        text += &crate::command::tail(&events, 8);
        for pod in ask(&["get", "pods", "-o", "name"]).lines() {
            text += &format!("\n{pod}:\n{}", ask(&["logs", pod, "--all-containers", "--tail=6"]));
        }
        text
    }

    pub fn apply(&self, manifests: &str) -> Result<()> {
        crate::command::run_with_input(&mut self.command(["apply", "--server-side", "--force-conflicts", "-f", "-"]), manifests)
    }
}

/// One xtask at a time may change an instance.
fn lock(instance: Instance) -> Result<fs::File> {
    fs::create_dir_all(cache())?;
    let file = fs::File::create(cache().join(format!("{instance}.lock")))?;
    wait("the end of another `cargo xtask` on this cluster", Duration::from_secs(1200), || {
        Ok(rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok())
    })?;
    Ok(file)
}

fn ip(line: &str) -> Result<()> {
    run(&mut command("ip", line.split_whitespace()))
}
