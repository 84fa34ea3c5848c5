//! `sync`: the working tree of a real clone, as the gateway would get it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::api_server::{ApiServer, Request};
use crate::plugin::{Output, project};
use crate::pull::{Scene, git};
use crate::terminal::Terminal;

pub const SYNC: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoiprojects/p/sync";

pub fn put_project(server: &ApiServer, git: &Value, status: &Value) {
    let mut object = project(&[]);
    object["spec"]["source"] = json!({ "git": git });
    for (field, value) in status.as_object().into_iter().flatten() {
        object["status"][field] = value.clone();
    }
    server.put(object);
}

pub fn takes_trees() -> Value {
    json!({ "url": "https://git.example/p", "sync": {} })
}

pub fn sent(server: &ApiServer) -> Vec<Request> {
    server.requests().into_iter().filter(|request| request.path == SYNC).collect()
}

/// Runs it in the clone. Once a tree was sent, trees are made from it.
async fn sync(scene: &Scene, words: &[&str]) -> Result<(Output, Request)> {
    typed(scene, &[&["sync", "p", "--machine", "laptop"], words].concat()).await
}

/// Types a line that sends the tree.
async fn typed(scene: &Scene, words: &[&str]) -> Result<(Output, Request)> {
    let before = sent(&scene.server).len();
    scene.server.answer(SYNC, 200, json!({ "commit": "c", "parts": 1, "receivedAt": "2026-01-01T00:00:00Z" }).to_string());
    let folder = scene.clone();
    let sealed = async {
        let request = eventually("a tree that is sent", async || sent(&scene.server).into_iter().nth(before)).await;
        let commit = request.query.get("commit").cloned().unwrap_or_default();
        let status = json!({ "generation": { "name": "g", "revision": commit },
            "sync": { "last": last(&commit), "machines": [{ "machine": "laptop", "commit": commit }] } });
        put_project(&scene.server, &takes_trees(), &status);
        request
    };
    let (done, request) = tokio::join!(scene.plugin.run_in(&folder, words), sealed);
    Ok((done?, request))
}

fn last(commit: &str) -> Value {
    json!({ "machine": "laptop", "commit": commit, "capturedAt": "t", "receivedAt": "t", "person": "jane" })
}

/// Everything of the clone but the folder of ours: names, bytes and the times of git's index.
fn content(clone: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let (mut all, mut folders) = (Vec::new(), vec![clone.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.ends_with(".git/yoi") {
                continue;
            }
            match path.symlink_metadata()?.is_dir() {
                true => folders.push(path),
                false => all.push((path.display().to_string(), fs::read(&path)?)),
            }
        }
    }
    all.sort();
    Ok(all)
}

/// So many bytes that git cannot pack into less.
fn noise(bytes: usize) -> Vec<u8> {
    let (mut state, mut noise) = (1_u64, Vec::new());
    while noise.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    noise
}

/// Work of every kind, on top of a commit that nobody has pushed.
fn work(clone: &Path) -> Result<()> {
    git(clone, &["commit", "-q", "--allow-empty", "-m", "not pushed"])?;
    fs::write(clone.join("staged"), "staged\n")?;
    git(clone, &["add", "staged"])?;
    fs::write(clone.join("a"), "not staged\n")?;
    git(clone, &["stash", "push", "-q", "--keep-index", "-m", "kept"])?;
    fs::write(clone.join("a"), "not staged again\n")?;
    fs::write(clone.join("new file"), "untracked\n")?;
    fs::write(clone.join(".gitignore"), "*.log\n")?;
    fs::write(clone.join("x.log"), "ignored\n")?;
    Ok(())
}

