//! The one compilation of a test run: all test programs, all programs that ship, and clippy's lints, by one call of cargo.
//!
//! clippy-driver stands in for rustc for the crates of the workspace, so dependencies are built once, and not a second time as metadata for the lints.

use crate::cargo;
use crate::instance::repository;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A program of tests.
#[derive(Debug, Clone)]
pub struct TestProgram {
    /// The folder of its crate and its target, such as `plan/stable`, `plan/lib`, `xtask/bin`.
    pub name: String,
    /// cargo's names of its package and target.
    pub package: String,
    pub target: String,
    pub file: PathBuf,
    /// The folder of its crate: where its tests run.
    pub folder: PathBuf,
}

/// What was compiled.
#[derive(Debug, Default)]
pub struct Compiled {
    pub tests: Vec<TestProgram>,
    /// Programs that are no tests, by their name.
    pub programs: BTreeMap<String, PathBuf>,
    /// What the compiler and clippy warned of, as they printed it.
    pub warnings: BTreeSet<String>,
}

/// Compiles `words`, the targets as cargo names them, with the features of the whole workspace.
pub fn compile(words: &[&str]) -> Result<Compiled> {
    let mut cargo = cargo::cargo();
    cargo.args(["test", "--no-run", "--workspace", "--message-format=json"]).args(words);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").current_dir(repository());
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("failed to start cargo")?;
    let mut compiled = Compiled::default();
    let output = child.stdout.take().context("cargo has an output")?;
    for line in BufReader::new(output).lines() {
        compiled.read(&serde_json::from_str(&line?).unwrap_or_default());
    }
    if !child.wait()?.success() {
        bail!("something does not compile; it stands above");
    }
    compiled.tests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(compiled)
}

impl Compiled {
    /// The file of a test program.
    pub fn test_program(&self, name: &str) -> Option<&Path> {
        self.tests.iter().find(|program| program.name == name).map(|program| program.file.as_path())
    }

    /// Takes what a message of cargo names, and prints what the compiler or clippy said. A warning of an earlier build is said again.
    fn read(&mut self, message: &Value) {
        if let Some(rendered) = message["message"]["rendered"].as_str() {
            eprint!("{rendered}");
            if message["message"]["level"] == "warning" {
                self.warnings.insert(rendered.to_owned());
            }
        }
        let Some(file) = message["executable"].as_str().map(PathBuf::from) else { return };
        let (name, kind) =
            (message["target"]["name"].as_str().unwrap_or_default(), message["target"]["kind"][0].as_str().unwrap_or_default());
        if message["profile"]["test"] != true {
            self.programs.insert(name.to_owned(), file);
            return;
        }
        let folder = message["manifest_path"].as_str().and_then(|path| Path::new(path).parent()).unwrap_or(Path::new("."));
        // Benchmarks and examples are only compiled, for the lints.
        if !["bench", "example"].contains(&kind) {
            self.tests.push(TestProgram {
                name: program_name(folder, kind, name),
                package: package_name(message["package_id"].as_str().unwrap_or_default()),
                target: name.to_owned(),
                file,
                folder: folder.to_owned(),
            });
        }
    }
}

/// The name in an id such as `path+file:///src/plan#yoi-plan@0.1.0`, or `...src/xtask#0.1.0` where the folder has the package's name.
fn package_name(id: &str) -> String {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    let folder = path.rsplit('/').next().unwrap_or_default();
    fragment.split_once('@').map_or(folder, |(name, _)| name).to_owned()
}

fn program_name(folder: &Path, kind: &str, target: &str) -> String {
    let krate = folder.file_name().unwrap_or_default().to_string_lossy();
    match kind {
        "test" => format!("{krate}/{target}"),
        "bin" if target.strip_prefix("yoi-").unwrap_or(target) == krate => format!("{krate}/bin"),
        "bin" => format!("{krate}/bin-{target}"),
        _ => format!("{krate}/lib"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_named_by_its_crate_and_its_target() {
        let name = |kind, target| program_name(Path::new("/src/agent-shim"), kind, target);
        assert_eq!(name("test", "shim"), "agent-shim/shim");
        assert_eq!(name("lib", "yoi_agent_shim"), "agent-shim/lib");
        assert_eq!(name("bin", "yoi-agent-shim"), "agent-shim/bin");
        assert_eq!(name("bin", "scripted-model"), "agent-shim/bin-scripted-model");
        assert_eq!(package_name("path+file:///src/plan#yoi-plan@0.1.0"), "yoi-plan");
        assert_eq!(package_name("path+file:///src/xtask#0.1.0"), "xtask");
    }
}
