//! `merge`: an agent's work in the tree of another agent, and in the working tree at hand.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::plugin::{Output, agent};
use crate::pull::{Scene, git};

const WORK: &str = "refs/yoi/work";

fn child_of(parent: &str) -> Value {
    let mut child = agent("a", &[]);
    child["spec"]["spawnedBy"] = json!({ "name": parent, "uid": "u", "requestId": "r" });
    child
}

#[tokio::test]
async fn the_work_of_an_agent_goes_to_the_one_that_has_started_it_or_to_the_one_that_is_named() -> Result<()> {
    let scene = Scene::new().await?;
    let merge = async |words: &[&str]| scene.plugin.run(&[&["merge", "a"], words].concat()).await;
    let nobody = merge(&[]).await?.expect_code(1)?;
    ensure!(nobody.err.contains("no agent has started it"), "{nobody:?}");

    scene.server.put(child_of("lead"));
    scene.server.put(agent("lead", &[])).put(agent("b", &[]));
    let merged = json!({ "commit": "c", "paths": [{ "path": "x\n", "change": "Added" }], "pathCount": 1, "notes": ["lib stays behind"] });
    scene.server.answer_for("lead", "merge", 200, merged.to_string());
    let done = merge(&[]).await?.expect_code(0)?;
    ensure!(done.out.contains("added") && done.out.contains("1 path merged from a into lead; nothing is committed"), "{done:?}");
    ensure!(done.err.contains("lib stays behind"), "{done:?}");
    let request = scene.server.requests_for("lead", "merge").pop().context("no request")?;
    ensure!(request.body == json!({ "from": "a", "dryRun": false, "strategy": "stop" }), "{request:?}");

    let conflict = json!({ "conflicts": [{ "path": "x", "why": "both have changed it" }], "conflictCount": 1, "dryRun": true });
    scene.server.answer_for("b", "merge", 200, conflict.to_string());
    let refused = merge(&["--into", "b", "--dry-run", "--strategy", "theirs"]).await?.expect_code(1)?;
    ensure!(refused.out.contains("both have changed it") && refused.err.contains("nothing was merged into b"), "{refused:?}");
    let request = scene.server.requests_for("b", "merge").pop().context("no request")?;
    ensure!(request.body == json!({ "from": "a", "dryRun": true, "strategy": "theirs" }), "{request:?}");
    let neither = merge(&["--into", "feature/x"]).await?.expect_code(1)?;
    ensure!(neither.err.contains("neither an agent"), "{neither:?}");
    Ok(())
}

/// The runtime answers with what is in the agent's tree, committed or not.
fn answer_with_work(scene: &Scene) -> Result<()> {
    let agents = scene.agents();
    git(&agents, &["add", "-A"])?;
    let tree = git(&agents, &["write-tree"])?;
    let commit = git(&agents, &["commit-tree", "-m", "work", "-p", "HEAD", &tree])?;
    git(&agents, &["update-ref", WORK, &commit])?;
    let bundle = scene.bundle(&[WORK, &format!("^{}", scene.base)])?;
    scene.answer(&scene.head(WORK, &commit), &bundle);
    Ok(())
}

async fn merge_here(scene: &Scene, words: &[&str]) -> Result<Output> {
    scene.plugin.run_in(&scene.clone(), &[&["merge", "a", "--into", "main"], words].concat()).await
}

#[tokio::test]
async fn the_work_of_an_agent_is_merged_into_the_branch_that_is_checked_out_line_by_line_or_not_at_all() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n{last}\n");
    for folder in [scene.agents(), clone.clone()] {
        fs::write(folder.join("lines"), lines("1", "7"))?;
        git(&folder, &["add", "."])?;
    }
    fs::write(scene.agents().join("lines"), lines("of the agent", "7"))?;
    answer_with_work(&scene)?;
    // Both have made the file, and the person has gone on with it; git sees one file that was added twice.
    fs::write(clone.join("lines"), lines("1", "of the person"))?;
    fs::write(clone.join("a"), "of the person\n")?;
    let before = (git(&clone, &["status", "--porcelain"])?, fs::read_to_string(clone.join("lines"))?);
    let refused = merge_here(&scene, &[]).await?.expect_code(1)?;
    ensure!(refused.out.contains("lines") && refused.err.contains("nothing was merged into main"), "{refused:?}");
    ensure!((git(&clone, &["status", "--porcelain"])?, fs::read_to_string(clone.join("lines"))?) == before);

    fs::remove_file(clone.join("lines"))?;
    let dry = merge_here(&scene, &["--dry-run"]).await?.expect_code(0)?;
    ensure!(dry.out.contains("1 path would be merged") && !clone.join("lines").exists(), "{dry:?}");
    let done = merge_here(&scene, &["-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(done["paths"] == json!([{ "path": "lines", "change": "Added" }]), "{done}");
    ensure!(fs::read_to_string(clone.join("lines"))? == lines("of the agent", "7"));
    ensure!(fs::read_to_string(clone.join("a"))? == "of the person\n" && git(&clone, &["rev-parse", "HEAD"])? == scene.base);
    // What was merged is the begin of the next merge: both go on with the file, each in lines of its own.
    fs::write(clone.join("lines"), lines("of the agent", "of the person"))?;
    fs::write(scene.agents().join("lines"), lines("of the agent again", "7"))?;
    answer_with_work(&scene)?;
    let again = merge_here(&scene, &[]).await?.expect_code(0)?;
    ensure!(fs::read_to_string(clone.join("lines"))? == lines("of the agent again", "of the person"), "{again:?}");
    Ok(())
}