#[tokio::test]
async fn w45_the_tree_that_is_sent_equals_the_working_tree_and_nothing_of_the_persons_is_changed() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    work(&clone)?;
    put_project(&scene.server, &takes_trees(), &json!({ "sync": { "machines": [{ "machine": "laptop", "commit": "c0".repeat(20) }] } }));
    let before = content(&clone)?;
    let dry = scene.plugin.run_in(&clone, &["sync", "p", "--dry-run"]).await?.expect_code(0)?;
    ensure!(dry.out.contains("would be sent to yoiproject.yoi.dev/p") && sent(&scene.server).is_empty(), "{dry:?}");

    let (done, request) = sync(&scene, &[]).await?;
    let done = done.expect_code(0)?;
    ensure!(done.out.contains("yoiproject.yoi.dev/p makes trees from laptop as it was at "), "{done:?}");
    ensure!(content(&clone)? == before, "something of the person's has changed");
    let query = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default().to_owned();
    ensure!(query("machine") == "laptop" && query("previous") == "c0".repeat(20), "{request:?}");
    ensure!(query("sha256") == yoi_plan::names::sha256(&request.bytes), "another digest");

    // The project's server has the base, and not the commit that nobody has pushed.
    let server = scene.agents();
    let bundle = scene.plugin.folder.path().join("sent.bundle");
    fs::write(&bundle, &request.bytes)?;
    git(&server, &["fetch", "-q", &bundle.to_string_lossy(), "refs/yoi/sync/laptop:refs/yoi/sync/laptop"])?;
    let commit = query("commit");
    ensure!(git(&server, &["rev-parse", "refs/yoi/sync/laptop"])? == commit);
    let files = git(&server, &["ls-tree", "-r", "--name-only", &commit])?;
    ensure!(files == ".gitignore\na\nnew file\nstaged", "{files}");
    ensure!(git(&server, &["show", &format!("{commit}:a")])? == "not staged again");
    ensure!(git(&server, &["log", "-1", "--format=%s", &format!("{commit}^")])? == "not pushed");

    // Nothing has changed since, so nothing is sent.
    let again = scene.plugin.run_in(&clone, &["sync", "p", "--machine", "laptop"]).await?.expect_code(0)?;
    ensure!(again.out.contains("it is there already") && sent(&scene.server).len() == 1, "{again:?}");
    let (included, request) = sync(&scene, &["--include", "*.log"]).await?;
    included.expect_code(0)?;
    ensure!(request.query.get("previous") == Some(&commit), "{request:?}");

    // No tree can be made from what came last: the same tree is sent anew, as the condition says.
    let status = json!({ "sync": { "last": last(&commit), "machines": [{ "machine": "laptop", "commit": commit }] },
        "conditions": [{ "type": "Refreshed", "status": "False", "reason": "PopulateFailed", "message": "what was synced is not what has come",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
    put_project(&scene.server, &takes_trees(), &status);
    let (anew, request) = sync(&scene, &[]).await?;
    anew.expect_code(0)?;
    ensure!(!request.bytes.is_empty(), "{request:?}");

    // In the middle of a merge the tree is taken as it is, and that is said.
    fs::write(clone.join(".git/MERGE_HEAD"), git(&clone, &["rev-parse", "HEAD"])?)?;
    let merging = scene.plugin.run_in(&clone, &["sync", "p", "--dry-run"]).await?.expect_code(0)?;
    ensure!(merging.err.contains("a merge is under way in this working tree: the tree is taken as it is"), "{merging:?}");
    Ok(())
}

#[tokio::test]
async fn a_run_in_the_projects_clone_sends_the_working_tree_first_and_says_of_which_moment_it_is() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    fs::create_dir_all(clone.join(".git/yoi"))?;
    fs::write(clone.join(".git/yoi/project.json"), json!({ "project": "p", "namespace": "ns" }).to_string())?;
    let model = ["--model-provider", "openai", "--model", "m"];
    let made = |server: &ApiServer| server.requests().iter().filter(|r| r.method == "POST" && r.path.ends_with("/yoipods")).count();
    // A project that takes none, another project, a fork: as outside of a clone.
    put_project(&scene.server, &json!({ "url": "https://git.example/p" }), &json!({}));
    scene.plugin.run_in(&clone, &[&["run", "one", "-t", "x"], &model[..]].concat()).await?.expect_code(0)?;
    put_project(&scene.server, &takes_trees(), &json!({}));
    scene.plugin.run_in(&clone, &[&["run", "two", "-t", "x", "--no-sync"], &model[..]].concat()).await?.expect_code(0)?;
    ensure!(sent(&scene.server).is_empty() && made(&scene.server) == 2, "{:?}", scene.server.requests());

    fs::write(clone.join("a"), "not staged\n")?;
    let (done, _) = typed(&scene, &[&["run", "three", "-t", "x"], &model[..]].concat()).await?;
    let done = done.expect_code(0)?;
    ensure!(done.err.contains("yoiproject.yoi.dev/p makes trees from ") && done.err.contains(" as it was at "), "{done:?}");
    let order: Vec<String> = scene.server.requests().into_iter().filter(|r| r.method == "POST").map(|r| r.path).collect();
    ensure!(order.len() == 4 && order[2] == SYNC, "{order:?}");

    // An agent whose name is taken is found before anything is sent, and so is a path that Windows cannot hold.
    fs::write(clone.join("a"), "one more\n")?;
    let taken = scene.plugin.run_in(&clone, &[&["run", "three", "-t", "x"], &model[..]].concat()).await?.expect_code(1)?;
    ensure!(taken.err.contains("exists already, and the working tree was not sent") && taken.err.contains("send three"), "{taken:?}");
    fs::write(clone.join("nul.txt"), "x\n")?;
    let reserved = scene.plugin.run_in(&clone, &[&["run", "four", "-t", "x"], &model[..]].concat()).await?.expect_code(1)?;
    ensure!(reserved.err.contains("nul.txt") && reserved.err.contains("it is a device of Windows"), "{reserved:?}");
    fs::remove_file(clone.join("nul.txt"))?;
    let order: Vec<String> = scene.server.requests().into_iter().filter(|r| r.method == "POST").map(|r| r.path).collect();
    ensure!(order.len() == 4 && made(&scene.server) == 3, "{order:?}");

    // What cannot be sent makes no agent.
    scene.server.answer(SYNC, 403, crate::api_server::status(403, "Forbidden", "no"));
    fs::write(clone.join("a"), "another\n")?;
    let refused = scene.plugin.run_in(&clone, &[&["run", "four", "-t", "x"], &model[..]].concat()).await?;
    ensure!(refused.code != 0 && made(&scene.server) == 3, "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn what_an_agent_makes_of_a_synced_tree_comes_back_beside_what_was_synced() -> Result<()> {
    let mut scene = Scene::new().await?;
    let clone = scene.clone();
    work(&clone)?;
    put_project(&scene.server, &takes_trees(), &json!({}));
    let (done, request) = sync(&scene, &[]).await?;
    done.expect_code(0)?;
    let commit = request.query.get("commit").context("no commit")?.clone();
    let bundle = scene.plugin.folder.path().join("sent.bundle");
    fs::write(&bundle, &request.bytes)?;
    let agents = scene.agents();
    git(&agents, &["fetch", "-q", &bundle.to_string_lossy(), "refs/yoi/sync/laptop"])?;
    git(&agents, &["reset", "-q", "--hard", "FETCH_HEAD"])?;
    fs::write(agents.join("staged"), "of the agent\n")?;
    git(&agents, &["commit", "-q", "-a", "-m", "of the agent"])?;
    scene.server.put(json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "p-base", "uid": "base" },
        "spec": { "source": { "project": { "name": "p" } } }, "status": { "volume": { "revision": commit } } }));
    scene.base = commit.clone();
    scene.answer_honestly()?;

    let index = fs::read(clone.join(".git/index"))?;
    scene.pull(&["--apply"]).await?.expect_code(0)?;
    ensure!(fs::read_to_string(clone.join("staged"))? == "of the agent\n" && fs::read_to_string(clone.join("a"))? == "not staged again\n");
    ensure!(fs::read(clone.join(".git/index"))? == index);
    ensure!(git(&clone, &["cat-file", "-t", &commit]).is_err(), "what is laid on the working tree leaves no commit in the clone");

    scene.pull(&["--branch", "back"]).await?.expect_code(0)?;
    ensure!(git(&clone, &["rev-parse", "back^"])? == commit);
    git(&clone, &["fsck", "--connectivity-only"])?;
    Ok(())
}

