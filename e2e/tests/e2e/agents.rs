//! One agent: its task, its tools, its session.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::{Body, InputFrom, RunOutcome, ToolOutcome};
use yoi_wire::people::LogLine;

const SCRIPT: &str = r#"
rules:
- name: work
  when: { lastUserContains: "do the work" }
  steps:
  - text: I look first.
    toolCalls:
    - { tool: Read, args: { path: README.md } }
  - expect: ["Fixture"]
    toolCalls:
    - { tool: Edit, args: { path: README.md, old: "Fixture", new: "Changed" } }
    - { tool: Write, args: { path: notes/new.md, content: "a note\n" } }
    - { tool: Shell, args: { command: "make CC=tcc && ./prog && git add -A && git commit -qm 'By the agent' && git log -1 --format=%s && pwd && id -u" } }
  - text: Done.
    expect: ["By the agent", "/workspace/tree", "1000", "fixture"]
- name: remember
  when: { lastUserContains: "write the file" }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "echo once >> counter && wc -l < counter" } }
  - text: Written.
- name: again
  when: { lastUserContains: "count again" }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "wc -l < counter" } }
  - text: Counted.
    expect: ["Written."]
- name: powers
  when: { lastUserContains: "what may you do" }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "ls /var/run/secrets/kubernetes.io 2>&1; env; touch /usr/x 2>&1; touch /yoi/x 2>&1; cat /proc/1/environ 2>&1; grep -E '^(CapEff|CapBnd|NoNewPrivs|Uid)' /proc/self/status; true" } }
    - { tool: Read, args: { path: ../../etc/passwd } }
  - text: That is all.
"#;

fn outputs(log: &[LogLine]) -> Vec<(ToolOutcome, String)> {
    log.iter()
        .filter_map(|l| match &l.entry.body {
            Body::ToolEnded(t) => Some((t.outcome, t.output.clone())),
            _ => None,
        })
        .collect()
}

fn runs(log: &[LogLine], outcome: RunOutcome) -> usize {
    log.iter().filter(|l| matches!(&l.entry.body, Body::RunEnded(r) if r.outcome == outcome)).count()
}

#[tokio::test]
async fn an_agent_reads_edits_builds_and_commits_in_both_wire_formats() -> Result<()> {
    let ns = TestNamespace::create("task").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    let anthropic =
        json!({ "provider": "Anthropic", "name": "scripted", "baseUrl": format!("http://scripted-model.{}.svc:8080/v1/", ns.name) });
    ns.create_agent("openai", "p", json!({ "task": "do the work" })).await?;
    ns.create_agent("anthropic", "p", json!({ "task": "do the work", "model": anthropic })).await?;
    for agent in ["openai", "anthropic"] {
        ns.wait_task_complete(agent).await?;
        let log = ns.log(agent).await?;
        ensure!(outputs(&log).iter().all(|(o, _)| *o == ToolOutcome::Succeeded), "{agent}: {:?}", outputs(&log));
        ensure!(log.windows(2).all(|w| w[1].entry.seq == w[0].entry.seq + 1), "{agent}: a gap in the log");
        let task = log.iter().filter(|l| matches!(&l.entry.body, Body::Input(i) if i.from == InputFrom::Task)).count();
        ensure!(task == 1, "{agent}: the task appears {task} times in the log");
        let diff = ns.yoi(&["diff", agent, "--name-only"]).await?.exit_ok()?;
        ensure!(diff.out.contains("M\tREADME.md") && diff.out.contains("A\tnotes/new.md"), "{agent}: {}", diff.out);
    }
    ns.remove().await
}

