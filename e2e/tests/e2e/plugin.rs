//! `kubectl yoi` as people and programs use it.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_e2e::poll_seen;
use yoi_e2e::program;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

const SCRIPT: &str = "
rules:
- name: good
  when: { lastUserContains: well }
  steps:
  - toolCalls: [{ tool: Write, args: { path: made.txt, content: \"by the agent\\n\" } }]
  - text: Done well.
- name: bad
  when: { lastUserContains: badly }
  steps:
  - text: never seen
    fault: { status: 400, times: 1000, body: '{\"error\":{\"message\":\"a fault of the script\",\"param\":\"messages[0].content\"}}' }
";

/// Nodes differ in their file systems, and so do trees by the node that they are on.
fn names_a_provider(table: &str) -> bool {
    ["Btrfs", "Overlay"].iter().any(|provider| table.contains(provider))
}

#[tokio::test]
async fn run_wait_ls_log_and_diff_print_for_people_and_for_programs() -> Result<()> {
    let ns = TestNamespace::create("plugin").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    let done = ns.yoi(&["run", "a", "-p", "p", "-t", "do it well", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    ensure!(done.out.starts_with("Done well.\ntask of a done\n"), "{}", done.out);

    let table = ns.yoi(&["ls"]).await?.exit_ok()?.out;
    for word in ["AGENT", "SESSION", "WORKSPACE", "a", "p", "True", "Succeeded"] {
        ensure!(table.contains(word), "`{word}` is not in\n{table}");
    }
    ensure!(names_a_provider(&table), "{table}");
    let listed: Value = serde_json::from_str(&ns.yoi(&["ls", "-o", "json"]).await?.exit_ok()?.out)?;
    ensure!(listed["kind"] == "List" && listed["items"][0]["metadata"]["name"] == "a", "{listed}");
    let names = ns.yoi(&["ls", "agents", "-o", "name"]).await?.exit_ok()?.out;
    ensure!(names == "yoipod.yoi.dev/a\n", "{names}");
    let names = ns.yoi(&["ls", "sessions", "-o", "name"]).await?.exit_ok()?.out;
    ensure!(names == "persistentvolumeclaim/a-session\n", "{names}");
    ns.kubectl(&["get", names.trim()]).await?.exit_ok()?;

    let log = ns.yoi(&["log", "a"]).await?.exit_ok()?.out;
    for word in ["do it well", "→ Write", "Done well.", "finished"] {
        ensure!(log.contains(word), "`{word}` is not in\n{log}");
    }
    let last = ns.yoi(&["log", "a", "--tail", "1", "-o", "json"]).await?.exit_ok()?.out;
    ensure!(last.lines().count() == 1, "{last}");
    let token: Value = serde_json::from_str(last.trim())?;
    let after = ns.yoi(&["log", "a", "--after", token["token"].as_str().unwrap_or_default(), "-o", "json"]).await?.exit_ok()?.out;
    ensure!(after.trim().is_empty(), "there is something after the end: {after}");

    let diff = ns.yoi(&["diff", "a"]).await?.exit_ok()?.out;
    ensure!(diff.contains("+by the agent") && diff.contains("made.txt"), "{diff}");
    let diff: Value = serde_json::from_str(&ns.yoi(&["diff", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    ensure!(diff["paths"] == json!([{ "path": "made.txt", "kind": "added" }]), "{diff}");

    let failed = ns.yoi(&["run", "b", "-p", "p", "-t", "do it badly", "--wait", "--timeout", "3m"]).await?;
    ensure!(failed.code == 6 && failed.err.contains("kubectl yoi log b"), "{failed:?}");
    ns.remove().await
}

#[tokio::test]
async fn each_shell_gets_a_completion_script() -> Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let script = program::run(&std::env::var("YOI_KUBECTL_YOI")?, &["completion", shell], &[], None).await?.exit_ok()?.out;
        ensure!(script.contains("workspace"), "{shell}");
    }
    Ok(())
}

/// The lines of the README about one agent.
#[tokio::test]
async fn an_agent_is_run_stopped_and_purged_twice_under_one_name() -> Result<()> {
    let ns = TestNamespace::create("twice").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("bob", "p", json!({})).await?;
    ns.wait_agent_ready("bob").await?;
    for round in 0..2 {
        ns.yoi(&["run", "dave", "-p", "p", "-t", "do it well", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
        let joined = ns.yoi(&["peer", "bob", "dave"]).await?.exit_ok()?;
        ensure!(joined.out.contains("see each other"), "{round}: {joined:?}");
        ns.yoi(&["restart", "dave", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
        let answer = ns.yoi(&["send", "dave", "do it well again", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
        ensure!(answer.out.contains("Done well."), "{round}: {answer:?}");
        ns.yoi(&["stop", "dave", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
        let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = ns.get("dave-session").await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
        ns.yoi(&["rm", "dave", "--force", "--purge", "--timeout", "100s"]).await?.exit_ok()?;
        let volumes: kube::Api<k8s_openapi::api::core::v1::PersistentVolume> = kube::Api::all(ns.client.clone());
        ensure!(!volume.is_empty() && volumes.get_opt(&volume).await?.is_none(), "volume {volume} is left");
        // Its workspace may be there for a while, and the next agent of that name waits for its end.
    }
    // Without --purge the session stays, and `run` says how to go on.
    ns.yoi(&["run", "dave", "-p", "p", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    ns.yoi(&["stop", "dave", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    ns.yoi(&["rm", "dave", "--force"]).await?.exit_ok()?;
    let refused = ns.yoi(&["run", "dave", "-p", "p"]).await?;
    ensure!(
        refused.code == 1 && refused.err.contains("--claim dave-session") && refused.err.contains("rm dave --purge --force"),
        "{refused:?}"
    );
    ns.remove().await
}

#[tokio::test]
async fn kubectl_get_and_describe_show_conditions_and_events() -> Result<()> {
    let ns = TestNamespace::create("story").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.yoi(&["run", "a", "-p", "p", "-t", "do it well", "--wait", "--timeout", "3m"]).await?.exit_ok()?;
    let kinds = "yoipods,yoipeers,agentworkspaces,yoiprojects,workspacenodes";
    let table = ns.kubectl(&["get", kinds]).await?.exit_ok()?.out;
    for word in ["READY", "REASON", "PROVIDER", "FREE", "GENERATION", "AllMet", "Succeeded"] {
        ensure!(table.contains(word), "`{word}` is not in\n{table}");
    }
    ensure!(names_a_provider(&table), "{table}");
    // Events are written after the status of their objects.
    ns.wait_agent_ready("a").await?;
    poll_seen(TIMEOUT, "all Events are described", async || {
        let text = ns.kubectl(&["describe", "yoipod", "a"]).await?.exit_ok()?.out;
        let events = text.split("Events:").nth(1).unwrap_or_default();
        let all = ["WorkspaceReady", "Replayed", "TaskSucceeded", "Ready", "yoi-operator"].iter().all(|word| events.contains(word));
        Ok(if all { Ok(()) } else { Err(text) })
    })
    .await?;
    let text = ns.kubectl(&["describe", "agentworkspace", "a"]).await?.exit_ok()?.out;
    let events = text.split("Events:").nth(1).unwrap_or_default();
    ensure!(events.contains("yoi-agent-shim"), "no Event of the shim in\n{text}");
    ns.remove().await
}
