//! A project whose branch moves, and the commit under test.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::pod::PodRef;
use yoi_crds::source::ProviderName;
use yoi_crds::workspace::OriginKind;
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_e2e::fixtures::TREE_PATH;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::tool_output;

const SCRIPT: &str = r#"
rules:
- name: tell
  when: { lastUserContains: "tell the tree" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "git rev-parse HEAD; git status --porcelain; ls -v moved-* 2>/dev/null; git ls-files -s | sha256sum; echo packs: $(ls .git/objects/pack/*.pack | wc -l)" } }]
  - text: Told.
"#;

/// A file more on top of `main`, in the server's repository. Returns the commit.
const MOVE: &str = r#"
cd /srv/git/project.git
export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
export GIT_CONFIG_KEY_1=user.name GIT_CONFIG_VALUE_1=o GIT_CONFIG_KEY_2=user.email GIT_CONFIG_VALUE_2=o@o
file=$(echo "moved $1" | git hash-object -w --stdin)
tree=$({ git ls-tree main; printf '100644 blob %s\tmoved-%s\n' "$file" "$1"; } | git mktree)
commit=$(git commit-tree -p main -m "moved $1" "$tree")
git update-ref refs/heads/main "$commit"
echo "$commit"
"#;

async fn moved(ns: &TestNamespace, round: usize) -> Result<String> {
    let shell = ["exec", "git", "-c", "git", "--", "sh", "-euc", MOVE, "sh", &round.to_string()];
    Ok(ns.kubectl(&shell).await?.exit_ok()?.out.trim().to_owned())
}

async fn revision(ns: &TestNamespace) -> Result<String> {
    let status = ns.get::<YoiProject>("p").await?.status.unwrap_or_default();
    status.generation.and_then(|generation| generation.revision).context("the project says no revision")
}

/// Where snapshots are made, the base of the last commit began from a former one, and was not fetched anew: it holds a pack of each refresh.
async fn by_increment(ns: &TestNamespace, agent: &str, commit: &str, seen: &str) -> Result<()> {
    let trees = ns.list::<AgentWorkspace>("").await?;
    let origin = |tree: &AgentWorkspace| tree.status.as_ref().and_then(|status| status.origin.clone());
    let of_commit = |tree: &&AgentWorkspace| tree.spec.base.as_ref().is_some_and(|base| base.revision.as_deref() == Some(commit));
    let is_snapshot = |tree: &&AgentWorkspace| {
        let made_by = tree.status.as_ref().and_then(|status| Some(status.provider.as_ref()?.selected));
        matches!(made_by, Some(ProviderName::Zfs | ProviderName::Btrfs))
    };
    let began = |tree: &AgentWorkspace| origin(tree).is_some_and(|origin| origin.kind == OriginKind::Base && origin.revision.is_some());
    let bases: Vec<&AgentWorkspace> = trees.iter().filter(of_commit).filter(is_snapshot).collect();
    if bases.is_empty() {
        return Ok(());
    }
    ensure!(bases.iter().any(|base| began(base)), "no base began from the one before it: {bases:?}");
    let tree = trees.iter().find(|tree| tree.metadata.name.as_deref() == Some(agent)).and_then(origin);
    let uid = tree.and_then(|origin| origin.workspace_uid).context("the agent's tree has no base")?;
    // Its node may have got a base only now, without a former one.
    if bases.iter().any(|base| base.metadata.uid.as_ref() == Some(&uid) && began(base)) {
        ensure!(!seen.lines().any(|line| line == "packs: 1"), "the source was fetched anew: {seen}");
    }
    Ok(())
}

/// `YOI_REFRESHES` asks for more.
fn rounds() -> Result<usize> {
    std::env::var("YOI_REFRESHES").map_or(Ok(first_rounds()), |count| count.parse().context("YOI_REFRESHES is no number"))
}

/// After so many rounds, and after every tenth, there is an agent whose tree is of that commit.
fn first_rounds() -> usize {
    if yoi_e2e::thorough() { 3 } else { 1 }
}

/// All files of the tree with modes, owners and links, those of git among them. What tells git which files are unchanged is its own business.
const HASH: &str = r#"cd "$1"; tar --sort=name --mtime=@0 --numeric-owner --exclude=./.git/index -c . | sha256sum"#;