#[tokio::test]
async fn the_log_is_replayed_after_a_restart_and_the_session_goes_on() -> Result<()> {
    let ns = TestNamespace::create("replay").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "write the file" })).await?;
    ns.wait_task_complete("a").await?;
    let before = ns.log("a").await?;
    let pod: YoiPod = ns.get("a").await?;
    let first = pod.status.clone().unwrap_or_default();

    // The container is restarted: same Pod, same run generation.
    let name = first.pod.clone().map(|p| p.name).unwrap_or_default();
    let _ = ns.kubectl(&["exec", &name, "--", "/bin/sh", "-c", "kill -TERM 1"]).await?;
    ns.wait_for::<Pod, ()>(&name, "container restarted", |pod| {
        let status = pod?.status.as_ref()?.container_statuses.as_ref()?.first()?;
        (status.restart_count >= 1 && status.ready).then_some(())
    })
    .await?;
    ns.wait_log("a", "a second runtime", |log| (starts(log) == 2).then_some(())).await?;

    // The Pod is deleted: a new Pod, a higher run generation, the same session and tree.
    ns.delete::<Pod>(&name).await?;
    ns.wait_for::<YoiPod, ()>("a", "on another Pod", |pod| {
        let status = pod?.status.as_ref()?;
        let ready = yoi_crds::condition::is_true(&status.conditions, "Ready");
        (ready && status.run_generation > first.run_generation && status.pod.as_ref()?.uid != first.pod.as_ref()?.uid).then_some(())
    })
    .await?;
    let sent = ns.yoi(&["send", "a", "count again"]).await?.exit_ok()?;
    ensure!(sent.out.contains("delivered"), "{}", sent.out);
    let log = ns.wait_log("a", "the second run's end", |log| (runs(log, RunOutcome::Finished) >= 2).then(|| log.to_vec())).await?;
    ensure!(log[..before.len()] == before[..], "earlier entries changed");
    ensure!(log.windows(2).all(|w| w[1].entry.seq == w[0].entry.seq + 1), "a gap in the log");
    ensure!(starts(&log) == 3, "{} runtimes started", starts(&log));
    let counted = outputs(&log).last().map(|(_, o)| o.clone()).unwrap_or_default();
    ensure!(counted.starts_with("1\n"), "the task was run again, or the tree is another one: {counted}");
    let now: YoiPod = ns.get("a").await?;
    ensure!(now.status.as_ref().and_then(|s| s.session.as_ref()) == first.session.as_ref(), "another session");
    ns.remove().await
}

fn starts(log: &[LogLine]) -> usize {
    log.iter().filter(|l| matches!(l.entry.body, Body::RuntimeStarted(_))).count()
}

#[tokio::test]
async fn a_stopped_agent_keeps_its_session_and_tree_and_starts_again() -> Result<()> {
    let ns = TestNamespace::create("stop").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "write the file" })).await?;
    ns.wait_task_complete("a").await?;
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    ensure!(ns.list::<Pod>("yoi.dev/yoipod=a").await?.is_empty(), "a Pod is left");
    let unreachable = ns.yoi(&["send", "a", "count again"]).await?;
    ensure!(unreachable.code == 5 && unreachable.err.contains("Stopped"), "{unreachable:?}");
    ns.yoi(&["start", "a", "--wait"]).await?.exit_ok()?;
    ns.yoi(&["send", "a", "count again"]).await?.exit_ok()?;
    let log = ns.wait_log("a", "the second run's end", |log| (runs(log, RunOutcome::Finished) == 2).then(|| log.to_vec())).await?;
    ensure!(outputs(&log).last().is_some_and(|(_, o)| o.starts_with("1\n")), "the tree is another one: {:?}", outputs(&log).last());
    ns.remove().await
}

#[tokio::test]
async fn an_agent_with_completion_stop_stops_and_its_session_outlives_it() -> Result<()> {
    let ns = TestNamespace::create("completion").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "write the file", "completion": "Stop" })).await?;
    ns.wait_task_complete("a").await?;
    ns.wait_for::<YoiPod, ()>("a", "without a Pod", |pod| pod?.status.as_ref()?.pod.is_none().then_some(())).await?;
    // The file that it wrote is nowhere else.
    let report = ns.yoi(&["rm", "a"]).await?;
    ensure!(report.code == 1 && report.out.contains("would not delete") && report.err.contains("--force would do it"), "{report:?}");
    let _: YoiPod = ns.get("a").await?;
    ns.yoi(&["rm", "a", "--force"]).await?.exit_ok()?;
    ns.wait_gone::<YoiPod>("a").await?;
    ns.wait_gone::<AgentWorkspace>("a").await?;
    let claim: PersistentVolumeClaim = ns.get("a-session").await?;
    ensure!(claim.metadata.deletion_timestamp.is_none(), "the session is being deleted");
    ns.remove().await
}

#[tokio::test]
async fn an_agent_has_no_api_token_no_capabilities_and_no_way_out_of_its_tree() -> Result<()> {
    let ns = TestNamespace::create("powers").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "what may you do" })).await?;
    ns.wait_task_complete("a").await?;
    let log = ns.log("a").await?;
    let outputs = outputs(&log);
    ensure!(outputs.len() == 2, "{outputs:?}");
    let output = &outputs[0].1;
    ensure!(output.contains("No such file") && !output.contains("namespace"), "an API token is mounted: {output}");
    ensure!(output.contains("CapEff:\t0000000000000000") && output.contains("CapBnd:\t0000000000000000"), "capabilities: {output}");
    ensure!(output.contains("NoNewPrivs:\t1") && output.contains("Uid:\t1000"), "{output}");
    ensure!(output.matches("Read-only file system").count() == 2, "{output}");
    ensure!(output.contains("Permission denied"), "another process's environment is readable: {output}");
    ensure!(!output.contains("KUBERNETES_") && !output.contains("YOI_MODEL"), "the environment holds more than it should: {output}");
    ensure!(outputs[1].0 != ToolOutcome::Succeeded && !outputs[1].1.contains("root:"), "{:?}", outputs[1]);
    let config: Vec<ConfigMap> = ns.list("yoi.dev/yoipod=a").await?;
    ensure!(config.iter().all(|c| c.immutable == Some(true)), "the manifest can be changed");
    ns.remove().await
}

