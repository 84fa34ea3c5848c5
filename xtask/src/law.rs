//! The import law: which crate may use which, read from what cargo resolves for each crate alone.
//!
//! `cargo metadata` would show the features of the whole workspace unified, and so would report crates for features that other crates enable.

use crate::command::{capture, command};
use crate::instance::repository;
use crate::{module_circles, progress};
use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// What one crate may use of ours, and never uses of others.
struct Law {
    name: &'static str,
    ours: &'static [&'static str],
    never: &'static [&'static str],
}

const CLIENT: &[&str] = &["kube-client", "kube-runtime"];
const BINARIES: &[&str] = &["yoi-operator", "yoi-gateway", "yoi-agent-shim", "yoi-runtime", "kubectl-yoi"];

const LAWS: &[Law] = &[
    Law { name: "yoi-wire", ours: &[], never: &["tokio", "kube", "kube-core", "hyper", "axum"] },
    Law { name: "yoi-assets", ours: &["yoi-wire"], never: &["tokio", "tracing", "kube", "kube-core", "hyper"] },
    Law { name: "yoi-crds", ours: &["yoi-wire"], never: &["tokio", "tracing", "kube-client", "kube-runtime"] },
    Law { name: "yoi-plan", ours: &["yoi-crds", "yoi-wire"], never: &["tokio", "futures", "tracing", "kube-client", "kube-runtime"] },
    Law { name: "yoi-line", ours: &["yoi-wire"], never: &["kube"] },
    Law { name: "yoi-mcp", ours: &["yoi-wire"], never: &["kube", "kube-core", "k8s-openapi", "hyper", "axum", "reqwest"] },
    Law { name: "yoi-watch-cache", ours: &[], never: &["axum", "tonic"] },
    // Linked into a static program that runs on machines without a toolchain.
    Law { name: "yoi-host", ours: &["yoi-crds", "yoi-wire"], never: CLIENT },
    Law { name: "yoi-worktree", ours: &[], never: &["kube", "kube-core", "k8s-openapi", "tokio"] },
    Law { name: "yoi-workspace", ours: &[], never: &["kube", "kube-core", "k8s-openapi", "tokio"] },
    Law { name: "yoi-session", ours: &["yoi-wire"], never: &["kube", "kube-core", "tokio"] },
    Law { name: "yoi-engine", ours: &["yoi-wire", "yoi-session", "yoi-assets"], never: &["kube", "kube-core", "k8s-openapi", "axum"] },
    Law { name: "yoi-operator", ours: &["yoi-crds", "yoi-wire", "yoi-plan", "yoi-watch-cache"], never: &["tonic"] },
    Law { name: "yoi-gateway", ours: &["yoi-crds", "yoi-wire", "yoi-plan", "yoi-line", "yoi-watch-cache", "yoi-worktree"], never: &[] },
    // What rules about paths mean is one module of the plan, and the node lays what is left to an agent that lends.
    Law { name: "yoi-agent-shim", ours: &["yoi-crds", "yoi-wire", "yoi-plan", "yoi-workspace", "yoi-line", "yoi-watch-cache"], never: &[] },
    Law {
        name: "yoi-runtime",
        ours: &["yoi-wire", "yoi-session", "yoi-line", "yoi-assets", "yoi-engine", "yoi-mcp", "yoi-worktree"],
        never: &["kube", "kube-core", "k8s-openapi"],
    },
    Law { name: "kubectl-yoi", ours: &["yoi-crds", "yoi-wire", "yoi-plan", "yoi-worktree"], never: &[] },
    // A dependency of tests only, so no other row has it.
    Law { name: "yoi-test-support", ours: &[], never: &["kube", "kube-core", "axum"] },
    Law { name: "yoi-e2e", ours: &["yoi-crds", "yoi-wire", "yoi-test-support"], never: &[] },
    Law { name: "xtask", ours: &["yoi-crds", "yoi-wire", "yoi-host"], never: CLIENT },
];

pub fn run() -> Result<()> {
    let step = progress::start("Check who imports whom");
    let mut broken = vec![];
    for member in members()? {
        match LAWS.iter().find(|law| law.name == member) {
            Some(law) => broken.extend(violations(law, &dependencies(&member)?)),
            None => broken.push(format!("{member} has no row in xtask/src/law.rs: say what it may import")),
        }
    }
    let circles = module_circles::violations()?;
    if !circles.is_empty() {
        bail!("modules of one crate may not use each other in a circle (xtask/src/module_circles.rs):\n  {}", circles.join("\n  "));
    }
    if !broken.is_empty() {
        bail!("the import law (the table at the top of xtask/src/law.rs) is broken:\n  {}", broken.join("\n  "));
    }
    step.done(format!("{} crates", LAWS.len()));
    Ok(())
}

fn members() -> Result<Vec<String>> {
    let text = capture(command("cargo", ["metadata", "--no-deps", "--format-version=1"]).current_dir(repository()))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

fn dependencies(name: &str) -> Result<String> {
    capture(command("cargo", ["tree", "-p", name, "-e", "normal", "--prefix", "none"]).current_dir(repository()))
}

/// `tree` is what `cargo tree --prefix none` prints: one crate a line, its name first, the crate itself on the first.
fn violations(law: &Law, tree: &str) -> Vec<String> {
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let violation_of = |name: &&str| {
        let forbidden = law.never.contains(name);
        let not_allowed =
            (name.starts_with("yoi-") || BINARIES.contains(name) || **name == *"xtask") && **name != *law.name && !law.ours.contains(name);
        (forbidden || not_allowed).then(|| format!("{} uses {name}", law.name))
    };
    names.iter().filter_map(violation_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(name: &str) -> &'static Law {
        LAWS.iter().find(|law| law.name == name).expect("a row for the crate")
    }

    #[test]
    fn a_planted_import_is_found() {
        let tree = "yoi-plan v0.1.0 (/src/plan)\nserde v1.0.228\nyoi-crds v0.1.0 (/src/crds)\ntokio v1.54.1\nyoi-workspace v0.1.0 (/src/workspace)\n";
        assert_eq!(violations(law("yoi-plan"), tree), ["yoi-plan uses tokio", "yoi-plan uses yoi-workspace"]);
    }

    #[test]
    fn a_binary_crate_imported_by_anybody_is_found() {
        assert_eq!(violations(law("yoi-e2e"), "yoi-e2e v0.1.0\nkubectl-yoi v0.1.0\n"), ["yoi-e2e uses kubectl-yoi"]);
    }

    #[test]
    fn what_the_table_allows_passes() {
        assert!(
            violations(law("yoi-operator"), "yoi-operator v0.1.0\nyoi-plan v0.1.0\nyoi-crds v0.1.0\nyoi-wire v0.1.0\nkube v5.0.0\n")
                .is_empty()
        );
    }
}
