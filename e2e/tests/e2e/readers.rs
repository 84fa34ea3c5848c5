//! Agents that have stopped: people read them, and nothing of them changes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::Body;

const SCRIPT: &str = r#"
rules:
- name: work
  when: { lastUserContains: work }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "echo committed > kept.txt && git add kept.txt && git commit -qm 'a commit of the agent'" } }
    - { tool: Write, args: { path: open.txt, content: "not committed\n" } }
  - text: All done.
"#;

/// Every file of the agent's session volume with its content's checksum, size, time, inode and mode.
async fn session(ns: &TestNamespace, look: &str) -> Result<String> {
    let security = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let command = "cd /session && find . -type f | sort | xargs sha256sum && find . | sort | xargs stat -c '%n %s %Y %i %a %u'";
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": look }, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "look", "image": "$image(busybox)", "imagePullPolicy": "Never", "securityContext": security,
            "command": ["sh", "-c", command], "volumeMounts": [{ "name": "session", "mountPath": "/session", "readOnly": true }] }],
        "volumes": [{ "name": "session", "persistentVolumeClaim": { "claimName": "a-session", "readOnly": true } }] } });
    ns.apply(&pod.to_string()).await?;
    let phase = ns.wait_for(look, "ended", |pod: Option<&Pod>| {
        let phase = pod?.status.as_ref()?.phase.clone()?;
        ["Succeeded", "Failed"].contains(&phase.as_str()).then_some(phase)
    });
    let phase = phase.await?;
    let files = ns.kubectl(&["logs", look]).await?.exit_ok()?.out;
    ns.delete::<Pod>(look).await?;
    ensure!(phase == "Succeeded" && files.contains(".jsonl"), "{phase}: {files}");
    Ok(files)
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn a_finished_agent_is_read_without_a_trace_and_its_reader_goes_by_itself() -> Result<()> {
    let ns = TestNamespace::create("reader").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    // Not with --wait, which reads the answer, on a slow machine by a reader.
    ns.yoi(&["run", "a", "-p", "p", "-t", "work", "--stop-when-done"]).await?.exit_ok()?;
    ns.wait_task_complete("a").await?;
    let at_rest = |a: Option<&YoiPod>| {
        let status = a?.status.as_ref()?;
        (status.pod.is_none() && status.live.is_none()).then_some(())
    };
    ns.wait_for("a", "without a Pod and not live", at_rest).await?;
    let before: YoiPod = ns.get("a").await?;
    let files = session(&ns, "before").await?;

    let begun = Instant::now();
    let log = ns.yoi(&["log", "a"]).await?.exit_ok()?;
    ensure!(log.out.contains("→ Shell") && log.out.contains("All done."), "{log:?}");
    ensure!(log.err.contains("starting a reader of a's session"), "it does not say what it waits for: {log:?}");
    let last = ns.yoi(&["log", "a", "--tail", "1", "-o", "json"]).await?.exit_ok()?.out;
    ensure!(last.lines().count() == 1 && serde_json::from_str::<Value>(&last)?["token"].is_string(), "{last}");
    let diff = ns.yoi(&["diff", "a"]).await?.exit_ok()?.out;
    ensure!(diff.contains("+committed") && diff.contains("+not committed"), "{diff}");
    let diff: Value = serde_json::from_str(&ns.yoi(&["diff", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    ensure!(diff["paths"] == json!([{ "path": "kept.txt", "kind": "added" }, { "path": "open.txt", "kind": "added" }]), "{diff}");
    let patch = ns.yoi(&["patch", "a"]).await?.exit_ok()?.out;
    ensure!(patch.contains("Subject: [PATCH] a commit of the agent"), "{patch}");
    let top: Value = serde_json::from_str(&ns.yoi(&["top", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    let answers = ns.log("a").await?;
    let used = answers.iter().filter_map(|line| if let Body::Assistant(answer) = &line.entry.body { answer.usage } else { None });
    let used: u64 = used.map(|usage| usage.input_tokens).sum();
    let usage = &top["items"][0]["usage"];
    ensure!(usage["activity"] == "Stopped" && used > 0 && usage["total"]["inputTokens"] == used, "{used} in: {top}");
    // A followed log ends: nothing will be added to it.
    let asked = Instant::now();
    ns.yoi(&["log", "a", "-f"]).await?.exit_ok()?;
    eprintln!("first answer to last: {:?}", begun.elapsed());

    let reader: Pod = ns.get("a-reader").await?;
    ensure!(names(&ns.list::<Pod>("yoi.dev/yoipod=a").await?) == ["a-reader"], "the agent itself was started");
    let mounts = reader.spec.as_ref().map(|spec| spec.containers[0].volume_mounts.clone()).unwrap_or_default().unwrap_or_default();
    let writable: Vec<_> = mounts.iter().filter(|mount| mount.read_only != Some(true)).map(|mount| mount.mount_path.as_str()).collect();
    ensure!(writable == ["/tmp", "/home/agent"], "{writable:?}");
    for path in ["/session/lock", "/workspace/kept.txt"] {
        let written = ns.kubectl(&["exec", "a-reader", "--", "sh", "-c", &format!("echo x >> {path}")]).await?;
        ensure!(written.code != 0 && written.err.contains("Read-only file system"), "{path}: {written:?}");
    }
    // A message is still refused, and says how the agent goes on.
    let refused = ns.yoi(&["send", "a", "more work"]).await?;
    ensure!(refused.code == 5 && refused.err.contains("completion Stop"), "{refused:?}");
    let now: YoiPod = ns.get("a").await?;
    let of = |yoipod: &YoiPod| {
        yoipod.status.as_ref().map(|s| (s.run_generation, s.session.clone(), s.task.clone(), s.report.clone(), s.live.clone()))
    };
    ensure!(of(&now) == of(&before), "{:?} was {:?}", of(&now), of(&before));
    ensure!(session(&ns, "after").await? == files, "the session volume is another one");

    // A wait that lasts until its end has another exit code.
    let start = ns.yoi(&["start", "a", "--wait", "--timeout", "100s"]).await?;
    ensure!(start.code == 1 && start.err.contains("it has done its task"), "{start:?}");
    let gone = poll_until(Duration::from_secs(180), "the reader gone", async || {
        Ok(ns.list::<Pod>("yoi.dev/yoipod=a").await?.is_empty().then_some(()))
    });
    gone.await?;
    ensure!(asked.elapsed() > Duration::from_secs(50), "it went after {:?}", asked.elapsed());

    // What `start` advises works: the agent goes on in its session and its tree.
    let (_, advice) = start.err.split_once("kubectl patch yoipod a ").unwrap_or_default();
    let patch = advice.split_once("-p '").and_then(|(_, rest)| Some(rest.split_once('\'')?.0)).unwrap_or_default();
    ns.merge_patch::<YoiPod>("a", &serde_json::from_str(patch)?).await?;
    ns.wait_agent_ready("a").await?;
    ns.yoi(&["send", "a", "hello"]).await?.exit_ok()?;
    ns.remove().await
}

#[tokio::test]
async fn start_ends_the_reader_of_a_stopped_agent_first() -> Result<()> {
    let ns = TestNamespace::create("reader-start").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    ns.yoi(&["log", "a"]).await?.exit_ok()?;
    ensure!(names(&ns.list::<Pod>("yoi.dev/yoipod=a").await?) == ["a-reader"]);
    ns.yoi(&["start", "a", "--wait", "--timeout", "100s"]).await?.exit_ok()?;
    ensure!(names(&ns.list::<Pod>("yoi.dev/yoipod=a").await?) == ["a-2"], "the reader is still there");
    // An agent is deleted together with its reader.
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    ns.yoi(&["diff", "a", "--name-only"]).await?.exit_ok()?;
    ns.yoi(&["rm", "a", "--force", "--purge", "--timeout", "100s"]).await?.exit_ok()?;
    ns.wait_gone::<Pod>("a-reader").await?;
    ns.remove().await
}

#[tokio::test]
async fn h3_f16_the_session_of_an_agent_that_is_gone_is_read_by_its_claim_and_nothing_of_it_changes() -> Result<()> {
    let ns = TestNamespace::create("left").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "work", "session": { "retain": "Retain" } })).await?;
    ns.wait_task_complete("a").await?;
    ns.delete::<YoiPod>("a").await?;
    ns.wait_gone::<YoiPod>("a").await?;
    let before = session(&ns, "before").await?;
    let listed = ns.yoi(&["session", "ls"]).await?.exit_ok()?.out;
    ensure!(listed.lines().any(|line| line.starts_with("a-session") && line.contains("nobody")), "{listed}");

    let log = ns.yoi(&["session", "log", "a-session"]).await?.exit_ok()?;
    ensure!(log.out.contains("All done.") && log.err.contains("is deleted afterwards"), "{log:?}");
    let file = tempfile::tempdir()?;
    let path = file.path().join("a.tar").display().to_string();
    ns.yoi(&["session", "export", "a-session", "-f", &path]).await?.exit_ok()?;
    let archive = std::fs::read(&path)?;
    ensure!(archive.windows(9).any(|bytes| bytes == b"All done."), "the archive has {} bytes and not the agent's words", archive.len());
    for reader in ns.list::<YoiPod>("").await? {
        ns.wait_gone::<YoiPod>(&reader.name_any()).await?;
    }
    ensure!(session(&ns, "after").await? == before, "the session has changed");
    ns.remove().await
}
