//! What agents have committed comes onto branches of their project's repository.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_crds::condition::find;
use yoi_e2e::test_namespace::TestNamespace;

const SCRIPT: &str = r#"
rules:
- name: more
  when: { lastUserContains: more }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "echo more >> kept.txt && git add kept.txt && git commit -qm 'more of the agent'" } }
  - text: More is done.
- name: work
  when: { lastUserContains: work }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "echo committed > kept.txt && git add kept.txt && git commit -qm 'a commit of the agent'" } }
    - { tool: Write, args: { path: open.txt, content: "not committed\n" } }
  - text: All done.
"#;

/// What git says in the server's repository.
async fn on_server(ns: &TestNamespace, args: &[&str]) -> Result<String> {
    let git = [
        "exec",
        "git",
        "-c",
        "git",
        "--",
        "git",
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=o",
        "-c",
        "user.email=o@o",
        "-C",
        "/srv/git/project.git",
    ];
    Ok(ns.kubectl(&[&git[..], args].concat()).await?.exit_ok()?.out.trim().to_owned())
}

async fn branch(ns: &TestNamespace, name: &str) -> Result<String> {
    on_server(ns, &["for-each-ref", "--format=%(objectname)", &format!("refs/heads/{name}")]).await
}

async fn pushed(ns: &TestNamespace, words: &[&str]) -> Result<Value> {
    let done = ns.yoi(&[&["push"], words, &["-o", "json"]].concat()).await?.exit_ok()?;
    serde_json::from_str(&done.out).with_context(|| done.out.clone())
}

async fn head_of_tree(ns: &TestNamespace, agent: &YoiPod) -> Result<String> {
    let pod = agent.status.as_ref().and_then(|status| status.pod.as_ref()).context("no Pod")?.name.clone();
    let head = ns.kubectl(&["exec", &pod, "--", "git", "-C", yoi_e2e::fixtures::TREE_PATH, "rev-parse", "HEAD"]).await?.exit_ok()?;
    Ok(head.out.trim().to_owned())
}

