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
use std::process::{Command, Stdio};

/// A program of tests.
#[derive(Debug, Clone)]
pub struct TestProgram {
    /// The folder of its crate and its target, such as `plan/stable`, `plan/lib`, `xtask/bin`.
    pub name: String,
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
    let mut cargo = Command::new(cargo::program());
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
        // A benchmark is only compiled, for the lints.
        if kind != "bench" {
            self.tests.push(TestProgram { name: program_name(folder, kind, name), file, folder: folder.to_owned() });
        }
    }
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