/// The files with modes, owners and links, and of git all that it says of them: packs differ from clone to clone.
const CONTENT: &str = r#"
cd "$1"
tar --sort=name --mtime=@0 --numeric-owner --exclude=./.git -c . | sha256sum
git rev-parse HEAD; git symbolic-ref HEAD; git for-each-ref
git rev-list --all --objects | sort | sha256sum
git cat-file --batch-all-objects --batch-check | sort | sha256sum
git ls-files --stage; git status --porcelain --ignored
git fsck --full --strict
"#;

/// What the script prints of a new clone of the server's repository.
async fn of_fresh_clone(ns: &TestNamespace, script: &str) -> Result<String> {
    let fresh = "rm -rf /srv/git/fresh; git clone -q file:///srv/git/project.git /srv/git/fresh";
    let shell =
        ["exec", "git", "-c", "git", "--", "bash", "-euo", "pipefail", "-c", &format!("{fresh}; {script}"), "bash", "/srv/git/fresh"];
    Ok(ns.kubectl(&shell).await?.exit_ok()?.out)
}

/// An agent that runs on while its project's branch moves.
struct RunningAgent {
    name: String,
    /// Name and UID.
    pod: PodRef,
    hash: String,
}

impl RunningAgent {
    /// Creates an agent with a tree of the project's commit as it is now. Returns it, and what it saw of the tree.
    async fn create(ns: &TestNamespace, name: &str) -> Result<(Self, String)> {
        ns.create_agent(name, "p", json!({ "task": "tell the tree" })).await?;
        ns.wait_task_complete(name).await?;
        let mut agent = RunningAgent { name: name.to_owned(), pod: pod_of(ns, name).await?, hash: String::new() };
        let (content, fresh) = (agent.run(ns, CONTENT).await?, of_fresh_clone(ns, CONTENT).await?);
        ensure!(content == fresh, "the tree of {name} is no fresh clone:\n{content}\n---\n{fresh}");
        agent.hash = agent.run(ns, HASH).await?;
        Ok((agent, tool_output::last(ns, name).await?))
    }

    /// What the script prints of its tree.
    async fn run(&self, ns: &TestNamespace, script: &str) -> Result<String> {
        let shell = ["exec", &self.pod.name, "--", "bash", "-euo", "pipefail", "-c", script, "bash", TREE_PATH];
        Ok(ns.kubectl(&shell).await?.exit_ok()?.out)
    }

    /// Fails when its Pod is another one, or its tree has changed.
    async fn expect_unchanged(&self, ns: &TestNamespace) -> Result<()> {
        let (pod, hash) = (pod_of(ns, &self.name).await?, self.run(ns, HASH).await?);
        ensure!(pod == self.pod, "{} has not run on: {pod:?}, before {:?}", self.name, self.pod);
        ensure!(hash == self.hash, "the tree of {} has changed: {hash}, before {}", self.name, self.hash);
        Ok(())
    }
}

async fn pod_of(ns: &TestNamespace, agent: &str) -> Result<PodRef> {
    ns.get::<YoiPod>(agent).await?.status.and_then(|status| status.pod).context("no Pod")
}

