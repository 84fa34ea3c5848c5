//! `pull`: an agent's commits on a branch of a real clone. The bundles are git's own; what the runtime says of them is scripted.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::Share;

use crate::api_server::{ApiServer, status};
use crate::generated_history::{GeneratedHistory, histories, objects_of};
use crate::plugin::{Output, Plugin, agent};

/// Runs git in this folder, and returns what it prints.
pub fn git(folder: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]).args(words).current_dir(folder);
    let done = command.output()?;
    ensure!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?.trim_end().to_owned())
}

/// The agent's repository, a person's clone of the same base, and the server.
pub struct Scene {
    pub server: ApiServer,
    pub plugin: Plugin,
    pub base: String,
}

impl Scene {
    pub async fn new() -> Result<Self> {
        let server = ApiServer::start().await?;
        let plugin = Plugin::new(&server)?;
        let agents = plugin.folder.path().join("agent");
        std::fs::create_dir(&agents)?;
        git(&agents, &["init", "-q", "-b", "main"])?;
        std::fs::write(agents.join("a"), "from the base\n")?;
        git(&agents, &["add", "."])?;
        git(&agents, &["commit", "-q", "-m", "base"])?;
        let base = git(&agents, &["rev-parse", "HEAD"])?;
        git(plugin.folder.path(), &["clone", "-q", "agent", "clone"])?;
        let mut a = agent("a", &[]);
        a["status"]["workspace"] = json!({ "name": "a" });
        let tree = |name: &str, uid: &str, spec: Value, status: Value| {
            json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name, "uid": uid },
                "spec": spec, "status": status })
        };
        let source = json!({ "source": { "project": { "name": "p" } } });
        server.put(a);
        server.put(tree("a", "tree", source.clone(), json!({ "origin": { "kind": "Base", "workspaceUID": "base" } })));
        server.put(tree("p-base", "base", source, json!({ "volume": { "revision": base } })));
        Ok(Scene { server, plugin, base })
    }

    pub fn agents(&self) -> PathBuf {
        self.plugin.folder.path().join("agent")
    }

    pub fn clone(&self) -> PathBuf {
        self.plugin.folder.path().join("clone")
    }

    fn commit(&self, text: &str) -> Result<String> {
        std::fs::write(self.agents().join("work"), text)?;
        git(&self.agents(), &["add", "."])?;
        git(&self.agents(), &["commit", "-q", "-m", text])?;
        git(&self.agents(), &["rev-parse", "HEAD"])
    }

    /// What `git bundle create` makes of these words.
    pub fn bundle(&self, words: &[&str]) -> Result<Vec<u8>> {
        let file = self.plugin.folder.path().join("made.bundle");
        git(&self.agents(), &[&["bundle", "create", "--quiet", &file.to_string_lossy()], words].concat())?;
        Ok(std::fs::read(file)?)
    }

    /// The runtime answers with this head and bundle.
    pub fn answer(&self, head: &Value, bundle: &[u8]) {
        self.server.answer_for("a", "log", 200, [head.to_string().as_bytes(), b"\n", bundle].concat());
    }

    pub fn head(&self, name: &str, commit: &str) -> Value {
        json!({ "name": name, "commit": commit, "base": self.base, "commits": 1, "uncommitted": { "count": 0 } })
    }

    /// The runtime answers with what is checked out, as it does when all is well.
    pub fn answer_honestly(&self) -> Result<String> {
        let commit = git(&self.agents(), &["rev-parse", "HEAD"])?;
        let bundle = self.bundle(&["HEAD", &format!("^{}", self.base)])?;
        self.answer(&self.head("HEAD", &commit), &bundle);
        Ok(commit)
    }

    pub async fn pull(&self, words: &[&str]) -> Result<Output> {
        self.plugin.run_in(&self.clone(), &[&["pull", "a"], words].concat()).await
    }

    /// Every ref of the clone, its work tree's state, and what is checked out.
    pub fn state(&self) -> Result<[String; 3]> {
        let clone = self.clone();
        Ok([git(&clone, &["for-each-ref"])?, git(&clone, &["status", "--porcelain", "--branch"])?, git(&clone, &["rev-parse", "HEAD"])?])
    }
}

