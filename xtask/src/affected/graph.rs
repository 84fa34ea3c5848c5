//! The crates of the workspace: where they are, what they build, who depends on whom.

use crate::cargo;
use crate::command::capture;
use crate::instance::repository;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

pub struct Graph {
    pub packages: Vec<Package>,
}

pub struct Package {
    pub name: String,
    /// Below the root of the repository.
    pub folder: String,
    pub targets: Vec<Target>,
    /// The packages of the workspace that it uses, also to build.
    uses: BTreeSet<String>,
    /// Those that only its tests use.
    tests_use: BTreeSet<String>,
}

pub struct Target {
    pub kind: TargetKind,
    pub name: String,
    /// Its first file, below the root of the repository.
    pub file: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetKind {
    Library,
    Program,
    Test,
    /// Benchmarks, examples, build scripts.
    Other,
}

impl Package {
    /// Whether its programs are in images, or are given to people.
    pub fn ships(&self) -> bool {
        self.name != "xtask"
    }
}

impl Graph {
    pub fn read() -> Result<Self> {
        let text = capture(cargo::cargo().args(["metadata", "--no-deps", "--format-version=1"]).current_dir(repository()))?;
        Self::parse(&serde_json::from_str(&text)?)
    }

    /// `metadata`: what `cargo metadata --no-deps` prints.
    pub fn parse(metadata: &Value) -> Result<Self> {
        let root = metadata["workspace_root"].as_str().context("cargo names no root of the workspace")?;
        let packages = metadata["packages"].as_array().context("cargo lists no packages")?;
        let packages = packages.iter().map(|package| Package::parse(package, Path::new(root))).collect::<Option<Vec<_>>>();
        Ok(Self { packages: packages.context("a package without a name, a manifest or targets")? })
    }

    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// The package of the longest folder above the path, and the rest of the path.
    pub fn owner<'a>(&self, path: &'a str) -> Option<(&Package, &'a str)> {
        let below = self.packages.iter().filter_map(|package| Some((package, path.strip_prefix(&package.folder)?.strip_prefix('/')?)));
        below.max_by_key(|(package, _)| package.folder.len())
    }

    /// The package, those that use it, those that use them, and so on: what is built again when it changes.
    pub fn users(&self, name: &str) -> BTreeSet<String> {
        let mut users = BTreeSet::from([name.to_owned()]);
        loop {
            let more = self.packages.iter().filter(|package| !package.uses.is_disjoint(&users)).map(|package| package.name.clone());
            let before = users.len();
            users.extend(more.collect::<Vec<_>>());
            if users.len() == before {
                return users;
            }
        }
    }

    /// The packages, and those whose tests use one of them.
    pub fn tested_with(&self, packages: &BTreeSet<String>) -> BTreeSet<String> {
        let by_tests = self.packages.iter().filter(|package| !package.tests_use.is_disjoint(packages)).map(|package| package.name.clone());
        packages.iter().cloned().chain(by_tests).collect()
    }
}

impl Package {
    fn parse(package: &Value, root: &Path) -> Option<Self> {
        let below = |path: &Value| Some(Path::new(path.as_str()?).strip_prefix(root).ok()?.to_str()?.to_owned());
        let (mut uses, mut tests_use) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array()?.iter().filter(|dependency| dependency["path"].is_string()) {
            let set = if dependency["kind"] == "dev" { &mut tests_use } else { &mut uses };
            set.insert(dependency["name"].as_str()?.to_owned());
        }
        let target = |target: &Value| {
            let kind = match target["kind"][0].as_str()? {
                "lib" | "rlib" | "proc-macro" => TargetKind::Library,
                "bin" => TargetKind::Program,
                "test" => TargetKind::Test,
                _ => TargetKind::Other,
            };
            Some(Target { kind, name: target["name"].as_str()?.to_owned(), file: below(&target["src_path"])? })
        };
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            folder: Path::new(&below(&package["manifest_path"])?).parent()?.to_str()?.to_owned(),
            targets: package["targets"].as_array()?.iter().map(target).collect::<Option<_>>()?,
            uses,
            tests_use,
        })
    }
}
