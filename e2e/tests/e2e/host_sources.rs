//! Trees made from a folder of the nodes that the administrator listed: here the folder that `cargo xtask` lists for the clusters of its tests.

use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::locks::{self, Held, Lock};
use yoi_e2e::program;
use yoi_e2e::test_namespace::TestNamespace;

use crate::tool_output;

/// Who owns the checkout, and as whom agents run.
const OWNER: u32 = 1000;

const STATUS: &str = "git status --porcelain --ignored; git diff HEAD; cat untracked ignored; pwd";

/// A person's checkout with something staged, unstaged, untracked and ignored in it.
struct Checkout {
    folder: PathBuf,
    /// The folder is one for all tests.
    _alone: Held,
}

impl Checkout {
    async fn create() -> Result<Self> {
        let alone = locks::exclusive(&[Lock::HostSource]).await?;
        let folder =
            PathBuf::from(std::env::var("YOI_HOST_SOURCE").context("YOI_HOST_SOURCE is not set: run these tests by `cargo xtask test`")?);
        std::fs::create_dir(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
        let checkout = Checkout { folder, _alone: alone };
        let script =
            "set -e; git init -q -b main .; echo ignored > .gitignore; echo committed | tee staged unstaged kept > /dev/null; git add .
            git -c user.name=A -c user.email=a@yoi.example commit -qm first; echo more >> staged; git add staged; echo more >> unstaged
            echo new > untracked; echo built > ignored";
        program::run("sh", &["-c", &format!("cd {} && {script}", checkout.folder.display())], &[], None).await?.exit_ok()?;
        checkout.give_to_owner()?;
        Ok(checkout)
    }

    fn give_to_owner(&self) -> Result<()> {
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir()? {
                let entry = entry?;
                lchown(entry.path(), Some(OWNER), Some(OWNER))?;
                folders.extend(entry.file_type()?.is_dir().then(|| entry.path()));
            }
        }
        lchown(&self.folder, Some(OWNER), Some(OWNER)).context("failed to give the checkout to its owner")
    }

    fn path(&self) -> &Path {
        &self.folder
    }

    /// What [`STATUS`] prints in the checkout itself.
    async fn status(&self) -> Result<String> {
        let script = format!("cd {} && {STATUS}", self.folder.display());
        let environment =
            [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*"), ("GIT_OPTIONAL_LOCKS", "0")];
        Ok(program::run("sh", &["-c", &script], &environment, None).await?.exit_ok()?.out)
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn script() -> String {
    format!(
        r#"
rules:
- name: status
  when: {{ lastUserContains: "tell the status" }}
  steps:
  - toolCalls: [{{ tool: Shell, args: {{ command: "{STATUS}" }} }}]
  - text: Told.
"#
    )
}

/// What [`STATUS`] printed in the agent's tree, without the line that tells its exit code.
fn printed(output: &str) -> Result<&str> {
    output.trim_end().strip_suffix("[exit code 0]").with_context(|| format!("the command failed: {output}"))
}

#[tokio::test]
async fn w5_w16_w22_an_agent_has_a_persons_checkout_as_it_is_and_a_later_take_has_what_came_since() -> Result<()> {
    let checkout = Checkout::create().await?;
    let ns = TestNamespace::create("host").await?;
    ns.create_model(&script()).await?;
    // Without a path, the tree shows where the checkout is: `pwd` of STATUS says it.
    for (name, path, shown) in [("p", None, checkout.path()), ("elsewhere", Some("/src"), Path::new("/src"))] {
        ns.create_project_with(name, json!({ "source": { "host": { "name": "clone" } }, "path": path })).await?;
        ns.wait_condition::<YoiProject>(name, "Ready", ConditionStatus::True).await?;
        let path = ns.get::<YoiProject>(name).await?.status.and_then(|status| status.path);
        ensure!(path.as_deref().map(Path::new) == Some(shown), "{name} shows at {path:?}");
    }
    let before = checkout.status().await?;
    for line in ["M  staged", " M unstaged", "?? untracked", "!! ignored", "built", &checkout.path().display().to_string()] {
        ensure!(before.contains(line), "the checkout is not what the test wants: no `{line}` in {before}");
    }
    ns.create_agent("first", "p", json!({ "task": "tell the status" })).await?;
    ns.wait_task_complete("first").await?;
    let seen = tool_output::last(&ns, "first").await?;
    ensure!(printed(&seen)? == before, "{seen}\n---\n{before}");

    // W16: who edits the source changes no tree.
    std::fs::write(checkout.path().join("untracked"), "edited\n")?;
    let seen = tool_output::after(&ns, "first", "tell the status").await?;
    ensure!(printed(&seen)? == before, "the edit is in a tree that was made before it: {seen}");
    ns.yoi(&["take", "p", "--wait"]).await?.exit_ok()?;
    ns.create_agent("second", "p", json!({ "task": "tell the status" })).await?;
    ns.wait_task_complete("second").await?;
    let (seen, after) = (tool_output::last(&ns, "second").await?, checkout.status().await?);
    ensure!(after.contains("edited") && printed(&seen)? == after, "{seen}\n---\n{after}");
    let seen = tool_output::after(&ns, "first", "tell the status").await?;
    ensure!(printed(&seen)? == before, "the take changed a tree that was made before it: {seen}");
    ns.remove().await
}

#[tokio::test]
async fn what_prepare_makes_of_a_persons_checkout_is_in_trees_and_not_in_the_checkout() -> Result<()> {
    let checkout = Checkout::create().await?;
    let ns = TestNamespace::create("host-prepare").await?;
    ns.create_model(&script()).await?;
    // What is not committed is there, and is built upon.
    let build = "grep -q built ignored; git status --porcelain | grep -q '?? untracked'; echo \"prepared in $(pwd)\" >> ignored";
    let prepare = json!({ "image": ns.image("agent")?, "command": ["sh", "-ec", build] });
    ns.create_project_with("p", json!({ "source": { "host": { "name": "clone" } }, "path": null, "prepare": prepare })).await?;
    ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
    let prepared = |status: &str| status.replace("built\n", &format!("built\nprepared in {}\n", checkout.path().display()));
    let before = checkout.status().await?;
    ns.create_agent("first", "p", json!({ "task": "tell the status" })).await?;
    ns.wait_task_complete("first").await?;
    let seen = tool_output::last(&ns, "first").await?;
    ensure!(seen.contains("prepared in /") && printed(&seen)? == prepared(&before), "{seen}\n---\n{before}");

    std::fs::write(checkout.path().join("untracked"), "edited\n")?;
    ns.yoi(&["take", "p", "--wait"]).await?.exit_ok()?;
    ns.create_agent("second", "p", json!({ "task": "tell the status" })).await?;
    ns.wait_task_complete("second").await?;
    let (seen, after) = (tool_output::last(&ns, "second").await?, checkout.status().await?);
    ensure!(after.contains("edited") && printed(&seen)? == prepared(&after), "{seen}\n---\n{after}");
    ensure!(!after.contains("prepared"), "the command has written into the checkout: {after}");
    ns.remove().await
}
