//! The example fleet: applied, and awaited until every agent has done its task.

use crate::cluster::Kubectl;
use crate::command::wait;
use crate::images::References;
use crate::instance::repository;
use crate::progress;
use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

pub const NAMESPACE: &str = "yoi-example";

/// The files in their order; after each, what must come true, and what people read meanwhile. bob sends to
/// alice, so she must run first. carol forks alice's tree, so alice must have done her work first.
const STAGES: [Stage; 6] = [
    Stage {
        file: "1-surroundings",
        goals: &[("pod/git", "Ready"), ("pod/scripted-model", "Ready")],
        now: "a git server and a scripted model start",
        forks: false,
    },
    Stage { file: "2-project", goals: &[("yoiproject/yoi", "Ready")], now: "the project's tree is cloned and sealed", forks: false },
    Stage {
        file: "3-alice",
        goals: &[("yoipod/alice", "TaskComplete"), ("yoipod/alice", "Ready")],
        now: "alice edits, builds and commits in her tree",
        forks: false,
    },
    Stage {
        file: "4-bob-and-the-peer",
        // bob's script goes on only when the message is in alice's inbox.
        goals: &[("yoipeer/alice.bob", "Ready"), ("yoipod/bob", "TaskComplete")],
        now: "bob writes to alice",
        forks: false,
    },
    Stage {
        file: "5-carol-a-fork-of-alice",
        goals: &[("yoipod/carol", "TaskComplete")],
        now: "carol goes on in a fork of alice's tree",
        forks: true,
    },
    Stage { file: "6-ci", goals: &[("job/ci", "Complete")], now: "a CI job builds in a tree of its own", forks: false },
];

struct Stage {
    file: &'static str,
    /// Objects and the condition that each must come to.
    goals: &'static [(&'static str, &'static str)],
    now: &'static str,
    forks: bool,
}

/// How much of it the cluster's nodes allow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    All,
    /// No node has Btrfs, which a fork of a living tree takes.
    WithoutForks,
}
pub use Part::All;

/// What the nodes offer, once one of them has said it.
pub fn of_nodes(kubectl: &Kubectl) -> Result<Part> {
    let btrfs = ["get", "workspacenodes", "-o", "jsonpath={.items[*].status.providers[?(@.available==true)].name}"];
    let offered = wait("what the nodes offer", Duration::from_secs(60), || {
        let offered = kubectl.run(btrfs)?;
        Ok((!offered.trim().is_empty()).then_some(offered))
    })?;
    if offered.split_whitespace().any(|provider| provider == "Btrfs") {
        return Ok(All);
    }
    progress::note(
        "no node keeps its trees on Btrfs, so carol, a fork of alice's living tree, is left out; \
         `--set shim.loopBtrfs.enabled=true` gives each node a Btrfs in a file",
    );
    Ok(Part::WithoutForks)
}

/// `images`: what stands for `yoi.dev/NAME:dev` in the examples, by NAME.
pub fn start(kubectl: &Kubectl, part: Part, images: &References) -> Result<()> {
    let step = progress::start("Start the example fleet (about half a minute)");
    // A Job cannot be changed, and a workspace that is on its way out would take the new Job's claim with it.
    let ci = ["delete", "job/ci", "agentworkspace/ci", "--ignore-not-found", "--wait", "--timeout=120s"];
    kubectl.run(["--namespace", NAMESPACE].into_iter().chain(ci)).with_context(|| kubectl.diagnostics(NAMESPACE))?;
    for Stage { file, goals, now, forks } in STAGES {
        if forks && part == Part::WithoutForks {
            continue;
        }
        step.progress(now);
        let path = repository().join("examples/fleet").join(format!("{file}.yaml"));
        let mut manifests = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        for (name, reference) in images {
            manifests = manifests.replace(&format!("yoi.dev/{name}:dev"), reference);
        }
        kubectl.apply(&manifests)?;
        for (what, condition) in goals {
            let condition = format!("--for=condition={condition}");
            let words = ["--namespace", NAMESPACE, "wait", &condition, what, "--timeout=300s"];
            kubectl.run(words).with_context(|| kubectl.diagnostics(NAMESPACE))?;
        }
    }
    step.done(if part == All { "every agent has done its task" } else { "alice and bob have done their tasks" });
    Ok(())
}
