//! What kind of file a path is.

use super::graph::{Graph, Package, TargetKind};
use std::path::Path;

pub enum Rule<'a> {
    /// With the reason.
    Everything(String),
    /// Read by people alone.
    Document,
    /// Compiled, but by no test.
    Lints,
    /// `package`: all of it is affected besides.
    Parts { parts: Vec<&'static str>, package: Option<&'a Package> },
    /// A program beside the package's library.
    Program { package: &'a Package, name: String },
    /// Belongs to no one of the package's test programs.
    AllTestsOf(&'a Package),
    /// `folder`: where the program's modules are, if it has a folder.
    TestProgram { package: &'a Package, name: String, folder: Option<String> },
}

/// A word that the row of a test may name beside the folders of crates.
pub struct Part {
    pub name: &'static str,
    /// How the paths begin.
    paths: &'static [&'static str],
    /// The files belong to their crate, too.
    is_code: bool,
}

pub const PARTS: &[Part] = &[
    Part { name: "charts", paths: &["charts/"], is_code: false },
    Part { name: "examples", paths: &["examples/"], is_code: false },
    Part { name: "kind", paths: &["kind-config.yaml"], is_code: false },
    Part { name: "planted", paths: &["e2e/planted/"], is_code: false },
    // The local cluster: its programs in Go, and what starts them.
    Part { name: "cluster", paths: &["e2e/cluster/"], is_code: false },
    Part { name: "cluster", paths: &["host/src/cluster", "xtask/src/cluster", "xtask/src/build.rs"], is_code: true },
    Part { name: "guest", paths: &["xtask/src/guest"], is_code: true },
    Part { name: "images", paths: &["host/src/images", "xtask/src/images"], is_code: true },
    Part { name: "install", paths: &["host/src/install", "xtask/src/install"], is_code: true },
    // The programs of others that agents can be.
    Part { name: "programs", paths: &["xtask/programs/", "charts/yoi-operator/files/presets/"], is_code: false },
    Part { name: "programs", paths: &["engine/src/program"], is_code: true },
    // Its files are a program of their own, and so a word without a row here; this one is for those who ask which words there are.
    Part { name: "scripted-model", paths: &[], is_code: true },
];

/// What everything is built with, or runs by.
const EVERYTHING: &[&str] = &["Cargo.lock", "Cargo.toml", "rust-toolchain", ".cargo/", ".ci/"];

const LINTS: &[&str] = &["deny.toml", "rustfmt.toml"];

pub fn rule<'a>(path: &str, graph: &'a Graph) -> Rule<'a> {
    if EVERYTHING.iter().any(|begin| path.starts_with(begin)) {
        return Rule::Everything(format!("{path} changed"));
    }
    if is_document(path) {
        return Rule::Document;
    }
    let owner = graph.owner(path);
    let parts: Vec<&Part> = PARTS.iter().filter(|part| part.paths.iter().any(|begin| path.starts_with(begin))).collect();
    if !parts.is_empty() {
        let package = owner.filter(|_| parts.iter().any(|part| part.is_code)).map(|(package, _)| package);
        return Rule::Parts { parts: parts.iter().map(|part| part.name).collect(), package };
    }
    if LINTS.contains(&path) {
        return Rule::Lints;
    }
    let Some((package, below)) = owner else { return Rule::Everything(format!("no rule knows {path} (xtask/src/affected/rules.rs)")) };
    match below.split('/').next() {
        Some("benches" | "clippy.toml") => Rule::Lints,
        Some("tests") => match package.targets.iter().find(|target| target.kind == TargetKind::Test && has(&target.file, path)) {
            Some(target) => Rule::TestProgram { package, name: target.name.clone(), folder: folder(&target.file) },
            None => Rule::AllTestsOf(package),
        },
        _ => match package.targets.iter().find(|target| is_beside_library(&target.file, package) && has(&target.file, path)) {
            Some(target) => Rule::Program { package, name: target.name.clone() },
            None => Rule::Parts { parts: vec![], package: Some(package) },
        },
    }
}

/// Files of code are none, whatever they are called: a test may read them.
fn is_document(path: &str) -> bool {
    let is_code = path.split('/').any(|folder| ["src", "tests"].contains(&folder));
    let name = Path::new(path).file_name().unwrap_or_default();
    path.starts_with("docs/")
        || !is_code && (path.ends_with(".md") || ["LICENSE", "NOTICE", ".gitignore"].iter().any(|document| name == *document))
}

fn is_beside_library(file: &str, package: &Package) -> bool {
    file.strip_prefix(&package.folder).is_some_and(|below| below.starts_with("/src/bin/"))
}

/// Where the modules of a program are whose first file this is.
fn folder(file: &str) -> Option<String> {
    file.strip_suffix("/main.rs").map(str::to_owned)
}

/// Whether the target with this first file consists of the path, among others.
pub fn has(file: &str, path: &str) -> bool {
    file == path || folder(file).is_some_and(|folder| path.strip_prefix(&folder).is_some_and(|below| below.starts_with('/')))
}
