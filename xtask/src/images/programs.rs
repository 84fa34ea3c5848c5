//! Images of the programs that agents can be: the agents' Debian and what npm installs by `xtask/programs/package-lock.json`. Not all of
//! them may be passed on, so these images stay on this machine and in its local cluster.

use super::base;
use super::oci;
use crate::command::{command, find_program, run};
use crate::instance::{cache, repository};
use crate::progress;
use crate::tree::ImageTree;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use yoi_host::images::Archive;

/// Where the packages are in an image.
const FOLDER: &str = "opt/programs";
/// Part of the key of what is kept: it grows with each change to this file that changes a layer.
const RECIPE: &str = "1";
/// `npm ci` refuses a lock that lacks packages for other systems, which not every registry holds. `install` takes each locked package by its version and
/// digest, too. Their sizes go by hundreds of MiB, so a slow line needs its time.
const NPM: [&str; 6] = ["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-timeout=600000"];

/// A layer of packages of npm.
struct Packages {
    name: &'static str,
    /// Folders below `node_modules`. One that ends with `*` stands for the packages of this machine's architecture.
    folders: &'static [&'static str],
    /// The program, and its file below `node_modules`.
    program: (&'static str, &'static str),
}

/// Debian's Node is too old for some of them.
const NODE: Packages =
    Packages { name: "node", folders: &["node-linux-*/bin", "node-linux-*/LICENSE"], program: ("node", "node-linux-*/bin/node") };

const CLAUDE: Packages =
    Packages { name: "claude", folders: &["@anthropic-ai/claude-code"], program: ("claude", "@anthropic-ai/claude-code/bin/claude.exe") };
const CODEX: Packages =
    Packages { name: "codex", folders: &["@openai/codex", "@openai/codex-linux-*"], program: ("codex", "@openai/codex/bin/codex.js") };
const GEMINI: Packages =
    Packages { name: "gemini", folders: &["@google/gemini-cli"], program: ("gemini", "@google/gemini-cli/bundle/gemini.js") };
const COPILOT: Packages = Packages {
    name: "copilot",
    folders: &["@github/copilot", "@github/copilot-linux-*", "detect-libc"],
    program: ("copilot", "@github/copilot/npm-loader.js"),
};
const OPENCODE: Packages = Packages { name: "opencode", folders: &["opencode-ai"], program: ("opencode", "opencode-ai/bin/opencode.exe") };

/// Name of the image with all of them.
const WITH_ALL: &str = "programs";
const LAYERS: [&Packages; 6] = [&NODE, &CLAUDE, &CODEX, &GEMINI, &COPILOT, &OPENCODE];

const FOR_BENCHES: [&Packages; 3] = [&NODE, &CLAUDE, &GEMINI];

/// The images and their layers. Those of programs that are scripts have Node.
const IMAGES: [(&str, &[&Packages]); 6] = [
    ("program-claude", &[&CLAUDE]),
    ("program-codex", &[&NODE, &CODEX]),
    ("program-gemini", &[&NODE, &GEMINI]),
    ("program-copilot", &[&NODE, &COPILOT]),
    ("program-opencode", &[&OPENCODE]),
    (WITH_ALL, &LAYERS),
];

/// Builds all of them. What is in the cache is not built again, and then npm is not asked.
pub fn build() -> Result<Vec<Archive>> {
    build_those(|_| true)
}

/// Builds the image with all programs.
pub fn build_one_with_all() -> Result<Vec<Archive>> {
    build_those(|name| name == WITH_ALL)
}

fn build_those(wanted: fn(&str) -> bool) -> Result<Vec<Archive>> {
    let key = key()?;
    let installed = Installed { key, folder: None };
    // Before the steps below, because the first time has a step of its own.
    base::agent()?;
    let layers = installed.layers()?;
    let step = progress::start("Make the programs' images");
    let mut archives = vec![];
    for (name, packages) in IMAGES.into_iter().filter(|(name, _)| wanted(name)) {
        let mut image = base::image(name)?;
        let mut links = ImageTree::new();
        for one in packages {
            let (_, layer) = layers.iter().find(|(layer, _)| *layer == one.name).context("failed to find a layer")?;
            image = image.with_tar(layer.clone());
            let (program, file) = one.program;
            links.link(&format!("usr/local/bin/{program}"), &format!("/{FOLDER}/node_modules/{}", of_this_machine(file)));
        }
        archives.push(oci::write(&image.with(&links)?)?);
    }
    step.done(format!("{} images", archives.len()));
    Ok(archives)
}

