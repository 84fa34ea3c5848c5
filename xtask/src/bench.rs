//! `cargo xtask bench`: release builds, a cluster of its own, and the figures and pictures of `docs/benchmarks.md`.

mod page;

use crate::command::{command, loud};
use crate::images::{self, Profile};
use crate::install::{self, Target};
use crate::instance::{Instance, repository};
use crate::{build, cluster, witness};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const INSTANCE: Instance = Instance::YoiBench;
/// Benchmarks that need no cluster: crate and what its rows are called.
const ALONE: [(&str, &str); 2] = [("yoi-workspace", "workspace"), ("yoi-session", "session")];
const CLUSTER: &str = "cluster";

/// `wanted`: names of benchmarks, all when empty; after `cluster`, parts of that one.
pub fn run(wanted: &[String], keep: bool) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("loop devices and a node need root");
    }
    let out = repository().join("target/bench");
    fs::create_dir_all(&out)?;
    let asked = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let mut failed = vec![];
    for (package, name) in ALONE {
        if asked(name) && !bench(&out, package, &[], &[])? {
            failed.push(name);
        }
    }
    if asked(CLUSTER) {
        let parts: Vec<&str> = wanted.iter().map(String::as_str).skip_while(|word| *word != CLUSTER).skip(1).collect();
        let done = on_a_cluster(&out, &parts);
        if !keep {
            cluster::down(INSTANCE)?;
        }
        if !done? {
            failed.push(CLUSTER);
        }
    }
    page::write(&out)?;
    if !failed.is_empty() {
        bail!("these benchmarks failed: {}", failed.join(", "));
    }
    Ok(())
}

fn on_a_cluster(out: &Path, parts: &[&str]) -> Result<bool> {
    cluster::up(INSTANCE)?;
    let built = images::build_all_as(Profile::Release)?;
    images::import_all(INSTANCE, &built)?;
    install::charts(&Target::local(INSTANCE)?, &built.references())?;
    let environment = witness::environment(INSTANCE, &built)?;
    bench(out, "yoi-e2e", &[&["--bench", "cluster", "--"], parts].concat(), &environment)
}

fn bench(out: &Path, package: &str, more: &[&str], environment: &[(&'static str, String)]) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut bench: Command = command(PathBuf::from(cargo), ["bench", "-p", package]);
    bench.args(more).current_dir(repository()).env("YOI_BENCH_OUT", out);
    bench.envs(environment.iter().map(|(name, value)| (name, value)));
    loud(&mut bench)
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
        build::KUBERNETES
    ))
}
