//! A folder without git: its project, what is sent of it, and what comes back. Nothing of ours is ever in it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::api_server::{ApiServer, Request};
use crate::plugin::{Output, Plugin, agent, project};
use crate::pull::git;
use crate::sync::{SYNC, sent};

const MODEL: [&str; 6] = ["--model-provider", "openai", "--model", "m", "--model-secret", "keys/k"];

struct Scene {
    server: ApiServer,
    plugin: Plugin,
}

impl Scene {
    async fn new() -> Result<Self> {
        let server = ApiServer::start().await?;
        let plugin = Plugin::new(&server)?;
        let scene = Scene { server, plugin };
        fs::create_dir_all(scene.folder().join("sub"))?;
        for (name, text) in [("a", "one\n"), ("sub/b", "one\n"), (".gitignore", "*.log\n"), ("x.log", "ignored\n")] {
            fs::write(scene.folder().join(name), text)?;
        }
        Ok(scene)
    }

    fn folder(&self) -> PathBuf {
        self.plugin.folder.path().join("p")
    }

    /// Types it below the folder.
    async fn run(&self, words: &[&str]) -> Result<Output> {
        self.plugin.run_in(&self.folder().join("sub"), words).await
    }

    fn takes_trees(&self, status: &Value) {
        let mut object = project(&[]);
        object["spec"]["source"] = json!({ "empty": { "sync": {} } });
        for (field, value) in status.as_object().into_iter().flatten() {
            object["status"][field] = value.clone();
        }
        self.server.put(object);
    }

    /// Types a line that sends the tree. Once it was sent, trees are made from it.
    async fn sends(&self, words: &[&str]) -> Result<(Output, Request)> {
        let before = sent(&self.server).len();
        self.server.answer(SYNC, 200, json!({ "commit": "c", "parts": 1, "receivedAt": "2026-01-01T00:00:00Z" }).to_string());
        let sealed = async {
            let request = eventually("a tree that is sent", async || sent(&self.server).into_iter().nth(before)).await;
            let commit = request.query.get("commit").cloned().unwrap_or_default();
            let last = json!({ "machine": "laptop", "commit": commit, "capturedAt": "t", "receivedAt": "t", "person": "jane" });
            self.takes_trees(&json!({ "generation": { "name": "g", "revision": commit },
                "sync": { "last": last, "machines": [{ "machine": "laptop", "commit": commit }] } }));
            request
        };
        let (done, request) = tokio::join!(self.run(words), sealed);
        Ok((done?, request))
    }

    /// The repository of an agent whose tree is what was sent.
    fn agents(&self, request: &Request) -> Result<PathBuf> {
        let (bundle, agents) = (self.plugin.folder.path().join("sent.bundle"), self.plugin.folder.path().join("agents"));
        fs::write(&bundle, &request.bytes)?;
        let _ = fs::remove_dir_all(&agents);
        git(self.plugin.folder.path(), &["init", "-q", "-b", "main", "agents"])?;
        git(&agents, &["fetch", "-q", &bundle.to_string_lossy(), "refs/yoi/sync/laptop"])?;
        git(&agents, &["reset", "-q", "--hard", "FETCH_HEAD"])?;
        Ok(agents)
    }

    /// Every path and its bytes.
    fn content(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let (mut all, mut folders) = (Vec::new(), vec![self.folder()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.is_dir() { folders.push(path) } else { all.push((path.clone(), fs::read(&path)?)) }
            }
        }
        all.sort();
        Ok(all)
    }
}