#[tokio::test]
async fn a_project_that_takes_none_and_a_tree_that_is_too_much_are_refused_before_anything_is_sent() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    let git_source = json!({ "url": "https://git.example/p" });
    put_project(&scene.server, &git_source, &json!({}));
    let none = scene.plugin.run_in(&clone, &["sync", "p"]).await?;
    ensure!(
        none.code != 0 && none.err.contains("it takes no working trees") && none.err.contains("kubectl patch yoiproject p"),
        "{none:?}"
    );
    put_project(&scene.server, &takes_trees(), &json!({}));
    fs::write(clone.join("noise"), noise(9_000_000))?;
    let long = scene.plugin.run_in(&clone, &["sync", "p", "--machine", "laptop", "--yes"]).await?;
    ensure!(long.code != 0 && long.err.contains("what the project's server lacks of it is more than 7.6"), "{long:?}");
    ensure!(long.err.contains(".git/info/exclude"), "{long:?}");
    let outside = scene.plugin.run_in(scene.plugin.folder.path(), &["sync", "p"]).await?;
    ensure!(outside.code != 0 && outside.err.contains("is in no git repository"), "{outside:?}");
    ensure!(sent(&scene.server).is_empty() && scene.server.writes().is_empty(), "{:?}", scene.server.writes());
    Ok(())
}

