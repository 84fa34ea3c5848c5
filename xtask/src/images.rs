//! The images: what is in each, and how they reach a cluster. Tags are content, so what did not change is not imported again.

mod base;
mod oci;
mod programs;
mod registry;

use crate::command::{capture, command, find_program};
use crate::instance::{Instance, cache, repository};
use crate::tree::ImageTree;
use crate::{build, cargo, cluster, packages, progress};
use anyhow::{Context, Result, bail};
use oci::Image;
pub use registry::{Registry, push};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
pub use yoi_host::images::{Archive, References};

/// The uid of processes that need none.
const NOBODY: &str = "65532:65532";

/// The programs that ship: crate and binary.
const SHIPPED: [(&str, &str); 7] = [
    ("yoi-operator", "yoi-operator"),
    ("yoi-gateway", "yoi-gateway"),
    ("yoi-agent-shim", "yoi-agent-shim"),
    ("yoi-runtime", "yoi-runtime"),
    ("yoi-e2e", "scripted-model"),
    ("kubectl-yoi", "kubectl-yoi"),
    ("yoi-host", "yoi-host"),
];

pub fn build_and_import(instance: Instance) -> Result<Built> {
    let built = build_for(instance)?;
    import_all(instance, &built)?;
    Ok(built)
}

/// Builds the images of the programs that agents can be, and imports them. They are in no list of what is published or pushed.
pub fn build_and_import_programs(instance: Instance) -> Result<()> {
    if !instance.state().exists() {
        bail!("the cluster {instance} is not there; run `cargo xtask cluster up --name {instance}` first");
    }
    packages::for_images()?;
    let archives = programs::build()?;
    cluster::import(instance, &archives)?;
    for archive in &archives {
        progress::note(&format!("{}: {}", archive.name, archive.reference()));
    }
    Ok(())
}

/// Why the programs' images cannot be built here, for people.
pub fn programs_unavailable() -> Result<Option<String>> {
    programs::unavailable()
}

/// Makes a folder whose `bin` has the programs that benchmarks run by hand.
pub fn unpack_programs(folder: &Path) -> Result<()> {
    programs::unpack_for_benches(folder)
}

/// Builds the image with all programs, imports it, and writes the references of `built` and of it into a file, which it returns.
pub fn import_programs(instance: Instance, built: &Built) -> Result<PathBuf> {
    packages::for_images()?;
    let archives = programs::build_one_with_all()?;
    cluster::import(instance, &archives)?;
    let mut references = built.references();
    references.extend(archives.iter().map(|archive| (archive.name.clone(), archive.reference())));
    let file = PathBuf::from(instance.path("images-with-programs.json"));
    fs::write(&file, serde_json::to_string_pretty(&references)? + "\n")?;
    Ok(file)
}

/// Imports, writes down the references, and only then complains of what is missing.
pub fn import_all(instance: Instance, built: &Built) -> Result<()> {
    if !instance.state().exists() {
        bail!("the cluster {instance} is not there; run `cargo xtask cluster up --name {instance}` first");
    }
    cluster::import(instance, &built.archives)?;
    fs::write(instance.path("images.json"), serde_json::to_string_pretty(&built.references())? + "\n")?;
    progress::note(&format!("references: {}", instance.path("images.json")));
    built.complete()
}

pub struct Built {
    pub archives: Vec<Archive>,
    pub programs: BTreeMap<&'static str, PathBuf>,
    missing: Vec<String>,
}

impl Built {
    pub fn references(&self) -> References {
        self.archives.iter().map(|archive| (archive.name.clone(), archive.reference())).collect()
    }

    /// Path of the plugin.
    pub fn plugin(&self) -> Result<&Path> {
        self.programs.get("kubectl-yoi").map(PathBuf::as_path).context("kubectl-yoi was not built")
    }

    /// What could be built is there by now; what could not is an error all the same.
    pub fn complete(&self) -> Result<()> {
        if self.missing.is_empty() {
            return Ok(());
        }
        bail!("failed to build {}", self.missing.join(", "))
    }
}

/// How the programs are compiled.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Soon compiled, slower, and larger in memory
    Dev,
    /// Optimized
    Release,
}

/// Builds all images, and for the cluster that tests share the one that only they run.
pub fn build_for(instance: Instance) -> Result<Built> {
    with_test_images(instance, build_all()?)
}

/// As [`build_for`], of programs that are compiled already, by their names.
pub fn build_with(instance: Instance, programs: &BTreeMap<String, PathBuf>) -> Result<Built> {
    packages::for_images()?;
    let found = |program: &'static str| Some((program, programs.get(program)?.clone()));
    with_test_images(instance, make(SHIPPED.iter().filter_map(|(_, program)| found(program)).collect())?)
}

fn with_test_images(instance: Instance, mut built: Built) -> Result<Built> {
    if instance == Instance::YoiTest {
        built.archives.push(base::git_server()?);
    }
    Ok(built)
}

pub fn build_all() -> Result<Built> {
    build_all_as(Profile::Dev)
}

pub fn build_all_as(profile: Profile) -> Result<Built> {
    build_all_of(repository(), None, profile)
}