#[tokio::test]
async fn a_pull_makes_the_branch_and_lets_it_go_on_and_touches_nothing_else() -> Result<()> {
    let scene = Scene::new().await?;
    std::fs::write(scene.clone().join("a"), "of the person\n")?;
    let before = scene.state()?;
    let first = scene.commit("one")?;
    scene.answer_honestly()?;
    let made = scene.pull(&[]).await?.expect_code(0)?;
    ensure!(made.out.starts_with("branch a is new, at ") && made.out.contains("1 commit since"), "{made:?}");
    ensure!(git(&scene.clone(), &["rev-parse", "refs/heads/a"])? == first);
    let query = scene.server.requests_for("a", "log").pop().context("no request")?.query;
    ensure!(query["bundle"] == "true" && !query.contains_key("branch"), "{query:?}");
    let again = scene.pull(&[]).await?.expect_code(0)?;
    ensure!(again.out.starts_with("branch a is at ") && again.out.contains(" already"), "{again:?}");
    // Of what is there already the bundle is not read.
    scene.answer(&scene.head("HEAD", &first), b"no bundle");
    let unread = scene.pull(&[]).await?.expect_code(0)?;
    ensure!(unread.out == again.out, "{unread:?}");
    let second = scene.commit("two")?;
    let mut head = scene.head("HEAD", &second);
    head["commits"] = json!(2);
    head["uncommitted"] = json!({ "count": 7, "paths": ["x\u{1b}[2J", "y"] });
    scene.answer(&head, &scene.bundle(&["HEAD", &format!("^{}", scene.base)])?);
    let on = scene.pull(&["-o", "json"]).await?.expect_code(0)?;
    let result = on.json()?;
    let wanted = json!({ "agent": "a", "branch": "a", "commit": second, "previous": first, "base": scene.base, "commits": 2,
        "uncommitted": { "count": 7, "cut": false, "paths": ["x\u{1b}[2J", "y"] } });
    ensure!(result == wanted, "{result}");
    ensure!(on.err.contains("not committed, so not on the branch: 7 paths") && !on.err.contains('\u{1b}'), "{on:?}");
    ensure!(git(&scene.clone(), &["rev-parse", "refs/heads/a"])? == second);
    git(&scene.clone(), &["update-ref", "-d", "refs/heads/a"])?;
    ensure!(scene.state()? == before, "{:?} is not {before:?}", scene.state()?);
    ensure!(std::fs::read_to_string(scene.clone().join("a"))? == "of the person\n");
    Ok(())
}

#[tokio::test]
async fn a_branch_that_is_checked_out_or_went_another_way_is_left_alone() -> Result<()> {
    let scene = Scene::new().await?;
    let commit = scene.commit("one")?;
    scene.answer_honestly()?;
    let out = scene.pull(&["--branch", "main"]).await?.expect_code(1)?;
    ensure!(out.err.contains("branch main is checked out in ") && out.err.contains("add `--branch BRANCH`"), "{out:?}");
    git(&scene.clone(), &["checkout", "-q", "-b", "other"])?;
    git(&scene.clone(), &["commit", "-q", "--allow-empty", "-m", "of the person"])?;
    git(&scene.clone(), &["branch", "a"])?;
    let before = scene.state()?;
    let old = before[2].clone();
    let refused = scene.pull(&[]).await?.expect_code(1)?;
    ensure!(refused.err.contains(&old) && refused.err.contains(&commit) && refused.err.contains("no ancestor"), "{refused:?}");
    ensure!(scene.state()? == before);
    scene.pull(&["--branch", "review/a"]).await?.expect_code(0)?;
    ensure!(git(&scene.clone(), &["rev-parse", "refs/heads/review/a"])? == commit);
    Ok(())
}