#[tokio::test]
async fn an_agents_commits_are_pushed_while_it_runs_when_it_has_stopped_and_never_over_anothers() -> Result<()> {
    let ns = TestNamespace::create("push").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    let main = branch(&ns, "main").await?;
    ns.yoi(&["run", "a", "-p", "p", "-t", "work", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    let commit = head_of_tree(&ns, &ns.get("a").await?).await?;

    let first = ns.yoi(&["push", "a"]).await?.exit_ok()?;
    ensure!(first.out.contains(&format!("branch yoi/a of git://git.{}.svc:9418/project.git is at {commit}", ns.name)), "{first:?}");
    ensure!(
        first.out.contains("1 commit since") && first.err.contains("not committed, so not on the branch: 1 path (open.txt)"),
        "{first:?}"
    );
    ensure!(branch(&ns, "yoi/a").await? == commit && branch(&ns, "main").await? == main, "another branch");
    let again = pushed(&ns, &["a"]).await?;
    ensure!(again["commit"] == json!(commit) && again["previous"] == json!(commit), "{again}");

    // Somebody moves the branch, and the agent goes on.
    on_server(
        &ns,
        &[
            "update-ref",
            "refs/heads/yoi/a",
            &on_server(&ns, &["commit-tree", "-p", &main, "-m", "another's", &format!("{main}^{{tree}}")]).await?,
        ],
    )
    .await?;
    let others = branch(&ns, "yoi/a").await?;
    ns.yoi(&["send", "a", "more", "--wait"]).await?.exit_ok()?;
    let next = head_of_tree(&ns, &ns.get("a").await?).await?;
    let moved = ns.yoi(&["push", "a"]).await?;
    ensure!(moved.code == 1 && moved.err.contains("branch yoi/a has moved"), "{moved:?}");
    ensure!(moved.err.contains(&others) && moved.err.contains(&next), "both commits: {moved:?}");
    ensure!(branch(&ns, "yoi/a").await? == others, "it was overwritten");
    ns.wait_reason::<YoiPod>("a", "Pushed", "PushFailed").await?;

    // It has stopped: its reader gives the commits out.
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    let stopped = pushed(&ns, &["a", "--branch", "review/a"]).await?;
    ensure!(stopped["commit"] == json!(next) && stopped["commits"] == json!(2), "{stopped}");
    ensure!(branch(&ns, "review/a").await? == next, "it is not there");
    let forced = pushed(&ns, &["a", &format!("--force-with-lease={others}")]).await?;
    ensure!(forced["previous"] == json!(others) && branch(&ns, "yoi/a").await? == next, "{forced}");

    // By the full name of a branch, nothing is pushed.
    let full = ns.yoi(&["push", "a", "--branch", "refs/heads/main"]).await?;
    ensure!(full.code == 2 && full.err.contains("give the name alone"), "{full:?}");
    let raw = format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{}/yoipods/a/push", ns.name);
    let body = std::env::temp_dir().join(format!("{}-push.json", ns.name));
    std::fs::write(&body, json!({ "branch": "../x" }).to_string())?;
    let raw = ns.kubectl(&["create", "--raw", &raw, "-f", &body.to_string_lossy()]).await?;
    std::fs::remove_file(body)?;
    ensure!(raw.code != 0 && raw.err.contains("`../x` is no name of a branch"), "{raw:?}");
    ensure!(branch(&ns, "main").await? == main, "main has changed");

    // Nothing is left of the Pods, and the right is edit's.
    ns.wait_gone::<Pod>("a-push").await?;
    let viewer = ns.kubeconfig_for("viewer", Some("view")).await?;
    let refused = ns.yoi_as(&viewer, &["push", "a"]).await?;
    std::fs::remove_file(viewer)?;
    ensure!(refused.code == 4, "a viewer pushes: {refused:?}");
    ns.remove().await
}

#[tokio::test]
async fn a_task_that_succeeded_pushes_by_itself_and_says_where() -> Result<()> {
    let ns = TestNamespace::create("push-stop").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    let done = ns
        .yoi(&["run", "a", "-p", "p", "-t", "work", "--stop-when-done", "--push=results/a", "--wait", "--timeout", "3m"])
        .await?
        .exit_ok()?;
    ensure!(done.out.starts_with("All done.\ntask of a done\n") && done.out.contains("branch results/a of"), "{}", done.out);
    ensure!(!branch(&ns, "results/a").await?.is_empty(), "it waited for the push");
    let agent: YoiPod = ns.get("a").await?;
    let condition = agent.status.as_ref().and_then(|status| find(&status.conditions, "Pushed").cloned()).context("no condition")?;
    ensure!(condition.message.contains("branch results/a of") && condition.message.contains("1 path is not committed"), "{condition:?}");
    let outcome = agent.status.as_ref().and_then(|status| status.push.as_ref()?.outcome.clone()).context("no outcome")?;
    ensure!(outcome.branch == "results/a" && outcome.commit == Some(branch(&ns, "results/a").await?), "{outcome:?}");
    ns.wait_gone::<Pod>("a-push").await?;
    ensure!(ns.list::<Pod>("yoi.dev/yoipod=a").await?.iter().all(|pod| !pod.name_any().ends_with("-push")), "it pushes again");

    // The commits of another agent are no continuation of the branch.
    let refused =
        ns.yoi(&["run", "c", "-p", "p", "-t", "work", "--stop-when-done", "--push=results/a", "--wait", "--timeout", "3m"]).await?;
    ensure!(refused.code == 1 && refused.err.contains("the task is done, and its push failed"), "{refused:?}");

    // A source that is no git repository is said.
    ns.create_empty_project("e").await?;
    let refused = ns.yoi(&["run", "b", "-p", "e", "-t", "work", "--stop-when-done", "--push"]).await?;
    ensure!(refused.code == 1 && refused.err.contains("is no git repository, so there is nothing to push to"), "{refused:?}");
    ns.remove().await
}