/// The images of the sources in `folder`, compiled into `target` where it is not the folder's own.
pub fn build_all_of(folder: &Path, target: Option<&Path>, profile: Profile) -> Result<Built> {
    packages::for_images()?;
    make(compile(folder, target, profile)?)
}

/// Makes the images of these programs; those that are missing are missing in the result.
fn make(programs: BTreeMap<&'static str, PathBuf>) -> Result<Built> {
    let mut archives = cluster_archives()?;
    // Before the step below, because the first time has a step of its own.
    let agent = base::agent()?;
    let step = progress::start("Make the images");
    for (name, program) in [("operator", "yoi-operator"), ("gateway", "yoi-gateway"), ("scripted-model", "scripted-model")] {
        if let Some(file) = programs.get(program) {
            archives.push(oci::write(&one_program(name, file, NOBODY)?)?);
        }
    }
    if let (Some(shim), Some(runtime)) = (programs.get("yoi-agent-shim"), programs.get("yoi-runtime")) {
        let mut tree = ImageTree::new();
        tree.program("bin/yoi-agent-shim", shim)?;
        tree.program("bin/yoi-runtime", runtime)?;
        with_libraries(&mut tree, "sbin/mkfs.btrfs", "mkfs.btrfs")?;
        archives.push(oci::write(&Image::of_tree("agent-shim", tree, "0:0", "/bin/yoi-agent-shim")?)?);
    }
    archives.push(agent);
    archives.push(base::example_git()?);
    step.done(format!("{} images", archives.len()));
    let missing = SHIPPED.iter().filter(|(_, program)| !programs.contains_key(program)).map(|(_, p)| (*p).to_owned()).collect();
    Ok(Built { archives, programs, missing })
}

/// What the bare cluster itself runs.
pub fn cluster_archives() -> Result<Vec<Archive>> {
    packages::for_images()?;
    let (tools, local_path) = (build::tools()?, build::local_path()?);
    let mut busybox = ImageTree::new();
    with_libraries(&mut busybox, "bin/busybox", "busybox")?;
    let applets = capture(&mut command(find_program("busybox").context("failed to find busybox")?, ["--list"]))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        busybox.link(&format!("bin/{applet}"), "busybox");
    }
    let mut busybox = Image::of_tree("busybox", busybox, "0:0", "/bin/sh")?;
    busybox.arguments_only();
    let images = [
        one_program("pause", &tools.join("pause"), "65535:65535")?,
        // Port 53 takes NET_BIND_SERVICE, which no other uid would hold.
        one_program("coredns", &tools.join("coredns"), "0:0")?,
        one_program("local-path-provisioner", &local_path.join("local-path-provisioner"), NOBODY)?,
        busybox,
    ];
    images.iter().map(oci::write).collect()
}

fn one_program(name: &str, file: &Path, user: &str) -> Result<Image> {
    let mut tree = ImageTree::new();
    let program = file.file_name().context("failed to name a program")?.to_string_lossy().into_owned();
    tree.program(&program, file)?;
    Image::of_tree(name, tree, user, &format!("/{program}"))
}

/// A program of this machine, and the libraries it loads, each where the loader looks for it.
fn with_libraries(tree: &mut ImageTree, to: &str, program: &str) -> Result<()> {
    let file = find_program(program).with_context(|| format!("failed to find {program}"))?;
    tree.program(to, &file)?;
    // ldd fails for a static program: then there is nothing to bring.
    let listed = capture(&mut command("ldd", [&file])).unwrap_or_default();
    for library in listed.lines().flat_map(str::split_whitespace).filter(|word| word.starts_with('/')) {
        tree.program(library.trim_start_matches('/'), Path::new(library))?;
    }
    Ok(())
}

/// Builds the shipped programs; returns those that could be built.
fn compile(folder: &Path, target: Option<&Path>, profile: Profile) -> Result<BTreeMap<&'static str, PathBuf>> {
    let step = progress::start(match profile {
        Profile::Dev => "Compile Yoi (a few minutes the first time)",
        Profile::Release => "Compile Yoi, optimized (about 12 minutes on 2 cores, the first time only)",
    });
    let mut cargo = cargo::cargo();
    cargo.args(["build", "--keep-going", "--message-format=json-render-diagnostics"]).current_dir(folder);
    if let Some(target) = target {
        cargo.arg("--target-dir").arg(target);
    }
    for (package, _) in SHIPPED {
        cargo.args(["-p", package]);
    }
    match profile {
        Profile::Dev => cargo.args(["--features", "yoi-e2e/as-unit-tests"]),
        Profile::Release => cargo.arg("--release"),
    };
    let output = cargo.stderr(std::process::Stdio::inherit()).output().context("failed to start cargo")?;
    let mut programs = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let program = SHIPPED.iter().find(|(_, program)| message["target"]["name"] == *program && message["target"]["kind"][0] == "bin");
        if let (Some((_, program)), Some(file)) = (program, message["executable"].as_str()) {
            programs.insert(*program, PathBuf::from(file));
        }
    }
    step.done(format!("{} of {} programs", programs.len(), SHIPPED.len()));
    Ok(programs)
}

/// Archives of what was built, by content; older ones of the same image go.
fn archive_folder() -> PathBuf {
    cache().join("images")
}
