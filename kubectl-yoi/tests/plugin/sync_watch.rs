//! `sync --watch` in a real clone, with the gateway and the operator played.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::api_server::{Request, status};
use crate::plugin::Running;
use crate::pull::{Scene, git};
use crate::sync::{SYNC, put_project, sent, takes_trees};

const WATCH: [&str; 5] = ["sync", "p", "--machine", "laptop", "--watch"];

struct Watched {
    scene: Scene,
    plugin: Running,
    /// What has been sent.
    count: usize,
}

fn tree(machine: &str, commit: &str) -> Value {
    json!({ "machine": machine, "commit": commit, "capturedAt": "2026-01-01T10:00:00Z", "receivedAt": "t", "person": "jane" })
}

fn commit(request: &Request) -> String {
    request.query.get("commit").cloned().unwrap_or_default()
}

impl Watched {
    /// Starts it on this status of the project.
    async fn start(status: &Value) -> Result<Self> {
        let scene = Scene::new().await?;
        scene.server.answer(SYNC, 200, json!({ "commit": "c", "parts": 1, "receivedAt": "t" }).to_string());
        put_project(&scene.server, &takes_trees(), status);
        let plugin = scene.plugin.start_in(&scene.clone(), &WATCH)?;
        Ok(Watched { scene, plugin, count: 0 })
    }

    /// The next tree that is sent.
    async fn next(&mut self) -> Request {
        let count = self.count;
        self.count += 1;
        eventually("a tree that is sent", async || sent(&self.scene.server).into_iter().nth(count)).await
    }

    /// Trees are made from what was sent, and the plugin says it.
    async fn seal(&mut self, request: &Request) -> Result<String> {
        let commit = commit(request);
        let status = json!({ "generation": { "name": "g", "revision": commit },
            "sync": { "last": tree("laptop", &commit), "machines": [{ "machine": "laptop", "commit": commit }] } });
        put_project(&self.scene.server, &takes_trees(), &status);
        let line = self.plugin.line().await?;
        ensure!(line.contains("makes trees from laptop as it was at ") && line.contains(&commit[..12]), "{line}");
        Ok(line)
    }

    /// The files of what was sent, and their text.
    fn files(&self, request: &Request) -> Result<Vec<(String, String)>> {
        let (server, bundle) = (self.scene.agents(), self.scene.plugin.folder.path().join("sent.bundle"));
        fs::write(&bundle, &request.bytes)?;
        git(&server, &["fetch", "-q", &bundle.to_string_lossy(), "+refs/yoi/sync/laptop:refs/yoi/sync/laptop"])?;
        let commit = commit(request);
        let names = git(&server, &["ls-tree", "-r", "--name-only", &commit])?;
        names.lines().map(|name| Ok((name.to_owned(), git(&server, &["show", &format!("{commit}:{name}")])?))).collect()
    }
}

fn write(clone: &Path, name: &str, text: &str) -> Result<()> {
    let path = clone.join(name);
    fs::create_dir_all(path.parent().context("no folder")?)?;
    Ok(fs::write(path, text)?)
}

#[tokio::test]
async fn w46_a_watched_tree_is_sent_when_it_rests_and_what_is_ignored_or_as_before_sends_nothing() -> Result<()> {
    let mut watched = Watched::start(&json!({})).await?;
    let clone = watched.scene.clone();
    let first = watched.next().await;
    ensure!(!first.query.contains_key("previous"), "{first:?}");
    watched.seal(&first).await?;
    watched.plugin.error_line("what changes there is sent").await?;

    // An edit of several files is one state.
    write(&clone, ".gitignore", "build/\n")?;
    write(&clone, "new/folder/b", "b\n")?;
    write(&clone, "a", "changed\n")?;
    let second = watched.next().await;
    let wanted = [(".gitignore", "build/"), ("a", "changed"), ("new/folder/b", "b")];
    ensure!(watched.files(&second)? == wanted.map(|(name, text)| (name.to_owned(), text.to_owned())), "{second:?}");
    ensure!(second.query.get("previous") == Some(&commit(&first)), "{second:?}");

    // What changes before trees are made from it is sent after that.
    write(&clone, "a", "changed meanwhile\n")?;
    write(&clone, "build/x", "ignored\n")?;
    watched.seal(&second).await?;
    let third = watched.next().await;
    ensure!(third.query.get("previous") == Some(&commit(&second)), "{third:?}");
    watched.seal(&third).await?;

    // The same text again is no other state, nor is what git ignores, nor a branch that is at the same commit.
    write(&clone, "a", "changed meanwhile\n")?;
    write(&clone, "build/y", "ignored\n")?;
    git(&clone, &["branch", "other"])?;
    git(&clone, &["add", "a"])?;
    write(&clone, "new/folder/b", "bb\n")?;
    let fourth = watched.next().await;
    ensure!(fourth.query.get("previous") == Some(&commit(&third)), "{fourth:?}");
    watched.seal(&fourth).await?;
    // A commit is another base.
    git(&clone, &["commit", "-q", "-a", "-m", "of the person"])?;
    let fifth = watched.next().await;
    watched.seal(&fifth).await?;
    let head = git(&clone, &["rev-parse", "HEAD"])?;
    ensure!(watched.files(&fifth)?.len() == 3 && git(&watched.scene.agents(), &["rev-parse", &format!("{}^", commit(&fifth))])? == head);
    let again = watched.scene.plugin.run_in(&clone, &WATCH).await?;
    ensure!(again.code == 1 && again.err.contains("another `sync --watch` of this clone is under way"), "{again:?}");
    ensure!(sent(&watched.scene.server).len() == 5, "{:?}", sent(&watched.scene.server).len());
    Ok(())
}

