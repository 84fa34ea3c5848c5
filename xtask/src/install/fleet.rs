//! The example fleet: applied, and awaited until every agent has done its task.

use crate::cluster::Kubectl;
use crate::instance::repository;
use crate::say;
use anyhow::{Context, Result};

pub const NAMESPACE: &str = "yoi-example";

/// The files in their order; after each, what must come true, and what people read meanwhile. bob needs alice's ear, carol forks what
/// alice has done: applied all at once they would find less.
const STAGES: [(&str, &[(&str, &str)], &str); 6] = [
    ("1-surroundings", &[("pod/git", "Ready"), ("pod/scripted-model", "Ready")], "a git server and a scripted model start"),
    ("2-project", &[("yoiproject/yoi", "Ready")], "the project's tree is cloned and sealed"),
    ("3-alice", &[("yoipod/alice", "TaskComplete"), ("yoipod/alice", "Ready")], "alice gets a tree, edits, builds and commits"),
    ("4-bob-and-the-peer", &[("yoipod/bob", "TaskComplete")], "bob writes to alice"),
    ("5-carol-a-fork-of-alice", &[("yoipod/carol", "TaskComplete")], "carol goes on in a fork of alice's tree"),
    ("6-ci", &[("job/ci", "Complete")], "a CI job builds in a tree of its own"),
];

pub fn start(kubectl: &Kubectl) -> Result<()> {
    let step = say::step("Start the example fleet (about half a minute)");
    // A Job cannot be changed, and the last one may still be there.
    let _ = kubectl.run(["--namespace", NAMESPACE, "delete", "job/ci", "--ignore-not-found", "--wait"]);
    for (file, goals, now) in STAGES {
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
