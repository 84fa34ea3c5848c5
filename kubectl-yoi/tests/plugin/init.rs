//! `init`: the project of a real clone, and what the clone remembers of it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Output, Plugin};
use crate::pull::git;

/// A clone whose remote is on another machine.
struct Scene {
    server: ApiServer,
    plugin: Plugin,
}

impl Scene {
    async fn new() -> Result<Self> {
        let server = ApiServer::start().await?;
        let plugin = Plugin::new(&server)?;
        let scene = Scene { server, plugin };
        std::fs::create_dir_all(scene.clone().join("deep/er"))?;
        git(&scene.clone(), &["init", "-q", "-b", "main"])?;
        git(&scene.clone(), &["remote", "add", "origin", "https://git.example/team/Own.git"])?;
        git(&scene.clone(), &["commit", "-q", "--allow-empty", "-m", "one"])?;
        Ok(scene)
    }

    fn clone(&self) -> PathBuf {
        self.plugin.folder.path().join("clone")
    }

    async fn run(&self, words: &[&str]) -> Result<Output> {
        self.plugin.run_in(&self.clone().join("deep/er"), words).await
    }

    /// The folder is below `/tmp`, where a tree may show as well as elsewhere.
    fn path(&self) -> Result<String> {
        Ok(self.clone().canonicalize()?.to_str().context("a path of text")?.to_owned())
    }
}

const MODEL: [&str; 6] = ["--model-provider", "openai", "--model", "m", "--model-secret", "keys/k"];

#[tokio::test]
async fn a_clone_becomes_a_project_that_is_only_printed() -> Result<()> {
    let scene = Scene::new().await?;
    std::fs::create_dir(scene.clone().join(".devcontainer"))?;
    let devcontainer = r#"{ // as editors write it
        "image": "registry.example/dev:1", "containerEnv": { "LEVEL": "2", "TOKEN": "${localEnv:TOKEN}" },
        "postCreateCommand": "make deps", "features": {}, }"#;
    std::fs::write(scene.clone().join(".devcontainer/devcontainer.json"), devcontainer)?;
    let printed = scene.run(&[&["init", "-o", "json", "--owner", "1001:100"], &MODEL[..]].concat()).await?.expect_code(0)?;
    let wanted = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": { "name": "own" }, "spec": {
        "source": { "git": { "url": "https://git.example/team/Own.git", "ref": "main" } },
        "path": scene.path()?, "owner": { "uid": 1001, "gid": 100 }, "provider": "Auto",
        "prepare": { "image": "registry.example/dev:1", "command": ["/bin/sh", "-c", "make deps"], "egress": "Agents" },
        "defaults": { "model": { "provider": "OpenAI", "name": "m", "authSecretRef": { "name": "keys", "key": "k" } },
            "pod": { "image": "registry.example/dev:1", "env": [{ "name": "LEVEL", "value": "2" }] } } } });
    ensure!(printed.json()? == wanted, "{printed:?}");
    for told in ["containerEnv.TOKEN: ", "devcontainer.json: features: ", "has no branch main", "not committed"] {
        ensure!(printed.err.contains(told), "`{told}` is not in {printed:?}");
    }
    let yaml = scene.run(&["init", "-n", "team"]).await?.expect_code(0)?;
    ensure!(
        yaml.out.starts_with("---\napiVersion: yoi.dev/v1alpha1\nkind: YoiProject\n") && yaml.out.contains("namespace: team"),
        "{yaml:?}"
    );
    ensure!(scene.server.requests().is_empty() && !scene.clone().join(".git/yoi").exists(), "it only prints");
    let with_tree = scene.run(&["init", "-o", "json", "--sync"]).await?.expect_code(0)?;
    ensure!(with_tree.json()?["spec"]["source"]["git"]["sync"] == json!({}), "{with_tree:?}");
    ensure!(!with_tree.err.contains("not committed"), "agents get it: {with_tree:?}");
    scene.run(&["init", "--context", "c"]).await?.expect_code(2)?;
    scene.run(&["init", "--program", "claude"]).await?.expect_code(2)?;
    Ok(())
}