#[tokio::test]
async fn w46_a_watch_says_what_is_late_and_broken_and_goes_on_with_what_is_there_by_then() -> Result<()> {
    let mut watched = Watched::start(&json!({})).await?;
    let clone = watched.scene.clone();
    let first = watched.next().await;
    let late = watched.plugin.error_line("late: ").await?;
    ensure!(late.contains("what has changed here is in no new tree yet"), "{late}");
    watched.seal(&first).await?;

    watched.scene.server.answer(SYNC, 503, status(503, "ServiceUnavailable", "no gateway answers"));
    write(&clone, "a", "while it is broken\n")?;
    let broken = watched.plugin.error_line("broken: ").await?;
    ensure!(broken.contains("no gateway answers"), "{broken}");
    let until = watched.plugin.error_line("it goes on by itself").await?;
    ensure!(until.contains("what has changed here since ") && until.contains(" is not sent"), "{until}");
    write(&clone, "a", "by then\n")?;
    watched.scene.server.answer(SYNC, 200, json!({ "commit": "c", "parts": 1, "receivedAt": "t" }).to_string());
    // Those that were refused were of any moment; the one that is taken is of the last.
    let request = eventually("the last state is sent", async || {
        let request = sent(&watched.scene.server).pop()?;
        let files = watched.files(&request).ok()?;
        files.iter().any(|(name, text)| name == "a" && text == "by then").then_some(request)
    });
    let request = request.await;
    watched.seal(&request).await?;
    watched.plugin.error_line("it goes on").await?;

    // Its project is gone.
    watched.scene.server.remove("YoiProject", "p");
    let (code, _) = watched.plugin.end().await?;
    ensure!(code == Some(3), "{code:?}");
    Ok(())
}

#[tokio::test]
async fn w46_what_another_machine_has_sent_is_said_and_stays_until_something_changes_here() -> Result<()> {
    let (desktop, later) = ("d0".repeat(20), "d1".repeat(20));
    let before = json!({ "sync": { "last": tree("desktop", &desktop), "machines": [{ "machine": "desktop", "commit": desktop }] } });
    let mut watched = Watched::start(&before).await?;
    let clone = watched.scene.clone();
    watched.plugin.error_line("it takes the place of desktop as it was at 2026-01-01T10:00:00Z, which jane has synced").await?;
    let first = watched.next().await;
    watched.seal(&first).await?;

    let machines = json!([{ "machine": "laptop", "commit": commit(&first) }, { "machine": "desktop", "commit": later }]);
    let theirs =
        json!({ "generation": { "name": "g", "revision": later }, "sync": { "last": tree("desktop", &later), "machines": machines } });
    put_project(&watched.scene.server, &takes_trees(), &theirs);
    watched.plugin.error_line("another state has come, and counts until something changes here: desktop as it was at").await?;
    // It looks at the tree, which is older than theirs: nothing is sent. A look begins with the project, and rests with a watch of it.
    let looks = |watched: &Watched| {
        let requests = watched.scene.server.requests();
        let is_get = |request: &&Request| request.method == "GET" && request.path.ends_with("/yoiprojects/p");
        let ends = |at: &usize| requests.iter().skip(*at).any(|request| request.path.ends_with("/yoiprojects"));
        let begun: Vec<usize> = (0..requests.len()).filter(|at| requests.get(*at).as_ref().is_some_and(is_get)).collect();
        begun.iter().filter(|at| ends(at)).count()
    };
    let looked = looks(&watched);
    write(&clone, "a", "from the base\n")?;
    eventually("it has looked at the tree, and rests", async || (looks(&watched) > looked).then_some(())).await;
    ensure!(sent(&watched.scene.server).len() == 1, "what was sent is older than what desktop has sent");
    write(&clone, "a", "newer\n")?;
    let second = watched.next().await;
    ensure!(second.query.get("previous") == Some(&commit(&first)), "{second:?}");
    ensure!(watched.files(&second)?.contains(&("a".to_owned(), "newer".to_owned())), "what was sent is not what is there");
    watched.seal(&second).await?;
    Ok(())
}
