//! `kubectl yoi` as people and programs use it.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_e2e::program;
use yoi_e2e::test_namespace::TestNamespace;

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
    fault: { status: 400, times: 1000 }
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
    ensure!(done.out.contains("task of a done"), "{}", done.out);

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
    ns.remove().await
}

#[tokio::test]
async fn each_kind_of_failure_has_its_exit_code() -> Result<()> {
    let ns = TestNamespace::create("codes").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ensure!(ns.yoi(&["log", "absent"]).await?.code == 3, "a missing agent");
    ensure!(ns.yoi(&["run", "a", "-p", "absent"]).await?.code == 3, "a missing project");
    ensure!(ns.yoi(&["frobnicate"]).await?.code == 2, "a wrong command line");
    let failed = ns.yoi(&["run", "a", "-p", "p", "-t", "do it badly", "--wait", "--timeout", "3m"]).await?;
    ensure!(failed.code == 6 && failed.err.contains("kubectl yoi log a"), "{failed:?}");
    let twice = ns.yoi(&["run", "a", "-p", "p"]).await?;
    ensure!(twice.code == 1 && twice.err.contains("exists already"), "{twice:?}");
    let refused = ns.yoi(&["rm", "a", "--force"]).await?;
    ensure!(refused.code == 1 && refused.err.contains("kubectl yoi stop"), "{refused:?}");
    let missing = ns.yoi(&["workspace", "create", "w", "--fork", "absent", "--claim", "--immediate", "--wait", "--timeout", "20s"]).await?;
    ensure!(missing.code == 3 && missing.err.contains("/absent does not exist"), "{missing:?}");
    for shell in ["bash", "zsh", "fish"] {
        // Run without `-n`, which `completion` refuses because it would have no effect.
        let script = program::run(&std::env::var("YOI_KUBECTL_YOI")?, &["completion", shell], &[], None).await?.exit_ok()?.out;
        ensure!(script.contains("workspace"), "{shell}");
    }
    ns.remove().await
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
async fn a_wait_for_a_missing_secret_or_a_wrong_ref_ends_early() -> Result<()> {
    let ns = TestNamespace::create("early").await?;
    ns.create_empty_project("p").await?;
    let model = ["--model-provider", "openai", "--model", "m", "--model-url", "http://127.0.0.1:1/v1/", "--model-secret", "absent/key"];
    let words = [&["run", "a", "-p", "p", "-t", "do it", "--wait", "--timeout", "100s"][..], &model].concat();
    let ended = ns.yoi(&words).await?;
    ensure!(ended.code == 1 && ended.err.contains("SecretMissing") && ended.err.contains("create secret generic absent"), "{ended:?}");
    ns.create_git_server().await?;
    let url = format!("git://git.{}.svc:9418/project.git", ns.name);
    let words = ["workspace", "create", "w", "--git", &url, "--ref", "absent", "--claim", "--immediate", "--wait", "--timeout", "110s"];
    let ended = ns.yoi(&words).await?;
    ensure!(ended.code == 1 && ended.err.contains("PopulateFailed"), "{ended:?}");
    let refused = ns.try_apply(
        r#"{ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": { "name": "g" }, "spec": { "source": { "git": { "url": "git@h:team/p" } } } }"#,
    );
    let refused = refused.await?;
    ensure!(refused.code != 0 && refused.err.contains("a Secret with the keys ssh-privatekey and known_hosts"), "{refused:?}");
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
    let start = std::time::Instant::now();
    loop {
        let text = ns.kubectl(&["describe", "yoipod", "a"]).await?.exit_ok()?.out;
        let events = text.split("Events:").nth(1).unwrap_or_default();
        let all = ["WorkspaceReady", "Replayed", "TaskSucceeded", "Ready"].iter().all(|reason| events.contains(reason));
        if all && events.contains("yoi-operator") {
            break;
        }
        ensure!(start.elapsed() < std::time::Duration::from_secs(20), "no text in\n{text}");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    let text = ns.kubectl(&["describe", "agentworkspace", "a"]).await?.exit_ok()?.out;
    let events = text.split("Events:").nth(1).unwrap_or_default();
    ensure!(events.contains("yoi-agent-shim"), "no Event of the shim in\n{text}");
    ns.remove().await
}
