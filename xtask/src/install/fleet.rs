//! The example fleet: applied, and awaited until every agent has done its task.

use crate::cluster::Kubectl;
use crate::instance::repository;
use crate::say;
use anyhow::{Context, Result};

pub const NAMESPACE: &str = "yoi-example";

/// The files in their order; after each, what must come true, and what people read meanwhile. bob needs alice's ear, carol forks what
/// alice has done: applied all at once they would find less.
const STAGES: [Stage; 6] = [
    Stage {
        file: "1-surroundings",
        goals: &[("pod/git", "Ready"), ("pod/scripted-model", "Ready")],
        now: "a git server and a scripted model start",
    },
    Stage { file: "2-project", goals: &[("yoiproject/yoi", "Ready")], now: "the project's tree is cloned and sealed" },
    Stage {
        file: "3-alice",
        goals: &[("yoipod/alice", "TaskComplete"), ("yoipod/alice", "Ready")],
        now: "alice edits, builds and commits in her tree",
    },
    Stage { file: "4-bob-and-the-peer", goals: &[("yoipod/bob", "TaskComplete")], now: "bob writes to alice" },
    Stage { file: "5-carol-a-fork-of-alice", goals: &[("yoipod/carol", "TaskComplete")], now: "carol goes on in a fork of alice's tree" },
    Stage { file: "6-ci", goals: &[("job/ci", "Complete")], now: "a CI job builds in a tree of its own" },
];

struct Stage {
    file: &'static str,
    /// Objects and the condition that each must come to.
    goals: &'static [(&'static str, &'static str)],
    now: &'static str,
}

pub fn start(kubectl: &Kubectl) -> Result<()> {
    let step = say::step("Start the example fleet (about half a minute)");
    // A Job cannot be changed, and the last one may still be there.
    let _ = kubectl.run(["--namespace", NAMESPACE, "delete", "job/ci", "--ignore-not-found", "--wait"]);
    for Stage { file, goals, now } in STAGES {
        step.progress(now);
        let path = repository().join("examples/fleet").join(format!("{file}.yaml"));
        kubectl.run(["apply".as_ref(), "--server-side".as_ref(), "--force-conflicts".as_ref(), "-f".as_ref(), path.as_os_str()])?;
        for (what, condition) in goals {
            let condition = format!("--for=condition={condition}");
            let words = ["--namespace", NAMESPACE, "wait", &condition, what, "--timeout=300s"];
            kubectl.run(words).with_context(|| kubectl.picture(NAMESPACE))?;
        }
    }
    step.done("every agent has done its task");
    Ok(())
}
