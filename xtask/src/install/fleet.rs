//! The example fleet: applied, awaited until every agent has done its task, and alice's commit pushed to a branch.

use crate::cluster::Kubectl;
use crate::images::References;
use crate::instance::repository;
use crate::progress;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

pub const NAMESPACE: &str = "yoi-example";

/// The files in their order; after each, what must come true, and what people read meanwhile. bob sends to
/// alice, so she must run first. carol forks alice's tree, so alice must have done her work first.
const STAGES: [Stage; 7] = [
    Stage {
        file: "1-surroundings",
        goals: &[("deployment/git", "Available"), ("pod/scripted-model", "Ready")],
        now: "a git server and a scripted model start",
        needs: Needs::Nothing,
    },
    Stage {
        file: "2-project",
        goals: &[("yoiproject/yoi", "Ready")],
        now: "the project's tree is cloned and sealed",
        needs: Needs::Nothing,
    },
    Stage {
        file: "3-alice",
        goals: &[("yoipod/alice", "TaskComplete"), ("yoipod/alice", "Ready")],
        now: "alice edits, builds and commits in her tree",
        needs: Needs::Nothing,
    },
    Stage {
        file: "4-bob-and-the-peer",
        // bob's script goes on only when the message is in alice's inbox.
        goals: &[("yoipeer/alice.bob", "Ready"), ("yoipod/bob", "TaskComplete")],
        now: "bob writes to alice",
        needs: Needs::Nothing,
    },
    Stage {
        file: "5-carol-a-fork-of-alice",
        goals: &[("yoipod/carol", "TaskComplete")],
        now: "carol goes on in a fork of alice's tree",
        needs: Needs::Fork,
    },
    Stage { file: "6-ci", goals: &[("job/ci", "Complete")], now: "a CI job builds in a tree of its own", needs: Needs::Nothing },
    Stage {
        file: "7-erin-and-her-children",
        // Her script goes on only when frank's work is merged.
        goals: &[("yoipod/erin", "TaskComplete")],
        now: "erin splits her work between frank and gina",
        needs: Needs::ForkWhileAtWork,
    },
];

/// Where alice's commits are pushed to: the plugin's default for her name.
const BRANCH: &str = "yoi/alice";
/// The first line of the commit that alice's script makes.
const COMMIT: &str = "Greet in the name of alice";
/// The repository of the example's git server, in its Pod.
const REPOSITORY: &str = "/repositories/project.git";

struct Stage {
    file: &'static str,
    /// Objects and the condition that each must come to.
    goals: &'static [(&'static str, &'static str)],
    now: &'static str,
    needs: Needs,
}

/// What a stage needs of alice's tree, and so of every tree there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    Nothing,
    Fork,
    /// A fork of a tree whose agent goes on meanwhile.
    ForkWhileAtWork,
}

/// How a fork of a tree in use is made where its parent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forks {
    /// While the parent runs.
    Live,
    /// While no Pod mounts the parent's tree: its agent is stopped meanwhile.
    AtRest,
    /// Not at all.
    Never,
}

/// `provider`: the one that made the parent's tree.
fn forks(provider: &str) -> Forks {
    match provider {
        "Zfs" | "Btrfs" => Forks::Live,
        "Overlay" => Forks::AtRest,
        _ => Forks::Never,
    }
}

