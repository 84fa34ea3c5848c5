//! What an agent has committed comes onto the working tree of a person's clone, beside work of their own.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::TestNamespace;

const SCRIPT: &str = r#"
rules:
- name: work
  when: { lastUserContains: work }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "echo agent > kept.txt && echo agent > theirs.txt && git add -A && git commit -qm 'a commit of the agent'" } }
    - { tool: Write, args: { path: open.txt, content: "agent\n" } }
  - text: All done.
"#;

/// Runs a line of shell in this folder; `$1` is the namespace.
async fn shell(ns: &TestNamespace, folder: &Path, line: &str) -> Result<CommandOutput> {
    program::run("bash", &["-c", &format!("cd \"$0\" && {line}"), &folder.to_string_lossy(), &ns.name], &[], None).await
}

#[tokio::test]
async fn an_agents_commits_are_laid_beside_work_of_the_persons_own() -> Result<()> {
    let ns = TestNamespace::create("laptop").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    ns.yoi(&["run", "a", "-p", "p", "-t", "work", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    let laptop = tempfile::tempdir()?;
    let fetched = "\"$YOI_KUBECTL\" -n \"$1\" exec git -c git -- git -c safe.directory='*' -C /srv/git/project.git bundle create --quiet - --all \
        > project.bundle && git clone -q -b main project.bundle clone";
    shell(&ns, laptop.path(), fetched).await?.exit_ok()?;
    let clone = laptop.path().join("clone");
    shell(&ns, &clone, "echo person > own.txt && echo person > staged.txt && git add staged.txt && echo person > kept.txt")
        .await?
        .exit_ok()?;
    let index = std::fs::read(clone.join(".git/index"))?;

    let pull = "\"$YOI_KUBECTL_YOI\" -n \"$1\" pull a --apply";
    let dry = shell(&ns, &clone, &format!("{pull} --dry-run")).await?;
    ensure!(dry.code == 8 && dry.out.contains("1 path would be laid") && !clone.join("theirs.txt").exists(), "{dry:?}");
    let laid = shell(&ns, &clone, &format!("{pull} -o json")).await?;
    let result: Value = serde_json::from_str(&laid.out).with_context(|| format!("{laid:?}"))?;
    ensure!(laid.code == 8 && result["leftAlone"] == 1 && result["uncommitted"]["count"] == 1, "{laid:?}");
    let read = |name: &str| std::fs::read_to_string(clone.join(name)).with_context(|| name.to_owned());
    ensure!(read("kept.txt")? == "person\n" && read("theirs.txt")? == "agent\n" && read("own.txt")? == "person\n");
    let kept = result["paths"].as_array().into_iter().flatten().find_map(|path| path["kept"].as_str()).context("nothing is kept")?;
    ensure!(std::fs::read_to_string(kept)? == "agent\n", "{kept}");

    std::fs::remove_file(clone.join("kept.txt"))?;
    let whole = shell(&ns, &clone, &format!("{pull} --commit -m left")).await?.exit_ok()?;
    ensure!(read("kept.txt")? == "agent\n" && read("open.txt")? == "agent\n", "{whole:?}");
    ensure!(std::fs::read(clone.join(".git/index"))? == index, "the person's index was written");
    let refs = shell(&ns, &clone, "git for-each-ref --format='%(refname)' refs/heads refs/stash").await?.exit_ok()?;
    ensure!(refs.out == "refs/heads/main\n", "{refs:?}");
    ns.remove().await
}