#[tokio::test]
async fn a_branch_that_moved_is_in_new_trees_and_changes_none_that_is_there() -> Result<()> {
    let (ns, rounds) = (TestNamespace::create("refresh").await?, rounds()?);
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    let first = revision(&ns).await?;
    let (old, before) = RunningAgent::create(&ns, "old").await?;
    ensure!(before.starts_with(&format!("{first}\n")) && !before.contains("moved-"), "{before}");
    let mut agents = vec![old];

    let still = ns.yoi(&["refresh", "p"]).await?.exit_ok()?;
    ensure!(still.out.contains(&format!("is at commit {first}, as before")), "{still:?}");
    let (mut last, mut files) = (first.clone(), String::new());
    for round in 1..=rounds {
        let commit = moved(&ns, round).await?;
        let said = ns.yoi(&["refresh", "p"]).await?.exit_ok()?;
        ensure!(said.out.contains(&format!("has moved from commit {last} to {commit}")), "{said:?}");
        ensure!(revision(&ns).await? == commit, "trees are made from another commit");
        last = commit;
        files += &format!("moved-{round}\n");
        if round == first_rounds() || round.is_multiple_of(10) || round == rounds {
            let name = format!("new-{round}");
            let (agent, seen) = RunningAgent::create(&ns, &name).await?;
            ensure!(seen.starts_with(&format!("{last}\n{files}")), "not a clean tree of the last commit: {seen}");
            if round == first_rounds() {
                by_increment(&ns, &name, &last, &seen).await?;
            }
            agents.push(agent);
        }
        for agent in &agents {
            agent.expect_unchanged(&ns).await.with_context(|| format!("after {round} refreshes"))?;
        }
    }
    let after = tool_output::after(&ns, "old", "tell the tree").await?;
    ensure!(after == before, "the tree of a running agent has changed: {after}, before: {before}");

    // Of the generations between, nothing is left once no tree needs them: those of the agents are.
    ns.wait_for::<YoiProject, ()>("p", "settled", |project| {
        let refresh = project?.status.as_ref()?.refresh.as_deref()?;
        (refresh.revision.as_deref() == Some(&*last)).then_some(())
    })
    .await?;
    poll_until(TIMEOUT, "only the generations of the agents are left", async || {
        let bases = ns.list::<AgentWorkspace>("").await?.into_iter().filter_map(|ws| ws.spec.base);
        let generations: std::collections::BTreeSet<String> = bases.map(|base| base.generation).collect();
        Ok((generations.len() == agents.len()).then_some(()))
    })
    .await?;

    // A ref that is not there is told with its name.
    let gone = json!({ "spec": { "source": { "git": { "ref": "no-such-branch" } } } });
    ns.merge_patch::<YoiProject>("p", &gone).await?;
    let failed = ns.yoi(&["refresh", "p"]).await?;
    ensure!(failed.code != 0 && failed.err.contains("no-such-branch"), "{failed:?}");
    ns.remove().await
}

#[tokio::test]
async fn the_commit_under_test_is_the_tree_whatever_the_project_is_at() -> Result<()> {
    let ns = TestNamespace::create("revision").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    let first = revision(&ns).await?;
    let second = moved(&ns, 1).await?;
    let create = |name: &'static str, revision: String| {
        let ns = &ns;
        async move {
            let words = ["workspace", "create", name, "--project", "p", "--revision", &revision, "--claim", "--immediate", "--wait"];
            ns.yoi(&words).await
        }
    };
    // What the base holds, what it does not, and a ref as it is now.
    for (name, wanted, expected) in [("held", &first, &first), ("fetched", &second, &second), ("by-ref", &"main".to_owned(), &second)] {
        create(name, wanted.clone()).await?.exit_ok()?;
        let status = ns.get::<AgentWorkspace>(name).await?.status.context("no status")?;
        let found = status.origin.and_then(|origin| origin.revision);
        ensure!(found.as_ref() == Some(expected), "{name}: {found:?}");
    }
    let words = ["run", "a", "-p", "p", "--revision", &second, "-t", "tell the tree", "--wait", "--timeout", "3m"];
    ns.yoi(&words).await?.exit_ok()?;
    let seen = tool_output::last(&ns, "a").await?;
    ensure!(seen.starts_with(&format!("{second}\nmoved-1\n")), "{seen}");
    ensure!(revision(&ns).await? == first, "a workspace has moved its project");

    let missing = "0123456789abcdef0123456789abcdef01234567";
    ns.yoi(&["workspace", "create", "missing", "--project", "p", "--revision", missing, "--claim", "--immediate"]).await?.exit_ok()?;
    let condition = ns.wait_reason::<AgentWorkspace>("missing", "Ready", "PopulateFailed").await?;
    ensure!(condition.status == ConditionStatus::False && condition.message.contains(missing), "{condition:?}");

    ns.create_empty_project("e").await?;
    let refused: Value = json!({ "project": { "name": "e", "revision": first } });
    let workspace = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "no-git", "namespace": ns.name },
        "spec": { "source": refused } });
    ns.apply(&workspace.to_string()).await?;
    ns.wait_reason::<AgentWorkspace>("no-git", "Ready", "InvalidSpec").await?;
    // What the workspaces had of their own goes with them.
    for name in ["fetched", "by-ref", "missing"] {
        ns.delete::<AgentWorkspace>(name).await?;
    }
    ns.delete::<YoiPod>("a").await?;
    ns.wait_gone::<YoiPod>("a").await?;
    poll_until(TIMEOUT, "the bases of workspaces are gone", async || {
        let bases = ns.list::<AgentWorkspace>("").await?.into_iter().filter(|ws| ws.spec.base.is_some());
        let of_workspaces =
            bases.filter(|base| base.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "AgentWorkspace"));
        Ok((of_workspaces.count() == 0).then_some(()))
    })
    .await?;
    ns.remove().await
}