#[tokio::test]
async fn a_yoipod_whose_project_is_missing_says_so_and_starts_when_it_comes() -> Result<()> {
    let ns = TestNamespace::create("missing").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_agent("a", "later", json!({ "task": "write the file" })).await?;
    let condition = ns.wait_reason::<YoiPod>("a", "Accepted", "SourceNotFound").await?;
    ensure!(condition.message.contains("later"), "{}", condition.message);
    ensure!(ns.list::<Pod>("yoi.dev/yoipod=a").await?.is_empty(), "a Pod was made all the same");
    ns.create_empty_project("later").await?;
    ns.wait_task_complete("a").await?;
    ns.remove().await
}

#[tokio::test]
async fn a_model_secret_that_is_missing_is_named_and_used_when_it_comes() -> Result<()> {
    let ns = TestNamespace::create("secret").await?;
    ns.create_model_with_key(SCRIPT, "the-key-of-the-model").await?;
    ns.create_empty_project("p").await?;
    let model = json!({ "provider": "OpenAI", "name": "scripted", "baseUrl": format!("http://scripted-model.{}.svc:8080/v1/", ns.name),
        "authSecretRef": { "name": "later", "key": "apiKey" } });
    ns.create_agent("a", "p", json!({ "task": "write the file", "model": model })).await?;
    let condition = ns.wait_reason::<YoiPod>("a", "Ready", "SecretMissing").await?;
    ensure!(["Secret later ", "no key apiKey", &ns.name].iter().all(|word| condition.message.contains(word)), "{}", condition.message);
    ns.apply(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "later" }, "stringData": { "apiKey": "the-key-of-the-model" } }).to_string()).await?;
    ns.wait_task_complete("a").await?;
    let objects = ns.kubectl(&["get", "yoipods,configmaps,pods,agentworkspaces,events", "-o", "yaml"]).await?.exit_ok()?.out;
    ensure!(!objects.replace("--require-key=the-key-of-the-model", "").contains("the-key-of-the-model"), "an object holds the key");
    ns.remove().await
}

#[tokio::test]
async fn quiet_objects_are_not_written() -> Result<()> {
    let ns = TestNamespace::create("quiet").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "write the file" })).await?;
    ns.wait_task_complete("a").await?;
    ns.wait_condition::<YoiPod>("a", "Ready", ConditionStatus::True).await?;
    // Quiet means that the resource versions stay the same for ten seconds. Writes that follow the task get their time first.
    let mut before = (String::new(), String::new());
    for _ in 0..6 {
        let now = (
            ns.get::<YoiPod>("a").await?.resource_version().unwrap_or_default(),
            ns.get::<AgentWorkspace>("a").await?.resource_version().unwrap_or_default(),
        );
        if now == before {
            return ns.remove().await;
        }
        before = now;
        // Only time shows that nobody writes.
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    anyhow::bail!("an idle agent's objects are written again and again")
}

#[tokio::test]
async fn an_agent_waits_for_a_missing_secret_without_a_restart_of_its_container() -> Result<()> {
    let ns = TestNamespace::create("patient").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    let env = json!([{ "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "later", "key": "token" } } }]);
    ns.create_agent("a", "p", json!({ "task": "write the file", "pod": { "env": env } })).await?;
    let condition = ns.wait_reason::<YoiPod>("a", "Ready", "SecretMissing").await?;
    ensure!(["Secret later ", "variable TOKEN ", "no key token"].iter().all(|word| condition.message.contains(word)), "{condition:?}");
    let restarts = || async {
        let pods = ns.list::<Pod>("yoi.dev/yoipod=a").await?;
        let statuses = pods.into_iter().filter_map(|pod| pod.status?.container_statuses).flatten();
        anyhow::Ok(statuses.map(|container| container.restart_count).collect::<Vec<_>>())
    };
    // What the kubelet cannot start, it tries again.
    poll_until(TIMEOUT, "the kubelet tries the container a third time", async || {
        Ok((ns.event_count("Pod", "a-1", "Failed").await? >= 3).then_some(()))
    })
    .await?;
    ensure!(restarts().await? == [0], "{:?}", restarts().await?);
    ns.apply(
        &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "later" }, "stringData": { "token": "a-secret-value" } })
            .to_string(),
    )
    .await?;
    ns.wait_task_complete("a").await?;
    ensure!(restarts().await? == [0], "{:?}", restarts().await?);
    let objects = ns.kubectl(&["get", "yoipods,configmaps,pods,agentworkspaces,events", "-o", "yaml"]).await?.exit_ok()?.out;
    ensure!(!objects.contains("a-secret-value"), "an object holds the value");
    ns.remove().await
}