#[tokio::test]
async fn a_clone_remembers_its_project_and_verbs_need_not_name_it() -> Result<()> {
    let scene = Scene::new().await?;
    let made = scene.run(&[&["init", "--apply", "--program", "claude"], &MODEL[..]].concat()).await?.expect_code(0)?;
    ensure!(made.out.contains("yoiproject.yoi.dev/own created") && made.out.contains("kubectl yoi run NAME"), "{made:?}");
    let stored = scene.server.object("YoiProject", "own").context("no project")?;
    ensure!(stored["spec"]["path"] == scene.path()?, "{stored}");
    let file: Value = serde_json::from_slice(&std::fs::read(scene.clone().join(".git/yoi/project.json"))?)?;
    ensure!(file == json!({ "project": "own", "namespace": "ns", "context": "c", "program": "claude" }), "{file}");
    ensure!(git(&scene.clone(), &["status", "--porcelain"])?.is_empty(), "the work tree stays as it is");

    // Another context and namespace are the kubeconfig's now.
    let config = scene.plugin.folder.path().join("kubeconfig");
    let text = std::fs::read_to_string(&config)?;
    std::fs::write(&config, text.replace(r#""current-context":"c""#, r#""current-context":"nowhere""#))?;
    let run = scene.run(&["run", "dave", "--task", "t"]).await?.expect_code(0)?;
    ensure!(run.err.contains("context c, namespace ns: as this clone remembers"), "{run:?}");
    let agent = scene.server.object("YoiPod", "dave").context("no agent")?;
    ensure!(agent["spec"]["projectRef"]["name"] == "own" && agent["spec"]["agent"]["cli"]["preset"] == "claude", "{agent}");
    let elsewhere = scene.plugin.run(&["run", "eve", "--context", "c"]).await?.expect_code(2)?;
    ensure!(elsewhere.err.contains("kubectl yoi init --apply"), "{elsewhere:?}");

    // What is there already is left alone, and remembered all the same.
    std::fs::remove_dir_all(scene.clone().join(".git/yoi"))?;
    let other = scene.run(&["init", "--apply", "--context", "c", "--path", "/workspace"]).await?.expect_code(0)?;
    ensure!(other.out.contains("is left as it is: it says something else in spec.path, spec.defaults"), "{other:?}");
    ensure!(scene.server.object("YoiProject", "own").context("no project")?["spec"] == stored["spec"]);
    git(&scene.clone(), &["remote", "set-url", "origin", "https://git.example/other/own.git"])?;
    let foreign = scene.run(&["init", "--apply"]).await?.expect_code(1)?;
    ensure!(foreign.err.contains("YoiProject ns/own: there is one of this name") && foreign.err.contains("--name NAME"), "{foreign:?}");
    std::fs::write(scene.clone().join(".git/yoi/project.json"), r#"{"project":"../x","namespace":"ns"}"#)?;
    let broken = scene.run(&["ls"]).await?.expect_code(1)?;
    ensure!(broken.err.contains("project.json") && broken.err.contains("delete it"), "{broken:?}");
    scene.run(&["init", "--apply", "--context", "c", "--name", "other"]).await?.expect_code(0)?;
    scene.run(&["ls"]).await?.expect_code(0)?;
    Ok(())
}

#[tokio::test]
async fn what_is_no_clone_of_a_server_is_told_with_the_way_and_without_credentials() -> Result<()> {
    let scene = Scene::new().await?;
    let clone = scene.clone();
    let nowhere = scene.plugin.run_in(scene.plugin.folder.path(), &["init", "--branch", "main"]).await?.expect_code(1)?;
    ensure!(nowhere.err.contains("is in no git repository") && nowhere.err.contains("run it in a clone"), "{nowhere:?}");
    git(&clone, &["remote", "set-url", "origin", "https://me:hunter2@git.example/p.git"])?;
    let secret = scene.run(&["init"]).await?.expect_code(1)?;
    ensure!(secret.err.contains("holds a user, password or token") && secret.err.contains("--git-secret"), "{secret:?}");
    ensure!(!format!("{secret:?}").contains("hunter2"), "{secret:?}");
    // The same from a short form of the person's own configuration.
    git(&clone, &["config", "url.https://me:hunter2@git.example/.insteadOf", "own:"])?;
    git(&clone, &["remote", "set-url", "origin", "own:p.git"])?;
    let secret = scene.run(&["init"]).await?.expect_code(1)?;
    ensure!(!format!("{secret:?}").contains("hunter2"), "{secret:?}");
    git(&clone, &["remote", "set-url", "origin", "git@git.example:t/p.git"])?;
    let ssh = scene.run(&["init"]).await?.expect_code(1)?;
    ensure!(ssh.err.contains("--git-secret clone-key") && ssh.err.contains("--url https://git.example/t/p.git"), "{ssh:?}");
    scene.run(&["init", "--git-secret", "clone-key"]).await?.expect_code(0)?;
    let path = scene.run(&["init", "--git-secret", "s", "--path", "/usr/x"]).await?.expect_code(1)?;
    ensure!(path.err.contains("/usr/x") && path.err.contains("--path /workspace"), "{path:?}");
    std::fs::write(clone.join(".devcontainer.json"), "{")?;
    let broken = scene.run(&["init", "--git-secret", "s"]).await?.expect_code(1)?;
    ensure!(broken.err.contains(".devcontainer.json cannot be read: ") && broken.err.contains("line 1"), "{broken:?}");
    std::fs::remove_file(clone.join(".devcontainer.json"))?;
    git(&clone, &["checkout", "-q", "--detach"])?;
    let detached = scene.run(&["init", "--git-secret", "s"]).await?.expect_code(1)?;
    ensure!(detached.err.contains("detached HEAD") && detached.err.contains("--branch BRANCH"), "{detached:?}");
    git(&clone, &["checkout", "-q", "main"])?;
    git(&clone, &["remote", "remove", "origin"])?;
    let alone = scene.run(&["init"]).await?.expect_code(1)?;
    ensure!(alone.err.contains("has no remote") && alone.err.contains("git remote add origin URL"), "{alone:?}");
    let given = scene.run(&["init", "--url", "https://git.example/t/p.git", "-o", "name"]).await?.expect_code(0)?;
    ensure!(given.out == "yoiproject.yoi.dev/p\n", "{given:?}");
    Ok(())
}
