//! What people may do: the API server's RBAC decides for every verb.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

const SCRIPT: &str = "
rules:
- steps:
  - text: I heard a person.
";

/// A binding is known everywhere a moment after it was made, and until then its account is refused.
async fn once_bound(ns: &TestNamespace, kubeconfig: &Path, words: &[&str]) -> Result<()> {
    let allowed = async || {
        let answer = ns.yoi_as(kubeconfig, words).await?;
        if answer.code == 4 { Ok(None) } else { answer.exit_ok().map(Some) }
    };
    poll_until(TIMEOUT, &format!("{words:?} is allowed"), allowed).await.map(drop)
}

#[tokio::test]
async fn yoi_view_may_read_and_not_send_and_yoi_edit_may_send() -> Result<()> {
    let ns = TestNamespace::create("access").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let (nobody, viewer, editor) = (
        ns.kubeconfig_for("nobody", None).await?,
        ns.kubeconfig_for("viewer", Some("view")).await?,
        ns.kubeconfig_for("editor", Some("edit")).await?,
    );

    let none = ns.yoi_as(&nobody, &["log", "a"]).await?;
    ensure!(none.code == 4, "somebody without a role reads the log: {none:?}");
    once_bound(&ns, &viewer, &["log", "a"]).await?;
    ns.yoi_as(&viewer, &["diff", "a"]).await?.exit_ok()?;
    let refused = ns.yoi_as(&viewer, &["send", "a", "let me in"]).await?;
    ensure!(refused.code == 4 && refused.err.contains("yoi-edit"), "{refused:?}");
    ensure!(ns.yoi_as(&viewer, &["stop", "a"]).await?.code == 4, "a viewer stopped an agent");
    once_bound(&ns, &editor, &["send", "a", "hello there"]).await?;

    let user = format!("system:serviceaccount:{}:editor", ns.name);
    let texts = ns
        .wait_log("a", "the editor's words", |log| {
            let inputs: Vec<_> = log
                .iter()
                .filter_map(|l| match &l.entry.body {
                    yoi_wire::entry::Body::Input(i) => Some((i.user.clone(), i.text.clone())),
                    _ => None,
                })
                .collect();
            (!inputs.is_empty()).then_some(inputs)
        })
        .await?;
    ensure!(texts == [(Some(user), "hello there".to_owned())], "{texts:?}");
    for file in [nobody, viewer, editor] {
        std::fs::remove_file(file)?;
    }
    ns.remove().await
}

/// Checks that no object of the namespace but the model's script contains the secret word.
async fn check_nothing_leaked(ns: &TestNamespace) -> Result<()> {
    let kinds = "yoipods,yoipeers,agentworkspaces,yoiprojects,configmaps,pods,events,persistentvolumeclaims";
    let objects = ns.kubectl(&["get", kinds, "-o", "yaml"]).await?.exit_ok()?.out;
    let without_script = objects.replace("- text: the-secret-word-of-the-model", "");
    let line = without_script.lines().find(|line| line.contains("the-secret-word"));
    ensure!(line.is_none(), "an object holds what was said: {line:?}");
    Ok(())
}

#[tokio::test]
async fn f17_what_an_agent_says_is_in_no_object_event_or_log() -> Result<()> {
    let ns = TestNamespace::create("silence").await?;
    ns.create_model("rules:\n- steps:\n  - text: the-secret-word-of-the-model\n").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "say it" })).await?;
    // The runtime's report about the run is in the object now.
    ns.wait_task_complete("a").await?;
    check_nothing_leaked(&ns).await?;
    ns.yoi(&["send", "a", "the-secret-word-of-the-person"]).await?.exit_ok()?;
    let ended = |l: &&yoi_wire::people::LogLine| matches!(&l.entry.body, yoi_wire::entry::Body::RunEnded(_));
    ns.wait_log("a", "a second answer", |log| (log.iter().filter(ended).count() == 2).then_some(())).await?;
    check_nothing_leaked(&ns).await?;
    let pod: YoiPod = ns.get("a").await?;
    let name = pod.status.and_then(|s| s.pod).map(|p| p.name).unwrap_or_default();
    // An agent may have answered before the kubelet reports its container as running, and until then the kubelet serves no log.
    ns.wait_pod_ready(&name).await?;
    let logs = ns.kubectl(&["logs", &name]).await?.exit_ok()?.out;
    ensure!(!logs.contains("the-secret-word"), "the container's log holds what was said");
    for ours in ["yoi-system", "yoi-node"] {
        // kubectl uses the last `-n`.
        let pods = ns.kubectl(&["-n", ours, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]).await?.exit_ok()?.out;
        let mut read = 0;
        for pod in pods.split_whitespace() {
            let log = ns.kubectl(&["-n", ours, "logs", pod, "--all-containers", "--since=10m"]).await?;
            ensure!(!log.out.contains("the-secret-word"), "the log of {ours}/{pod} holds what was said");
            read += i32::from(log.code == 0);
        }
        ensure!(read > 0, "no log to read in {ours}: {pods}");
    }
    ns.remove().await
}
