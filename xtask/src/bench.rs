//! `cargo xtask bench`: release builds, a cluster of its own, and the figures and pictures of `docs/benchmarks.md`.

pub mod figures;

use crate::command::{command, run_in_terminal, this_program};
use crate::images::{self, Profile};
use crate::install;
use crate::instance::{Instance, repository};
use crate::{cargo, cluster, generate, guest, packages, progress, test_environment};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

const INSTANCE: Instance = Instance::YoiBench;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Benchmark {
    /// The provider's operations beside bare system calls
    Workspace,
    /// Ways to a working tree, side by side
    Providers,
    /// Forks of datasets, in the guest, whose kernel has ZFS
    Zfs,
    /// Ways to a working tree with ZFS among them, side by side, in the guest
    ProvidersZfs,
    /// The next base of a branch that moved, beside a fresh one
    Refresh,
    /// A working tree as it is captured and sent, beside `git status` and the changed files compressed
    Capture,
    /// A push of an agent's commits, beside `git push` by hand
    Push,
    Session,
    /// Grep beside ripgrep
    Tools,
    /// A reload of a tree's assets beside reading and hashing their files
    Assets,
    /// Memory of an agent's process, and how well its requests can be cached
    Runtime,
    /// What a program costs as an agent: proxy, frame, memory, and a task of programs from npm
    Programs,
    /// All of the ten that follow, or those of them that are named too
    Cluster,
    Agents,
    /// Agents that take warm session claims, alone and many at once
    Warm,
    /// `kubectl yoi run` until the agent's first word
    FirstWord,
    /// A message to an agent that rests, and what agents cost that rest
    Rest,
    /// What an attached person waits for
    Attach,
    Claims,
    /// What an agent that starts others waits for and writes
    Loans,
    Messages,
    Objects,
    /// Claims at a steady rate on simulated nodes: how fast the control plane is, and what it writes
    ClaimsAtRate,
}
use Benchmark::{
    Agents, Assets, Attach, Capture, Claims, ClaimsAtRate, Cluster, FirstWord, Loans, Messages, Objects, Programs, Providers, ProvidersZfs,
    Push, Refresh, Rest, Runtime, Session, Tools, Warm, Workspace, Zfs,
};

/// Benchmarks that need no cluster: what its rows are called, the crate, and the words for its program.
const ALONE: [(Benchmark, &str, &str, &[&str]); 10] = [
    (Workspace, "workspace", "yoi-workspace", &["--bench", "clone", "--", "snapshots", "overlays", "usage", "covers"]),
    (Providers, "providers", "yoi-workspace", &["--bench", "clone", "--", "providers"]),
    (Refresh, "refresh", "yoi-plan", &["--bench", "refresh"]),
    (Capture, "capture", "yoi-worktree", &["--bench", "capture"]),
    (Push, "push", "yoi-plan", &["--bench", "push"]),
    (Session, "session", "yoi-session", &[]),
    (Tools, "tools", "yoi-engine", &["--bench", "grep"]),
    (Assets, "assets", "yoi-engine", &["--bench", "assets"]),
    (Runtime, "runtime", "yoi-runtime", &["--bench", "agent"]),
    (Programs, "programs", "yoi-runtime", &["--bench", "programs"]),
];
/// Parts of the benchmark of `workspace` that need the guest's kernel.
const IN_GUEST: [(Benchmark, &str); 2] = [(Zfs, "zfs"), (ProvidersZfs, "providers-zfs")];
const PARTS: [(Benchmark, &str); 10] = [
    (Agents, "agents"),
    (Warm, "warm"),
    (FirstWord, "first-word"),
    (Rest, "rest"),
    (Attach, "attach"),
    (Claims, "claims"),
    (Loans, "loans"),
    (Messages, "messages"),
    (Objects, "objects"),
    (ClaimsAtRate, "claims-at-rate"),
];

/// The parts of the cluster benchmark to run. None means that no cluster is needed.
fn parts(wanted: &[Benchmark], keep: bool) -> Result<Vec<&'static str>> {
    let whole = wanted.is_empty() || wanted.contains(&Cluster) && !PARTS.iter().any(|(part, _)| wanted.contains(part));
    let parts: Vec<_> = PARTS.iter().filter(|(part, _)| whole || wanted.contains(part)).map(|(_, name)| *name).collect();
    if keep && parts.is_empty() {
        bail!("--keep leaves the cluster of the benchmarks running, and nothing that was asked for has one");
    }
    Ok(parts)
}

