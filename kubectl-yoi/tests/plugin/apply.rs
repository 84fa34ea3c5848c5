//! `pull --apply`: an agent's commits on the working tree of a real clone, where a person has work of their own.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::pull::{Scene, git};

/// The agent commits these files; one without a text is deleted.
fn agent_commits(scene: &Scene, files: &[(&str, Option<&str>)]) -> Result<String> {
    for (name, text) in files {
        match text {
            Some(text) => fs::write(scene.agents().join(name), text)?,
            None => fs::remove_file(scene.agents().join(name))?,
        }
    }
    git(&scene.agents(), &["add", "-A"])?;
    git(&scene.agents(), &["commit", "-q", "-m", "of the agent"])?;
    scene.answer_honestly()
}

fn outcome<'a>(result: &'a Value, path: &str) -> Result<&'a Value> {
    let paths = result["paths"].as_array().context("no paths")?;
    paths.iter().find(|found| found["path"] == path).with_context(|| format!("{path} is not in {result}"))
}

#[tokio::test]
async fn what_an_agent_has_committed_is_laid_beside_work_of_the_persons_own() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    let commit = agent_commits(&scene, &[("a", Some("of the agent\n")), ("work", Some("of the agent\n"))])?;
    fs::write(clone.join("own"), "of the person\n")?;
    fs::write(clone.join("staged"), "of the person\n")?;
    git(&clone, &["add", "staged"])?;
    let index = fs::read(clone.join(".git/index"))?;
    let refs = git(&clone, &["for-each-ref"])?;

    let dry = scene.pull(&["--apply", "--dry-run"]).await?.expect_code(0)?;
    ensure!(dry.out.contains("2 paths would be laid on the working tree") && !clone.join("work").exists(), "{dry:?}");
    ensure!(!clone.join(".git/yoi").exists(), "a dry run has written");
    let done = scene.pull(&["--apply"]).await?.expect_code(0)?;
    ensure!(done.out.starts_with("PATH") && done.out.contains("2 paths laid on the working tree: "), "{done:?}");
    ensure!(fs::read_to_string(clone.join("a"))? == "of the agent\n" && fs::read_to_string(clone.join("work"))? == "of the agent\n");
    ensure!(fs::read_to_string(clone.join("own"))? == "of the person\n");
    ensure!(fs::read(clone.join(".git/index"))? == index && git(&clone, &["for-each-ref"])? == refs, "something of git's has changed");

    let again = scene.pull(&["--apply", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(again["commit"] == commit && again["base"] == scene.base && again["leftAlone"] == 0 && again["dryRun"] == false, "{again}");
    ensure!(outcome(&again, "a")?["outcome"] == "Same" && outcome(&again, "work")?["outcome"] == "Same", "{again}");
    Ok(())
}

#[tokio::test]
async fn what_both_have_changed_is_listed_with_an_exit_code_of_its_own_and_the_agents_version_beside() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    agent_commits(&scene, &[("a", Some("of the agent\n")), ("new", Some("of the agent\n")), ("free", Some("of the agent\n"))])?;
    fs::write(clone.join("a"), "of the person\n")?;
    fs::write(clone.join("new"), "of the person\n")?;
    fs::write(clone.join(".git/info/exclude"), "new\n")?;
    let dry = scene.pull(&["--apply", "--dry-run"]).await?.expect_code(8)?;
    ensure!(dry.err.contains("would be left alone: 2 paths of what YoiPod ns/a has changed"), "{dry:?}");
    ensure!(dry.err.contains("kubectl yoi pull a") && !clone.join(".git/yoi").exists(), "{dry:?}");
    for round in ["first", "again"] {
        let left = scene.pull(&["--apply"]).await?.expect_code(8)?;
        ensure!(left.out.contains("left alone") && left.out.contains("you have changed it, too"), "{round}: {left:?}");
        ensure!(left.err.contains("error: left alone: 2 paths of what YoiPod ns/a has changed"), "{round}: {left:?}");
        ensure!(fs::read_to_string(clone.join("a"))? == "of the person\n", "{round}");
        ensure!(fs::read_to_string(clone.join("new"))? == "of the person\n", "{round}");
        ensure!(fs::read_to_string(clone.join("free"))? == "of the agent\n", "{round}");
    }
    let listed = scene.pull(&["--apply", "-o", "json"]).await?.expect_code(8)?.json()?;
    let both = outcome(&listed, "a")?;
    ensure!(both["outcome"] == "LeftAlone" && both["reason"] == "BothChanged" && listed["leftAlone"] == 2, "{listed}");
    ensure!(outcome(&listed, "new")?["reason"] == "InTheWay", "{listed}");
    let kept = both["kept"].as_str().context("nothing is kept")?;
    ensure!(kept.contains("/.git/yoi/conflicts/a-") && fs::read_to_string(kept)? == "of the agent\n", "{kept}");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_laid_is_refused_and_nothing_of_it_is_taken() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    agent_commits(&scene, &[("a", Some("of the agent\n"))])?;
    for wrong in [&["--apply", "--branch", "b"][..], &["--dry-run"], &["--apply", "--dry-run", "--commit", "-m", "x"]] {
        scene.pull(wrong).await?.expect_code(2)?;
    }
    let commit = git(&scene.agents(), &["rev-parse", "HEAD"])?;
    let honest = scene.bundle(&["HEAD", &format!("^{}", scene.base)])?;
    let mut flipped = honest.clone();
    let middle = flipped.len() - 30;
    flipped[middle] ^= 0x40;
    for bundle in [flipped, honest[..honest.len() / 2].to_vec(), Vec::new()] {
        scene.answer(&scene.head("HEAD", &commit), &bundle);
        scene.pull(&["--apply"]).await?.expect_code(1)?;
        ensure!(fs::read_to_string(clone.join("a"))? == "from the base\n" && !clone.join(".git/yoi").exists());
    }
    let mut head = scene.head("HEAD", &scene.base);
    head["commits"] = json!(0);
    scene.answer(&head, b"");
    let nothing = scene.pull(&["--apply"]).await?.expect_code(0)?;
    ensure!(nothing.out.contains("nothing is laid on the working tree"), "{nothing:?}");

    let asked = scene.server.requests().len();
    git(&clone, &["bisect", "start"])?;
    let busy = scene.pull(&["--apply"]).await?.expect_code(1)?;
    ensure!(busy.err.contains("a bisect is under way") && busy.err.contains("git status"), "{busy:?}");
    let bare = scene.plugin.run_in(&clone.join(".git"), &["pull", "a", "--apply"]).await?.expect_code(1)?;
    ensure!(bare.err.contains("there is no working tree here"), "{bare:?}");
    let nowhere = tempfile::tempdir()?;
    let refused = scene.plugin.run_in(nowhere.path(), &["pull", "a", "--apply"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("is in no git repository"), "{refused:?}");
    ensure!(scene.server.requests().len() == asked, "the cluster was asked before the tree was looked at");
    git(&clone, &["bisect", "reset"])?;
    scene.answer_honestly()?;
    scene.pull(&["--apply"]).await?.expect_code(0)?;
    Ok(())
}

#[tokio::test]
async fn what_an_agent_has_not_committed_is_named_with_the_command_that_brings_it() -> Result<()> {
    let scene = Scene::new().await?;
    let commit = agent_commits(&scene, &[("a", Some("of the agent\n"))])?;
    let mut head = scene.head("HEAD", &commit);
    head["uncommitted"] = json!({ "count": 1, "paths": ["left"] });
    scene.answer(&head, &scene.bundle(&["HEAD", &format!("^{}", scene.base)])?);
    let done = scene.pull(&["--apply"]).await?.expect_code(0)?;
    ensure!(done.err.contains("not committed, so not laid on the working tree: 1 path (left)"), "{done:?}");
    ensure!(done.err.contains("kubectl yoi pull --apply a --commit -m MESSAGE"), "{done:?}");
    scene.server.answer_for("a", "bundle", 200, json!({ "commit": commit }).to_string());
    let done = scene.pull(&["--apply", "--commit", "-m", "left", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(done["committed"] == commit, "{done}");
    Ok(())
}
