//! Programs made from Go modules, kept in the user's cache under the content they were made from.

use crate::cache;
use crate::command::{command, find_program, run};
use crate::instance::repository;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use yoi_host::cluster::{KUBERNETES, Programs};

/// All that a cluster is made with.
pub fn programs() -> Result<Programs> {
    Ok(Programs { kubernetes: kubernetes()?, netpol: netpol()?.join("netpol"), helm: tools()?.join("helm") })
}

/// Folder of `yoi-cluster` and of a `kubectl` that is the same file.
pub fn kubernetes() -> Result<PathBuf> {
    let (major, minor) = ("1", "34");
    let package = "k8s.io/component-base/version";
    let link = format!("-s -w -X {package}.gitVersion={KUBERNETES} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}");
    go(&Module {
        name: "kubernetes",
        folder: "e2e/cluster",
        targets: &["."],
        link: &link,
        programs: &["cluster"],
        about: &format!("Compile Kubernetes {KUBERNETES} (about 7 minutes on 2 cores, the first time only)"),
        finish: |folder| {
            fs::rename(folder.join("cluster"), folder.join("yoi-cluster"))?;
            Ok(std::os::unix::fs::symlink("yoi-cluster", folder.join("kubectl"))?)
        },
    })
}

/// Folder of `helm`, `kind`, `crane`, `coredns`, `pause`.
pub fn tools() -> Result<PathBuf> {
    go(&Module {
        name: "tools",
        folder: "e2e/cluster/tools",
        targets: &[
            "./pause",
            "./coredns",
            "helm.sh/helm/v3/cmd/helm",
            "sigs.k8s.io/kind",
            "github.com/google/go-containerregistry/cmd/crane",
        ],
        link: "-s -w",
        programs: &["pause", "coredns", "helm", "kind", "crane"],
        about: "Compile helm, CoreDNS, kind and crane (about 3 minutes, the first time only)",
        finish: |_| Ok(()),
    })
}

/// Folder of `local-path-provisioner`.
pub fn local_path() -> Result<PathBuf> {
    go(&Module {
        name: "local-path",
        folder: "e2e/cluster/local-path",
        targets: &["github.com/rancher/local-path-provisioner"],
        link: "-s -w",
        programs: &["local-path-provisioner"],
        about: "Compile the local-path provisioner (about a minute, the first time only)",
        finish: |_| Ok(()),
    })
}

/// Installs cargo-deny into the user's cache and returns its folder, for PATH.
pub fn cargo_deny() -> Result<PathBuf> {
    const VERSION: &str = "0.20.2";
    cache::folder("cargo-deny", &cache::key([VERSION]), "Compile cargo-deny (about 5 minutes, the first time only)", |fresh| {
        let mut install = crate::cargo::cargo();
        install.args(["install", "cargo-deny", "--locked", "--version", VERSION, "--root"]);
        // The folder that it compiles in is its own, and not this repository's with its static flag.
        run(install.arg(fresh).current_dir("/"))
    })
}

/// Folder of `netpol`, which enforces NetworkPolicies on a node.
pub fn netpol() -> Result<PathBuf> {
    go(&Module {
        name: "netpol",
        folder: "e2e/cluster/netpol",
        targets: &["."],
        link: "-s -w",
        programs: &["netpol"],
        about: "Compile what enforces NetworkPolicies (about 2 minutes, the first time only)",
        finish: |_| Ok(()),
    })
}

struct Module<'a> {
    name: &'a str,
    folder: &'a str,
    targets: &'a [&'a str],
    link: &'a str,
    programs: &'a [&'a str],
    about: &'a str,
    finish: fn(&Path) -> Result<()>,
}

fn go(module: &Module) -> Result<PathBuf> {
    let source = repository().join(module.folder);
    cache::folder(module.name, &content_key(&source, module)?, module.about, |fresh| {
        let go = find_program("go").context("failed to find go; install Go 1.25 or newer (https://go.dev/dl)")?;
        let mut build = command(go, ["build", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", module.link, "-o"]);
        // One target would name the file itself, and a folder that exists keeps the package's own name in any case.
        build.arg(format!("{}/", fresh.display())).args(module.targets).current_dir(&source).env("CGO_ENABLED", "0");
        run(&mut build)?;
        for program in module.programs {
            fs::metadata(fresh.join(program)).with_context(|| format!("failed to build {program}"))?;
        }
        (module.finish)(fresh)
    })
}

/// The sources of the module itself and how it is linked; go.sum pins everything else.
fn content_key(source: &Path, module: &Module) -> Result<String> {
    let mut files = vec![];
    for folder in std::iter::once(source.to_path_buf()).chain(module.targets.iter().filter(|t| t.starts_with("./")).map(|t| source.join(t)))
    {
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "go" || e == "mod" || e == "sum") {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut parts = vec![module.link.as_bytes().to_vec(), std::env::consts::ARCH.into()];
    for file in files {
        parts.push(fs::read(&file)?);
    }
    Ok(cache::key(parts))
}