/// `wanted`: all when empty.
pub fn run(wanted: &[Benchmark], keep: bool) -> Result<()> {
    let parts = parts(wanted, keep)?;
    if !rustix::process::geteuid().is_root() {
        bail!("loop devices and a node need root");
    }
    packages::for_benches()?;
    let out = repository().join("target/bench");
    fs::create_dir_all(&out)?;
    figures::clear(&out)?;
    let mut failed = vec![];
    for (benchmark, name, package, words) in ALONE {
        if !wanted.is_empty() && !wanted.contains(&benchmark) {
            continue;
        }
        let environment = if benchmark == Programs { programs(&out)? } else { vec![] };
        if !bench(&out, package, words, &environment)? {
            failed.push(name);
        }
    }
    for (_, name) in IN_GUEST.iter().filter(|(benchmark, _)| wanted.is_empty() || wanted.contains(benchmark)) {
        match guest::lack() {
            Some(why) => progress::note(&format!("The benchmark {name} is left out: {why}")),
            None if !in_guest(&out, name)? => failed.push(name),
            None => {}
        }
    }
    if !parts.is_empty() {
        let done = on_a_cluster(&out, &parts);
        if !keep {
            cluster::down(INSTANCE)?;
        }
        if !done? {
            failed.push("cluster");
        }
    }
    figures::store(&out, &machine()?)?;
    generate::run(false)?;
    if !failed.is_empty() {
        bail!("these benchmarks failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs a part in the guest and keeps its rows. It prints them last, because nothing of the guest's files stays.
fn in_guest(out: &Path, part: &str) -> Result<bool> {
    const ROWS: &str = "rows:";
    packages::for_guest()?;
    let program = cargo::executable(&["bench", "--no-run", "-p", "yoi-workspace", "--bench", "clone"])?;
    let name = program.file_name().context("the benchmark has no name")?.to_string_lossy().into_owned();
    let mut run = command(this_program()?, ["guest", "--limit", "7200", "--bring"]);
    run.arg(&program).arg("--");
    run.arg(format!("modprobe -a loop zfs && TMPDIR=/dev/shm YOI_BENCH_OUT=. ./{name} {part} && echo {ROWS} && cat {part}.json"));
    let mut guest = run.stdout(Stdio::piped()).spawn().context("failed to start the guest")?;
    let mut rows: Option<String> = None;
    for line in BufReader::new(guest.stdout.take().context("the guest has no output")?).lines() {
        let line = line?;
        match &mut rows {
            Some(rows) => *rows += &line,
            None if line == ROWS => rows = Some(String::new()),
            None => println!("{line}"),
        }
    }
    let done = guest.wait()?.success();
    if let (true, Some(rows)) = (done, &rows) {
        fs::write(out.join(format!("{part}.json")), rows)?;
    }
    Ok(done && rows.is_some())
}

/// Names the programs from npm to their benchmark, which does without those that cannot be installed.
fn programs(out: &Path) -> Result<Vec<(&'static str, String)>> {
    if let Some(why) = images::programs_unavailable()? {
        progress::note(&format!("The benchmark of a task is left out: {why}"));
        return Ok(vec![]);
    }
    let folder = out.join("programs");
    images::unpack_programs(&folder)?;
    Ok(vec![("YOI_PROGRAMS", folder.display().to_string())])
}

fn on_a_cluster(out: &Path, parts: &[&str]) -> Result<bool> {
    cluster::up(INSTANCE, cluster::Shape::default())?;
    let built = images::build_all_as(Profile::Release)?;
    images::import_all(INSTANCE, &built)?;
    install::charts(&install::target(INSTANCE)?, &built.references())?;
    let environment = test_environment::variables(INSTANCE, &built)?;
    bench(out, "yoi-e2e", &[&["--bench", "cluster", "--"], parts].concat(), &environment)
}

fn bench(out: &Path, package: &str, more: &[&str], environment: &[(&'static str, String)]) -> Result<bool> {
    let mut bench = cargo::cargo();
    bench.args(["bench", "-p", package]).args(more).current_dir(repository()).env("YOI_BENCH_OUT", out);
    bench.envs(environment.iter().map(|(name, value)| (name, value)));
    run_in_terminal(&mut bench)
}

/// What the figures were measured on.
fn machine() -> Result<String> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cores = std::thread::available_parallelism()?;
    let model =
        read("/proc/cpuinfo").lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, m)| m.trim().to_owned()));
    let memory =
        read("/proc/meminfo").lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    Ok(format!(
        "{cores} cores ({}), {} GiB, Linux {}, Kubernetes {}",
        model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        memory >> 20,
        kernel.trim(),
        yoi_host::cluster::KUBERNETES
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_reason_enough_for_a_cluster_and_the_cluster_alone_means_every_part() {
        let all = ["agents", "warm", "first-word", "rest", "attach", "claims", "loans", "messages", "objects", "claims-at-rate"];
        let parts = |wanted: &[Benchmark]| parts(wanted, false).unwrap();
        assert_eq!(parts(&[]), all);
        assert_eq!(parts(&[Workspace, Cluster]), all);
        assert_eq!(parts(&[Cluster, Objects, Claims]), ["claims", "objects"]);
        assert_eq!(parts(&[Agents]), ["agents"]);
        assert!(parts(&[Workspace, Providers, Refresh, Push, Session, Tools, Assets, Runtime, Programs]).is_empty());
    }

    #[test]
    fn keep_without_a_cluster_is_refused() {
        assert!(parts(&[Workspace], true).is_err());
        assert_eq!(parts(&[Workspace, Agents], true).unwrap(), ["agents"]);
    }
}