#[tokio::test]
async fn w45_a_folder_without_git_is_sent_as_it_is_and_what_an_agent_commits_comes_back_onto_it() -> Result<()> {
    let scene = Scene::new().await?;
    let before = scene.content()?;
    let printed = scene.plugin.run_in(&scene.folder(), &["init", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(printed["spec"]["source"] == json!({ "empty": { "sync": {} } }) && printed["metadata"]["name"] == "p", "{printed}");
    let cache = scene.plugin.folder.path().join("cache");
    ensure!(!cache.exists(), "what is only printed writes nothing");
    let made = scene.plugin.run_in(&scene.folder(), &[&["init", "--apply"], &MODEL[..]].concat()).await?.expect_code(0)?;
    ensure!(made.out.contains("yoiproject.yoi.dev/p created") && made.out.contains("it is remembered of this folder"), "{made:?}");
    ensure!(scene.server.object("YoiProject", "p").context("no project")?["spec"]["path"] == json!(scene.folder().canonicalize()?));

    scene.takes_trees(&json!({}));
    let dry = scene.run(&["sync", "--dry-run"]).await?.expect_code(0)?;
    ensure!(dry.out.contains("would be sent") && sent(&scene.server).is_empty(), "{dry:?}");
    // The project is that of the folder, and a run sends the tree first.
    let (ran, request) = scene.sends(&["run", "a", "-t", "x"]).await?;
    let ran = ran.expect_code(0)?;
    ensure!(ran.err.contains("yoiproject.yoi.dev/p makes trees from "), "{ran:?}");
    ensure!(scene.content()? == before, "something of the person's has changed");
    let machine = request.query.get("machine").context("no machine")?.clone();
    let (bundle, agents) = (scene.plugin.folder.path().join("sent.bundle"), scene.plugin.folder.path().join("agents"));
    fs::write(&bundle, &request.bytes)?;
    git(scene.plugin.folder.path(), &["init", "-q", "-b", "main", "agents"])?;
    git(&agents, &["fetch", "-q", &bundle.to_string_lossy(), &format!("refs/yoi/sync/{machine}")])?;
    git(&agents, &["reset", "-q", "--hard", "FETCH_HEAD"])?;
    ensure!(git(&agents, &["ls-files"])? == ".gitignore\na\nsub/b");

    // The next one holds only what is there by then.
    fs::remove_file(scene.folder().join("a"))?;
    fs::write(scene.folder().join("c"), "new\n")?;
    let (synced, request) = scene.sends(&["sync", "--machine", "laptop"]).await?;
    synced.expect_code(0)?;
    let base = request.query.get("commit").context("no commit")?.clone();
    let agents = scene.agents(&request)?;
    ensure!(git(&agents, &["ls-files"])? == ".gitignore\nc\nsub/b" && git(&agents, &["rev-list", "--count", "HEAD"])? == "1");

    fs::write(agents.join("c"), "of the agent\n")?;
    fs::write(agents.join("sub/b"), "of the agent\n")?;
    git(&agents, &["add", "-A"])?;
    git(&agents, &["commit", "-q", "-m", "of the agent"])?;
    let commit = git(&agents, &["rev-parse", "HEAD"])?;
    let made = scene.plugin.folder.path().join("made.bundle");
    git(&agents, &["bundle", "create", "--quiet", &made.to_string_lossy(), "HEAD", &format!("^{base}")])?;
    let head = json!({ "name": "HEAD", "commit": commit, "base": base, "commits": 1, "uncommitted": { "count": 0 } });
    scene.server.answer_for("a", "log", 200, [head.to_string().as_bytes(), b"\n", &fs::read(&made)?[..]].concat());
    let mut a = agent("a", &[]);
    a["status"]["workspace"] = json!({ "name": "a" });
    scene.server.put(a);
    scene.server.put(json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "a", "uid": "tree" },
        "spec": { "source": { "project": { "name": "p" } } }, "status": { "origin": { "kind": "Base", "revision": base } } }));
    let branch = scene.run(&["pull", "a"]).await?.expect_code(1)?;
    ensure!(branch.err.contains("there is no branch to pull onto") && branch.err.contains("pull a --apply"), "{branch:?}");
    fs::write(scene.folder().join("sub/b"), "of the person\n")?;
    let applied = scene.run(&["pull", "a", "--apply"]).await?.expect_code(8)?;
    ensure!(applied.err.contains("conflicts/a-") && applied.out.contains("1 path laid on the working tree"), "{applied:?}");
    ensure!(fs::read_to_string(scene.folder().join("c"))? == "of the agent\n");
    ensure!(fs::read_to_string(scene.folder().join("sub/b"))? == "of the person\n");
    ensure!(!scene.folder().join(".git").exists());
    Ok(())
}