#[tokio::test]
async fn an_agent_has_the_volumes_variables_tolerations_and_affinity_that_its_spec_asks_for() -> Result<()> {
    let ns = TestNamespace::create("asked").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "colour": "blue" } }).to_string())
        .await?;
    let exists = json!([{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "Exists" }] }]);
    let pod = json!({
        "env": [{ "name": "COLOUR", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "colour" } } }],
        "tolerations": [{ "key": "example.com/none", "operator": "Exists" }],
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": exists } } },
        "volumes": [{ "name": "settings", "configMap": { "name": "m" } }, { "name": "cache", "emptyDir": { "sizeLimit": "16Mi" } }],
        "volumeMounts": [{ "name": "settings", "mountPath": "/settings", "readOnly": true }, { "name": "cache", "mountPath": "/home/agent/.cache" }],
        "securityContext": { "supplementalGroups": [4711] },
    });
    ns.create_agent("a", "p", json!({ "pod": pod })).await?;
    ns.wait_agent_ready("a").await?;
    let script = "cat /settings/colour; echo; echo $COLOUR; touch /home/agent/.cache/x && id -G";
    let name = ns.get::<YoiPod>("a").await?.status.and_then(|status| status.pod).context("the agent has no Pod")?.name;
    let output = ns.kubectl(&["exec", &name, "--", "sh", "-c", script]).await?.exit_ok()?.out;
    let lines: Vec<_> = output.lines().collect();
    ensure!(lines.len() == 3 && lines[..2] == ["blue", "blue"] && lines[2].split(' ').any(|group| group == "4711"), "{output}");
    let refused = ns
        .try_apply(
            &json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": "b" }, "spec": {
        "projectRef": { "name": "p" }, "agent": { "builtin": {} },
        "pod": { "volumes": [{ "name": "host", "hostPath": { "path": "/" } }] } } })
            .to_string(),
        )
        .await?;
    ensure!(refused.code != 0 && refused.err.contains("hostPath"), "{refused:?}");
    ns.remove().await
}

#[tokio::test]
async fn a_raised_limit_of_tokens_takes_effect_in_the_process_that_runs() -> Result<()> {
    let ns = TestNamespace::create("tokens").await?;
    ns.create_model("rules:\n- steps: [{text: Done.}]\n").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "limits": { "tokens": 1 } })).await?;
    ns.wait_agent_ready("a").await?;
    let first: YoiPod = ns.get("a").await?;
    // The first may be what uses the tokens up. Of a run that ends at the limit, `send --wait` is no success.
    for text in ["one", "two", "three"] {
        ns.yoi(&["send", "a", text, "--wait"]).await?;
        if runs(&ns.log("a").await?, RunOutcome::LimitReached) > 0 {
            break;
        }
    }
    let ended = ns.log("a").await?;
    ensure!(runs(&ended, RunOutcome::LimitReached) > 0, "{ended:?}");
    let finished = runs(&ended, RunOutcome::Finished);

    let limit = 1_000_000;
    ns.merge_patch::<YoiPod>("a", &json!({ "spec": { "limits": { "tokens": limit } } })).await?;
    let begun = Instant::now();
    let known = async || {
        let top: serde_json::Value = serde_json::from_str(&ns.yoi(&["top", "a", "-o", "json"]).await?.exit_ok()?.out)?;
        Ok((top["items"][0]["usage"]["limit"] == limit).then_some(()))
    };
    poll_until(Duration::from_secs(30), "the runtime knows the new limit", known).await?;
    eprintln!("a raised limit took effect after {:?}", begun.elapsed());
    ns.yoi(&["send", "a", "with more tokens", "--wait"]).await?.exit_ok()?;
    ensure!(runs(&ns.log("a").await?, RunOutcome::Finished) == finished + 1);
    let now: YoiPod = ns.get("a").await?;
    let pod = |agent: &YoiPod| agent.status.as_ref().and_then(|status| status.pod.clone());
    ensure!(pod(&now) == pod(&first), "another Pod was made");
    ns.remove().await
}