#[tokio::test]
async fn large_untracked_files_are_asked_about_once_with_their_sizes_and_refused_by_name_without_a_terminal() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    put_project(&scene.server, &takes_trees(), &json!({}));
    fs::write(clone.join("large.db"), vec![0; 3 << 20])?;
    let dry = scene.plugin.run_in(&clone, &["sync", "p", "--dry-run"]).await?.expect_code(0)?;
    ensure!(dry.out.contains("(dry run)"), "{dry:?}");
    let refused = scene.plugin.run_in(&clone, &["sync", "p", "--machine", "laptop"]).await?;
    ensure!(refused.code == 1 && refused.err.contains("the largest, in bytes: large.db (3145728)"), "{refused:?}");
    ensure!(refused.err.contains("there is no terminal to ask in") && refused.err.contains("add --yes"), "{refused:?}");

    let mut terminal = Terminal::start_in(&scene.plugin, &clone, &["sync", "p", "--machine", "laptop"])?;
    terminal.wait_until("the question", |screen| screen.contains("Send them? [y/N]")).await?;
    terminal.type_keys("n\n")?;
    ensure!(terminal.end().await? == 1 && sent(&scene.server).is_empty(), "the answer was no");

    // What git tracks is no surprise.
    git(&clone, &["add", "large.db"])?;
    sync(&scene, &[]).await?.0.expect_code(0)?;
    git(&clone, &["rm", "-q", "--cached", "large.db"])?;
    fs::write(clone.join("a"), "changed\n")?;
    let (agreed, _) = sync(&scene, &["--yes"]).await?;
    agreed.expect_code(0)?;
    fs::write(clone.join("a"), "changed again\n")?;
    sync(&scene, &[]).await?.0.expect_code(0)?;
    fs::write(clone.join("more.db"), vec![0; 3 << 20])?;
    let more = scene.plugin.run_in(&clone, &["sync", "p", "--machine", "laptop"]).await?;
    ensure!(more.code == 1 && more.err.contains("more.db (3145728)") && sent(&scene.server).len() == 3, "{more:?}");
    Ok(())
}

#[tokio::test]
async fn w46_an_upload_that_was_cut_goes_on_with_the_same_bundle_and_one_of_an_older_state_does_not() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    let line = ["sync", "p", "--machine", "laptop", "--yes"];
    let of = |request: &Request, name: &str| request.query.get(name).cloned().unwrap_or_default();
    put_project(&scene.server, &takes_trees(), &json!({}));
    fs::write(clone.join("noise"), noise(2_500_000))?;
    let cut = async || {
        scene.server.answer(SYNC, 503, crate::api_server::status(503, "ServiceUnavailable", "no gateway answers"));
        let done = scene.plugin.run_in(&clone, &line).await?;
        ensure!(done.code != 0, "{done:?}");
        sent(&scene.server).pop().context("nothing was sent")
    };
    let first = cut().await?;
    ensure!((of(&first, "part"), first.bytes.len()) == ("0".to_owned(), 1_000_000), "{:?}", first.query);

    // The part has come all the same, and the laptop has slept.
    let bytes: u64 = of(&first, "bytes").parse()?;
    let bundle =
        json!({ "commit": of(&first, "commit"), "sha256": of(&first, "sha256"), "bytes": bytes, "parts": [{ "name": "n", "uid": "u" }] });
    put_project(&scene.server, &takes_trees(), &json!({ "sync": { "uploads": [{ "machine": "laptop", "bundle": bundle }] } }));
    let before = sent(&scene.server).len();
    let (done, _) = sync(&scene, &["--yes"]).await?;
    let done = done.expect_code(0)?;
    ensure!(done.err.contains("it goes on where it was cut: 1 of 3 parts are there"), "{done:?}");
    let rest: Vec<Request> = sent(&scene.server).split_off(before);
    let parts: Vec<String> = rest.iter().map(|request| of(request, "part")).collect();
    ensure!(parts == ["1", "2"], "{parts:?}");
    ensure!(rest.iter().all(|request| ["commit", "sha256", "bytes"].iter().all(|name| of(request, name) == of(&first, name))), "{rest:?}");
    let whole: Vec<u8> = [&first].into_iter().chain(&rest).flat_map(|request| request.bytes.to_vec()).collect();
    ensure!(yoi_plan::names::sha256(&whole) == of(&first, "sha256"));
    ensure!(!clone.join(".git/yoi/sync/upload").exists(), "what is there is not kept");

    // One is cut, and the tree goes on: what is there by then is sent from its first part, and the older state never again.
    fs::write(clone.join("a"), "older\n")?;
    let older = cut().await?;
    fs::write(clone.join("a"), "newer\n")?;
    let (done, newer) = sync(&scene, &["--yes"]).await?;
    done.expect_code(0)?;
    ensure!(of(&newer, "part") == "0" && of(&newer, "commit") != of(&older, "commit"), "an older state was sent: {:?}", newer.query);
    // The same files in the same second are the same commit; the upload is another one all the same.
    fs::write(clone.join("a"), "older\n")?;
    let (done, again) = sync(&scene, &["--yes"]).await?;
    done.expect_code(0)?;
    ensure!(of(&again, "part") == "0", "{:?}", again.query);
    ensure!(of(&again, "previous") == of(&newer, "commit"), "{:?}", again.query);
    Ok(())
}