#[tokio::test]
async fn a_folder_that_is_found_by_mistake_is_not_sent() -> Result<()> {
    let scene = Scene::new().await?;
    // It holds all that this machine has of Yoi.
    let holds_cache = scene.plugin.run(&["init"]).await?.expect_code(1)?;
    ensure!(holds_cache.err.contains("holds your cache folder") && holds_cache.err.contains("XDG_CACHE_HOME"), "{holds_cache:?}");
    // A project of a server wants a clone of it, and a folder with a project of its own is none.
    crate::sync::put_project(&scene.server, &crate::sync::takes_trees(), &json!({}));
    let no_clone = scene.run(&["sync", "p"]).await?.expect_code(1)?;
    ensure!(no_clone.err.contains("is in no git repository"), "{no_clone:?}");
    scene.takes_trees(&json!({}));
    scene.plugin.run_in(&scene.folder(), &["sync", "p", "--dry-run"]).await?.expect_code(0)?;
    crate::sync::put_project(&scene.server, &crate::sync::takes_trees(), &json!({}));
    let of_server = scene.run(&["sync", "p"]).await?.expect_code(1)?;
    ensure!(of_server.err.contains("the project is one of a server"), "{of_server:?}");
    // Large files are asked about, whether or not a dry run has read them.
    scene.takes_trees(&json!({}));
    fs::write(scene.folder().join("large.db"), vec![0; 3 << 20])?;
    scene.run(&["sync", "p", "--dry-run"]).await?.expect_code(0)?;
    let asked = scene.run(&["sync", "p", "--machine", "laptop"]).await?.expect_code(1)?;
    ensure!(asked.err.contains("large.db (3145728)") && sent(&scene.server).is_empty(), "{asked:?}");
    // A clone within it is another tree.
    fs::create_dir(scene.folder().join("clone"))?;
    git(&scene.folder().join("clone"), &["init", "-q"])?;
    let inner = scene.plugin.run_in(&scene.folder().join("clone"), &["init"]).await?.expect_code(1)?;
    ensure!(inner.err.contains("has no remote"), "{inner:?}");
    Ok(())
}

#[tokio::test]
async fn every_line_below_a_folder_without_git_is_about_the_cluster_and_namespace_that_are_remembered_of_it() -> Result<()> {
    let scene = Scene::new().await?;
    scene.plugin.run_in(&scene.folder(), &["init", "--apply"]).await?.expect_code(0)?;
    // The kubeconfig means another namespace of a server that is not there.
    let config = scene.plugin.folder.path().join("kubeconfig");
    let text = fs::read_to_string(&config)?.replace(r#""current-context":"c""#, r#""current-context":"nowhere""#);
    fs::write(&config, text.replace(r#""namespace":"ns""#, r#""namespace":"elsewhere""#))?;
    scene.server.put(agent("a", &[]));
    for subresource in ["log", "diff"] {
        scene.server.answer_for("a", subresource, 403, crate::api_server::status(403, "Forbidden", "no"));
    }
    for words in [&["log", "a"][..], &["diff", "a"], &["pull", "a", "--apply"], &["ls"]] {
        let before = scene.server.requests().len();
        let done = scene.run(words).await?;
        ensure!(done.err.contains("context c, namespace ns: as is remembered of this folder (") && done.code != 2, "{done:?}");
        let asked: Vec<String> = scene.server.requests().split_off(before).into_iter().map(|request| request.path).collect();
        ensure!(!asked.is_empty() && !asked.iter().any(|path| path.contains("/namespaces/elsewhere/")), "{words:?}: {asked:?}");
    }
    // The cache folder is the person's to delete.
    fs::remove_dir_all(scene.plugin.folder.path().join("cache"))?;
    scene.run(&["log", "a"]).await?.expect_code(5)?;
    Ok(())
}