/// `images`: what stands for `yoi.dev/NAME:dev` in the examples, by NAME. `plugin`: the program that pushes.
pub fn start(kubectl: &Kubectl, images: &References, plugin: &Path) -> Result<()> {
    let step = progress::start("Start the example fleet (about half a minute)");
    // A Job cannot be changed, and a workspace that is on its way out would take the new Job's claim with it.
    let ci = ["delete", "job/ci", "agentworkspace/ci", "--ignore-not-found", "--wait", "--timeout=120s"];
    kubectl.run(["--namespace", NAMESPACE].into_iter().chain(ci)).with_context(|| kubectl.diagnostics(NAMESPACE))?;
    let mut left_out = Vec::new();
    for Stage { file, goals, now, needs } in STAGES {
        let parent = ["get", "agentworkspace/alice", "-o", "jsonpath={.status.provider.selected}"];
        let forks = if needs == Needs::Nothing { Forks::Live } else { forks(&in_namespace(kubectl, &parent)?) };
        if forks == Forks::Never || (needs == Needs::ForkWhileAtWork && forks == Forks::AtRest) {
            left_out.push(file);
            continue;
        }
        step.progress(now);
        if forks == Forks::AtRest {
            set_desired_state(kubectl, "Stopped")?;
            in_namespace(kubectl, &["wait", "--for=condition=InUse=false", "agentworkspace/alice", "--timeout=120s"])?;
        }
        let path = repository().join("examples/fleet").join(format!("{file}.yaml"));
        let mut manifests = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        for (name, reference) in images {
            manifests = manifests.replace(&format!("yoi.dev/{name}:dev"), reference);
        }
        kubectl.apply(&manifests)?;
        for (what, condition) in goals {
            let condition = format!("--for=condition={condition}");
            in_namespace(kubectl, &["wait", &condition, what, "--timeout=300s"])?;
        }
        if forks == Forks::AtRest {
            set_desired_state(kubectl, "Running")?;
            in_namespace(kubectl, &["wait", "--for=condition=Ready", "yoipod/alice", "--timeout=300s"])?;
        }
    }
    step.progress("alice's commit is pushed");
    push(kubectl, plugin)?;
    let done = if left_out.is_empty() { "every agent has done its task" } else { "those that were started have done their tasks" };
    step.done(format!("{done}, and branch {BRANCH} of the example's git server has alice's commit"));
    if !left_out.is_empty() {
        progress::note(&format!(
            "trees here are not forked while their agents work, so {} of examples/fleet {} left out; `--set shim.loopBtrfs.enabled=true` gives each \
             node a Btrfs in a file",
            left_out.join(" and "),
            if left_out.len() == 1 { "is" } else { "are" },
        ));
    }
    Ok(())
}

/// Pushes alice's commits as a person does. Fails when the server does not have them then.
fn push(kubectl: &Kubectl, plugin: &Path) -> Result<()> {
    kubectl.run_plugin(plugin, &["--namespace", NAMESPACE, "push", "alice"]).with_context(|| kubectl.diagnostics(NAMESPACE))?;
    let branch = format!("refs/heads/{BRANCH}");
    let log = ["exec", "deployment/git", "--container=git", "--", "git", "-C", REPOSITORY, "log", "--format=%s", &branch];
    let subjects = in_namespace(kubectl, &log)?;
    if !subjects.lines().any(|subject| subject == COMMIT) {
        let last = subjects.lines().next().unwrap_or_default();
        bail!("branch {BRANCH} of the example's git server lacks alice's commit `{COMMIT}`: its last commit is `{last}`");
    }
    Ok(())
}

fn in_namespace(kubectl: &Kubectl, words: &[&str]) -> Result<String> {
    let words = [&["--namespace", NAMESPACE], words].concat();
    kubectl.run(words).with_context(|| kubectl.diagnostics(NAMESPACE))
}

fn set_desired_state(kubectl: &Kubectl, state: &str) -> Result<()> {
    let patch = format!("{{\"spec\":{{\"desiredState\":\"{state}\"}}}}");
    in_namespace(kubectl, &["patch", "yoipod/alice", "--type=merge", "--patch", &patch]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_parents_provider_cannot_fork_is_left_out() {
        let found = ["Zfs", "Btrfs", "Overlay", "Reflink", "Copy", ""].map(forks);
        assert_eq!(found, [Forks::Live, Forks::Live, Forks::AtRest, Forks::Never, Forks::Never, Forks::Never]);
    }
}