/// The agent may say any commit of the clone, so that more or fewer of its commits are seen.
#[tokio::test]
async fn a_pull_of_a_fork_begins_where_its_status_says_and_never_where_the_agent_says() -> Result<()> {
    let scene = Scene::new().await?;
    let commit = scene.commit("one")?;
    let mut fork = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "a", "uid": "tree" },
        "spec": { "source": { "workspace": { "name": "parent" } } },
        "status": { "origin": { "kind": "Fork", "workspaceUID": "parent", "revision": scene.base } } });
    scene.server.put(fork.clone());
    let mut head = scene.head("HEAD", &commit);
    head["base"] = json!(commit);
    scene.answer(&head, &scene.bundle(&["HEAD", &format!("^{}", scene.base)])?);
    let pulled = scene.pull(&["-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(pulled["base"] == json!(scene.base), "{pulled}");
    git(&scene.clone(), &["update-ref", "-d", "refs/heads/a"])?;
    fork["status"]["origin"]["revision"] = Value::Null;
    scene.server.put(fork);
    let before = scene.state()?;
    let refused = scene.pull(&[]).await?.expect_code(1)?;
    ensure!(refused.err.contains("no object of the cluster names the commit that its tree was made from"), "{refused:?}");
    ensure!(scene.state()? == before);
    Ok(())
}

#[tokio::test]
async fn generated_histories_arrive_object_by_object() -> Result<()> {
    let scene = Scene::new().await?;
    let mut share = Share::one_in(5);
    for seed in (0..histories(40)).filter(|_| share.takes_next()) {
        let history = GeneratedHistory::new(seed, &scene.base);
        history.import(&scene.agents());
        let name = format!("refs/heads/{}", history.branch);
        let commit = git(&scene.agents(), &["rev-parse", &name])?;
        scene.answer(&scene.head(&name, &commit), &scene.bundle(&[&name, &format!("^{}", scene.base)])?);
        let words = ["--from", &history.branch, "--branch", &history.branch];
        scene.pull(&words).await?.expect_code(0).with_context(|| format!("seed {seed}"))?;
        ensure!(git(&scene.clone(), &["rev-parse", &name])? == commit, "seed {seed}");
        ensure!(objects_of(&scene.clone(), &name) == objects_of(&scene.agents(), &name), "seed {seed}: other objects");
        let query = scene.server.requests_for("a", "log").pop().context("no request")?.query;
        ensure!(query["branch"] == history.branch, "{query:?}");
    }
    ensure!(git(&scene.clone(), &["tag"])?.is_empty(), "a tag came with a branch");
    Ok(())
}

#[tokio::test]
async fn a_hostile_bundle_is_refused_by_name_and_leaves_no_ref() -> Result<()> {
    let scene = Scene::new().await?;
    let before = scene.state()?;
    let agents = scene.agents();
    let commit = scene.commit("one")?;
    let not_base = format!("^{}", scene.base);
    let honest = scene.bundle(&["HEAD", &not_base])?;
    let renamed = |name: &str| {
        let at = honest.windows(6).position(|part| part == b" HEAD\n").context("no HEAD in the header")?;
        anyhow::Ok([&honest[..at], b" ", name.as_bytes(), b"\n", &honest[at + 6..]].concat())
    };
    git(&agents, &["checkout", "-q", "--orphan", "own"])?;
    let foreign = scene.commit("of its own")?;
    let foreign_bundle = scene.bundle(&["HEAD"])?;
    git(&agents, &["checkout", "-q", "main"])?;
    git(&agents, &["merge", "-q", "--allow-unrelated-histories", "-X", "theirs", "-m", "both", "own"])?;
    let merged = git(&agents, &["rev-parse", "HEAD"])?;
    let merged_bundle = scene.bundle(&["HEAD", &not_base])?;
    // A commit that fsck refuses: its tree has an entry `.git`.
    git(&agents, &["checkout", "-q", "-b", "bad", &commit])?;
    let script = "b=$(echo x | git hash-object -w --stdin); t=$(printf '100644 blob %s\\tc\\n' $b | git mktree); \
        t=$(printf '040000 tree %s\\t.git\\n' $t | git mktree); git commit-tree $t -p HEAD -m bad";
    let made = Command::new("sh")
        .args(["-c", script])
        .current_dir(&agents)
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@t")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@t")
        .output()?;
    let bad = String::from_utf8(made.stdout)?.trim().to_owned();
    git(&agents, &["update-ref", "refs/heads/bad", &bad])?;
    let bad_bundle = scene.bundle(&["HEAD", &not_base])?;
    let mut flipped = honest.clone();
    let middle = flipped.len() - 30;
    flipped[middle] ^= 0x40;
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (&commit, renamed("refs/heads/../x")?, "holds `refs/heads/../x`, and only `HEAD` was asked for"),
        (&commit, renamed("refs/heads/main")?, "holds `refs/heads/main`, and only `HEAD` was asked for"),
        (&commit, renamed("refs/heads/\u{1b}[2J")?, "holds `refs/heads/"),
        (&commit, scene.bundle(&["main", "own", &not_base])?, "holds `refs/heads/main`, `refs/heads/own`"),
        (&merged, honest.clone(), "committed once more"),
        (&foreign, foreign_bundle, "is not made on top of"),
        (&merged, merged_bundle, "a foreign history was merged"),
        (&bad, bad_bundle, "broken"),
        (&commit, flipped, "broken"),
        (&commit, honest[..honest.len() / 2].to_vec(), "bundle"),
        (&commit, b"{\"token\":1}\n".to_vec(), "no git bundle"),
        (&commit, Vec::new(), "no git bundle"),
    ];
    for (number, (commit, bundle, words)) in cases.into_iter().enumerate() {
        scene.answer(&scene.head("HEAD", commit), &bundle);
        let refused = scene.pull(&[]).await?.expect_code(1).with_context(|| format!("case {number}"))?;
        ensure!(refused.err.contains(words) && !refused.err.contains('\u{1b}'), "case {number}, {words}: {refused:?}");
        ensure!(scene.state()? == before, "case {number}: {:?}", scene.state()?);
    }
    // The agent may say another base: that of the objects counts.
    let mut head = scene.head("HEAD", &foreign);
    head["base"] = Value::Null;
    scene.answer(
        &head,
        &scene.bundle(&["own"]).map(|bundle| {
            let text = b" refs/heads/own\n";
            let at = bundle.windows(text.len()).position(|part| part == text).unwrap_or_default();
            [&bundle[..at], b" HEAD\n", &bundle[at + text.len()..]].concat()
        })?,
    );
    let refused = scene.pull(&[]).await?.expect_code(1)?;
    ensure!(refused.err.contains("is not made on top of"), "{refused:?}");
    scene.answer(&scene.head("HEAD", &commit), &vec![0; (256 << 20) + 1]);
    let refused = scene.pull(&[]).await?.expect_code(1)?;
    ensure!(refused.err.contains("longer than 256 MiB"), "{refused:?}");
    ensure!(scene.state()? == before);
    for name in ["../x", "refs/heads/main", "-f", "a b", "HEAD"] {
        let wrong = scene.pull(&[&format!("--branch={name}")]).await?.expect_code(2)?;
        ensure!(wrong.err.contains(&format!("`{name}` is no name of a branch")), "{wrong:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_pulled_is_said_with_the_next_step() -> Result<()> {
    let scene = Scene::new().await?;
    scene.commit("one")?;
    scene.answer_honestly()?;
    let nowhere = tempfile::tempdir()?;
    let refused = scene.plugin.run_in(nowhere.path(), &["pull", "a"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("is in no git repository") && refused.err.contains("run it in a clone"), "{refused:?}");
    git(nowhere.path(), &["init", "-q"])?;
    let refused = scene.plugin.run_in(nowhere.path(), &["pull", "a"]).await?.expect_code(1)?;
    let words = format!("this clone does not have commit {}", scene.base);
    ensure!(refused.err.contains(&words) && refused.err.contains("git fetch"), "{refused:?}");
    let mut head = scene.head("HEAD", &scene.base);
    head["commits"] = json!(0);
    scene.answer(&head, b"");
    let nothing = scene.pull(&[]).await?.expect_code(0)?;
    ensure!(nothing.out.contains("has committed nothing since the base of its tree; no branch was changed"), "{nothing:?}");
    let large = "the agent's commits are 1024 MiB, and a bundle has at most 256";
    scene.server.answer_for("a", "log", 400, status(400, "BadRequest", &format!("YoiPod ns/a: {large}")));
    let refused = scene.pull(&[]).await?.expect_code(1)?;
    ensure!(refused.err.contains(&format!("failed to read the commits of YoiPod ns/a: {large}")), "{refused:?}");
    scene.server.answer_for("a", "log", 200, "{\"token\":\"t\",\"entry\":{}}\n");
    let older = scene.pull(&[]).await?.expect_code(1)?;
    ensure!(older.err.contains("not one that this version knows") && older.err.contains("kubectl yoi version"), "{older:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_left_is_committed_first_and_a_refusal_ends_the_pull() -> Result<()> {
    let scene = Scene::new().await?;
    let commit = scene.commit("one")?;
    scene.answer_honestly()?;
    scene.server.answer_for("a", "bundle", 200, json!({ "commit": commit }).to_string());
    let done = scene.pull(&["--commit", "-m", "left", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(done["committed"] == commit && done["branch"] == "a", "{done}");
    let request = scene.server.requests_for("a", "bundle").pop().context("no request")?;
    ensure!(request.method == "POST" && request.body == json!({ "message": "left" }), "{request:?}");
    let reads = scene.server.requests_for("a", "log").len();
    let running = status(400, "BadRequest", "YoiPod ns/a: a run is under way, so nothing was committed");
    scene.server.answer_for("a", "bundle", 400, running);
    let refused = scene.pull(&["--commit", "-m", "left"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("a run is under way") && scene.server.requests_for("a", "log").len() == reads, "{refused:?}");
    scene.pull(&["--commit"]).await?.expect_code(2)?;
    scene.pull(&["-m", "left"]).await?.expect_code(2)?;
    Ok(())
}