/// A folder whose `bin` has the programs that benchmarks run by hand. It is made anew, from the layers of the images.
pub fn unpack_for_benches(folder: &Path) -> Result<()> {
    let layers = Installed { key: key()?, folder: None }.layers()?;
    let step = progress::start("Unpack the programs of the benchmarks");
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("failed to remove {}", folder.display()))?;
    }
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    for packages in FOR_BENCHES {
        let (_, layer) = layers.iter().find(|(layer, _)| *layer == packages.name).context("failed to find a layer")?;
        run(command("tar", ["--extract", "--file"]).arg(layer).arg("--directory").arg(folder))?;
        let (program, file) = packages.program;
        std::os::unix::fs::symlink(folder.join(FOLDER).join("node_modules").join(of_this_machine(file)), bin.join(program))?;
    }
    step.done("");
    Ok(())
}

/// Why the programs cannot be installed here, for people; `None` where they can be, or are in the cache.
pub fn unavailable() -> Result<Option<String>> {
    let key = key()?;
    if LAYERS.iter().all(|packages| layer(packages, &key).exists()) {
        return Ok(None);
    }
    if find_program("npm").is_none() {
        return Ok(Some("npm is not installed, and the programs are not in the cache".to_owned()));
    }
    // Asks for one small document, and not again.
    let mut ask = command("npm", ["view", "detect-libc", "version", "--fetch-retries=0", "--fetch-timeout=20000", "--loglevel=error"]);
    Ok(run(&mut ask)
        .is_err()
        .then(|| "the registry of `npm config get registry` cannot be reached, and the programs are not in the cache".to_owned()))
}

/// The tar of a layer in the cache.
fn layer(packages: &Packages, key: &str) -> PathBuf {
    cache().join(format!("program-layer-{}-{key}.tar", packages.name))
}

/// What npm installed, by the key of the recipe.
struct Installed {
    key: String,
    folder: Option<tempfile::TempDir>,
}

impl Installed {
    /// The tar of each layer. npm runs only when one is missing.
    fn layers(mut self) -> Result<Vec<(&'static str, PathBuf)>> {
        let mut layers = vec![];
        for packages in LAYERS {
            let tar = layer(packages, &self.key);
            if !tar.exists() {
                write_layer(self.folder()?, packages, &tar)?;
            }
            layers.push((packages.name, tar));
        }
        Ok(layers)
    }

    fn folder(&mut self) -> Result<&Path> {
        if self.folder.is_none() {
            self.folder = Some(install()?);
        }
        Ok(self.folder.as_ref().context("failed to install the programs")?.path())
    }
}

fn recipe() -> PathBuf {
    repository().join("xtask/programs")
}

fn key() -> Result<String> {
    let mut hash = Sha256::new();
    for file in ["package.json", "package-lock.json"] {
        hash.update(fs::read(recipe().join(file)).with_context(|| format!("failed to read xtask/programs/{file}"))?);
    }
    hash.update(format!("{RECIPE}{FOLDER}{}", std::env::consts::ARCH));
    Ok(hex::encode(&hash.finalize()[..8]))
}

fn install() -> Result<tempfile::TempDir> {
    if find_program("npm").is_none() {
        bail!("failed to find npm, which installs the programs; install it (Debian: apt-get install npm), or use an image of your own");
    }
    let step = progress::start("Install the programs from npm (a few minutes, about 1.5 GiB)");
    fs::create_dir_all(cache())?;
    let folder = tempfile::tempdir_in(cache())?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(recipe().join(file), folder.path().join(file)).with_context(|| format!("failed to copy xtask/programs/{file}"))?;
    }
    run(command("npm", NPM).current_dir(folder.path())).context(
        "failed to install the programs from npm: see whether the registry of `npm config get registry` can be reached, and whether it holds \
         the versions of xtask/programs/package-lock.json",
    )?;
    step.done("");
    Ok(folder)
}

fn write_layer(installed: &Path, packages: &Packages, tar: &Path) -> Result<()> {
    let below = |folder: &str| format!("node_modules/{}", of_this_machine(folder));
    let program = installed.join(below(packages.program.1));
    if !program.exists() {
        bail!(
            "failed to find the program {} at {} after npm install: its package has no version for {}, or changed its files",
            packages.name,
            program.display(),
            std::env::consts::ARCH
        );
    }
    let fresh = tar.with_extension("new");
    // Sorted, of one time and owner, so that the same packages give the same bytes.
    let mut pack = command("tar", ["--create", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    pack.args(["--mode=u+rw,go+rX,go-w", "--format=gnu"]).arg(format!("--transform=s,^node_modules,{FOLDER}/node_modules,S"));
    pack.arg("--file").arg(&fresh).arg("--directory").arg(installed);
    run(pack.args(packages.folders.iter().map(|folder| below(folder))))?;
    fs::rename(&fresh, tar).with_context(|| format!("failed to keep {}", tar.display()))
}

/// npm's name of this machine's architecture, in place of the `*`.
fn of_this_machine(path: &str) -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    path.replace('*', arch)
}
